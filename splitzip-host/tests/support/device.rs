//! The device of the tests, if there is one.

use splitzip_host::Error;
use splitzip_host::cuda::Cuda;
use std::io::Write;

/// A line on stderr. Not by `eprintln!`, which a passing test does not show.
pub fn skipped(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}; what ran on a GPU last is in docs/gpu/h200.json\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The first device; none only where there is no driver or no device.
pub fn device(test: &str) -> Option<Cuda> {
    match Cuda::open(0) {
        Ok(cuda) => Some(cuda),
        Err(Error::CudaUnavailable { reason }) => {
            skipped(test, &reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The device, or the end of the test.
#[macro_export]
macro_rules! device {
    ($name:literal) => {
        match device::device($name) {
            Some(cuda) => cuda,
            None => return,
        }
    };
}
