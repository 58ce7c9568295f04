//! What addresses are that callers give: memory of the device, long enough, and apart.
//!
//! A kernel that is given anything else ends the context of the whole process, or writes into somebody else's memory. The driver knows what an address is; asking takes some 200
//! nanoseconds an address, and is allowed while a stream is captured. Memory of the host that is page-locked and mapped is as good as the device's own.

use super::{Cuda, driver_error};
use crate::{Error, Result};
use cudarc::driver::sys;
use std::ffi::c_void;

/// A buffer of a call.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    /// "input", "the frame".
    name: &'static str,
    /// Of several with this name.
    number: Option<usize>,
    address: u64,
    bytes: u64,
    is_written: bool,
}

impl Buffer {
    /// One that is read.
    pub fn read(name: &'static str, address: u64, bytes: u64) -> Buffer {
        Buffer { name, number: None, address, bytes, is_written: false }
    }

    /// One that is written.
    pub fn written(name: &'static str, address: u64, bytes: u64) -> Buffer {
        Buffer { is_written: true, ..Buffer::read(name, address, bytes) }
    }

    /// The same as number `number` of several.
    pub fn number(self, number: usize) -> Buffer {
        Buffer { number: Some(number), ..self }
    }

    fn text(&self) -> String {
        match self.number {
            Some(number) => format!("{} {number}", self.name),
            None => self.name.to_owned(),
        }
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// What the driver says about an address.
#[derive(Default)]
struct Found {
    /// 0 for an address that it does not know.
    memory_type: u32,
    ordinal: i32,
    start: u64,
    size: usize,
}

/// Says whether the device can work on these buffers.
///
/// # Errors
/// [`Error::Device`] for memory of nobody, of the host or of another device, and for buffers that overlap though one of them is written;
/// [`Error::BufferSize`] for an allocation that ends too early.
pub(super) fn check(cuda: &Cuda, buffers: &[Buffer]) -> Result<()> {
    let used = || buffers.iter().filter(|buffer| buffer.bytes != 0);
    check_apart(&mut used().copied().collect::<Vec<_>>())?;
    used().try_for_each(|buffer| check_one(cuda, buffer))
}

fn check_one(cuda: &Cuda, buffer: &Buffer) -> Result<()> {
    let refuse = |reason: String| {
        Err(Error::Device { what: format!("{} is at {:#x}", buffer.text(), buffer.address), reason })
    };
    let found = ask(buffer.address)?;
    let here = cuda.info().ordinal;
    match sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32 {
        _ if found.memory_type == 0 => {
            return refuse(format!(
                "that is no device memory; copy it to cuda:{here}, or give page-locked memory"
            ));
        }
        host if found.memory_type != host && found.ordinal != here as i32 => {
            return refuse(format!("that is memory of cuda:{}, and must be of cuda:{here}", found.ordinal));
        }
        _ => {}
    }
    let there = (found.start.saturating_add(found.size as u64)).saturating_sub(buffer.address);
    // An allocation in pieces may go on behind the one that was found.
    if found.size != 0 && there < buffer.bytes && !is_mapped_in_pieces(buffer.address) {
        return Err(Error::BufferSize { what: buffer.text(), expected: buffer.bytes, got: there });
    }
    Ok(())
}

fn ask(address: u64) -> Result<Found> {
    use sys::CUpointer_attribute as A;
    let mut found = Found::default();
    let mut attributes = [
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut places: [*mut c_void; 4] = [
        (&raw mut found.memory_type).cast(),
        (&raw mut found.ordinal).cast(),
        (&raw mut found.start).cast(),
        (&raw mut found.size).cast(),
    ];
    // SAFETY: as many places as attributes, each of its type. An address that is nobody's is asked about, not used.
    let asked = unsafe {
        sys::cuPointerGetAttributes(
            attributes.len() as u32,
            attributes.as_mut_ptr(),
            places.as_mut_ptr(),
            address,
        )
    };
    asked.result().map_err(driver_error("asking what an address is"))?;
    Ok(found)
}

/// Whether an address is in memory that was mapped piece by piece (`cuMemMap`), as allocators do that let their segments grow: only the piece at the address is known then.
fn is_mapped_in_pieces(address: u64) -> bool {
    let mut handle = 0;
    // SAFETY: fails for any other memory; the handle is given back.
    unsafe {
        let retained = sys::cuMemRetainAllocationHandle(&mut handle, address as usize as *mut c_void);
        retained.result().is_ok() && sys::cuMemRelease(handle).result().is_ok()
    }
}

/// Says whether nothing that is written overlaps with anything else.
fn check_apart(buffers: &mut [Buffer]) -> Result<()> {
    buffers.sort_unstable_by_key(|buffer| (buffer.address, buffer.bytes));
    // The ones that reach furthest so far: of all, and of those that are written.
    let (mut furthest, mut written): (Option<Buffer>, Option<Buffer>) = (None, None);
    for buffer in buffers.iter() {
        let before = if buffer.is_written { &furthest } else { &written };
        if let Some(before) = before.filter(|before| before.end() > buffer.address) {
            return Err(Error::Device {
                what: format!("{} and {}", before.text(), buffer.text()),
                reason: "they overlap, and must lie apart".to_owned(),
            });
        }
        let further = |than: &Option<Buffer>| than.is_none_or(|than| than.end() < buffer.end());
        if further(&furthest) {
            furthest = Some(*buffer);
        }
        if buffer.is_written && further(&written) {
            written = Some(*buffer);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_buffers_are_named() {
        let buffers = [
            Buffer::read("input", 4096, 100).number(0),
            Buffer::read("input", 4100, 100).number(1),
            Buffer::written("the frame", 4190, 1),
        ];
        assert!(check_apart(&mut buffers[..2].to_vec()).is_ok(), "both are only read");
        let error = check_apart(&mut buffers.to_vec()).unwrap_err().to_string();
        assert_eq!(error, "input 1 and the frame: they overlap, and must lie apart");
    }

    proptest! {
        /// As comparing every pair.
        #[test]
        fn every_overlap_is_found(buffers in prop::collection::vec((0u64..300, 1u64..40, any::<bool>()), 0..12)) {
            let mut buffers: Vec<Buffer> = buffers
                .into_iter()
                .map(|(address, bytes, is_written)| Buffer { is_written, ..Buffer::read("it", address, bytes) })
                .collect();
            let mut apart = true;
            for (i, a) in buffers.iter().enumerate() {
                for b in &buffers[..i] {
                    apart &= !(a.is_written || b.is_written) || a.end() <= b.address || b.end() <= a.address;
                }
            }
            prop_assert_eq!(check_apart(&mut buffers).is_ok(), apart);
        }
    }
}
