//! Layouts, tables and pairs that must be refused, each with its own error and before anything is written; and what kernels may rely on.

use proptest::prelude::*;
use splitzip_host::conformance::Content;
use splitzip_host::paged::{
    Form, KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, PagedError, Place, PoolTensor, RowField,
    RowMap, RowShape, VllmOrder,
};
use splitzip_host::{Cpu, Dtype, Error, Executor, Flags, Frame, Reference, Scheme};

const SHAPE: KvShape =
    KvShape { layers: 1, pages: 6, page_tokens: 4, heads: 2, head_dim: 16, dtype: Dtype::Bf16 };

/// Bytes of each of the two pools of `SHAPE` in SGLang's layout.
const POOL: usize = 6 * 4 * 2 * 16 * 2;

fn table(ids: &[i32], tokens: u64) -> PageTable<'_> {
    PageTable::new(PageIds::I32(ids), 4, tokens).unwrap()
}

fn sglang(ids: &[i32], tokens: u64) -> Paged<'_> {
    KvLayout::sglang(&SHAPE).unwrap().bind(table(ids, tokens)).unwrap()
}

/// A frame of 10 tokens.
fn frame() -> Vec<u8> {
    let pool = Content::Plain.bytes(Dtype::Bf16, POOL / 2, 16);
    let paged = sglang(&[0, 1, 2], 10);
    let spec = paged.spec(Scheme::W2x3, Flags::CHECKSUMS);
    let mut out = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    let bytes = Cpu::new().encode_paged(&spec, &[], &paged, &[&pool, &pool], &mut out).unwrap();
    out.truncate(bytes);
    out
}

fn executors() -> [Box<dyn Executor>; 2] {
    [Box::new(Cpu::new()), Box::new(Reference)]
}

/// What both executors say about decoding into pools of so many bytes, which stay as they were.
fn refused(frame: &[u8], to: &Paged<'_>, pools: &[usize]) -> PagedError {
    let frame = Frame::parse(frame).unwrap();
    let [cpu, reference] = executors().map(|executor| {
        let mut pools: Vec<Vec<u8>> = pools.iter().map(|&bytes| vec![0xc5; bytes]).collect();
        let mut slices: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
        let result = executor.decode_paged(&frame, None, to, &mut slices);
        assert!(pools.iter().flatten().all(|&byte| byte == 0xc5), "{} has written", executor.name());
        match result {
            Err(Error::Paged(error)) => error,
            other => panic!("{}: {other:?}", executor.name()),
        }
    });
    assert_eq!(cpu, reference);
    cpu
}

#[test]
fn pages_that_the_pool_does_not_have() {
    let frame = frame();
    for (ids, entry, page) in [([0, 6, 1], 1, 6), ([0, 1, -1], 2, -1), ([i32::MIN, 0, 1], 0, i32::MIN.into())]
    {
        let error = refused(&frame, &sglang(&ids, 10), &[POOL, POOL]);
        assert_eq!(error, PagedError::PageOutOfRange { entry, page, pages: 6 });
    }
    let ids = [0i64, 1 << 40, 1];
    let layout = KvLayout::sglang(&SHAPE).unwrap();
    let paged = layout.bind(PageTable::new(PageIds::I64(&ids), 4, 10).unwrap()).unwrap();
    let error = refused(&frame, &paged, &[POOL, POOL]);
    assert_eq!(
        error.to_string(),
        "entry 1 of the page table is page 1099511627776, but the pool has pages 0 to 5"
    );
    for first in [4, 6, u64::MAX - 1, u64::MAX] {
        let paged = layout.bind_consecutive(first, 10).unwrap();
        assert!(matches!(refused(&frame, &paged, &[POOL, POOL]), PagedError::PageOutOfRange { .. }));
    }
    // Sources are checked as well.
    let (paged, pool) = (sglang(&[0, 1, 6], 10), vec![0; POOL]);
    let spec = paged.spec(Scheme::W2x3, Flags::default());
    let mut out = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    for executor in executors() {
        let result = executor.encode_paged(&spec, &[], &paged, &[&pool, &pool], &mut out);
        assert!(matches!(result, Err(Error::Paged(PagedError::PageOutOfRange { entry: 2, .. }))));
    }
}

#[test]
fn pages_that_are_listed_twice() {
    let error = refused(&frame(), &sglang(&[5, 3, 5], 10), &[POOL, POOL]);
    assert_eq!(error, PagedError::DuplicatePage { page: 5 });
    assert_eq!(
        error.to_string(),
        "page 5 is more than once in the table of a destination; each page can hold the tokens of one entry only"
    );
}

#[test]
fn tables_that_do_not_fit_their_tokens() {
    let ids = PageIds::I32(&[0, 1, 2]);
    for tokens in [0, 8, 13] {
        assert!(matches!(PageTable::new(ids, 4, tokens), Err(PagedError::PageCount { got: 3, .. })));
    }
    assert!(matches!(PageTable::new(ids, 0, 3), Err(PagedError::Layout { .. })));
    assert_eq!(PageTable::with_last_page(ids, 4, 2).unwrap(), PageTable::new(ids, 4, 10).unwrap());
    assert_eq!(PageTable::with_last_page(PageIds::I64(&[]), 4, 0).unwrap().tokens(), 0);
    for valid in [0, 5, u64::MAX] {
        assert!(matches!(PageTable::with_last_page(ids, 4, valid), Err(PagedError::LastPage { .. })));
    }
    assert!(matches!(PageTable::with_last_page(PageIds::I64(&[]), 4, 1), Err(PagedError::LastPage { .. })));
    let many = PageIds::Consecutive { first: 0, count: u64::MAX };
    assert!(matches!(PageTable::with_last_page(many, 4, 1), Err(PagedError::Overflow { .. })));
    let device = PageIds::Device { address: 64, count: 3, entry_bytes: 2 };
    assert!(matches!(PageTable::new(device, 4, 10), Err(PagedError::Layout { .. })));

    let table = PageTable::new(ids, 4, 10).unwrap();
    let part = table.slice(3..9).unwrap();
    assert_eq!((part.first(), part.tokens(), part.ids().len()), (3, 6, 3));
    let part = part.slice(1..5).unwrap();
    assert_eq!((part.first(), part.tokens(), part.ids()), (0, 4, PageIds::I32(&[1])));
    assert_eq!(part.slice(2..2).unwrap().ids().len(), 0);
    for range in [0..11, 11..11] {
        assert!(matches!(table.slice(range), Err(PagedError::TokensOutOfRange { tokens: 10, .. })));
    }
    #[allow(clippy::reversed_empty_ranges, reason = "it is refused")]
    let reversed = table.slice(5..4);
    assert!(matches!(reversed, Err(PagedError::TokensOutOfRange { .. })));

    let layout = KvLayout::sglang(&SHAPE).unwrap();
    let other = PageTable::new(ids, 5, 11).unwrap();
    assert_eq!(layout.bind(other).unwrap_err(), PagedError::PageSize { table: 5, layout: 4 });
}

#[test]
fn tables_that_only_a_device_can_read() {
    let device = PageIds::Device { address: 4096, count: 3, entry_bytes: 4 };
    let table = PageTable::new(device, 4, 10).unwrap();
    assert_eq!(
        table.slice(5..10).unwrap().ids(),
        PageIds::Device { address: 4100, count: 2, entry_bytes: 4 }
    );
    // Bound and described like any other; only the host does not follow it.
    let paged = KvLayout::sglang(&SHAPE).unwrap().bind(table).unwrap();
    assert_eq!(paged.layout_id(), sglang(&[0, 1, 2], 10).layout_id());
    assert_eq!(refused(&frame(), &paged, &[POOL, POOL]), PagedError::DeviceIds);
}

#[test]
fn pools_that_are_missing_or_short() {
    let (frame, paged) = (frame(), sglang(&[0, 1, 2], 10));
    let error = refused(&frame, &paged, &[POOL]);
    assert_eq!(error, PagedError::PoolMissing { tensor: "layers.0.v".into(), pool: 1, given: 1 });
    let error = refused(&frame, &paged, &[POOL, POOL - 1]);
    let (needed, got) = (POOL as u64, POOL as u64 - 1);
    assert_eq!(error, PagedError::PoolBytes { tensor: "layers.0.v".into(), pool: 1, needed, got });
}

#[test]
fn frames_of_another_form() {
    let (frame, pools) = (frame(), [1 << 16, 1 << 16]);
    let ids = [0, 1, 2];
    let of = |shape: KvShape| KvLayout::sglang(&shape).unwrap().bind(table(&ids, 10)).unwrap();
    // Another dtype of the same size, heads and dimension changed about, layers that are not there.
    for shape in [
        KvShape { dtype: Dtype::Fp16, ..SHAPE },
        KvShape { heads: 4, head_dim: 8, ..SHAPE },
        KvShape { head_dim: 15, ..SHAPE },
    ] {
        assert!(matches!(refused(&frame, &of(shape), &pools), PagedError::LayoutId { .. }));
    }
    let paged = of(SHAPE);
    let salted = paged.clone().salted(b"another model");
    assert_ne!(salted.layout_id(), paged.layout_id());
    let error = refused(&frame, &salted, &pools);
    assert_eq!(error, PagedError::LayoutId { frame: paged.layout_id(), here: salted.layout_id() });

    // Without a layout id the shapes alone tell.
    let spec = |paged: &Paged<'_>| {
        let mut spec = paged.spec(Scheme::W2x3, Flags::default());
        spec.layout_id = 0;
        spec
    };
    let anonymous = |paged: &Paged<'_>| {
        let spec = spec(paged);
        let inputs: Vec<Vec<u8>> =
            spec.layout().unwrap().tensors.iter().map(|tensor| vec![1; tensor.bytes as usize]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        Cpu::new().encode_to_vec(&spec, &[], &inputs).unwrap()
    };
    let frame = anonymous(&paged);
    let error = refused(&frame, &of(KvShape { dtype: Dtype::Fp16, ..SHAPE }), &pools);
    assert_eq!(
        error.to_string(),
        "tensor \"layers.0.k\" is bf16 [10, 2, 16] in the frame and fp16 [10, 2, 16] here"
    );
    let error = refused(&frame, &of(KvShape { heads: 4, head_dim: 8, ..SHAPE }), &pools);
    assert!(matches!(error, PagedError::Pairing { .. }));
    let layers = KvLayout::vllm_fused(&KvShape { layers: 2, ..SHAPE }, VllmOrder::Blhnc).unwrap();
    let layers = layers.bind(table(&ids, 10)).unwrap();
    let error = refused(&frame, &layers, &pools);
    assert_eq!(error, PagedError::Name { tensor: "layers.1.k".into(), found: 0 });
    let mut twice = spec(&paged);
    twice.tensors[1].name = "layers.0.k".to_owned();
    let input = [vec![1; 640], vec![1; 640]];
    let twice = Cpu::new().encode_to_vec(&twice, &[], &[&input[0], &input[1]]).unwrap();
    let error = refused(&twice, &paged, &pools);
    assert_eq!(error, PagedError::Name { tensor: "layers.0.k".into(), found: 2 });

    // Place for another number of tokens, and tokens that are not there.
    let error = refused(&frame, &sglang(&ids, 9), &pools);
    assert_eq!(
        error.to_string(),
        "tensor \"layers.0.k\" is 10 tokens in the frame and place for 9 tokens here"
    );
    let parsed = Frame::parse(&frame).unwrap();
    for (range, want) in [(2..11, "range"), (12..12, "range"), (2..10, "pairing")] {
        for executor in executors() {
            let (mut first, mut second) = (vec![0; POOL], vec![0; POOL]);
            let result =
                executor.decode_paged(&parsed, Some(range.clone()), &paged, &mut [&mut first, &mut second]);
            match result {
                Err(Error::Paged(PagedError::TokensOutOfRange { .. })) if want == "range" => {}
                Err(Error::Paged(PagedError::Pairing { .. })) if want == "pairing" => {}
                other => panic!("{range:?}: {other:?}"),
            }
        }
    }

    // Sources and their description.
    let pool = vec![0; POOL];
    let mut out = vec![0; 1 << 16];
    let mut encode = |spec: &splitzip_host::FrameSpec| {
        Cpu::new().encode_paged(spec, &[], &paged, &[&pool, &pool], &mut out).unwrap_err()
    };
    let good = paged.spec(Scheme::W2x3, Flags::default());
    let mut wrong = good.clone();
    wrong.layout_id += 1;
    assert!(matches!(encode(&wrong), Error::Paged(PagedError::LayoutId { .. })));
    let mut wrong = good.clone();
    wrong.tensors.swap(0, 1);
    assert!(matches!(encode(&wrong), Error::Paged(PagedError::Name { .. })));
    let mut wrong = good.clone();
    wrong.tensors[1].shape = vec![10, 32];
    assert!(matches!(encode(&wrong), Error::Paged(PagedError::Pairing { .. })));
    let mut wrong = good.clone();
    wrong.tensors.pop();
    assert!(matches!(encode(&wrong), Error::Count { .. }));
}

#[test]
fn layouts_whose_elements_would_share_bytes() {
    let place = Place {
        pool: 0,
        base: 0,
        pages: 3,
        page_tokens: 4,
        page_stride: 256,
        token_stride: 64,
        head_stride: 32,
    };
    let tensor = |name: &str, place: Place| PoolTensor { form: Form::new(name, Dtype::Bf16, 2, 16), place };
    let good = tensor("a", place);
    assert!(KvLayout::new(vec![good.clone()]).is_ok());
    for place in [
        Place { head_stride: 31, ..place },
        Place { token_stride: 63, ..place },
        Place { page_stride: 255, ..place },
        Place { page_stride: 0, ..place },
    ] {
        let error = KvLayout::new(vec![tensor("a", place)]).unwrap_err();
        assert!(matches!(error, PagedError::Layout { .. }), "{place:?}");
    }
    for place in [
        place,
        Place { base: 480, ..place },
        Place { base: 737, ..place },
        Place { token_stride: 128, page_stride: 512, base: 64, ..place },
    ] {
        let error = KvLayout::new(vec![good.clone(), tensor("b", place)]).unwrap_err();
        assert!(matches!(error, PagedError::Overlap { .. }), "{place:?}");
    }
    for place in [Place { base: 768, ..place }, Place { pool: 1, ..place }] {
        assert!(KvLayout::new(vec![good.clone(), tensor("b", place)]).is_ok());
    }
    let error = KvLayout::new(vec![good.clone(), tensor("a", Place { base: 768, ..place })]).unwrap_err();
    assert_eq!(error, PagedError::Name { tensor: "a".into(), found: 2 });
    for shape in
        [KvShape { heads: 0, ..SHAPE }, KvShape { head_dim: 0, ..SHAPE }, KvShape { page_tokens: 0, ..SHAPE }]
    {
        assert!(matches!(KvLayout::vllm(&shape), Err(PagedError::Layout { .. })));
    }
    for shape in [
        KvShape { heads: u64::MAX, ..SHAPE },
        KvShape { pages: 1 << 60, ..SHAPE },
        KvShape { head_dim: 1 << 63, ..SHAPE },
    ] {
        assert!(matches!(KvLayout::vllm(&shape), Err(PagedError::Overflow { .. })));
    }
}

/// Numbers of a hostile description, or of a slip, do not fill the memory.
#[test]
fn layouts_that_are_too_large() {
    for layers in [4097, 1 << 40, u64::MAX] {
        let refused = [KvLayout::vllm, KvLayout::sglang, KvLayout::lmcache]
            .map(|layout| layout(&KvShape { layers, ..SHAPE }).unwrap_err());
        let rows = RowShape { layers, pages: 6, page_tokens: 4 };
        for error in refused.into_iter().chain([KvLayout::mla(&rows, Dtype::Bf16, 64, 16).unwrap_err()]) {
            assert!(error.to_string().contains("more than the 4096"), "{error}");
        }
    }
    assert_eq!(KvLayout::sglang(&KvShape { layers: 4096, ..SHAPE }).unwrap().tensors().len(), 8192);
    for pool in [1 << 16, 1 << 40, usize::MAX] {
        let tensor = PoolTensor::contiguous(Form::new("t", Dtype::Bf16, 2, 16), pool, 8).unwrap();
        let error = KvLayout::new(vec![tensor]).unwrap_err();
        assert!(error.to_string().contains("at most 65536"), "{error}");
    }
}

#[test]
fn rows_whose_fields_do_not_fit() {
    let field = |name, offset, elements| RowField::new(name, offset, elements, Dtype::Bf16);
    let row = RowMap::new(100, &[field("b", 50, 10), field("a", 8, 20)]).unwrap();
    let parts: Vec<_> =
        row.fields().iter().map(|field| (field.name.as_str(), field.offset, field.elements)).collect();
    assert_eq!(
        parts,
        [("bytes_0", 0, 8), ("a", 8, 20), ("bytes_48", 48, 2), ("b", 50, 10), ("bytes_70", 70, 30)]
    );
    for fields in [
        vec![field("a", 0, 10), field("b", 19, 4)],
        vec![field("a", 90, 6)],
        vec![field("a", 0, 0)],
        vec![field("a", 0, 4), field("a", 8, 4)],
        vec![field("a", u64::MAX, 1)],
        vec![field("a", 0, u64::MAX)],
        vec![field("bytes_8", 0, 4), field("b", 16, 4)],
    ] {
        assert!(matches!(RowMap::new(100, &fields), Err(PagedError::Layout { .. })), "{fields:?}");
    }
    assert!(matches!(RowMap::mla(Dtype::Bf16, u64::MAX, 64), Err(PagedError::Overflow { .. })));
    let shape = RowShape { layers: 1, pages: 1, page_tokens: 8 };
    assert!(KvLayout::lmcache_mla(&shape, &RowMap::fp8_ds_mla(), 655).is_err());
    let error = RowMap::new(10, &[field("latent", 0, 6)]).unwrap_err();
    assert_eq!(error.to_string(), "field \"latent\" of a row of 10 bytes: it reaches past the row");
}

#[test]
fn joined_requests_must_not_share_pages() {
    // Two groups of layers in one pool, as hybrid models have them: pages of the same size, tables of their own.
    let rename = |layout: KvLayout, prefix: &str| {
        let mut tensors = layout.tensors().to_vec();
        tensors.iter_mut().for_each(|tensor| tensor.form.name.insert_str(0, prefix));
        KvLayout::new(tensors).unwrap()
    };
    let layout = KvLayout::vllm_blocks_first(&SHAPE).unwrap();
    let (full, window) = (rename(layout.clone(), "full."), rename(layout, "window."));
    let first = full.bind(table(&[4, 1], 8)).unwrap();
    let joined = first.join(&window.bind(table(&[0, 5, 2], 9)).unwrap()).unwrap();
    assert_eq!(joined.tensors().len(), 4);
    let error = first.join(&window.bind(table(&[0, 1, 2], 9)).unwrap()).unwrap_err();
    assert!(matches!(error, PagedError::Overlap { .. }), "{error}");
    assert!(matches!(first.join(&first).unwrap_err(), PagedError::Name { .. }));
    // Pages of another size in the same pool.
    let wide = KvShape { pages: 3, page_tokens: 8, ..SHAPE };
    let wide = rename(KvLayout::vllm_blocks_first(&wide).unwrap(), "wide.");
    let of_wide = |ids: &'static [i32]| wide.bind(PageTable::new(PageIds::I32(ids), 8, 8).unwrap()).unwrap();
    let second = full.bind(table(&[4, 5], 8)).unwrap();
    assert!(second.join(&of_wide(&[1])).is_ok());
    assert!(matches!(second.join(&of_wide(&[2])), Err(PagedError::Overlap { .. })));
    // And both come back.
    let pool = Content::Plain.bytes(Dtype::Bf16, 2 * POOL / 2, 16);
    let spec = joined.spec(Scheme::W3, Flags::CHECKSUMS);
    let mut out = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    let bytes = Cpu::new().encode_paged(&spec, &[], &joined, &[&pool], &mut out).unwrap();
    let mut back = vec![0; 2 * POOL];
    let frame = Frame::parse(&out[..bytes]).unwrap();
    Cpu::new().decode_paged(&frame, None, &joined, &mut [&mut back]).unwrap();
    let page = 2 * POOL / 6;
    assert!(back[4 * page..] == pool[4 * page..] && back[..2 * page] == pool[..2 * page]);
    assert!(back[3 * page..4 * page].iter().all(|&byte| byte == 0));
}

/// The layout id is the same on every machine and in every version: frames keep it.
#[test]
fn layout_ids_are_kept() {
    let ids = [0, 1, 2];
    let paged = sglang(&ids, 10);
    assert_eq!(paged.layout_id(), 0x4cd4_3a3d_f399_da7a);
    assert_eq!(sglang(&ids[..1], 3).layout_id(), paged.layout_id());
    let hnd = KvLayout::flash_infer(&SHAPE, PageOrder::Hnd).unwrap();
    assert_eq!(hnd.bind(table(&ids, 10)).unwrap().layout_id(), paged.layout_id());
}

/// What a kernel computes from [`Runs`] is where the formula of `Place` says, and what it may rely on holds.
#[test]
fn runs_are_where_their_heads_are() {
    let mut layouts = vec![
        KvLayout::vllm(&SHAPE).unwrap(),
        KvLayout::lmcache(&SHAPE).unwrap(),
        KvLayout::sglang(&KvShape { pages: 24, page_tokens: 1, ..SHAPE }).unwrap(),
        KvLayout::rows(&RowShape { layers: 1, pages: 6, page_tokens: 4 }, &RowMap::fp8_ds_mla()).unwrap(),
        KvLayout::vllm(&KvShape { heads: 3, head_dim: 20, ..SHAPE }).unwrap(),
    ];
    for order in [PageOrder::Nhd, PageOrder::Hnd] {
        layouts.push(KvLayout::flash_infer(&SHAPE, order).unwrap());
    }
    layouts.extend(VllmOrder::ALL.map(|order| KvLayout::vllm_fused(&SHAPE, order).unwrap()));
    for layout in layouts {
        let page_tokens = layout.tensors()[0].place.page_tokens;
        let ids: Vec<i32> =
            (0..23u64.div_ceil(page_tokens)).map(|entry| (entry * 5 % 24) as i32 % 6).collect();
        let ids: Vec<i32> = if page_tokens == 1 { (0..23).rev().collect() } else { ids };
        let table = PageTable::new(PageIds::I32(&ids), page_tokens, 23).unwrap().slice(2..22).unwrap();
        for tensor in layout.bind(table).unwrap().tensors() {
            let (form, place, runs) = (tensor.form(), tensor.place(), tensor.runs());
            let (head, token) = (form.head_bytes().unwrap(), form.token_bytes().unwrap());
            let page = |entry| table.ids().get(entry).unwrap() as u64;
            let mut last = None;
            for byte in 0..runs.bytes {
                let at = table.first() + byte / token;
                let expected = place.base
                    + page(at / place.page_tokens) * place.page_stride
                    + at % place.page_tokens * place.token_stride
                    + byte % token / head * place.head_stride
                    + byte % head;
                let got = runs.place(byte, page);
                assert_eq!(got, expected, "{} byte {byte} of {runs:?}", form.name);
                // Loads as wide as the alignment neither cross a run nor start askew.
                let alignment = runs.alignment();
                if byte % alignment == 0 {
                    assert_eq!(got % alignment, 0);
                } else {
                    assert_eq!(got, last.unwrap() + 1);
                }
                last = Some(got);
            }
        }
    }
}

#[test]
fn runs_are_as_long_as_strides_allow() {
    let tokens = |layout: KvLayout| {
        let paged = layout.bind_consecutive(0, 24).unwrap();
        let runs = *paged.tensors()[0].runs();
        (runs.run_bytes, runs.runs_in_row, runs.rows_in_page)
    };
    // A page, a head of a token, a token of two heads.
    assert_eq!(tokens(KvLayout::vllm(&SHAPE).unwrap()), (256, 1, 1));
    assert_eq!(tokens(KvLayout::flash_infer(&SHAPE, PageOrder::Hnd).unwrap()), (32, 2, 4));
    assert_eq!(tokens(KvLayout::vllm_fused(&SHAPE, VllmOrder::Lbnhc).unwrap()), (32, 2, 4));
    assert_eq!(
        tokens(KvLayout::sglang(&KvShape { pages: 24, page_tokens: 1, ..SHAPE }).unwrap()),
        (64, 1, 1)
    );
    let mla = RowShape { layers: 1, pages: 6, page_tokens: 4 };
    assert_eq!(tokens(KvLayout::mla(&mla, Dtype::Bf16, 512, 64).unwrap()), (1024, 1, 4));

    let paged = KvLayout::vllm(&SHAPE).unwrap().bind_consecutive(0, 24).unwrap();
    let runs = paged.tensors()[1].runs();
    let shifts = runs.shifts().unwrap();
    assert_eq!((shifts.run_bytes, shifts.runs_in_row, shifts.rows_in_page), (8, 0, 0));
    assert_eq!(runs.alignment(), 256);
    assert!(runs.whole_in_run(128) && runs.whole_in_run(256) && !runs.whole_in_run(512));
    assert!(!runs.whole_in_run(0));
    let part = KvLayout::vllm(&SHAPE).unwrap().bind(table(&[0, 1], 8).slice(1..8).unwrap()).unwrap();
    let runs = part.tensors()[0].runs();
    assert_eq!((runs.first_byte, runs.alignment()), (64, 64));
    assert!(runs.whole_in_run(64) && !runs.whole_in_run(128));
    let odd = KvLayout::vllm(&KvShape { heads: 3, ..SHAPE }).unwrap().bind_consecutive(0, 24).unwrap();
    assert_eq!(odd.tensors()[0].runs().shifts(), None);
    // One piece has one run, whatever its length.
    let piece = PoolTensor::contiguous(Form::new("t", Dtype::E4m3, 3, 5), 0, 1 << 40).unwrap();
    let piece = KvLayout::new(vec![piece]).unwrap().bind_consecutive(0, 1 << 40).unwrap();
    assert!(piece.tensors()[0].runs().whole_in_run(1024));
    let empty = PoolTensor::contiguous(Form::new("t", Dtype::E4m3, 3, 5), 0, 0).unwrap();
    let empty = KvLayout::new(vec![empty]).unwrap();
    assert_eq!(
        (empty.pool_bytes().unwrap(), empty.bind_consecutive(0, 0).unwrap().tensors()[0].tokens()),
        (vec![0], 0)
    );
}

fn number() -> impl Strategy<Value = u64> {
    let huge = vec![u64::MAX, u64::MAX - 1, 1 << 63, 1 << 62, 1 << 32, (1 << 32) - 1];
    prop_oneof![6 => 0..40u64, 1 => prop::sample::select(huge)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any numbers at all: an error or an exchange, never a panic and never a byte outside.
    #[test]
    fn hostile_numbers(
        sizes in prop::array::uniform6(number()),
        strides in prop::array::uniform4(number()),
        ids in prop::collection::vec(prop_oneof![8 => 0..6i64, 1 => any::<i64>()], 0..6),
        tokens in number(),
        slice in (number(), number()),
    ) {
        let [heads, dim, pages, page_tokens, table_tokens, pool] = sizes;
        let [base, page_stride, token_stride, head_stride] = strides;
        let place = Place { pool: pool as usize % 3, base, pages, page_tokens, page_stride, token_stride, head_stride };
        let form = Form::new("t", Dtype::E5m2, heads, dim);
        let table_tokens = if pool % 2 == 0 { page_tokens } else { table_tokens };
        let table = PageTable::new(PageIds::I64(&ids), table_tokens, tokens)
            .or_else(|_| PageTable::with_last_page(PageIds::I64(&ids), table_tokens, tokens % 7))
            .or_else(|_| PageTable::new(PageIds::Consecutive { first: base, count: tokens.div_ceil(table_tokens.max(1)) }, table_tokens, tokens));
        let layout = KvLayout::new(vec![PoolTensor { form, place }]);
        let (Ok(table), Ok(layout)) = (table, layout) else { return Ok(()) };
        let table = table.slice(slice.0..slice.1).unwrap_or(table);
        let Ok(paged) = layout.bind(table) else { return Ok(()) };
        let spec = paged.spec(Scheme::W2x3, Flags::default());
        let Ok(frame_layout) = spec.layout() else { return Ok(()) };
        let pools = [vec![1u8; 4096], vec![2; 4096], vec![3; 4096]];
        let mut out = vec![0; frame_layout.max_frame_bytes.min(1 << 16) as usize];
        for executor in executors() {
            let slices: Vec<&[u8]> = pools.iter().map(Vec::as_slice).collect();
            let Ok(bytes) = executor.encode_paged(&spec, &[], &paged, &slices, &mut out) else { continue };
            let mut back = pools.clone();
            let mut slices: Vec<&mut [u8]> = back.iter_mut().map(Vec::as_mut_slice).collect();
            let _ = executor.decode_paged(&Frame::parse(&out[..bytes]).unwrap(), None, &paged, &mut slices);
            prop_assert!(back == pools, "{}", executor.name());
        }
    }
}
