//! The device of the tests, if there is one.

use splitzip_host::Error;
use splitzip_host::cuda::Cuda;
use std::io::Write;

/// The first device; none only where there is no driver or no device.
pub fn device(test: &str) -> Option<Cuda> {
    match Cuda::open(0) {
        Ok(cuda) => Some(cuda),
        Err(Error::CudaUnavailable { reason }) => {
            // Not `eprintln!`, which a passing test does not show.
            let line = format!("SKIPPED {test}: {reason}; what ran on a GPU last is in docs/gpu/h200.json\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
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
