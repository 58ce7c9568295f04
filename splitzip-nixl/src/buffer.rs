//! Registered memory that an engine reads and writes beside the program.

use crate::{Error, Result};
use nixl_sys::{Agent, MemType, MemoryRegion, NixlDescriptor, RegistrationHandle};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Frames start at multiples of this.
const ALIGNMENT: usize = 128;

/// Memory for one frame. Who may touch it when is up to the protocol, so every access is by a function that says what it relies on.
#[derive(Debug)]
pub(crate) struct Buffer {
    // Before the memory, so that it ends first.
    _registration: RegistrationHandle,
    memory: Memory,
}

#[derive(Debug)]
struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory like a Box; access through Buffer says who may.
unsafe impl Send for Memory {}
// SAFETY: as above; there is no access by a shared reference but through unsafe functions.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(bytes: usize) -> Result<Layout> {
        Layout::from_size_align(bytes.max(1), ALIGNMENT)
            .map_err(|_| Error::Argument(format!("{bytes} bytes are more than memory can have")))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(layout) = Memory::layout(self.bytes) {
            // SAFETY: allocated with this layout, and dropped once.
            unsafe { dealloc(self.start, layout) };
        }
    }
}

impl MemoryRegion for Memory {
    unsafe fn as_ptr(&self) -> *const u8 {
        self.start
    }

    fn size(&self) -> usize {
        self.bytes
    }
}

impl NixlDescriptor for Memory {
    fn mem_type(&self) -> MemType {
        MemType::Dram
    }

    fn device_id(&self) -> u64 {
        0
    }
}

impl Buffer {
    /// Allocates and registers.
    pub fn new(agent: &Agent, bytes: usize) -> Result<Buffer> {
        let layout = Memory::layout(bytes)?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        let memory = Memory { start, bytes };
        let registration = agent
            .register_memory(&memory, None)
            .map_err(|error| Error::Nixl { what: "register memory", reason: error.to_string() })?;
        Ok(Buffer { _registration: registration, memory })
    }

    pub fn address(&self) -> usize {
        self.memory.start as usize
    }

    pub fn len(&self) -> usize {
        self.memory.bytes
    }

    /// Its bytes, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes it, neither this program nor the engine, as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "buffers are shared with the thread that drives the engine")]
    pub unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: the memory is there as long as self, it was zeroed, and the caller says that it is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start, self.memory.bytes) }
    }

    /// Keeps the memory, and its registration, until the program ends: somebody may still write to it.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}
