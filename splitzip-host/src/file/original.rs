//! What the bytes of an original are: a safetensors file, a NumPy array, or elements without any header.
//!
//! Bytes say what they are by how they start, so the name of a file does not matter. Elements without a header have no start of
//! their own: they are whatever is nothing else, and only when a dtype is given. What Python pickled is refused, since reading it
//! means running it.

use super::npy;
use super::tensors::{Contents, MAX_HEADER_BYTES, Tensor};
use super::{Content, FileError, MAGIC};
use crate::{Dtype, Error, Result};

/// The bytes that are enough to see what an original is, and how long its header is.
pub(super) const START_BYTES: usize = 512;
/// The name of the one tensor of an original that has no names.
pub(super) const UNNAMED: &str = "data";

/// Which bytes of an original are which tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Original {
    /// What an `.spz` file calls it.
    pub content: Content,
    /// Its tensors.
    pub contents: Contents,
    /// Its bytes.
    pub raw_bytes: u64,
}

/// What the first bytes say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Safetensors,
    Npy,
    /// A zip archive: of torch, of NumPy, or another one.
    Archive,
    /// What Python's pickle starts with, and elements may.
    Pickle,
    Container,
    Unknown,
}

fn kind(start: &[u8]) -> Kind {
    let header = start.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    let behind = start.get(8..).unwrap_or(&[]).iter().find(|byte| !byte.is_ascii_whitespace());
    match start {
        _ if start.starts_with(&MAGIC) => Kind::Container,
        _ if start.starts_with(&npy::MAGIC) => Kind::Npy,
        _ if behind == Some(&b'{') && header.is_some_and(|length| length <= MAX_HEADER_BYTES) => {
            Kind::Safetensors
        }
        [b'P', b'K', 3, 4, ..] => Kind::Archive,
        [0x80, 2..=5, ..] => Kind::Pickle,
        _ => Kind::Unknown,
    }
}

impl Original {
    /// Reads what a whole original, or the start of one that holds its header, is. `dtype` is that of elements without a header.
    ///
    /// # Errors
    /// What is none of them, with what it is and what to do; a header that breaks its rules.
    pub fn read(start: &[u8], raw_bytes: u64, dtype: Option<Dtype>) -> Result<Original> {
        let safetensors = || {
            let contents = Contents::read(start, raw_bytes)?;
            Ok(Original { content: Content::Safetensors, contents, raw_bytes })
        };
        match kind(start) {
            Kind::Safetensors => safetensors(),
            Kind::Npy => Ok(Original {
                content: Content::Bytes,
                contents: npy::Header::read(start)?.contents(raw_bytes)?,
                raw_bytes,
            }),
            Kind::Container => Err(FileError::safetensors("it is an .spz file already")),
            Kind::Archive => Err(archive(start).into()),
            Kind::Pickle if dtype.is_none() || start.starts_with(&OLD_TORCH) => {
                Err(FileError::Convert { what: "a pickle of Python objects", code: FROM_TORCH }.into())
            }
            Kind::Pickle | Kind::Unknown => match dtype {
                Some(dtype) => Ok(elements(raw_bytes, dtype)),
                None => safetensors().map_err(|error| match error {
                    Error::File(FileError::Safetensors { reason }) if !start.is_empty() => {
                        FileError::safetensors(format!(
                            "{reason}; if it has elements and no header, say which with --dtype"
                        ))
                    }
                    error => error,
                }),
            },
        }
    }

    /// The bytes of the header, as far as the first [`START_BYTES`] tell: those that [`Original::read`] has to have.
    pub(super) fn header_bytes(start: &[u8]) -> u64 {
        match kind(start) {
            Kind::Safetensors => start.first_chunk().map_or(0, |length| 8 + u64::from_le_bytes(*length)),
            Kind::Npy => npy::Header::bytes(start),
            _ => 0,
        }
    }

    /// The same where nobody knows how many bytes follow: the size follows from the header, or is not known (`None`).
    pub(super) fn without_size(start: &[u8], dtype: Option<Dtype>) -> Result<Option<Original>> {
        let raw_bytes = match kind(start) {
            Kind::Npy => npy::Header::read(start)?.raw_bytes(),
            Kind::Safetensors => {
                let contents = Contents::read(start, u64::MAX)?;
                let ends = contents.tensors().iter().map(|tensor| tensor.at + tensor.bytes);
                Some(ends.max().unwrap_or_else(|| contents.data_at()))
            }
            // Refused, or elements up to the end, wherever it is.
            _ => return Original::read(start, start.len() as u64, dtype).map(|_| None),
        };
        raw_bytes.map(|raw_bytes| Original::read(start, raw_bytes, dtype)).transpose()
    }
}

/// Elements and nothing else, but for a last one that is not whole.
fn elements(raw_bytes: u64, dtype: Dtype) -> Original {
    let count = raw_bytes / dtype.bytes() as u64;
    let tensor = Tensor {
        name: UNNAMED.to_owned(),
        dtype: safetensors_name(dtype).to_owned(),
        shape: vec![count],
        at: 0,
        bytes: count * dtype.bytes() as u64,
    };
    Original { content: Content::Bytes, contents: Contents::new(vec![tensor], 0), raw_bytes }
}

/// The name of a dtype in the header of a safetensors file.
pub(super) fn safetensors_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bf16 => "BF16",
        Dtype::Fp16 => "F16",
        Dtype::E4m3 => "F8_E4M3",
        Dtype::E5m2 => "F8_E5M2",
        Dtype::Bytes => "U8",
    }
}

/// What a file of `torch.save` starts with before torch 1.6: protocol 2, and a number of ten bytes.
const OLD_TORCH: [u8; 14] = [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const FROM_TORCH: &str = "import sys, torch; from safetensors.torch import save_file; \
     save_file({k: v.clone().contiguous() for k, v in torch.load(sys.argv[1], map_location='cpu', weights_only=True).items()}, sys.argv[2])";
const FROM_NUMPY: &str = "import sys, numpy; from safetensors.numpy import save_file; \
     save_file({k: numpy.ascontiguousarray(v) for k, v in numpy.load(sys.argv[1]).items()}, sys.argv[2])";

/// What a zip archive holds shows in the name of its first file.
fn archive(start: &[u8]) -> FileError {
    let length =
        start.get(26..28).map_or(0, |length| usize::from(u16::from_le_bytes([length[0], length[1]])));
    let name = &start[start.len().min(30)..start.len().min(30 + length)];
    if name.ends_with(b".npy") {
        FileError::Convert { what: "an archive of NumPy arrays (.npz)", code: FROM_NUMPY }
    } else {
        FileError::Convert { what: "a zip archive, as torch.save writes them", code: FROM_TORCH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_all_kinds() {
        let safetensors = [&2u64.to_le_bytes()[..], b"{}"].concat();
        for (start, expected) in [
            (&safetensors[..], Kind::Safetensors),
            (&[&5u64.to_le_bytes()[..], b" \n {}"].concat(), Kind::Safetensors),
            (&[&100_000_001u64.to_le_bytes()[..], b"{}"].concat(), Kind::Unknown),
            (b"\x93NUMPY\x01\0", Kind::Npy),
            (b"\x93NUMPZ\x01\0", Kind::Unknown),
            (b"PK\x03\x04", Kind::Archive),
            (b"\x80\x04\x95", Kind::Pickle),
            (b"\x80\x06", Kind::Unknown),
            (&MAGIC, Kind::Container),
            (b"", Kind::Unknown),
            (&[0; 64], Kind::Unknown),
        ] {
            assert_eq!(kind(start), expected, "{start:?}");
        }
    }

    #[test]
    fn elements_need_a_dtype() {
        let noise = [7; 1001];
        assert!(Original::read(&noise, 1001, None).is_err());
        let read = Original::read(&noise, 1001, Some(Dtype::Bf16)).unwrap();
        let tensor = &read.contents.tensors()[0];
        assert_eq!(
            (tensor.shape[0], tensor.at, tensor.bytes, tensor.float()),
            (500, 0, 1000, Some(Dtype::Bf16))
        );
        assert_eq!((read.content, read.raw_bytes), (Content::Bytes, 1001));
        assert_eq!(Original::without_size(&noise, Some(Dtype::Bf16)).unwrap(), None);
    }

    #[test]
    fn what_python_pickled_is_refused() {
        let zip = |name: &[u8]| {
            let mut start = b"PK\x03\x04".to_vec();
            start.resize(26, 0);
            start.extend((name.len() as u16).to_le_bytes());
            start.extend([0, 0]);
            [&start[..], name, &[0; 99]].concat()
        };
        let what = |start: &[u8], dtype| match Original::read(start, 999, dtype) {
            Err(Error::File(FileError::Convert { what, .. })) => what,
            other => panic!("{other:?}"),
        };
        for dtype in [None, Some(Dtype::Bf16)] {
            assert!(what(&zip(b"model/data.pkl"), dtype).contains("torch.save"));
            assert!(what(&zip(b"keys.npy"), dtype).contains(".npz"));
            assert!(what(&OLD_TORCH, dtype).contains("pickle"));
        }
        assert!(what(b"\x80\x04\x95", None).contains("pickle"));
        // Two bytes are not enough to refuse elements.
        assert!(Original::read(b"\x80\x04\x95", 3, Some(Dtype::E5m2)).is_ok());
        for cut in 0..30 {
            assert!(Original::read(&zip(b"x")[..cut], 999, None).is_err());
        }
    }

    #[test]
    fn sizes_that_follow_from_headers() {
        let header = br#"{"a":{"dtype":"BF16","shape":[3],"data_offsets":[2,8]}}"#;
        let start = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        assert_eq!(Original::header_bytes(&start), start.len() as u64);
        let read = Original::without_size(&start, None).unwrap().unwrap();
        assert_eq!(read.raw_bytes, start.len() as u64 + 8);
        let empty = [&2u64.to_le_bytes()[..], b"{}"].concat();
        assert_eq!(Original::without_size(&empty, None).unwrap().unwrap().raw_bytes, 10);
    }
}
