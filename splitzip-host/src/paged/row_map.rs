//! Rows that mix formats: which bytes of a token are what.

use super::PagedError;
use crate::Dtype;

/// A run of elements of one dtype in a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RowField {
    /// Its name; that of the tensor is `layers.N.name`.
    pub name: String,
    /// Where it starts in the row, in bytes.
    pub offset: u64,
    /// Its elements.
    pub elements: u64,
    /// Their dtype: [`Dtype::Bytes`] is kept as it is.
    pub dtype: Dtype,
}

impl RowField {
    /// A field with these numbers.
    pub fn new(name: &str, offset: u64, elements: u64, dtype: Dtype) -> RowField {
        RowField { name: name.to_owned(), offset, elements, dtype }
    }

    fn bytes(&self) -> Option<u64> {
        self.elements.checked_mul(self.dtype.bytes() as u64)
    }
}

/// What the bytes of a row are. Every field becomes a tensor of its own, with its own dtype, scheme and codebook; what no field names is kept as it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RowMap {
    row_bytes: u64,
    fields: Vec<RowField>,
}

impl RowMap {
    /// A row of `row_bytes` bytes. Gaps between fields and behind the last one become fields of bytes, named `bytes_` and where they start.
    ///
    /// # Errors
    /// [`PagedError::Layout`] for a field without elements, fields that overlap or reach past the row, and equal names.
    pub fn new(row_bytes: u64, fields: &[RowField]) -> Result<RowMap, PagedError> {
        let mut sorted = fields.to_vec();
        sorted.sort_by_key(|field| field.offset);
        let mut all: Vec<RowField> = Vec::with_capacity(sorted.len() + 1);
        let gap = |from: u64, to: u64| RowField::new(&format!("bytes_{from}"), from, to - from, Dtype::Bytes);
        let mut end = 0;
        for field in sorted {
            let what = || format!("field {:?} of a row of {row_bytes} bytes", field.name);
            let refuse = |reason: String| Err(PagedError::Layout { what: what(), reason });
            if field.elements == 0 {
                return refuse("it has no elements; leave it out".to_owned());
            }
            if field.offset < end {
                return refuse(format!(
                    "it starts at byte {}, and the field before it ends at {end}",
                    field.offset
                ));
            }
            let field_end = field.bytes().and_then(|bytes| field.offset.checked_add(bytes));
            let Some(field_end) = field_end.filter(|&end| end <= row_bytes) else {
                return refuse("it reaches past the row".to_owned());
            };
            if field.offset > end {
                all.push(gap(end, field.offset));
            }
            end = field_end;
            all.push(field);
        }
        if end < row_bytes {
            all.push(gap(end, row_bytes));
        }
        let mut names: Vec<&str> = all.iter().map(|field| field.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = "two fields have this name; names must be unique".to_owned();
            return Err(PagedError::Layout { what: format!("field {:?}", pair[0]), reason });
        }
        Ok(RowMap { row_bytes, fields: all })
    }

    /// A row of the latent and the rotary part of MLA, each with its own distribution: 512 and 64 elements in DeepSeek's models.
    ///
    /// # Errors
    /// As [`RowMap::new`].
    pub fn mla(dtype: Dtype, latent: u64, rope: u64) -> Result<RowMap, PagedError> {
        let bytes = |elements: u64| {
            let bytes = elements.checked_mul(dtype.bytes() as u64);
            bytes.ok_or_else(|| PagedError::Overflow { what: "a row of MLA".to_owned() })
        };
        let row = bytes(latent)?.checked_add(bytes(rope)?);
        let row = row.ok_or_else(|| PagedError::Overflow { what: "a row of MLA".to_owned() })?;
        let (at, rope) =
            (RowField::new("latent", 0, latent, dtype), RowField::new("rope", bytes(latent)?, rope, dtype));
        RowMap::new(row, &[at, rope])
    }

    /// A row of `fp8_ds_mla` (DeepSeek V3.2 in vLLM): 512 e4m3, four f32 scales (as bytes), 64 bf16; 656 bytes.
    pub fn fp8_ds_mla() -> RowMap {
        let fields = vec![
            RowField::new("latent", 0, 512, Dtype::E4m3),
            RowField::new("scales", 512, 16, Dtype::Bytes),
            RowField::new("rope", 528, 64, Dtype::Bf16),
        ];
        RowMap { row_bytes: 656, fields }
    }

    /// Bytes of the row.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Its fields, from the first byte to the last, without gaps.
    pub fn fields(&self) -> &[RowField] {
        &self.fields
    }
}
