//! Requests in pages as a device runs them: the launches of the CUDA executor, interpreted. How many there are, what chains them, what page numbers in device memory
//! do.

use splitzip_host::conformance::Content;
use splitzip_host::cuda::{DecodePagedWork, DevicePool, EncodePagedWork};
use splitzip_host::paged::{
    KvLayout, KvShape, PageIds, PageOrder, PageTable, Paged, PagedError, RowMap, RowShape, VllmOrder, naive,
};
use splitzip_host::{
    Bases, CodebookChoice, Dtype, Error, Executor, Flags, Frame, FrameSpec, Reference, Scheme,
};

#[path = "support/interpreter.rs"]
mod interpreter;
use interpreter::{Device, Interpreter};

const SHAPE: KvShape =
    KvShape { layers: 3, pages: 9, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };

fn targets() -> [Interpreter; 2] {
    ["sm_80", "sm_90"].map(Interpreter::new)
}

/// Pools whose pages hold plain elements, and a few bytes more.
fn pools(layout: &KvLayout, seed: u8) -> Vec<Vec<u8>> {
    let pool = |(i, bytes): (usize, u64)| {
        let mut pool = Content::Mixed.bytes(Dtype::Bf16, bytes as usize / 2 + 2, 64);
        pool.rotate_left((i + seed as usize) * 130 % 512);
        pool
    };
    layout.pool_bytes().unwrap().into_iter().enumerate().map(pool).collect()
}

fn slices(pools: &[Vec<u8>]) -> Vec<&[u8]> {
    pools.iter().map(Vec::as_slice).collect()
}

/// Encodes on the interpreter, compares with the reference, decodes into the other layout and compares every byte of its pools.
fn exchange(
    interpreter: &Interpreter,
    (from_layout, from): (&KvLayout, &Paged<'_>),
    (to_layout, to): (&KvLayout, &Paged<'_>),
    spec: &FrameSpec,
) {
    let source = pools(from_layout, 0);
    let encode = |executor: &dyn Executor| {
        let mut out = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
        let bytes = executor.encode_paged(spec, &[], from, &slices(&source), &mut out).unwrap();
        out.truncate(bytes);
        out
    };
    let (got, expected) = (encode(interpreter), encode(&Reference));
    if !spec.flags.arrival {
        assert_eq!(got.iter().zip(&expected).position(|(a, b)| a != b), None, "another frame");
        assert_eq!(got.len(), expected.len());
    }
    let target = pools(to_layout, 7);
    let decode = |executor: &dyn Executor, frame: &[u8]| {
        let mut pools = target.clone();
        let mut exclusive: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
        executor.decode_paged(&Frame::parse(frame).unwrap(), None, to, &mut exclusive).unwrap();
        pools
    };
    assert!(decode(interpreter, &got) == decode(&Reference, &expected), "other pages");
    for number in 0..to.tensors().len() {
        let name = &to.tensors()[number].form().name;
        let same = from.tensors().iter().position(|of| of.form().name == *name).unwrap();
        let back = decode(interpreter, &got);
        assert!(
            naive::gather(to, number, &slices(&back)).unwrap()
                == naive::gather(from, same, &slices(&source)).unwrap()
        );
    }
}

/// Layouts of all kinds: pages that are groups, heads apart, rows of 24 bytes, tokens of one page each.
#[test]
fn layouts() {
    let ids: Vec<i32> = (0..8).map(|page| (page * 5 + 2) % 9).collect();
    let back: Vec<i64> = (0..8).map(|page| (page * 7 + 1) % 9).collect();
    let slots: Vec<i64> = (0..125).map(|slot| slot * 11 % 144).collect();
    for interpreter in targets() {
        let from = KvLayout::vllm(&SHAPE).unwrap();
        let table = PageTable::new(PageIds::I32(&ids), 16, 125).unwrap();
        let others = [
            (
                KvLayout::flash_infer(&SHAPE, PageOrder::Hnd).unwrap(),
                PageTable::new(PageIds::I64(&back), 16, 125).unwrap(),
            ),
            (
                KvLayout::sglang(&KvShape { pages: 144, page_tokens: 1, ..SHAPE }).unwrap(),
                PageTable::new(PageIds::I64(&slots), 1, 125).unwrap(),
            ),
            (
                KvLayout::lmcache(&KvShape { pages: 1, page_tokens: 128, ..SHAPE }).unwrap(),
                PageTable::new(PageIds::Consecutive { first: 0, count: 1 }, 128, 125).unwrap(),
            ),
        ];
        for (to, other) in others {
            let (source, target) = (from.bind(table).unwrap(), to.bind(other).unwrap());
            let spec = source.spec(Scheme::W2x3, Flags::default());
            exchange(&interpreter, (&from, &source), (&to, &target), &spec);
            let spec = target.spec(Scheme::W3, Flags::default());
            exchange(&interpreter, (&to, &target), (&from, &source), &spec);
        }
    }
}

/// Latents and ropes with tensors of their own, fp8 with scales that are stored, and padding between: three members and copies, in turns.
#[test]
fn rows_of_several_formats() {
    let map = RowMap::fp8_ds_mla();
    let shape = RowShape { layers: 2, pages: 5, page_tokens: 64 };
    let layout = KvLayout::rows(&shape, &map).unwrap();
    let ids = [3, 0, 4];
    let from = layout.bind(PageTable::new(PageIds::I32(&ids), 64, 150).unwrap()).unwrap();
    let to_layout = KvLayout::rows(&RowShape { pages: 200, page_tokens: 1, ..shape }, &map).unwrap();
    let slots: Vec<i64> = (0..150).map(|slot| slot * 13 % 200).collect();
    let to = to_layout.bind(PageTable::new(PageIds::I64(&slots), 1, 150).unwrap()).unwrap();
    for interpreter in targets() {
        for flags in [Flags::default(), Flags { arrival: true, ..Flags::default() }, Flags::CHECKSUMS] {
            exchange(&interpreter, (&layout, &from), (&to_layout, &to), &from.spec(Scheme::W2x3, flags));
        }
    }
}

/// Keys with channel bases between values without: every tensor is a launch of its own, and they chain.
#[test]
fn members_in_turns() {
    let shape = KvShape { layers: 2, pages: 20, page_tokens: 16, ..SHAPE };
    let (from_layout, to_layout) =
        (KvLayout::vllm_fused(&shape, VllmOrder::Blhnc).unwrap(), KvLayout::sglang(&shape).unwrap());
    let ids: Vec<i32> = (0..16).map(|page| (page * 3 + 1) % 20).collect();
    let table = PageTable::new(PageIds::I32(&ids), 16, 256).unwrap();
    let (from, to) = (from_layout.bind(table).unwrap(), to_layout.bind(table).unwrap());
    for interpreter in targets() {
        for flags in [Flags::default(), Flags { arrival: true, ..Flags::default() }, Flags::CHECKSUMS] {
            let mut spec = from.spec(Scheme::W2x2x3, flags);
            spec.tensors.iter_mut().step_by(2).for_each(|tensor| tensor.bases = Bases::Channel);
            exchange(&interpreter, (&from_layout, &from), (&to_layout, &to), &spec);
        }
    }
}

/// A request of 64 layers is two launches and those that begin and end the frame, and one to decode.
#[test]
fn a_request_is_few_launches() {
    let shape = KvShape { layers: 64, pages: 40, ..SHAPE };
    let layout = KvLayout::vllm(&shape).unwrap();
    let from = layout.bind_consecutive(0, 640).unwrap();
    let pools: Vec<DevicePool> =
        layout.pool_bytes().unwrap().iter().map(|&bytes| DevicePool { address: 4096, bytes }).collect();
    for flags in [Flags::default(), Flags::CHECKSUMS] {
        let spec = from.spec(Scheme::W2x3, flags);
        let encode = EncodePagedWork::new("none", &spec, &[], &from, &pools, 132).unwrap();
        assert_eq!(encode.launches(), 3);
        assert_eq!(DecodePagedWork::new("none", &spec, None, &from, &pools).unwrap().launches(), 1);
    }
    // Channel bases for keys alone (of whole groups: 640 tokens of 128 elements are 5): a launch for all keys and one for all values, when they stand so.
    let from = from.arranged(|form| form.name.ends_with(".v"));
    let mut spec = from.spec(Scheme::W2x3, Flags::default());
    spec.tensors[..64].iter_mut().for_each(|key| key.bases = Bases::Channel);
    let encode = EncodePagedWork::new("none", &spec, &[], &from, &pools, 132).unwrap();
    assert_eq!(encode.launches(), 4);
    assert_eq!(DecodePagedWork::new("none", &spec, None, &from, &pools).unwrap().launches(), 2);
}

/// The order of tensors in a frame is nobody's business but the encoder's: pages come back from one that has keys first.
#[test]
fn keys_first() {
    let from_layout = KvLayout::vllm(&SHAPE).unwrap();
    let to_layout = KvLayout::flash_infer(&SHAPE, PageOrder::Nhd).unwrap();
    let table = PageTable::new(PageIds::Consecutive { first: 1, count: 8 }, 16, 128).unwrap();
    let is_value = |form: &splitzip_host::paged::Form| form.name.ends_with(".v");
    let (from, to) = (from_layout.bind(table).unwrap().arranged(is_value), to_layout.bind(table).unwrap());
    assert_eq!(from.layout_id(), to.layout_id());
    for interpreter in targets() {
        let mut spec = from.spec(Scheme::W2x3, Flags::default());
        spec.tensors[..3].iter_mut().for_each(|tensor| tensor.bases = Bases::Channel);
        exchange(&interpreter, (&from_layout, &from), (&to_layout, &to), &spec);
    }
}

/// Page numbers on the device are looked at by kernels: one that is none of the pool is reported, and neither read nor written.
#[test]
fn page_numbers_in_device_memory() {
    let layout = KvLayout::vllm(&SHAPE).unwrap();
    let host = pools(&layout, 0);
    for interpreter in targets() {
        for (ids, good) in [
            ([4i32, 0, 8, 1], true),
            ([4, 0, 9, 1], false),
            ([4, -1, 8, 1], false),
            ([i32::MAX, 0, 8, 1], false),
        ] {
            let device = Device::new(&interpreter);
            let upload = |bytes: &[u8]| device.memory.borrow_mut().upload(bytes);
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            let at = PageIds::Device { address: upload(&bytes), count: 4, entry_bytes: 4 };
            let paged = layout.bind(PageTable::new(at, 16, 60).unwrap()).unwrap();
            let pools: Vec<DevicePool> = host
                .iter()
                .map(|pool| DevicePool { address: upload(pool), bytes: pool.len() as u64 })
                .collect();
            let spec = paged.spec(Scheme::W2x3, Flags::CHECKSUMS);
            let frame = device.encode_paged(&spec, &[], &paged, &pools).unwrap();
            assert_eq!(Frame::parse(&frame).is_ok(), good, "{ids:?}");
            if !good {
                let error = Frame::parse(&frame).unwrap_err().to_string();
                assert!(error.contains("check"), "{error}");
            }

            // A good frame, and pages that may be none.
            let fine: Vec<i32> = vec![4, 0, 8, 1];
            let named = layout.bind(PageTable::new(PageIds::I32(&fine), 16, 60).unwrap()).unwrap();
            let mut out = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
            let length = Reference.encode_paged(&spec, &[], &named, &slices(&host), &mut out).unwrap();
            let (status, _) = device.decode_paged(&spec, &out[..length], None, &paged, &pools).unwrap();
            assert_eq!(status == 0, good, "{ids:?}");
        }
    }
}

/// Whatever a frame says, a decoder stays in its pages; and it never returns other elements with a status of 0.
#[test]
fn damaged_frames() {
    let layout = KvLayout::vllm(&KvShape { layers: 1, ..SHAPE }).unwrap();
    let ids = [4, 0, 8];
    let paged = layout.bind(PageTable::new(PageIds::I32(&ids), 16, 45).unwrap()).unwrap();
    let host = pools(&layout, 0);
    for interpreter in targets().map(Interpreter::for_damage) {
        for (scheme, bases) in
            [(Scheme::W4, Bases::Chunk), (Scheme::W2x3, Bases::Chunk), (Scheme::W2x2x3, Bases::Channel)]
        {
            let mut spec = paged.spec(scheme, Flags::default());
            spec.tensors.iter_mut().for_each(|tensor| tensor.bases = bases);
            let mut good = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
            let length = Reference.encode_paged(&spec, &[], &paged, &slices(&host), &mut good).unwrap();
            good.truncate(length);
            let layout_of = spec.layout().unwrap();
            // Two bytes anywhere, and one in the directory, which says where the parts are and how long.
            let start = layout_of.static_bytes as usize;
            let ends = [good.len(), good.len(), layout_of.planes_at as usize];
            let (mut state, mut noticed) = (1u64, 0);
            for _ in 0..60 {
                let mut bad = good.clone();
                for end in ends {
                    state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                    let place = start + (state >> 33) as usize % (end - start);
                    bad[place] = (state >> 24) as u8;
                }
                let device = Device::new(&interpreter);
                let pool = |pool: &Vec<u8>| {
                    let address = device.memory.borrow_mut().upload(pool);
                    DevicePool { address, bytes: pool.len() as u64 }
                };
                let pools: Vec<DevicePool> = host.iter().map(pool).collect();
                // The interpreter faults on what lies outside of the pools; in them, pages of others stay.
                let (status, _) = device.decode_paged(&spec, &bad, None, &paged, &pools).unwrap();
                noticed += usize::from(status != 0);
                for (pool, before) in pools.iter().zip(&host) {
                    let after = device.memory.borrow_mut().read(pool.address, pool.bytes as usize).unwrap();
                    let page = 16 * 2 * 64 * 2;
                    for (number, (after, before)) in after.chunks(page).zip(before.chunks(page)).enumerate() {
                        assert!(ids.contains(&((number % 9) as i32)) || after == before, "page {number}");
                    }
                }
            }
            assert!(noticed > 5, "{scheme}: {noticed}");
        }
    }
}

#[test]
fn what_is_refused() {
    let layout = KvLayout::vllm(&SHAPE).unwrap();
    let device = PageIds::Device { address: 64, count: 4, entry_bytes: 8 };
    let paged = layout.bind(PageTable::new(device, 16, 60).unwrap()).unwrap();
    let pools: Vec<DevicePool> =
        layout.pool_bytes().unwrap().iter().map(|&bytes| DevicePool { address: 4096, bytes }).collect();
    let new = |spec: &FrameSpec, codebooks: &[CodebookChoice], pools: &[DevicePool]| {
        EncodePagedWork::new("none", spec, codebooks, &paged, pools, 132).map(|_| ()).unwrap_err()
    };
    // What needs a detour cannot take page numbers that the host does not know.
    let error = new(&paged.spec(Scheme::W4, Flags::default()), &[], &pools);
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("page numbers in host memory"), "{error}");
    let error = new(&paged.spec(Scheme::W2x3, Flags::default()), &[], &pools[1..]);
    assert!(matches!(error, Error::Paged(PagedError::PoolMissing { .. })), "{error}");
    let short = [&pools[..2], &[DevicePool { address: 4096, bytes: 100 }]].concat();
    let error = new(&paged.spec(Scheme::W2x3, Flags::default()), &[], &short);
    assert!(matches!(error, Error::Paged(PagedError::PoolBytes { .. })), "{error}");
    let twice = [1, 2, 1];
    let twice = layout.bind(PageTable::new(PageIds::I32(&twice), 16, 40).unwrap()).unwrap();
    let spec = twice.spec(Scheme::W2x3, Flags::default());
    let error = DecodePagedWork::new("none", &spec, None, &twice, &pools).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Paged(PagedError::DuplicatePage { .. })), "{error}");
}
