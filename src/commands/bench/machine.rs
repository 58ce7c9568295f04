//! What was measured on: without it a number of a table says nothing.

use serde::Serialize;
use serde_json::{Map, Value};
use splitzip_host::cuda::{self, Cuda, PTX};
use splitzip_host::{Cpu, Error};

/// The machine.
#[derive(Serialize)]
pub struct Machine {
    /// Version of this program.
    pub splitzip: &'static str,
    pub os: &'static str,
    pub architecture: &'static str,
    /// Name of the CPU, where the system says it.
    pub cpu: Option<String>,
    pub cores: usize,
    /// A build without optimisation: its numbers say nothing.
    pub debug_build: bool,
}

impl Machine {
    pub fn this() -> Machine {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = text.lines().find(|line| line.starts_with("model name"));
        Machine {
            splitzip: env!("CARGO_PKG_VERSION"),
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            cpu: named.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            debug_build: cfg!(debug_assertions),
        }
    }
}

/// A device of it.
#[derive(Clone, Serialize)]
pub struct Device {
    /// `cpu`, `cuda:0`.
    pub device: String,
    /// Its name, of a GPU.
    pub name: Option<String>,
    /// Threads, of a CPU.
    pub threads: Option<usize>,
    /// The instructions that it takes, of a CPU: `avx512`, `avx2`, `baseline`.
    pub instructions: Option<&'static str>,
    pub memory_bytes: Option<u64>,
    pub compute_capability: Option<String>,
    /// Version of its driver.
    pub driver: Option<String>,
    /// The newest CUDA version that the driver can run.
    pub cuda: Option<String>,
    /// Which PTX it ran.
    pub target: Option<&'static str>,
    /// SHA-256 of every PTX file of that target, by entry.
    pub entries: Option<Map<String, Value>>,
}

impl Device {
    pub fn host(name: &str, threads: usize) -> Device {
        Device {
            device: name.to_owned(),
            name: None,
            threads: Some(threads),
            instructions: (name == "cpu").then(Cpu::instructions),
            memory_bytes: None,
            compute_capability: None,
            driver: None,
            cuda: None,
            target: None,
            entries: None,
        }
    }

    /// # Errors
    /// What the driver says.
    pub fn cuda(cuda: &Cuda) -> Result<Device, Error> {
        let (info, target) = (cuda.info(), cuda.target());
        let version = cuda::driver_version()?;
        let (major, minor) = info.compute_capability;
        let files = PTX.iter().filter(|ptx| ptx.target == target);
        Ok(Device {
            device: format!("cuda:{}", info.ordinal),
            name: Some(info.name.clone()),
            threads: None,
            instructions: None,
            memory_bytes: Some(info.memory),
            compute_capability: Some(format!("{major}.{minor}")),
            driver: version.driver,
            cuda: Some(version.cuda),
            target: Some(target),
            entries: Some(files.map(|ptx| (ptx.entry.to_owned(), ptx.sha256().into())).collect()),
        })
    }

    /// One line about it.
    pub fn text(&self) -> String {
        let mut parts = vec![self.device.clone()];
        parts.extend(self.name.clone());
        parts.extend(self.threads.map(|n| format!("{n} {}", if n == 1 { "thread" } else { "threads" })));
        parts.extend(self.instructions.map(str::to_owned));
        parts.extend(self.driver.as_ref().map(|driver| format!("driver {driver}")));
        parts.extend(self.target.map(|target| format!("PTX for {target}")));
        parts.join(", ")
    }
}
