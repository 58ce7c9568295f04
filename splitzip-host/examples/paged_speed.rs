//! How fast a GPU encodes and decodes KV in pages: beside the same bytes in one piece, a copy of them, and a gather of the same pages that only copies.
//!
//! ```text
//! cargo run --release -p splitzip-host --example paged_speed -- --tokens 4096 KV.bin
//! ```
//!
//! `--only TEXT` takes the rows in pages whose layout and scheme contain the text. `KV.bin` holds bf16 elements; without it they have the exponents of a made-up distribution, and their speed says less. The shape is that of Llama-3-8B: 32 layers, 8 heads of
//! 128, keys and values. Every row ends with a
//! comparison: the frame with that of the CPU, and the frame that the CPU makes of the pages that were decoded.

use splitzip_host::cuda::{Cuda, DeviceBytes, DevicePool};
use splitzip_host::measure::transfer::shuffled;
use splitzip_host::measure::{Effort, Timer, share_of_copy};
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, VllmOrder};
use splitzip_host::{
    Bases, CodebookChoice, Cpu, Dtype, Executor, Flags, Frame, FrameSpec, Scheme, TensorSpec,
};
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SHAPE: KvShape =
    KvShape { layers: 32, pages: 0, page_tokens: 16, heads: 8, head_dim: 128, dtype: Dtype::Bf16 };

/// A layout that is measured.
struct Layout {
    name: &'static str,
    page_tokens: u64,
    make: fn(&KvShape) -> std::result::Result<KvLayout, splitzip_host::paged::PagedError>,
}

const LAYOUTS: [Layout; 5] = [
    Layout { name: "vLLM, pages of 16", page_tokens: 16, make: KvLayout::vllm },
    Layout {
        name: "FlashInfer NHD, pages of 16",
        page_tokens: 16,
        make: |shape| KvLayout::flash_infer(shape, PageOrder::Nhd),
    },
    Layout {
        name: "FlashInfer HND, pages of 16",
        page_tokens: 16,
        make: |shape| KvLayout::flash_infer(shape, PageOrder::Hnd),
    },
    Layout {
        name: "vLLM fused (LBHNC), pages of 16",
        page_tokens: 16,
        make: |shape| KvLayout::vllm_fused(shape, VllmOrder::Lbhnc),
    },
    Layout { name: "SGLang, pages of 1", page_tokens: 1, make: KvLayout::sglang },
];

const SCHEMES: [(Scheme, Bases); 6] = [
    (Scheme::W4, Bases::Chunk),
    (Scheme::W3, Bases::Chunk),
    (Scheme::W2x3, Bases::Chunk),
    (Scheme::W2x3, Bases::Channel),
    (Scheme::W2x2x3, Bases::Chunk),
    (Scheme::W2x2x3, Bases::Channel),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut tokens, mut path, mut only) = (4096, None, String::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--tokens" => tokens = rest.next().ok_or("--tokens wants a number")?.parse()?,
            "--only" => only = rest.next().ok_or("--only wants a text")?.to_owned(),
            other => path = Some(other.to_owned()),
        }
    }
    let tile = match path {
        Some(path) => std::fs::read(path)?,
        None => made_up(1 << 22),
    };
    let cuda = Cuda::open(0)?;
    let mut bench = Bench { timer: Timer::new(&cuda)?, effort: Effort::default(), cuda, tile };
    let raw = 2 * SHAPE.layers * tokens * SHAPE.heads * SHAPE.head_dim * 2;
    println!(
        "{}, {tokens} tokens: {} MiB in {} tensors; GB/s, and shares of the speed in one piece",
        bench.cuda.info().name,
        raw >> 20,
        2 * SHAPE.layers
    );
    println!();
    println!("| scheme | ratio | copy | encode | share of copy | decode | share of copy |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let speed = |seconds: f64| raw as f64 / seconds / 1e9;
    let mut whole = Vec::new();
    for (scheme, bases) in SCHEMES {
        let of = bench.one_piece(tokens, scheme, bases)?;
        let share = |seconds| share_of_copy(raw, of.frame_bytes, seconds, of.copy);
        println!(
            "| {} | {:.3} | {:.0} | {:.0} | {:.3} | {:.0} | {:.3} |",
            name(scheme, bases),
            raw as f64 / of.frame_bytes as f64,
            speed(of.copy),
            speed(of.encode),
            share(of.encode),
            speed(of.decode),
            share(of.decode)
        );
        whole.push(of);
    }
    println!();
    println!("| layout | scheme | gather copy | encode | of one piece | decode | of one piece | launches |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for layout in &LAYOUTS {
        let pools = bench.pools(layout, tokens)?;
        for ((scheme, bases), whole) in SCHEMES.into_iter().zip(&whole) {
            if !format!("{} {}", layout.name, name(scheme, bases)).contains(&only) {
                continue;
            }
            let of = bench.pages(&pools, scheme, bases)?;
            println!(
                "| {} | {} | {:.0} | {:.0} | {:.3} | {:.0} | {:.3} | {}, {} |",
                layout.name,
                name(scheme, bases),
                speed(of.gather),
                speed(of.encode),
                whole.encode / of.encode,
                speed(of.decode),
                whole.decode / of.decode,
                of.launches.0,
                of.launches.1,
            );
        }
    }
    Ok(())
}

fn name(scheme: Scheme, bases: Bases) -> String {
    match bases {
        Bases::Channel => format!("`{scheme}`, channel bases"),
        Bases::Chunk => format!("`{scheme}`"),
    }
}

/// The pools of two engines, and the pages of a request in both.
struct Pools {
    layout: KvLayout,
    page_tokens: u64,
    tokens: u64,
    there: Vec<i32>,
    back: Vec<i32>,
    host: Vec<Vec<u8>>,
    source: Vec<DeviceBytes>,
    target: Vec<DeviceBytes>,
}

impl Pools {
    fn bind<'a>(&self, ids: &'a [i32]) -> Result<Paged<'a>> {
        Ok(self.layout.bind(PageTable::new(PageIds::I32(ids), self.page_tokens, self.tokens)?)?)
    }
}

struct Bench {
    cuda: Cuda,
    timer: Timer,
    effort: Effort,
    tile: Vec<u8>,
}

struct Whole {
    frame_bytes: u64,
    copy: f64,
    encode: f64,
    decode: f64,
}

struct InPages {
    gather: f64,
    encode: f64,
    decode: f64,
    launches: (usize, usize),
}

impl Bench {
    /// The same bytes as one tensor.
    fn one_piece(&mut self, tokens: u64, scheme: Scheme, bases: Bases) -> Result<Whole> {
        let rows = 2 * SHAPE.layers * tokens * SHAPE.heads;
        let mut tensor = TensorSpec::new("kv", Dtype::Bf16, scheme, &[rows, SHAPE.head_dim]);
        tensor.bases = bases;
        let spec = FrameSpec::new(vec![tensor], Flags::default());
        let raw = rows * SHAPE.head_dim * 2;
        let cuda = &self.cuda;
        let input = cuda.upload(&self.tiled(raw, 0))?;
        let output = cuda.allocate(raw)?;
        let encode = cuda.plan_encode(&spec, &[self.codebook()?])?;
        let decode = cuda.plan_decode(&spec)?;
        let (frame, workspace) =
            (cuda.allocate(encode.max_frame_bytes())?, cuda.allocate(encode.workspace_bytes())?);
        let (tail, status) = (cuda.allocate(decode.workspace_bytes())?, cuda.upload(&[0; 16])?);
        let stream = self.timer.stream();
        // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
        unsafe { encode.prepare(stream, workspace.address())? };
        let encodes =
            // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
            || unsafe { encode.encode(stream, &[input.address()], frame.address(), workspace.address()) };
        encodes()?;
        self.timer.wait()?;
        let frame_bytes = self.frame_bytes(encode.layout(), &frame)?;
        // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
        let decodes = || unsafe {
            decode.decode(
                stream,
                frame.address(),
                frame_bytes,
                &[output.address()],
                tail.address(),
                status.address(),
                0,
            )
        };
        let copy = || {
            // SAFETY: as above.
            unsafe {
                cudarc::driver::result::memcpy_dtod_async(
                    output.address(),
                    input.address(),
                    raw as usize,
                    stream.0 as usize as cudarc::driver::sys::CUstream,
                )
            }
            .map_err(|error| splitzip_host::Error::Device {
                what: "copying".to_owned(),
                reason: format!("{error:?}"),
            })
        };
        let copy = self.timer.events(&self.effort, &copy)?.median();
        let (encode, decode) = (
            self.timer.events(&self.effort, &encodes)?.median(),
            self.timer.events(&self.effort, &decodes)?.median(),
        );
        Ok(Whole { frame_bytes, copy, encode, decode })
    }

    fn pools(&self, layout: &Layout, tokens: u64) -> Result<Pools> {
        let used = tokens / layout.page_tokens;
        // A pool has more pages than the request.
        let pages = used + used / 2;
        let kv = (layout.make)(&KvShape { pages, page_tokens: layout.page_tokens, ..SHAPE })?;
        let sizes = kv.pool_bytes()?;
        let host: Vec<Vec<u8>> =
            sizes.iter().enumerate().map(|(i, &bytes)| self.tiled(bytes, i as u64)).collect();
        let source = host.iter().map(|pool| self.cuda.upload(pool)).collect::<std::result::Result<_, _>>()?;
        let target =
            sizes.iter().map(|&bytes| self.cuda.allocate(bytes)).collect::<std::result::Result<_, _>>()?;
        Ok(Pools {
            layout: kv,
            page_tokens: layout.page_tokens,
            tokens,
            there: shuffled(pages, used, 1),
            back: shuffled(pages, used, 2),
            host,
            source,
            target,
        })
    }

    /// From the pages of a pool, and back into pages in another order of another one.
    fn pages(&mut self, pools: &Pools, scheme: Scheme, bases: Bases) -> Result<InPages> {
        let (from, to) = (pools.bind(&pools.there)?, pools.bind(&pools.back)?);
        let mut spec = from.spec(scheme, Flags::default());
        spec.tensors.iter_mut().for_each(|tensor| tensor.bases = bases);
        let cuda = &self.cuda;
        let on_device = |memory: &[DeviceBytes]| -> Vec<DevicePool> {
            memory.iter().map(|of| DevicePool { address: of.address(), bytes: of.bytes() }).collect()
        };
        let codebooks: Vec<CodebookChoice> = match scheme.has_codebook() {
            true => vec![self.codebook()?; spec.tensors.len()],
            false => Vec::new(),
        };
        let encode = cuda.plan_encode_paged(&spec, &codebooks, &from, &on_device(&pools.source))?;
        let decode = cuda.plan_decode_paged(&spec, None, &to, &on_device(&pools.target))?;
        // A gather that only copies: the same tensors, stored.
        let stored = from.spec(Scheme::Stored, Flags::default());
        let gather = cuda.plan_encode_paged(&stored, &[], &from, &on_device(&pools.source))?;
        let frame = cuda.allocate(encode.max_frame_bytes().max(gather.max_frame_bytes()))?;
        let workspaces = [encode.workspace_bytes(), gather.workspace_bytes(), decode.workspace_bytes()];
        let workspaces = workspaces.map(|bytes| cuda.allocate(bytes));
        let [for_encode, for_gather, for_decode] = workspaces;
        let (for_encode, for_gather, for_decode) = (for_encode?, for_gather?, for_decode?);
        let status = cuda.upload(&[0; 16])?;
        let stream = self.timer.stream();
        // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
        unsafe {
            encode.prepare(stream, for_encode.address())?;
            gather.prepare(stream, for_gather.address())?;
        }
        // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
        let gathers = || unsafe { gather.encode(stream, frame.address(), for_gather.address()) };
        let gather_seconds = self.timer.events(&self.effort, &gathers)?.median();
        // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
        let encodes = || unsafe { encode.encode(stream, frame.address(), for_encode.address()) };
        let encode_seconds = self.timer.events(&self.effort, &encodes)?.median();
        self.timer.wait()?;
        let frame_bytes = self.frame_bytes(encode.layout(), &frame)?;
        // SAFETY: buffers are as long as the plans say and outlive the waits of the timer.
        let decodes = || unsafe {
            decode.decode(stream, frame.address(), frame_bytes, for_decode.address(), status.address(), 0)
        };
        let decode_seconds = self.timer.events(&self.effort, &decodes)?.median();
        self.timer.wait()?;

        let mut bytes = vec![0; frame_bytes as usize];
        self.cuda.download(&frame, &mut bytes)?;
        let check = |what: &str, paged: &Paged<'_>, pools: &[Vec<u8>]| -> Result<()> {
            let slices: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
            let mut expected = vec![0; spec.layout()?.max_frame_bytes as usize];
            let length = Cpu::new().encode_paged(&spec, &codebooks, paged, &slices, &mut expected)?;
            match bytes.iter().zip(&expected[..length]).position(|(a, b)| a != b) {
                None if bytes.len() == length => Ok(()),
                at => Err(format!("{what} is not what the CPU has: byte {at:?} of {length}").into()),
            }
        };
        check("its frame", &from, &pools.host)?;
        Frame::parse(&bytes)?;
        let mut found = [0xff; 4];
        self.cuda.download(&status, &mut found)?;
        if found != [0; 4] {
            return Err("decoding says that the frame is damaged".into());
        }
        let decoded = |of: &DeviceBytes| {
            let mut bytes = vec![0; of.bytes() as usize];
            self.cuda.download(of, &mut bytes).map(|()| bytes)
        };
        let target = pools.target.iter().map(decoded).collect::<std::result::Result<Vec<_>, _>>()?;
        check("what comes back", &to, &target)?;
        Ok(InPages {
            gather: gather_seconds,
            encode: encode_seconds,
            decode: decode_seconds,
            launches: (encode.launches(), decode.launches()),
        })
    }

    fn frame_bytes(&self, layout: &splitzip_host::Layout, frame: &DeviceBytes) -> Result<u64> {
        let at = layout.words_at() as usize;
        let mut start = vec![0; at + 8];
        self.cuda.download(frame, &mut start)?;
        let words = start[at..].try_into().map(u64::from_le_bytes)?;
        Ok(layout.variable_parts(words)?.end)
    }

    fn codebook(&self) -> Result<CodebookChoice> {
        let histogram = Cpu::new().histogram(Dtype::Bf16, &self.tile[..self.tile.len() & !1])?;
        Ok(CodebookChoice::Given(splitzip_host::Codebook::from_histogram(&histogram)?))
    }

    /// Bytes of the tile from some place on, again and again.
    fn tiled(&self, bytes: u64, seed: u64) -> Vec<u8> {
        let start = ((seed as usize * 40960) % self.tile.len()) & !1;
        let mut out = Vec::with_capacity(bytes as usize);
        out.extend_from_slice(&self.tile[start..self.tile.len().min(start + bytes as usize)]);
        while out.len() < bytes as usize {
            out.extend_from_slice(&self.tile[..self.tile.len().min(bytes as usize - out.len())]);
        }
        out
    }
}

/// Elements whose exponents fall off by halves below 127.
fn made_up(elements: u64) -> Vec<u8> {
    let mut state = 1u64;
    let element = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let random = (state >> 24) as u32;
        let exponent = 127 - (random >> 16 | 1 << 24).trailing_zeros().min(12);
        ((random & 0x807f) | exponent << 7) as u16
    };
    (0..elements).map(element).flat_map(u16::to_le_bytes).collect()
}
