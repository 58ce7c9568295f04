//! The PTX that ships, and its modules in a CUDA context.

use super::{StreamHandle, driver_error};
use crate::{Error, Result};
use cudarc::driver::{CudaContext, result, sys};
use sha2::{Digest, Sha256};
use splitzip_kernels::launch::Launch;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};

/// A PTX file of the package.
#[derive(Debug)]
pub struct Ptx {
    /// `sm_80` (runs on everything since) or `sm_90`.
    pub target: &'static str,
    /// The entry in it.
    pub entry: &'static str,
    /// The text.
    pub text: &'static str,
}

impl Ptx {
    /// SHA-256 of the text, in hexadecimal: which kernel it was that a record is of.
    pub fn sha256(&self) -> String {
        crate::file::hexadecimal(&Sha256::digest(self.text))
    }
}

/// All PTX files that ship.
pub static PTX: &[Ptx] = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// A function, with the module it lives in.
#[derive(Clone, Copy)]
struct Loaded {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: handles of the driver, which any thread may use once the context is current.
unsafe impl Send for Loaded {}

/// The kernels of one context: each is loaded when it is first wanted, and stays.
pub(super) struct Kernels {
    context: Arc<CudaContext>,
    target: &'static str,
    loaded: Mutex<HashMap<&'static str, Loaded>>,
}

impl Kernels {
    pub fn new(context: Arc<CudaContext>) -> Result<Kernels> {
        let (major, minor) =
            context.compute_capability().map_err(driver_error("asking for the compute capability"))?;
        let target = match major {
            ..8 => {
                let reason = format!(
                    "the device has compute capability {major}.{minor}, the kernels need 8.0 or newer"
                );
                return Err(Error::CudaUnavailable { reason });
            }
            8 => "sm_80",
            _ => "sm_90",
        };
        Ok(Kernels { context, target, loaded: Mutex::default() })
    }

    /// The same for other PTX that the device can run.
    pub fn with_target(context: Arc<CudaContext>, target: &str) -> Result<Kernels> {
        let mut kernels = Kernels::new(context)?;
        let targets: Vec<_> =
            ["sm_80", "sm_90"].into_iter().filter(|&known| known <= kernels.target).collect();
        let found = targets.iter().find(|&&known| known == target);
        kernels.target = found.ok_or_else(|| Error::UnknownName {
            what: "PTX target of this device",
            given: target.to_owned(),
            allowed: targets.join(", "),
        })?;
        Ok(kernels)
    }

    /// The PTX that this context runs.
    pub fn target(&self) -> &'static str {
        self.target
    }

    /// Loads an entry, if it is not loaded yet. The context is current.
    pub fn function(&self, entry: &'static str) -> Result<Function> {
        let mut loaded = self.loaded.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = loaded.get(entry) {
            return Ok(Function(found.function));
        }
        let ptx = PTX.iter().find(|ptx| ptx.target == self.target && ptx.entry == entry);
        let ptx = ptx.ok_or_else(|| Error::CudaUnavailable {
            reason: format!(
                "this build holds no PTX of {entry} for {}; run nvptx-builder build and bless it",
                self.target
            ),
        })?;
        let name = |text: &str| CString::new(text).map_err(|error| Error::Io(std::io::Error::other(error)));
        let (text, symbol) = (name(ptx.text)?, name(entry)?);
        // SAFETY: a C string with PTX; the context is current.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) };
        let module = module
            .map_err(driver_error(&format!("loading the PTX of {entry} (is the driver at least 525?)")))?;
        // SAFETY: the module was loaded.
        let function = unsafe { result::module::get_function(module, symbol) };
        let function = function.map_err(driver_error(&format!("finding {entry}")))?;
        loaded.insert(ptx.entry, Loaded { module, function });
        Ok(Function(function))
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_err() {
            return; // the context is gone, and the modules with it
        }
        let loaded = self.loaded.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for loaded in loaded.values() {
            // SAFETY: loaded once, unloaded once. Work in flight keeps its code until it has run.
            let _ = unsafe { result::module::unload(loaded.module) };
        }
    }
}

/// A kernel that can be launched.
#[derive(Clone, Copy)]
pub(super) struct Function(sys::CUfunction);

// SAFETY: as `Loaded`.
unsafe impl Send for Function {}
// SAFETY: as `Loaded`.
unsafe impl Sync for Function {}

impl Function {
    /// Launches on a stream, without waiting. Nothing happens for a grid of no blocks.
    ///
    /// # Safety
    /// The addresses in the launch are valid on the device until it has run; the function is the entry of the launch.
    pub unsafe fn launch(self, launch: &Launch, multiprocessors: u32, stream: StreamHandle) -> Result<()> {
        if launch.blocks == 0 {
            return Ok(());
        }
        let resident = u64::from(multiprocessors) * u64::from(launch.entry.min_blocks);
        let blocks = if launch.entry.any_blocks { launch.blocks.min(resident) } else { launch.blocks };
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31);
        let blocks = blocks.ok_or(Error::TooLarge { what: "the grid", bits: 31 })?;
        let mut slots: Vec<u64> = launch.slots.as_slice().to_vec();
        let mut pointers: Vec<*mut c_void> = slots.iter_mut().map(|slot| (slot as *mut u64).cast()).collect();
        let (grid, block) = ((blocks, 1, 1), (launch.entry.warps * 32, 1, 1));
        // SAFETY: the slots are the parameters of the entry (the macro made both), addresses by contract.
        unsafe { result::launch_kernel(self.0, grid, block, 0, stream.raw(), &mut pointers) }
            .map_err(driver_error(launch.entry.name))
    }
}
