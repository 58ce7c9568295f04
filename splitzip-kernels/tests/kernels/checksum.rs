//! `checksum` and `seal` beside section 7 of `docs/format.md`, word by word.

use crate::{Aligned, LENGTHS, Random};
use splitzip_kernels::dtype::Dtype;
use splitzip_kernels::kernels::{checksum, seal};
use splitzip_kernels::launch::{Chunks, OnMember, Programs, Source, Target};
use splitzip_kernels::tile::TAIL_BYTES;

/// The checksum of one chunk of elements of `B` bytes.
fn naive_chunk<const B: usize>(bytes: &[u8]) -> u32 {
    let mut filled = bytes.to_vec();
    filled.resize(1024 * B, 0);
    let mut sum = 0u32;
    for lane in 0..32u32 {
        let mut h = (lane + 1).wrapping_mul(0x9E37_79B9);
        for turn in 0..4 {
            let at = (turn * 32 + lane as usize) * 8 * B;
            for word in filled[at..at + 8 * B].chunks_exact(4) {
                let word = u32::from_le_bytes(word.try_into().unwrap());
                h = h.rotate_left(13).wrapping_mul(0x85EB_CA6B).wrapping_add(word);
            }
        }
        h ^= h >> 16;
        h = h.wrapping_mul(0x7FEB_352D);
        h ^= h >> 15;
        h = h.wrapping_mul(0x846C_A68B);
        h ^= h >> 16;
        sum = sum.wrapping_add(h);
    }
    sum
}

/// The checksum of a tensor of these chunks.
fn naive_tensor(chunks: &[u32]) -> u64 {
    let share = |(k, &chunk): (usize, &u32)| {
        let mut x = (k as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(chunk));
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    };
    chunks.iter().enumerate().map(share).fold(0, u64::wrapping_add)
}

struct AnyLength;
impl<D: Dtype> OnMember<(D,), ()> for AnyLength
where
    (D,): checksum::Member,
{
    fn on_member(self) {
        match D::BITS {
            8 => any_length::<D, 1>(),
            16 => any_length::<D, 2>(),
            bits => panic!("{bits} bits an element"),
        }
    }
}

#[test]
fn tensors_of_any_length() {
    for entry in checksum::ENTRIES {
        checksum::on_member(entry.dtype.unwrap(), AnyLength).unwrap();
    }
}

fn any_length<D: Dtype, const B: usize>()
where
    (D,): checksum::Member,
{
    let mut random = Random(6);
    for length in LENGTHS {
        let bytes = random.bytes(B * length);
        let chunks: Vec<u32> = bytes.chunks(1024 * B).map(naive_chunk::<B>).collect();
        for keep in [0, 1] {
            let words = Aligned::of(&bytes);
            let (mut sum, mut sums) = (Aligned::zeros(8), Aligned::of_u32(&vec![7; chunks.len() + 1]));
            let mut tail = Aligned::zeros(TAIL_BYTES as usize);
            checksum::Arguments::<D> {
                chunks: Chunks { elements: length as u64 },
                words: Source::of(words.bytes()),
                tensor_sum: Target::of(sum.bytes_mut()),
                chunk_sums: Target::of(sums.bytes_mut()),
                keep,
                tail: Target::of(tail.bytes_mut()),
            }
            .run_all()
            .unwrap();
            assert_eq!(sum.u64(0), naive_tensor(&chunks), "{length} elements");
            for (chunk, &expected) in chunks.iter().enumerate() {
                assert_eq!(
                    sums.u32(chunk),
                    if keep == 0 { 7 } else { expected },
                    "{length} elements, chunk {chunk}"
                );
            }
            assert_eq!(sums.u32(chunks.len()), 7, "{length} elements: writes behind the last chunk");
        }
    }
}

#[test]
fn the_check_of_a_dynamic_part_is_the_low_half() {
    let mut random = Random(7);
    for tensors in [0, 1, 2, 60, 500] {
        let bytes = random.bytes(32 * (1 + tensors));
        let chunks: Vec<u32> = bytes.chunks(2048).map(naive_chunk::<2>).collect();
        let (dynamic, mut check) = (Aligned::of(&bytes), Aligned::zeros(4));
        seal::Arguments {
            programs: Programs { programs: 1 },
            dynamic: Source::of(dynamic.bytes()),
            bytes: bytes.len() as u64,
            check: Target::of(check.bytes_mut()),
        }
        .run_all()
        .unwrap();
        assert_eq!(check.u32(0), naive_tensor(&chunks) as u32, "{tensors} tensors");
    }
}
