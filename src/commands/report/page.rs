//! The page: one HTML file, which needs nothing but itself. There is no script in it and its own policy forbids one, with all of the network:
//! names in it come from files of strangers. Text is escaped by maud.

use super::figures::{Figure, Numbers, Panel, percent};
use super::measure::{Coding, FileReport};
use super::parts::Part;
use crate::output::size;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use splitzip_host::Histogram;

const STYLE: &str = include_str!("style.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A file and its figures.
pub struct Section<'a> {
    pub file: &'a FileReport,
    pub figures: Vec<Figure>,
}

/// The whole page; `data` is the JSON object of the numbers.
pub fn page(sections: &[Section<'_>], data: &str) -> String {
    // Inside of a script element only `<` could end it.
    let data = data.replace('<', "\\u003c");
    let title = match sections {
        [only] => format!("{} - SplitZip report", name(only.file)),
        _ => format!("{} files - SplitZip report", sections.len()),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(format!("splitzip {}", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "SplitZip report" }
                    p { "Lossless compression of KV caches: signs and mantissas stay, exponents get short codes. All numbers are of the files themselves; \
                         every plot has its numbers behind it, and all of them are in this page as JSON (" code { "#data" } ")." }
                    @if sections.len() > 1 { (contents(sections)) }
                }
                main { @for (number, of) in sections.iter().enumerate() { (section(number, of)) } }
                script type="application/json" id="data" { (PreEscaped(data)) }
            }
        }
    };
    page.into_string()
}

/// The last part of a path.
fn name(file: &FileReport) -> &str {
    file.input.rsplit(['/', '\\']).next().unwrap_or(&file.input)
}

fn contents(sections: &[Section<'_>]) -> Markup {
    html! {
        nav aria-label="Files" {
            table {
                thead { tr { th scope="col" { "file" } th scope="col" { "raw" } th scope="col" { "best ratio" } th scope="col" { "with" } } }
                tbody {
                    @for (number, of) in sections.iter().enumerate() {
                        tr {
                            th scope="row" { a href=(format!("#file-{number}")) { (name(of.file)) } }
                            td { (size(of.file.raw_bytes)) }
                            @if let Some(best) = best(of.file) { td { (format!("{:.3}", best.ratio)) } td { (best.name()) } }
                        }
                    }
                }
            }
        }
    }
}

fn best(file: &FileReport) -> Option<&Coding> {
    file.codings.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// The ratio of a coder that gives every exponent of a tensor exactly its entropy: none that knows no more than how often exponents occur gets beyond.
fn limit(file: &FileReport) -> f64 {
    let coded: f64 = file.tensors.iter().map(|of| coded_bytes(&of.histogram)).sum();
    let tensors: u64 = file.tensors.iter().map(|of| of.raw_bytes).sum();
    file.raw_bytes as f64 / (coded + (file.raw_bytes - tensors) as f64).max(1.0)
}

fn coded_bytes(of: &Histogram) -> f64 {
    of.total() as f64 * (f64::from(of.dtype().residual_bits()) + of.entropy()) / 8.0
}

fn section(number: usize, of: &Section<'_>) -> Markup {
    let file = of.file;
    let count = |part: Part| file.tensors.iter().filter(|tensor| tensor.part == part).count();
    html! {
        section id=(format!("file-{number}")) {
            h2 { (name(file)) }
            dl class="facts" {
                div { dt { "raw" } dd { (size(file.raw_bytes)) } }
                div { dt { "dtype" } dd { (file.dtype) } }
                @for part in Part::ALL {
                    @if count(part) != 0 { div { dt { (part.name()) } dd { (count(part)) } } }
                }
                @if let Some(best) = best(file) {
                    div { dt { "best ratio" } dd { (format!("{:.3}", best.ratio)) } }
                    div { dt { "saved" } dd { (percent(1.0 - 1.0 / best.ratio)) } }
                }
                div { dt { "limit by entropy" } dd { (format!("{:.3}", limit(file))) } }
            }
            (codings(file))
            @for figure in &of.figures { (self::figure(number, figure)) }
            p class="small" { "SHA-256 of the original: " code { (file.sha256) } }
        }
    }
}

fn codings(file: &FileReport) -> Markup {
    let rows = file.codings.iter().map(|coding| {
        let escapes: u64 = coding.escapes.iter().map(|of| of.escapes).sum();
        let raw: u64 = coding.escapes.iter().map(|of| of.raw).sum();
        let elements: u64 = file.tensors.iter().map(|of| of.histogram.total()).sum();
        vec![
            coding.name(),
            size(coding.coded_bytes),
            format!("{:.4}", coding.ratio),
            percent(escapes as f64 / elements.max(1) as f64),
            raw.to_string(),
        ]
    });
    let head = ["scheme", "coded", "ratio", "escapes", "raw chunks"].map(str::to_owned);
    let table = Numbers { head: head.to_vec(), rows: rows.collect() };
    html! { div class="scroll" tabindex="0" role="region" aria-label="Ratios" { (numbers(&table, "Every scheme on the whole file")) } }
}

fn figure(number: usize, of: &Figure) -> Markup {
    html! {
        figure id=(format!("{}-{number}", of.id)) data-figure=(of.id) {
            figcaption { h3 { (of.title) } p { (of.about) } }
            @if !of.legend.is_empty() {
                ul class="legend" {
                    @for key in &of.legend {
                        li { span class=(format!("key {}{}", key.class, if key.dashed { " dashed" } else { "" })) {} (key.label) }
                    }
                }
            }
            div class="panels" { @for panel in &of.panels { (self::panel(panel)) } }
            details {
                summary { "Numbers" }
                div class="scroll" tabindex="0" role="region" aria-label=(format!("{}: numbers", of.title)) { (numbers(&of.table, &of.title)) }
            }
        }
    }
}

fn panel(of: &Panel) -> Markup {
    html! {
        div class="panel" {
            h4 { (of.title) }
            div class="plot" role="img" aria-label=(format!("{}. {}", of.title, of.alt)) { (PreEscaped(&of.svg)) }
        }
    }
}

fn numbers(table: &Numbers, caption: &str) -> Markup {
    html! {
        table {
            caption { (caption) }
            thead { tr { @for title in &table.head { th scope="col" { (title) } } } }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (column, cell) in row.iter().enumerate() {
                            @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}
