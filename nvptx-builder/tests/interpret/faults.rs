//! A small text for every fault, and the sentence that it gives.

use crate::{OWN_WORD, fault, parse, run, run_with, text};
use nvptx_builder::interpret::{FaultKind, LaunchError, Memory, Module, Options, Space};

#[test]
fn a_register_that_was_not_written() {
    let body =
        format!("{OWN_WORD}setp.lt.u32 %p0, %r0, 5;\n@%p0 mov.u32 %r9, 1;\nadd.s32 %r8, %r9, 1;\nret;");
    let fault = fault(32, &body, 128);
    assert_eq!((fault.lane, fault.warp, fault.block), (Some(5), 0, 0));
    assert_eq!(fault.kind, FaultKind::UninitialisedRegister { register: "%r9".to_owned() });
    assert!(
        fault
            .to_string()
            .ends_with("`add.s32 %r8, %r9, 1;`: reads the register `%r9`, which this lane has not written")
            || fault.to_string().contains("`add.s32 %r8, %r9, 1`: reads the register `%r9`"),
        "{fault}"
    );
    let predicate = crate::fault(32, "@%p1 ret;\nret;", 4);
    assert_eq!(predicate.kind, FaultKind::UninitialisedRegister { register: "%p1".to_owned() });
    let wide = crate::fault(32, "add.s64 %rd3, %rd2, 1;\nret;", 4);
    assert_eq!(wide.kind, FaultKind::UninitialisedRegister { register: "%rd2".to_owned() });
}

#[test]
fn bounds_count_the_whole_vector() {
    let load = "ld.param.u64 %rd0, [p0];\nld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd0+16];\nret;";
    assert!(run(32, load, &[0; 32]).is_ok());
    let fault = fault(32, load, 31);
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: Space::Global, bytes: 16, .. }), "{fault}");
    assert!(fault.to_string().contains("byte 16 of an allocation of 31 bytes"), "{fault}");
    let before = crate::fault(32, "ld.param.u64 %rd0, [p0];\nst.global.u8 [%rd0+-1], 1;\nret;", 8);
    assert!(matches!(before.kind, FaultKind::OutOfBounds { bytes: 1, .. }), "{before}");
    let nowhere = crate::fault(32, "mov.u64 %rd0, 16;\nld.global.u32 %r1, [%rd0];\nret;", 8);
    assert!(nowhere.to_string().contains("no allocation near it"), "{nowhere}");
    let shared = ".shared .align 4 .b8 s[8];\nmov.u32 %r1, s;\nst.shared.u32 [%r1+8], 1;\nret;";
    let shared = crate::fault(32, shared, 8);
    assert!(matches!(shared.kind, FaultKind::OutOfBounds { space: Space::Shared, bytes: 4, .. }), "{shared}");
}

#[test]
fn alignment_is_that_of_the_whole_vector() {
    let load =
        |place: u32| format!("ld.param.u64 %rd0, [p0];\nld.global.v2.u32 {{%r1,%r2}}, [%rd0+{place}];\nret;");
    assert!(run(32, &load(8), &[0; 32]).is_ok());
    let fault = fault(32, &load(4), 32);
    assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 8, .. }), "{fault}");
    let atom = crate::fault(32, "ld.param.u64 %rd0, [p0];\nred.global.add.u64 [%rd0+4], 1;\nret;", 32);
    assert!(matches!(atom.kind, FaultKind::Misaligned { bytes: 8, .. }), "{atom}");
}

#[test]
fn read_only_and_freed_memory() {
    let module =
        Module::parse(&text(32, 1, "ld.param.u64 %rd0, [p0];\nst.global.u32 [%rd0], 1;\nret;")).unwrap();
    let mut memory = Memory::new();
    let kept = memory.upload_read_only(&[0; 4]);
    let error = module.launch("k", 1, &[kept], &mut memory, &Options::default()).unwrap_err();
    assert_eq!(error.fault().unwrap().kind, FaultKind::ReadOnly { address: kept });
    let gone = memory.upload(&[0; 4]);
    memory.free(gone);
    let error = module.launch("k", 1, &[gone], &mut memory, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("was freed"), "{error}");
}

#[test]
fn memory_that_nobody_wrote() {
    let module =
        Module::parse(&text(32, 1, "ld.param.u64 %rd0, [p0];\nld.global.u32 %r1, [%rd0];\nret;")).unwrap();
    let mut memory = Memory::new();
    let fresh = memory.allocate(4);
    memory.write(fresh, &[1, 2]).unwrap();
    let error = module.launch("k", 1, &[fresh], &mut memory, &Options::default()).unwrap_err();
    let expected = FaultKind::UninitialisedMemory { space: Space::Global, address: fresh + 2, offset: 2 };
    assert_eq!(error.fault().unwrap().kind, expected);
    memory.write(fresh, &[0; 4]).unwrap();
    module.launch("k", 1, &[fresh], &mut memory, &Options::default()).unwrap();

    let shared = ".shared .align 4 .b8 s[8];\nmov.u32 %r1, s;\nld.shared.u32 %r2, [%r1];\nret;";
    let found = fault(32, shared, 4);
    assert!(
        matches!(found.kind, FaultKind::UninitialisedMemory { space: Space::Shared, offset: 0, .. }),
        "{found}"
    );
    assert!(run_with(32, shared, &[0; 4], &Options::default().unwritten_shared(true)).is_ok());
    let atomic = shared.replace("ld.shared.u32 %r2, [%r1]", "red.shared.add.u32 [%r1], 1");
    assert!(matches!(fault(32, &atomic, 4).kind, FaultKind::UninitialisedMemory { .. }));
}

#[test]
fn divisions() {
    for opcode in ["div.u32", "rem.u32", "div.s32", "rem.s32"] {
        let body = format!("{OWN_WORD}sub.s32 %r1, %r0, 7;\n{opcode} %r2, %r0, %r1;\nret;");
        let fault = fault(32, &body, 128);
        assert_eq!((fault.lane, fault.kind), (Some(7), FaultKind::DivisionByZero), "{opcode}");
    }
    // Lanes that do not run it do not divide.
    let guarded = format!("{OWN_WORD}setp.ne.u32 %p0, %r0, 0;\n@%p0 div.u32 %r2, 7, %r0;\nret;");
    assert!(run(32, &guarded, &[0; 128]).is_ok());
}

#[test]
fn code_without_an_end() {
    assert_eq!(fault(32, "mov.u32 %r1, 1;", 4).kind, FaultKind::FellOff);
    assert_eq!(fault(32, "trap;\nret;", 4).kind, FaultKind::Trap);
    let options = Options::default().steps(1000);
    let error = run_with(32, "$a:\nbra $a;", &[0; 4], &options).unwrap_err();
    assert_eq!(error.fault().unwrap().kind, FaultKind::Budget { steps: 1000 });
    assert!(error.to_string().contains("a loop that does not end"), "{error}");
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let refused = |body: &str, what: &str| {
        let error = parse(body).unwrap_err();
        assert!(error.message.contains(what), "{error}");
        assert_eq!(error.line, 12, "{error}");
    };
    refused("tex.1d.v4.s32.f32 %r1, %r2;\nret;", "does not know the instruction `tex.1d.v4.s32.f32`");
    refused("add.rz.f32 %f0, %f1, %f2;\nret;", "does not know the instruction `add.rz.f32`");
    refused("add.sat.s32 %r0, %r1, %r2;\nret;", "`add.sat.s32`");
    refused("atom.global.add.f64 %rd1, [%rd0], %rd2;\nret;", "`atom.global.add.f64`");
    refused("ld.local.u32 %r1, [%rd0];\nret;", "`ld.local.u32`");
    refused("and.u32 %r1, %r2, %r3;\nret;", "`and.u32`");
    refused(".local .align 4 .b8 s[4];\nret;", "directive `.local`");
    refused("bra $nowhere;\nret;", "no label `$nowhere`");
    refused("mov.u32 %r1, %zz;\nret;", "there is no `%zz`");
    refused("add.s32 %r1, %r2;\nret;", "`add.s32` takes 3 operands, not 2");
    assert!(Module::parse(".version 8.0\n.func f()").unwrap_err().message.contains("`.func`"));
}

#[test]
fn arguments() {
    let module = Module::parse(&text(32, 2, "ret;")).unwrap();
    let launch = |entry: &str, arguments: &[u64], options: Options| {
        module.launch(entry, 1, arguments, &mut Memory::new(), &options).map(drop)
    };
    assert!(launch("k", &[1, 2], Options::default()).is_ok());
    let missing = launch("other", &[], Options::default()).unwrap_err();
    assert_eq!(missing.to_string(), "there is no entry `other` in this module, which has k");
    let few = launch("k", &[1], Options::default()).unwrap_err();
    assert_eq!(few.to_string(), "`k`: it takes 2 arguments, not 1 (one slot of 8 bytes each)");
    let threads = launch("k", &[1, 2], Options::default().threads(64)).unwrap_err();
    assert!(matches!(threads, LaunchError::Arguments { .. }), "{threads}");
    let narrow =
        Module::parse(".version 8.0\n.target sm_80\n.address_size 64\n.entry n(.param .u32 a) { ret; }")
            .unwrap();
    let launch = |value: u64, options: &Options| narrow.launch("n", 1, &[value], &mut Memory::new(), options);
    let large = launch(1 << 32, &Options::default().threads(1)).unwrap_err();
    assert!(large.to_string().contains("does not fit into the 4 bytes of `a`"), "{large}");
    let untold = launch(1, &Options::default()).unwrap_err();
    assert!(untold.to_string().contains("Options::threads"), "{untold}");
    assert!(launch(1, &Options::default().threads(33)).is_ok());
}
