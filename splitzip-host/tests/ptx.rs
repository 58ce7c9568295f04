//! The PTX that ships, run by the interpreter: both targets on the conformance list, blocks in unkind orders, damaged frames, and every entry
//! at least once.
//!
//! This is no GPU: it says what the text means, not what `ptxas` makes of it, and nothing about speed. But it sees what a GPU lets pass (a missing
//! barrier between lanes, a read behind a buffer, garbage in the workspace), and it runs everywhere.

#[path = "support/cases.rs"]
mod cases;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/in_pages.rs"]
mod in_pages;
#[path = "support/interpreter.rs"]
mod interpreter;
#[path = "support/members.rs"]
mod members;

use in_pages::InPages;
use interpreter::{Interpreter, Lines};
use nvptx_builder::interpret::{BlockOrder, Module};
use rayon::prelude::*;
use splitzip_host::conformance::{self, Case, Content, Damaged, Member, Victim};
use splitzip_host::cuda::PTX;

use splitzip_host::{Dtype, Executor, Flags, Frame, Reference};
use splitzip_kernels::kernels::entries;
use std::collections::BTreeSet;

const TARGETS: [&str; 2] = ["sm_80", "sm_90"];

fn pairs() -> Vec<(&'static str, Member)> {
    TARGETS
        .into_iter()
        .flat_map(|target| members::members().into_iter().map(move |member| (target, member)))
        .collect()
}

#[test]
fn it_has_exactly_these_members() {
    TARGETS.iter().for_each(|target| members::check(&Interpreter::new(target)));
}

/// The whole list on both targets, histograms of all dtypes; then every entry has been run, and nearly every instruction.
#[test]
fn it_conforms_and_every_entry_is_run() {
    let conform = |(target, member): (&'static str, Member)| -> (&'static str, Lines) {
        let interpreter = Interpreter::new(target);
        let report = conformance::run(&interpreter, &[member]).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.cases >= 80, "{report:?}");
        let mut more = [cases::small(member), cases::exponents(member)].concat();
        more.extend([cases::crowded(member, 60), cases::large(member)]);
        for case in &more {
            conformance::check(&interpreter, case).unwrap_or_else(|error| panic!("{error}"));
        }
        // Members without kernels over batches only copy.
        if cases::has_batches(member) {
            for case in conformance::cases(member).iter().chain(&more).filter_map(InPages::new) {
                case.check(&interpreter).unwrap_or_else(|error| panic!("{member}: {error}"));
            }
        }
        for &content in cases::contents_in_pages(member) {
            conformance::check_paged(&interpreter, member, content).unwrap_or_else(|error| panic!("{error}"));
        }
        check_histogram(&interpreter, member.dtype);
        (target, interpreter.lines())
    };
    let found: Vec<(&str, Lines)> = pairs().into_par_iter().map(conform).collect();
    let (mut missing, mut run, mut all) = (Vec::new(), 0, 0);
    for ptx in PTX {
        let lines = found.iter().filter(|(target, _)| *target == ptx.target);
        let lines: BTreeSet<u32> = lines
            .filter_map(|(_, lines)| lines.get(ptx.entry))
            .flat_map(|lines| lines.keys().copied())
            .collect();
        if lines.is_empty() {
            missing.push(format!("{} for {}", ptx.entry, ptx.target));
        }
        run += lines.len();
        all += instruction_lines(ptx.text).len();
    }
    assert!(missing.is_empty(), "these entries ship, and no test has run them: {}", missing.join(", "));
    assert_eq!(PTX.len() % 2, 0);
    let share = run as f64 / all as f64;
    println!("{} entries, {run} of {all} lines of instructions run ({:.2} %)", PTX.len(), 100.0 * share);
    // What remains: the remainders of loops that LLVM unrolls without knowing that they turn four times, groups beyond 32 GiB; and in `encode_batch`
    // short chunks and bases from memory with channel bases (such requests take the detour), and the copy of `Records::prepare` where a block has no group left;
    // in decoders what the first program of a block adds up when it has no chunk, which no block has.
    assert!(share > 0.92, "only {run} of {all} lines were run: the list has a gap");
}

fn check_histogram(interpreter: &Interpreter, dtype: Dtype) {
    for elements in [1, 330, 850, 1024, 5000, 20_000] {
        let bytes = Content::Outliers.bytes(dtype, elements, 64);
        let (got, expected) =
            (interpreter.histogram(dtype, &bytes).unwrap(), Reference.histogram(dtype, &bytes).unwrap());
        assert_eq!(got.counts(), expected.counts(), "{}: {dtype}", interpreter.name());
    }
}

/// Lines with an instruction on them.
fn instruction_lines(text: &str) -> BTreeSet<u32> {
    let starts =
        |line: &str| line.trim_start().starts_with(|c: char| c.is_ascii_lowercase() || c == '@' || c == '{');
    let body = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with('{')).skip(1);
    body.filter(|(_, line)| starts(line)).map(|(number, _)| number as u32 + 1).collect()
}

/// Blocks and warps in orders that no device has, few of them alive at once: the same frames.
#[test]
fn any_order_of_blocks() {
    let orders = [(BlockOrder::Descending, 5), (BlockOrder::Random(1), 2), (BlockOrder::Random(3), 64)];
    pairs().into_par_iter().for_each(|(target, member)| {
        let mixed = |shape: &[u64]| Case::new(member, Content::Mixed, shape, Flags::CHECKSUMS);
        // 9, 17 and 38 chunks, the last one of most short: several blocks and several groups.
        let cases = [mixed(&[2, 71, 64]), mixed(&[17, 1024]), mixed(&[300, 128])];
        for (order, resident) in orders {
            let interpreter =
                Interpreter::new(target).with_order(order, resident).with_blocks(1 + resident as u64 % 4);
            for case in &cases {
                conformance::check(&interpreter, case)
                    .unwrap_or_else(|error| panic!("{order:?}, {resident} blocks at once: {error}"));
            }
        }
    });
}

/// A workspace is prepared once. Each call leaves it ready for the next one, whatever the data and the order of the groups.
#[test]
fn a_workspace_serves_again() {
    pairs().into_par_iter().for_each(|(target, member)| {
        for arrival in [false, true] {
            let flags = Flags { arrival, ..Flags::default() };
            let cases = [Content::Mixed, Content::Equal, Content::Plain]
                .map(|content| Case::new(member, content, &[53, 1024], flags));
            let slices: Vec<_> = cases.iter().map(Case::slices).collect();
            let inputs: Vec<&[&[u8]]> = slices.iter().map(Vec::as_slice).collect();
            let interpreter = Interpreter::new(target);
            let frames = interpreter.encode_again(&cases[0].spec, &[], &inputs);
            let frames = frames.unwrap_or_else(|error| panic!("{target} {member}: {error}"));
            for (frame, case) in frames.iter().zip(&cases) {
                let expected = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
                assert!(
                    arrival || *frame == expected,
                    "{target} {}: another frame than the reference's",
                    case.name
                );
                let back = Reference.decode_to_vecs(&Frame::parse(frame).unwrap()).unwrap();
                assert!(back == case.inputs, "{target} {}: does not come back", case.name);
            }
        }
    });
}

/// Nobody waits for ever on junk, and nobody takes what comes out for a frame.
#[test]
fn a_workspace_that_nobody_prepared() {
    for (target, member) in pairs() {
        let case = Case::new(member, Content::Mixed, &[40, 1024], Flags::default());
        let out = Interpreter::new(target).encode_unprepared(&case.spec, &case.slices());
        let out = out.unwrap_or_else(|error| panic!("{target} {member}: {error}"));
        assert!(Frame::parse(&out).is_err(), "{target} {member}: a frame from junk");
    }
}

/// Whatever a frame says, a kernel stays in its buffers (one byte further is a fault here), and what the reference decodes it decodes to the
/// same bits.
#[test]
fn damaged_frames() {
    let refused = pairs().into_par_iter().map(|(target, member)| {
        let interpreter = Interpreter::new(target).for_damage();
        let mut refused = 0;
        let frames = [Content::Mixed, Content::Outliers].map(|content| cases::damaged(member, content, 24));
        for (case, bad) in frames.iter().flat_map(|(case, frames)| frames.iter().map(move |bad| (case, bad)))
        {
            let what = format!("{}: {member}", interpreter.name());
            let decoded = interpreter.decode_bytes(&case.spec, bad, false);
            let decoded = decoded.unwrap_or_else(|error| panic!("{what}: {error}"));
            let expected = Frame::parse(bad).and_then(|frame| Reference.decode_to_vecs(&frame));
            // The reference refuses more: padding and filling bits that a kernel does not look at.
            refused += u32::from(decoded.status != 0);
            if let Ok(expected) = expected {
                assert_eq!(decoded.status, 0, "{what}: refuses a chunk that the reference decodes");
                assert!(decoded.outputs == expected, "{what}: other bits than the reference");
            }
        }
        refused
    });
    let refused: u32 = refused.sum();
    println!("{refused} damaged frames refused");
    assert!(refused > 500, "{refused}");
}

/// A sample of the damage list on frames that nobody has parsed, as they come over a network into device memory.
#[test]
fn damaged_golden_frames() {
    // A packed frame is unpacked on the host, and parsed for that.
    let victims: Vec<Victim> =
        golden::victims_of_both_kinds().into_iter().filter(|victim| !victim.spec.flags.packed).collect();
    let pairs: Vec<_> =
        TARGETS.iter().flat_map(|target| victims.iter().map(move |victim| (target, victim))).collect();
    let check = |&(target, victim): &(&&'static str, &Victim)| {
        let interpreter = Interpreter::new(target).for_damage();
        let mut total = Damaged::default();
        let list: Vec<_> = victim.flips(4000, 2).collect();
        // Another sample for each frame and target.
        for damage in list.iter().skip(victim.bytes.len() % 97 + target.len()).step_by(173) {
            let decoded = interpreter.decode_bytes(&victim.spec, &damage.of(&victim.bytes), true);
            let decoded =
                decoded.unwrap_or_else(|error| panic!("{target} {}: {damage:?}: {error}", victim.name));
            let judged = victim.judge_unparsed(*damage, decoded.status, &decoded.outputs, &decoded.sums);
            total = total.and(judged.unwrap_or_else(|error| panic!("{target} {error}")));
        }
        total
    };
    let total = pairs.par_iter().map(check).reduce(Damaged::default, Damaged::and);
    println!("{total:?}");
    assert!(total.tried > 4000 && total.refused > 500 && total.confined > 200, "{total:?}");
}

/// From 63 tensors on the dynamic part fills a chunk where it lies, at a multiple of 8 and not always of 16.
#[test]
fn many_tensors() {
    for member in members::members().into_iter().step_by(5) {
        for tensors in 80..84 {
            let interpreter = Interpreter::new("sm_80");
            conformance::check(&interpreter, &cases::crowded(member, tensors))
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// The text of every file is read back as the entry that it is named after.
#[test]
fn every_file_is_one_entry() {
    for ptx in PTX {
        let module = Module::parse(ptx.text).unwrap_or_else(|error| panic!("{}: {error}", ptx.entry));
        assert_eq!(module.entries().collect::<Vec<_>>(), [ptx.entry]);
        assert_eq!(module.target(), ptx.target);
        // Who launches knows the entry, not its text.
        let entry = entries().find(|entry| entry.name == ptx.entry).unwrap();
        let threads = format!(".reqntid {}, 1, 1", 32 * entry.warps);
        assert!(ptx.text.contains(&threads), "{} {}: not {threads}", ptx.target, ptx.entry);
    }
}
