//! The buffer protocol. It is part of the stable ABI from Python 3.11 on; 3.10 has the same functions and the same structure, so they are declared here.

use crate::element::Element;
use crate::error::{Fault, Result};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_int, c_void};

const WRITABLE: c_int = 0x0001;
const FORMAT: c_int = 0x0004;
const STRIDES: c_int = 0x0018;

#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
}

/// A buffer that is held: its memory stays where it is until this is dropped.
pub struct Buffer(Box<RawBuffer>);

// SAFETY: the structure is filled in once and only read; it is released with the interpreter attached.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: got once, released once. An interpreter that has ended has no use for it any more.
        Python::try_attach(|_| unsafe { PyBuffer_Release(&mut *self.0) });
    }
}

impl Buffer {
    pub fn get(object: &Bound<'_, PyAny>, writable: bool) -> Result<Buffer> {
        let py = object.py();
        let flags = STRIDES | FORMAT | if writable { WRITABLE } else { 0 };
        // SAFETY: all fields may be zero.
        let mut raw: Box<RawBuffer> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: an object and a structure for the answer.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *raw, flags) } == 0 {
            return Ok(Buffer(raw));
        }
        let error = PyErr::fetch(py);
        let readable = writable && error.is_instance_of::<PyBufferError>(py);
        Err(match readable {
            true => Fault::argument(format!(
                "the output cannot be written to ({}); give a writable buffer",
                error.value(py)
            )),
            false if error.is_instance_of::<PyBufferError>(py) => {
                Fault::argument(format!("the buffer cannot be read: {}", error.value(py)))
            }
            false => error.into(),
        })
    }

    pub fn address(&self) -> u64 {
        self.0.buf as u64
    }

    pub fn read_only(&self) -> bool {
        self.0.readonly != 0
    }

    pub fn element(&self) -> Result<Element> {
        // SAFETY: a string of C, or none, which means bytes.
        let format = (!self.0.format.is_null()).then(|| unsafe { CStr::from_ptr(self.0.format) });
        let format = format.map_or("B".into(), CStr::to_string_lossy);
        Element::of_format(&format, self.0.itemsize.unsigned_abs())
    }

    pub fn shape(&self) -> Vec<u64> {
        self.numbers(self.0.shape).iter().map(|&size| size as u64).collect()
    }

    /// In bytes.
    pub fn strides(&self) -> Vec<i64> {
        self.numbers(self.0.strides).iter().map(|&stride| stride as i64).collect()
    }

    fn numbers(&self, at: *const ffi::Py_ssize_t) -> &[ffi::Py_ssize_t] {
        match at.is_null() {
            true => &[],
            // SAFETY: `ndim` numbers, as the flags have asked for.
            false => unsafe { std::slice::from_raw_parts(at, self.0.ndim.unsigned_abs() as usize) },
        }
    }
}
