//! The layouts of serving engines, by their names. `docs/layouts.md` draws each of them.

use super::error::{plus, times};
use super::place::Lattice;
use super::{Form, PageIds, PageTable, Paged, PagedError, PagedTensor, Place, PoolTensor, RowMap};
use crate::Dtype;
use std::collections::HashSet;

/// The sizes of a KV cache of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KvShape {
    /// Layers.
    pub layers: u64,
    /// Pages (vLLM: blocks) of the pool.
    pub pages: u64,
    /// Tokens of a page.
    pub page_tokens: u64,
    /// KV heads, those that this rank has.
    pub heads: u64,
    /// Elements of a head of keys, and of one of values.
    pub head_dim: u64,
    /// What the elements are, whatever the pool calls them.
    pub dtype: Dtype,
}

/// The sizes of a cache whose rows have parts: MLA, and everything with a [`RowMap`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowShape {
    /// Layers.
    pub layers: u64,
    /// Pages of the pool.
    pub pages: u64,
    /// Tokens of a page.
    pub page_tokens: u64,
}

/// The order of the dimensions of vLLM's fused cache in memory, the outermost first: layers, blocks, heads, tokens (N), content (keys and values of a head,
/// `2 * head_dim`). Where layers are outermost, each is a pool of its own; else one pool has all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are the descriptions")]
pub enum VllmOrder {
    Lbhnc,
    Lbnhc,
    Lhbnc,
    Blhnc,
    Blnhc,
    Bhlnc,
}

impl VllmOrder {
    /// All orders.
    pub const ALL: [VllmOrder; 6] = [
        VllmOrder::Lbhnc,
        VllmOrder::Lbnhc,
        VllmOrder::Lhbnc,
        VllmOrder::Blhnc,
        VllmOrder::Blnhc,
        VllmOrder::Bhlnc,
    ];

    fn axes(self) -> [Axis; 4] {
        use Axis::{Heads as H, Layers as L, Pages as B, Tokens as N};
        match self {
            VllmOrder::Lbhnc => [L, B, H, N],
            VllmOrder::Lbnhc => [L, B, N, H],
            VllmOrder::Lhbnc => [L, H, B, N],
            VllmOrder::Blhnc => [B, L, H, N],
            VllmOrder::Blnhc => [B, L, N, H],
            VllmOrder::Bhlnc => [B, H, L, N],
        }
    }
}

/// The order of tokens and heads in a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageOrder {
    /// `[tokens, heads, dim]`.
    Nhd,
    /// `[heads, tokens, dim]`.
    Hnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    Layers,
    /// Keys, then values.
    Kv,
    Pages,
    Tokens,
    Heads,
}

/// Strides of the axes of a pool, the outermost first, around items of `item` bytes; 0 for an axis that it does not have.
struct Strides(Vec<(Axis, u64)>);

impl Strides {
    fn new(shape: &KvShape, axes: &[Axis], item: u64) -> Result<Strides, PagedError> {
        let mut strides = Vec::with_capacity(axes.len());
        let mut stride = item;
        for &axis in axes.iter().rev() {
            strides.push((axis, stride));
            let size = match axis {
                Axis::Layers => shape.layers,
                Axis::Kv => 2,
                Axis::Pages => shape.pages,
                Axis::Tokens => shape.page_tokens,
                Axis::Heads => shape.heads,
            };
            // A pool of no pages has the strides of one with a page, so that keys and values stay apart.
            stride = times(|| "the size of a pool".to_owned(), stride, size.max(1))?;
        }
        Ok(Strides(strides))
    }

    fn of(&self, axis: Axis) -> u64 {
        self.0.iter().find(|(of, _)| *of == axis).map_or(0, |&(_, stride)| stride)
    }

    fn place(&self, shape: &KvShape, pool: usize, base: u64) -> Place {
        Place {
            pool,
            base,
            pages: shape.pages,
            page_tokens: shape.page_tokens,
            page_stride: self.of(Axis::Pages),
            token_stride: self.of(Axis::Tokens),
            head_stride: self.of(Axis::Heads),
        }
    }
}

/// Where the tensors of a cache lie, without pages of any request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KvLayout {
    tensors: Vec<PoolTensor>,
}

/// The most layers of a layout with a name: a number that comes from elsewhere must not fill the memory.
const MOST_LAYERS: u64 = 1 << 12;
/// The most pools of any layout, likewise.
const MOST_POOLS: usize = 1 << 16;

fn check_layers(layers: u64) -> Result<(), PagedError> {
    if layers <= MOST_LAYERS {
        return Ok(());
    }
    let reason = format!("{layers} layers are more than the {MOST_LAYERS} that a layout may have");
    Err(PagedError::Layout { what: "the layout".to_owned(), reason })
}

impl KvLayout {
    /// Any tensors in any pools: what no name below says. Fails unless every head of every token has bytes of its own.
    ///
    /// # Errors
    /// [`PagedError::Layout`] for sizes of zero and strides that let elements overlap, [`PagedError::Overlap`] for two tensors
    /// that do, [`PagedError::Name`] for equal names, [`PagedError::Overflow`].
    pub fn new(tensors: Vec<PoolTensor>) -> Result<KvLayout, PagedError> {
        let mut names = HashSet::new();
        let mut lattices: Vec<(&PoolTensor, Lattice)> = Vec::with_capacity(tensors.len());
        for tensor in &tensors {
            let name = &tensor.form.name;
            if !names.insert(name.as_str()) {
                return Err(PagedError::Name { tensor: name.clone(), found: 2 });
            }
            let lattice = tensor.check()?;
            let pool = tensor.place.pool;
            if pool >= MOST_POOLS {
                let reason = format!(
                    "pool {pool} is none: pools are numbered from 0, and there are at most {MOST_POOLS}"
                );
                return Err(PagedError::Layout { what: format!("tensor {name:?}"), reason });
            }
            for (other, of_other) in lattices.iter().filter(|(other, _)| other.place.pool == pool) {
                if let Some(reason) = of_other.overlap(&lattice) {
                    let (first, second) = (other.form.name.clone(), name.clone());
                    return Err(PagedError::Overlap { first, second, pool, reason: reason.to_owned() });
                }
            }
            lattices.push((tensor, lattice));
        }
        Ok(KvLayout { tensors })
    }

    /// Keys and values around `axes`, the outermost first; `content` says that they share a row of `2 * head_dim`.
    fn keys_and_values(
        shape: &KvShape,
        axes: &[Axis],
        content: bool,
        pool: impl Fn(u64, u64) -> u64,
    ) -> Result<KvLayout, PagedError> {
        check_layers(shape.layers)?;
        let what = || "the size of a head".to_owned();
        let head = times(what, shape.head_dim, shape.dtype.bytes() as u64)?;
        let strides = Strides::new(shape, axes, if content { times(what, head, 2)? } else { head })?;
        let mut tensors = Vec::new();
        for layer in 0..shape.layers {
            for (kv, name) in [(0, "k"), (1, "v")] {
                let offset = if content { head } else { strides.of(Axis::Kv) };
                let base = layer * strides.of(Axis::Layers) + kv * offset;
                let form =
                    Form::new(format!("layers.{layer}.{name}"), shape.dtype, shape.heads, shape.head_dim);
                let place = strides.place(shape, pool(layer, kv) as usize, base);
                tensors.push(PoolTensor { form, place });
            }
        }
        KvLayout::new(tensors)
    }

    /// vLLM up to its fused cache: a pool a layer, `[2, blocks, block, heads, head_dim]`.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn vllm(shape: &KvShape) -> Result<KvLayout, PagedError> {
        let axes = [Axis::Kv, Axis::Pages, Axis::Tokens, Axis::Heads];
        KvLayout::keys_and_values(shape, &axes, false, |layer, _| layer)
    }

    /// The same with blocks outermost: a pool a layer, `[blocks, 2, block, heads, head_dim]`.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn vllm_blocks_first(shape: &KvShape) -> Result<KvLayout, PagedError> {
        KvLayout::flash_infer(shape, PageOrder::Nhd)
    }

    /// vLLM's fused cache, `[blocks, heads, block, 2 * head_dim]` a layer, in one of its orders in memory. Keys and values of a head share a row, and have a
    /// tensor and a codebook each.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn vllm_fused(shape: &KvShape, order: VllmOrder) -> Result<KvLayout, PagedError> {
        match order.axes() {
            [Axis::Layers, axes @ ..] => KvLayout::keys_and_values(shape, &axes, true, |layer, _| layer),
            axes => KvLayout::keys_and_values(shape, &axes, true, |_, _| 0),
        }
    }

    /// FlashInfer's cache of one tensor: a pool a layer, `[pages, 2, page, heads, head_dim]` (NHD) or `[pages, 2, heads, page, head_dim]` (HND).
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn flash_infer(shape: &KvShape, order: PageOrder) -> Result<KvLayout, PagedError> {
        let axes = match order {
            PageOrder::Nhd => [Axis::Pages, Axis::Kv, Axis::Tokens, Axis::Heads],
            PageOrder::Hnd => [Axis::Pages, Axis::Kv, Axis::Heads, Axis::Tokens],
        };
        KvLayout::keys_and_values(shape, &axes, false, |layer, _| layer)
    }

    /// FlashInfer's cache of two tensors: layer `l` has its keys in pool `2 l` and its values in pool `2 l + 1`, `[pages, page, heads, head_dim]` (NHD) or
    /// `[pages, heads, page, head_dim]` (HND).
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn flash_infer_pair(shape: &KvShape, order: PageOrder) -> Result<KvLayout, PagedError> {
        let axes = match order {
            PageOrder::Nhd => [Axis::Pages, Axis::Tokens, Axis::Heads],
            PageOrder::Hnd => [Axis::Pages, Axis::Heads, Axis::Tokens],
        };
        KvLayout::keys_and_values(shape, &axes, false, |layer, kv| 2 * layer + kv)
    }

    /// SGLang's pools of tokens: layer `l` has `k_buffer[l]` as pool `2 l` and `v_buffer[l]` as pool `2 l + 1`, `[slots, heads, head_dim]`. With pages of one token
    /// the table lists slots; `pages` times `page_tokens` are the slots.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn sglang(shape: &KvShape) -> Result<KvLayout, PagedError> {
        KvLayout::flash_infer_pair(shape, PageOrder::Nhd)
    }

    /// LMCache's chunk of all layers, `KV_2LTD`: one pool of one page, `[2, layers, tokens, heads * head_dim]`. `pages` is 1, `page_tokens` the tokens of the
    /// chunk.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn lmcache(shape: &KvShape) -> Result<KvLayout, PagedError> {
        // Behind each other, chunks are pages.
        let axes = [Axis::Pages, Axis::Kv, Axis::Layers, Axis::Tokens, Axis::Heads];
        KvLayout::keys_and_values(shape, &axes, false, |_, _| 0)
    }

    /// Rows with parts: a pool a layer, `[pages, page, row]`. The tensors of layer `l` are named `layers.l.` and the field.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn rows(shape: &RowShape, row: &RowMap) -> Result<KvLayout, PagedError> {
        KvLayout::of_rows(shape, row, row.row_bytes(), &[Axis::Pages, Axis::Tokens], |layer| layer)
    }

    /// MLA in vLLM (`[blocks, block, 576]`) and SGLang (`[slots, 1, 576]`): a pool a layer, rows of `latent` and `rope` elements with a codebook each, 512 and 64
    /// in DeepSeek's models.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn mla(shape: &RowShape, dtype: Dtype, latent: u64, rope: u64) -> Result<KvLayout, PagedError> {
        KvLayout::rows(shape, &RowMap::mla(dtype, latent, rope)?)
    }

    /// LMCache's chunk of MLA, `KV_MLA_FMT`: one pool of one page, `[1, layers, tokens, row]`, rows `row_bytes` apart. What lies behind the fields of a row is padding:
    /// it is neither encoded nor written.
    ///
    /// # Errors
    /// As [`KvLayout::new`].
    pub fn lmcache_mla(shape: &RowShape, row: &RowMap, row_bytes: u64) -> Result<KvLayout, PagedError> {
        if row_bytes < row.row_bytes() {
            let reason = format!("rows {row_bytes} bytes apart cannot have {} bytes", row.row_bytes());
            return Err(PagedError::Layout { what: "the rows".to_owned(), reason });
        }
        KvLayout::of_rows(shape, row, row_bytes, &[Axis::Pages, Axis::Layers, Axis::Tokens], |_| 0)
    }

    fn of_rows(
        shape: &RowShape,
        row: &RowMap,
        row_bytes: u64,
        axes: &[Axis],
        pool: impl Fn(u64) -> u64,
    ) -> Result<KvLayout, PagedError> {
        let RowShape { layers, pages, page_tokens } = *shape;
        check_layers(layers)?;
        let shape = KvShape { layers, pages, page_tokens, heads: 1, head_dim: 0, dtype: Dtype::Bytes };
        let strides = Strides::new(&shape, axes, row_bytes)?;
        let mut tensors = Vec::new();
        for layer in 0..layers {
            for field in row.fields() {
                let name = format!("layers.{layer}.{}", field.name);
                let form = Form::new(name, field.dtype, 1, field.elements);
                let at = layer * strides.of(Axis::Layers);
                let base = plus(|| "the place of a field".to_owned(), at, field.offset)?;
                let place = strides.place(&shape, pool(layer) as usize, base);
                tensors.push(PoolTensor { form, place });
            }
        }
        KvLayout::new(tensors)
    }

    /// The tensors, layer by layer: the order of a frame.
    pub fn tensors(&self) -> &[PoolTensor] {
        &self.tensors
    }

    /// Bytes that every pool must have at least, in the order of their numbers.
    ///
    /// # Errors
    /// [`PagedError::Overflow`].
    pub fn pool_bytes(&self) -> Result<Vec<u64>, PagedError> {
        let mut pools = Vec::new();
        for tensor in &self.tensors {
            let pool = tensor.place.pool;
            if pools.len() <= pool {
                pools.resize(pool + 1, 0);
            }
            pools[pool] = tensor.pool_bytes()?.max(pools[pool]);
        }
        Ok(pools)
    }

    /// The tensors of a request whose tokens lie in the pages of `table`, in all layers.
    ///
    /// # Errors
    /// [`PagedError::PageSize`] for a table of other pages, [`PagedError::Overflow`].
    pub fn bind<'a>(&self, table: PageTable<'a>) -> Result<Paged<'a>, PagedError> {
        let tensors = self
            .tensors
            .iter()
            .map(|tensor| PagedTensor::new(tensor.clone(), table))
            .collect::<Result<_, _>>();
        Ok(Paged::new(tensors?))
    }

    /// The same for `tokens` tokens in pages that follow each other from page `first` on: what lies in one piece.
    ///
    /// # Errors
    /// As [`KvLayout::bind`].
    pub fn bind_consecutive(&self, first: u64, tokens: u64) -> Result<Paged<'static>, PagedError> {
        let page_tokens = self.tensors.first().map_or(1, |tensor| tensor.place.page_tokens);
        let count = tokens.div_ceil(page_tokens);
        self.bind(PageTable::new(PageIds::Consecutive { first, count }, page_tokens, tokens)?)
    }
}
