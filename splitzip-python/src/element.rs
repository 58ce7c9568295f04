//! What the elements of a tensor are, as protocols describe them, and which dtype of the library that is.

use crate::error::{Fault, Result};
use splitzip_host::Dtype;

/// The type of the elements, as far as their owner says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Element {
    /// A float that the library knows.
    Float(Dtype),
    /// Integers of so many bytes, signed or not: words of whatever the caller says they are.
    Word(usize),
    /// Floats of 16 bits that are fp16 or bf16: `__cuda_array_interface__` has one type string for both.
    Half,
    /// Something else of so many bytes, with its name: stored, if one asks for it.
    Other(usize, String),
}

impl Element {
    pub fn bytes(&self) -> usize {
        match self {
            Element::Float(dtype) => dtype.bytes(),
            Element::Word(bytes) | Element::Other(bytes, _) => *bytes,
            Element::Half => 2,
        }
    }

    /// The element of a type string of `__array_interface__` or `__cuda_array_interface__`: `<f2`. Only NumPy's arrays say fp16 with it and mean it.
    pub fn of_typestr(typestr: &str, halves_are_fp16: bool) -> Result<Element> {
        let mut letters = typestr.chars();
        let (order, kind) = (letters.next().unwrap_or(' '), letters.next().unwrap_or(' '));
        let bytes: usize = letters.as_str().parse().unwrap_or(0);
        if bytes == 0 || kind == 'O' {
            return Err(Fault::dtype(format!(
                "elements of type {typestr:?} have no bytes of their own; use an array of numbers"
            )));
        }
        if order == '>' && bytes > 1 {
            return Err(Fault::dtype(format!(
                "elements of type {typestr:?} are big-endian; convert them to the byte order of this machine"
            )));
        }
        Ok(match (kind, bytes) {
            ('f', 2) if halves_are_fp16 => Element::Float(Dtype::Fp16),
            ('f', 2) => Element::Half,
            ('u' | 'i', 1 | 2) => Element::Word(bytes),
            _ => Element::Other(bytes, typestr.to_owned()),
        })
    }

    /// The element of a format string of the buffer protocol, of items of `bytes` bytes.
    pub fn of_format(format: &str, bytes: usize) -> Result<Element> {
        let native = format.trim_start_matches(['@', '=', '<']);
        if format.starts_with(['>', '!']) && bytes > 1 {
            return Err(Fault::dtype(format!(
                "the buffer has big-endian items (format {format:?}); convert them to the byte order of this machine"
            )));
        }
        if native.contains(['O', 'P']) {
            return Err(Fault::dtype(format!(
                "the buffer holds references (format {format:?}); use one of numbers"
            )));
        }
        Ok(match (native, bytes) {
            ("B" | "b" | "c", 1) | ("H" | "h", 2) => Element::Word(bytes),
            ("e", 2) => Element::Float(Dtype::Fp16),
            _ => Element::Other(bytes, format.to_owned()),
        })
    }

    /// The element of a name, as NumPy and ml_dtypes have them; `None` for one that needs a look at its type string.
    pub fn of_name(name: &str) -> Option<Element> {
        let dtype = match name {
            "bfloat16" => Dtype::Bf16,
            "float16" => Dtype::Fp16,
            "float8_e4m3fn" => Dtype::E4m3,
            "float8_e5m2" => Dtype::E5m2,
            _ => return None,
        };
        Some(Element::Float(dtype))
    }

    /// The dtype to work with, from what the elements are and what the caller says; and how many of its elements one of these is, as a fraction.
    pub fn resolve(&self, asked: Option<Dtype>) -> Result<Resolved> {
        let same = |dtype| Ok(Resolved { dtype, split: 1, join: 1 });
        match (self, asked) {
            (Element::Float(dtype), None) => same(*dtype),
            (Element::Float(dtype), Some(asked)) if *dtype == asked => same(asked),
            (element, Some(Dtype::Bytes)) => {
                Ok(Resolved { dtype: Dtype::Bytes, split: element.bytes() as u64, join: 1 })
            }
            (Element::Half, Some(asked)) if asked.bytes() == 2 => same(asked),
            (Element::Word(bytes), Some(asked)) if asked.bytes() == *bytes => same(asked),
            (Element::Word(1), Some(asked)) => {
                Ok(Resolved { dtype: asked, split: 1, join: asked.bytes() as u64 })
            }
            (Element::Float(dtype), Some(asked)) => Err(Fault::dtype(format!(
                "the elements are {dtype}, but dtype={asked} was given; leave dtype out, or give a view of them as integers"
            ))),
            (Element::Half, None) => Err(Fault::dtype(
                "__cuda_array_interface__ says \"2-byte float\" for bf16 and fp16 alike; give dtype=\"bf16\" or dtype=\"fp16\"",
            )),
            (Element::Word(bytes), None) => Err(Fault::dtype(format!(
                "{bytes}-byte integers can be words of any float; say which with dtype= ({}), or dtype=\"bytes\" to store them",
                floats_of(*bytes)
            ))),
            (Element::Word(_) | Element::Half, Some(asked)) => Err(Fault::dtype(format!(
                "elements of {} bytes cannot be {asked}, which has {}",
                self.bytes(),
                asked.bytes()
            ))),
            (Element::Other(_, name), _) => Err(Fault::dtype(format!(
                "elements of type {name} cannot be coded; bf16, fp16, e4m3 and e5m2 can, and dtype=\"bytes\" stores anything"
            ))),
        }
    }
}

/// A dtype, and how the last dimension changes: times `split`, divided by `join`.
#[derive(Clone, Copy, Debug)]
pub struct Resolved {
    pub dtype: Dtype,
    pub split: u64,
    pub join: u64,
}

fn floats_of(bytes: usize) -> String {
    let names = Dtype::floats().filter(|dtype| dtype.bytes() == bytes || bytes == 1).map(Dtype::name);
    names.collect::<Vec<_>>().join(", ")
}
