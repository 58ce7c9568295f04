//! `bench`.
//!
//! The measuring itself is `splitzip_host::measure`; here is what is measured, and how it is told.

mod convert;
mod data;
mod machine;
mod object;
#[cfg(feature = "peers")]
mod peers;
mod plan;
mod table;
pub mod transfer;

pub use data::Kind;
pub use plan::{CodebookKind, Placement, RowBases, Size};

use crate::arguments::{Bench, BenchCommand};
use crate::commands::report::Part;
use crate::device::{self, DeviceChoice};
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA};
use crate::progress::{Bar, catch_interrupts};
use data::{Data, Source};
use machine::{Device, Machine};
use object::{Object, Row};
use plan::{Case, Plan};
use splitzip_host::cuda::Cuda;
use splitzip_host::measure::{DeviceSubject, Effort, HostSubject, Subject};
use splitzip_host::{Codebook, CodebookChoice, Cpu, Dtype, Error, Executor, Reference, Scheme};

pub fn run(arguments: &Bench) -> Result {
    if let Some(BenchCommand::Transfer(arguments)) = &arguments.what {
        return transfer::run(arguments);
    }
    if arguments.peers && cfg!(not(feature = "peers")) {
        let reason = "this build has no --peers: build it with `cargo build --release --features peers`";
        return Err(Failure::Usage(reason.to_owned()));
    }
    catch_interrupts();
    let source = match &arguments.data {
        Some(path) => Source::open(path)?,
        None => Source::generated(largest_size(arguments))?,
    };
    // What cannot be measured is said before the first row is.
    let targets = open(arguments)?;
    let mut plans = Vec::new();
    for target in &targets {
        let mut plan = Plan::new(arguments, &source, target.sizes)?;
        target.leave_out_what_has_no_room(&mut plan, arguments.sizes.is_empty())?;
        plans.push(plan);
    }
    let total = plans.iter().flat_map(|plan| &plan.cases).map(|case| case.bytes).sum();
    let mut work = Work {
        source: &source,
        effort: Effort { runs: arguments.runs, ..Effort::default() },
        peers: arguments.peers,
        bar: Bar::new("bench", total),
        done: 0,
        rows: Vec::new(),
    };
    let mut devices = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for (target, plan) in targets.into_iter().zip(plans) {
        devices.push(target.device.clone());
        notes.extend(plan.notes.iter().filter(|&note| !notes.contains(note)).cloned().collect::<Vec<_>>());
        work.measure(target, plan)?;
    }
    let rows = work.rows;
    drop(work.bar);
    let object = Object { schema: SCHEMA, command: "bench", machine: Machine::this(), devices, notes, rows };
    if arguments.json.json {
        return output::text(&object.json()?);
    }
    output::text(&if arguments.markdown { table::markdown(&object) } else { table::text(&object) })
}

/// The most bytes of a row, as far as one knows before there is a plan.
fn largest_size(arguments: &Bench) -> u64 {
    arguments.sizes.iter().map(|size| size.0).max().unwrap_or(u64::MAX)
}

/// Something that is measured, and what it is called.
struct Target {
    device: Device,
    subject: Box<dyn Subject>,
    sizes: &'static [u64],
}

/// All that `--device` and `--threads` say.
fn open(arguments: &Bench) -> Result<Vec<Target>> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads: Vec<usize> = plan::unique(&arguments.threads).into_iter().map(usize::from).collect();
    if threads.is_empty() {
        threads.push(all);
    }
    let mut targets = Vec::new();
    for choice in plan::unique(&arguments.device) {
        match choice {
            DeviceChoice::Cuda(ordinal) => {
                targets.push(open_cuda(ordinal).map_err(|error| device::unavailable(choice, error))?)
            }
            DeviceChoice::Auto => match open_cuda(0) {
                Ok(target) => targets.push(target),
                Err(Error::CudaUnavailable { reason }) => {
                    tracing::info!("no GPU is used: {reason}");
                    targets.extend(open_cpu(&threads)?);
                }
                Err(error) => return Err(device::unavailable(choice, error)),
            },
            DeviceChoice::Cpu => targets.extend(open_cpu(&threads)?),
            DeviceChoice::Reference => {
                // The naive executor takes a second for a few megabytes.
                let sizes = &plan::HOST_SIZES[..3];
                targets.push(open_host("reference", Box::new(Reference), 1, sizes)?);
            }
        }
    }
    Ok(targets)
}

fn open_cuda(ordinal: usize) -> Result<Target, Error> {
    let cuda = Cuda::open(ordinal)?;
    let (device, subject) = (Device::cuda(&cuda)?, Box::new(DeviceSubject::new(&cuda)?));
    Ok(Target { device, subject, sizes: &plan::DEVICE_SIZES })
}

fn open_cpu(threads: &[usize]) -> Result<Vec<Target>> {
    let one = |&threads: &usize| {
        let executor = Cpu::with_threads(threads).map_err(failed)?;
        open_host("cpu", Box::new(executor), threads, &plan::HOST_SIZES)
    };
    threads.iter().map(one).collect()
}

fn open_host(
    name: &str,
    executor: Box<dyn Executor>,
    threads: usize,
    sizes: &'static [u64],
) -> Result<Target> {
    let subject = Box::new(HostSubject::new(executor, threads).map_err(failed)?);
    Ok(Target { device: Device::host(name, threads), subject, sizes })
}

fn failed(error: Error) -> Failure {
    Failure::Failed(error.to_string())
}

impl Target {
    /// Sizes that nobody has asked for are left out where there is no room; others are refused.
    fn leave_out_what_has_no_room(&self, plan: &mut Plan, may_leave_out: bool) -> Result {
        let mut kept = Vec::new();
        let mut too_large = u64::MAX;
        for case in std::mem::take(&mut plan.cases) {
            if case.bytes >= too_large {
                continue;
            }
            match self.subject.check_room(&case.spec) {
                Ok(()) => kept.push(case),
                Err(error @ (Error::DeviceMemory { .. } | Error::HostMemory { .. })) if may_leave_out => {
                    too_large = case.bytes;
                    plan.note(error.to_string());
                }
                Err(error) => return Err(failed(error)),
            }
        }
        kept.retain(|case| case.bytes < too_large);
        if kept.is_empty() {
            return Err(Failure::Failed(format!("nothing is left to measure: {}", plan.notes.join("; "))));
        }
        plan.cases = kept;
        Ok(())
    }
}

/// What is done, and what came of it.
struct Work<'a> {
    source: &'a Source,
    effort: Effort,
    peers: bool,
    bar: Bar,
    done: u64,
    rows: Vec<Row>,
}

impl Work<'_> {
    /// Measures all rows of a device, and gives its memory back.
    fn measure(&mut self, target: Target, plan: Plan) -> Result {
        let Target { device, mut subject, .. } = target;
        let (is_cpu, threads) = (device.device == "cpu", device.threads);
        for cases in plan.cases.chunk_by(|a, b| (&a.data, a.dtype) == (&b.data, b.dtype)) {
            let (data, dtype) = (&cases[0].data, cases[0].dtype);
            for cases in cases.chunk_by(|a, b| a.bases.tensors().len() == b.bases.tensors().len()) {
                self.measure_loaded(&device, &mut *subject, cases)?;
            }
            if self.peers && is_cpu {
                self.measure_peers(&device, (data, dtype), cases, threads.unwrap_or(1))?;
            }
        }
        self.bar.at(self.done).map_err(failed)
    }

    /// Measures rows of the same data in as many tensors: their bytes are made and loaded once, for the largest of them.
    fn measure_loaded(&mut self, device: &Device, subject: &mut dyn Subject, cases: &[Case]) -> Result {
        let Case { data, dtype, bases, .. } = &cases[0];
        let parts = bases.tensors();
        let largest = cases.iter().map(|case| case.bytes).max().unwrap_or_default() / parts.len() as u64;
        let tile = |(part, ..): &(Option<Part>, _, _)| self.source.tile(data, *dtype, *part, largest);
        let tiles = parts.iter().map(tile).collect::<Result<Vec<_>>>()?;
        let tiles: Vec<&[u8]> = tiles.iter().map(Vec::as_slice).collect();
        subject.load(&tiles, largest).map_err(failed)?;
        let calibrated = calibrated(*dtype, tiles[0])?;
        for case in cases {
            self.bar.at(self.done).map_err(failed)?;
            let (bytes, scheme, bases) = (case.bytes, case.scheme, case.bases);
            tracing::info!("measuring {bytes} B of {}, {dtype}, {scheme}, {bases} bases", data.name());
            let codebook = match (case.codebook, calibrated) {
                (Some(CodebookKind::Calibrated), Some(codebook)) => CodebookChoice::Given(codebook),
                _ => CodebookChoice::Auto,
            };
            let measured = subject.measure(&case.spec, codebook, &self.effort).map_err(failed)?;
            self.done += case.bytes;
            self.rows.push(Row::new(device, case, &measured));
        }
        Ok(())
    }

    #[cfg(feature = "peers")]
    fn measure_peers(
        &mut self,
        device: &Device,
        of: (&Data, Dtype),
        cases: &[Case],
        threads: usize,
    ) -> Result {
        let largest = cases.iter().map(|case| case.bytes).max().unwrap_or_default();
        let tile = self.source.tile(of.0, of.1, None, largest)?;
        let sizes: Vec<u64> = plan::unique(&cases.iter().map(|case| case.bytes).collect::<Vec<_>>());
        for peer in peers::Peer::ALL {
            for &bytes in &sizes {
                self.bar.at(self.done).map_err(failed)?;
                let measured = peers::measure(peer, threads, of.1.bytes(), &tile, bytes, &self.effort)?;
                self.rows.push(Row::peer(device, of, peer.name(), &measured));
            }
        }
        Ok(())
    }

    #[cfg(not(feature = "peers"))]
    fn measure_peers(&mut self, _: &Device, _: (&Data, Dtype), _: &[Case], _: usize) -> Result {
        Ok(())
    }
}

/// The codebook of all the data, for dtypes that can have one.
fn calibrated(dtype: Dtype, tile: &[u8]) -> Result<Option<Codebook>> {
    if !Scheme::coded().any(|scheme| scheme.has_codebook() && scheme.check(dtype).is_ok()) {
        return Ok(None);
    }
    let histogram = Cpu::new().histogram(dtype, tile).map_err(failed)?;
    Codebook::from_histogram(&histogram).map(Some).map_err(failed)
}
