//! Other compressors on the host, as people use them on floats: the bytes of every element go to planes, and blocks of these to a
//! compressor of bytes. (blosc does the same and calls it a shuffle.)
//!
//! Blocks are independent, so that they can be shared out among threads like our chunks. Every thread keeps its buffers and its contexts: making those anew
//! for each block would cost as much as the work.

use crate::failure::{Failure, Result};
use rayon::prelude::*;
use splitzip_host::measure::{Effort, Measured, clock, copy_with};
use std::io;
use std::sync::Mutex;

/// Raw bytes of a block: both its forms lie in the second level of the caches.
const BLOCK: usize = 256 << 10;
/// The fastest level that is not a negative one.
const ZSTD_LEVEL: i32 = 1;

/// A compressor of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    Zstd,
    Lz4,
}

impl Peer {
    pub const ALL: [Peer; 2] = [Peer::Zstd, Peer::Lz4];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Zstd => "zstd-1",
            Peer::Lz4 => "lz4",
        }
    }

    /// The most bytes of a block that is compressed.
    fn bound(self, bytes: usize) -> io::Result<usize> {
        match self {
            Peer::Zstd => Ok(zstd::zstd_safe::compress_bound(bytes)),
            Peer::Lz4 => lz4::block::compress_bound(bytes),
        }
    }
}

/// What a thread keeps.
struct Worker {
    peer: Peer,
    planes: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Worker {
    fn new(peer: Peer) -> io::Result<Worker> {
        Ok(Worker {
            peer,
            planes: vec![0; BLOCK],
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            decompressor: zstd::bulk::Decompressor::new()?,
        })
    }

    fn compress(&mut self, element: usize, raw: &[u8], out: &mut [u8]) -> io::Result<usize> {
        let planes = &mut self.planes[..raw.len()];
        to_planes(element, raw, planes);
        match self.peer {
            Peer::Zstd => self.compressor.compress_to_buffer(planes, out),
            Peer::Lz4 => lz4::block::compress_to_buffer(planes, None, false, out),
        }
    }

    fn decompress(&mut self, element: usize, coded: &[u8], out: &mut [u8]) -> io::Result<()> {
        let planes = &mut self.planes[..out.len()];
        let length = match self.peer {
            Peer::Zstd => self.decompressor.decompress_to_buffer(coded, planes)?,
            Peer::Lz4 => lz4::block::decompress_to_buffer(coded, Some(out.len() as i32), planes)?,
        };
        if length != out.len() {
            return Err(io::Error::other("a block came back with another length"));
        }
        from_planes(element, planes, out);
        Ok(())
    }
}

/// The first bytes of all elements, then the second ones. Bytes behind the last whole element stay behind.
fn to_planes(element: usize, raw: &[u8], planes: &mut [u8]) {
    if element != 2 {
        return planes.copy_from_slice(raw);
    }
    let (low, high) = planes.split_at_mut(raw.len() / 2);
    for ((word, low), high) in raw.chunks_exact(2).zip(low).zip(high) {
        (*low, *high) = (word[0], word[1]);
    }
}

fn from_planes(element: usize, planes: &[u8], raw: &mut [u8]) {
    if element != 2 {
        return raw.copy_from_slice(planes);
    }
    let (low, high) = planes.split_at(raw.len() / 2);
    for ((word, low), high) in raw.chunks_exact_mut(2).zip(low).zip(high) {
        (word[0], word[1]) = (*low, *high);
    }
}

/// Compresses and decompresses `bytes` bytes of the tile, whose elements have so many bytes.
///
/// # Errors
/// What a peer says; bytes that did not come back.
pub fn measure(
    peer: Peer,
    threads: usize,
    element: usize,
    tile: &[u8],
    bytes: u64,
    effort: &Effort,
) -> Result<Measured> {
    let failed = |reason: String| Failure::Failed(format!("{}: {reason}", peer.name()));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| failed(error.to_string()))?;
    let raw: Vec<u8> = tile.iter().copied().cycle().take(bytes as usize).collect();
    let stride = peer.bound(BLOCK).map_err(|error| failed(error.to_string()))?;
    let blocks = raw.len().div_ceil(BLOCK);
    let (mut coded, mut lengths) = (vec![0; blocks * stride], vec![0; blocks]);
    let mut back = vec![0; raw.len()];
    let workers = (0..threads).map(|_| Worker::new(peer).map(Mutex::new)).collect::<io::Result<Vec<_>>>();
    let workers = workers.map_err(|error| failed(error.to_string()))?;
    let with_worker = |work: &mut dyn FnMut(&mut Worker) -> io::Result<()>| {
        let own = &workers[rayon::current_thread_index().unwrap_or(0) % threads];
        work(&mut own.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    };

    let measured = (|| {
        let copy = clock(effort, &mut || {
            copy_with(&pool, &mut back, &raw);
            Ok(())
        })?;
        let encode = clock(effort, &mut || {
            let work = raw.par_chunks(BLOCK).zip(coded.par_chunks_mut(stride)).zip(&mut lengths);
            pool.install(|| {
                work.try_for_each(|((raw, out), length)| {
                    with_worker(&mut |worker| {
                        *length = worker.compress(element, raw, out)?;
                        Ok(())
                    })
                })
            })?;
            Ok(())
        })?;
        back.fill(0xa5);
        let decode = clock(effort, &mut || {
            let work = back.par_chunks_mut(BLOCK).zip(coded.par_chunks(stride)).zip(&lengths);
            pool.install(|| {
                work.try_for_each(|((out, coded), &length)| {
                    with_worker(&mut |worker| worker.decompress(element, &coded[..length], out))
                })
            })?;
            Ok(())
        })?;
        Ok::<_, splitzip_host::Error>((copy, encode, decode))
    })();
    let (copy, encode, decode) = measured.map_err(|error| failed(error.to_string()))?;
    if back != raw {
        return Err(failed("other bytes came back".to_owned()));
    }
    let coded_bytes = lengths.iter().map(|&length| length as u64).sum();
    Ok(Measured::on_host(bytes, coded_bytes, copy, encode, decode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_come_back() {
        for (element, length) in [(1, 7), (2, 8), (2, 0)] {
            let raw: Vec<u8> = (0..length).collect();
            let (mut planes, mut back) = (vec![0; raw.len()], vec![0; raw.len()]);
            to_planes(element, &raw, &mut planes);
            from_planes(element, &planes, &mut back);
            assert_eq!(back, raw);
            assert!(element == 1 || length == 0 || planes[..4] == [0, 2, 4, 6]);
        }
    }

    #[test]
    fn peers_shrink_what_repeats() {
        let tile: Vec<u8> = (0..4096u32).flat_map(|i| (0x3f80 + (i % 7) as u16).to_le_bytes()).collect();
        let effort = Effort { runs: 1, seconds: 0.1 };
        for (peer, threads) in [(Peer::Zstd, 1), (Peer::Zstd, 2), (Peer::Lz4, 1), (Peer::Lz4, 2)] {
            let bytes = BLOCK as u64 * 2 + 1000;
            let measured = measure(peer, threads, 2, &tile, bytes, &effort).unwrap();
            assert_eq!(measured.raw_bytes, bytes);
            assert!(measured.ratio() > 20.0, "{peer:?}: {}", measured.ratio());
        }
    }
}
