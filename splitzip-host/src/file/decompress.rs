//! `.spz` back to the original, and proofs that this works. While a frame is decoded, the one before it is hashed and handed on.

use super::compress::join;
use super::{FileError, Progress, Reader};
use crate::format::Frame;
use crate::{Error, Executor, Result};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::ops::Range;
use std::thread;

/// Restores the original, byte for byte.
///
/// Checksums of tensors and the SHA-256 of the whole are compared on the way: when this returns an error, what was
/// written is not the original.
///
/// # Errors
/// Damage of any kind, what the executor does not have, what the output returns, what `progress` returns.
pub fn decompress(
    executor: &dyn Executor,
    reader: &mut Reader<'_>,
    mut output: impl Write + Send,
    progress: Progress<'_>,
) -> Result<()> {
    restore(executor, &mut InOrder::of(reader), progress, &mut |_, bytes| Ok(output.write_all(bytes)?))?;
    Ok(output.flush()?)
}

/// Proves that the file restores to the bytes whose SHA-256 it holds.
///
/// # Errors
/// As [`decompress`]; of a damaged frame [`FileError::Damaged`] with the first tensor and chunk that are, if they can be told.
pub fn verify(executor: &dyn Executor, reader: &mut Reader<'_>, progress: Progress<'_>) -> Result<()> {
    let mut frames = InOrder::of(reader);
    restore(executor, &mut frames, progress, &mut |_, _| Ok(()))
        .map_err(|error| frames.located(executor, error))
}

/// Proves that the file restores to `original`.
///
/// # Errors
/// [`FileError::Differs`] with the first byte that does not, and as [`decompress`].
pub fn verify_against(
    executor: &dyn Executor,
    reader: &mut Reader<'_>,
    original: &[u8],
    progress: Progress<'_>,
) -> Result<()> {
    let (restored, given) = (reader.header().raw_bytes, original.len() as u64);
    let contents = match reader.contents() {
        Ok(contents) => contents,
        Err(error) => return Err(InOrder { reader, next: 1 }.located(executor, error)),
    };
    let tensor =
        |at| contents.as_ref().and_then(|contents| contents.tensor_at(at)).map(|tensor| tensor.name.clone());
    let mut frames = InOrder::of(reader);
    let compared = restore(executor, &mut frames, progress, &mut |raw_at, bytes| {
        let expected = original.get(raw_at as usize..).unwrap_or(&[]);
        let same = expected.len().min(bytes.len());
        if bytes[..same] == expected[..same] {
            return Ok(());
        }
        let offset = bytes.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(same);
        let at = raw_at + offset as u64;
        let reason =
            format!("{:#04x} is restored, {:#04x} is in the other file", bytes[offset], expected[offset]);
        Err(FileError::Differs { at, tensor: tensor(at), reason }.into())
    });
    compared.map_err(|error| frames.located(executor, error))?;
    if restored != given {
        let reason = format!("{restored} bytes are restored, the other file has {given}");
        return Err(FileError::Differs { at: restored.min(given), tensor: None, reason }.into());
    }
    Ok(())
}

/// Frames that come one after the other.
pub(super) trait Frames {
    /// Decodes the next frame into `out`, whose size becomes that of its raw bytes, and returns where these start in the original;
    /// `None` when there are no more.
    fn decode_next(&mut self, executor: &dyn Executor, out: &mut Vec<u8>) -> Result<Option<u64>>;

    /// SHA-256 of the original; it need not be known before the end.
    fn sha256(&self) -> [u8; 32];
}

/// The frames of a file, from the first one on.
struct InOrder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    next: usize,
}

impl<'r, 'a> InOrder<'r, 'a> {
    fn of(reader: &'r mut Reader<'a>) -> InOrder<'r, 'a> {
        InOrder { reader, next: 0 }
    }
}

impl InOrder<'_, '_> {
    /// The error, with what is damaged if it is about the bytes of the frame that was last, and that can be told.
    fn located(self, executor: &dyn Executor, error: Error) -> Error {
        if !matches!(error, Error::File(FileError::Check { .. } | FileError::Frame { .. })) {
            return error;
        }
        let frame = self.next.saturating_sub(1);
        match damage(executor, self.reader, frame) {
            Some((tensor, chunk, bytes)) => {
                FileError::Damaged { source: Box::new(error), tensor, chunk, bytes }.into()
            }
            None => error,
        }
    }
}

/// The first tensor, chunk and bytes of the original that a frame has no more, by its own checks, whatever its CRC is.
fn damage(
    executor: &dyn Executor,
    reader: &mut Reader<'_>,
    frame: usize,
) -> Option<(Option<String>, Option<u64>, Range<u64>)> {
    let raw_at = reader.frames().get(frame)?.raw_at;
    let bytes = reader.damaged_bytes(frame).ok()?;
    let parsed = reader.parse(frame, &bytes).ok()?;
    let Err(Error::File(FileError::Frame { source, .. })) = decode(executor, &parsed, frame, &mut Vec::new())
    else {
        return None;
    };
    let (number, chunk) = match *source {
        Error::Checksum { tensor, chunk, .. } => (tensor, chunk),
        Error::Chunk { tensor, chunk, .. } => (tensor, Some(chunk)),
        _ => return None,
    };
    let pieces = &parsed.layout().tensors;
    let piece = pieces.get(number)?;
    let start = raw_at + pieces[..number].iter().map(|before| before.bytes).sum::<u64>();
    let end = start + piece.bytes;
    let name = reader.contents_by(Reader::damaged_bytes).ok().flatten();
    let name = name.and_then(|contents| contents.tensor_at(start).map(|tensor| tensor.name.clone()));
    let bytes = match chunk {
        Some(chunk) => {
            let at = start + chunk * piece.chunk_bytes();
            at..(at + piece.chunk_bytes()).min(end)
        }
        None => start..end,
    };
    Some((name, chunk, bytes))
}

impl Frames for InOrder<'_, '_> {
    fn decode_next(&mut self, executor: &dyn Executor, out: &mut Vec<u8>) -> Result<Option<u64>> {
        let frame = self.next;
        let Some(record) = self.reader.frames().get(frame).copied() else { return Ok(None) };
        self.next += 1;
        let bytes = self.reader.frame_bytes(frame)?;
        decode(executor, &self.reader.parse(frame, &bytes)?, frame, out)?;
        Ok(Some(record.raw_at))
    }

    fn sha256(&self) -> [u8; 32] {
        *self.reader.sha256()
    }
}

/// Decodes all frames in order; `sink` gets raw bytes with their place. At most two frames are in memory.
pub(super) fn restore(
    executor: &dyn Executor,
    frames: &mut dyn Frames,
    progress: Progress<'_>,
    sink: &mut (dyn FnMut(u64, &[u8]) -> Result<()> + Send),
) -> Result<()> {
    let mut digest = Sha256::new();
    let (mut next, mut ready) = (Vec::new(), Vec::new());
    let mut ready_at = 0;
    loop {
        let following = thread::scope(|scope| {
            let hashed = thread::Builder::new()
                .name("hash".to_owned())
                .spawn_scoped(scope, || digest.update(&ready))?;
            let sunk = thread::Builder::new()
                .name("write".to_owned())
                .spawn_scoped(scope, || sink(ready_at, &ready))?;
            let decoded = frames.decode_next(executor, &mut next);
            join(hashed);
            join(sunk)?;
            decoded
        })?;
        progress(ready_at + ready.len() as u64)?;
        std::mem::swap(&mut next, &mut ready);
        match following {
            Some(raw_at) => ready_at = raw_at,
            None => break,
        }
    }
    let (found, computed) = (hexadecimal(&frames.sha256()), hexadecimal(&digest.finalize()));
    if found == computed { Ok(()) } else { Err(FileError::Digest { found, computed }.into()) }
}

/// Decodes frame number `number` into `out`, whose size becomes that of the raw bytes.
///
/// The frame limit, at most 256 MiB, bounds it: [`Reader::parse`] has compared the frame with the index.
pub(crate) fn decode(
    executor: &dyn Executor,
    frame: &Frame<'_>,
    number: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.resize(frame.layout().raw_bytes as usize, 0);
    let mut outputs = Vec::with_capacity(frame.len());
    let mut rest = &mut out[..];
    for piece in &frame.layout().tensors {
        let (output, behind) = rest.split_at_mut(piece.bytes as usize);
        outputs.push(output);
        rest = behind;
    }
    let wrap = |source| FileError::Frame { frame: number as u64, source: Box::new(source) }.into();
    executor.decode(frame, &mut outputs).map_err(wrap)
}

/// The digits of a digest.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
