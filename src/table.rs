//! Aligned tables.

use crate::output::printable;

/// How titles are printed where there is a terminal.
const TITLES: anstyle::Style = anstyle::Style::new().bold();
/// The most characters of a cell.
const LONGEST: usize = 60;

/// Rows of cells. The columns named in `left` start at the left, the others end at the right.
pub struct Table {
    left: usize,
    rows: Vec<Vec<String>>,
    /// Rows in front of which a line is drawn.
    lines: Vec<usize>,
}

impl Table {
    /// A table with these titles, the first `left` columns of which are text.
    pub fn new(left: usize, titles: &[&str]) -> Table {
        Table { left, rows: vec![titles.iter().map(|&title| title.to_owned()).collect()], lines: vec![1] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| clean(&cell)).collect());
    }

    /// Draws a line in front of the next row.
    pub fn line(&mut self) {
        self.lines.push(self.rows.len());
    }

    /// The text, without blanks at the end of lines.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |cell: &String| cell.chars().count();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(width).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            if self.lines.contains(&number) {
                out += &"-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1));
                out.push('\n');
            }
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                line += &if column < self.left {
                    format!("{gap}{cell:<width$}")
                } else {
                    format!("{gap}{cell:>width$}")
                };
            }
            let line = line.trim_end();
            out += &if number == 0 { format!("{TITLES}{line}{TITLES:#}\n") } else { format!("{line}\n") };
        }
        out
    }

    /// The same in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let marks = (0..self.rows[0].len()).map(|column| if column < self.left { "---" } else { "---:" });
        let marks: Vec<String> = marks.map(str::to_owned).collect();
        let titles = line(&self.rows[0]) + &line(&marks);
        self.rows[1..].iter().fold(titles, |out, row| out + &line(row))
    }
}

/// What may stand in a cell: names come from files, so control characters are written out, and what is long is cut in the middle.
fn clean(cell: &str) -> String {
    let shown: Vec<char> = printable(cell).chars().collect();
    if shown.len() <= LONGEST {
        return shown.into_iter().collect();
    }
    let (start, end) = (&shown[..LONGEST / 2], &shown[shown.len() - LONGEST / 2 + 3..]);
    start.iter().chain(&['.', '.', '.']).chain(end).collect()
}
