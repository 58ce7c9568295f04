//! The header of a `.npy` file: a magic, a version, and a Python literal with dtype, order and shape.
//!
//! The literal is read with as much of Python's grammar as NumPy writes and its specification allows. The whole file comes back
//! whatever it says; what is read only tells which bytes are elements of a float format.

use super::FileError;
use super::original::UNNAMED;
use super::tensors::{Contents, Tensor};
use crate::{Error, Result};

pub(super) const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The dtype: a name of NumPy (`<f2`), or the text of a structured one.
    descr: String,
    /// The dimensions in the order of memory, the last one fastest.
    shape: Vec<u64>,
    data_at: u64,
}

impl Header {
    /// The bytes up to the data, from the first 12 of a file; 0 for a version that is not known.
    pub(super) fn bytes(start: &[u8]) -> u64 {
        match start.get(6..12) {
            Some(&[1, _, a, b, ..]) => 10 + u64::from(u16::from_le_bytes([a, b])),
            Some(&[2 | 3, _, a, b, c, d]) => 12 + u64::from(u32::from_le_bytes([a, b, c, d])),
            _ => 0,
        }
    }

    /// Reads the header at the start of a file.
    pub(super) fn read(start: &[u8]) -> Result<Header> {
        let data_at = Header::bytes(start);
        let text = match (start.get(6), data_at) {
            (Some(1), 10..) => start.get(10..data_at as usize),
            (Some(2 | 3), 12..) => start.get(12..data_at as usize),
            (Some(&major), 0) if start.len() >= 12 => {
                return Err(refuse(format!("its version {major} is unknown; versions are 1, 2 and 3")));
            }
            _ => None,
        };
        let text = text.ok_or_else(|| {
            refuse(format!("it ends after {} bytes, inside of its header; it was cut off", start.len()))
        })?;
        let text = String::from_utf8_lossy(text);
        let (mut descr, mut shape, mut fortran_order) = (None, None, None);
        let mut rest = Literal(text.trim());
        rest.eat("{")?;
        while !rest.next_is("}") {
            let key = rest.string()?;
            rest.eat(":")?;
            match key {
                "descr" if rest.next_is("'") || rest.next_is("\"") => descr = Some(rest.string()?),
                "descr" => descr = Some(rest.list()?),
                "fortran_order" => fortran_order = Some(rest.bool()?),
                "shape" => shape = Some(rest.tuple()?),
                other => return Err(refuse(format!("its header has the unknown key {other:?}"))),
            }
            if !rest.next_is("}") {
                rest.eat(",")?;
            }
        }
        let (Some(descr), Some(mut shape), Some(fortran_order)) = (descr, shape, fortran_order) else {
            return Err(refuse("its header must have descr, fortran_order and shape".to_owned()));
        };
        if fortran_order {
            shape.reverse();
        }
        Ok(Header { descr: descr.to_owned(), shape, data_at })
    }

    /// The bytes of the whole file; `None` where an element has no fixed size that is known.
    pub(super) fn raw_bytes(&self) -> Option<u64> {
        let size = self.element_bytes()?;
        let bytes = self.shape.iter().try_fold(size, |product, &size| product.checked_mul(size))?;
        bytes.checked_add(self.data_at)
    }

    /// Bytes of an element, from the digits of a simple dtype. Unicode strings have four bytes a character.
    fn element_bytes(&self) -> Option<u64> {
        let simple = self.descr.strip_prefix(['<', '>', '|', '='])?;
        let (kind, digits) = (simple.chars().next()?, simple.get(1..)?);
        let bytes: u64 = digits.split('[').next()?.parse().ok()?;
        match kind {
            'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'V' | 'M' | 'm' => Some(bytes),
            'U' => bytes.checked_mul(4),
            _ => None,
        }
    }

    /// The one tensor of the file.
    pub(super) fn contents(&self, file_bytes: u64) -> Result<Contents> {
        let there = file_bytes.checked_sub(self.data_at);
        let there = there.ok_or_else(|| refuse("it ends inside of its header; it was cut off".to_owned()))?;
        let bytes = match self.raw_bytes() {
            Some(all) if all > file_bytes => {
                return Err(refuse(format!(
                    "shape {:?} of {:?} needs {all} bytes with the header, and there are {file_bytes}; it was cut off",
                    self.shape, self.descr
                )));
            }
            Some(all) => all - self.data_at,
            None if self.element_bytes().is_some() => {
                return Err(refuse(format!("shape {:?} has more bytes than fit into 64 bits", self.shape)));
            }
            None => there,
        };
        let tensor = Tensor {
            name: UNNAMED.to_owned(),
            dtype: self.dtype(),
            shape: self.shape.clone(),
            at: self.data_at,
            bytes,
        };
        Ok(Contents::new(vec![tensor], self.data_at))
    }

    /// The dtype by the name that a safetensors file gives it, where it has one. Numbers with the high byte first have
    /// none.
    fn dtype(&self) -> String {
        match self.descr.as_str() {
            "<f2" => "F16",
            "<f4" => "F32",
            "<f8" => "F64",
            "|u1" => "U8",
            "|i1" => "I8",
            "|b1" => "BOOL",
            "<u2" => "U16",
            "<i2" => "I16",
            "<u4" => "U32",
            "<i4" => "I32",
            "<u8" => "U64",
            "<i8" => "I64",
            // What NumPy makes of the floats of ml_dtypes, bfloat16 first of all.
            "|V1" | "<V1" => "V1",
            "|V2" | "<V2" => "V2",
            other => other,
        }
        .to_owned()
    }
}

fn refuse(reason: String) -> Error {
    FileError::Npy { reason }.into()
}

/// What is left of a Python literal.
struct Literal<'t>(&'t str);

impl<'t> Literal<'t> {
    fn next_is(&self, token: &str) -> bool {
        self.0.starts_with(token)
    }

    fn wrong(&self, wanted: &str) -> Error {
        let found: String = self.0.chars().take(20).collect();
        refuse(format!("its header has {found:?} where {wanted} must stand"))
    }

    /// Goes on behind the next `bytes` bytes, and blanks after them.
    fn skip(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest.trim_start();
        taken
    }

    fn eat(&mut self, token: &str) -> Result<()> {
        if !self.next_is(token) {
            return Err(self.wrong(token));
        }
        self.skip(token.len());
        Ok(())
    }

    fn string(&mut self) -> Result<&'t str> {
        let quote = self.0.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let end = quote.and_then(|quote| self.0[1..].find(quote));
        let end = end.ok_or_else(|| self.wrong("a string"))?;
        let quoted = self.skip(end + 2);
        Ok(&quoted[1..=end])
    }

    fn bool(&mut self) -> Result<bool> {
        let value = self.next_is("True");
        self.eat(if value { "True" } else { "False" }).map(|()| value)
    }

    /// A tuple of numbers; those that Python 2 wrote end with an `L`.
    fn tuple(&mut self) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        self.eat("(")?;
        while !self.next_is(")") {
            let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
            let number = self.0[..digits].parse().map_err(|_| self.wrong("a number of 64 bits"))?;
            self.skip(digits);
            if self.next_is("L") {
                self.eat("L")?;
            }
            out.push(number);
            if !self.next_is(")") {
                self.eat(",")?;
            }
        }
        self.eat(")").map(|()| out)
    }

    /// The text of a list, as it stands there: the fields of a structured dtype.
    fn list(&mut self) -> Result<&'t str> {
        let (mut depth, mut quote) = (0usize, None);
        for (at, found) in self.0.char_indices() {
            match (quote, found) {
                (Some(open), _) if open == found => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(found),
                (None, '[' | '(') => depth += 1,
                (None, ']' | ')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && quote.is_none() {
                return if found == ']' { Ok(self.skip(at + 1)) } else { Err(self.wrong("a dtype")) };
            }
        }
        Err(self.wrong("a dtype"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([version, 0]);
        match version {
            1 => out.extend((text.len() as u16).to_le_bytes()),
            _ => out.extend((text.len() as u32).to_le_bytes()),
        }
        out.extend(text.bytes());
        out
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let text = "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3, 64), }      \n";
        for version in [1, 2, 3] {
            let file = file(version, text);
            let header = Header::read(&file).unwrap();
            assert_eq!(header.data_at, file.len() as u64);
            assert_eq!(header.raw_bytes(), Some(file.len() as u64 + 768));
            let contents = header.contents(file.len() as u64 + 768).unwrap();
            let tensor = &contents.tensors()[0];
            assert_eq!((tensor.float(), &tensor.shape[..]), (Some(Dtype::Fp16), &[2, 3, 64][..]));
            assert!(header.contents(file.len() as u64 + 767).is_err());
            assert!((0..file.len()).all(|cut| Header::read(&file[..cut]).is_err()));
        }
        assert!(Header::read(&file(4, text)).is_err());
    }

    #[test]
    fn shapes_and_dtypes() {
        let read = |descr: &str, order: &str, shape: &str| {
            Header::read(&file(
                1,
                &format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"),
            ))
        };
        let one = read("'<f4'", "False", "(5,)").unwrap();
        assert_eq!((one.element_bytes(), &one.shape[..], one.dtype()), (Some(4), &[5][..], "F32".to_owned()));
        assert_eq!(read("'<f4'", "True", "(2, 3L)").unwrap().shape, [3, 2]);
        assert!(read("'<f4'", "False", "()").unwrap().shape.is_empty());
        for (descr, bytes, dtype) in [
            ("'|V2'", Some(2), "V2"),
            ("'<V2'", Some(2), "V2"),
            ("'>f2'", Some(2), ">f2"),
            ("'<U5'", Some(20), "<U5"),
            ("'|O'", None, "|O"),
            ("'<M8[ns]'", Some(8), "<M8[ns]"),
            ("[('a', '<f4'), ('b]', '<i8', (2, 2))]", None, "[('a', '<f4'), ('b]', '<i8', (2, 2))]"),
        ] {
            let header = read(descr, "False", "(3,)").unwrap();
            assert_eq!((header.element_bytes(), header.dtype().as_str()), (bytes, dtype), "{descr}");
        }
        for (descr, order, shape) in [
            ("'<f2", "False", "()"),
            ("5", "False", "()"),
            ("[", "False", "()"),
            ("'<f2'", "0", "()"),
            ("'<f2'", "False", "(-1,)"),
            ("'<f2'", "False", "(1"),
            ("'<f2'", "False", "(99999999999999999999,)"),
            ("'<f2'", "False", "(1,), 'more': 1"),
            ("'\u{e9}\u{e9}", "False", "(1,)"),
        ] {
            assert!(read(descr, order, shape).is_err(), "{descr} {order} {shape}");
        }
        assert!(Header::read(&file(1, "{}")).is_err());
        assert!(read("'<f2'", "False", "(9223372036854775807, 9)").unwrap().contents(u64::MAX).is_err());
    }
}
