//! Where the elements of somebody's tensor lie, whichever protocol says it.
//!
//! NumPy's arrays are asked by `__array_interface__` (bf16 and fp8 of ml_dtypes have neither a buffer nor DLPack), then come DLPack, `__cuda_array_interface__`, and
//! the buffer protocol.

use crate::buffer::Buffer;
use crate::dlpack::{self, Managed};
use crate::element::{Element, Resolved};
use crate::error::{Fault, Result};
use crate::strided;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use splitzip_host::Dtype;

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Host,
    Cuda(usize),
}

/// Keeps the memory of a view.
#[allow(dead_code, reason = "held until the view is dropped, never read")]
enum Owner {
    Managed(Managed),
    Buffer(Buffer),
    Object(Py<PyAny>),
}

/// A tensor that is looked at. Holds what it looks at.
#[pyclass(frozen, module = "splitzip._splitzip")]
pub struct View {
    address: u64,
    place: Place,
    dtype: Dtype,
    shape: Vec<u64>,
    /// In bytes; `None` for elements in one piece.
    strides: Option<Vec<i64>>,
    read_only: bool,
    /// A stream on which the owner says that the elements are being written, if it says so.
    producer: Option<u64>,
    _owner: Owner,
}

/// What a protocol says.
pub struct Seen {
    pub address: u64,
    pub place: Place,
    pub element: Element,
    pub shape: Vec<u64>,
    pub strides: Option<Vec<i64>>,
    read_only: bool,
    producer: Option<u64>,
    owner: Owner,
}

#[pymethods]
impl View {
    /// `dtype` is a name of the library, `"raw"` for memory without elements, or `None` for what the tensor says; `stream` is a handle of the driver.
    #[new]
    #[pyo3(signature = (tensor, dtype=None, stream=None, write=false))]
    fn new(tensor: &Bound<'_, PyAny>, dtype: Option<&str>, stream: Option<i64>, write: bool) -> Result<View> {
        let seen = see(tensor, stream, write)?;
        let view = match dtype {
            Some("raw") => seen.of_bytes()?,
            dtype => {
                let dtype = dtype.map(str::parse::<Dtype>).transpose();
                let dtype = dtype.map_err(|error| Fault::dtype(error.to_string()))?;
                let resolved = seen.element.resolve(dtype)?;
                seen.with(resolved)?
            }
        };
        if write && view.read_only {
            return Err(Fault::argument("the output is read-only; give one that can be written to"));
        }
        if dtype == Some("raw") && view.strides.is_some() {
            return Err(Fault::argument(
                "the memory is not in one piece (it has strides); give a contiguous buffer",
            ));
        }
        Ok(view)
    }

    /// The name of the dtype.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The number of a CUDA device, or `None`.
    #[getter]
    fn cuda(&self) -> Option<usize> {
        match self.place {
            Place::Host => None,
            Place::Cuda(device) => Some(device),
        }
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes()
    }

    #[getter]
    fn contiguous(&self) -> bool {
        self.strides.is_none()
    }

    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    #[getter]
    fn address(&self) -> u64 {
        self.address
    }

    /// A DLPack capsule for bytes of the memory from `offset` on, as elements of `dtype` in `shape`.
    fn export<'py>(
        this: &Bound<'py, View>,
        dtype: &str,
        shape: Vec<u64>,
        read_only: bool,
        versioned: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let view = this.get();
        let dtype: Dtype = dtype.parse()?;
        let elements = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let bytes = elements.and_then(|elements| elements.checked_mul(dtype.bytes() as u64));
        if view.strides.is_some() || bytes.is_none_or(|bytes| bytes > view.bytes()) {
            return Err(Fault::argument("the memory is smaller than the tensor to export"));
        }
        let device = match view.place {
            Place::Host => (dlpack::CPU, 0),
            Place::Cuda(device) => (dlpack::CUDA, device as i32),
        };
        let exported = dlpack::Exported {
            owner: this.clone().into_any().unbind(),
            address: view.address,
            device,
            dtype,
            shape,
            read_only: read_only || view.read_only,
        };
        dlpack::export(this.py(), exported, versioned)
    }
}

impl View {
    pub fn address_of(&self) -> u64 {
        self.address
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub fn dtype_of(&self) -> Dtype {
        self.dtype
    }

    pub fn shape_of(&self) -> &[u64] {
        &self.shape
    }

    pub fn producer(&self) -> Option<u64> {
        self.producer
    }

    pub fn strides(&self) -> Option<&[i64]> {
        self.strides.as_deref()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bytes() as u64
    }

    /// The bytes, which lie in one piece on the host.
    pub fn host_bytes(&self) -> Result<&[u8]> {
        if self.place != Place::Host || self.strides.is_some() {
            return Err(Fault::argument("memory of the host in one piece is needed here"));
        }
        if self.bytes() == 0 {
            return Ok(&[]);
        }
        // SAFETY: the owner says so, and is held. (Whoever writes to it meanwhile gets a frame of something in between, as with any function that
        // releases the lock of the interpreter.)
        Ok(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes() as usize) })
    }

    /// From the first byte to the one behind the last, wherever the elements lie between them.
    pub fn hull(&self) -> std::ops::Range<u64> {
        let item = self.dtype.bytes() as u64;
        match &self.strides {
            None => self.address..self.address + self.bytes(),
            Some(strides) => strided::hull(self.address, &self.shape, strides, item),
        }
    }
}

impl Seen {
    /// The view of its bytes, whatever the elements are.
    pub fn of_bytes(self) -> Result<View> {
        let resolved = self.element.resolve(Some(Dtype::Bytes))?;
        self.with(resolved)
    }

    /// The view of it as elements of a dtype, where one of the elements may be several, or several be one.
    fn with(self, resolved: Resolved) -> Result<View> {
        let Resolved { dtype, split, join } = resolved;
        let Seen { address, place, element, mut shape, strides, read_only, producer, owner } = self;
        let product = |shape: &[u64]| {
            let elements = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
            elements.and_then(|elements| elements.checked_mul(element.bytes() as u64))
        };
        if product(&shape).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(Fault::argument("the sizes of the tensor do not fit into 63 bits"));
        }
        let mut strides =
            strides.filter(|strides| !strided::contiguous(&shape, strides, element.bytes() as u64));
        if (split, join) != (1, 1) {
            if shape.is_empty() {
                shape.push(1);
                strides = strides.map(|_| vec![element.bytes() as i64]);
            }
            if let Some(strides) = &strides
                && strides.last() != Some(&(element.bytes() as i64))
            {
                return Err(Fault::argument(format!(
                    "elements of {} bytes that are not side by side cannot be taken for {dtype}; give a contiguous tensor",
                    element.bytes()
                )));
            }
            let dims = shape.len();
            let last = &mut shape[dims - 1];
            if !last.is_multiple_of(join) {
                return Err(Fault::argument(format!(
                    "{last} bytes are no whole number of {dtype} elements, which have {join}"
                )));
            }
            *last = *last / join * split;
            if let Some(stride) = strides.as_mut().and_then(|strides| strides.last_mut()) {
                *stride = dtype.bytes() as i64;
            }
        }
        Ok(View { address, place, dtype, shape, strides, read_only, producer, _owner: owner })
    }
}

pub fn see(tensor: &Bound<'_, PyAny>, stream: Option<i64>, write: bool) -> Result<Seen> {
    let py = tensor.py();
    if is_numpy(tensor)? {
        return see_numpy(tensor);
    }
    if tensor.hasattr(intern!(py, "__dlpack__"))? {
        return see_dlpack(tensor, stream);
    }
    if let Some(interface) = tensor.getattr_opt(intern!(py, "__cuda_array_interface__"))? {
        return see_cuda(tensor, &interface);
    }
    match Buffer::get(tensor, write) {
        Ok(buffer) => {
            let (element, shape, strides) = (buffer.element()?, buffer.shape(), Some(buffer.strides()));
            let (address, read_only) = (buffer.address(), buffer.read_only());
            let owner = Owner::Buffer(buffer);
            let (place, producer) = (Place::Host, None);
            Ok(Seen { address, place, element, shape, strides, read_only, producer, owner })
        }
        Err(Fault::Python(error)) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
            Err(Fault::dtype(format!(
                "{} is no tensor: it has neither __dlpack__ nor __cuda_array_interface__ nor a buffer; give an array, a tensor or bytes",
                tensor.get_type().name()?
            )))
        }
        Err(error) => Err(error),
    }
}

/// NumPy is never imported for this: an array has imported it.
fn is_numpy(tensor: &Bound<'_, PyAny>) -> Result<bool> {
    let py = tensor.py();
    if !tensor.hasattr(intern!(py, "__array_interface__"))? {
        return Ok(false);
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let numpy = modules.cast::<PyDict>().map_err(PyErr::from)?.get_item(intern!(py, "numpy"))?;
    match numpy {
        Some(numpy) => Ok(tensor.is_instance(&numpy.getattr(intern!(py, "ndarray"))?)?),
        None => Ok(false),
    }
}

fn see_numpy(tensor: &Bound<'_, PyAny>) -> Result<Seen> {
    let py = tensor.py();
    let interface = tensor.getattr(intern!(py, "__array_interface__"))?;
    let name: String = tensor.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?.extract()?;
    let typestr: String = interface.get_item("typestr")?.extract()?;
    let element = match Element::of_name(&name).filter(|_| !typestr.starts_with('>')) {
        Some(element) => element,
        None => match Element::of_typestr(&typestr, true)? {
            Element::Other(bytes, _) => Element::Other(bytes, name),
            element => element,
        },
    };
    interface_of(tensor, &interface, element, Place::Host, None)
}

fn see_cuda(tensor: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>) -> Result<Seen> {
    let typestr: String = interface.get_item("typestr")?.extract()?;
    let stream = interface.call_method1("get", ("stream",))?;
    let producer = match stream.is_none() {
        true => None,
        false => match stream.extract::<u64>()? {
            0 => {
                return Err(Fault::argument(
                    "__cuda_array_interface__ has stream 0, which means nothing; it is 1 (legacy), 2 (per thread) or a handle",
                ));
            }
            stream => Some(stream),
        },
    };
    if !interface.call_method1("get", ("mask",))?.is_none() {
        return Err(Fault::unsupported("masked arrays are not supported; fill the mask first"));
    }
    let (address, _): (u64, bool) = interface.get_item("data")?.extract()?;
    // An array without elements may have no address.
    let device = if address == 0 { 0 } else { crate::device::device_of(address)? };
    interface_of(tensor, interface, Element::of_typestr(&typestr, false)?, Place::Cuda(device), producer)
}

fn interface_of(
    tensor: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
    element: Element,
    place: Place,
    producer: Option<u64>,
) -> Result<Seen> {
    let (address, read_only): (u64, bool) = interface.get_item("data")?.extract()?;
    let shape = interface.get_item("shape")?.extract()?;
    let strides = interface.call_method1("get", ("strides",))?.extract()?;
    let owner = Owner::Object(tensor.clone().unbind());
    Ok(Seen { address, place, element, shape, strides, read_only, producer, owner })
}

fn see_dlpack(tensor: &Bound<'_, PyAny>, stream: Option<i64>) -> Result<Seen> {
    let place = match dlpack::device(tensor)? {
        (dlpack::CPU | dlpack::CUDA_HOST, _) => Place::Host,
        (dlpack::CUDA | dlpack::CUDA_MANAGED, id) => Place::Cuda(usize::try_from(id).unwrap_or_default()),
        (kind, id) => {
            return Err(Fault::unsupported(format!(
                "the tensor is on a device of DLPack type {kind} (number {id}); tensors of the CPU and of CUDA devices are supported"
            )));
        }
    };
    let stream = match place {
        Place::Host => None,
        // Of the handles of the driver, 0 is the legacy default stream, which DLPack calls 1.
        Place::Cuda(_) => Some(stream.map_or(1, |stream| if stream == 0 { 1 } else { stream })),
    };
    let imported = dlpack::import(tensor, stream)?;
    let claimed = match imported.device {
        (dlpack::CPU | dlpack::CUDA_HOST, _) => Place::Host,
        (_, id) => Place::Cuda(usize::try_from(id).unwrap_or_default()),
    };
    if claimed != place {
        return Err(Fault::argument("__dlpack__ and __dlpack_device__ of the tensor name different devices"));
    }
    let item = imported.element.bytes() as i64;
    let strides =
        imported.strides.map(|strides| strides.iter().map(|stride| stride.saturating_mul(item)).collect());
    Ok(Seen {
        address: imported.address,
        place,
        element: imported.element,
        shape: imported.shape,
        strides,
        read_only: imported.read_only,
        producer: None,
        owner: Owner::Managed(imported.managed),
    })
}

/// Refuses outputs that share memory with each other or with an input, whatever lies between their elements.
pub fn check_apart(inputs: &[&View], outputs: &[&View]) -> Result<()> {
    let hull = |view: &&View| (view.place, view.hull());
    let mut written: Vec<_> = outputs.iter().map(hull).filter(|(_, hull)| !hull.is_empty()).collect();
    written.sort_by_key(|(place, hull)| (*place != Place::Host, hull.start));
    let meet = |a: &(Place, std::ops::Range<u64>), b: &(Place, std::ops::Range<u64>)| {
        a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end
    };
    if written.windows(2).any(|pair| meet(&pair[0], &pair[1])) {
        return Err(Fault::argument("two outputs share memory; give each its own"));
    }
    let read = inputs.iter().map(hull).filter(|(_, hull)| !hull.is_empty());
    if read.into_iter().any(|input| written.iter().any(|output| meet(&input, output))) {
        return Err(Fault::argument("an output shares memory with an input; give it memory of its own"));
    }
    Ok(())
}
