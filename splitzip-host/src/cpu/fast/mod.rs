//! Fast paths of the CPU executor: whole chunks with AVX2 or AVX-512, chosen when the program runs.
//!
//! The shared kernel body, compiled for the CPU, loops over 32 lanes of words. LLVM makes vectors of most of that, but what a GPU does across lanes
//! it does lane by lane there: the codes of marked elements are moved together bit by bit, escapes are looked for in every lane. So `w2x3`
//! was encoded with 2.9 GB/s and decoded with 4.6 (one thread, AVX-512, 32 MiB; `docs/performance.md`); here it is 9.0 and 9.1, and 13.0 and 15.5 in the cache.
//! Here the same bytes are computed in the ways of a CPU:
//!
//! | module | what |
//! | --- | --- |
//! | `vector` | the operations on vectors that everything is written in, `avx2` and `avx512` what they are |
//! | `dtype` | elements to exponents and residuals |
//! | `planes` | bytes in element order to bit planes in coding order |
//! | `ladder` | planes of values to planes of codes |
//! | `strings` | codes of marked elements, moved together (`pext`) and apart (`pdep`) |
//! | `escapes` | which elements escape, and their exponents |
//! | `window`, `codebook` | the exponents of a chunk to a code plane and a part, and back; `coder` makes one list of both |
//! | `chunks` | the loop over the chunks of a piece |
//! | `bases` | the channel bases of a group |
//!
//! What is rare goes to the shared body, chunk by chunk: short chunks, raw ones of `w4` with 5 exponent bits, and everything that looks damaged, so that
//! it alone says what is. Frames are the same bytes on every level; `tests/cpu.rs` runs the conformance list and `tests/levels.rs` its own on
//! all of them.
//! A dtype or a scheme without a line in the two lists below is coded by the shared body alone.

mod avx2;
mod avx512;
mod bases;
mod chunks;
mod codebook;
mod coder;
mod dtype;
mod escapes;
mod ladder;
mod planes;
mod strings;
#[cfg(test)]
mod tests;
mod vector;
mod window;

use crate::steps::{Placing, Step, Steps};
use crate::{Bases, Dtype, Scheme, reference};
use avx2::Avx2;
use avx512::Avx512;
use chunks::{Decoding, Encoding, Shared};
use coder::{Codebook, Coder, Window};
use ladder::{W2x2x3, W2x3, W3};
use splitzip_kernels::arch;
use std::ops::Range;
use std::sync::OnceLock;

type Encode = unsafe fn(&Encoding, Range<u64>, Shared<'_>);
type Decode = unsafe fn(&Decoding, Range<u64>, Shared<'_>);

/// Both ways of a member.
#[derive(Clone, Copy)]
struct Member {
    encode: Encode,
    decode: Decode,
}

/// The functions of a level: what `arch::level` has tested is turned on.
macro_rules! level {
    ($name:ident, $vector:ty, $features:literal) => {
        mod $name {
            use super::*;

            #[target_feature(enable = $features)]
            unsafe fn encode<D: dtype::Dtype, C: Coder>(
                to: &Encoding,
                chunks: Range<u64>,
                shared: Shared<'_>,
            ) {
                // SAFETY: by contract of the caller; the features are those of the vector.
                unsafe { chunks::encode::<$vector, D, C>(to, chunks, shared) }
            }

            #[target_feature(enable = $features)]
            unsafe fn decode<D: dtype::Dtype, C: Coder>(
                from: &Decoding,
                chunks: Range<u64>,
                shared: Shared<'_>,
            ) {
                // SAFETY: as above.
                unsafe { chunks::decode::<$vector, D, C>(from, chunks, shared) }
            }

            fn of<D: dtype::Dtype, C: Coder>() -> Option<Member> {
                Some(Member { encode: encode::<D, C>, decode: decode::<D, C> })
            }

            fn of_dtype<C: Coder>(dtype: Dtype) -> Option<Member> {
                match dtype {
                    Dtype::Bf16 => of::<dtype::Bf16, C>(),
                    Dtype::Fp16 => of::<dtype::Fp16, C>(),
                    Dtype::E4m3 => of::<dtype::E4m3, C>(),
                    Dtype::E5m2 => of::<dtype::E5m2, C>(),
                    _ => None,
                }
            }

            /// The member with this name, if there is a fast path for it.
            pub(super) fn member(dtype: Dtype, scheme: Scheme, bases: Bases) -> Option<Member> {
                match (scheme, bases) {
                    (Scheme::W4, Bases::Chunk) => of_dtype::<Codebook>(dtype),
                    (Scheme::W3, Bases::Chunk) => of_dtype::<Window<W3, false>>(dtype),
                    (Scheme::W3, Bases::Channel) => of_dtype::<Window<W3, true>>(dtype),
                    (Scheme::W2x3, Bases::Chunk) => of_dtype::<Window<W2x3, false>>(dtype),
                    (Scheme::W2x3, Bases::Channel) => of_dtype::<Window<W2x3, true>>(dtype),
                    (Scheme::W2x2x3, Bases::Chunk) => of_dtype::<Window<W2x2x3, false>>(dtype),
                    (Scheme::W2x2x3, Bases::Channel) => of_dtype::<Window<W2x2x3, true>>(dtype),
                    _ => None,
                }
            }
        }
    };
}
level!(level_1, Avx2, "avx2,bmi1,bmi2,fma,lzcnt,movbe,popcnt,f16c");
level!(
    level_2,
    Avx512,
    "avx2,bmi1,bmi2,fma,lzcnt,movbe,popcnt,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,\
     avx512vbmi2,avx512bitalg,avx512vpopcntdq,gfni"
);

/// The fast path of a tensor on this machine.
fn member(steps: &Steps<'_>) -> Option<Member> {
    let tensor = steps.tensor();
    let levels = !tensor.scheme.more_levels().is_empty();
    match arch::level() {
        _ if levels && has_slow_bit_moves() => None,
        2 => level_2::member(tensor.dtype, tensor.scheme, tensor.bases),
        1 => level_1::member(tensor.dtype, tensor.scheme, tensor.bases),
        _ => None,
    }
}

/// Does the machine take tens to hundreds of cycles for a `pext`? AMD's families 17h and 18h (Zen 1, Zen 2) have it as microcode.
fn has_slow_bit_moves() -> bool {
    static SLOW: OnceLock<bool> = OnceLock::new();
    *SLOW.get_or_init(|| {
        let vendor = std::arch::x86_64::__cpuid(0);
        let of_amd = [*b"Auth", *b"Hygo"].contains(&vendor.ebx.to_le_bytes());
        let signature = std::arch::x86_64::__cpuid(1).eax;
        let family =
            (signature >> 8 & 0xf) + if signature >> 8 & 0xf == 0xf { signature >> 20 & 0xff } else { 0 };
        of_amd && family < 0x19
    })
}

/// Does [`encode`] compute the channel bases?
pub(super) fn computes_bases(steps: &Steps<'_>) -> bool {
    member(steps).is_some()
}

/// Encodes chunks of a tensor, as `step` does, which is `steps.encode(to)`. `parts_end` is where the memory behind `to.parts` ends. Channel bases are
/// computed as well; so the chunks start with a group.
///
/// # Safety
/// As `step.run`; and nobody else writes the memory of the parts.
pub(super) unsafe fn encode(
    steps: &Steps<'_>,
    to: Placing,
    parts_end: u64,
    step: &dyn Step,
    programs: Range<u64>,
) {
    // SAFETY: one program of those that the caller vouches for.
    let shared = |program| unsafe { step.run(program..program + 1) };
    let Some(member) = member(steps) else {
        // SAFETY: by contract.
        return unsafe { step.run(programs) };
    };
    let (tensor, planes) = (steps.tensor(), steps.planes());
    let window = reference::Window::new(tensor.dtype, tensor.scheme);
    let encoding = Encoding {
        whole: tensor.elements / crate::format::CHUNK as u64,
        words: steps.elements as *const u8,
        planes: planes.map(|(at, _)| at as *mut u8),
        directory: (steps.frame + tensor.directory_at) as *mut u8,
        table: steps.table as *const u8,
        bases: bases::Bases {
            words: steps.elements as *const u8,
            elements: tensor.elements,
            channels: tensor.channels as usize,
            bases: (steps.frame + tensor.bases_at) as *mut u8,
            window: [window.below(), window.values()],
        },
        parts: to.parts as *mut u8,
        parts_end: parts_end as *mut u8,
        order: to.order as *mut u8,
        start: to.start as *const u8,
        end: to.end as *mut u8,
    };
    // SAFETY: the level was tested; the tensor is as the caller vouches.
    unsafe { (member.encode)(&encoding, programs, &shared) }
}

/// Decodes chunks of a tensor, as `step` does, which is `steps.decode(part_words, ..)`.
///
/// # Safety
/// As `step.run`.
pub(super) unsafe fn decode(steps: &Steps<'_>, part_words: u64, step: &dyn Step, chunks: Range<u64>) {
    // SAFETY: one program of those that the caller vouches for.
    let shared = |chunk| unsafe { step.run(chunk..chunk + 1) };
    let Some(member) = member(steps) else {
        // SAFETY: by contract.
        return unsafe { step.run(chunks) };
    };
    let (tensor, planes) = (steps.tensor(), steps.planes());
    let known = match tensor.bases {
        Bases::Channel => steps.frame + tensor.bases_at,
        Bases::Chunk => steps.start_address() + 16,
    };
    let decoding = Decoding {
        whole: tensor.elements / crate::format::CHUNK as u64,
        words: steps.elements as *mut u8,
        planes: planes.map(|(at, _)| at as *const u8),
        directory: (steps.frame + tensor.directory_at) as *const u8,
        known: known as *const u8,
        channels: tensor.channels as usize,
        parts: (steps.frame + steps.layout.dense_bytes) as *const u8,
        part_words,
    };
    // SAFETY: as above.
    unsafe { (member.decode)(&decoding, chunks, &shared) }
}
