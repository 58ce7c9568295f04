//! What is known about the driver.

use cudarc::driver::sys;

/// The versions of an NVIDIA driver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DriverVersion {
    /// Its own: `580.159.04`. Only Linux says it.
    pub driver: Option<String>,
    /// The newest CUDA version that it can run: `13.0`.
    pub cuda: String,
}

/// The versions of the driver of this machine.
///
/// # Errors
/// [`Error::CudaUnavailable`](crate::Error::CudaUnavailable) without a driver or a device.
pub fn driver_version() -> crate::Result<DriverVersion> {
    super::probe()?;
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let mut cuda = 0;
    // SAFETY: writes an int; the driver is there.
    let asked = unsafe { sys::cuDriverGetVersion(&mut cuda) };
    asked.result().map_err(super::driver_error("asking the driver for its version"))?;
    let cuda = format!("{}.{}", cuda / 1000, cuda % 1000 / 10);
    Ok(DriverVersion { driver: version_in(&text), cuda })
}

/// The first word that is nothing but numbers with points between them.
fn version_in(text: &str) -> Option<String> {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let version = |word: &&str| word.contains('.') && word.split('.').all(number);
    text.split_whitespace().find(version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_among_other_words() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jan  1 00:00:00 UTC 2026\n\
                    GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        assert_eq!(version_in(text).as_deref(), Some("580.159.04"));
        assert_eq!(version_in("a.b 1 . .2 3."), None);
    }

    #[test]
    fn without_a_driver_it_is_an_error() {
        match driver_version() {
            Ok(version) => assert!(version.cuda.split_once('.').is_some(), "{version:?}"),
            Err(error) => assert!(error.to_string().starts_with("CUDA is not available"), "{error}"),
        }
    }
}
