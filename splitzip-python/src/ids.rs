//! The page numbers of a request: a list, an array of the host, which is copied, or one in device memory, which kernels read when they run.

use crate::element::Element;
use crate::error::{Fault, Result};
use crate::strided;
use crate::view::{Place, View, see};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use splitzip_host::paged::PageIds;
use std::sync::Arc;

/// Page numbers, as `KvLayout.bind` takes them.
#[derive(Clone)]
pub enum Ids {
    List(Vec<i64>),
    Consecutive(u64, u64),
    /// In device memory, with the bytes of one.
    Device(Arc<View>, u32),
}

impl Ids {
    /// Those of a list, or of an array or tensor of 32-bit or 64-bit integers.
    pub fn of(numbers: &Bound<'_, PyAny>) -> Result<Ids> {
        if numbers.is_instance_of::<PyList>() || numbers.is_instance_of::<PyTuple>() {
            return Ok(Ids::List(numbers.extract()?));
        }
        // Of device memory nothing is read here, so there is no stream to wait for (which DLPack calls -1).
        let seen = see(numbers, Some(-1), false)?;
        let bytes = match &seen.element {
            Element::Other(4, name) if ["int32", "i", "<i4"].contains(&name.as_str()) => 4,
            Element::Other(8, name) if ["int64", "l", "q", "<i8"].contains(&name.as_str()) => 8,
            element => {
                return Err(Fault::dtype(format!(
                    "page ids are 32-bit or 64-bit integers, and these are {element:?}; convert them to int32 or int64"
                )));
            }
        };
        if seen.shape.len() != 1 {
            let dims = seen.shape.len();
            return Err(Fault::argument(format!(
                "page ids have one dimension, and these have {dims}; give one request's"
            )));
        }
        if seen.place != Place::Host {
            let view = seen.of_bytes()?;
            if view.strides().is_some() || !view.address_of().is_multiple_of(bytes as u64) {
                return Err(Fault::argument(
                    "page ids in device memory must lie side by side, at a multiple of their size; give a contiguous tensor",
                ));
            }
            return Ok(Ids::Device(Arc::new(view), bytes as u32));
        }
        let strides = seen.strides.unwrap_or_else(|| vec![bytes as i64]);
        // SAFETY: the owner says where they are, and is held.
        let gathered = unsafe { strided::gather(seen.address, &seen.shape, &strides, bytes as u64) };
        Ok(Ids::List(match bytes {
            4 => gathered
                .chunks_exact(4)
                .map(|id| id.try_into().map_or(0, i32::from_le_bytes).into())
                .collect(),
            _ => gathered.chunks_exact(8).map(|id| id.try_into().map_or(0, i64::from_le_bytes)).collect(),
        }))
    }

    pub fn ids(&self) -> PageIds<'_> {
        match self {
            Ids::List(ids) => PageIds::I64(ids),
            Ids::Consecutive(first, count) => PageIds::Consecutive { first: *first, count: *count },
            Ids::Device(view, entry_bytes) => PageIds::Device {
                address: view.address_of(),
                count: view.bytes() / u64::from(*entry_bytes),
                entry_bytes: *entry_bytes,
            },
        }
    }

    /// The memory of a device that they lie in.
    pub fn on_device(&self) -> Option<&View> {
        match self {
            Ids::Device(view, _) => Some(view),
            _ => None,
        }
    }
}
