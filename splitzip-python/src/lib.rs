//! The native part of the Python package `splitzip`: memory in, calls of the library, memory out. What users see is in `python/splitzip/`.

mod buffer;
mod codebook;
mod device;
mod dlpack;
mod element;
mod error;
mod host;
mod ids;
mod paged;
mod pool;
mod spec;
mod strided;
mod view;

#[pyo3::pymodule]
mod _splitzip {
    #[pymodule_export]
    use crate::codebook::{
        PyCodebook, codebook_of_counts, codebooks_from_json, codebooks_to_json, histogram,
    };
    #[pymodule_export]
    use crate::device::{
        DeviceCodec, DeviceMemory, DevicePagedCodec, device_length, device_read, device_spec, devices,
    };
    #[pymodule_export]
    use crate::host::{decode, decode_elements, encode};
    #[pymodule_export]
    use crate::paged::{PyKvLayout, PyPaged, PyRowMap, decode_paged, encode_paged};
    #[pymodule_export]
    use crate::spec::{Spec, choose, inspect};
    #[pymodule_export]
    use crate::view::View;

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
