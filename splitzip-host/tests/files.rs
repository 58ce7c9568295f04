//! `.spz` files through the library: small frames, both kinds of readers, hostile indexes, errors of outputs.

use splitzip_host::file::{self, Content, FileError, Header, Options, OriginalStream, Reader, Writer};
use splitzip_host::format::pack;
use splitzip_host::{
    Cpu, Dtype, Error, Executor, Flags, Frame, FrameSpec, Reference, Result, Scheme, SchemeChoice, TensorSpec,
};
use std::io::{self, Cursor, Read, Write};

/// Words with few exponents, and a multiplier for noise.
fn elements(count: usize) -> Vec<u8> {
    let word = |i: usize| {
        let noise = (i as u32).wrapping_mul(2_654_435_761) >> 8;
        (0x3c00 | (noise & 0x83ff) as u16).to_le_bytes()
    };
    (0..count).flat_map(word).collect()
}

/// A file with tensors of several sizes and dtypes, a gap of 3 bytes, and an odd header.
fn original() -> Vec<u8> {
    let parts = [
        ("a", "BF16", 5000, 2),
        ("b", "U8", 777, 1),
        ("c", "BF16", 1024, 2),
        ("d", "BF16", 20_000, 2),
        ("e", "BF16", 10, 2),
    ];
    let (mut header, mut data) = (String::from("{ "), Vec::new());
    for (name, dtype, count, size) in parts {
        let start = data.len();
        data.extend(&elements(count)[..count * size]);
        let end = data.len();
        header +=
            &format!(r#""{name}":{{"dtype":"{dtype}","shape":[{count}],"data_offsets":[{start},{end}]}},"#);
        data.extend(b"gap");
    }
    header.pop();
    header += "}";
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn compress(original: &[u8], options: &Options) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let report = file::compress(&Reference, original, &mut out, options, &mut |_| Ok(()))?;
    assert_eq!(report.coded_bytes, out.len() as u64);
    Ok(out)
}

fn decompress(executor: &dyn Executor, mut reader: Reader<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    file::decompress(executor, &mut reader, &mut out, &mut |_| Ok(()))?;
    Ok(out)
}

#[test]
fn frames_of_every_size() -> Result<()> {
    let original = original();
    let mut sizes = Vec::new();
    for frame_bytes in [2048, 4096, 6144, 10_240, 1 << 16, 256 << 20] {
        for scheme in Scheme::ALL.iter().copied() {
            let options = Options { scheme: scheme.into(), frame_bytes, ..Options::default() };
            let packed = compress(&original, &options)?;
            let reader = Reader::from_bytes(&packed)?;
            assert!(reader.frames().iter().all(|frame| frame.raw_bytes <= frame_bytes));
            assert_eq!(decompress(&Reference, reader)?, original);
            assert_eq!(decompress(&Cpu::new(), Reader::from_seek(Cursor::new(&packed))?)?, original);
            sizes.push(packed.len());
        }
    }
    assert!(sizes.last() < sizes.first());
    Ok(())
}

/// Reads a few bytes at a time, as a pipe may.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let some = (self.0.len() % 700).max(1).min(out.len());
        (&mut self.0).take(some as u64).read(out)
    }
}

fn compress_stream(original: &[u8], options: &Options) -> Result<Vec<u8>> {
    let stream = OriginalStream::open(Trickle(original), options.dtype)?;
    let mut out = Vec::new();
    let report = file::compress_stream(&Reference, stream, &mut out, options, &mut |_| Ok(()))?;
    assert_eq!((report.coded_bytes, report.raw_bytes), (out.len() as u64, original.len() as u64));
    Ok(out)
}

#[test]
fn streams_give_the_same_files() -> Result<()> {
    let mut original = original();
    original.truncate(original.len() - 3); // the gap at the end
    for frame_bytes in [2048, 6144, 1 << 16] {
        let options = Options { frame_bytes, scheme: SchemeChoice::Auto, ..Options::default() };
        let packed = compress(&original, &options)?;
        assert_eq!(compress_stream(&original, &options)?, packed);
        let mut out = Vec::new();
        let report = file::decompress_stream(&Cpu::new(), Trickle(&packed), &mut out, &mut |_| Ok(()))?;
        assert_eq!(out, original);
        let reader = Reader::from_bytes(&packed)?;
        assert_eq!((report.raw_bytes, report.coded_bytes), (original.len() as u64, packed.len() as u64));
        assert_eq!((report.sha256, report.frames), (*reader.sha256(), reader.frames().len() as u64));
        assert_eq!(file::verify_stream(&Reference, Trickle(&packed), &mut |_| Ok(()))?, report);
    }
    Ok(())
}

#[test]
fn streams_that_end_early_or_go_on() -> Result<()> {
    let mut original = original();
    original.truncate(original.len() - 3);
    let options = Options { frame_bytes: 4096, ..Options::default() };
    for length in (0..original.len()).step_by(5077) {
        let result = compress_stream(&original[..length], &options);
        assert!(matches!(result, Err(Error::File(_))), "{length}");
    }
    let longer = [&original[..], b"x"].concat();
    let result = compress_stream(&longer, &options);
    assert!(matches!(result, Err(Error::File(FileError::StreamGoesOn { .. }))), "{result:?}");
    let elements = elements(5000);
    let options = Options { dtype: Some(Dtype::Bf16), ..Options::default() };
    let result = compress_stream(&elements, &options);
    assert!(matches!(result, Err(Error::File(FileError::Options { .. }))), "{result:?}");

    let packed = compress(&original, &Options { frame_bytes: 4096, ..Options::default() })?;
    let verify = |bytes: &[u8]| file::verify_stream(&Reference, Trickle(bytes), &mut |_| Ok(()));
    for length in (0..packed.len()).step_by(1999).chain(packed.len() - 40..packed.len()) {
        assert!(verify(&packed[..length]).is_err(), "{length}");
    }
    assert!(verify(&[&packed[..], b"x"].concat()).is_err());
    for at in (0..packed.len()).step_by(499) {
        let mut flipped = packed.clone();
        flipped[at] ^= 4;
        assert!(verify(&flipped).is_err(), "{at}");
    }
    Ok(())
}

/// A frame that asks for more than there is, and one that asks for more than any file may have: no memory is taken for either.
#[test]
fn streams_of_hostile_frames() -> Result<()> {
    let packed = compress(&original(), &Options { frame_bytes: 4096, ..Options::default() })?;
    for (at, value) in [(16, u32::MAX), (20, !7), (20, 64 << 20), (16, 1 << 20)] {
        let mut file = packed.clone();
        file[128 + at..128 + at + 4].copy_from_slice(&value.to_le_bytes());
        let result = file::verify_stream(&Reference, &file[..], &mut |_| Ok(()));
        assert!(matches!(result, Err(Error::File(_))), "{at} {value}: {result:?}");
    }
    // An original whose header tells of more frames than memory could list.
    let header =
        r#"{"a":{"dtype":"BF16","shape":[4611686018427387904],"data_offsets":[0,9223372036854775808]}}"#;
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 9000]].concat();
    let stream = OriginalStream::open(&start[..], None)?;
    assert!(stream.raw_bytes() > Some(1 << 62));
    let options = Options { frame_bytes: 2048, ..Options::default() };
    let result = file::compress_stream(&Reference, stream, io::sink(), &options, &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::File(FileError::Truncated { .. }))), "{result:?}");
    Ok(())
}

/// Pieces of one tensor are coded as each is smallest, and the report says what most of it is.
#[test]
fn pieces_of_a_tensor_may_differ() -> Result<()> {
    let noise: Vec<u8> = (0..8192u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let data = [&elements(8192)[..], &noise].concat();
    let header = format!(
        r#"{{"a":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}}"#,
        data.len() / 2,
        data.len()
    );
    let original = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    let options = Options { frame_bytes: 4096, scheme: SchemeChoice::Auto, ..Options::default() };
    let mut packed = Vec::new();
    let report = file::compress(&Reference, &original, &mut packed, &options, &mut |_| Ok(()))?;
    assert_ne!(report.tensors[0].scheme, Scheme::Stored);
    assert!(packed.len() < original.len() - 1500, "{}", packed.len());
    assert_eq!(decompress(&Cpu::new(), Reader::from_bytes(&packed)?)?, original);
    let options = Options { dtype: Some(Dtype::Bf16), ..options };
    let mut plain = Vec::new();
    file::compress(&Reference, &data, &mut plain, &options, &mut |_| Ok(()))?;
    let contents = Reader::from_bytes(&plain)?.pieces()?;
    let [tensor] = contents.tensors() else { panic!("{contents:?}") };
    assert_eq!(
        (tensor.name.as_str(), tensor.dtype.as_str(), tensor.bytes),
        ("data", "BF16", data.len() as u64)
    );
    Ok(())
}

#[test]
fn contents_over_many_frames() -> Result<()> {
    let original = original();
    let packed = compress(&original, &Options { frame_bytes: 2048, ..Options::default() })?;
    for mut reader in [Reader::from_bytes(&packed)?, Reader::from_seek(Cursor::new(&packed))?] {
        let contents = reader.contents()?.expect("a safetensors file");
        let names: Vec<&str> = contents.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
        let last = original.len() as u64 - 4;
        assert_eq!(contents.tensor_at(last).map(|tensor| tensor.name.as_str()), Some("e"));
        assert_eq!(contents.tensor_at(last + 1), None);
        assert_eq!(contents.tensor_at(3), None);
    }
    Ok(())
}

#[test]
fn a_header_longer_than_a_frame() -> Result<()> {
    let header = format!(r#"{{"__metadata__":{{"a":"{}"}}}}"#, "x".repeat(9000));
    let original = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let packed = compress(&original, &Options { frame_bytes: 2048, ..Options::default() })?;
    let mut reader = Reader::from_bytes(&packed)?;
    assert_eq!(reader.frames().len(), 5);
    assert!(reader.contents()?.expect("a safetensors file").tensors().is_empty());
    assert_eq!(decompress(&Reference, reader)?, original);
    Ok(())
}

#[test]
fn reports_say_where_bytes_went() -> Result<()> {
    let original = original();
    for frame_bytes in [2048, 1 << 20] {
        let options = Options { scheme: Scheme::W4.into(), frame_bytes, ..Options::default() };
        let (report, exponents) =
            file::inspect_safetensors(&Cpu::new(), &original, &options, &mut |_| Ok(()))?;
        let packed = compress(&original, &options)?;
        let (again, counted) =
            file::inspect_file(&Reference, &mut Reader::from_bytes(&packed)?, &mut |_| Ok(()))?;
        assert_eq!((&report, &exponents), (&again, &counted));
        let totals: Vec<u64> = exponents.iter().map(|of| of.as_ref().map_or(0, |of| of.total())).collect();
        assert_eq!(totals, [5000, 0, 1024, 20_000, 10]);
        let d = &report.tensors[3];
        assert_eq!((d.scheme, d.raw_bytes, d.escapes), (Scheme::W4, 40_000, Some(0)));
        // Small frames end with a piece of half a chunk, which would not shrink.
        let chunks = d.chunks.coded + d.chunks.raw + d.chunks.equal;
        assert_eq!(chunks, if frame_bytes == 2048 { 19 } else { 20 });
        assert!(report.tensors.iter().map(|tensor| tensor.coded_bytes).sum::<u64>() < report.coded_bytes);
    }
    Ok(())
}

#[test]
fn frames_that_files_do_not_take() -> Result<()> {
    let words = elements(2048);
    let spec = |flags| FrameSpec::new(vec![TensorSpec::new("x", Dtype::Bf16, Scheme::W4, &[2048])], flags);
    let right = Flags { packed: false, ..file::FRAME_FLAGS };
    let header = Header { content: Content::Bytes, frame_limit: 4096, raw_bytes: 4096 };

    let frame = Reference.encode_to_vec(&spec(right), &[], &[&words])?;
    let packed = pack(&Frame::parse(&frame)?)?;
    let mut writer = Writer::new(Vec::new(), header)?;
    assert!(matches!(writer.push(&Frame::parse(&frame)?), Err(Error::Field { .. })), "not packed");
    let unchecked = Reference.encode_to_vec(&spec(Flags::default()), &[], &[&words])?;
    let unchecked = pack(&Frame::parse(&unchecked)?)?;
    assert!(matches!(writer.push(&Frame::parse(&unchecked)?), Err(Error::Field { .. })), "no checksums");
    writer.push(&Frame::parse(&packed)?)?;
    assert!(writer.push(&Frame::parse(&packed)?).is_err(), "more than the header says");
    let (file, length) = writer.finish([0; 32])?;
    assert_eq!(file.len() as u64, length);

    // Any bytes can be the content; the digest is the caller's, and here it is wrong.
    let mut reader = Reader::from_bytes(&file)?;
    assert_eq!(reader.contents()?, None);
    let mut out = Vec::new();
    let result = file::decompress(&Reference, &mut reader, &mut out, &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::File(FileError::Digest { .. }))));
    assert_eq!(out, words);

    let writer = Writer::new(Vec::new(), header)?;
    assert!(writer.finish([0; 32]).is_err(), "fewer than the header says");
    for frame_limit in [0, (256 << 20) + 1] {
        assert!(Writer::new(Vec::new(), Header { frame_limit, ..header }).is_err());
    }
    Ok(())
}

#[test]
fn an_empty_file_of_bytes() -> Result<()> {
    let header = Header { content: Content::Bytes, frame_limit: 1, raw_bytes: 0 };
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let digest: Vec<u8> =
        (0..32).map(|i| u8::from_str_radix(&empty[2 * i..2 * i + 2], 16).expect("digits")).collect();
    let (file, _) = Writer::new(Vec::new(), header)?.finish(digest.try_into().expect("32 bytes"))?;
    assert_eq!(file.len(), 128 + 48 + 32);
    assert!(decompress(&Reference, Reader::from_bytes(&file)?)?.is_empty());
    Ok(())
}

#[test]
fn options_that_are_not_possible() {
    for frame_bytes in [0, 1, 2047, 2049, (256 << 20) + 2048] {
        let result = compress(&original(), &Options { frame_bytes, ..Options::default() });
        assert!(matches!(result, Err(Error::File(FileError::Options { .. }))), "{frame_bytes}");
    }
}

/// An output that takes so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn outputs_that_are_full() -> Result<()> {
    let original = original();
    let options = Options { frame_bytes: 4096, ..Options::default() };
    let packed = compress(&original, &options)?;
    for room in (0..packed.len()).step_by(997) {
        let result = file::compress(&Reference, &original, Full(room), &options, &mut |_| Ok(()));
        assert!(matches!(result, Err(Error::Io(_))), "{room}");
    }
    for room in (0..original.len()).step_by(997) {
        let result =
            file::decompress(&Reference, &mut Reader::from_bytes(&packed)?, Full(room), &mut |_| Ok(()));
        assert!(matches!(result, Err(Error::Io(_))), "{room}");
    }
    Ok(())
}

#[test]
fn progress_counts_and_stops() -> Result<()> {
    let original = original();
    let options = Options { frame_bytes: 4096, ..Options::default() };
    let mut seen = Vec::new();
    let mut packed = Vec::new();
    file::compress(&Reference, &original, &mut packed, &options, &mut |done| {
        seen.push(done);
        Ok(())
    })?;
    assert!(seen.is_sorted());
    assert_eq!(seen.last(), Some(&(original.len() as u64)));
    let mut last = 0;
    file::verify(&Reference, &mut Reader::from_bytes(&packed)?, &mut |done| {
        last = done;
        Ok(())
    })?;
    assert_eq!(last, original.len() as u64);
    let result = file::verify(&Reference, &mut Reader::from_bytes(&packed)?, &mut |_| {
        Err(FileError::Interrupted.into())
    });
    assert!(matches!(result, Err(Error::File(FileError::Interrupted))));
    Ok(())
}

/// Whatever an index says, with CRCs that fit: an error, and no panic, no read outside of the file, no huge allocation.
#[test]
fn hostile_indexes() -> Result<()> {
    let packed = compress(&original(), &Options { frame_bytes: 4096, ..Options::default() })?;
    let frames = Reader::from_bytes(&packed)?.frames().len();
    let index_at = packed.len() - 32 - 48 - 40 * frames;
    let values = [0, 1, 127, 128, 4096, u64::from(u32::MAX), u64::MAX / 2, u64::MAX - 127, u64::MAX];
    let fields = (index_at + 8..packed.len() - 32).step_by(8).chain([packed.len() - 32, packed.len() - 24]);
    for (at, value) in fields.flat_map(|at| values.map(|value| (at, value))) {
        let mut file = packed.clone();
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        if file == packed {
            continue;
        }
        let footer = file.len() - 32;
        let crc = crc32fast::hash(&file[index_at..footer]);
        file[footer + 16..footer + 20].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&file[footer..footer + 20]);
        file[footer + 20..footer + 24].copy_from_slice(&crc.to_le_bytes());
        for reader in [Reader::from_bytes(&file), Reader::from_seek(Cursor::new(&file))] {
            let result = reader.and_then(|mut reader| file::verify(&Reference, &mut reader, &mut |_| Ok(())));
            assert!(result.is_err(), "byte {at} as {value:#x}");
        }
    }
    Ok(())
}
