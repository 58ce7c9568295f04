//! DLPack, both of its forms: capsules of others are taken over, memory of ours is given away.
//!
//! A capsule that is taken over is renamed, and its deleter is called once, when the [`Managed`] is dropped. A capsule of ours that nobody has taken over calls its deleter
//! itself.

use crate::element::Element;
use crate::error::{Fault, Result};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};
use splitzip_host::Dtype;
use std::ffi::{CStr, c_void};

/// The version that we write, and the newest major version that we read.
const VERSION: Version = Version { major: 1, minor: 1 };
const READ_ONLY: u64 = 1;

const NAME: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
pub const CUDA_HOST: i32 = 3;
pub const CUDA_MANAGED: i32 = 13;

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawDtype {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device: RawDevice,
    ndim: i32,
    dtype: RawDtype,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Plain {
    tensor: RawTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: RawTensor,
}

/// A tensor that was taken over.
pub enum Managed {
    Plain(*mut c_void),
    Versioned(*mut c_void),
}

// SAFETY: the pointer is ours alone; deleters of DLPack may be called from any thread.
unsafe impl Send for Managed {}
// SAFETY: nothing is done through a shared reference.
unsafe impl Sync for Managed {}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: taken over from a capsule, and dropped once.
        unsafe {
            match *self {
                Managed::Plain(managed) => {
                    if let Some(deleter) = (*managed.cast::<Plain>()).deleter {
                        deleter(managed.cast());
                    }
                }
                Managed::Versioned(managed) => {
                    if let Some(deleter) = (*managed.cast::<Versioned>()).deleter {
                        deleter(managed.cast());
                    }
                }
            }
        }
    }
}

/// What a capsule says about its tensor.
pub struct Imported {
    pub managed: Managed,
    pub address: u64,
    /// Device type and number.
    pub device: (i32, i32),
    pub element: Element,
    pub shape: Vec<u64>,
    /// In elements.
    pub strides: Option<Vec<i64>>,
    pub read_only: bool,
}

/// The device of an object that has `__dlpack__`: type and number.
pub fn device(tensor: &Bound<'_, PyAny>) -> Result<(i32, i32)> {
    let device = tensor.call_method0(intern!(tensor.py(), "__dlpack_device__"))?;
    let first: Bound<'_, PyAny> = device.get_item(0)?;
    // An IntEnum in NumPy and PyTorch.
    let kind = first.call_method0(intern!(tensor.py(), "__index__"))?.extract()?;
    Ok((kind, device.get_item(1)?.extract()?))
}

/// Takes the tensor of an object over; `stream` is DLPack's number of the stream that will use it.
pub fn import(tensor: &Bound<'_, PyAny>, stream: Option<i64>) -> Result<Imported> {
    let py = tensor.py();
    let arguments = PyDict::new(py);
    if let Some(stream) = stream {
        arguments.set_item(intern!(py, "stream"), stream)?;
    }
    let method = tensor.getattr(intern!(py, "__dlpack__"))?;
    let new = arguments.copy()?;
    new.set_item(intern!(py, "max_version"), (VERSION.major, VERSION.minor))?;
    let capsule = match method.call((), Some(&new)) {
        // From before DLPack 1.0.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call((), Some(&arguments)),
        other => other,
    };
    let capsule = capsule.map_err(|error| match error.is_instance_of::<PyBufferError>(py) {
        true => Fault::argument(format!("the tensor cannot be exported: {}", error.value(py))),
        false => error.into(),
    })?;
    take(&capsule)
}

fn take(capsule: &Bound<'_, PyAny>) -> Result<Imported> {
    let object = capsule.as_ptr();
    // SAFETY: any object may be asked; pointers come from a capsule with the name that says what they point to; after the renaming they are ours.
    unsafe {
        if ffi::PyCapsule_IsValid(object, NAME_VERSIONED.as_ptr()) != 0 {
            let pointer = ffi::PyCapsule_GetPointer(object, NAME_VERSIONED.as_ptr());
            rename(capsule, USED_VERSIONED)?;
            let managed = Managed::Versioned(pointer);
            let versioned = &*pointer.cast::<Versioned>();
            if versioned.version.major > VERSION.major {
                let Version { major, minor } = versioned.version;
                return Err(Fault::unsupported(format!(
                    "the tensor comes as DLPack {major}.{minor}; this splitzip reads up to 1.x, so use a newer one"
                )));
            }
            return describe(managed, &versioned.tensor, versioned.flags & READ_ONLY != 0);
        }
        if ffi::PyCapsule_IsValid(object, NAME.as_ptr()) != 0 {
            let pointer = ffi::PyCapsule_GetPointer(object, NAME.as_ptr());
            rename(capsule, USED)?;
            return describe(Managed::Plain(pointer), &(*pointer.cast::<Plain>()).tensor, false);
        }
    }
    Err(Fault::argument(
        "__dlpack__ returned no capsule of DLPack, or one that somebody has taken already; export the tensor again",
    ))
}

/// # Safety
/// The object is a capsule.
unsafe fn rename(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> Result<()> {
    // SAFETY: by contract; the name lives as long as the program.
    match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(capsule.py()).into()),
    }
}

/// # Safety
/// The tensor is that of `managed`, as its producer has filled it in.
unsafe fn describe(managed: Managed, tensor: &RawTensor, read_only: bool) -> Result<Imported> {
    let dims = usize::try_from(tensor.ndim)
        .map_err(|_| Fault::argument("the tensor has fewer than 0 dimensions"))?;
    let numbers = |at: *const i64| match at.is_null() || dims == 0 {
        true => None,
        // SAFETY: `ndim` numbers each, by the rules of DLPack; strides may be left out.
        false => Some(unsafe { std::slice::from_raw_parts(at, dims) }.to_vec()),
    };
    let shape = match numbers(tensor.shape) {
        None if dims != 0 => return Err(Fault::argument("the tensor has dimensions, but no shape")),
        shape => shape.unwrap_or_default(),
    };
    let shape = shape.into_iter().map(u64::try_from).collect::<std::result::Result<_, _>>();
    Ok(Imported {
        address: (tensor.data as u64).wrapping_add(tensor.byte_offset),
        device: (tensor.device.kind, tensor.device.id),
        element: element(tensor.dtype)?,
        shape: shape.map_err(|_| Fault::argument("the tensor has a dimension below 0"))?,
        strides: numbers(tensor.strides),
        read_only,
        managed,
    })
}

/// The codes of `DLDataTypeCode` up to version 1.1; what is not here is refused.
fn element(dtype: RawDtype) -> Result<Element> {
    let RawDtype { code, bits, lanes } = dtype;
    let other = |name: &str| Ok(Element::Other(usize::from(bits) / 8, format!("{name}{bits}")));
    if lanes != 1 {
        return Err(Fault::dtype(format!(
            "vectors of {lanes} lanes are no elements; give a tensor of scalars"
        )));
    }
    if bits == 0 || bits % 8 != 0 {
        return Err(Fault::dtype(format!(
            "elements of {bits} bits (DLPack type code {code}) are not made of bytes; give a view as uint8"
        )));
    }
    match (code, bits) {
        (0 | 1, 8 | 16) => Ok(Element::Word(usize::from(bits) / 8)),
        (2, 16) => Ok(Element::Float(Dtype::Fp16)),
        (4, 16) => Ok(Element::Float(Dtype::Bf16)),
        (10, 8) => Ok(Element::Float(Dtype::E4m3)),
        (12, 8) => Ok(Element::Float(Dtype::E5m2)),
        (0, _) => other("int"),
        (1, _) => other("uint"),
        (2, _) => other("float"),
        (4, _) => other("bfloat"),
        (5, _) => other("complex"),
        (6, 8) => other("bool"),
        (7, 8) => other("float8_e3m4, "),
        (8, 8) => other("float8_e4m3, "),
        (9, 8) => other("float8_e4m3b11fnuz, "),
        (11, 8) => other("float8_e4m3fnuz, "),
        (13, 8) => other("float8_e5m2fnuz, "),
        (14, 8) => other("float8_e8m0fnu, "),
        _ => Err(Fault::dtype(format!(
            "DLPack type code {code} with {bits} bits is unknown; give a view as uint8 or uint16, and dtype="
        ))),
    }
}

/// Memory that is given away, and what keeps it.
pub struct Exported {
    pub owner: Py<PyAny>,
    pub address: u64,
    pub device: (i32, i32),
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub read_only: bool,
}

/// What a capsule of ours points to; the managed tensor is first, so that its address is that of the whole.
#[repr(C)]
struct Given<M> {
    managed: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    owner: Py<PyAny>,
}

/// A capsule for memory of ours: of version 1, unless the consumer does not ask for it.
pub fn export(py: Python<'_>, exported: Exported, versioned: bool) -> Result<Bound<'_, PyAny>> {
    let Exported { owner, address, device: (kind, id), dtype, shape, read_only } = exported;
    if read_only && !versioned {
        return Err(PyBufferError::new_err(
            "the memory is read-only, which DLPack before 1.0 cannot say; ask for max_version=(1, 0), or copy it",
        )
        .into());
    }
    let (code, bits) = match dtype {
        Dtype::Bytes => (1, 8),
        Dtype::Fp16 => (2, 16),
        Dtype::Bf16 => (4, 16),
        Dtype::E4m3 => (10, 8),
        Dtype::E5m2 => (12, 8),
    };
    let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let mut strides = vec![1i64; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim].max(1));
    }
    let (shape_at, strides_at) = (shape.as_ptr().cast_mut(), strides.as_ptr().cast_mut());
    let tensor = RawTensor {
        data: address as *mut c_void,
        device: RawDevice { kind, id },
        ndim: shape.len() as i32,
        dtype: RawDtype { code, bits, lanes: 1 },
        shape: shape_at,
        strides: strides_at,
        byte_offset: 0,
    };
    // SAFETY: boxes are given away to the capsule, and freed by the deleter; vectors do not move when their owner does.
    unsafe {
        let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if versioned {
            let flags = if read_only { READ_ONLY } else { 0 };
            let context = std::ptr::null_mut();
            let managed =
                Versioned { version: VERSION, context, deleter: Some(free::<Versioned>), flags, tensor };
            let given = Box::into_raw(Box::new(Given { managed, shape, strides, owner }));
            (given.cast(), NAME_VERSIONED, destroy_versioned)
        } else {
            let managed = Plain { tensor, context: std::ptr::null_mut(), deleter: Some(free::<Plain>) };
            let given = Box::into_raw(Box::new(Given { managed, shape, strides, owner }));
            (given.cast(), NAME, destroy_plain)
        };
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor));
        match Bound::from_owned_ptr_or_err(py, capsule) {
            Ok(capsule) => Ok(capsule),
            Err(error) => {
                match versioned {
                    true => free::<Versioned>(pointer.cast()),
                    false => free::<Plain>(pointer.cast()),
                }
                Err(error.into())
            }
        }
    }
}

/// # Safety
/// The managed tensor is at the start of a [`Given`] of ours, and nobody frees it again.
unsafe extern "C" fn free<M>(managed: *mut M) {
    // SAFETY: by contract.
    let given = unsafe { Box::from_raw(managed.cast::<Given<M>>()) };
    // Consumers may free without the lock of the interpreter. One that has ended keeps the object.
    let Given { owner, .. } = *given;
    let mut owner = Some(owner);
    if Python::try_attach(|_| drop(owner.take())).is_none() {
        std::mem::forget(owner);
    }
}

/// # Safety
/// The capsule is one of ours.
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: by contract; it still has its first name when nobody has taken it over.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME_VERSIONED.as_ptr()) != 0 {
            free::<Versioned>(ffi::PyCapsule_GetPointer(capsule, NAME_VERSIONED.as_ptr()).cast());
        }
    }
}

/// # Safety
/// The capsule is one of ours.
unsafe extern "C" fn destroy_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            free::<Plain>(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
