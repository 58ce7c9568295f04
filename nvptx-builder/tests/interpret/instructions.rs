//! What instructions compute, from text to words.

use crate::{OWN_WORD, run, text, words};
use nvptx_builder::interpret::{Memory, Module, Options};
use proptest::prelude::*;

/// `%r9` after an instruction on `%r1`, `%r2`, `%r3` and, as pairs of them, `%rd11` (1, 2) and `%rd12` (2, 3).
fn compute(instruction: &str, values: [u32; 3]) -> u32 {
    let [a, b, c] = values;
    words(&format!(
        "mov.u32 %r1, {a};\nmov.u32 %r2, {b};\nmov.u32 %r3, {c};\nmov.b64 %rd11, {{%r1,%r2}};\nmov.b64 %rd12, {{%r2,%r3}};\n{instruction}"
    ))[0]
}

/// The low and the high half of `%rd9` after an instruction.
fn compute64(instruction: &str, values: [u32; 3]) -> u64 {
    let halves = ["mov.b64 {%r9,%r8}, %rd9;", "mov.b64 {%r8,%r9}, %rd9;"]
        .map(|half| compute(&format!("{instruction}\n{half}"), values));
    u64::from(halves[0]) | u64::from(halves[1]) << 32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn integers_of_32_bits(a: u32, b: u32, c: u32) {
        let same = |instruction: &str, expected: u32| {
            prop_assert_eq!(compute(instruction, [a, b, c]), expected, "{}", instruction);
            Ok(())
        };
        let (x, y) = (a as i32, b as i32);
        same("add.s32 %r9, %r1, %r2;", a.wrapping_add(b))?;
        same("sub.u32 %r9, %r1, %r2;", a.wrapping_sub(b))?;
        same("mul.lo.s32 %r9, %r1, %r2;", a.wrapping_mul(b))?;
        same("mul.hi.u32 %r9, %r1, %r2;", ((u64::from(a) * u64::from(b)) >> 32) as u32)?;
        same("mul.hi.s32 %r9, %r1, %r2;", ((i64::from(x) * i64::from(y)) >> 32) as u32)?;
        same("mad.lo.s32 %r9, %r1, %r2, %r3;", a.wrapping_mul(b).wrapping_add(c))?;
        same("mad.hi.u32 %r9, %r1, %r2, %r3;", (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c))?;
        same("min.s32 %r9, %r1, %r2;", x.min(y) as u32)?;
        same("max.s32 %r9, %r1, %r2;", x.max(y) as u32)?;
        same("min.u32 %r9, %r1, %r2;", a.min(b))?;
        same("max.u32 %r9, %r1, %r2;", a.max(b))?;
        same("neg.s32 %r9, %r1;", a.wrapping_neg())?;
        same("abs.s32 %r9, %r1;", x.wrapping_abs() as u32)?;
        same("not.b32 %r9, %r1;", !a)?;
        same("cnot.b32 %r9, %r1;", u32::from(a == 0))?;
        same("popc.b32 %r9, %r1;", a.count_ones())?;
        same("clz.b32 %r9, %r1;", a.leading_zeros())?;
        same("brev.b32 %r9, %r1;", a.reverse_bits())?;
        same("sad.u32 %r9, %r1, %r2, %r3;", a.abs_diff(b).wrapping_add(c))?;
        same("div.s32 %r9, %r1, -7;", (x / -7) as u32)?;
        same("rem.s32 %r9, %r1, -7;", (x % -7) as u32)?;
        same("slct.b32.s32 %r9, %r1, %r2, %r3;", if c as i32 >= 0 { a } else { b })?;
        same("set.lt.u32.s32 %r9, %r1, %r2;", if x < y { u32::MAX } else { 0 })?;
        same("shr.s32 %r9, %r1, 40;", (x >> 31) as u32)?;
        same("shl.b32 %r9, %r1, 32;", 0)?;
        same("shf.l.clamp.b32 %r9, %r1, %r2, 40;", a)?;
        same("shf.r.clamp.b32 %r9, %r1, %r2, 40;", b)?;
        same("shf.l.wrap.b32 %r9, %r1, %r2, 40;", b << 8 | a >> 24)?;
        same("bfi.b32 %r9, %r1, %r2, 4, 8;", b & !0xff0 | (a & 0xff) << 4)?;
        same("bfe.s32 %r9, %r1, 4, 8;", ((x << 20) >> 24) as u32)?;
        same("max.u16x2 %r9, %r1, %r2;", u32::from((a as u16).max(b as u16)) | (a >> 16).max(b >> 16) << 16)?;
        same("lop3.b32 %r9, %r1, %r2, %r3, 0xE4;", a & c | b & !c)?;
        same("setp.lo.u32 %p0, %r1, %r2;\nselp.b32 %r9, %r1, %r2, %p0;", a.min(b))?;
        same("setp.lt.s32 %p0|%p1, %r1, %r2;\nselp.b32 %r9, %r2, %r1, %p1;", if x < y { a } else { b })?;
        same("setp.eq.u32 %p1, %r3, %r3;\nsetp.lt.and.s32 %p0, %r1, %r2, !%p1;\nselp.u32 %r9, 1, 0, %p0;", 0)?;
        same("add.cc.u32 %r8, %r1, %r2;\naddc.u32 %r9, %r3, 0;", c.wrapping_add(u32::from(a.checked_add(b).is_none())))?;
        same("sub.cc.u32 %r8, %r1, %r2;\nsubc.u32 %r9, %r3, 0;", c.wrapping_sub(u32::from(a < b)))?;
        same("cvt.s32.s8 %r9, %r1;", a as i8 as u32)?;
        same("cvt.u32.u16 %r9, %r1;", a & 0xffff)?;
        same("cvt.sat.u8.s32 %r9, %r1;", x.clamp(0, 255) as u32)?;
        same("cvt.sat.s8.s32 %r9, %r1;", x.clamp(-128, 127) as u32)?;
        same("mov.b32 {%rs0,%rs1}, %r1;\nmov.b32 %r9, {%rs1,%rs0};", a.rotate_left(16))?;
        same("mul.wide.s16 %r9, %r1, %r2;", (i32::from(a as i16) * i32::from(b as i16)) as u32)?;
        same("cvt.u16.u32 %rs0, %r1;\ncvt.u16.u32 %rs1, %r2;\nadd.s16 %rs2, %rs0, %rs1;\ncvt.u32.u16 %r9, %rs2;",
            u32::from((a as u16).wrapping_add(b as u16)))?;
    }

    #[test]
    fn integers_of_64_bits(a: u32, b: u32, c: u32) {
        let (x, y) = (u64::from(a) | u64::from(b) << 32, u64::from(b) | u64::from(c) << 32);
        let same = |instruction: &str, expected: u64| {
            prop_assert_eq!(compute64(instruction, [a, b, c]), expected, "{}", instruction);
            Ok(())
        };
        same("add.s64 %rd9, %rd11, %rd12;", x.wrapping_add(y))?;
        same("sub.s64 %rd9, %rd11, %rd12;", x.wrapping_sub(y))?;
        same("mul.lo.s64 %rd9, %rd11, %rd12;", x.wrapping_mul(y))?;
        same("mul.hi.u64 %rd9, %rd11, %rd12;", ((u128::from(x) * u128::from(y)) >> 64) as u64)?;
        same("mul.hi.s64 %rd9, %rd11, %rd12;", ((i128::from(x as i64) * i128::from(y as i64)) >> 64) as u64)?;
        same("mul.wide.s32 %rd9, %r1, %r2;", (i64::from(a as i32) * i64::from(b as i32)) as u64)?;
        same("mad.wide.u32 %rd9, %r1, %r2, %rd12;", (u64::from(a) * u64::from(b)).wrapping_add(y))?;
        same("min.s64 %rd9, %rd11, %rd12;", (x as i64).min(y as i64) as u64)?;
        same("shr.s64 %rd9, %rd11, 70;", ((x as i64) >> 63) as u64)?;
        same("shr.u64 %rd9, %rd11, 64;", 0)?;
        same("shl.b64 %rd9, %rd11, 33;", x << 33)?;
        same("bfe.u64 %rd9, %rd11, 20, 30;", x >> 20 & 0x3fff_ffff)?;
        same("cvt.s64.s32 %rd9, %r1;", i64::from(a as i32) as u64)?;
        same("cvt.u64.u32 %rd9, %r1;", a.into())?;
        same("not.b64 %rd9, %rd11;", !x)?;
        same("setp.gt.s64 %p0, %rd11, %rd12;\nselp.b64 %rd9, %rd11, %rd12, %p0;", (x as i64).max(y as i64) as u64)?;
        same("rem.u64 %rd9, %rd11, 1000;", x % 1000)?;
        same("popc.b64 %r4, %rd11;\ncvt.u64.u32 %rd9, %r4;", x.count_ones().into())?;
        same("add.cc.u64 %rd8, %rd11, %rd12;\naddc.u64 %rd9, 0, 0;", u64::from(x.checked_add(y).is_none()))?;
    }

    #[test]
    fn floats(a: u32, b: u32, c: u32) {
        let f = f32::from_bits;
        let one = |value: f32| if value.is_nan() { 0x7fff_ffff } else { value.to_bits() };
        let same = |instruction: &str, expected: u32| {
            let body = format!("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nmov.b32 %f3, %r3;\n{instruction}\nmov.b32 %r9, %f0;");
            prop_assert_eq!(compute(&body, [a, b, c]), expected, "{}", instruction);
            Ok(())
        };
        same("add.rn.f32 %f0, %f1, %f2;", one(f(a) + f(b)))?;
        same("sub.f32 %f0, %f1, %f2;", one(f(a) - f(b)))?;
        same("mul.rn.f32 %f0, %f1, %f2;", one(f(a) * f(b)))?;
        same("fma.rn.f32 %f0, %f1, %f2, %f3;", one(f(a).mul_add(f(b), f(c))))?;
        same("div.rn.f32 %f0, %f1, %f2;", one(f(a) / f(b)))?;
        same("neg.f32 %f0, %f1;", a ^ 0x8000_0000)?;
        same("abs.f32 %f0, %f1;", a & 0x7fff_ffff)?;
        same("max.f32 %f0, %f1, 0f7FC00000;", if f(a).is_nan() { 0x7fff_ffff } else { a })?;
        same("max.NaN.f32 %f0, %f1, 0f7FC00000;", 0x7fff_ffff)?;
        same("cvt.rn.f32.s32 %f0, %r1;", (a as i32 as f32).to_bits())?;
        same("cvt.rn.f32.u64 %f0, %rd11;", ((u64::from(a) | u64::from(b) << 32) as f32).to_bits())?;
        same("setp.ltu.f32 %p0, %f1, %f2;\nselp.f32 %f0, %f1, %f2, %p0;", if f(a) >= f(b) { b } else { a })?;
        same("cvt.rzi.s32.f32 %r4, %f1;\nmov.b32 %f0, %r4;", (f(a) as i32) as u32)?;
    }
}

#[test]
fn comparisons_with_a_nan() {
    let holds = |word: &str, a: u32, b: u32| {
        compute(
            &format!(
                "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\nsetp.{word}.f32 %p0, %f1, %f2;\nselp.u32 %r9, 1, 0, %p0;"
            ),
            [a, b, 0],
        ) == 1
    };
    let (one, two, nan) = (1f32.to_bits(), 2f32.to_bits(), 0x7fc0_0001);
    for word in ["eq", "ne", "lt", "le", "gt", "ge", "num"] {
        assert!(!holds(word, one, nan), "{word}");
    }
    for word in ["equ", "neu", "ltu", "leu", "gtu", "geu", "nan"] {
        assert!(holds(word, nan, one), "{word}");
    }
    assert!(
        holds("lt", one, two) && holds("ne", one, two) && holds("num", one, two) && holds("equ", one, one)
    );
    assert!(!holds("neu", one, one) && !holds("gtu", one, two) && !holds("nan", one, two));
    assert!(holds("eq", 0, 0x8000_0000));
}

#[test]
fn shuffles() {
    let lanes = |f: &dyn Fn(u32) -> u32| (0..32).map(f).collect::<Vec<_>>();
    let shuffle =
        |mode: &str, b: u32, c: u32| words(&format!("shfl.sync.{mode}.b32 %r9, %r0, {b}, {c}, -1;"));
    assert_eq!(shuffle("up", 3, 0), lanes(&|lane| if lane < 3 { lane } else { lane - 3 }));
    assert_eq!(shuffle("down", 3, 31), lanes(&|lane| if lane > 28 { lane } else { lane + 3 }));
    assert_eq!(shuffle("bfly", 5, 31), lanes(&|lane| lane ^ 5));
    assert_eq!(shuffle("idx", 9, 31), lanes(&|_| 9));
    // Segments of 8 lanes: mask 0x18 in the high byte.
    assert_eq!(shuffle("up", 3, 0x1800), lanes(&|lane| if lane % 8 < 3 { lane } else { lane - 3 }));
    assert_eq!(shuffle("down", 3, 0x181f), lanes(&|lane| if lane % 8 > 4 { lane } else { lane + 3 }));
    assert_eq!(shuffle("idx", 9, 0x181f), lanes(&|lane| lane / 8 * 8 + 1));
    let inside = words("shfl.sync.up.b32 %r8|%p0, %r0, 3, 0, -1;\nselp.u32 %r9, 1, 0, %p0;");
    assert_eq!(inside, lanes(&|lane| u32::from(lane >= 3)));
}

#[test]
fn votes_reductions_and_matches() {
    let one = |body: &str| words(body)[5];
    assert_eq!(one("setp.lt.u32 %p0, %r0, 4;\nvote.sync.ballot.b32 %r9, %p0, -1;"), 0xf);
    let vote = |mode: &str, below: u32| {
        one(&format!(
            "setp.lt.u32 %p0, %r0, {below};\nvote.sync.{mode}.pred %p1, %p0, -1;\nselp.u32 %r9, 1, 0, %p1;"
        ))
    };
    assert_eq!([vote("any", 0), vote("any", 1), vote("all", 31), vote("all", 32)], [0, 1, 0, 1]);
    assert_eq!([vote("uni", 0), vote("uni", 7), vote("uni", 32)], [1, 0, 1]);
    let redux = |operation: &str| one(&format!("sub.s32 %r1, %r0, 3;\nredux.sync.{operation} %r9, %r1, -1;"));
    assert_eq!(redux("add.u32"), 31 * 16 - 96);
    assert_eq!([redux("min.s32"), redux("max.s32")], [-3i32 as u32, 28]);
    assert_eq!([redux("min.u32"), redux("max.u32")], [0, u32::MAX]);
    assert_eq!([redux("or.b32"), redux("and.b32")], [u32::MAX, 0]);
    assert_eq!(redux("xor.b32"), (0..32u32).fold(0, |x, lane| x ^ lane.wrapping_sub(3)));
    assert_eq!(one("and.b32 %r1, %r0, 7;\nmatch.any.sync.b32 %r9, %r1, -1;"), 0x2020_2020);
    assert_eq!(one("match.all.sync.b32 %r9|%p0, 7, -1;"), u32::MAX);
    assert_eq!(one("match.all.sync.b32 %r9|%p0, %r0, -1;"), 0);
    assert_eq!(one("activemask.b32 %r9;"), u32::MAX);
}

#[test]
fn special_registers() {
    assert_eq!(
        words("mov.u32 %r1, %ntid.x;\nmov.u32 %r2, %laneid;\nmad.lo.u32 %r9, %r1, 100, %r2;")[7],
        3207
    );
    assert_eq!(words("mov.u32 %r9, %lanemask_lt;")[[0, 5, 31][1]], 0x1f);
    assert_eq!(words("mov.u32 %r9, %lanemask_ge;")[31], 1 << 31);
    assert_eq!(words("mov.u32 %r9, %lanemask_le;")[31], u32::MAX);
    assert_eq!(words("mov.u32 %r9, %nctaid.x;")[0], 1);
}

#[test]
fn atomics_return_what_was_there() {
    let body = |atom: &str| format!("{OWN_WORD}bar.warp.sync -1;\n{atom}\nret;");
    let after = |atom: &str, start: u32| {
        let bytes = run(32, &body(atom), &[start.to_le_bytes(), [0; 4]].concat()).unwrap();
        u32::from_le_bytes(bytes[..4].try_into().unwrap())
    };
    assert_eq!(after("atom.global.add.u32 %r9, [%rd0], 2;", 5), 69);
    assert_eq!(after("atom.relaxed.gpu.global.max.s32 %r9, [%rd0], %r0;", u32::MAX), 31);
    assert_eq!(after("red.release.gpu.global.min.u32 [%rd0], %r0;", 7), 0);
    assert_eq!(after("atom.acq_rel.gpu.global.exch.b32 %r9, [%rd0], %r0;", 7), 31);
    assert_eq!(after("atom.global.cas.b32 %r9, [%rd0], %r0, 40;", 0), 40);
    assert_eq!(after("atom.global.inc.u32 %r9, [%rd0], 10;", 0), 32 % 11);
    assert_eq!(after("atom.global.dec.u32 %r9, [%rd0], 10;", 0), 1);
    assert_eq!(after("red.global.xor.b32 [%rd0], %r0;", 0), 0);
    assert_eq!(after("red.global.or.b32 [%rd0], %r0;", 0), 31);
    // Generic addresses reach both memories.
    let shared = ".shared .align 4 .b8 s[4];\nmov.u64 %rd5, s;\ncvta.shared.u64 %rd6, %rd5;\nst.u32 [%rd6], 4;\nbar.warp.sync -1;\nred.add.u32 [%rd6], 1;\nbar.warp.sync -1;\ncvta.to.shared.u64 %rd7, %rd6;\nld.shared.u32 %r9, [%rd7];\nred.global.max.u32 [%rd0], %r9;";
    assert_eq!(after(shared, 0), 36);
}

#[test]
fn scopes_of_inline_assembly() {
    let body = "mov.u32 %r9, 0;\n{ .reg .pred q; .reg .u32 %r1; setp.gt.u32 q, %r0, 3; mov.u32 %r1, 7;\n@!q bra L; add.u32 %r9, %r9, %r1;\nL: add.u32 %r9, %r9, 1; }\n\
                { .reg .pred q; setp.gt.u32 q, %r0, 30; @q bra L; add.u32 %r9, %r9, 100;\nL: }";
    let found = words(body);
    assert_eq!([found[3], found[4], found[31]], [101, 108, 8]);
}

#[test]
fn variables_of_the_module() {
    let text = text(
        32,
        1,
        &format!(
            "{OWN_WORD}and.b32 %r1, %r0, 3;\ncvt.u64.u32 %rd2, %r1;\nmov.u64 %rd3, table;\nadd.s64 %rd4, %rd3, %rd2;\nld.const.u8 %r9, [%rd4];\nst.global.u32 [%rd1], %r9;\nret;"
        ),
    );
    let text = text.replace(".visible", ".const .align 4 .b8 table[4] = {10, 20, 30, 40};\n.visible");
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let out = memory.allocate(128);
    let report = module.launch("k", 1, &[out], &mut memory, &Options::default()).unwrap();
    assert_eq!(memory.read(out, 12).unwrap(), [10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0]);
    assert_eq!(report.instructions(), 11);
    assert!(report.lines().iter().all(|&(_, count)| count == 1));
}

#[test]
fn vectors_signs_and_parameters() {
    let body = "ld.param.u64 %rd0, [p0];\nld.global.v4.u8 {%r1,%r2,%r3,%r4}, [%rd0];\nld.global.s8 %r5, [%rd0+3];\nld.global.s16 %r6, [%rd0+2];\nld.param.u32 %r7, [p0+4];\n\
                add.u32 %r1, %r1, %r2;\nst.global.v2.u32 [%rd0+8], {%r1,%r5};\nst.global.v2.b32 [%rd0+16], {%r6,%r7};\nret;";
    let bytes = run(32, body, &[&[1, 2, 3, 0xff][..], &[0; 20]].concat()).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!([word(8), word(12), word(16)], [3, u32::MAX, 0xffff_ff03]);
    assert_ne!(word(20), 0);
}
