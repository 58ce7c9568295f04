//! bf16 numbers as elements of other dtypes, as a cache in that dtype would hold them: rounded to the nearest, ties to even, and scaled by one
//! factor a tensor where the dtype is too small for its largest number (fp8 always: its caches keep a scale, and use the whole range).

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use splitzip_host::Dtype;

/// The largest finite numbers.
const MAX_E4M3: f32 = 448.0;
const MAX_E5M2: f32 = 57344.0;
const MAX_FP16: f32 = 65504.0;

/// Elements of `from` as elements of `to`; the same bytes where both are one. Only bf16 is converted.
pub fn elements(bytes: &[u8], from: Dtype, to: Dtype) -> Vec<u8> {
    if from == to || from != Dtype::Bf16 {
        return bytes.to_vec();
    }
    let numbers = || bytes.chunks_exact(2).map(|word| bf16::from_le_bytes([word[0], word[1]]).to_f32());
    let largest = numbers().filter(|number| number.is_finite()).fold(0.0, |most: f32, of| most.max(of.abs()));
    // The factor of a tensor of tiny numbers may be no f32: then the largest that is one.
    let to_reach = |max: f32| if largest > 0.0 { (max / largest).min(f32::MAX) } else { 1.0 };
    match to {
        Dtype::Fp16 => {
            let scale = to_reach(MAX_FP16).min(1.0);
            numbers().flat_map(|number| f16::from_f32(number * scale).to_le_bytes()).collect()
        }
        Dtype::E4m3 => {
            let scale = to_reach(MAX_E4M3);
            numbers().map(|number| F8E4M3::from_f32(number * scale).to_bits()).collect()
        }
        Dtype::E5m2 => {
            let scale = to_reach(MAX_E5M2);
            numbers().map(|number| F8E5M2::from_f32(number * scale).to_bits()).collect()
        }
        Dtype::Bf16 | Dtype::Bytes => bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of an element of ours, by the definition of its dtype.
    fn number(dtype: Dtype, word: u16) -> f64 {
        let (exponent, residual) = dtype.split(word);
        let (mantissa_bits, bias) = (dtype.mantissa_bits(), (1 << (dtype.exponent_bits() - 1)) - 1);
        let mantissa = f64::from(residual & ((1 << mantissa_bits) - 1)) / f64::from(1u32 << mantissa_bits);
        let sign = if residual >> mantissa_bits & 1 == 1 { -1.0 } else { 1.0 };
        let (lead, power) = if exponent == 0 { (0.0, 1 - bias) } else { (1.0, i32::from(exponent) - bias) };
        sign * (lead + mantissa) * 2f64.powi(power)
    }

    /// All finite elements of a dtype, by the definition of each.
    fn finite(dtype: Dtype) -> Vec<(u16, f64)> {
        let top = dtype.exponents() as u16 - 1;
        let words = (0..=u16::MAX >> (16 - dtype.bits())).filter(|&word| match dtype {
            Dtype::E4m3 => word & 0x7f != 0x7f,
            _ => word >> dtype.mantissa_bits() & top != top,
        });
        words.map(|word| (word, number(dtype, word))).collect()
    }

    #[test]
    fn every_number_becomes_the_nearest_element() {
        // A sample of all bf16 numbers up to the largest of the dtype, so that nothing is scaled.
        for (dtype, max) in [(Dtype::Fp16, MAX_FP16), (Dtype::E4m3, MAX_E4M3), (Dtype::E5m2, MAX_E5M2)] {
            let elements_of = finite(dtype);
            let most = elements_of.iter().map(|of| of.1).fold(0.0, f64::max);
            assert_eq!(most, f64::from(max), "{dtype}");
            let words: Vec<u16> = (0..=u16::MAX)
                .step_by(if dtype == Dtype::Fp16 { 61 } else { 7 })
                .filter(|&word| f64::from(bf16::from_bits(word).to_f32()).abs() <= most)
                .collect();
            // e5m2 and e4m3 have their largest number in bf16; it comes last and keeps the scale at 1.
            let bytes: Vec<u8> = words
                .iter()
                .copied()
                .chain((dtype != Dtype::Fp16).then(|| bf16::from_f32(max).to_bits()))
                .flat_map(u16::to_le_bytes)
                .collect();
            let converted = elements(&bytes, Dtype::Bf16, dtype);
            assert!(words.len() > 500);
            for (index, &word) in words.iter().enumerate() {
                let wanted = f64::from(bf16::from_bits(word).to_f32());
                let element = dtype.word(&converted, index);
                let found = number(dtype, element);
                let best = elements_of.iter().map(|of| (of.1 - wanted).abs()).fold(f64::MAX, f64::min);
                assert_eq!((found - wanted).abs(), best, "{dtype}: {wanted} became {found}");
                let ties = elements_of.iter().filter(|of| (of.1 - wanted).abs() == best && of.1 != found);
                assert!(ties.count() == 0 || element & 1 == 0, "{dtype}: the tie {wanted} became odd");
            }
        }
    }

    #[test]
    fn the_largest_number_of_a_tensor_uses_the_whole_range() {
        let bytes = |numbers: &[f32]| -> Vec<u8> {
            numbers.iter().flat_map(|&number| bf16::from_f32(number).to_le_bytes()).collect()
        };
        assert_eq!(elements(&bytes(&[3.0, -1.5, 0.0]), Dtype::Bf16, Dtype::E4m3), [0x7e, 0xf6, 0]);
        assert_eq!(elements(&bytes(&[3e-30, 1e-30]), Dtype::Bf16, Dtype::E5m2)[0], 0x7b);
        assert_eq!(elements(&bytes(&[0.0, -0.0]), Dtype::Bf16, Dtype::E5m2), [0, 0x80]);
        let fp16 = |numbers: &[f32]| elements(&bytes(numbers), Dtype::Bf16, Dtype::Fp16);
        assert_eq!(fp16(&[1.0]), f16::from_f32(1.0).to_le_bytes());
        assert!(f16::from_le_bytes([fp16(&[1e9])[0], fp16(&[1e9])[1]]).to_f32() > 65000.0);
        assert_eq!(elements(&[1, 2], Dtype::Bf16, Dtype::Bf16), [1, 2]);
    }
}
