//! An original to `.spz`. While a frame is encoded, its raw bytes are hashed, the frame before it is written, and the bytes of
//! the next are read.

use super::container::Header;
use super::original::Original;
use super::plan::{self, CUT, Part, Piece, Plan};
use super::report::{Accounts, Report, coded_bytes};
use super::stream::OriginalStream;
use super::tensors::Contents;
use super::{DEFAULT_FRAME_BYTES, FileError, MAX_FRAME_BYTES, Progress, Writer};
use crate::format::{Frame, pack};
use crate::{
    BasesChoice, CodebookChoice, CodebookFile, Dtype, Error, Executor, Result, Scheme, SchemeChoice,
    TensorSpec,
};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::io::{Read, Write};
use std::thread;

/// How a file is compressed.
#[derive(Clone, Debug)]
pub struct Options {
    /// How tensors are coded.
    pub scheme: SchemeChoice,
    /// Whose mean places the window, for schemes that have one.
    pub bases: BasesChoice,
    /// The float format of tensors whose dtype says only how large an element is (U8, I8, U16, I16), and of those of another
    /// float format of that size. `None` leaves integers alone.
    pub dtype: Option<Dtype>,
    /// Where codebooks come from, for schemes that have one: `None` takes one from a sample of every piece.
    pub codebooks: Option<CodebookFile>,
    /// The most raw bytes of a frame: a multiple of 2048, at most [`MAX_FRAME_BYTES`].
    pub frame_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scheme: SchemeChoice::Given(Scheme::W2x3),
            bases: BasesChoice::Auto,
            dtype: None,
            codebooks: None,
            frame_bytes: DEFAULT_FRAME_BYTES,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(FileError::Options { reason }.into());
        if self.frame_bytes == 0
            || self.frame_bytes > MAX_FRAME_BYTES
            || !self.frame_bytes.is_multiple_of(CUT)
        {
            let given = self.frame_bytes;
            return refuse(format!(
                "frames of {given} bytes are not possible; use a multiple of {CUT}, at most {MAX_FRAME_BYTES}"
            ));
        }
        let schemes = self.scheme.schemes();
        if self.codebooks.is_some() && !schemes.iter().any(|scheme| scheme.has_codebook()) {
            let scheme = self.scheme;
            return refuse(format!(
                "{scheme} has no codebook: leave the codebook file out, or use w4 or auto"
            ));
        }
        if let Some(dtype) = self.dtype.filter(|dtype| !dtype.is_float()) {
            let floats = Dtype::floats().map(Dtype::name).collect::<Vec<_>>().join(", ");
            return refuse(format!("{dtype} is no float format; use one of {floats}"));
        }
        Ok(())
    }
}

/// The schemes that `executor` has for tensors of `dtype`: each is tried on one element.
pub fn schemes_of(executor: &dyn Executor, dtype: Dtype) -> Vec<Scheme> {
    let has = |scheme: &Scheme| {
        let spec = plan::spec(&[Piece { at: 0, bytes: 2, spec: TensorSpec::new("", dtype, *scheme, &[1]) }]);
        !matches!(
            executor.encode_to_vec(&spec, &[], &[&[0; 2][..dtype.bytes()]]),
            Err(Error::Unsupported { .. })
        )
    };
    Scheme::ALL.iter().copied().filter(has).collect()
}

/// Compresses an original: a safetensors file, a `.npy` file, or elements of [`Options::dtype`] without a header. The same input and
/// options give the same bytes on every executor.
///
/// # Errors
/// What is none of these, options that do not go together, what the executor does not have, what the output returns, and
/// what `progress` returns.
pub fn compress(
    executor: &dyn Executor,
    input: &[u8],
    output: impl Write + Send,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report> {
    options.check()?;
    let original = Original::read(input, input.len() as u64, options.dtype)?;
    let mut rest = input;
    let next = |bytes| {
        let (part, behind) = rest.split_at(bytes);
        rest = behind;
        Ok(Cow::Borrowed(part))
    };
    run(executor, &original, next, output, options, progress)
}

/// [`compress`] of a stream whose size follows from its header: the same bytes, with one more frame in memory.
///
/// # Errors
/// As [`compress`], and a stream that has fewer or more bytes than its header says, or whose size nobody knows
/// ([`FileError::Options`]).
pub fn compress_stream(
    executor: &dyn Executor,
    stream: OriginalStream<impl Read + Send>,
    output: impl Write + Send,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report> {
    options.check()?;
    let (original, mut stream) = stream.into_known()?;
    let (expected, mut got) = (original.raw_bytes, 0);
    let next = |bytes| {
        let mut part = Vec::with_capacity(bytes);
        stream.by_ref().take(bytes as u64).read_to_end(&mut part).map_err(FileError::input)?;
        got += part.len() as u64;
        if part.len() < bytes {
            let what = "the input, as its header says,";
            return Err(FileError::Truncated { what, needed: expected, got }.into());
        }
        if got == expected && stream.read(&mut [0]).map_err(FileError::input)? != 0 {
            return Err(FileError::StreamGoesOn { expected }.into());
        }
        Ok(Cow::Owned(part))
    };
    run(executor, &original, next, output, options, progress)
}

/// The frames of an original; `next` gives the bytes of each. While one is encoded, the next is read, and the one before is written.
fn run<'a>(
    executor: &dyn Executor,
    original: &Original,
    mut next: impl FnMut(usize) -> Result<Cow<'a, [u8]>> + Send,
    output: impl Write + Send,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report> {
    let Original { content, contents, raw_bytes } = original;
    let (raw_bytes, mut plan) = (*raw_bytes, Plan::new(original, options)?);
    let header = Header { content: *content, frame_limit: options.frame_bytes as u32, raw_bytes };
    let mut writer = Writer::new(output, header)?;
    let mut accounts = Accounts::new(contents);
    let mut digest = Sha256::new();
    let (mut scratch, mut ready, mut frames) = (Vec::new(), Vec::new(), 0);
    let mut read = |parts: Vec<Part>| -> Result<(Vec<Part>, Cow<'a, [u8]>)> {
        let bytes = parts.iter().map(|part| part.bytes).sum::<u64>();
        Ok((parts, next(bytes as usize)?))
    };
    let mut present = plan.next().map(&mut read).transpose()?;
    while let Some((parts, raw)) = present {
        let (start, following) = (parts[0].at, plan.next());
        let (coded, read) = thread::scope(|scope| {
            let spawn = |name: &str| thread::Builder::new().name(name.to_owned());
            let hashed = spawn("hash").spawn_scoped(scope, || digest.update(&raw))?;
            let written = spawn("write").spawn_scoped(scope, || write(&mut writer, &ready))?;
            let read = spawn("read").spawn_scoped(scope, || following.map(&mut read).transpose())?;
            let coded = encode(executor, contents, &parts, &raw, options, &mut scratch);
            join(hashed);
            join(written)?;
            Ok::<_, Error>((coded?, join(read)?))
        })?;
        let frame = Frame::parse(&coded)?;
        accounts.add(&frame, start)?;
        tracing::debug!(
            raw_at = start,
            raw_bytes = raw.len(),
            coded_bytes = coded.len(),
            pieces = parts.len(),
            "frame"
        );
        let done = start + raw.len() as u64;
        (ready, present, frames) = (coded, read, frames + 1);
        progress(done)?;
    }
    write(&mut writer, &ready)?;
    let sha256 = digest.finalize();
    let (_, coded_bytes) = writer.finish(sha256.into())?;
    let sha256 = super::decompress::hexadecimal(&sha256);
    let mut tensors = accounts.finish();
    tensors.iter_mut().zip(plan.notes).for_each(|(tensor, note)| tensor.note = note);
    Ok(Report { raw_bytes, coded_bytes, sha256, frames, tensors })
}

/// Encodes and packs one frame. Pieces that do not shrink are stored, which takes a second try.
fn encode(
    executor: &dyn Executor,
    contents: &Contents,
    parts: &[Part],
    raw: &[u8],
    options: &Options,
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>> {
    let mut inputs = Vec::with_capacity(parts.len());
    let mut rest = raw;
    for part in parts {
        let (input, behind) = rest.split_at(part.bytes as usize);
        inputs.push(input);
        rest = behind;
    }
    let pieces = parts.iter().zip(&inputs).map(|(part, input)| plan::piece(part, contents, input, options));
    let mut pieces = pieces.collect::<Result<Vec<_>>>()?;
    let packed = encode_as(executor, &inputs, &pieces, options, scratch)?;
    let frame = Frame::parse(&packed)?;
    let mut again = false;
    for (number, piece) in pieces.iter_mut().enumerate() {
        if piece.spec.scheme != Scheme::Stored && coded_bytes(&frame.tensor(number)?) >= piece.bytes {
            tracing::debug!(tensor = piece.spec.name, "does not shrink: stored");
            let name = std::mem::take(&mut piece.spec.name);
            *piece = Piece::stored(piece.at, piece.bytes);
            piece.spec.name = name;
            again = true;
        }
    }
    if again { encode_as(executor, &inputs, &pieces, options, scratch) } else { Ok(packed) }
}

fn encode_as(
    executor: &dyn Executor,
    inputs: &[&[u8]],
    pieces: &[Piece],
    options: &Options,
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>> {
    let spec = plan::spec(pieces);
    let choice = |piece: &Piece| match &options.codebooks {
        Some(file) if piece.spec.scheme.has_codebook() => {
            file.get(&piece.spec.name, piece.spec.dtype).map(CodebookChoice::Given)
        }
        _ => Ok(CodebookChoice::Auto),
    };
    let codebooks = pieces.iter().map(choice).collect::<Result<Vec<_>>>()?;
    let needed = usize::try_from(spec.layout()?.max_frame_bytes)
        .map_err(|_| Error::TooLarge { what: "the size of the frame", bits: usize::BITS })?;
    if scratch.len() < needed {
        scratch.resize(needed, 0);
    }
    let length = executor.encode(&spec, &codebooks, inputs, scratch)?;
    pack(&Frame::parse(&scratch[..length])?)
}

fn write(writer: &mut Writer<impl Write>, frame: &[u8]) -> Result<()> {
    if frame.is_empty() { Ok(()) } else { writer.push(&Frame::parse(frame)?) }
}

/// The result of a thread; its panic goes on in this one.
pub(crate) fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
