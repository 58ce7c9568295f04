//! Codebooks of `w4`, and the counts that they are made of.

use crate::element::Element;
use crate::error::{Fault, Result};
use crate::host;
use crate::view::View;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use splitzip_host::{Codebook, CodebookFile, Cpu, Dtype, Executor, Histogram};

/// The 16 exponents that have a code in ``w4``: what :func:`calibrate` makes.
///
/// Parameters
/// ----------
/// dtype
///     ``"bf16"``, ``"fp16"`` or ``"e5m2"``.
/// exponents
///     16 of them, ascending.
#[pyclass(name = "Codebook", frozen, eq, hash, module = "splitzip")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PyCodebook(pub Codebook);

#[pymethods]
impl PyCodebook {
    #[new]
    fn new(dtype: &str, exponents: Vec<u8>) -> Result<PyCodebook> {
        let count = exponents.len();
        let exponents = exponents.try_into().map_err(|_| {
            Fault::Own("CodebookError", format!("{count} exponents are no codebook; it has 16, ascending"))
        })?;
        Ok(PyCodebook(Codebook::new(parse_dtype(dtype)?, exponents)?))
    }

    /// The dtype that it is for.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// The exponents, ascending: the code of one is its index.
    #[getter]
    fn exponents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.exponents())
    }

    fn __repr__(&self) -> String {
        format!("Codebook({:?}, {:?})", self.0.dtype().name(), self.0.exponents())
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, codebook) = (this.py(), this.get());
        let arguments = (codebook.dtype(), codebook.exponents(py)?).into_pyobject(py)?;
        PyTuple::new(py, [this.get_type().into_any(), arguments.into_any()])
    }
}

/// A dtype by its name here, or as NumPy and PyTorch have it.
pub fn parse_dtype(name: &str) -> Result<Dtype> {
    if let Some(Element::Float(dtype)) = Element::of_name(name) {
        return Ok(dtype);
    }
    name.parse().map_err(|error: splitzip_host::Error| Fault::dtype(error.to_string()))
}

/// Counts of the exponents of tensors, one dtype.
#[pyfunction]
pub fn histogram(py: Python<'_>, view: PyRef<'_, View>) -> Result<Vec<u64>> {
    let view = &*view;
    py.detach(|| {
        crate::pool::run(None, || {
            let bytes = host::contiguous(view)?;
            Ok(Cpu::new().histogram(view.dtype_of(), &bytes)?.counts().to_vec())
        })
    })
}

#[pyfunction]
pub fn codebook_of_counts(dtype: &str, counts: Vec<u64>) -> Result<PyCodebook> {
    let histogram = Histogram::from_counts(parse_dtype(dtype)?, &counts)?;
    Ok(PyCodebook(Codebook::from_histogram(&histogram)?))
}

/// Codebooks by name, and that of all other names, as the file of `splitzip calibrate`.
#[pyfunction]
pub fn codebooks_to_json(
    codebooks: &Bound<'_, PyDict>,
    default: Option<PyRef<'_, PyCodebook>>,
) -> Result<String> {
    let mut file = CodebookFile::new();
    for (name, codebook) in codebooks {
        let codebook = codebook.cast::<PyCodebook>().map_err(PyErr::from)?;
        file.insert(&name.extract::<String>()?, codebook.get().0);
    }
    file.set_default(default.map(|codebook| codebook.0));
    Ok(file.to_json())
}

#[pyfunction]
pub fn codebooks_from_json<'py>(
    py: Python<'py>,
    text: &str,
) -> Result<(Bound<'py, PyDict>, Option<PyCodebook>)> {
    let file = CodebookFile::from_json(text)?;
    let codebooks = PyDict::new(py);
    for (name, codebook) in file.iter() {
        codebooks.set_item(name, PyCodebook(*codebook))?;
    }
    Ok((codebooks, file.default_codebook().map(|codebook| PyCodebook(*codebook))))
}
