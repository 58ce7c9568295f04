//! A driver that has no device: memory of the host, kernels that do nothing, and calls that fail when they are told to.
//!
//! `tests/fake_driver.rs` compiles it to a `libcuda.so` and puts it in front of the machine's own. `FAKE_CUDA_FAULT=NAME:CODE:CALLS` lets the function with
//! this name return the code after so many good calls; `FAKE_CUDA_DEVICES` and `FAKE_CUDA_CAPABILITY` say what there is.
#![allow(non_snake_case, reason = "the names are NVIDIA's")]
#![allow(unused_unsafe, reason = "some calls touch no memory")]
#![allow(clippy::missing_safety_doc, reason = "the contract of every function is NVIDIA's")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::Mutex;

type Status = u32;
const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 1;
const OUT_OF_MEMORY: Status = 2;
const INVALID_DEVICE: Status = 101;

/// Bytes of each allocation, by its address.
static ALLOCATED: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);
/// Good calls so far of the function that is to fail.
static CALLS: Mutex<(String, u64)> = Mutex::new((String::new(), 0));

/// What a call is told to return.
fn told(name: &str) -> Status {
    let Ok(fault) = std::env::var("FAKE_CUDA_FAULT") else { return SUCCESS };
    let mut parts = fault.split(':');
    if parts.next() != Some(name) {
        return SUCCESS;
    }
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    let (code, good) = (number() as Status, number());
    let mut calls = CALLS.lock().unwrap();
    if calls.0 != fault {
        *calls = (fault.clone(), 0);
    }
    calls.1 += 1;
    if calls.1 > good { code } else { SUCCESS }
}

fn number(name: &str, otherwise: i32) -> i32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> Status {
            match told(stringify!($name)) {
                SUCCESS => unsafe { $body },
                code => code,
            }
        }
    )*};
}

calls! {
    cuInit(_flags: u32) { SUCCESS }
    cuDriverGetVersion(version: *mut i32) { *version = 13000; SUCCESS }
    cuDeviceGetCount(count: *mut i32) { *count = number("FAKE_CUDA_DEVICES", 1); SUCCESS }
    cuDeviceGet(device: *mut i32, ordinal: i32) {
        if ordinal >= number("FAKE_CUDA_DEVICES", 1) { return INVALID_DEVICE }
        *device = ordinal;
        SUCCESS
    }
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) {
        let capability = number("FAKE_CUDA_CAPABILITY", 90);
        *value = match attribute { 75 => capability / 10, 76 => capability % 10, 16 => 2, _ => 0 };
        SUCCESS
    }
    cuDeviceGetName(name: *mut c_char, length: i32, _device: i32) {
        let text = b"Fake\0";
        if (length as usize) < text.len() { return INVALID_VALUE }
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len());
        SUCCESS
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, _device: i32) { *bytes = 1 << 30; SUCCESS }
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: i32) {
        *context = (0x1000 + device as usize) as *mut c_void;
        SUCCESS
    }
    cuDevicePrimaryCtxRelease_v2(_device: i32) { SUCCESS }
    cuCtxGetCurrent(context: *mut *mut c_void) { *context = std::ptr::null_mut(); SUCCESS }
    cuCtxSetCurrent(_context: *mut c_void) { SUCCESS }
    cuCtxSynchronize() { SUCCESS }
    cuStreamSynchronize(_stream: *mut c_void) { SUCCESS }
    cuModuleLoadData(module: *mut *mut c_void, _image: *const c_void) { *module = 0x2000 as *mut c_void; SUCCESS }
    cuModuleGetFunction(function: *mut *mut c_void, _module: *mut c_void, _name: *const c_char) {
        *function = 0x3000 as *mut c_void;
        SUCCESS
    }
    cuModuleUnload(_module: *mut c_void) { SUCCESS }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        let Ok(layout) = Layout::from_size_align(bytes.max(1), 256) else { return OUT_OF_MEMORY };
        // As much as the device says that it has.
        if bytes > 1 << 30 { return OUT_OF_MEMORY }
        let memory = alloc_zeroed(layout) as u64;
        ALLOCATED.lock().unwrap().get_or_insert_default().insert(memory, bytes.max(1));
        *address = memory;
        SUCCESS
    }
    cuMemFree_v2(address: u64) {
        let Some(bytes) = ALLOCATED.lock().unwrap().get_or_insert_default().remove(&address) else { return INVALID_VALUE };
        dealloc(address as *mut u8, Layout::from_size_align_unchecked(bytes, 256));
        SUCCESS
    }
    cuPointerGetAttributes(count: u32, attributes: *mut u32, places: *mut *mut c_void, address: u64) {
        let allocated = ALLOCATED.lock().unwrap();
        let found = allocated.iter().flatten().find(|&(&start, &bytes)| (start..start + bytes as u64).contains(&address));
        for index in 0..count as usize {
            let place = *places.add(index);
            match (*attributes.add(index), found) {
                // Of a device.
                (2, found) => *place.cast::<u32>() = if found.is_some() { 2 } else { 0 },
                (9, _) => *place.cast::<i32>() = 0,
                (11, found) => *place.cast::<u64>() = found.map_or(0, |(&start, _)| start),
                (12, found) => *place.cast::<usize>() = found.map_or(0, |(_, &bytes)| bytes),
                _ => return INVALID_VALUE,
            }
        }
        SUCCESS
    }
    cuMemRetainAllocationHandle(_handle: *mut u64, _address: *mut c_void) { INVALID_VALUE }
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        std::ptr::copy_nonoverlapping(from.cast(), to as *mut u8, bytes);
        SUCCESS
    }
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        std::ptr::copy_nonoverlapping(from as *const u8, to.cast(), bytes);
        SUCCESS
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: *mut c_void) {
        std::ptr::copy(from as *const u8, to as *mut u8, bytes);
        SUCCESS
    }
    cuMemsetD8Async(to: u64, value: u8, bytes: usize, _stream: *mut c_void) {
        std::ptr::write_bytes(to as *mut u8, value, bytes);
        SUCCESS
    }
    cuLaunchKernel(
        _function: *mut c_void, _x: u32, _y: u32, _z: u32, _block_x: u32, _block_y: u32, _block_z: u32, _shared: u32,
        _stream: *mut c_void, _parameters: *mut *mut c_void, _extra: *mut *mut c_void
    ) { SUCCESS }
    cuGetErrorName(code: u32, text: *mut *const c_char) {
        *text = match code {
            2 => c"CUDA_ERROR_OUT_OF_MEMORY",
            3 => c"CUDA_ERROR_NOT_INITIALIZED",
            222 => c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            803 => c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            _ => c"CUDA_ERROR_UNKNOWN",
        }.as_ptr();
        SUCCESS
    }
    cuGetErrorString(_code: u32, text: *mut *const c_char) { *text = c"as it was told".as_ptr(); SUCCESS }
}

/// Allocations that nobody has freed.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_allocations() -> usize {
    ALLOCATED.lock().unwrap().get_or_insert_default().len()
}
