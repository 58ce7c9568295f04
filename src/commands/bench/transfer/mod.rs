//! `bench transfer`: KV that really moves, over PCIe, over loopback TCP and to files, raw and with every scheme in turn.

mod file;
mod link;
mod sides;
mod tcp;
mod told;

use super::data::Source;
use super::machine::{Device, Machine};
use crate::arguments::BenchTransfer;
use crate::device::{self, DeviceChoice};
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA};
use crate::progress::{Bar, catch_interrupts};
use splitzip_host::cuda::Cuda;
use splitzip_host::cuda::offload::{OffloadOptions, PinnedPool, Way};
use splitzip_host::measure::Effort;
use splitzip_host::measure::transfer::{KvPlace, LAYERS, MeasuredTransfer, TOKEN_BYTES, TransferSubject};
use splitzip_host::{Bases, Dtype, Error, Scheme};
pub use tcp::Speed;
use told::{Object, Row, ShortRow};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum What {
    /// Between the GPU and the memory of the host.
    Offload,
    /// To another process over loopback TCP.
    Tcp,
    /// Between the GPU and a file in --folder.
    File,
}

/// How frames get to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum WayName {
    /// By the copy engine.
    Staged,
    /// By kernels that write to the memory of the host.
    Direct,
}

/// Bytes of a request that is moved unless one asks for another: on a GPU, and on a CPU.
const REQUEST_BYTES: (u64, u64) = (4 << 30, 256 << 20);

/// Tokens of a layer (4 KiB each) of short transfers, and how many more runs they get.
const SHORT_TOKENS: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];
const SHORT_RUNS: u32 = 10;

/// The most bytes of the tile that a request is filled with.
const TILE_BYTES: u64 = 64 << 20;

pub fn run(arguments: &BenchTransfer) -> Result {
    let wants = |what: What| arguments.what.contains(&what);
    if wants(What::File) && arguments.device == DeviceChoice::Cpu {
        return Err(Failure::Usage(
            "files are written from the memory of a GPU, and --device cpu has none; use cuda:N or auto, or leave file out of --what"
                .to_owned(),
        ));
    }
    let cuda = open(arguments.device)?;
    let bytes =
        arguments.size.map_or(if cuda.is_some() { REQUEST_BYTES.0 } else { REQUEST_BYTES.1 }, |size| size.0);
    let tokens = (bytes / (LAYERS * TOKEN_BYTES)).max(16).next_multiple_of(16);
    let is_sender = arguments.receive.is_none();
    if is_sender {
        catch_interrupts();
    }
    // Before anything that takes long.
    let folder = match is_sender && wants(What::File) {
        true => Some(file::Folder::new(arguments, tokens.saturating_mul(LAYERS * TOKEN_BYTES))?),
        false => None,
    };
    let source = match &arguments.data {
        Some(path) => Source::open(path)?,
        None => Source::generated(TILE_BYTES)?,
    };
    let tile = source.tile(&source.data(), Dtype::Bf16, None, TILE_BYTES)?;
    let request = tcp::Request { tokens, tile };
    if let Some(address) = &arguments.receive {
        return tcp::receive(address, cuda.as_ref(), &request);
    }
    let device = match &cuda {
        Some(cuda) => Device::cuda(cuda).map_err(failed)?,
        None => Device::host("cpu", std::thread::available_parallelism().map_or(1, usize::from)),
    };
    let mut object = Object {
        schema: SCHEMA,
        command: "bench transfer",
        machine: Machine::this(),
        device,
        data: source.data().name().to_owned(),
        notes: Vec::new(),
        rows: Vec::new(),
        short: Vec::new(),
        wire: Vec::new(),
        folder: None,
        files: Vec::new(),
    };
    let effort = Effort { runs: arguments.runs, seconds: f64::MAX };
    match &cuda {
        Some(cuda) if wants(What::Offload) => offload(arguments, cuda, &request, &effort, &mut object)?,
        None if wants(What::Offload) => {
            object.notes.push("offload: there is no GPU to offload from".to_owned());
        }
        _ => {}
    }
    match (&cuda, folder) {
        (Some(cuda), Some(folder)) => {
            file::measure(arguments, cuda, &request, &folder, &effort, &mut object)?
        }
        (None, Some(_)) => object.notes.push("file: there is no GPU to save from".to_owned()),
        _ => {}
    }
    if wants(What::Tcp) {
        object.wire = tcp::measure(arguments, cuda.as_ref(), &request)?;
    }
    if arguments.json.json {
        return output::text(&object.json()?);
    }
    output::text(&if arguments.markdown { told::markdown(&object) } else { told::text(&object) })
}

fn failed(error: Error) -> Failure {
    Failure::Failed(error.to_string())
}

fn open(choice: DeviceChoice) -> Result<Option<Cuda>> {
    match choice {
        DeviceChoice::Cuda(ordinal) => {
            Cuda::open(ordinal).map(Some).map_err(|error| device::unavailable(choice, error))
        }
        DeviceChoice::Auto => match Cuda::open(0) {
            Ok(cuda) => Ok(Some(cuda)),
            Err(Error::CudaUnavailable { .. }) => Ok(None),
            Err(error) => Err(device::unavailable(choice, error)),
        },
        DeviceChoice::Cpu => Ok(None),
        DeviceChoice::Reference => Err(Failure::Usage(
            "transfers are measured with cpu, cuda:N or auto; the reference is too slow to be sent for"
                .to_owned(),
        )),
    }
}

/// The schemes with the bases of keys that are measured: channel bases where they are as good as always smaller.
fn codings(schemes: &[Scheme]) -> Vec<(Scheme, Bases)> {
    let coding = |&scheme: &Scheme| match scheme {
        Scheme::W2x2x3 => (scheme, Bases::Channel),
        _ => (scheme, Bases::Chunk),
    };
    schemes.iter().map(coding).collect()
}

/// Page-locked memory for all of a request as it is, and for what plans, lengths and comparisons take.
fn pool(cuda: &Cuda, request: &tcp::Request) -> Result<PinnedPool> {
    let bytes = request.tokens * LAYERS * TOKEN_BYTES;
    PinnedPool::new(cuda, bytes + bytes / 8 + (256 << 20)).map_err(failed)
}

/// Rows of the link between the GPU and its host.
fn offload(
    arguments: &BenchTransfer,
    cuda: &Cuda,
    request: &tcp::Request,
    effort: &Effort,
    object: &mut Object,
) -> Result {
    let pool = pool(cuda, request)?;
    let codings = codings(&arguments.schemes);
    let ways = &arguments.ways;
    let mut bar = Bar::new("transfer", 2 * (2 + codings.len() * ways.len()) as u64);
    let mut done = 0;
    for place in [KvPlace::OnePiece, KvPlace::Pages] {
        let shape = (LAYERS, request.tokens);
        let subject = TransferSubject::new(cuda, &pool, place, shape, &request.tile).map_err(failed)?;
        let mut push = |how: String, coding: Option<(Scheme, Bases)>, measured: MeasuredTransfer| {
            done += 1;
            let rows = object.rows.iter().filter(|row| row.is_plain && row.place == told::name(place));
            let best = |of: fn(&Row) -> f64| rows.clone().map(of).min_by(f64::total_cmp);
            let plain = (best(|row| row.out.seconds), best(|row| row.back.seconds));
            object.rows.push(Row::new(place, how, coding, &measured, plain));
            bar.at(done)
        };
        let options = OffloadOptions::default().with_slice_bytes(arguments.slice.0);
        let plain = if place == KvPlace::OnePiece { "copies" } else { "a copy a page" };
        push(plain.to_owned(), None, subject.plain(effort).map_err(failed)?).map_err(failed)?;
        if place == KvPlace::Pages {
            let gathered = subject.codec(Scheme::Stored, Bases::Chunk, options, effort).map_err(failed)?;
            push("gathered, copied".to_owned(), None, gathered).map_err(failed)?;
        }
        for &way in ways {
            for &(scheme, keys) in &codings {
                let (way, name) = match way {
                    WayName::Staged => (Way::Staged, "staged"),
                    WayName::Direct => (Way::Direct, "direct"),
                };
                let measured = subject.codec(scheme, keys, options.with_way(way), effort).map_err(failed)?;
                push(name.to_owned(), Some((scheme, keys)), measured).map_err(failed)?;
            }
        }
    }
    short(cuda, &pool, request, effort, object)
}

/// Transfers that are so short that every microsecond shows: raw, coded, and as a policy decides that has measured both.
fn short(
    cuda: &Cuda,
    pool: &PinnedPool,
    request: &tcp::Request,
    effort: &Effort,
    object: &mut Object,
) -> Result {
    let options = OffloadOptions::default();
    let subject = |tokens| TransferSubject::new(cuda, pool, KvPlace::OnePiece, (1, tokens), &request.tile);
    let policy = subject(SHORT_TOKENS[SHORT_TOKENS.len() - 1])
        .and_then(|subject| subject.policy(Scheme::W2x3, options))
        .map_err(failed)?;
    let effort = Effort { runs: effort.runs * SHORT_RUNS, ..*effort };
    for tokens in SHORT_TOKENS {
        let subject = subject(tokens).map_err(failed)?;
        let plain = subject.plain(&effort).map_err(failed)?;
        let coded = subject.codec(Scheme::W2x3, Bases::Chunk, options, &effort).map_err(failed)?;
        let [raw, decided] = subject.beside_raw(Scheme::W2x3, options, policy, &effort).map_err(failed)?;
        object.short.push(ShortRow::new(&plain, &raw, &coded, &decided));
    }
    object.notes.push(format!(
        "the policy codes {} and more: a link of {:.1} GB/s, {:.0} microseconds a transfer, {:.0} more for the codec",
        output::binary(policy.least_bytes()),
        policy.link().bytes_per_second() / 1e9,
        policy.link().latency_seconds() * 1e6,
        policy.codec().encode().seconds_per_call() * 1e6
    ));
    Ok(())
}
