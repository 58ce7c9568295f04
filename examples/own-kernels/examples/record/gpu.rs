//! A GPU as a [`Machine`]: memory with guards around it, and launches of the committed PTX.

use crate::ptx;
use crate::support::machine::Machine;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use splitzip_kernels::launch::Launch;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Bytes on both sides of memory, which no kernel may write.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;

/// A device, and the kernels of one target on it.
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    target: &'static str,
    functions: HashMap<&'static str, sys::CUfunction>,
    allocated: Vec<u64>,
}

fn failed(what: &str) -> impl Fn(DriverError) -> String + '_ {
    move |error| format!("{what}: {error:?}")
}

impl Gpu {
    /// The device with this number.
    pub fn open(device: usize, target: &'static str) -> Result<Gpu, String> {
        // SAFETY: only looks for the library. Without it, everything else of cudarc would panic.
        if !unsafe { sys::is_culib_present() } {
            return Err("there is no NVIDIA driver (libcuda) on this machine".to_owned());
        }
        let context = CudaContext::new(device).map_err(failed("opening the device"))?;
        let stream = context.default_stream();
        Ok(Gpu { context, stream, target, functions: HashMap::new(), allocated: Vec::new() })
    }

    /// The targets of the committed PTX that the device can run.
    pub fn targets(&self) -> Vec<&'static str> {
        let major = self.context.compute_capability().map_or(0, |(major, _)| major);
        if major >= 9 { vec!["sm_80", "sm_90"] } else { vec!["sm_80"] }
    }

    /// What the device is called.
    pub fn name(&self) -> Result<String, String> {
        self.context.name().map_err(failed("asking for the name"))
    }

    /// Such as `9.0`.
    pub fn compute_capability(&self) -> Result<String, String> {
        let (major, minor) =
            self.context.compute_capability().map_err(failed("asking for the compute capability"))?;
        Ok(format!("{major}.{minor}"))
    }

    /// Device memory, until [`Machine::clear`].
    pub fn allocate(&mut self, bytes: usize) -> Result<u64, String> {
        self.context.bind_to_thread().map_err(failed("making the context current"))?;
        // SAFETY: freed by `clear`.
        let address =
            unsafe { result::malloc_sync(bytes) }.map_err(failed(&format!("allocating {bytes} bytes")))?;
        self.allocated.push(address);
        Ok(address)
    }

    /// Copies from the host.
    pub fn upload(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the callers have allocated so much there.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(failed("copying to the device"))?;
        // The bytes are read when that returns; now they have arrived.
        self.context.synchronize().map_err(failed("waiting for the device"))
    }

    /// Copies on the device.
    pub fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        // SAFETY: the callers have allocated so much there.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) }
            .map_err(failed("copying on the device"))
    }

    /// Queues a launch; nothing waits.
    pub fn queue(&mut self, launch: &Launch) -> Result<(), String> {
        if launch.blocks == 0 {
            return Ok(()); // the driver refuses a grid of nothing
        }
        let function = self.function(launch.entry.name)?;
        let blocks = u32::try_from(launch.blocks).map_err(|_| "too many blocks".to_owned())?;
        let mut slots = launch.slots.as_slice().to_vec();
        let mut pointers: Vec<*mut c_void> = slots.iter_mut().map(|slot| (slot as *mut u64).cast()).collect();
        let (grid, block) = ((blocks, 1, 1), (launch.entry.warps * 32, 1, 1));
        // SAFETY: the slots are the parameters of the entry (`#[kernel]` made both); the memory is allocated until `clear`.
        unsafe { result::launch_kernel(function, grid, block, 0, self.stream.cu_stream(), &mut pointers) }
            .map_err(failed(launch.entry.name))
    }

    fn function(&mut self, entry: &'static str) -> Result<sys::CUfunction, String> {
        if let Some(function) = self.functions.get(entry) {
            return Ok(*function);
        }
        self.context.bind_to_thread().map_err(failed("making the context current"))?;
        let text = CString::new(ptx::text(self.target, entry)?).map_err(|error| error.to_string())?;
        let name = CString::new(entry).map_err(|error| error.to_string())?;
        // SAFETY: a C string with PTX; the context is current. The module stays loaded until the program ends.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .map_err(failed(&format!("loading the PTX of {entry}")))?;
        // SAFETY: the module was loaded.
        let function = unsafe { result::module::get_function(module, name) }.map_err(failed(entry))?;
        self.functions.insert(entry, function);
        Ok(function)
    }

    /// Median microseconds of `run`, of 30 times between events.
    pub fn time(&mut self, run: &mut dyn FnMut(&mut Gpu) -> Result<(), String>) -> Result<f64, String> {
        for _ in 0..5 {
            run(self)?;
        }
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let mut times = Vec::new();
        for _ in 0..30 {
            let start = self.stream.record_event(flags).map_err(failed("an event"))?;
            run(self)?;
            let end = self.stream.record_event(flags).map_err(failed("an event"))?;
            times.push(f64::from(start.elapsed_ms(&end).map_err(failed("waiting"))?) * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

impl Machine for Gpu {
    fn put(&mut self, bytes: &[u8], shift: usize) -> Result<u64, String> {
        let mut whole = vec![GUARD_BYTE; GUARD + shift];
        whole.extend_from_slice(bytes);
        whole.resize(whole.len() + GUARD, GUARD_BYTE);
        let start = self.allocate(whole.len())?;
        self.upload(start, &whole)?;
        Ok(start + (GUARD + shift) as u64)
    }

    fn get(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, String> {
        let mut whole = vec![0; bytes + 2 * GUARD];
        self.stream.synchronize().map_err(failed("waiting"))?;
        // SAFETY: `put` has allocated the guards as well.
        unsafe { result::memcpy_dtoh_sync(&mut whole, address - GUARD as u64) }
            .map_err(failed("copying from the device"))?;
        let (before, behind) = (&whole[..GUARD], &whole[GUARD + bytes..]);
        if before.iter().chain(behind).any(|&byte| byte != GUARD_BYTE) {
            return Err(format!("a kernel has written outside of a buffer of {bytes} bytes"));
        }
        Ok(whole[GUARD..GUARD + bytes].to_vec())
    }

    fn run(&mut self, launch: &Launch) -> Result<(), String> {
        self.queue(launch)?;
        self.stream.synchronize().map_err(failed(launch.entry.name))
    }

    fn clear(&mut self) {
        let _ = self.stream.synchronize();
        for address in self.allocated.drain(..) {
            // SAFETY: allocated once, freed once; nothing runs.
            let _ = unsafe { result::free_sync(address) };
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.clear();
    }
}
