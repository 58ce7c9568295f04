//! `bases` beside section 5 of `docs/format.md`: the mean of every channel in a group, less the place of the mean in the window.

use crate::{Aligned, Random};
use splitzip_kernels::dtype::Dtype;
use splitzip_kernels::kernels::bases;
use splitzip_kernels::launch::{Groups, OnMember, Source, Target};
use splitzip_kernels::tile::TAIL_BYTES;

/// Values of a window, and which of them the mean has: `w3`, `w2x3`, `w2x2x3`.
const WINDOWS: [(u32, u32); 3] = [(7, 3), (10, 5), (13, 8)];

fn naive<D: Dtype>(words: &[u8], channels: usize, values: u32, mean_value: u32) -> Vec<u8> {
    let bytes = D::BITS as usize / 8;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    let mask = (1 << D::EXPONENT_BITS) - 1;
    let exponents: Vec<u32> =
        words.chunks(bytes).map(|bytes| word(bytes) >> D::MANTISSA_BITS & mask).collect();
    let mut bases = Vec::new();
    for group in 0..exponents.len().div_ceil(16 * 1024) {
        for channel in 0..channels {
            let (mut sum, mut count) = (0u32, 0);
            for (element, exponent) in exponents.iter().enumerate().skip(group * 16 * 1024).take(16 * 1024) {
                if element % channels == channel {
                    (sum, count) = (sum + exponent, count + 1);
                }
            }
            let mean = sum.checked_div(count).unwrap_or(0);
            let low = match D::EXPONENT_BITS {
                8 => mean.saturating_sub(mean_value).min(255 - values),
                _ => mean.wrapping_sub(mean_value) & mask,
            };
            bases.push(low as u8);
        }
    }
    bases
}

fn check<D: Dtype>()
where
    (D,): bases::Member,
{
    let mut random = Random(9);
    for (channels, rows) in [(8, 1), (8, 2500), (24, 40), (64, 700), (96, 171), (1000, 17), (1024, 33)] {
        let words = random.bytes(channels * rows * D::BITS as usize / 8);
        for (values, mean_value) in WINDOWS {
            let elements = (channels * rows) as u64;
            let expected = naive::<D>(&words, channels, values, mean_value);
            let (aligned, mut tail) = (Aligned::of(&words), Aligned::zeros(TAIL_BYTES as usize));
            let mut out = Aligned::of(&vec![0xa5; expected.len() + 8]);
            bases::Arguments::<D> {
                grid: Groups { elements },
                words: Source::of(aligned.bytes()),
                channels: channels as u32,
                mean_value,
                values,
                bases: Target::of(out.bytes_mut()),
                tail: Target::of(tail.bytes_mut()),
            }
            .run_all()
            .unwrap();
            let (found, behind) = out.bytes().split_at(expected.len());
            assert_eq!(found, expected, "{}, {rows} rows of {channels}, {values} values", D::NAME);
            assert_eq!(behind, [0xa5; 8], "{}, {rows} rows of {channels}: writes behind the end", D::NAME);
        }
    }
}

struct Check;
impl<D: Dtype> OnMember<(D,), ()> for Check
where
    (D,): bases::Member,
{
    fn on_member(self) {
        check::<D>();
    }
}

#[test]
fn means_of_channels() {
    for entry in bases::ENTRIES {
        bases::on_member(entry.dtype.unwrap(), Check).unwrap();
    }
}
