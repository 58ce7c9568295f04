//! Codebook files: what `calibrate` keeps, one codebook a tensor name, as JSON that people can read.
//!
//! ```json
//! {
//!   "format": "splitzip codebooks",
//!   "version": 1,
//!   "default": { "dtype": "bf16", "exponents": [112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127] },
//!   "tensors": {
//!     "layers.0.k": { "dtype": "bf16", "exponents": [114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129] }
//!   }
//! }
//! ```
//!
//! Reading is strict: an unknown field, version or dtype, or a codebook that is none, is an error that names the entry.

use crate::{Codebook, Dtype, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const FORMAT: &str = "splitzip codebooks";
const VERSION: u32 = 1;

/// The codebook of one tensor in a file, not yet checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodebookFileEntry {
    /// The dtype that it is for.
    pub dtype: Dtype,
    /// 16 exponents, ascending.
    pub exponents: Vec<u8>,
}

/// Codebooks by tensor name, with an optional default for names that have none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodebookFile {
    default: Option<Codebook>,
    tensors: BTreeMap<String, Codebook>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    #[serde(default)]
    default: Option<CodebookFileEntry>,
    tensors: BTreeMap<String, CodebookFileEntry>,
}

impl CodebookFile {
    /// A file without codebooks.
    pub fn new() -> CodebookFile {
        CodebookFile::default()
    }

    /// Sets the codebook for names that have none.
    pub fn set_default(&mut self, codebook: Option<Codebook>) {
        self.default = codebook;
    }

    /// The codebook for names that have none.
    pub fn default_codebook(&self) -> Option<&Codebook> {
        self.default.as_ref()
    }

    /// Sets the codebook of a name.
    pub fn insert(&mut self, name: &str, codebook: Codebook) {
        self.tensors.insert(name.to_owned(), codebook);
    }

    /// All names with their codebooks, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Codebook)> {
        self.tensors.iter().map(|(name, codebook)| (name.as_str(), codebook))
    }

    /// The codebook for a tensor: its own, or the default.
    ///
    /// # Errors
    /// [`Error::CodebookMissing`], and [`Error::CodebookDtype`] when it is for another dtype.
    pub fn get(&self, name: &str, dtype: Dtype) -> Result<Codebook> {
        let found = self.tensors.get(name).or(self.default.as_ref());
        let codebook = *found.ok_or_else(|| Error::CodebookMissing { name: name.to_owned() })?;
        if codebook.dtype() != dtype {
            let what = format!("the codebook of {name:?}");
            return Err(Error::CodebookDtype { what, expected: dtype, found: codebook.dtype() });
        }
        Ok(codebook)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::CodebookFile`] for anything that this version does not write.
    pub fn from_json(text: &str) -> Result<CodebookFile> {
        let refuse = |reason: String| Error::CodebookFile { reason };
        let document: Document = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if document.format != FORMAT {
            return Err(refuse(format!("its format is {:?}, and must be {FORMAT:?}", document.format)));
        }
        if document.version != VERSION {
            let version = document.version;
            return Err(refuse(format!(
                "version {version} is unknown; this splitzip knows {VERSION}, calibrate again"
            )));
        }
        let codebook = |name: &str, entry: CodebookFileEntry| {
            let count = entry.exponents.len();
            let exponents = entry.exponents.try_into();
            let exponents =
                exponents.map_err(|_| refuse(format!("{name} has {count} exponents, and must have 16")))?;
            Codebook::new(entry.dtype, exponents).map_err(|error| refuse(format!("{name}: {error}")))
        };
        let default = document.default.map(|entry| codebook("the default", entry)).transpose()?;
        let mut tensors = BTreeMap::new();
        for (name, entry) in document.tensors {
            let checked = codebook(&format!("{name:?}"), entry)?;
            tensors.insert(name, checked);
        }
        Ok(CodebookFile { default, tensors })
    }

    /// The text of the file: one line a codebook.
    pub fn to_json(&self) -> String {
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        let entry = |codebook: &Codebook| {
            let exponents = codebook.exponents().map(|exponent| exponent.to_string()).join(", ");
            format!("{{ \"dtype\": \"{}\", \"exponents\": [{exponents}] }}", codebook.dtype())
        };
        let mut text = format!("{{\n  \"format\": {},\n  \"version\": {VERSION},\n", quote(FORMAT));
        if let Some(default) = &self.default {
            let _ = writeln!(text, "  \"default\": {},", entry(default));
        }
        let lines: Vec<String> = self
            .tensors
            .iter()
            .map(|(name, codebook)| format!("\n    {}: {}", quote(name), entry(codebook)))
            .collect();
        let end = if lines.is_empty() { "" } else { "\n  " };
        let _ = write!(text, "  \"tensors\": {{{}{end}}}\n}}\n", lines.join(","));
        text
    }
}
