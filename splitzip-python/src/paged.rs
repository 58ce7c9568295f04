//! KV in pages: the layouts of serving engines, and requests in them.

use crate::codebook::{PyCodebook, parse_dtype};
use crate::error::{Fault, Result};
use crate::host::{choices, into_frame, references, repack};
use crate::ids::Ids;
use crate::pool;
use crate::spec::Spec;
use crate::view::{View, check_apart};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyList};
use splitzip_host::paged::{
    Form, KvLayout, KvShape, PageOrder, PageTable, Paged, PagedError, Place as PoolPlace, PoolTensor,
    RowField, RowMap, RowShape, VllmOrder,
};
use splitzip_host::{Cpu, Executor, Frame};
use std::collections::HashSet;
use std::ops::Range;

/// What the bytes of a row of a cache are, where rows mix formats. Every field becomes a tensor.
///
/// Parameters
/// ----------
/// row_bytes
///     Bytes of a row.
/// fields
///     Name, offset in bytes, elements and dtype of each field. What no field names is kept as bytes.
#[pyclass(name = "RowMap", frozen, module = "splitzip")]
#[derive(Clone)]
pub struct PyRowMap(RowMap);

#[pymethods]
impl PyRowMap {
    #[new]
    fn new(row_bytes: u64, fields: Vec<(String, u64, u64, String)>) -> Result<PyRowMap> {
        let field = |(name, offset, elements, dtype): (String, u64, u64, String)| {
            Ok(RowField { name, offset, elements, dtype: parse_dtype(&dtype)? })
        };
        let fields = fields.into_iter().map(field).collect::<Result<Vec<_>>>()?;
        Ok(PyRowMap(RowMap::new(row_bytes, &fields)?))
    }

    /// A row of the latent and the rotary part of MLA.
    ///
    /// Parameters
    /// ----------
    /// dtype
    ///     That of both.
    /// latent, rope
    ///     Elements of each.
    #[staticmethod]
    #[pyo3(signature = (dtype, latent=512, rope=64))]
    fn mla(dtype: &str, latent: u64, rope: u64) -> Result<PyRowMap> {
        Ok(PyRowMap(RowMap::mla(parse_dtype(dtype)?, latent, rope)?))
    }

    /// A row of ``fp8_ds_mla`` (DeepSeek V3.2 in vLLM): 512 e4m3, four f32 scales (as bytes), 64 bf16; 656 bytes.
    #[staticmethod]
    fn fp8_ds_mla() -> PyRowMap {
        PyRowMap(RowMap::fp8_ds_mla())
    }

    /// Bytes of a row.
    #[getter]
    fn row_bytes(&self) -> u64 {
        self.0.row_bytes()
    }

    /// Name, offset in bytes, elements and dtype of each field, without gaps.
    #[getter]
    fn fields(&self) -> Vec<(&str, u64, u64, &'static str)> {
        let fields = self.0.fields().iter();
        fields.map(|field| (field.name.as_str(), field.offset, field.elements, field.dtype.name())).collect()
    }
}

/// Where the tensors of a cache lie in its pools. ``docs/layouts.md`` draws every layout that has a name.
///
/// Parameters
/// ----------
/// tensors
///     For what no name says: dicts of ``name``, ``dtype``, ``heads``, ``dim``, ``pool``, ``pages``, ``page_tokens``, and, in bytes, ``base``,
///     ``page_stride``, ``token_stride`` and ``head_stride``. Refused unless every head of every token has bytes of its own.
#[pyclass(name = "KvLayout", frozen, eq, module = "splitzip")]
#[derive(Clone, PartialEq)]
pub struct PyKvLayout(KvLayout);

fn shape_of(
    layers: u64,
    pages: u64,
    page_tokens: u64,
    heads: u64,
    head_dim: u64,
    dtype: &str,
) -> Result<KvShape> {
    Ok(KvShape { layers, pages, page_tokens, heads, head_dim, dtype: parse_dtype(dtype)? })
}

fn page_order(order: &str) -> Result<PageOrder> {
    match order {
        "nhd" => Ok(PageOrder::Nhd),
        "hnd" => Ok(PageOrder::Hnd),
        _ => Err(Fault::argument(format!("there is no order {order:?}; it must be one of nhd, hnd"))),
    }
}

/// A constructor with the sizes of a cache of keys and values, by their names.
macro_rules! layouts {
    ($($(#[$attribute:meta])* $name:ident($shape:ident $(, $order:ident)?) $make:expr;)*) => {
        #[pymethods]
        impl PyKvLayout {
            $(
                $(#[$attribute])*
                #[staticmethod]
                #[pyo3(signature = (*, layers, pages, page_tokens, heads, head_dim, dtype $(, $order)?))]
                #[allow(clippy::too_many_arguments, reason = "they are keywords")]
                fn $name(
                    layers: u64,
                    pages: u64,
                    page_tokens: u64,
                    heads: u64,
                    head_dim: u64,
                    dtype: &str,
                    $($order: &str)?
                ) -> Result<PyKvLayout> {
                    let $shape = &shape_of(layers, pages, page_tokens, heads, head_dim, dtype)?;
                    Ok(PyKvLayout($make?))
                }
            )*

            #[new]
            fn new(tensors: Vec<Bound<'_, PyDict>>) -> Result<PyKvLayout> {
                let tensors = tensors.iter().map(pool_tensor).collect::<Result<_>>()?;
                Ok(PyKvLayout(KvLayout::new(tensors)?))
            }

            /// Rows with parts: a pool a layer, ``[pages, page, row]``.
            ///
            /// Parameters
            /// ----------
            /// layers, pages, page_tokens
            ///     Sizes.
            /// row
            ///     A :class:`RowMap`.
            #[staticmethod]
            #[pyo3(signature = (*, layers, pages, page_tokens, row))]
            fn rows(layers: u64, pages: u64, page_tokens: u64, row: PyRef<'_, PyRowMap>) -> Result<PyKvLayout> {
                Ok(PyKvLayout(KvLayout::rows(&RowShape { layers, pages, page_tokens }, &row.0)?))
            }

            /// MLA in vLLM (``[blocks, block, 576]``) and SGLang (``[slots, 1, 576]``): a pool a layer.
            ///
            /// Parameters
            /// ----------
            /// layers, pages, page_tokens
            ///     Sizes.
            /// dtype
            ///     That of the rows.
            /// latent, rope
            ///     Elements of the two parts of a row.
            #[staticmethod]
            #[pyo3(signature = (*, layers, pages, page_tokens, dtype, latent=512, rope=64))]
            fn mla(layers: u64, pages: u64, page_tokens: u64, dtype: &str, latent: u64, rope: u64) -> Result<PyKvLayout> {
                let shape = RowShape { layers, pages, page_tokens };
                Ok(PyKvLayout(KvLayout::mla(&shape, parse_dtype(dtype)?, latent, rope)?))
            }

            /// LMCache's chunk of MLA, ``KV_MLA_FMT``: one pool of one page, ``[1, layers, tokens, row]``.
            ///
            /// Parameters
            /// ----------
            /// layers, tokens
            ///     Sizes of a chunk.
            /// row
            ///     A :class:`RowMap`.
            /// row_bytes
            ///     From a row to the next: what lies behind the fields is padding, and is not touched.
            /// pages
            ///     Chunks behind each other.
            #[staticmethod]
            #[pyo3(signature = (*, layers, tokens, row, row_bytes=None, pages=1))]
            fn lmcache_mla(
                layers: u64,
                tokens: u64,
                row: PyRef<'_, PyRowMap>,
                row_bytes: Option<u64>,
                pages: u64,
            ) -> Result<PyKvLayout> {
                let shape = RowShape { layers, pages, page_tokens: tokens };
                let row_bytes = row_bytes.unwrap_or_else(|| row.0.row_bytes());
                Ok(PyKvLayout(KvLayout::lmcache_mla(&shape, &row.0, row_bytes)?))
            }

            /// Bytes that every pool must have at least, in the order of their numbers.
            #[getter]
            fn pool_bytes(&self) -> Result<Vec<u64>> {
                Ok(self.0.pool_bytes()?)
            }

            /// The tensors, in the order of a frame: what the constructor takes.
            #[getter]
            fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                let list = PyList::empty(py);
                for PoolTensor { form, place } in self.0.tensors() {
                    let dict = PyDict::new(py);
                    dict.set_item("name", form.name.as_str())?;
                    dict.set_item("dtype", form.dtype.name())?;
                    dict.set_item("pool", place.pool)?;
                    let numbers = [
                        ("heads", form.heads),
                        ("dim", form.dim),
                        ("base", place.base),
                        ("pages", place.pages),
                        ("page_tokens", place.page_tokens),
                        ("page_stride", place.page_stride),
                        ("token_stride", place.token_stride),
                        ("head_stride", place.head_stride),
                    ];
                    numbers.into_iter().try_for_each(|(name, number)| dict.set_item(name, number))?;
                    list.append(dict)?;
                }
                Ok(list)
            }

            /// The tensors of a request whose tokens lie in these pages, in all layers.
            ///
            /// Parameters
            /// ----------
            /// page_ids
            ///     A list, or an array or tensor of 32-bit or 64-bit integers: just the pages that the tokens need, in order. An array of the host is
            ///     copied. One on a CUDA device is read there, when the work runs, and is for pools on that device.
            /// tokens
            ///     Tokens of all pages.
            /// last_page_tokens
            ///     Instead of ``tokens``: those of the last page, as FlashInfer's ``kv_last_page_len``.
            ///
            /// Returns
            /// -------
            /// Paged
            #[pyo3(signature = (page_ids, tokens=None, *, last_page_tokens=None))]
            fn bind(
                &self,
                page_ids: &Bound<'_, PyAny>,
                tokens: Option<u64>,
                last_page_tokens: Option<u64>,
            ) -> Result<PyPaged> {
                let page_tokens = self.0.tensors().first().map_or(1, |tensor| tensor.place.page_tokens);
                let ids = Ids::of(page_ids)?;
                let table = match (tokens, last_page_tokens) {
                    (Some(tokens), None) => PageTable::new(ids.ids(), page_tokens, tokens)?,
                    (None, Some(valid)) => PageTable::with_last_page(ids.ids(), page_tokens, valid)?,
                    _ => return Err(Fault::argument(
                        "say how many tokens the pages hold: either tokens= (of all pages) or last_page_tokens= (of the last)",
                    )),
                };
                let tokens = table.tokens();
                PyPaged::new(Part { layout: self.0.clone(), ids, page_tokens, tokens, range: 0..tokens })
            }

            /// The same for pages that follow each other from page ``first`` on.
            #[pyo3(signature = (first, tokens))]
            fn bind_consecutive(&self, first: u64, tokens: u64) -> Result<PyPaged> {
                let page_tokens = self.0.tensors().first().map_or(1, |tensor| tensor.place.page_tokens);
                let ids = Ids::Consecutive(first, tokens.div_ceil(page_tokens));
                PyPaged::new(Part { layout: self.0.clone(), ids, page_tokens, tokens, range: 0..tokens })
            }
        }
    };
}
layouts! {
    /// vLLM up to its fused cache: a pool a layer, ``[2, blocks, block, heads, head_dim]``.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    vllm(shape) KvLayout::vllm(shape);
    /// The same with blocks outermost: a pool a layer, ``[blocks, 2, block, heads, head_dim]``.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    vllm_blocks_first(shape) KvLayout::vllm_blocks_first(shape);
    /// vLLM's fused cache, ``[blocks, heads, block, 2 * head_dim]`` a layer: keys and values of a head share a row.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    /// order
    ///     That of memory, the outermost first: ``"lbhnc"``, ``"lbnhc"``, ``"lhbnc"`` (a pool a layer), ``"blhnc"``, ``"blnhc"``, ``"bhlnc"`` (one pool).
    vllm_fused(shape, order) KvLayout::vllm_fused(shape, vllm_order(order)?);
    /// FlashInfer's cache of one tensor: a pool a layer.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    /// order
    ///     ``"nhd"`` for ``[pages, 2, page, heads, head_dim]``, ``"hnd"`` for ``[pages, 2, heads, page, head_dim]``.
    flash_infer(shape, order) KvLayout::flash_infer(shape, page_order(order)?);
    /// FlashInfer's cache of two tensors: layer ``l`` has its keys in pool ``2 l`` and its values in pool ``2 l + 1``.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    /// order
    ///     ``"nhd"`` for ``[pages, page, heads, head_dim]``, ``"hnd"`` for ``[pages, heads, page, head_dim]``.
    flash_infer_pair(shape, order) KvLayout::flash_infer_pair(shape, page_order(order)?);
    /// SGLang's pools of tokens: layer ``l`` has ``k_buffer[l]`` as pool ``2 l`` and ``v_buffer[l]`` as pool ``2 l + 1``. With pages of one token page ids are slots.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    sglang(shape) KvLayout::sglang(shape);
    /// LMCache's chunk of all layers, ``KV_2LTD``: one pool of one page, ``[2, layers, tokens, heads * head_dim]``.
    ///
    /// Parameters
    /// ----------
    /// layers, pages, page_tokens, heads, head_dim
    ///     Sizes; heads are those that this rank has.
    /// dtype
    ///     What the elements are, whatever the pool calls them.
    lmcache(shape) KvLayout::lmcache(shape);
}

fn vllm_order(order: &str) -> Result<VllmOrder> {
    let name = |order: &VllmOrder| format!("{order:?}").to_lowercase();
    let found = VllmOrder::ALL.into_iter().find(|of| name(of) == order);
    found.ok_or_else(|| {
        let names = VllmOrder::ALL.iter().map(name).collect::<Vec<_>>().join(", ");
        Fault::argument(format!("there is no order {order:?}; it must be one of {names}"))
    })
}

fn pool_tensor(dict: &Bound<'_, PyDict>) -> Result<PoolTensor> {
    fn field<'py, T: FromPyObjectOwned<'py>>(dict: &Bound<'py, PyDict>, name: &str) -> Result<T> {
        let missing = || Fault::argument(format!("a tensor of a layout needs {name:?}"));
        let value = dict.get_item(name)?.ok_or_else(missing)?;
        value.extract::<T>().map_err(|error| Fault::Python(Into::<PyErr>::into(error)))
    }
    let names = [
        "name",
        "dtype",
        "heads",
        "dim",
        "pool",
        "base",
        "pages",
        "page_tokens",
        "page_stride",
        "token_stride",
        "head_stride",
    ];
    for key in dict.keys() {
        let key: String = key.extract()?;
        if !names.contains(&key.as_str()) {
            let names = names.join(", ");
            return Err(Fault::argument(format!("a tensor of a layout has no {key:?}; it has {names}")));
        }
    }
    let dtype = parse_dtype(&field::<String>(dict, "dtype")?)?;
    Ok(PoolTensor {
        form: Form::new(field::<String>(dict, "name")?, dtype, field(dict, "heads")?, field(dict, "dim")?),
        place: PoolPlace {
            pool: field(dict, "pool")?,
            base: field(dict, "base")?,
            pages: field(dict, "pages")?,
            page_tokens: field(dict, "page_tokens")?,
            page_stride: field(dict, "page_stride")?,
            token_stride: field(dict, "token_stride")?,
            head_stride: field(dict, "head_stride")?,
        },
    })
}

/// A layout with the pages of a request.
#[derive(Clone)]
struct Part {
    layout: KvLayout,
    ids: Ids,
    page_tokens: u64,
    /// Of all pages.
    tokens: u64,
    /// Those that are meant.
    range: Range<u64>,
}

/// The tensors of a request: a :class:`KvLayout` with the pages that hold its tokens, made by :meth:`KvLayout.bind`.
#[pyclass(name = "Paged", frozen, module = "splitzip")]
#[derive(Clone)]
pub struct PyPaged {
    parts: Vec<Part>,
    salt: Vec<u8>,
    selected: Option<HashSet<String>>,
}

#[pymethods]
impl PyPaged {
    /// A number for names, dtypes, heads and dimensions of the tensors: the same for all layouts that can exchange frames.
    #[getter]
    fn layout_id(&self) -> Result<u64> {
        Ok(self.paged()?.layout_id())
    }

    /// Tokens of the request.
    #[getter]
    fn tokens(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.range.end - part.range.start)
    }

    /// The names of the tensors, in the order of a frame.
    #[getter]
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.paged()?.tensors().iter().map(|tensor| tensor.form().name.clone()).collect())
    }

    /// The tokens ``start`` to ``stop``, which need not start or end with a page.
    fn slice(&self, start: u64, stop: u64) -> Result<PyPaged> {
        let mut sliced = self.clone();
        for part in &mut sliced.parts {
            let tokens = part.range.end - part.range.start;
            if start > stop || stop > tokens {
                return Err(PagedError::TokensOutOfRange { start, end: stop, tokens }.into());
            }
            part.range = part.range.start + start..part.range.start + stop;
        }
        Ok(sliced)
    }

    /// Some of the tensors, by their names, with the layout id of all: what is decoded alone from a frame with more.
    fn select(&self, names: Vec<String>) -> Result<PyPaged> {
        let known = self.names()?;
        if let Some(tensor) = names.iter().find(|name| !known.contains(name)) {
            return Err(PagedError::Name { tensor: tensor.clone(), found: 0 }.into());
        }
        Ok(PyPaged { selected: Some(names.into_iter().collect()), ..self.clone() })
    }

    /// The same with other bytes mixed into the layout id: whatever else both sides must agree on.
    fn salted(&self, salt: Vec<u8>) -> PyPaged {
        PyPaged { salt, ..self.clone() }
    }

    /// The tensors of both as one request: tensors with pages of another size, or with tables of their own.
    fn join(&self, other: &PyPaged) -> Result<PyPaged> {
        if [self, other].iter().any(|of| of.selected.is_some() || !of.salt.is_empty()) {
            return Err(Fault::argument("join comes first: salt and select what it returns"));
        }
        let joined = PyPaged { parts: [&self.parts[..], &other.parts[..]].concat(), ..self.clone() };
        joined.paged()?;
        Ok(joined)
    }

    /// The description of a frame of these tensors: floats with the scheme, bytes stored.
    fn spec(&self, scheme: &str, bases: &str, checksums: &str, arrival: bool) -> Result<Spec> {
        let flags = crate::spec::parse_checksums(checksums)?;
        let flags = splitzip_host::Flags { arrival, ..flags };
        let bases: splitzip_host::Bases = bases.parse()?;
        let mut spec = self.paged()?.spec(scheme.parse()?, flags);
        for tensor in spec.tensors.iter_mut().filter(|tensor| tensor.scheme.has_window()) {
            let channels = splitzip_host::select::has_channels(&tensor.shape);
            tensor.bases = if channels { bases } else { splitzip_host::Bases::Chunk };
        }
        Spec::of(spec)
    }
}

impl PyPaged {
    fn new(part: Part) -> Result<PyPaged> {
        let paged = PyPaged { parts: vec![part], salt: Vec::new(), selected: None };
        paged.paged()?;
        Ok(paged)
    }

    /// The memory of devices that page numbers lie in.
    pub fn device_ids(&self) -> Vec<&View> {
        self.parts.iter().filter_map(|part| part.ids.on_device()).collect()
    }

    pub fn paged(&self) -> Result<Paged<'_>> {
        let mut all: Option<Paged<'_>> = None;
        for part in &self.parts {
            let table =
                PageTable::new(part.ids.ids(), part.page_tokens, part.tokens)?.slice(part.range.clone())?;
            let paged = part.layout.bind(table)?;
            all = Some(match all {
                Some(all) => all.join(&paged)?,
                None => paged,
            });
        }
        let mut all = all.ok_or_else(|| Fault::argument("there are no tensors"))?;
        if !self.salt.is_empty() {
            all = all.salted(&self.salt);
        }
        Ok(match &self.selected {
            Some(names) => all.select(|form| names.contains(&form.name)),
            None => all,
        })
    }
}

/// Encodes the tensors of a request from their pages.
#[pyfunction]
#[pyo3(signature = (spec, codebooks, paged, pools, out=None, packed=false, threads=None))]
#[allow(clippy::too_many_arguments, reason = "those of encode, and the pools")]
pub fn encode_paged<'py>(
    py: Python<'py>,
    spec: PyRef<'py, Spec>,
    codebooks: Vec<Option<PyRef<'py, PyCodebook>>>,
    paged: PyRef<'py, PyPaged>,
    pools: Vec<PyRef<'py, View>>,
    out: Option<PyRef<'py, View>>,
    packed: bool,
    threads: Option<usize>,
) -> Result<(Option<Bound<'py, PyByteArray>>, usize)> {
    let (spec, codebooks, pools, out) = (&*spec, choices(&codebooks), references(&pools), out.as_deref());
    check_apart(&pools, &out.into_iter().collect::<Vec<_>>())?;
    let paged = paged.paged()?;
    into_frame(py, spec.layout.max_frame_bytes, out, |memory| {
        pool::run(threads, || {
            let pools = pools.iter().map(|pool| pool.host_bytes()).collect::<Result<Vec<_>>>()?;
            let length = Cpu::new().encode_paged(&spec.spec, &codebooks, &paged, &pools, memory)?;
            if packed { repack(memory, length) } else { Ok(length) }
        })
    })
}

/// Decodes tensors of a frame into their pages.
#[pyfunction]
#[pyo3(signature = (frame, tokens, paged, pools, threads=None))]
pub fn decode_paged(
    py: Python<'_>,
    frame: PyRef<'_, View>,
    tokens: Option<(u64, u64)>,
    paged: PyRef<'_, PyPaged>,
    pools: Vec<PyRef<'_, View>>,
    threads: Option<usize>,
) -> Result<()> {
    let (frame, pools) = (&*frame, references(&pools));
    check_apart(&[frame], &pools)?;
    let (paged, bytes) = (paged.paged()?, frame.host_bytes()?);
    py.detach(|| {
        pool::run(threads, || {
            let mut sinks = Vec::with_capacity(pools.len());
            for (number, pool) in pools.iter().enumerate() {
                sinks.push(crate::host::Sink::new(pool, &format!("pool {number}"), pool.bytes())?);
            }
            let mut slices: Vec<&mut [u8]> = sinks.iter_mut().map(crate::host::Sink::bytes).collect();
            let tokens = tokens.map(|(start, stop)| start..stop);
            Cpu::new().decode_paged(&Frame::parse(bytes)?, tokens, &paged, &mut slices)?;
            Ok(())
        })
    })
}
