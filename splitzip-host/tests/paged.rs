//! KV in pages: whatever the layouts of both sides, the elements arrive, and nothing else is written.

use proptest::prelude::*;
use splitzip_host::conformance::{self, Content, has};
use splitzip_host::paged::{
    Form, KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, Place, PoolTensor, RowMap, RowShape,
    VllmOrder, naive,
};
use splitzip_host::{Bases, Cpu, Dtype, Executor, Flags, Frame, FrameSpec, Reference, Scheme};
use std::sync::LazyLock;

#[allow(dead_code, reason = "another test checks the list")]
#[path = "support/members.rs"]
mod members;

#[path = "support/levels.rs"]
mod levels;

/// One thread writes parts in place, several write pieces and move them.
static EXECUTORS: LazyLock<[Cpu; 2]> = LazyLock::new(|| [1, 3].map(|n| Cpu::with_threads(n).unwrap()));

/// Pools full of a byte that nobody writes.
fn pools(layout: &KvLayout, margin: usize) -> Vec<Vec<u8>> {
    let bytes = layout.pool_bytes().unwrap();
    bytes.into_iter().map(|bytes| vec![0xc5; bytes as usize + margin]).collect()
}

fn shared(pools: &[Vec<u8>]) -> Vec<&[u8]> {
    pools.iter().map(Vec::as_slice).collect()
}

fn exclusive(pools: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    pools.iter_mut().map(Vec::as_mut_slice).collect()
}

/// Some elements for every tensor.
fn elements(paged: &Paged<'_>, content: Content) -> Vec<Vec<u8>> {
    let of = |tensor: &splitzip_host::paged::PagedTensor<'_>| {
        let form = tensor.form();
        let count = (tensor.tokens() * form.heads * form.dim) as usize;
        let dtype = if form.dtype.is_float() { form.dtype } else { Dtype::E5m2 };
        content.bytes(dtype, count, form.dim as usize)
    };
    paged.tensors().iter().map(of).collect()
}

/// The pools after every tensor was put into them, head by head.
fn filled(layout: &KvLayout, paged: &Paged<'_>, elements: &[Vec<u8>], margin: usize) -> Vec<Vec<u8>> {
    let mut pools = pools(layout, margin);
    for (number, bytes) in elements.iter().enumerate() {
        naive::scatter(paged, number, bytes, &mut exclusive(&mut pools)).unwrap();
    }
    pools
}

fn encode(executor: &dyn Executor, spec: &FrameSpec, from: &Paged<'_>, pools: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0xa5; spec.layout().unwrap().max_frame_bytes as usize];
    let bytes = executor.encode_paged(spec, &[], from, &shared(pools), &mut out).unwrap();
    out.truncate(bytes);
    out
}

/// From `from` to `to`, through a frame that is the same as that of elements in one piece.
fn exchange(
    executor: &dyn Executor,
    (layout, from): (&KvLayout, &Paged<'_>),
    (to_layout, to): (&KvLayout, &Paged<'_>),
    content: Content,
    spec: &FrameSpec,
) {
    let elements = elements(from, content);
    let source = filled(layout, from, &elements, 3);
    let inputs: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
    let expected = executor.encode_to_vec(spec, &[], &inputs).unwrap();
    let frame = encode(executor, spec, from, &source);
    assert!(frame == expected, "another frame than from one piece");
    // The tensors of the destination may stand in another order.
    let in_order: Vec<Vec<u8>> = to
        .tensors()
        .iter()
        .map(|tensor| {
            let number = from.tensors().iter().position(|of| of.form().name == tensor.form().name).unwrap();
            elements[number].clone()
        })
        .collect();
    let mut target = pools(to_layout, 5);
    executor.decode_paged(&Frame::parse(&frame).unwrap(), None, to, &mut exclusive(&mut target)).unwrap();
    assert!(target == filled(to_layout, to, &in_order, 5), "the destination is not what it must be");
}

/// All layouts of keys and values that have a name.
fn named(shape: &KvShape) -> Vec<(String, KvLayout)> {
    let mut layouts = vec![
        ("vllm".to_owned(), KvLayout::vllm(shape).unwrap()),
        ("vllm_blocks_first".to_owned(), KvLayout::vllm_blocks_first(shape).unwrap()),
        ("sglang".to_owned(), KvLayout::sglang(shape).unwrap()),
        ("lmcache".to_owned(), KvLayout::lmcache(shape).unwrap()),
    ];
    for order in [PageOrder::Nhd, PageOrder::Hnd] {
        layouts.push((format!("flash_infer {order:?}"), KvLayout::flash_infer(shape, order).unwrap()));
        layouts.push((format!("pair {order:?}"), KvLayout::flash_infer_pair(shape, order).unwrap()));
    }
    for order in VllmOrder::ALL {
        layouts.push((format!("fused {order:?}"), KvLayout::vllm_fused(shape, order).unwrap()));
    }
    layouts
}

const SHAPE: KvShape =
    KvShape { layers: 2, pages: 9, page_tokens: 4, heads: 3, head_dim: 24, dtype: Dtype::Bf16 };

#[test]
fn every_named_layout_to_every_other_one() {
    let layouts = named(&SHAPE);
    let other = named(&KvShape { pages: 40, page_tokens: 1, ..SHAPE });
    let slots: Vec<i64> = (0..23).map(|token| (token * 7 + 3) % 40).collect();
    let from = PageTable::new(PageIds::I32(&[8, 2, 0, 5, 1, 4]), 4, 23).unwrap();
    let to = PageTable::new(PageIds::I64(&slots), 1, 23).unwrap();
    for (name, layout) in &layouts {
        let source = layout.bind(from).unwrap();
        let spec = source.spec(Scheme::W2x3, Flags::CHECKSUMS);
        for (other_name, other) in &other {
            println!("{name} to {other_name}");
            let target = other.bind(to).unwrap();
            assert_eq!(source.layout_id(), target.layout_id());
            exchange(&EXECUTORS[0], (layout, &source), (other, &target), Content::Mixed, &spec);
        }
        exchange(&Reference, (layout, &source), (layout, &source), Content::Plain, &spec);
    }
}

/// The numbers of a few elements, by hand: the formulas of the layouts are not taken from the code that is tested.
#[test]
fn named_layouts_lie_where_their_shapes_say() {
    let KvShape { layers, pages, page_tokens, heads, head_dim, .. } = SHAPE;
    let (l, b, n, h) = (1, 5, 2, 1);
    let index = |sizes: &[u64], at: &[u64]| {
        let place = sizes.iter().zip(at).fold(0, |sum, (size, at)| sum * size + at);
        2 * place
    };
    let (p, t, d) = (pages, page_tokens, head_dim);
    let expected: &[(&str, usize, u64, u64)] = &[
        (
            "vllm",
            1,
            index(&[2, p, t, heads, d], &[0, b, n, h, 0]),
            index(&[2, p, t, heads, d], &[1, b, n, h, 0]),
        ),
        (
            "vllm_blocks_first",
            1,
            index(&[p, 2, t, heads, d], &[b, 0, n, h, 0]),
            index(&[p, 2, t, heads, d], &[b, 1, n, h, 0]),
        ),
        ("sglang", 2, index(&[p, t, heads, d], &[b, n, h, 0]), index(&[p, t, heads, d], &[b, n, h, 0])),
        (
            "lmcache",
            0,
            index(&[p, 2, layers, t, heads, d], &[b, 0, l, n, h, 0]),
            index(&[p, 2, layers, t, heads, d], &[b, 1, l, n, h, 0]),
        ),
        (
            "flash_infer Hnd",
            1,
            index(&[p, 2, heads, t, d], &[b, 0, h, n, 0]),
            index(&[p, 2, heads, t, d], &[b, 1, h, n, 0]),
        ),
        ("pair Hnd", 2, index(&[p, heads, t, d], &[b, h, n, 0]), index(&[p, heads, t, d], &[b, h, n, 0])),
        (
            "fused Lbhnc",
            1,
            index(&[p, heads, t, 2 * d], &[b, h, n, 0]),
            index(&[p, heads, t, 2 * d], &[b, h, n, d]),
        ),
        (
            "fused Lhbnc",
            1,
            index(&[heads, p, t, 2 * d], &[h, b, n, 0]),
            index(&[heads, p, t, 2 * d], &[h, b, n, d]),
        ),
        (
            "fused Bhlnc",
            0,
            index(&[p, heads, layers, t, 2 * d], &[b, h, l, n, 0]),
            index(&[p, heads, layers, t, 2 * d], &[b, h, l, n, d]),
        ),
        (
            "fused Blnhc",
            0,
            index(&[p, layers, t, heads, 2 * d], &[b, l, n, h, 0]),
            index(&[p, layers, t, heads, 2 * d], &[b, l, n, h, d]),
        ),
    ];
    let layouts = named(&SHAPE);
    for &(name, pool, key, value) in expected {
        let (_, layout) = layouts.iter().find(|(of, _)| of == name).unwrap();
        for (tensor, at) in [("layers.1.k", key), ("layers.1.v", value)] {
            let place = layout.tensors().iter().find(|of| of.form.name == tensor).map(|of| of.place).unwrap();
            let of_pair = usize::from(pool == 2 && tensor.ends_with('v'));
            assert_eq!(place.pool, pool + of_pair, "{name} {tensor}");
            let start = place.base + b * place.page_stride + n * place.token_stride + h * place.head_stride;
            assert_eq!(start, at, "{name} {tensor}");
        }
    }
}

/// Rows with parts: MLA from pages of 64 tokens to slots, LMCache's padded rows, and `fp8_ds_mla`, whose scales are kept as they are.
#[test]
fn rows_of_several_formats() {
    let pages = RowShape { layers: 2, pages: 5, page_tokens: 64 };
    let slots = RowShape { layers: 2, pages: 300, page_tokens: 1 };
    let chunk = RowShape { layers: 2, pages: 1, page_tokens: 256 };
    let mla = RowMap::mla(Dtype::Bf16, 512, 64).unwrap();
    let odd: Vec<i32> = (0..150).map(|slot| 2 * slot).collect();
    let from = PageTable::new(PageIds::I64(&[4, 0, 2]), 64, 150).unwrap();
    let to = PageTable::new(PageIds::I32(&odd), 1, 150).unwrap();
    for (from_layout, to_layout) in [
        (KvLayout::mla(&pages, Dtype::Bf16, 512, 64), KvLayout::mla(&slots, Dtype::Bf16, 512, 64)),
        (KvLayout::rows(&pages, &RowMap::fp8_ds_mla()), KvLayout::rows(&slots, &RowMap::fp8_ds_mla())),
    ] {
        let (from_layout, to_layout) = (from_layout.unwrap(), to_layout.unwrap());
        let (source, target) = (from_layout.bind(from).unwrap(), to_layout.bind(to).unwrap());
        let spec = source.spec(Scheme::W2x3, Flags::CHECKSUMS);
        for executor in &*EXECUTORS {
            exchange(executor, (&from_layout, &source), (&to_layout, &target), Content::Plain, &spec);
        }
    }
    let lmcache = KvLayout::lmcache_mla(&chunk, &mla, 1280).unwrap();
    assert_eq!(lmcache.pool_bytes().unwrap(), [2 * 256 * 1280 - 128]);
    let source = lmcache.bind_consecutive(0, 150).unwrap();
    let to_layout = KvLayout::mla(&slots, Dtype::Bf16, 512, 64).unwrap();
    let target = to_layout.bind(to).unwrap();
    let spec = source.spec(Scheme::W4, Flags::CHECKSUMS);
    exchange(&EXECUTORS[1], (&lmcache, &source), (&to_layout, &target), Content::Plain, &spec);

    let map = RowMap::fp8_ds_mla();
    let numbers: Vec<_> =
        map.fields().iter().map(|field| (field.offset, field.elements, field.dtype)).collect();
    assert_eq!(numbers, [(0, 512, Dtype::E4m3), (512, 16, Dtype::Bytes), (528, 64, Dtype::Bf16)]);
    assert_eq!(map.row_bytes(), 656);
}

/// All members, in chunks that end in other places than pages, with tables that start within one, on every level of instructions.
fn all_members() {
    for member in members::members() {
        for (executor, content) in EXECUTORS.iter().zip([Content::Mixed, Content::Outliers]) {
            assert_eq!(has(executor, member), Ok(true));
            conformance::check_paged(executor, member, content).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn all_members_on_every_level() {
    // `tests/cpu.rs` says aloud which levels the machine does not have.
    levels::run();
}

#[test]
#[ignore = "started once for each level by the test above"]
fn one_level() {
    all_members();
    levels::say_ran();
}

/// Enough chunks for several pieces, so that threads share a tensor, and a codebook from a sample of pages.
#[test]
fn large_tensors_are_shared_by_threads() {
    let shape =
        KvShape { layers: 1, pages: 400, page_tokens: 16, heads: 2, head_dim: 128, dtype: Dtype::Bf16 };
    let ids: Vec<i32> = (0..200).map(|page| (page * 3 + 1) % 400).collect();
    let layout = KvLayout::sglang(&shape).unwrap();
    let source = layout.bind(PageTable::new(PageIds::I32(&ids), 16, 3199).unwrap()).unwrap();
    let target_layout = KvLayout::flash_infer(&shape, PageOrder::Hnd).unwrap();
    let target = target_layout.bind_consecutive(7, 3199).unwrap();
    for scheme in [Scheme::W4, Scheme::W2x3, Scheme::Stored] {
        let spec = source.spec(scheme, Flags::CHECKSUMS);
        exchange(&EXECUTORS[1], (&layout, &source), (&target_layout, &target), Content::Outliers, &spec);
    }
}

/// What a random layout is made of: how axes are ordered in memory, what is left free between them, where it starts.
#[derive(Clone, Debug)]
struct Shapes {
    page_tokens: u64,
    order: [usize; 3],
    free: [u64; 3],
    base: u64,
    fused: bool,
    long_ids: bool,
    seed: u64,
    first: u64,
}

fn shapes() -> impl Strategy<Value = Shapes> {
    let order = Just([0, 1, 2]).prop_shuffle();
    let free = prop::array::uniform3(prop_oneof![Just(0u64), 0..40u64]);
    ((1..20u64, order, free), (0..30u64, any::<bool>(), any::<bool>(), any::<u64>(), 0..20u64)).prop_map(
        |((page_tokens, order, free), (base, fused, long_ids, seed, first))| {
            let first = first % page_tokens;
            Shapes { page_tokens, order, free, base, fused, long_ids, seed, first }
        },
    )
}

struct Side {
    layout: KvLayout,
    short: Vec<i32>,
    long: Vec<i64>,
    page_tokens: u64,
    first: u64,
    long_ids: bool,
}

impl Side {
    /// Tensors of these forms, which have equally many heads: in one pool with shared rows, or in a pool each.
    fn new(forms: &[Form], tokens: u64, of: &Shapes) -> Side {
        let count = (of.first + tokens).div_ceil(of.page_tokens);
        let pages = (count + of.seed % 5).max(1);
        let heads = forms[0].heads;
        let all: u64 = forms.iter().map(|form| form.head_bytes().unwrap()).sum();
        let (mut tensors, mut base) = (Vec::new(), of.base);
        for (pool, form) in forms.iter().enumerate() {
            let bytes = form.head_bytes().unwrap();
            let mut strides = [0; 3];
            let mut stride = if of.fused { all } else { bytes } + of.free[0];
            for axis in of.order {
                strides[axis] = stride + of.free[axis];
                stride = strides[axis] * [pages, of.page_tokens, heads][axis];
            }
            let [page_stride, token_stride, head_stride] = strides;
            let (pool, page_tokens) = (if of.fused { 0 } else { pool }, of.page_tokens);
            let place = Place { pool, base, pages, page_tokens, page_stride, token_stride, head_stride };
            tensors.push(PoolTensor { form: form.clone(), place });
            base += if of.fused { bytes } else { 1 };
        }
        // Some pages of the pool, each once.
        let mut ids: Vec<i64> = (0..pages as i64).collect();
        let mut state = of.seed | 1;
        for i in (1..ids.len()).rev() {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            ids.swap(i, (state >> 33) as usize % (i + 1));
        }
        ids.truncate(count as usize);
        Side {
            layout: KvLayout::new(tensors).unwrap(),
            short: ids.iter().map(|&id| id as i32).collect(),
            long: ids,
            page_tokens: of.page_tokens,
            first: of.first,
            long_ids: of.long_ids,
        }
    }

    fn bind(&self, tokens: u64) -> Paged<'_> {
        let ids = if self.long_ids { PageIds::I64(&self.long) } else { PageIds::I32(&self.short) };
        let table = PageTable::new(ids, self.page_tokens, self.first + tokens).unwrap();
        self.layout.bind(table.slice(self.first..self.first + tokens).unwrap()).unwrap()
    }
}

fn forms() -> impl Strategy<Value = Vec<Form>> {
    let tensor = (prop::sample::select(Dtype::ALL.to_vec()), 1..70u64);
    (1..5u64, prop::collection::vec(tensor, 1..4)).prop_map(|(heads, tensors)| {
        let form = |(number, (dtype, dim)): (usize, (Dtype, u64))| {
            Form::new(format!("tensor {number}"), dtype, heads, dim)
        };
        tensors.into_iter().enumerate().map(form).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Gathered, encoded, decoded, scattered: the same elements in any other layout, and no other byte changed.
    #[test]
    fn any_layout_to_any_other(
        forms in forms(),
        tokens in prop_oneof![0..5u64, 0..400u64],
        from in shapes(),
        to in shapes(),
        scheme in prop::sample::select(vec![Scheme::W3, Scheme::W2x3, Scheme::W2x2x3, Scheme::Stored]),
        content in prop::sample::select(Content::ALL.to_vec()),
        executor in 0..2usize,
    ) {
        let (source, target) = (Side::new(&forms, tokens, &from), Side::new(&forms, tokens, &to));
        let (paged, to) = (source.bind(tokens), target.bind(tokens));
        prop_assert_eq!(paged.layout_id(), to.layout_id());
        let spec = paged.spec(scheme, Flags::CHECKSUMS);
        exchange(&EXECUTORS[executor], (&source.layout, &paged), (&target.layout, &to), content, &spec);
    }

    /// Any tokens of any tensors, into pages or into one piece, by both executors.
    #[test]
    fn any_part_of_a_frame(
        forms in forms(),
        tokens in 1..400u64,
        range in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        keep in any::<u8>(),
        from in shapes(),
        to in shapes(),
        packed: bool,
    ) {
        let source = Side::new(&forms, tokens, &from);
        let paged = source.bind(tokens);
        let elements = elements(&paged, Content::Mixed);
        let pools = filled(&source.layout, &paged, &elements, 0);
        let mut bytes = encode(&EXECUTORS[0], &paged.spec(Scheme::W2x3, Flags::CHECKSUMS), &paged, &pools);
        if packed {
            bytes = splitzip_host::format::pack(&Frame::parse(&bytes).unwrap()).unwrap();
        }
        let frame = Frame::parse(&bytes).unwrap();
        let (a, b) = (range.0.index(tokens as usize + 1) as u64, range.1.index(tokens as usize + 1) as u64);
        let (start, end) = (a.min(b), a.max(b));

        let target = Side::new(&forms, end - start, &to);
        let kept = |form: &Form| keep >> form.name.as_bytes()["tensor ".len()].wrapping_sub(b'0') & 1 == 1;
        let whole = target.bind(end - start);
        let part = whole.select(kept);
        prop_assert_eq!(part.layout_id(), whole.layout_id());
        let expected: Vec<Vec<u8>> = paged.tensors().iter().zip(&elements).filter(|(tensor, _)| kept(tensor.form()))
            .map(|(tensor, elements)| {
                let token = tensor.form().token_bytes().unwrap() as usize;
                elements[start as usize * token..end as usize * token].to_vec()
            }).collect();
        for executor in [&EXECUTORS[1] as &dyn Executor, &Reference] {
            let mut got = self::pools(&target.layout, 1);
            executor.decode_paged(&frame, Some(start..end), &part, &mut exclusive(&mut got)).unwrap();
            prop_assert!(got == filled(&target.layout, &part, &expected, 1), "{}", executor.name());
        }

        for (number, (form, elements)) in forms.iter().zip(&elements).enumerate() {
            let token = form.heads * form.dim;
            // From the middle of a token to the middle of another.
            let (start, end) = (start * token + u64::from(keep) % token, end * token);
            let (start, end) = (start.min(end), end);
            let byte = |element: u64| element as usize * form.dtype.bytes();
            for executor in [&EXECUTORS[0] as &dyn Executor, &Reference] {
                let mut got = vec![0; byte(end) - byte(start)];
                executor.decode_elements(&frame, number, start..end, &mut got).unwrap();
                prop_assert!(got == elements[byte(start)..byte(end)], "{}", executor.name());
                let all = frame.layout().tensors[number].elements;
                prop_assert!(executor.decode_elements(&frame, number, all..all + 1, &mut [0; 2][..form.dtype.bytes()]).is_err());
            }
        }
    }

    /// A damaged frame is an error, or its checksums were right; and bytes outside of the destination stay, whether groups are decoded in place or not.
    #[test]
    fn damaged_frames(
        at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        from in shapes(),
        scheme in prop::sample::select(vec![Scheme::W4, Scheme::W3, Scheme::W2x3]),
    ) {
        let forms = [Form::new("tensor 0", Dtype::Bf16, 2, 40), Form::new("tensor 1", Dtype::Bytes, 2, 9)];
        let side = Side::new(&forms, 100, &from);
        let paged = side.bind(100);
        let elements = elements(&paged, Content::Mixed);
        let source = filled(&side.layout, &paged, &elements, 0);
        let mut bytes = encode(&EXECUTORS[0], &paged.spec(scheme, Flags::CHECKSUMS), &paged, &source);
        for (place, value) in at {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let Ok(frame) = Frame::parse(&bytes) else { return Ok(()) };
        let piece = |(form, base): (&Form, u64)| {
            let mut tensor = PoolTensor::contiguous(form.clone(), 0, 100).unwrap();
            tensor.place.base = base;
            tensor
        };
        let pieces = KvLayout::new(forms.iter().zip([33, 20_000]).map(piece).collect()).unwrap();
        let in_pieces = pieces.bind_consecutive(0, 100).unwrap();
        for (layout, to) in [(&side.layout, &paged), (&pieces, &in_pieces)] {
            let untouched = pools(layout, 40);
            let mut got = untouched.clone();
            let result = EXECUTORS[0].decode_paged(&frame, None, to, &mut exclusive(&mut got));
            let right = filled(layout, to, &elements, 40);
            prop_assert!(result.is_err() || got == right, "other bits, and no error");
            // What is outside of the destination was not written, whatever the frame says.
            for number in 0..2 {
                let nothing = naive::gather(to, number, &shared(&untouched)).unwrap();
                naive::scatter(to, number, &nothing, &mut exclusive(&mut got)).unwrap();
            }
            prop_assert!(got == untouched, "bytes outside of the destination were written");
        }
    }
}

/// Requests of no tokens, also in pools of no pages.
#[test]
fn nothing_at_all() {
    for pages in [0, 5] {
        for (name, layout) in named(&KvShape { pages, ..SHAPE }) {
            let paged = layout.bind(PageTable::new(PageIds::I32(&[]), 4, 0).unwrap()).unwrap();
            assert!(pages != 0 || layout.pool_bytes().unwrap().iter().all(|&bytes| bytes == 0), "{name}");
            let spec = paged.spec(Scheme::W2x3, Flags::CHECKSUMS);
            exchange(&EXECUTORS[0], (&layout, &paged), (&layout, &paged), Content::Plain, &spec);
        }
    }
}

/// What is encoded can be listed twice: two requests with a common prefix.
#[test]
fn a_source_may_have_a_page_twice() {
    let layout = KvLayout::sglang(&SHAPE).unwrap();
    let table = PageTable::new(PageIds::I32(&[3, 3, 1]), 4, 12).unwrap();
    let paged = layout.bind(table).unwrap();
    let pools: Vec<Vec<u8>> =
        pools(&layout, 0).iter().map(|pool| Content::Plain.bytes(Dtype::Bf16, pool.len() / 2, 24)).collect();
    let spec = paged.spec(Scheme::W2x3, Flags::CHECKSUMS);
    let frame = encode(&EXECUTORS[0], &spec, &paged, &pools);
    assert!(frame == encode(&Reference, &spec, &paged, &pools));
    let back = EXECUTORS[0].decode_to_vecs(&Frame::parse(&frame).unwrap()).unwrap();
    assert_eq!(back[0][..576], back[0][576..1152]);
}

/// Channel bases where every head has the channels of its own last dimension.
#[test]
fn channel_bases_may_be_set_in_the_description() {
    let layout = KvLayout::flash_infer(&SHAPE, PageOrder::Hnd).unwrap();
    let paged = layout.bind_consecutive(1, 30).unwrap();
    let mut spec = paged.spec(Scheme::W2x2x3, Flags::CHECKSUMS);
    spec.tensors.iter_mut().for_each(|tensor| tensor.bases = Bases::Channel);
    exchange(&EXECUTORS[0], (&layout, &paged), (&layout, &paged), Content::ZeroChannels, &spec);
}
