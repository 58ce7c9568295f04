//! Device memory of ours, and looks at that of others.

use super::driver::{self, Context, Relaxed};
use super::verify;
use crate::error::{Fault, Result};
use crate::spec::Spec;
use crate::view::{Place, View};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyList};
use splitzip_host::cuda::DeviceBytes;
use splitzip_host::{Error, FrameSpec};

/// Device memory, for frames where no framework has an allocator.
#[pyclass(frozen, module = "splitzip._splitzip")]
pub struct DeviceMemory(Option<DeviceBytes>);

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Freeing it changes the context of the thread, and is no matter of a capture.
        let (_context, _relaxed) = (Context::keep(), Relaxed::enter());
        self.0 = None;
    }
}

#[pymethods]
impl DeviceMemory {
    #[new]
    fn new(py: Python<'_>, device: usize, bytes: u64) -> Result<DeviceMemory> {
        py.detach(|| {
            let cuda = driver::cuda(device)?;
            let _context = Context::enter(&cuda)?;
            let _relaxed = Relaxed::enter();
            Ok(DeviceMemory(Some(cuda.allocate(bytes)?)))
        })
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        let (address, bytes) = self.0.as_ref().map_or((0, 0), |memory| (memory.address(), memory.bytes()));
        interface.set_item("shape", (bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (address, false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

/// The CUDA devices of this machine.
#[pyfunction]
pub fn devices(py: Python<'_>) -> Result<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for device in py.detach(splitzip_host::cuda::devices)? {
        let dict = PyDict::new(py);
        dict.set_item("ordinal", device.ordinal)?;
        dict.set_item("name", device.name)?;
        dict.set_item("compute_capability", device.compute_capability)?;
        dict.set_item("memory", device.memory)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// Bytes of a view of device memory from `offset` on, after what is in the stream. Waits.
#[pyfunction]
pub fn device_read<'py>(
    py: Python<'py>,
    view: PyRef<'py, View>,
    offset: u64,
    bytes: u64,
    stream: u64,
) -> Result<Bound<'py, PyByteArray>> {
    let view = &*view;
    let read = py.detach(|| read(view, offset, bytes, stream))?;
    Ok(PyByteArray::new(py, &read))
}

fn read(view: &View, offset: u64, bytes: u64, stream: u64) -> Result<Vec<u8>> {
    let Place::Cuda(device) = view.place() else {
        return Err(Fault::argument("this is memory of the host"));
    };
    if view.strides().is_some() || offset.checked_add(bytes).is_none_or(|end| end > view.bytes()) {
        let what = "the memory on the device";
        return Err(Error::Truncated { what, needed: offset.saturating_add(bytes), got: view.bytes() }.into());
    }
    let cuda = driver::cuda(device)?;
    let _context = Context::enter(&cuda)?;
    driver::check_stream(&cuda, stream)?;
    if let Some(producer) = view.producer() {
        driver::wait_for(producer, stream)?;
    }
    let mut read = vec![0; bytes as usize];
    // SAFETY: inside of the view, whose owner is held.
    unsafe { driver::download(stream, view.address_of() + offset, &mut read)? };
    Ok(read)
}

/// Bytes of a frame in device memory, once the stream has run and if its encoder has sealed it. Waits.
#[pyfunction]
pub fn device_length(
    py: Python<'_>,
    spec: PyRef<'_, Spec>,
    frame: PyRef<'_, View>,
    stream: u64,
) -> Result<u64> {
    let (layout, frame) = (&spec.layout, &*frame);
    py.detach(|| {
        let start = read(frame, 0, layout.static_bytes + layout.dynamic_bytes, stream)?;
        verify::check_dynamic(layout, &start, &start[layout.static_bytes as usize..], frame.bytes())
    })
}

/// The description of a frame in device memory, of which only the start is copied. Waits.
#[pyfunction]
pub fn device_spec(py: Python<'_>, frame: PyRef<'_, View>, stream: u64) -> Result<Spec> {
    let frame = &*frame;
    py.detach(|| {
        let mut bytes = frame.bytes().min(4096);
        loop {
            let start = read(frame, 0, bytes, stream)?;
            match FrameSpec::read(&start) {
                Ok(spec) if spec.flags.packed => {
                    return Err(Fault::unsupported(
                        "packed frames are decoded on the host; copy the frame there, or compress without packed=True",
                    ));
                }
                Ok(spec) => return Spec::of(spec),
                Err(Error::Truncated { needed, .. }) if bytes < frame.bytes() && needed > bytes => {
                    bytes = needed.min(frame.bytes());
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}
