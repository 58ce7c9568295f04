//! What encodes and decodes: one list of executors, and the choice among them.

use crate::failure::{Failure, Result};
use splitzip_host::cuda::Cuda;
use splitzip_host::{Cpu, Dtype, Error, Executor, Reference, Scheme, SchemeChoice, file};
use std::str::FromStr;
use std::sync::OnceLock;
use std::{env, fmt, io};

/// What `--device` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceChoice {
    /// The first GPU if there is one that can do the work, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// This GPU, or an error.
    Cuda(usize),
    /// The naive executor that says what is right: slow, for tests. It has every scheme.
    Reference,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Reference => f.write_str("reference"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "reference" => Ok(DeviceChoice::Reference),
            _ => {
                let digits = text
                    .strip_prefix("cuda:")
                    .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                let ordinal = digits.and_then(|digits| digits.parse().ok());
                ordinal
                    .map(DeviceChoice::Cuda)
                    .ok_or_else(|| "it must be auto, cpu or cuda:N, as in cuda:0".to_owned())
            }
        }
    }
}

/// The most threads that `--threads` takes.
const MOST_THREADS: usize = 1024;

/// Starts the threads that all work without `--threads` shares, now and not when they are first wanted: then it would be a panic that there are none.
///
/// # Errors
/// What the system says.
pub fn start_threads() -> splitzip_host::Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let start = || {
        let asked = env::var("RAYON_NUM_THREADS").ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        let threads = rayon::ThreadPoolBuilder::new().num_threads(MOST_THREADS.min(asked));
        threads.build_global().map_err(|error| error.to_string())
    };
    STARTED.get_or_init(start).clone().map_err(|error| {
        let reason = format!(
            "a thread for each core cannot be started: {error}; take --threads 1, or raise the limit of processes or of memory (ulimit)"
        );
        Error::Io(io::Error::other(reason))
    })
}

/// Opens an executor.
fn open(choice: DeviceChoice, threads: Option<u16>) -> splitzip_host::Result<Box<dyn Executor>> {
    match (choice, threads) {
        (DeviceChoice::Cuda(ordinal), _) => Ok(Box::new(Cuda::open(ordinal)?)),
        (DeviceChoice::Reference, _) => Ok(Box::new(Reference)),
        (DeviceChoice::Auto | DeviceChoice::Cpu, None) => {
            start_threads()?;
            Ok(Box::new(Cpu::new()))
        }
        (DeviceChoice::Auto | DeviceChoice::Cpu, Some(threads)) => {
            Ok(Box::new(Cpu::with_threads(threads.into())?))
        }
    }
}

/// The executor for `--device` and `--threads`.
///
/// With `auto`, a GPU that is absent or that `suits` refuses is passed over.
pub fn choose(
    choice: DeviceChoice,
    threads: Option<u16>,
    suits: impl Fn(&dyn Executor) -> bool,
) -> Result<Box<dyn Executor>> {
    if choice == DeviceChoice::Auto {
        match open(DeviceChoice::Cuda(0), None) {
            Ok(executor) if suits(&*executor) => return Ok(executor),
            Ok(executor) => tracing::info!("{} lacks what is asked for; the cpu is next", executor.name()),
            Err(Error::CudaUnavailable { reason }) => tracing::info!("no GPU is used: {reason}"),
            Err(error) => tracing::warn!("the GPU is not used: {error}"),
        }
    }
    let executor = open(choice, threads).map_err(|error| unavailable(choice, error))?;
    tracing::info!("device: {}", executor.name());
    Ok(executor)
}

/// Says how to go on without a GPU that was asked for.
pub fn unavailable(choice: DeviceChoice, error: Error) -> Failure {
    match (choice, error) {
        (DeviceChoice::Cuda(ordinal), Error::CudaUnavailable { reason }) => {
            Failure::Failed(format!("cuda:{ordinal} is not available: {reason}; use --device cpu or auto"))
        }
        (_, error) => Failure::Failed(error.to_string()),
    }
}

/// The executor for work with this scheme, or an error that lists the schemes it has.
pub fn choose_with_scheme(
    choice: DeviceChoice,
    threads: Option<u16>,
    scheme: SchemeChoice,
) -> Result<Box<dyn Executor>> {
    let suits = |has: &[Scheme]| scheme.schemes().iter().all(|scheme| has.contains(scheme));
    let executor = choose(choice, threads, |executor| suits(&schemes(executor)))?;
    let has = schemes(&*executor);
    if suits(&has) {
        return Ok(executor);
    }
    let names: Vec<&str> = has.into_iter().map(Scheme::name).collect();
    let (name, names) = (executor.name(), names.join(", "));
    Err(Failure::Usage(format!(
        "the {name} executor does not have the scheme {scheme}; use --scheme with one of {names}"
    )))
}

/// The schemes that an executor has for what files code.
pub fn schemes(executor: &dyn Executor) -> Vec<Scheme> {
    file::schemes_of(executor, Dtype::Bf16)
}
