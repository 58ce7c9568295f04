//! Encoding and decoding in memory of the host, without the lock of the interpreter.

use crate::codebook::PyCodebook;
use crate::error::{Fault, Result};
use crate::pool;
use crate::spec::Spec;
use crate::strided;
use crate::view::{Place, View, check_apart};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use splitzip_host::format::pack;
use splitzip_host::{CodebookChoice, Cpu, Executor, Frame};
use std::borrow::Cow;

/// The elements of a tensor in one piece, in the order of their indices: copied where they are not.
pub fn contiguous(view: &View) -> Result<Cow<'_, [u8]>> {
    if view.place() != Place::Host {
        return Err(Fault::unsupported("this works on tensors of the host; copy the tensor there first"));
    }
    match view.strides() {
        None => view.host_bytes().map(Cow::Borrowed),
        // SAFETY: the owner of the tensor says where its elements are, and is held.
        Some(strides) => Ok(Cow::Owned(unsafe {
            let item = view.dtype_of().bytes() as u64;
            strided::gather(view.address_of(), view.shape_of(), strides, item)
        })),
    }
}

/// A place that decoded bytes go to.
pub struct Sink<'a> {
    view: &'a View,
    /// For elements with strides: their bytes in one piece.
    copy: Option<Vec<u8>>,
}

impl<'a> Sink<'a> {
    /// A writable view of just so many bytes.
    pub fn new(view: &'a View, what: &str, bytes: u64) -> Result<Sink<'a>> {
        if view.place() != Place::Host {
            return Err(Fault::argument(format!(
                "{what} is in device memory and the frame in that of the host; copy one of them"
            )));
        }
        if view.bytes() != bytes {
            return Err(splitzip_host::Error::BufferSize {
                what: what.to_owned(),
                expected: bytes,
                got: view.bytes(),
            }
            .into());
        }
        let Some(strides) = view.strides() else { return Ok(Sink { view, copy: None }) };
        if strided::overlaps(view.shape_of(), strides, view.dtype_of().bytes() as u64) {
            return Err(Fault::argument(format!(
                "{what} has elements that share memory (a stride is smaller than what it steps over); give it memory of its own"
            )));
        }
        Ok(Sink { view, copy: Some(vec![0; bytes as usize]) })
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        match &mut self.copy {
            Some(copy) => copy,
            None if self.view.bytes() == 0 => &mut [],
            // SAFETY: writable, in one piece, its owner is held, and no other output or input shares it, as `check_apart` has seen.
            None => unsafe {
                std::slice::from_raw_parts_mut(self.view.address_of() as *mut u8, self.view.bytes() as usize)
            },
        }
    }

    /// Writes what has strides to its elements.
    pub fn finish(self) {
        if let (Some(copy), Some(strides)) = (self.copy, self.view.strides()) {
            let item = self.view.dtype_of().bytes() as u64;
            // SAFETY: as above; the copy has the bytes of all elements.
            unsafe { strided::scatter(&copy, self.view.address_of(), self.view.shape_of(), strides, item) }
        }
    }
}

pub fn references<'a>(views: &'a [PyRef<'_, View>]) -> Vec<&'a View> {
    views.iter().map(|view| &**view).collect()
}

pub fn choices(codebooks: &[Option<PyRef<'_, PyCodebook>>]) -> Vec<CodebookChoice> {
    let choice = |codebook: &Option<PyRef<'_, PyCodebook>>| match codebook {
        Some(codebook) => CodebookChoice::Given(codebook.0),
        None => CodebookChoice::Auto,
    };
    codebooks.iter().map(choice).collect()
}

/// Calls `work` with memory for a frame of at most `bytes` bytes, and returns a new `bytearray` of just the frame, or `None` when there is an `out`; and its length.
pub fn into_frame<'py>(
    py: Python<'py>,
    bytes: u64,
    out: Option<&View>,
    work: impl FnOnce(&mut [u8]) -> Result<usize> + Send,
) -> Result<(Option<Bound<'py, PyByteArray>>, usize)> {
    if let Some(out) = out {
        let length = py.detach(|| {
            let got = out.bytes();
            if got < bytes {
                let what = "the memory for the frame".to_owned();
                return Err(splitzip_host::Error::BufferSize { what, expected: bytes, got }.into());
            }
            let mut sink = Sink::new(out, "the memory for the frame", got)?;
            work(sink.bytes())
        })?;
        return Ok((None, length));
    }
    let size = ffi::Py_ssize_t::try_from(bytes)
        .map_err(|_| splitzip_host::Error::TooLarge { what: "the size of the frame", bits: usize::BITS })?;
    // SAFETY: a new object, which nobody else has seen; its bytes are whatever the allocator left there. Encoders write before they read.
    unsafe {
        let object = ffi::PyByteArray_FromStringAndSize(std::ptr::null(), size);
        let object = Bound::from_owned_ptr_or_err(py, object);
        let array = object
            .map_err(|_| splitzip_host::Error::HostMemory { bytes })?
            .cast_into_unchecked::<PyByteArray>();
        let memory = std::slice::from_raw_parts_mut(array.data(), bytes as usize);
        let length = py.detach(move || work(memory))?;
        array.resize(length)?;
        Ok((Some(array), length))
    }
}

/// Encodes tensors into a frame.
#[pyfunction]
#[pyo3(signature = (spec, codebooks, inputs, out=None, packed=false, threads=None))]
pub fn encode<'py>(
    py: Python<'py>,
    spec: PyRef<'py, Spec>,
    codebooks: Vec<Option<PyRef<'py, PyCodebook>>>,
    inputs: Vec<PyRef<'py, View>>,
    out: Option<PyRef<'py, View>>,
    packed: bool,
    threads: Option<usize>,
) -> Result<(Option<Bound<'py, PyByteArray>>, usize)> {
    let (spec, codebooks, inputs, out) = (&*spec, choices(&codebooks), references(&inputs), out.as_deref());
    check_apart(&inputs, &out.into_iter().collect::<Vec<_>>())?;
    into_frame(py, spec.layout.max_frame_bytes, out, |memory| {
        pool::run(threads, || {
            let inputs = inputs.iter().map(|view| contiguous(view)).collect::<Result<Vec<_>>>()?;
            let inputs: Vec<&[u8]> = inputs.iter().map(|input| &**input).collect();
            let length = Cpu::new().encode(&spec.spec, &codebooks, &inputs, memory)?;
            if packed { repack(memory, length) } else { Ok(length) }
        })
    })
}

/// Puts the packed form of a frame in its place. It is never longer.
pub fn repack(memory: &mut [u8], length: usize) -> Result<usize> {
    let packed = pack(&Frame::parse(&memory[..length])?)?;
    memory[..packed.len()].copy_from_slice(&packed);
    Ok(packed.len())
}

/// Decodes all tensors of a frame.
#[pyfunction]
#[pyo3(signature = (frame, outputs, threads=None))]
pub fn decode(
    py: Python<'_>,
    frame: PyRef<'_, View>,
    outputs: Vec<PyRef<'_, View>>,
    threads: Option<usize>,
) -> Result<()> {
    let (frame, outputs) = (&*frame, references(&outputs));
    check_apart(&[frame], &outputs)?;
    let bytes = frame.host_bytes()?;
    py.detach(|| {
        pool::run(threads, || {
            let frame = Frame::parse(bytes)?;
            let tensors = &frame.layout().tensors;
            if tensors.len() != outputs.len() {
                let (expected, got) = (tensors.len(), outputs.len());
                return Err(splitzip_host::Error::Count { what: "outputs", expected, got }.into());
            }
            let sinks = outputs.iter().zip(tensors).enumerate();
            let sinks = sinks.map(|(number, (view, tensor))| {
                let what = format!("the output of tensor {number}");
                check_dtype(view, tensor.dtype, &what)?;
                Sink::new(view, &what, tensor.bytes)
            });
            let mut sinks = sinks.collect::<Result<Vec<_>>>()?;
            let mut slices: Vec<&mut [u8]> = sinks.iter_mut().map(Sink::bytes).collect();
            Cpu::new().decode(&frame, &mut slices)?;
            sinks.into_iter().for_each(Sink::finish);
            Ok(())
        })
    })
}

/// Decodes some elements of one tensor, and nothing else.
#[pyfunction]
pub fn decode_elements(
    py: Python<'_>,
    frame: PyRef<'_, View>,
    tensor: usize,
    start: u64,
    stop: u64,
    output: PyRef<'_, View>,
) -> Result<()> {
    let (frame, output) = (&*frame, &*output);
    check_apart(&[frame], &[output])?;
    let bytes = frame.host_bytes()?;
    py.detach(|| {
        pool::run(None, || {
            let frame = Frame::parse(bytes)?;
            let dtype = frame.tensor(tensor)?.layout().dtype;
            check_dtype(output, dtype, "the output of the elements")?;
            let elements = stop.saturating_sub(start);
            let mut sink = Sink::new(
                output,
                "the output of the elements",
                elements.saturating_mul(dtype.bytes() as u64),
            )?;
            Cpu::new().decode_elements(&frame, tensor, start..stop, sink.bytes())?;
            sink.finish();
            Ok(())
        })
    })
}

pub fn check_dtype(view: &View, expected: splitzip_host::Dtype, what: &str) -> Result<()> {
    if view.dtype_of() == expected {
        return Ok(());
    }
    Err(Fault::dtype(format!("{what} has elements of {}, and the frame has {expected}", view.dtype_of())))
}
