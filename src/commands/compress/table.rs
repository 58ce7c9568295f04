//! What became of the tensors of one file: a row for all whose names differ in numbers only.

use crate::commands::{bases_text, dtype_text, escape_share, ratio_text, rest};
use crate::output::size;
use crate::table::Table;
use splitzip_host::Scheme;
use splitzip_host::file::{Report, TensorReport};

/// Tensors whose names differ in numbers only.
struct Group<'a> {
    name: String,
    dtype: String,
    scheme: Scheme,
    bases: String,
    tensors: Vec<&'a TensorReport>,
}

impl Group<'_> {
    fn row(&self) -> [String; 9] {
        let raw: u64 = self.tensors.iter().map(|tensor| tensor.raw_bytes).sum();
        let coded: u64 = self.tensors.iter().map(|tensor| tensor.coded_bytes).sum();
        [
            self.name.clone(),
            self.dtype.clone(),
            self.scheme.to_string(),
            self.bases.clone(),
            self.tensors.len().to_string(),
            size(raw),
            size(coded),
            ratio_text(raw, coded),
            escape_share(self.tensors.iter().copied()),
        ]
    }
}

/// One row a group, in the order of the file.
pub fn table(report: &Report) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for tensor in &report.tensors {
        let (name, dtype, scheme) = (pattern(&tensor.name), dtype_text(tensor), tensor.scheme);
        let bases = bases_text(tensor);
        let same = |of: &&mut Group<'_>| {
            of.name == name && of.dtype == dtype && of.scheme == scheme && of.bases == bases
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.tensors.push(tensor),
            None => groups.push(Group { name, dtype, scheme, bases, tensors: vec![tensor] }),
        }
    }
    let titles = ["tensors", "dtype", "scheme", "bases", "count", "raw", "coded", "ratio", "escapes"];
    let mut table = Table::new(4, &titles);
    groups.iter().for_each(|group| table.row(group.row()));
    let (raw, coded) = rest(report);
    let empty = String::new;
    table.row([
        "headers, index".to_owned(),
        empty(),
        empty(),
        empty(),
        empty(),
        size(raw),
        size(coded),
        empty(),
        empty(),
    ]);
    table.line();
    let (raw, coded) = (report.raw_bytes, report.coded_bytes);
    table.row([
        "total".to_owned(),
        empty(),
        empty(),
        empty(),
        report.tensors.len().to_string(),
        size(raw),
        size(coded),
        ratio_text(raw, coded),
        escape_share(&report.tensors),
    ]);
    table.text()
}

/// The name with a star for every number in it.
fn pattern(name: &str) -> String {
    let mut out = String::new();
    for part in name.chars() {
        match part {
            '0'..='9' if out.ends_with('*') => {}
            '0'..='9' => out.push('*'),
            part => out.push(part),
        }
    }
    out
}
