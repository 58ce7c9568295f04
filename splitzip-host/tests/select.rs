//! The choice of scheme and bases: estimates against what files really take, on real tensors.

mod support;

use splitzip_host::conformance;
use splitzip_host::file::{self, Options, Report};
use splitzip_host::format::{Entry, Mode};
use splitzip_host::select::{Sample, candidates, chunk_sizes, has_channels, select};
use splitzip_host::{
    Bases, BasesChoice, Codebook, Cpu, Dtype, Executor, Flags, Frame, FrameSpec, Result, Scheme,
    SchemeChoice, TensorSpec,
};
use std::path::Path;
use support::{Tensor, Zeros, cast, load, with_zeros};

fn fixture() -> Vec<Tensor> {
    let path = "../tests/fixtures/smollm2_prose_160.safetensors";
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

fn file_of(tensors: &[Tensor]) -> Vec<u8> {
    let (mut header, mut data) = (String::new(), Vec::new());
    for Tensor { name, shape, dtype, bytes } in tensors {
        let dtype = match dtype {
            Dtype::Bf16 => "BF16",
            Dtype::Fp16 => "F16",
            Dtype::E4m3 => "F8_E4M3",
            Dtype::E5m2 => "F8_E5M2",
            Dtype::Bytes => "U8",
        };
        let (start, end) = (data.len(), data.len() + bytes.len());
        let comma = if start == 0 { "{" } else { "," };
        header += &format!(
            r#"{comma}"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        );
        data.extend(bytes);
    }
    header += "}";
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn compressed(file: &[u8], scheme: SchemeChoice, bases: BasesChoice) -> Result<Report> {
    let options = Options { scheme, bases, ..Options::default() };
    file::compress(&Cpu::new(), file, std::io::sink(), &options, &mut |_| Ok(()))
}

/// Every estimate is what the file takes, and what is chosen is the smallest. (The tensors have 2 groups: all of them is the sample.)
fn check(tensors: &[Tensor]) -> Result<()> {
    let (file, dtype) = (file_of(tensors), tensors[0].dtype);
    let (auto, auto_bases) = (SchemeChoice::Auto, BasesChoice::Auto);
    let all = candidates(dtype, &tensors[0].shape, auto, auto_bases);
    let members = conformance::members();
    assert_eq!(all.len(), members.iter().filter(|member| member.dtype == dtype).count());
    let mut smallest: Vec<u64> = tensors.iter().map(|tensor| tensor.bytes.len() as u64).collect();
    for &(scheme, bases) in &all {
        let report = compressed(&file, scheme.into(), bases.into())?;
        for ((tensor, found), smallest) in tensors.iter().zip(&report.tensors).zip(&mut smallest) {
            let spec = TensorSpec::new(&tensor.name, dtype, scheme, &tensor.shape).with_bases(bases);
            let estimate = Sample::new(dtype, &tensor.bytes).coded_bytes(&spec, None)?;
            let stored = found.scheme == Scheme::Stored && estimate >= tensor.bytes.len() as u64;
            assert!(
                stored || estimate == found.coded_bytes,
                "{}: {dtype} {scheme} {bases}: {estimate} was estimated, {} were taken",
                tensor.name,
                found.coded_bytes
            );
            *smallest = found.coded_bytes.min(*smallest);
        }
    }
    let report = compressed(&file, auto, auto_bases)?;
    println!("{dtype} auto: {:.4}", report.ratio());
    for (tensor, smallest) in report.tensors.iter().zip(smallest) {
        assert!(tensor.coded_bytes <= smallest, "{}: {} and {smallest}", tensor.name, tensor.coded_bytes);
    }
    Ok(())
}

/// Words, mode and escapes of every chunk are those of its frame.
#[test]
fn sizes_of_chunks_are_those_of_frames() -> Result<()> {
    let plain = fixture().into_iter().step_by(9);
    let zeros = [Zeros::HalfChunks, Zeros::Rows, Zeros::Channels];
    let mut tensors: Vec<Tensor> = plain.collect();
    tensors.extend(zeros.map(|zeros| with_zeros(&tensors[1], zeros)));
    let short = 5000 * 2;
    tensors.push(Tensor {
        name: "short".into(),
        shape: vec![5000],
        dtype: Dtype::Bf16,
        bytes: tensors[0].bytes[..short].into(),
    });
    let noise: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
    tensors.push(Tensor { name: "noise".into(), shape: vec![35_000], dtype: Dtype::Bf16, bytes: noise });
    tensors.push(Tensor {
        name: "equal".into(),
        shape: vec![9000],
        dtype: Dtype::Bf16,
        bytes: vec![7; 18_000],
    });
    let mut seen = [0u64; 3];
    for dtype in Dtype::floats() {
        for tensor in tensors.iter().map(|tensor| cast(tensor, dtype)) {
            for (scheme, bases) in candidates(dtype, &tensor.shape, SchemeChoice::Auto, BasesChoice::Auto) {
                let spec = TensorSpec::new(&tensor.name, dtype, scheme, &tensor.shape).with_bases(bases);
                let frame = FrameSpec::new(vec![spec.clone()], Flags::default());
                let frame = Cpu::new().encode_to_vec(&frame, &[], &[&tensor.bytes])?;
                let frame = Frame::parse(&frame)?;
                let sizes = chunk_sizes(&spec, &tensor.bytes, None)?;
                let of = frame.tensor(0)?;
                let entries = (0..of.layout().groups).flat_map(|group| of.group(group).entries);
                assert_eq!(sizes.len() as u64, of.layout().chunks);
                for (number, (size, entry)) in sizes.iter().zip(entries).enumerate() {
                    let entry = Entry::from_bits(entry).expect("an entry");
                    let what = format!("{} {dtype} {scheme} {bases}, chunk {number}", tensor.name);
                    assert_eq!(size.words, u64::from(entry.words), "{what}");
                    let (mode, kind) = match entry.mode {
                        Mode::Raw => (Mode::Raw, 0),
                        Mode::Equal => (Mode::Equal, 1),
                        _ => (Mode::Coded, 2),
                    };
                    assert_eq!(size.mode, mode, "{what}");
                    seen[kind] += 1;
                    if scheme.has_codebook() && mode == Mode::Coded {
                        assert_eq!(size.escapes, size.words, "{what}");
                    }
                }
            }
        }
    }
    assert!(seen.iter().all(|&chunks| chunks > 50), "raw, equal and coded chunks: {seen:?}");
    Ok(())
}

#[test]
fn escapes_are_the_exponents_without_a_code() -> Result<()> {
    // One exponent, and in every chunk a few that are far away: windows and codebooks have no code for those.
    let element = |i: usize| if i % 1024 < 5 { 0x0180 + 0x0080 * (i / 1024 % 7) } else { 0x3f80 + i % 128 };
    let bytes: Vec<u8> = (0..32 * 1024).flat_map(|i| (element(i) as u16).to_le_bytes()).collect();
    for scheme in Scheme::coded() {
        let spec = TensorSpec::new("k", Dtype::Bf16, scheme, &[32 * 1024]);
        let exponents: Vec<u8> = (119..135).collect();
        let codebook = Codebook::new(Dtype::Bf16, exponents.try_into().expect("16 exponents"))?;
        let sizes = chunk_sizes(&spec, &bytes, Some(codebook).filter(|_| scheme.has_codebook()))?;
        assert!(
            sizes.iter().all(|size| (size.mode, size.escapes) == (Mode::Coded, 5)),
            "{scheme}: {sizes:?}"
        );
    }
    Ok(())
}

#[test]
fn the_smallest_is_chosen() -> Result<()> {
    for dtype in Dtype::floats() {
        check(&fixture().iter().map(|tensor| cast(tensor, dtype)).collect::<Vec<_>>())?;
    }
    Ok(())
}

#[test]
fn the_smallest_is_chosen_with_zeros() -> Result<()> {
    let some: Vec<Tensor> = fixture().into_iter().step_by(7).collect();
    for zeros in [Zeros::HalfChunks, Zeros::Rows, Zeros::Channels, Zeros::Random, Zeros::Share(30)] {
        for dtype in [Dtype::Bf16, Dtype::E5m2] {
            check(&some.iter().map(|tensor| with_zeros(&cast(tensor, dtype), zeros)).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// A sample of a long tensor chooses within half a percent of the smallest.
#[test]
fn samples_of_long_tensors() -> Result<()> {
    let tensors = fixture();
    for kind in [".k", ".v"] {
        let parts: Vec<&Tensor> = tensors.iter().filter(|tensor| tensor.name.ends_with(kind)).collect();
        let bytes = parts.iter().flat_map(|tensor| tensor.bytes.clone()).collect();
        let row = *parts[0].shape.last().unwrap_or(&0);
        let elements: u64 = parts.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        let long =
            Tensor { name: kind.to_owned(), shape: vec![elements / row, row], dtype: Dtype::Bf16, bytes };
        let file = file_of(std::slice::from_ref(&long));
        let size =
            |scheme, bases| compressed(&file, scheme, bases).map(|report| report.tensors[0].coded_bytes);
        let all = candidates(Dtype::Bf16, &long.shape, SchemeChoice::Auto, BasesChoice::Auto);
        let sizes = all.iter().map(|&(scheme, bases)| size(scheme.into(), bases.into()));
        let smallest = sizes.collect::<Result<Vec<_>>>()?.into_iter().min().unwrap_or(0);
        let chosen = size(SchemeChoice::Auto, BasesChoice::Auto)?;
        assert!(chosen as f64 <= 1.005 * smallest as f64, "{kind}: {chosen} and {smallest}");
    }
    Ok(())
}

#[test]
fn tables_of_whole_files() -> Result<()> {
    // By dtype: `w4`, `w3`, `w2x3`, `w2x2x3` with a base per chunk, `w2x3` (the default) and `auto`, both with chosen bases.
    let bars = [
        (Dtype::Bf16, [1.323, 1.398, 1.440, 1.459, 1.447, 1.466]),
        (Dtype::Fp16, [1.058, 1.116, 1.134, 1.144, 1.138, 1.148]),
        (Dtype::E4m3, [0.0, 1.099, 1.129, 1.147, 1.137, 1.155]),
        (Dtype::E5m2, [1.128, 1.264, 1.312, 1.339, 1.323, 1.350]),
    ];
    for (dtype, bars) in bars {
        let file = file_of(&fixture().iter().map(|tensor| cast(tensor, dtype)).collect::<Vec<_>>());
        let chunk = BasesChoice::Given(Bases::Chunk);
        let choices = [Scheme::W4, Scheme::W3, Scheme::W2x3, Scheme::W2x2x3]
            .map(|scheme| (SchemeChoice::Given(scheme), chunk))
            .into_iter()
            .chain([(Scheme::W2x3.into(), BasesChoice::Auto), (SchemeChoice::Auto, BasesChoice::Auto)]);
        for ((scheme, bases), bar) in choices.zip(bars) {
            if scheme == Scheme::W4.into() && dtype == Dtype::E4m3 {
                assert!(compressed(&file, scheme, bases).is_err());
                continue;
            }
            let ratio = compressed(&file, scheme, bases)?.ratio();
            println!("{dtype} {scheme} {bases}: {ratio:.4}");
            assert!(ratio >= bar, "{dtype} {scheme} {bases}: {ratio:.4} is below {bar}");
        }
    }
    Ok(())
}

#[test]
fn zeros_do_not_blow_up_files() -> Result<()> {
    for zeros in [Zeros::HalfChunks, Zeros::Rows, Zeros::Channels, Zeros::Random] {
        let file = file_of(&fixture().iter().map(|tensor| with_zeros(tensor, zeros)).collect::<Vec<_>>());
        let ratio = compressed(&file, Scheme::W2x3.into(), BasesChoice::Auto)?.ratio();
        println!("{zeros:?}: {ratio:.4}");
        assert!(ratio >= 1.45, "{zeros:?}: {ratio:.4}");
    }
    Ok(())
}

#[test]
fn shapes_with_channels() {
    for shape in [&[2, 64][..], &[1, 1024], &[1, 2, 3, 8]] {
        assert!(has_channels(shape));
    }
    for shape in [&[][..], &[64], &[2, 12], &[2, 0], &[2, 1032]] {
        assert!(!has_channels(shape));
    }
    let channel = |shape: &[u64], scheme: Scheme| {
        candidates(Dtype::Bf16, shape, scheme.into(), BasesChoice::Given(Bases::Channel))
    };
    assert_eq!(channel(&[2, 64], Scheme::W2x3), [(Scheme::W2x3, Bases::Channel)]);
    assert_eq!(channel(&[128], Scheme::W2x3), [(Scheme::W2x3, Bases::Chunk)]);
    assert_eq!(channel(&[2, 64], Scheme::W4), [(Scheme::W4, Bases::Chunk)]);
}

#[test]
fn what_does_not_shrink_and_what_is_wrong() -> Result<()> {
    let noise: Vec<u8> =
        (0..40_000u32).map(|i| (i.wrapping_mul(2_654_435_761).rotate_left(13) >> 7) as u8).collect();
    let all = candidates(Dtype::E4m3, &[40_000], SchemeChoice::Auto, BasesChoice::Auto);
    assert_eq!(all.len(), 3);
    let chosen = select("x", Dtype::E4m3, &[40_000], &noise, &all, None)?;
    assert_eq!(chosen, (Scheme::Stored, Bases::Chunk));
    assert_eq!(select("x", Dtype::E4m3, &[0], &[], &[], None)?.0, Scheme::Stored);
    assert!(select("x", Dtype::E4m3, &[5], &noise, &all, None).is_err());
    for text in ["auto", "w2x3", "stored"] {
        assert_eq!(text.parse::<SchemeChoice>()?.to_string(), text);
    }
    for text in ["auto", "chunk", "channel"] {
        assert_eq!(text.parse::<BasesChoice>()?.to_string(), text);
    }
    assert!("w9".parse::<SchemeChoice>().is_err() && "".parse::<BasesChoice>().is_err());
    Ok(())
}

/// `cargo test --release -p splitzip-host --test select -- --ignored --nocapture`: the choice among all candidates, by an encode.
#[test]
#[ignore = "measures time"]
fn a_choice_costs_a_fifth_of_an_encode() -> Result<()> {
    let mut long = fixture().swap_remove(0);
    let bytes = long.bytes.clone();
    (1..512).for_each(|_| long.bytes.extend(&bytes));
    let rows = long.bytes.len() as u64 / 128;
    let all = candidates(Dtype::Bf16, &[rows, 64], SchemeChoice::Auto, BasesChoice::Auto);
    let fastest = |work: &dyn Fn() -> Result<()>| {
        (0..5).try_fold(f64::MAX, |fastest, _| {
            let started = std::time::Instant::now();
            work().map(|()| fastest.min(started.elapsed().as_secs_f64()))
        })
    };
    let choice = fastest(&|| select("k", Dtype::Bf16, &[rows, 64], &long.bytes, &all, None).map(|_| ()))?;
    let spec = TensorSpec::new("k", Dtype::Bf16, Scheme::W2x3, &[rows, 64]);
    let spec = splitzip_host::FrameSpec::new(vec![spec], splitzip_host::Flags::CHECKSUMS);
    let cpu = Cpu::new();
    let out = std::cell::RefCell::new(vec![0; spec.layout()?.max_frame_bytes as usize]);
    let encode = fastest(&|| {
        let mut out = out.borrow_mut();
        splitzip_host::Executor::encode(&cpu, &spec, &[], &[&long.bytes], &mut out).map(|_| ())
    })?;
    println!("choice {:.2} ms, encode {:.2} ms of {} bytes", 1e3 * choice, 1e3 * encode, long.bytes.len());
    assert!(choice < 0.2 * encode);
    Ok(())
}
