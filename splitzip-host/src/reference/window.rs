//! The windows: which exponents have a code, and which code.
//!
//! The window lies so that the mean exponent of a chunk has the first of the shortest codes. Exponents of real data fall off
//! slowly below the mean and fast above it, hence more values below than above. Which value has which code follows from the
//! bit planes of the value (section 4 of the specification): on a GPU every plane of every code is one three-input logic
//! operation of them.

use crate::{Dtype, Scheme};

/// No value: go on at the next level.
const MARK: u8 = u8::MAX;

/// The codes of one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Bits of a code.
    pub bits: u32,
    /// The value of every code; [`MARK`] for the marker.
    values: &'static [u8],
}

impl Level {
    /// The code of a value; that of the marker if the level has none for it.
    pub fn code(self, value: u8) -> u8 {
        let of = |value| self.values.iter().position(|&v| v == value);
        of(value).or(of(MARK)).unwrap_or(0) as u8
    }

    /// The value of a code; `None` for the marker.
    pub fn value(self, code: u8) -> Option<u8> {
        self.values.get(usize::from(code)).copied().filter(|&value| value != MARK)
    }
}

/// What section 4 of the specification says of a scheme.
#[derive(Clone, Copy, Debug)]
struct Rules {
    levels: &'static [Level],
    /// Values that have a code. The next one stands for all exponents outside.
    values: u8,
    /// The value of the mean exponent.
    below: u8,
    /// The value that exponent 0 has in mode *zeros*: the first of the first level.
    zero_value: u8,
    /// Escapes from which on a chunk is tried again without its zeros.
    many_escapes: usize,
}

const W3: Rules = Rules {
    levels: &[Level { bits: 3, values: &[0, 1, 2, 3, 4, 5, 6, MARK] }],
    values: 7,
    below: 3,
    zero_value: 0,
    many_escapes: 96,
};
const W2X3: Rules = Rules {
    levels: &[
        Level { bits: 2, values: &[MARK, 5, 6, 7] },
        Level { bits: 3, values: &[0, 1, 2, 3, 8, 9, MARK, 4] },
    ],
    values: 10,
    below: 5,
    zero_value: 5,
    many_escapes: 32,
};
const W2X2X3: Rules = Rules {
    levels: &[
        Level { bits: 2, values: &[8, 9, 10, MARK] },
        Level { bits: 2, values: &[6, 7, 11, MARK] },
        Level { bits: 3, values: &[0, 1, 2, 3, 4, 5, 12, MARK] },
    ],
    values: 13,
    below: 8,
    zero_value: 8,
    many_escapes: 32,
};

/// The rules of a scheme. For schemes without a window, where nobody asks, those of `w3`.
const fn rules(scheme: Scheme) -> &'static Rules {
    match scheme {
        Scheme::Stored | Scheme::W4 | Scheme::W3 => &W3,
        Scheme::W2x3 => &W2X3,
        Scheme::W2x2x3 => &W2X2X3,
    }
}

/// The window of a scheme over the exponents of a dtype.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    dtype: Dtype,
    rules: &'static Rules,
}

impl Window {
    /// The window of `scheme` over the exponents of `dtype`. For schemes without one it is that of `w3`.
    pub const fn new(dtype: Dtype, scheme: Scheme) -> Window {
        Window { dtype, rules: rules(scheme) }
    }

    pub(crate) fn levels(self) -> &'static [Level] {
        self.rules.levels
    }

    /// Values that have a code: 7, 10 or 13. The next one stands for all exponents outside.
    pub const fn values(self) -> u8 {
        self.rules.values
    }

    /// The value of the mean exponent: 3, 5 or 8.
    pub const fn below(self) -> u8 {
        self.rules.below
    }

    /// The value that exponent 0 has in mode *zeros*: the first of the first level, 0, 5 or 8.
    pub const fn zero_value(self) -> u8 {
        self.rules.zero_value
    }

    /// The low end of the window for a mean exponent: the stored base.
    pub const fn low(self, mean: u8) -> u8 {
        let limit = self.limit();
        if self.dtype.exponent_bits() < 8 {
            mean.wrapping_sub(self.below()) & limit
        } else {
            let low = mean.saturating_sub(self.below());
            if low > limit { limit } else { low }
        }
    }

    /// The largest base: with 8 exponent bits, that with which no value leaves a byte; else the largest exponent.
    pub const fn limit(self) -> u8 {
        if self.dtype.exponent_bits() < 8 {
            self.dtype.exponents() as u8 - 1
        } else {
            u8::MAX - self.values()
        }
    }

    /// The value of an exponent; [`Window::values`] for those outside.
    pub const fn value(self, low: u8, zeros: bool, exponent: u8) -> u8 {
        if zeros && exponent == 0 {
            return self.zero_value();
        }
        let distance = exponent.wrapping_sub(low) & (self.dtype.exponents() - 1) as u8;
        if distance >= self.values() || (zeros && distance == 0) {
            self.values()
        } else if zeros && distance == self.zero_value() {
            0
        } else {
            distance
        }
    }

    /// The exponent of a value inside of the window.
    pub const fn exponent(self, low: u8, zeros: bool, value: u8) -> u8 {
        let distance = match value {
            value if zeros && value == self.zero_value() => return 0,
            0 if zeros => self.zero_value(),
            value => value,
        };
        low.wrapping_add(distance) & (self.dtype.exponents() - 1) as u8
    }

    /// Escapes from which on a chunk is tried again without its zeros: 96 for `w3`, 32 for the others.
    pub const fn many_escapes(self) -> usize {
        self.rules.many_escapes
    }
}

/// The mean of exponents, rounded down; 0 for none.
pub fn mean(exponents: impl Iterator<Item = u8>) -> u8 {
    let (sum, count) = exponents.fold((0u64, 0u64), |(sum, count), e| (sum + u64::from(e), count + 1));
    sum.checked_div(count).unwrap_or(0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every dtype with every scheme that has a window and codes narrower than the exponents.
    fn windows() -> impl Iterator<Item = (Dtype, Scheme)> {
        Dtype::floats().flat_map(|dtype| {
            let fits = move |scheme: &Scheme| scheme.has_window() && scheme.check(dtype).is_ok();
            Scheme::coded().filter(fits).map(move |scheme| (dtype, scheme))
        })
    }

    /// What the specification says a GPU may compute on the bit planes of a value is what the tables say.
    #[test]
    fn codes_are_logic_operations_on_planes() {
        for value in 0..=13u8 {
            let [v0, v1, v2, v3] = [0, 1, 2, 3].map(|bit| value >> bit & 1 != 0);
            let number = |bits: &[bool]| bits.iter().rev().fold(0, |n, &bit| n << 1 | u8::from(bit));
            if value <= 10 {
                let [first, second] = W2X3.levels else { unreachable!() };
                let codes = [v0 & v2, v1 & v2];
                assert_eq!(first.code(value), number(&codes));
                if !(codes[0] | codes[1]) {
                    assert_eq!(second.code(value), number(&[v0 | v2, v1 | v2, v3 | v2]));
                    assert_eq!(second.value(second.code(value)).is_none(), v3 & v1);
                }
            }
            let [first, second, third] = W2X2X3.levels else { unreachable!() };
            let beyond = [v2 | !v3, !(v1 & (v2 | v3))];
            let codes = [v0 | beyond[0], v1 | beyond[0]];
            assert_eq!(first.code(value), number(&codes));
            if codes[0] & codes[1] {
                let codes = [(v0 & !v3) | beyond[1], v3 | beyond[1]];
                assert_eq!(second.code(value), number(&codes));
                if codes[0] & codes[1] {
                    assert_eq!(third.code(value), number(&[v0, v1 | v3, v2]));
                    assert_eq!(third.value(third.code(value)).is_none(), v3 & v2 & v0);
                }
            }
        }
    }

    /// Every exponent is outside, or comes back from its value; with and without zeros, for every base.
    #[test]
    fn values_come_back() {
        for (dtype, scheme) in windows() {
            let window = Window::new(dtype, scheme);
            for (low, zeros) in (0..=window.limit()).flat_map(|low| [(low, false), (low, true)]) {
                let mut inside = 0;
                for exponent in 0..dtype.exponents() {
                    let value = window.value(low, zeros, exponent as u8);
                    assert!(value <= window.values());
                    if value != window.values() {
                        inside += 1;
                        assert_eq!(
                            window.exponent(low, zeros, value),
                            exponent as u8,
                            "{dtype} {scheme} {low} {zeros}"
                        );
                    }
                }
                let most = usize::from(window.values()).min(dtype.exponents());
                assert!(inside + 1 >= most, "{dtype} {scheme} {low} {zeros}: {inside}");
            }
        }
    }

    /// The mean has the first value of the first level, but where a window of bf16 would leave a byte.
    #[test]
    fn the_mean_has_a_short_code() {
        for (dtype, scheme) in windows() {
            let window = Window::new(dtype, scheme);
            for mean in 0..dtype.exponents() {
                let mean = mean as u8;
                let value = window.value(window.low(mean), false, mean);
                let clamped = dtype.exponent_bits() == 8
                    && (mean < window.below() || mean - window.below() > window.limit());
                // (A window that is wider than the exponents goes round.)
                let below = window.below() & (dtype.exponents() - 1) as u8;
                assert!(clamped || value == below, "{dtype} {scheme}: {mean} has value {value}");
            }
        }
    }
}
