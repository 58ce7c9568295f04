//! Barriers, collectives, and the order of accesses.

use crate::{OWN_WORD, fault, run, run_with, text, words};
use nvptx_builder::interpret::{BlockOrder, FaultKind, Memory, Module, Options, Space};

/// Writes a word of shared memory, orders it or not, and reads that of the neighbour.
fn neighbours(threads: u32, between: &str) -> String {
    format!(
        "{OWN_WORD}.shared .align 4 .b8 s[{}];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 2;\nadd.s32 %r3, %r1, %r2;\n\
         st.shared.u32 [%r3], %r0;\n{between}\nxor.b32 %r4, %r3, 4;\nld.shared.u32 %r9, [%r4];\n\
         st.global.u32 [%rd1], %r9;\nret;",
        4 * threads
    )
    .replace("xor.b32 %r4, %r3, 4", if threads > 32 { "xor.b32 %r4, %r3, 128" } else { "xor.b32 %r4, %r3, 4" })
}

#[test]
fn lanes_need_a_barrier_of_the_warp() {
    for barrier in ["bar.warp.sync -1;", "bar.sync 0;", "barrier.sync 0;", "bar.sync 0, 32;"] {
        let bytes = run(32, &neighbours(32, barrier), &[0; 128]).unwrap();
        assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()), 1);
    }
    // A shuffle is no barrier for memory.
    for none in ["", "shfl.sync.idx.b32 %r7, %r0, 0, 31, -1;", "vote.sync.any.pred %p1, 1, -1;"] {
        let fault = fault(32, &neighbours(32, none), 128);
        assert!(matches!(fault.kind, FaultKind::Unordered { space: Space::Shared, .. }), "{fault}");
        assert!(
            fault
                .to_string()
                .contains("of the same warp wrote, and nothing orders the two: put a `bar.warp.sync`"),
            "{fault}"
        );
    }
    assert!(run_with(32, &neighbours(32, ""), &[0; 128], &Options::default().unordered(true)).is_ok());
}

#[test]
fn warps_need_a_barrier_of_the_block() {
    for order in [BlockOrder::Ascending, BlockOrder::Descending, BlockOrder::Random(3)] {
        let options = Options::default().order(order).slice(3);
        let bytes = run_with(64, &neighbours(64, "bar.sync 0;"), &[0; 256], &options).unwrap();
        assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()), 32);
    }
    for none in ["", "bar.warp.sync -1;"] {
        let error = run_with(64, &neighbours(64, none), &[0; 256], &Options::default()).unwrap_err();
        let fault = error.fault().unwrap();
        // The first warp reads what the second one has not yet written, or is seen to have.
        let expected =
            matches!(fault.kind, FaultKind::Unordered { .. } | FaultKind::UninitialisedMemory { .. });
        assert!(expected, "{fault}");
    }
}

#[test]
fn a_write_after_a_read_needs_one_too() {
    let body = format!(
        "{}\n",
        neighbours(32, "bar.warp.sync -1;").replace("ret;", "st.shared.u32 [%r3], 77;\nret;")
    );
    let fault = fault(32, &body, 128);
    assert!(fault.to_string().contains("read, and nothing orders the two"), "{fault}");
    let ordered = body.replace("st.shared.u32 [%r3], 77", "bar.warp.sync -1;\nst.shared.u32 [%r3], 77");
    assert!(run(32, &ordered, &[0; 128]).is_ok());
}

#[test]
fn two_writes_of_one_word() {
    let body = |value: &str| {
        format!("{OWN_WORD}.shared .align 4 .b8 s[4];\nmov.u32 %r1, s;\nst.shared.u32 [%r1], {value};\nret;")
    };
    assert!(run(32, &body("5"), &[0; 128]).is_ok());
    assert!(matches!(fault(32, &body("%r0"), 128).kind, FaultKind::Unordered { access: "writes", .. }));
    let global = format!("{OWN_WORD}st.global.u32 [%rd0], %r0;\nret;");
    assert!(matches!(fault(32, &global, 128).kind, FaultKind::Unordered { space: Space::Global, .. }));
}

#[test]
fn atomics_go_with_atomics_only() {
    let body = |then: &str| {
        format!(
            "{OWN_WORD}.shared .align 4 .b8 s[4];\nmov.u32 %r1, s;\nst.shared.u32 [%r1], 0;\nbar.warp.sync -1;\n\
             red.shared.add.u32 [%r1], %r0;\n{then}\nld.shared.u32 %r9, [%r1];\nst.global.u32 [%rd1], %r9;\nret;"
        )
    };
    let bytes = run(32, &body("bar.warp.sync -1;"), &[0; 128]).unwrap();
    assert_eq!(bytes[..4], (31 * 16u32).to_le_bytes());
    assert!(matches!(fault(32, &body(""), 128).kind, FaultKind::Unordered { access: "reads", .. }));
}

/// Blocks count up one after the other, each when the one before it has released.
fn chain(acquire: &str, release: &str) -> Module {
    Module::parse(&text(
        32,
        1,
        &format!(
            "ld.param.u64 %rd0, [p0];\nmov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 ret;\nmov.u32 %r1, %ctaid.x;\n\
             $wait:\n{acquire} %r2, [%rd0];\nsetp.ne.u32 %p1, %r2, %r1;\n@%p1 bra $wait;\n\
             ld.global.u32 %r3, [%rd0+4];\nadd.s32 %r3, %r3, 3;\nst.global.u32 [%rd0+4], %r3;\nadd.s32 %r4, %r1, 1;\n\
             {release} [%rd0], %r4;\nret;"
        ),
    ))
    .unwrap()
}

#[test]
fn blocks_release_and_acquire() {
    let run = |module: &Module, options: &Options| {
        let mut memory = Memory::new();
        let address = memory.upload(&[0; 8]);
        module.launch("k", 6, &[address], &mut memory, options).map(|_| memory.read(address + 4, 4).unwrap())
    };
    let right = chain("ld.acquire.gpu.global.u32", "st.release.gpu.global.u32");
    let random = Options::default().order(BlockOrder::Random(5)).resident(6).steps(100_000);
    for options in
        [&Options::default(), &random, &Options::default().order(BlockOrder::Descending).resident(6)]
    {
        assert_eq!(run(&right, options).unwrap(), 18u32.to_le_bytes());
    }
    // With one block at a time, the last one first, it waits for ever.
    let stuck = Options::default().order(BlockOrder::Descending).resident(1).steps(10_000);
    assert!(matches!(run(&right, &stuck).unwrap_err().fault().unwrap().kind, FaultKind::Budget { .. }));
    for wrong in [
        chain("ld.relaxed.gpu.global.u32", "st.release.gpu.global.u32"),
        chain("ld.acquire.gpu.global.u32", "st.relaxed.gpu.global.u32"),
    ] {
        let error = run(&wrong, &random).unwrap_err();
        assert!(error.to_string().contains("release after the one and acquire before the other"), "{error}");
    }
    let weak = run(&chain("ld.global.u32", "st.global.u32"), &random).unwrap_err();
    assert!(matches!(weak.fault().unwrap().kind, FaultKind::Unordered { .. }), "{weak}");
}

#[test]
fn collectives_that_some_lanes_do_not_reach() {
    let divergent = |collective: &str| {
        format!(
            "{OWN_WORD}mov.u32 %r9, 0;\nsetp.lt.u32 %p0, %r0, 8;\n@%p0 bra $skip;\n{collective}\n$skip:\nbar.warp.sync -1;\nret;"
        )
    };
    for collective in [
        "bar.warp.sync -1;",
        "shfl.sync.idx.b32 %r9, %r0, 0, 31, -1;",
        "vote.sync.any.pred %p1, 1, -1;",
        "redux.sync.add.u32 %r9, %r0, -1;",
        "bar.sync 0;",
    ] {
        let fault = fault(32, &divergent(collective), 128);
        let FaultKind::Collective { mask: 0xffff_ff00, missing: 0xff, .. } = fault.kind else {
            panic!("{fault}")
        };
    }
    // Masks that name the lanes that are there are right.
    assert!(run(32, &divergent("bar.warp.sync 0xffffff00;"), &[0; 128]).is_ok());
    let own = fault(32, "mov.u32 %r1, 1;\nbar.warp.sync 0xfffffffe;\nret;", 4);
    assert_eq!((own.lane, own.kind), (Some(0), FaultKind::NotInMask { mask: 0xffff_fffe }));
    let source = fault(32, &divergent("shfl.sync.idx.b32 %r9, %r0, 3, 31, 0xffffff00;"), 128);
    assert_eq!(source.kind, FaultKind::InactiveLane { source_lane: 3 });
    // Lanes that have returned are not waited for.
    assert!(
        run(
            32,
            &format!("{OWN_WORD}setp.lt.u32 %p0, %r0, 8;\n@%p0 ret;\nbar.warp.sync -1;\nret;"),
            &[0; 128]
        )
        .is_ok()
    );
}

#[test]
fn barriers_that_some_warps_do_not_reach() {
    let body = format!("{OWN_WORD}setp.lt.u32 %p0, %r0, 32;\n@%p0 bra $skip;\nbar.sync 1;\n$skip:\nret;");
    let fault = fault(64, &body, 256);
    assert_eq!((fault.warp, fault.instruction.as_str()), (1, "bar.sync 1"));
    assert!(
        fault
            .to_string()
            .contains("waits at barrier 1 for ever: 32 of 64 threads have come; warp 0 has returned"),
        "{fault}"
    );
    assert!(run(64, &body.replace("bar.sync 1", "bar.sync 1, 32"), &[0; 256]).is_ok());
}

#[test]
fn lanes_meet_again() {
    // A loop of as many rounds as the lane's number, then a vote of all.
    let body = "mov.u32 %r9, 0;\n$loop:\nsetp.ge.u32 %p0, %r9, %r0;\n@%p0 bra $out;\nadd.s32 %r9, %r9, 1;\nbra.uni $loop;\n\
                $out:\nvote.sync.ballot.b32 %r8, %p0, -1;\nadd.s32 %r9, %r9, %r8;";
    let expected: Vec<u32> = (0..32).map(|lane: u32| lane.wrapping_sub(1)).collect();
    assert_eq!(words(body), expected);
}

#[test]
fn asynchronous_copies_are_there_after_the_wait() {
    let body = |wait: &str| {
        format!(
            "{OWN_WORD}.shared .align 16 .b8 s[512];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 2;\nadd.s32 %r3, %r1, %r2;\n\
             cp.async.ca.shared.global [%r3], [%rd1], 4;\ncp.async.commit_group;\n\
             add.s32 %r4, %r3, 128;\ncp.async.ca.shared.global [%r4], [%rd1], 4, 2;\ncp.async.commit_group;\n{wait}\n\
             ld.shared.u32 %r9, [%r3];\nadd.s32 %r9, %r9, 1;\nst.global.u32 [%rd1], %r9;\nret;"
        )
    };
    for wait in ["cp.async.wait_all;", "cp.async.wait_group 1;", "cp.async.wait_group 0;"] {
        assert_eq!(run(32, &body(wait), &[1; 128]).unwrap()[..4], [2, 1, 1, 1]);
    }
    for wait in ["", "cp.async.wait_group 2;"] {
        assert!(matches!(fault(32, &body(wait), 128).kind, FaultKind::UninitialisedMemory { .. }));
    }
}

#[test]
fn a_non_coherent_read_of_what_was_written() {
    let body = format!("{OWN_WORD}st.global.u32 [%rd1], 1;\nld.global.nc.u32 %r9, [%rd1];\nret;");
    assert!(matches!(fault(32, &body, 128).kind, FaultKind::NonCoherent { .. }));
}
