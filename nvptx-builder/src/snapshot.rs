//! The resource table: registers, occupancy and instruction counts of every file on every architecture, as text for a diff.

use crate::{arch::Arch, sass::Counts};

/// One line of the table: one PTX file, assembled for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The target of the file.
    pub target: Arch,
    /// What it was assembled for.
    pub arch: Arch,
    /// The entry.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Resident blocks of a multiprocessor.
    pub blocks: u32,
    /// The least that `blocks` may be; `None` where the entry asks for nothing or the hardware cannot hold so many.
    pub floor: Option<u32>,
    /// Machine instructions.
    pub counts: Counts,
}

/// The whole table. Rows may come in any order.
pub fn render(rows: &[Row], opcodes: &[String]) -> String {
    let mut text = String::from(
        "# Resources\n\nWritten by `nvptx-builder bless`, compared by `nvptx-builder check`. `regs`: registers of a thread. `shared`: bytes of \
         a block.\n`blocks`: blocks of a multiprocessor that are resident at once, `floor`: the least the entry accepts. `sass`: machine\n\
         instructions, and how many of them are of some opcodes.\n",
    );
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by(|a, b| (a.target, a.arch, &a.entry).cmp(&(b.target, b.arch, &b.entry)));
    for part in rows.chunk_by(|a, b| (a.target, a.arch) == (b.target, b.arch)) {
        text.push_str(&format!("\n## PTX for {}, assembled for {}\n\n", part[0].target, part[0].arch));
        let names = ["entry", "regs", "shared", "blocks", "floor", "sass"].into_iter().map(str::to_owned);
        let mut cells = vec![names.chain(opcodes.iter().cloned()).collect::<Vec<_>>()];
        for row in part {
            let floor = row.floor.map_or("-".to_owned(), |floor| floor.to_string());
            let numbers = [row.registers.to_string(), row.shared.to_string(), row.blocks.to_string(), floor];
            let counts = std::iter::once(row.counts.instructions).chain(row.counts.opcodes.iter().copied());
            cells.push(
                std::iter::once(row.entry.clone())
                    .chain(numbers)
                    .chain(counts.map(|count| count.to_string()))
                    .collect(),
            );
        }
        text.push_str(&align(&cells));
    }
    text
}

/// A Markdown table with columns of equal width: names to the left, numbers to the right.
fn align(cells: &[Vec<String>]) -> String {
    let width = |column: usize| cells.iter().map(|line| line[column].len()).max().unwrap_or(0).max(3);
    let widths: Vec<_> = (0..cells[0].len()).map(width).collect();
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            text.push_str(&if column == 0 {
                format!("| {cell:<width$} |")
            } else {
                format!(" {cell:>width$} |")
            });
        }
        text.push('\n');
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width - usize::from(column > 0));
                text.push_str(&if column == 0 { format!("| {dashes} |") } else { format!(" {dashes}: |") });
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_aligned() {
        let row = |arch: u32, entry: &str, floor| Row {
            target: Arch::new(80),
            arch: Arch::new(arch),
            entry: entry.into(),
            registers: 32,
            shared: 6320,
            blocks: 8,
            floor,
            counts: Counts { instructions: 1234, opcodes: vec![5], predicated_redux: 0 },
        };
        let rows = [row(120, "encode", None), row(80, "encode", Some(8)), row(80, "decode_long", Some(8))];
        let text = render(&rows, &["LDG.128".into()]);
        let expected = "\n## PTX for sm_80, assembled for sm_80\n\n\
            | entry       | regs | shared | blocks | floor | sass | LDG.128 |\n\
            | ----------- | ---: | -----: | -----: | ----: | ---: | ------: |\n\
            | decode_long |   32 |   6320 |      8 |     8 | 1234 |       5 |\n\
            | encode      |   32 |   6320 |      8 |     8 | 1234 |       5 |\n\
            \n## PTX for sm_80, assembled for sm_120\n\n\
            | entry  | regs | shared | blocks | floor | sass | LDG.128 |\n\
            | ------ | ---: | -----: | -----: | ----: | ---: | ------: |\n\
            | encode |   32 |   6320 |      8 |     - | 1234 |       5 |\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
