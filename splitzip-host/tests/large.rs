//! Sizes around 2^32 bytes: offsets and counts that do not fit into 32 bits. They take 10 GB of memory, so they have their own command, `cargo xtask large`.

use splitzip_host::conformance::Content;
use splitzip_host::paged::{Form, KvLayout, KvShape, PageIds, PageTable, Place, PoolTensor, VllmOrder};
use splitzip_host::{Cpu, Dtype, Executor, Flags, Frame, FrameSpec, Scheme, TensorSpec};

const LIMIT: u64 = 1 << 32;
/// Bytes that come again: their number is odd, so they lie in a chunk in every way.
const BLOCK: usize = (1 << 20) + 7;

/// Elements of which no two megabytes are the same.
struct Elements(Vec<u8>);

impl Elements {
    fn new() -> Elements {
        Elements(Content::Plain.bytes(Dtype::E4m3, BLOCK, 64))
    }

    /// Fills `to` with those from byte `at` on.
    fn fill(&self, at: u64, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let at = at + done as u64;
            let (block, inside) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let part = (BLOCK - inside).min(to.len() - done);
            let to = &mut to[done..done + part];
            to.copy_from_slice(&self.0[inside..inside + part]);
            // The number of the block, where it starts.
            for (number, byte) in block.to_le_bytes().into_iter().enumerate() {
                if let Some(to) = number.checked_sub(inside).and_then(|place| to.get_mut(place)) {
                    *to = byte;
                }
            }
            done += part;
        }
    }

    fn check(&self, at: u64, got: &[u8]) {
        let mut expected = vec![0; got.len().min(1 << 20)];
        for (number, got) in got.chunks(1 << 20).enumerate() {
            let expected = &mut expected[..got.len()];
            let at = at + ((number as u64) << 20);
            self.fill(at, expected);
            assert!(got == expected, "bytes from {at} on");
        }
    }
}

#[test]
#[ignore = "takes 10 GB of memory; `cargo xtask large` runs it"]
fn one_tensor_of_four_gibibytes_and_a_byte_more_and_less() {
    let (cpu, elements) = (Cpu::new(), Elements::new());
    for bytes in [LIMIT - 1, LIMIT, LIMIT + 1] {
        // What lies behind it has places above 2^32 in any case.
        let tensors = vec![
            TensorSpec::new("first", Dtype::Bf16, Scheme::W2x3, &[3000]),
            TensorSpec::new("large", Dtype::E4m3, Scheme::W2x3, &[bytes, 1, 1]),
            TensorSpec::new("last", Dtype::Bf16, Scheme::W2x3, &[5000]),
        ];
        let spec = FrameSpec::new(tensors, Flags::CHECKSUMS);
        let layout = spec.layout().unwrap();
        assert!(layout.dense_bytes > 3 << 30 && layout.max_frame_bytes > LIMIT);
        let small = [3000, 5000].map(|count| Content::Outliers.bytes(Dtype::Bf16, count, 1));
        let mut large = vec![0; bytes as usize];
        elements.fill(0, &mut large);
        let coded = cpu.encode_to_vec(&spec, &[], &[&small[0], &large, &small[1]]).unwrap();
        let frame = Frame::parse(&coded).unwrap();
        assert!((coded.len() as u64) < bytes);

        // Its last elements, and those around 2^32.
        for range in
            [bytes - 5000..bytes, LIMIT - 3000..bytes, bytes - 1..bytes, 0..1, 1 << 31..(1 << 31) + 1]
        {
            let mut got = vec![0; (range.end - range.start) as usize];
            cpu.decode_elements(&frame, 1, range.clone(), &mut got).unwrap();
            elements.check(range.start, &got);
        }
        // All of it, into pages from the last to the first, in the memory that it came from.
        let (page, pages) = (1 << 16, bytes.div_ceil(1 << 16));
        large.clear();
        large.resize((pages * page) as usize, 0);
        let ids: Vec<i64> = (0..pages as i64).rev().collect();
        let form = Form::new("large", Dtype::E4m3, 1, 1);
        let (pool, base, page_tokens, page_stride) = (0, 0, page, page);
        let place = Place { pool, base, pages, page_tokens, page_stride, token_stride: 1, head_stride: 1 };
        let to = KvLayout::new(vec![PoolTensor { form, place }]).unwrap();
        let to = to.bind(PageTable::new(PageIds::I64(&ids), page, bytes).unwrap()).unwrap();
        cpu.decode_paged(&frame, None, &to, &mut [&mut large]).unwrap();
        for (entry, id) in (0..pages).zip(&ids) {
            let held = page.min(bytes - entry * page) as usize;
            let got = &large[(*id as u64 * page) as usize..][..page as usize];
            elements.check(entry * page, &got[..held]);
            assert!(got[held..].iter().all(|&byte| byte == 0));
        }
        // And its neighbours.
        for (number, expected) in [(0, &small[0]), (2, &small[1])] {
            let mut got = vec![0; expected.len()];
            cpu.decode_elements(&frame, number, 0..expected.len() as u64 / 2, &mut got).unwrap();
            assert!(got == *expected);
        }
        println!("{bytes} bytes as a frame of {}: all came back", coded.len());
    }
}

/// A request of Llama-3-8B with 32,768 tokens: 64 tensors, exactly 2^32 bytes. Its pages come again and again, which a source may do.
#[test]
#[ignore = "takes 10 GB of memory; `cargo xtask large` runs it"]
fn a_request_of_four_gibibytes() {
    let cpu = Cpu::new();
    let (tokens, pages) = (32_768u64, 16u64);
    let shape = KvShape { layers: 32, pages, page_tokens: 16, heads: 8, head_dim: 128, dtype: Dtype::Bf16 };
    let layout = KvLayout::vllm_fused(&shape, VllmOrder::Blhnc).unwrap();
    let ids: Vec<i32> = (0..(tokens / 16) as i32).map(|entry| entry * 7 % 16).collect();
    let from = layout.bind(PageTable::new(PageIds::I32(&ids), 16, tokens).unwrap()).unwrap();
    let pool = Content::Plain.bytes(Dtype::Bf16, layout.pool_bytes().unwrap()[0] as usize / 2, 128);
    let spec = from.spec(Scheme::W2x3, Flags::CHECKSUMS);
    assert_eq!(spec.layout().unwrap().raw_bytes, LIMIT);
    let mut out = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    let length = cpu.encode_paged(&spec, &[], &from, &[&pool], &mut out).unwrap();
    let frame = Frame::parse(&out[..length]).unwrap();

    // Some tokens of the last layer and of the first, into slots.
    let shape = KvShape { pages: 2 * tokens, page_tokens: 1, ..shape };
    let slots: Vec<i64> = (0..5000).map(|slot| 13 * slot).collect();
    let to = KvLayout::vllm_blocks_first(&shape).unwrap();
    let to = to.bind(PageTable::new(PageIds::I64(&slots), 1, 5000).unwrap()).unwrap();
    let range = tokens - 5000..tokens;
    let mut pools: Vec<Vec<u8>> = vec![Vec::new(); 32];
    for layer in [0, 31] {
        let prefix = format!("layers.{layer}.");
        let to = to.select(|form| form.name.starts_with(&prefix));
        pools[layer] = vec![0; 2 * tokens as usize * 4096];
        let mut slices: Vec<&mut [u8]> = pools.iter_mut().map(Vec::as_mut_slice).collect();
        cpu.decode_paged(&frame, Some(range.clone()), &to, &mut slices).unwrap();
    }
    for (layer, pool_of) in pools.iter().enumerate().filter(|(layer, _)| [0, 31].contains(layer)) {
        for (slot, token) in slots.iter().zip(range.clone()) {
            for (kv, head) in (0..2).flat_map(|kv| (0..8).map(move |head| (kv, head))) {
                // Blocks, layers, heads, tokens, keys and values; and slots, keys or values, heads.
                let page = ids[token as usize / 16] as usize;
                let row = ((page * 32 + layer) * 8 + head) * 16 + token as usize % 16;
                let expected = &pool[row * 512 + kv * 256..][..256];
                assert!(pool_of[*slot as usize * 4096 + kv * 2048 + head * 256..][..256] == *expected);
            }
        }
    }
    println!("{LIMIT} bytes of {} pages as a frame of {length}: tokens {range:?} came back", ids.len());
}
