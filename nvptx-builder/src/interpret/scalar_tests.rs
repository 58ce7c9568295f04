//! Against plain definitions, and tables of the corners.

use super::*;
use proptest::prelude::*;

#[test]
fn shifts_clamp() {
    assert_eq!([shl32(1, 31), shl32(1, 32), shl32(1, u32::MAX)], [1 << 31, 0, 0]);
    assert_eq!([shr32(u32::MAX, 31), shr32(u32::MAX, 32)], [1, 0]);
    assert_eq!([sar32(0x8000_0000, 31), sar32(0x8000_0000, 99), sar32(5, 99)], [u32::MAX, u32::MAX, 0]);
    assert_eq!([shl64(1, 63), shl64(1, 64), shr64(u64::MAX, 63), shr64(u64::MAX, 64)], [1 << 63, 0, 1, 0]);
}

#[test]
fn funnel_shifts() {
    let (a, b) = (0x8765_4321, 0x0fed_cba9);
    assert_eq!([shf_l(a, b, 0), shf_l(a, b, 4), shf_l(a, b, 32)], [b, 0xfedc_ba98, a]);
    assert_eq!([shf_r(a, b, 0), shf_r(a, b, 4), shf_r(a, b, 32)], [a, 0x9876_5432, b]);
}

#[test]
fn prmt_picks_bytes_and_signs() {
    let (a, b) = (0x0302_8100, 0x0786_0504);
    assert_eq!(prmt(a, b, 0x3210), a);
    assert_eq!(prmt(a, b, 0x7654), b);
    assert_eq!(prmt(a, b, 0x7531), 0x0705_0381);
    // Byte 1 and byte 6 are negative: bit 3 of a selector takes the sign.
    assert_eq!(prmt(a, b, 0x9e80), 0xffff_0000);
    // Only four selectors count.
    assert_eq!(prmt(a, b, 0xffff_3210), a);
}

#[test]
fn modes_of_prmt() {
    let (a, b) = (0x0302_0100, 0x0706_0504);
    let mode = |mode: &str, selector: u32| prmt(a, b, prmt_selector(mode, selector).unwrap());
    assert_eq!([mode("f4e", 0), mode("f4e", 1), mode("f4e", 3)], [0x0302_0100, 0x0403_0201, 0x0605_0403]);
    assert_eq!([mode("b4e", 0), mode("b4e", 1), mode("b4e", 3)], [0x0506_0700, 0x0607_0001, 0x0001_0203]);
    assert_eq!([mode("rc8", 0), mode("rc8", 2)], [0, 0x0202_0202]);
    assert_eq!([mode("ecl", 0), mode("ecl", 1), mode("ecl", 3)], [0x0302_0100, 0x0302_0101, 0x0303_0303]);
    assert_eq!([mode("ecr", 0), mode("ecr", 1), mode("ecr", 3)], [0, 0x0101_0100, 0x0302_0100]);
    assert_eq!([mode("rc16", 0), mode("rc16", 1), mode("rc16", 6)], [0x0100_0100, 0x0302_0302, 0x0100_0100]);
    assert_eq!(prmt_selector("xyz", 0), None);
}

#[test]
fn fields() {
    assert_eq!(bfe_u32(0x1234_5678, 8, 8), 0x56);
    assert_eq!(
        [bfe_u32(u32::MAX, 0, 0), bfe_u32(u32::MAX, 0, 32), bfe_u32(u32::MAX, 0, 255)],
        [0, u32::MAX, u32::MAX]
    );
    assert_eq!(
        [bfe_u32(u32::MAX, 28, 8), bfe_u32(u32::MAX, 32, 8), bfe_u32(u32::MAX, 0x104, 4)],
        [0xf, 0, 0xf]
    );
    assert_eq!(bfe_u64(0xf0 << 56, 60, 8), 0xf);
    // The sign of the field, that of the register where the field hangs over, none without a length.
    assert_eq!(bfe_s64(0x80, 4, 4, 32), 0xffff_fff8);
    assert_eq!(bfe_s64(0x70, 4, 4, 32), 7);
    assert_eq!(bfe_s64(0x8000_0000, 28, 8, 32), 0xffff_fff8);
    assert_eq!(bfe_s64(0x8000_0000, 40, 8, 32), 0xffff_ffff);
    assert_eq!(bfe_s64(u64::MAX, 3, 0, 32), 0);
    assert_eq!(bfe_s64(1 << 63, 63, 1, 64), u64::MAX);
    assert_eq!(bfi(0xab, 0x1234_5678, 8, 8, 32), 0x1234_ab78);
    assert_eq!(bfi(0xff, 0, 28, 8, 32), 0xf000_0000);
    assert_eq!(bfi(0xff, 7, 32, 8, 32), 7);
    assert_eq!(bfi(0xff, 7, 0, 0, 32), 7);
    assert_eq!(bfi(u64::MAX, 0, 60, 100, 64), 0xf << 60);
}

#[test]
fn highest_bits() {
    assert_eq!(
        [bfind(0, 32, false, false), bfind(1, 32, false, false), bfind(0x8000_0000, 32, false, false)],
        [0xffff_ffff, 0, 31]
    );
    assert_eq!([bfind(1, 32, false, true), bfind(0, 32, false, true)], [31, 0xffff_ffff]);
    assert_eq!([bfind(0xffff_ffff, 32, true, false), bfind(0xffff_fffe, 32, true, false)], [0xffff_ffff, 0]);
    assert_eq!([bfind(1 << 63, 64, false, false), bfind(1 << 63, 64, true, false)], [63, 62]);
}

#[test]
fn floats_have_one_nan_and_two_zeros() {
    let (nan, payload) = (f32::NAN, f32::from_bits(0xffc0_0001));
    assert_eq!(float(payload), u64::from(NAN));
    assert_eq!(min_float(0.0, -0.0, false), u64::from((-0f32).to_bits()));
    assert_eq!(max_float(-0.0, 0.0, false), 0);
    assert_eq!([min_float(nan, 1.0, false), max_float(1.0, payload, false)], [u64::from(1f32.to_bits()); 2]);
    assert_eq!(
        [min_float(nan, 1.0, true), max_float(1.0, nan, true), max_float(nan, payload, false)],
        [u64::from(NAN); 3]
    );
    assert_eq!(to_float(1, true).to_bits(), 0);
    assert_eq!(to_float(0x8000_0001, true).to_bits(), 0x8000_0000);
    assert_eq!(to_float(1, false).to_bits(), 1);
}

proptest! {
    #[test]
    fn lop3_is_its_table(a: u32, b: u32, c: u32, table: u8) {
        let expected = (0..32).fold(0u32, |sum, bit| {
            let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
            sum | u32::from(table >> row & 1) << bit
        });
        prop_assert_eq!(lop3(a, b, c, table), expected);
        prop_assert_eq!(lop3(a, b, c, 0xf0 & 0xcc), a & b);
        prop_assert_eq!(lop3(a, b, c, 0xf0 ^ 0xcc ^ 0xaa), a ^ b ^ c);
    }

    #[test]
    fn dp4a_is_four_products(a: u32, b: u32, c: u32) {
        let bytes = |x: u32| x.to_le_bytes();
        let unsigned = (0..4).fold(c, |sum, i| sum.wrapping_add(u32::from(bytes(a)[i]) * u32::from(bytes(b)[i])));
        prop_assert_eq!(dp4a_u(a, b, c), unsigned);
        prop_assert_eq!(dp4a(a, b, c, false, false), unsigned);
        let signed = (0..4).fold(c as i32, |sum, i| {
            sum.wrapping_add(i32::from(bytes(a)[i] as i8) * i32::from(bytes(b)[i] as i8))
        });
        prop_assert_eq!(dp4a(a, b, c, true, true), signed as u32);
        let mixed = (0..4).fold(c as i32, |sum, i| {
            sum.wrapping_add(i32::from(bytes(a)[i] as i8) * i32::from(bytes(b)[i]))
        });
        prop_assert_eq!(dp4a(a, b, c, true, false), mixed as u32);
    }

    #[test]
    fn dp2a_is_two_products(a: [u16; 2], b: [u8; 4], c: u32) {
        let product = |i: usize| u64::from(a[i]) * u64::from(b[i]);
        let a = u32::from(a[1]) << 16 | u32::from(a[0]);
        prop_assert_eq!(dp2a_u(a, u32::from_le_bytes(b), c), (u64::from(c) + product(0) + product(1)) as u32);
    }

    #[test]
    fn a_field_that_is_put_in_comes_out(a: u64, b: u64, at in 0u32..64, length in 1u32..64) {
        let put = bfi(a, b, at, length, 64);
        let width = length.min(64 - at);
        prop_assert_eq!(bfe_u64(put, at, length), bfe_u64(a, 0, width));
        prop_assert_eq!(bfe_u64(put, 0, at), bfe_u64(b, 0, at));
        let field = (bfe_u64(put, at, width) << (64 - width)) as i64 >> (64 - width);
        prop_assert_eq!(bfe_s64(put, at, width, 64), field as u64);
        prop_assert_eq!(u64::from(bfe_u32(a as u32, at & 31, length & 31)), bfe_u64(a & 0xffff_ffff, at & 31, length & 31));
    }

    #[test]
    fn halves_do_not_touch(a: u32, b: u32) {
        let sum = halves(a, b, u16::wrapping_add);
        prop_assert_eq!(sum as u16, (a as u16).wrapping_add(b as u16));
        prop_assert_eq!((sum >> 16) as u16, ((a >> 16) as u16).wrapping_add((b >> 16) as u16));
    }
}
