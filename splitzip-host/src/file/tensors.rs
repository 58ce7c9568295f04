//! The header of a safetensors file: which bytes belong to which tensor.
//!
//! The `safetensors` crate knows the dtypes. Its reader is not used: it refuses gaps between tensors and lets the last of two
//! equal names win, while here every byte has to come back and every name has to be unique.

use super::FileError;
use crate::{Dtype, Result};
use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::HashSet;
use std::fmt;

/// The most bytes that a header may have, as in the `safetensors` crate.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// One tensor of an original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// The name of its dtype as in a safetensors file: `BF16`; NumPy's name where those have none.
    pub dtype: String,
    /// Its dimensions, in the order of memory.
    pub shape: Vec<u64>,
    /// Where its bytes start in the file.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Tensor {
    /// The dtype whose exponents can be counted, if it is one of ours.
    pub fn float(&self) -> Option<Dtype> {
        match self.dtype.as_str() {
            "BF16" => Some(Dtype::Bf16),
            "F16" => Some(Dtype::Fp16),
            "F8_E4M3" => Some(Dtype::E4m3),
            "F8_E5M2" => Some(Dtype::E5m2),
            _ => None,
        }
    }

    /// The dtype as which its pieces are coded; `None` for a tensor that is stored. `dtype` is the float format of tensors whose
    /// dtype says no more than the size of an element, and of other floats of that size: pools often keep floats as bytes.
    pub fn coded(&self, dtype: Option<Dtype>) -> Option<Dtype> {
        let bits = match self.dtype.as_str() {
            "U8" | "I8" | "V1" => Some(8),
            "U16" | "I16" | "V2" => Some(16),
            name if name.starts_with("F8_") => Some(8),
            _ => self.float().map(Dtype::bits),
        };
        dtype.filter(|dtype| dtype.is_float() && bits == Some(dtype.bits())).or_else(|| self.float())
    }
}

/// The tensors of an original, in the order in which they lie in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    tensors: Vec<Tensor>,
    data_at: u64,
}

impl Contents {
    /// Tensors that lie in this order, without overlap.
    pub(super) fn new(tensors: Vec<Tensor>, data_at: u64) -> Contents {
        Contents { tensors, data_at }
    }

    /// Reads the tensors from the start of a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// [`FileError::Safetensors`] with what is wrong.
    pub fn read(start: &[u8], file_bytes: u64) -> Result<Contents> {
        let refuse = |reason: String| FileError::safetensors(reason);
        let Some(length) = start.first_chunk::<8>() else {
            return Err(refuse(format!("it has {file_bytes} bytes, and its header length alone needs 8")));
        };
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER_BYTES {
            return Err(refuse(format!(
                "its first 8 bytes say that its header has {length} bytes; at most {MAX_HEADER_BYTES} are allowed"
            )));
        }
        let data_at = 8 + length;
        if data_at > file_bytes {
            return Err(refuse(format!(
                "its header has {length} bytes and needs a file of at least {data_at}, but it has {file_bytes}; it was cut \
                 off, or is something else"
            )));
        }
        let header = start.get(8..data_at as usize);
        let header = header.ok_or_else(|| refuse(format!("its header of {length} bytes is not there")))?;
        let header = std::str::from_utf8(header).map_err(|error| {
            refuse(format!("its header is not UTF-8 at byte {}", 8 + error.valid_up_to()))
        })?;
        let entries: Entries =
            serde_json::from_str(header).map_err(|error| refuse(format!("its header: {error}")))?;
        let mut tensors = Vec::with_capacity(entries.0.len());
        for (name, entry) in entries.0 {
            tensors.push(entry.check(name, data_at, file_bytes)?);
        }
        tensors.sort_by(|a, b| (a.at, a.bytes, &a.name).cmp(&(b.at, b.bytes, &b.name)));
        let mut end = data_at;
        for (number, tensor) in tensors.iter().enumerate() {
            if tensor.at < end {
                let before = &tensors[number.saturating_sub(1)].name;
                return Err(refuse(format!(
                    "tensors {before:?} and {:?} overlap; every byte may belong to one tensor only",
                    tensor.name
                )));
            }
            end = tensor.at + tensor.bytes;
        }
        Ok(Contents { tensors, data_at })
    }

    /// The tensors, in the order in which they lie in the file.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Where the header ends and the bytes of tensors start.
    pub fn data_at(&self) -> u64 {
        self.data_at
    }

    /// The tensor that byte `at` of the file belongs to.
    pub fn tensor_at(&self, at: u64) -> Option<&Tensor> {
        let number = self.tensors.partition_point(|tensor| tensor.at + tensor.bytes <= at);
        self.tensors.get(number).filter(|tensor| tensor.at <= at)
    }
}

/// What a header says about one tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    fn check(self, name: String, data_at: u64, file_bytes: u64) -> Result<Tensor> {
        let refuse = |reason: String| Err(FileError::safetensors(format!("tensor {name:?}: {reason}")));
        let (start, end) = self.data_offsets;
        let data_bytes = file_bytes - data_at;
        if start > end {
            return refuse(format!("its data_offsets are {start} and {end}; the first must not be larger"));
        }
        if end > data_bytes {
            return refuse(format!(
                "it ends at byte {end} of the data, which has {data_bytes}; the file was cut off, or is something else"
            ));
        }
        let bytes = end - start;
        let elements = self.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let Some(elements) = elements else {
            return refuse(format!("its shape {:?} has more elements than fit into 64 bits", self.shape));
        };
        // A dtype that is newer than the crate is stored like every other that is not coded: only its size is unknown.
        if let Some(bits) = element_bits(&self.dtype)
            && u128::from(elements) * u128::from(bits) != 8 * u128::from(bytes)
        {
            let whole = u128::from(elements) * u128::from(bits) / 8;
            return refuse(format!(
                "it has {bytes} bytes, but shape {:?} of {} (elements of {bits} bits) needs {whole}",
                self.shape, self.dtype
            ));
        }
        Ok(Tensor { name, dtype: self.dtype, shape: self.shape, at: data_at + start, bytes })
    }
}

/// Bits of an element of a dtype, by its name in a header.
fn element_bits(name: &str) -> Option<u64> {
    let dtype = safetensors::Dtype::deserialize(de::value::StrDeserializer::<de::value::Error>::new(name));
    dtype.ok().map(|dtype| dtype.bitsize() as u64)
}

/// The entries of a header, in its order, with unique names.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one entry a tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let (mut entries, mut names) = (Vec::new(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!(
                    "the name {name:?} occurs twice; names must be unique"
                )));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Entries(entries))
    }
}
