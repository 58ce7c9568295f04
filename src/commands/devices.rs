//! `devices`.

use crate::arguments::Devices;
use crate::device::{self, DeviceChoice};
use crate::failure::Result;
use crate::output::{self, SCHEMA, size};
use crate::table::Table;
use serde::Serialize;
use splitzip_host::{Error, Executor, cuda};

pub fn run(arguments: &Devices) -> Result {
    let cpu = device::choose(DeviceChoice::Cpu, None, |_| true)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut devices = vec![Device {
        device: "cpu".to_owned(),
        name: format!("{threads} {}", if threads == 1 { "thread" } else { "threads" }),
        memory_bytes: None,
        compute_capability: None,
        schemes: names(&*cpu),
        unavailable: None,
    }];
    match cuda::devices() {
        Ok(found) => devices.extend(found.iter().map(gpu)),
        Err(error) => devices.push(Device::unavailable("cuda".to_owned(), &error)),
    }
    if arguments.json.json {
        return output::json(&Object { schema: SCHEMA, command: "devices", devices });
    }
    let mut table = Table::new(3, &["device", "name", "schemes", "memory"]);
    let mut notes = String::new();
    for device in devices {
        let memory = device.memory_bytes.map_or_else(|| "-".to_owned(), size);
        let schemes = if device.schemes.is_empty() { "-".to_owned() } else { device.schemes.join(" ") };
        if let Some(reason) = device.unavailable {
            notes += &format!("\n{} is not available: {reason}\n", device.device);
        }
        table.row([device.device, device.name, schemes, memory]);
    }
    output::text(&(table.text() + &notes))
}

fn gpu(info: &cuda::DeviceInfo) -> Device {
    let named = format!("cuda:{}", info.ordinal);
    let mut device = match device::choose(DeviceChoice::Cuda(info.ordinal), None, |_| true) {
        Ok(executor) => Device { schemes: names(&*executor), ..Device::new(named) },
        Err(failure) => Device { unavailable: Some(failure.to_string()), ..Device::new(named) },
    };
    let (major, minor) = info.compute_capability;
    device.name = info.name.clone();
    device.memory_bytes = Some(info.memory);
    device.compute_capability = Some(format!("{major}.{minor}"));
    device
}

fn names(executor: &dyn Executor) -> Vec<&'static str> {
    device::schemes(executor).into_iter().map(splitzip_host::Scheme::name).collect()
}

#[derive(Serialize)]
struct Object {
    schema: u32,
    command: &'static str,
    devices: Vec<Device>,
}

/// One device, or a kind of which there is none.
#[derive(Serialize)]
struct Device {
    device: String,
    name: String,
    memory_bytes: Option<u64>,
    compute_capability: Option<String>,
    schemes: Vec<&'static str>,
    unavailable: Option<String>,
}

impl Device {
    fn new(device: String) -> Device {
        let (name, schemes) = ("-".to_owned(), Vec::new());
        Device { device, name, memory_bytes: None, compute_capability: None, schemes, unavailable: None }
    }

    fn unavailable(device: String, error: &Error) -> Device {
        let reason = match error {
            Error::CudaUnavailable { reason } => reason.clone(),
            error => error.to_string(),
        };
        Device { unavailable: Some(reason), ..Device::new(device) }
    }
}
