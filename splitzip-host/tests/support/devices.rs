//! Two devices, and tests in a process of their own.

use super::device::{device, skipped};
use splitzip_host::cuda::{Cuda, devices};
use std::process::Command;

/// The first two devices.
pub fn two_devices(test: &str) -> Option<[Cuda; 2]> {
    let first = device(test)?;
    if devices().unwrap().len() < 2 {
        skipped(test, "it needs two devices, and there is one");
        return None;
    }
    Some([first, Cuda::open(1).unwrap()])
}

/// A test of this program, which is ignored otherwise, in a process of its own: after a fault a context is of no use any more, and what devices a process sees
/// is decided when it starts.
pub fn in_its_own_process(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads", "1"]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test}, {variables:?}: {text}");
}
