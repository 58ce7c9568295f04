//! What a frame holds and where everything lies in it.

use crate::codebook::{PyCodebook, parse_dtype};
use crate::error::{Fault, Result};
use crate::host;
use crate::view::View;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use splitzip_host::format::{Frame, Mode, VERSION};
use splitzip_host::{Flags, FrameSpec, Layout, Scheme, TensorSpec};

/// The description of a frame.
#[pyclass(frozen, module = "splitzip._splitzip")]
pub struct Spec {
    pub spec: FrameSpec,
    /// Of a packed frame: that of this frame.
    pub layout: Layout,
}

/// A tensor, as Python describes it: name, id, dtype, scheme, bases, shape.
type Described = (String, u64, String, String, String, Vec<u64>);

#[pymethods]
impl Spec {
    #[new]
    #[pyo3(signature = (tensors, checksums, arrival=false, layout_id=0))]
    fn new(tensors: Vec<Described>, checksums: &str, arrival: bool, layout_id: u64) -> Result<Spec> {
        let tensor = |(name, id, dtype, scheme, bases, shape): Described| {
            Ok(TensorSpec {
                id,
                name,
                dtype: parse_dtype(&dtype)?,
                scheme: scheme.parse()?,
                bases: bases.parse()?,
                shape,
            })
        };
        let tensors = tensors.into_iter().map(tensor).collect::<Result<_>>()?;
        let flags = Flags { arrival, ..parse_checksums(checksums)? };
        Spec::of(FrameSpec { tensors, flags, layout_id })
    }

    /// That of a frame in memory of the host, and the bytes of the frame.
    #[staticmethod]
    fn parse(py: Python<'_>, frame: PyRef<'_, View>) -> Result<(Spec, u64)> {
        let bytes = frame.host_bytes()?;
        py.detach(|| {
            let frame = Frame::parse(bytes)?;
            let spec = Spec { spec: frame.spec().clone(), layout: frame.layout().clone() };
            Ok((spec, frame.bytes().len() as u64))
        })
    }

    #[getter]
    fn max_frame_bytes(&self) -> u64 {
        self.layout.max_frame_bytes
    }

    #[getter]
    fn raw_bytes(&self) -> u64 {
        self.layout.raw_bytes
    }

    /// Bytes of the part whose size is known before anything is encoded.
    #[getter]
    fn dense_bytes(&self) -> u64 {
        self.layout.dense_bytes
    }

    #[getter]
    fn layout_id(&self) -> u64 {
        self.spec.layout_id
    }

    #[getter]
    fn packed(&self) -> bool {
        self.spec.flags.packed
    }

    #[getter]
    fn arrival(&self) -> bool {
        self.spec.flags.arrival
    }

    #[getter]
    fn checksums(&self) -> &'static str {
        match (self.spec.flags.tensor_checksums, self.spec.flags.chunk_checksums) {
            (false, false) => "none",
            (true, false) => "tensor",
            (false, true) => "chunk",
            (true, true) => "both",
        }
    }

    fn __len__(&self) -> usize {
        self.spec.tensors.len()
    }

    #[getter]
    fn names(&self) -> Vec<&str> {
        self.spec.tensors.iter().map(|tensor| tensor.name.as_str()).collect()
    }

    /// Name, id, dtype, scheme, bases and shape of every tensor: what [`Spec::new`] takes.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let tensors = PyList::empty(py);
        for tensor in &self.spec.tensors {
            let names = (tensor.dtype.name(), tensor.scheme.name(), tensor.bases.name());
            let shape = PyTuple::new(py, &tensor.shape)?;
            tensors.append((tensor.name.as_str(), tensor.id, names.0, names.1, names.2, shape))?;
        }
        Ok(tensors)
    }

    /// Dtype and shape of one tensor.
    fn tensor<'py>(&self, py: Python<'py>, number: usize) -> Result<(&'static str, Bound<'py, PyTuple>)> {
        let tensor = self.spec.tensors.get(number);
        let tensor = tensor.ok_or_else(|| {
            Fault::argument(format!("there is no tensor {number}: the frame has {}", self.spec.tensors.len()))
        })?;
        Ok((tensor.dtype.name(), PyTuple::new(py, &tensor.shape)?))
    }

    fn __eq__(&self, other: &Spec) -> bool {
        self.spec == other.spec
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.spec.hash(&mut hasher);
        hasher.finish()
    }
}

impl Spec {
    pub fn of(spec: FrameSpec) -> Result<Spec> {
        let layout = spec.layout()?;
        Ok(Spec { spec, layout })
    }
}

pub fn parse_checksums(name: &str) -> Result<Flags> {
    let (tensor_checksums, chunk_checksums) = match name {
        "none" => (false, false),
        "tensor" => (true, false),
        "chunk" => (false, true),
        "both" => (true, true),
        _ => {
            return Err(Fault::argument(format!(
                "there are no checksums {name:?}; it must be one of none, tensor, chunk, both"
            )));
        }
    };
    Ok(Flags { tensor_checksums, chunk_checksums, ..Flags::default() })
}

/// The scheme and the bases that a tensor gets: those asked for, or, with `auto`, those that make it smallest.
#[pyfunction]
pub fn choose(
    py: Python<'_>,
    view: PyRef<'_, View>,
    scheme: &str,
    bases: &str,
    codebook: Option<PyRef<'_, PyCodebook>>,
) -> Result<(&'static str, &'static str)> {
    use splitzip_host::{BasesChoice, SchemeChoice, select};
    let (scheme, bases): (SchemeChoice, BasesChoice) = (scheme.parse()?, bases.parse()?);
    let (view, codebook) = (&*view, codebook.map(|codebook| codebook.0));
    let (dtype, shape) = (view.dtype_of(), view.shape_of());
    if let SchemeChoice::Given(scheme) = scheme {
        scheme.check(dtype)?;
    }
    let chosen = py.detach(|| {
        crate::pool::run(None, || {
            let candidates = select::candidates(dtype, shape, scheme, bases);
            let bytes = host::contiguous(view)?;
            let chosen = select::select("", dtype, shape, &bytes, &candidates, codebook)?;
            // Whoever names a scheme gets it, whether it shrinks the tensor or not.
            Ok(match scheme {
                SchemeChoice::Given(scheme) if chosen.0 == Scheme::Stored => {
                    candidates.first().copied().unwrap_or((scheme, splitzip_host::Bases::Chunk))
                }
                _ => chosen,
            })
        })
    })?;
    Ok((chosen.0.name(), chosen.1.name()))
}

/// What a frame in memory of the host is.
#[pyfunction]
pub fn inspect<'py>(py: Python<'py>, frame: PyRef<'py, View>) -> Result<Bound<'py, PyDict>> {
    let bytes = frame.host_bytes()?;
    let frame = py.detach(|| Frame::parse(bytes))?;
    let (spec, layout) = (frame.spec(), frame.layout());
    let all = PyDict::new(py);
    all.set_item("version", VERSION)?;
    all.set_item("frame_bytes", frame.bytes().len())?;
    all.set_item("raw_bytes", layout.raw_bytes)?;
    all.set_item("dense_bytes", layout.dense_bytes)?;
    let coded = frame.bytes().len() as f64;
    all.set_item("ratio", if layout.raw_bytes == 0 { 1.0 } else { layout.raw_bytes as f64 / coded })?;
    all.set_item("layout_id", spec.layout_id)?;
    all.set_item("arrival", spec.flags.arrival)?;
    all.set_item("packed", spec.flags.packed)?;
    all.set_item("tensor_checksums", spec.flags.tensor_checksums)?;
    all.set_item("chunk_checksums", spec.flags.chunk_checksums)?;
    let tensors = PyList::empty(py);
    for (number, of) in spec.tensors.iter().enumerate() {
        let tensor = frame.tensor(number)?;
        let dict = PyDict::new(py);
        dict.set_item("name", of.name.as_str())?;
        dict.set_item("id", of.id)?;
        dict.set_item("dtype", of.dtype.name())?;
        dict.set_item("scheme", of.scheme.name())?;
        dict.set_item("bases", of.bases.name())?;
        dict.set_item("shape", PyTuple::new(py, &of.shape)?)?;
        dict.set_item("elements", tensor.layout().elements)?;
        dict.set_item("raw_bytes", tensor.layout().bytes)?;
        dict.set_item("chunks", chunks_of(py, &tensor)?)?;
        dict.set_item("checksum", tensor.checksum())?;
        dict.set_item("codebook", tensor.codebook().map(PyCodebook))?;
        tensors.append(dict)?;
    }
    all.set_item("tensors", tensors)?;
    Ok(all)
}

/// How many chunks of a tensor are in which mode.
fn chunks_of<'py>(
    py: Python<'py>,
    tensor: &splitzip_host::format::FrameTensor<'_, '_>,
) -> Result<Bound<'py, PyDict>> {
    let mut counts = [0u64; 4];
    for group in 0..tensor.layout().groups {
        let entries = tensor.group(group).entries;
        let first = group * splitzip_host::format::GROUP as u64;
        for (entry, _) in entries.iter().zip(first..tensor.layout().chunks) {
            counts[usize::from(entry >> 12) & 3] += 1;
        }
    }
    let dict = PyDict::new(py);
    for (mode, count) in Mode::ALL.iter().zip(counts) {
        dict.set_item(format!("{mode:?}").to_lowercase(), count)?;
    }
    Ok(dict)
}
