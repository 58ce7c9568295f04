//! Some tensors of a file, or some of their tokens: what comes out is a safetensors file of just these.

use safetensors::SafeTensors;
use splitzip_host::conformance::Content;
use splitzip_host::file::{self, FileError, Options, Part, Reader, Tokens};
use splitzip_host::{Cpu, Dtype, Error, Executor, Reference, Result};
use std::io::Cursor;

/// Name, dtype and shape of the tensors of the file: with tokens as the last dimension but one, but for the last three.
const TENSORS: [(&str, &str, &[u64]); 9] = [
    ("layers.0.k", "BF16", &[3, 50, 64]),
    ("layers.0.v", "BF16", &[3, 50, 64]),
    ("layers.1.k", "F8_E5M2", &[2, 2, 50, 40]),
    ("layers.1.v", "F8_E4M3", &[50, 576]),
    ("zeros", "BF16", &[4, 50, 128]),
    ("scales", "F32", &[50, 3]),
    ("nibbles", "F4", &[50, 3]),
    ("by token", "BF16", &[50, 4, 32]),
    ("none", "BF16", &[0, 50, 8]),
];

fn bits(dtype: &str) -> u64 {
    match dtype {
        "F32" => 32,
        "BF16" => 16,
        "F4" => 4,
        _ => 8,
    }
}

fn bytes(number: usize) -> Vec<u8> {
    let (name, dtype, shape) = TENSORS[number];
    let bytes = (shape.iter().product::<u64>() * bits(dtype) / 8) as usize;
    match dtype {
        "BF16" if name == "zeros" => vec![0; bytes],
        "BF16" => Content::Plain.bytes(Dtype::Bf16, bytes / 2, 7 + number),
        "F8_E4M3" => Content::Plain.bytes(Dtype::E4m3, bytes, 7),
        _ => Content::Plain.bytes(Dtype::E5m2, bytes, 7),
    }
}

/// A file with a gap of one byte behind every tensor.
fn original() -> Vec<u8> {
    let mut header = r#"{ "__metadata__":{"text":"pro\u0073e","layout":"x"}"#.to_owned();
    let mut data = Vec::new();
    for (number, (name, dtype, shape)) in TENSORS.iter().enumerate() {
        let start = data.len();
        data.extend(bytes(number));
        let end = data.len();
        header +=
            &format!(r#","{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#);
        data.push(7);
    }
    header += "}";
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn compressed(frame_bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let options = Options { frame_bytes, ..Options::default() };
    file::compress(&Cpu::new(), &original(), &mut out, &options, &mut |_| Ok(())).unwrap();
    out
}

fn part(
    executor: &dyn Executor,
    reader: &mut Reader<'_>,
    keep: &dyn Fn(&str) -> bool,
    tokens: Option<(u64, Option<u64>)>,
    token_axis: Option<i32>,
) -> Result<(Vec<u8>, u64)> {
    let keep = |tensor: &file::Tensor| keep(&tensor.name);
    let tokens = tokens.map(|(start, end)| Tokens { start, end });
    let part = Part { keep: &keep, tokens, token_axis };
    let mut out = Vec::new();
    let report = file::decompress_part(executor, reader, &part, &mut out, &mut |_| Ok(()))?;
    assert_eq!(report.raw_bytes, report.tensors.iter().map(|tensor| tensor.bytes).sum::<u64>());
    Ok((out, report.frames))
}

/// The elements of tokens `start..end` along `axis`, by hand.
fn cut(number: usize, axis: usize, start: u64, end: u64) -> (Vec<u64>, Vec<u8>) {
    let (_, dtype, shape) = TENSORS[number];
    let all = bytes(number);
    let inner = shape[axis + 1..].iter().product::<u64>() * bits(dtype) / 8;
    let outer: u64 = shape[..axis].iter().product();
    let mut out = Vec::new();
    for o in 0..outer {
        for token in start..end {
            let at = ((o * shape[axis] + token) * inner) as usize;
            out.extend(&all[at..at + inner as usize]);
        }
    }
    let mut shape = shape.to_vec();
    shape[axis] = end - start;
    (shape, out)
}

#[test]
fn tokens_of_frames_of_every_size() -> Result<()> {
    let shaped = |name: &str| name != "by token" && name != "nibbles";
    for frame_bytes in [2048, 6144, 1 << 16, 64 << 20] {
        let packed = compressed(frame_bytes);
        for (start, end) in
            [(0, Some(50)), (0, None), (7, Some(8)), (49, None), (13, Some(41)), (20, Some(20))]
        {
            for (executor, seek) in [(&Cpu::new() as &dyn Executor, false), (&Reference, true)] {
                let mut reader = match seek {
                    true => Reader::from_seek(Cursor::new(&packed))?,
                    false => Reader::from_bytes(&packed)?,
                };
                let (out, _) = part(executor, &mut reader, &shaped, Some((start, end)), None)?;
                let got = SafeTensors::deserialize(&out).expect("a safetensors file");
                assert_eq!(got.len(), TENSORS.len() - 2);
                for (number, (name, _, shape)) in TENSORS.iter().enumerate().filter(|(_, of)| shaped(of.0)) {
                    let (shape, bytes) = cut(number, shape.len() - 2, start, end.unwrap_or(50));
                    let view = got.tensor(name).expect("the tensor");
                    let found: Vec<u64> = view.shape().iter().map(|&size| size as u64).collect();
                    assert_eq!(found, shape);
                    assert!(view.data() == bytes, "{name}, {start}..{end:?}, frames of {frame_bytes}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn tensors_by_name_come_from_few_frames() -> Result<()> {
    let packed = compressed(6144);
    let mut reader = Reader::from_bytes(&packed)?;
    let all = reader.frames().len() as u64;
    let (out, frames) = part(&Cpu::new(), &mut reader, &|name| name.ends_with(".v"), None, None)?;
    let got = SafeTensors::deserialize(&out).expect("a safetensors file");
    assert_eq!(got.len(), 2);
    assert!(got.tensor("layers.0.v").expect("it").data() == bytes(1));
    assert!(got.tensor("layers.1.v").expect("it").data() == bytes(3));
    assert!(frames * 2 < all, "{frames} of {all} frames");
    // The metadata is what it was, letter by letter.
    let text = String::from_utf8_lossy(&out);
    assert!(text.contains(r#""__metadata__":{"text":"pro\u0073e","layout":"x"}"#), "{}", &text[..200]);

    // A few tokens of a large tensor come from one or two frames.
    let (_, frames) =
        part(&Cpu::new(), &mut reader, &|name| name == "layers.1.v", Some((9, Some(11))), None)?;
    assert!(frames <= 2, "{frames} frames");
    // All tensors, in a file without gaps.
    let (out, frames) = part(&Cpu::new(), &mut reader, &|_| true, None, None)?;
    let got = SafeTensors::deserialize(&out).expect("a safetensors file");
    assert!((0..TENSORS.len()).all(|of| got.tensor(TENSORS[of].0).expect("it").data() == bytes(of)));
    assert!(frames <= all);
    Ok(())
}

#[test]
fn tokens_along_another_dimension() -> Result<()> {
    let packed = compressed(1 << 16);
    let mut reader = Reader::from_bytes(&packed)?;
    for axis in [0, -3] {
        let (out, _) =
            part(&Cpu::new(), &mut reader, &|name| name == "by token", Some((3, Some(17))), Some(axis))?;
        let got = SafeTensors::deserialize(&out).expect("a safetensors file");
        let (shape, bytes) = cut(7, 0, 3, 17);
        let view = got.tensor("by token").expect("the tensor");
        assert_eq!(view.shape(), shape.iter().map(|&size| size as usize).collect::<Vec<_>>());
        assert!(view.data() == bytes);
    }
    // Odd bytes of many rows: the last dimension.
    let (out, _) = part(&Reference, &mut reader, &|name| name == "layers.1.k", Some((5, Some(6))), Some(-1))?;
    let got = SafeTensors::deserialize(&out).expect("a safetensors file");
    assert!(got.tensor("layers.1.k").expect("it").data() == cut(2, 3, 5, 6).1);
    Ok(())
}

#[test]
fn parts_that_do_not_exist() -> Result<()> {
    let packed = compressed(1 << 20);
    let mut reader = Reader::from_bytes(&packed)?;
    let mut refused = |keep: &dyn Fn(&str) -> bool, tokens, axis| match part(
        &Cpu::new(),
        &mut reader,
        keep,
        tokens,
        axis,
    ) {
        Err(Error::File(FileError::Options { reason })) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(&|_| false, None, None),
        "no tensor has such a name; the file has 9, as [\"layers.0.k\", \"layers.0.v\", \"layers.1.k\"]"
    );
    assert_eq!(
        refused(&|name| name == "scales", Some((40, Some(51))), None),
        "\"scales\" has no tokens 40 to 51: dimension 0 of its shape [50, 3] has 50"
    );
    assert!(refused(&|name| name == "scales", Some((51, None)), None).contains("has no tokens 51 to 50"));
    assert_eq!(
        refused(&|name| name.ends_with('k') || name == "by token", Some((0, None)), None),
        "dimension 1 of \"by token\" has 4 tokens and that of \"layers.0.k\" 50; choose tensors with equally many, or say with a \
         token axis which dimension counts them"
    );
    assert!(refused(&|name| name == "scales", Some((0, None)), Some(2)).contains("has no dimension 2"));
    assert!(refused(&|name| name == "scales", Some((0, None)), Some(-3)).contains("has no dimension -3"));
    assert!(refused(&|name| name == "nibbles", Some((1, None)), None).contains("no whole number of bytes"));
    Ok(())
}
