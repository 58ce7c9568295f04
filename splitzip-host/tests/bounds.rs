//! What a reader allocates follows from what its caller has: bytes of a frame that describe 315 times as many get no memory for them. Every allocation of this
//! process is counted.

use splitzip_host::conformance::{Case, Content, Member};
use splitzip_host::file::{self, Options, Part, Reader, Tokens};
use splitzip_host::format::{Flags, pack};
use splitzip_host::paged::{KvLayout, KvShape};
use splitzip_host::{Bases, Cpu, Dtype, Error, Executor, Frame, FrameSpec, Reference, Scheme};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with counts.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all of it is the system's; the counts are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: by contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: by contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test counts at a time.
static TURN: Mutex<()> = Mutex::new(());

/// What `work` returns, and the most bytes that were allocated meanwhile beside those that were there before.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    // Threads and tables that live for ever are there before.
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed) - before)
}

const RAW: usize = 64 << 20;
/// What threads, paths and messages take.
const SMALL: usize = 256 << 10;

/// A packed frame of nothing but zeros: 64 MiB in 200 kB.
fn bomb() -> (Case, Vec<u8>) {
    let member = Member { dtype: Dtype::Bf16, scheme: Scheme::W2x3, bases: Bases::Chunk };
    let case = Case::new(member, Content::Zero, &[RAW as u64 / 128, 64], Flags::default());
    let frame = Cpu::new().encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let packed = pack(&Frame::parse(&frame).unwrap()).unwrap();
    assert!(packed.len() * 300 < RAW && RAW < packed.len() * 320, "{} bytes", packed.len());
    (case, packed)
}

#[test]
fn a_frame_gets_no_more_than_is_allowed() {
    let _turn = TURN.lock();
    let (case, bytes) = bomb();
    let (frame, parsed) = counted(|| Frame::parse(&bytes).unwrap());
    assert!(parsed < bytes.len(), "{parsed} bytes to parse {}", bytes.len());
    for executor in [&Cpu::new() as &dyn Executor, &Reference] {
        for allowed in [0, 1 << 20, RAW as u64 - 1] {
            let (refused, peak) = counted(|| executor.decode_to_vecs_within(&frame, allowed));
            match refused {
                Err(Error::Limit { what: "the frame", needed, allowed: said }) => {
                    assert_eq!((needed, said), (RAW as u64, allowed));
                }
                other => panic!("{:?}", other.map(|tensors| tensors.len())),
            }
            assert!(peak < SMALL, "{peak} bytes for nothing");
        }
    }
    let (decoded, peak) = counted(|| Cpu::new().decode_to_vecs_within(&frame, RAW as u64).unwrap());
    assert!(decoded == case.inputs);
    assert!(peak < 2 * RAW + RAW / 8, "{peak} bytes for {RAW}");
    assert_eq!(
        Cpu::new().decode_to_vecs_within(&frame, 5).unwrap_err().to_string(),
        "the frame has 67108864 bytes decoded, and at most 5 are allowed; allow more if you trust where it comes from"
    );
}

/// Who wants a part gets memory for the part.
#[test]
fn a_part_takes_the_memory_of_a_part() {
    let _turn = TURN.lock();
    let (_, bytes) = bomb();
    let frame = Frame::parse(&bytes).unwrap();
    let (cpu, most) = (Cpu::new(), 9 * bytes.len() + SMALL);
    let mut output = vec![0xa5; 2048];
    let (done, peak) = counted(|| cpu.decode_range(&frame, 0, 5..6, &mut output));
    done.unwrap();
    assert!(output.iter().all(|&byte| byte == 0) && peak < most, "{peak} bytes for a chunk");
    output.fill(0xa5);
    let (done, peak) = counted(|| cpu.decode_elements(&frame, 0, 3_000_001..3_001_025, &mut output));
    done.unwrap();
    assert!(output.iter().all(|&byte| byte == 0) && peak < most, "{peak} bytes for some elements");

    let shape =
        KvShape { layers: 1, pages: 20_000, page_tokens: 16, heads: 1, head_dim: 64, dtype: Dtype::Bf16 };
    let all = KvLayout::vllm(&shape).unwrap().bind_consecutive(0, 320_000).unwrap();
    let pool = vec![0u8; 2 * 320_000 * 128];
    let spec = all.spec(Scheme::W2x3, Flags::CHECKSUMS);
    let mut frame = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
    let length = cpu.encode_paged(&spec, &[], &all, &[&pool], &mut frame).unwrap();
    let packed = pack(&Frame::parse(&frame[..length]).unwrap()).unwrap();
    drop((frame, pool));
    let frame = Frame::parse(&packed).unwrap();
    let small = KvShape { pages: 2, ..shape };
    let to = KvLayout::vllm(&small).unwrap().bind_consecutive(0, 20).unwrap();
    let mut pool = vec![0xa5; 2 * 2 * 16 * 128];
    let (done, peak) = counted(|| cpu.decode_paged(&frame, Some(1000..1020), &to, &mut [&mut pool]));
    done.unwrap();
    assert!(pool[..20 * 128].iter().all(|&byte| byte == 0) && pool[20 * 128] == 0xa5);
    assert!(peak < 9 * packed.len() + SMALL, "{peak} bytes for some tokens");
}

/// Frames that claim more than there are bytes for are refused before anything is allocated for what they claim.
#[test]
fn claims_are_not_believed() {
    let _turn = TURN.lock();
    let tensor = splitzip_host::TensorSpec::new("t", Dtype::Bf16, Scheme::W2x3, &[1 << 40, 64]);
    for tensors in [1, 1000] {
        let spec = FrameSpec::new(vec![tensor.clone(); tensors], Flags::CHECKSUMS);
        let layout = spec.layout().unwrap();
        let start = splitzip_host::format::write::static_bytes(&spec, &layout);
        let (refused, peak) = counted(|| Frame::parse(&start).map(|_| ()));
        assert!(matches!(refused, Err(Error::Truncated { what: "the directory", .. })), "{refused:?}");
        assert!(peak < 8 * start.len() + SMALL, "{peak} bytes for {}", start.len());
    }
    // A number of tensors, and no tensors.
    let mut start = splitzip_host::format::write::static_bytes(
        &FrameSpec::default(),
        &FrameSpec::default().layout().unwrap(),
    );
    start[16..20].fill(0xff);
    start[20..24].fill(0xf8);
    let (refused, peak) = counted(|| Frame::parse(&start).is_err());
    assert!(refused && peak < SMALL, "{peak}");
    // A safetensors header of 100 MB that is not there.
    for length in [99_999_999u64, 1 << 40, u64::MAX] {
        let original = [&length.to_le_bytes()[..], b"{}"].concat();
        let (refused, peak) = counted(|| {
            file::compress(&Cpu::new(), &original, Vec::new(), &Options::default(), &mut |_| Ok(())).is_err()
        });
        assert!(refused && peak < SMALL, "{peak}");
    }
}

/// A file has two frames in memory, and they are no larger than its limit says, whatever is in them.
#[test]
fn a_file_takes_two_frames() {
    let _turn = TURN.lock();
    let header = format!(
        r#"{{"t":{{"dtype":"BF16","shape":[{},64],"data_offsets":[0,{RAW}]}},"u":{{"dtype":"U8","shape":[{},2,1],"data_offsets":[{RAW},{}]}}}}"#,
        RAW / 128,
        RAW / 2,
        2 * RAW
    );
    let mut original = (header.len() as u64).to_le_bytes().to_vec();
    original.extend(header.as_bytes());
    original.resize(original.len() + 2 * RAW, 0);
    let mut made = Vec::new();
    let frame_bytes = 1 << 20;
    let options = Options { frame_bytes, dtype: Some(Dtype::E4m3), ..Options::default() };
    file::compress(&Cpu::new(), &original, &mut made, &options, &mut |_| Ok(())).unwrap();
    drop(original);
    let most = 8 * frame_bytes as usize + SMALL;
    let (done, peak) = counted(|| {
        let mut reader = Reader::from_bytes(&made)?;
        file::verify(&Cpu::new(), &mut reader, &mut |_| Ok(()))
    });
    done.unwrap();
    assert!(peak < most, "{peak} bytes for a file");
    let (done, peak) = counted(|| file::verify_stream(&Cpu::new(), &made[..], &mut |_| Ok(())).map(|_| ()));
    done.unwrap();
    assert!(peak < most, "{peak} bytes for a stream");
    let limited = Reader::from_bytes(&made).unwrap().header().check_limit(1000);
    let streamed =
        file::decompress_stream_within(&Cpu::new(), &made[..], std::io::sink(), 1000, &mut |_| Ok(()));
    for refused in [limited, streamed.map(|_| ())] {
        assert!(matches!(refused, Err(Error::Limit { what: "the original", allowed: 1000, .. })));
    }
    // One token of 32 Mi rows: a list of where they are would be four times as large as the file's own bytes.
    let part = |name: &'static str| {
        let tokens = Some(Tokens { start: 0, end: Some(1) });
        let part = Part { keep: &|tensor| tensor.name == name, tokens, token_axis: Some(1) };
        let mut reader = Reader::from_bytes(&made)?;
        file::decompress_part(&Cpu::new(), &mut reader, &part, std::io::sink(), &mut |_| Ok(()))
    };
    let (refused, peak) = counted(|| part("u"));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("33554432 pieces") && text.contains("restore all of it"), "{text}");
    assert!(peak < most, "{peak} bytes for a part");
}
