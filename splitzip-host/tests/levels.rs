//! The fast paths of the CPU executor beside the reference, on every level of instructions that the machine has: every word, chunks of all kinds in any
//! order, and buffers that end where the process may not read or write on.

use memmap2::{MmapMut, MmapOptions};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use splitzip_host::conformance::{Case, Content, Member};
use splitzip_host::format::{Mode, write};
use splitzip_host::{Bases, Cpu, Executor, Flags, Frame, FrameSpec, Reference, TensorSpec};
use std::io::Write;
use std::process::{Command, Stdio};

#[path = "support/cases.rs"]
#[allow(dead_code, reason = "the interpreter has more")]
mod cases;
#[path = "support/members.rs"]
#[allow(dead_code, reason = "the list is checked in cpu.rs")]
mod members;
use members::members;

/// A process reads its level once, so every level is a process: this binary again, with the ignored tests below.
#[test]
fn every_level() {
    let start = |level: u32| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .env("SPLITZIP_CPU_LEVEL", level.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for (level, child) in [0, 1, 2].map(|level| (level, start(level))) {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "level {level}, {}:\n{text}\n{errors}", output.status);
        let ran: Vec<&str> =
            text.lines().filter_map(|line| line.split_once(" ran on level ")).map(|of| of.1).collect();
        assert_eq!(ran.len(), 4, "level {level}: not every test said on which level it ran:\n{text}");
        if ran.iter().any(|found| *found != level.to_string()) {
            say(&format!(
                "SKIPPED level {level}: this machine has no such instructions, and {ran:?} ran again"
            ));
        }
    }
}

/// A line on stderr. Not by `eprintln!`, which a passing test does not show.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn ran(test: &str) {
    println!("\n{test} ran on level {}", splitzip_kernels::arch::level());
}

/// The bytes of the reference, and back, with one thread and with two.
fn check(case: &Case) -> Result<(), String> {
    let expected =
        Reference.encode_to_vec(&case.spec, &case.codebooks, &case.slices()).map_err(|e| e.to_string())?;
    for threads in [1, 2] {
        let cpu = Cpu::with_threads(threads).map_err(|e| e.to_string())?;
        let bytes =
            cpu.encode_to_vec(&case.spec, &case.codebooks, &case.slices()).map_err(|e| e.to_string())?;
        if bytes != expected {
            return Err(format!("{}, {threads} threads: another frame than the reference", case.name));
        }
        let frame = Frame::parse(&expected).map_err(|e| e.to_string())?;
        if cpu.decode_to_vecs(&frame).map_err(|e| e.to_string())? != case.inputs {
            return Err(format!("{}, {threads} threads: does not come back", case.name));
        }
    }
    Ok(())
}

/// Every word of every dtype in a chunk that is coded: among plain elements, at places that change, so few a chunk that it has no second try.
#[test]
#[ignore = "started once for each level by the test above"]
fn every_word() {
    const FEW: usize = 24;
    for member in members() {
        let words = 1usize << member.dtype.bits();
        let chunks = words.div_ceil(FEW);
        let mut case = Case::new(member, Content::Plain, &[chunks as u64, 1024], Flags::default());
        let size = member.dtype.bytes();
        for word in 0..words {
            let place = (word * 397 + word / FEW * 31) % 1024;
            let at = (word / FEW * 1024 + place) * size;
            case.inputs[0][at..at + size].copy_from_slice(&(word as u16).to_le_bytes()[..size]);
        }
        check(&case).unwrap_or_else(|error| panic!("{error}"));
    }
    ran("every_word");
}

/// The kinds of chunks.
const KINDS: [Content; 9] = [
    Content::Plain,
    Content::Outliers,
    Content::Random,
    Content::Equal,
    Content::Zero,
    Content::ZeroHalves,
    Content::ZeroRandom,
    Content::FewZeros,
    Content::NotNumbers,
];

/// A tensor of chunks of these kinds, one behind the other, with a short one in the end.
fn mixed(member: Member, kinds: &[Content], short: u64, channels: u64, seed: u64) -> Case {
    let channels = if member.bases == Bases::Channel { channels } else { 1 };
    let elements = (kinds.len() as u64 * 1024 + short) / channels * channels;
    let mut bytes = Vec::new();
    for (number, kind) in kinds.iter().chain([&Content::Plain]).enumerate() {
        // Another length is another seed.
        let chunk = kind.bytes(member.dtype, 1024 + (seed as usize + number) % 97, channels as usize);
        bytes.extend(&chunk[..1024 * member.dtype.bytes()]);
    }
    bytes.truncate(elements as usize * member.dtype.bytes());
    let spec = TensorSpec::new("t", member.dtype, member.scheme, &[elements / channels, channels]);
    Case {
        name: format!("{member}, {kinds:?}, {short}, {channels} channels"),
        spec: FrameSpec::new(vec![spec.with_bases(member.bases)], Flags::default()),
        codebooks: vec![],
        inputs: vec![bytes],
    }
}

#[test]
#[ignore = "started once for each level by the test above"]
fn any_chunks() {
    let members = members();
    let kinds = prop::collection::vec(prop::sample::select(&KINDS[..]), 0..40);
    let channels = (1u64..=128).prop_map(|eights| 8 * eights);
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(
            &(any::<prop::sample::Index>(), kinds, 0u64..1024, channels, any::<u64>()),
            |(index, kinds, short, channels, seed)| {
                check(&mixed(*index.get(&members), &kinds, short, channels, seed))
                    .map_err(TestCaseError::fail)
            },
        )
        .unwrap_or_else(|error| panic!("{error}"));
    ran("any_chunks");
}

/// Memory of so many bytes, at the end of a file that is mapped with a page more: who reads or writes on is killed.
struct Guarded {
    map: MmapMut,
    start: usize,
    end: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        const PAGES: usize = 1 << 16; // of any machine
        let end = bytes.next_multiple_of(PAGES).max(PAGES);
        let file = tempfile::tempfile().unwrap();
        file.set_len(end as u64).unwrap();
        // SAFETY: nobody else has the file, and what lies behind its end is not touched: that is the test.
        let map = unsafe { MmapOptions::new().len(end + PAGES).map_mut(&file).unwrap() };
        Guarded { map, start: end - bytes, end }
    }

    fn of(bytes: &[u8]) -> Guarded {
        let mut guarded = Guarded::new(bytes.len());
        guarded.bytes_mut().copy_from_slice(bytes);
        guarded
    }

    fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.end]
    }

    /// Nobody has written in front of it.
    fn is_clean(&self) -> bool {
        self.map[..self.start].iter().all(|&byte| byte == 0)
    }
}

/// Whole chunks, the last of which has as many random elements as it can have without being raw; `None` if its part is not just shorter than a raw one.
fn nearly_raw(member: Member) -> Option<Case> {
    let size = member.dtype.bytes();
    let with_random = |random: usize| {
        let mut case = mixed(member, &[Content::Random, Content::Random, Content::Plain], 0, 64, 5);
        let noise = Content::Random.bytes(member.dtype, 1024, 64);
        case.inputs[0][2048 * size..][..random * size].copy_from_slice(&noise[..random * size]);
        let bytes = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
        let frame = Frame::parse(&bytes).unwrap();
        let entry = frame.tensor(0).unwrap().chunk(2).unwrap().entry;
        let missing = frame.layout().tensors[0].raw_words(1024) - u32::from(entry.words);
        case.name = format!("{member}, {random} random elements, {entry:?}");
        (case, entry.mode != Mode::Raw, missing)
    };
    let (mut coded, mut raw) = (0, 1024);
    while coded + 1 < raw {
        let middle = (coded + raw) / 2;
        if with_random(middle).1 { coded = middle } else { raw = middle }
    }
    let (case, _, missing) = with_random(coded);
    (missing == 1).then_some(case)
}

/// Nothing behind the input is read, nothing behind `max_frame_bytes` written, also where all chunks are raw or nearly; nothing behind a frame is read,
/// nothing behind the output written.
#[test]
#[ignore = "started once for each level by the test above"]
fn nothing_outside_is_touched() {
    let mut close = 0;
    for member in members() {
        let last = KINDS.map(|last| mixed(member, &[Content::Random, Content::Random, last], 0, 64, 5));
        let nearly_raw = nearly_raw(member);
        close += u32::from(nearly_raw.is_some());
        for case in last.into_iter().chain(nearly_raw) {
            let input = Guarded::of(&case.inputs[0]);
            let mut out = Guarded::new(case.spec.layout().unwrap().max_frame_bytes as usize);
            let length = Cpu::new().encode(&case.spec, &[], &[input.bytes()], out.bytes_mut()).unwrap();
            let expected = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
            assert!(out.bytes()[..length] == expected, "{}", case.name);
            assert!(out.is_clean(), "{}", case.name);
            let (frame, mut output) = (Guarded::of(&expected), Guarded::new(case.inputs[0].len()));
            Cpu::new().decode(&Frame::parse(frame.bytes()).unwrap(), &mut [output.bytes_mut()]).unwrap();
            assert!(output.bytes() == case.inputs[0] && output.is_clean(), "{}", case.name);
        }
    }
    let all = std::env::var_os("SPLITZIP_MEMBERS").is_none();
    assert!(
        close * 2 > members().len() as u32 || !all,
        "only {close} members have a part that is nearly raw"
    );
    ran("nothing_outside_is_touched");
}

/// Damaged frames without checksums: errors or other elements, and nothing outside of frame and output.
#[test]
#[ignore = "started once for each level by the test above"]
fn damaged_frames_stay_inside() {
    let mut errors = 0;
    for member in members() {
        let short = [Content::Mixed, Content::Outliers].map(|content| cases::damaged(member, content, 150));
        for (case, frames) in short.into_iter().chain([whole_and_damaged(member)]) {
            let mut output = Guarded::new(case.inputs[0].len());
            for bytes in frames {
                let guarded = Guarded::of(&bytes);
                if let Ok(frame) = Frame::parse(guarded.bytes()) {
                    let sizes = frame.layout().tensors.iter().map(|tensor| tensor.bytes as usize);
                    assert_eq!(sizes.collect::<Vec<_>>(), [case.inputs[0].len()]);
                    errors += u32::from(Cpu::new().decode(&frame, &mut [output.bytes_mut()]).is_err());
                }
                assert!(output.is_clean(), "{}", case.name);
            }
        }
    }
    assert!(errors > 100, "{errors}");
    ran("damaged_frames_stay_inside");
}

/// Frames of whole chunks: with code planes that say that far more elements are marked, or escaped, than the last part has codes for, and with bytes changed
/// at random.
fn whole_and_damaged(member: Member) -> (Case, Vec<Vec<u8>>) {
    let case =
        mixed(member, &[Content::Outliers, Content::ZeroRandom, Content::Random, Content::Plain], 0, 64, 5);
    let good = Reference.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let layout = case.spec.layout().unwrap();
    let codes = layout.tensors[0].codes().unwrap();
    let mut frames = Vec::new();
    for fill in [0, 0xff] {
        for (from, to) in
            [(0, codes.bytes), (codes.bytes / 4, codes.bytes / 2), (codes.bytes / 2, codes.bytes)]
        {
            let mut frame = good.clone();
            frame[(codes.at + from) as usize..(codes.at + to) as usize].fill(fill);
            frames.push(frame);
        }
    }
    let (start, dense) = (layout.directory_at as usize, layout.dense_bytes as usize);
    let mut state = 11u64;
    for number in 0..300 {
        let mut frame = good.clone();
        for _ in 0..1 + number % 3 {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let (from, to) = match number % 4 {
                0 => (start, start + 16),
                1 => (dense, frame.len()),
                2 => (codes.at as usize, (codes.at + codes.bytes) as usize),
                _ => (start, frame.len()),
            };
            frame[from + (state >> 33) as usize % (to - from)] ^= (state >> 24) as u8;
        }
        frames.push(frame);
    }
    frames.iter_mut().for_each(|frame| write::seal_dynamic(&layout, frame).unwrap());
    (case, frames)
}
