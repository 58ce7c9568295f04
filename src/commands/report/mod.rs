//! `report`: what `inspect` and `plan` say of files, as one HTML page with plots.

mod arguments;
mod figures;
mod measure;
mod page;
mod parts;
mod plots;
mod transfer;

pub use arguments::ReportArguments;
pub use parts::Part;

use super::plan::links::LinkPlan;
use super::plan::{LinkChoice, Pair, with_ratios};
use super::{open, refuse_same};
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, shown, size};
use crate::pipe::{Sink, is_pipe, refuse_json, refuse_twice};
use crate::progress::{Bar, catch_interrupts};
use crate::table::Table;
use measure::FileReport;
use page::Section;
use serde::Serialize;
use splitzip_host::file::{self, Mapped, Reader};
use splitzip_host::{Executor, SchemeChoice};
use transfer::Transfer;

pub fn run(arguments: &ReportArguments) -> Result {
    let output = &*arguments.output;
    refuse_json(output, arguments.json.json)?;
    refuse_twice(&arguments.inputs)?;
    let inputs = arguments.inputs.iter().map(|path| open(path)).collect::<Result<Vec<Mapped>>>()?;
    for input in &arguments.inputs {
        refuse_same(input, output)?;
    }
    let pair = arguments.rates.pair()?;
    let work = &arguments.work;
    let executor = device::choose_with_scheme(work.device, work.threads, SchemeChoice::Auto)?;
    catch_interrupts();
    let mut sink = Sink::create(output, arguments.target.force)?;

    let total = inputs.iter().map(|input| measure::passes() * input.len() as u64).sum();
    let mut bar = Bar::new("report", total);
    let mut files = Vec::new();
    for input in &inputs {
        let restored = restore(&*executor, input)?;
        let bytes = restored.as_deref().unwrap_or(input);
        let mut progress = |done| bar.at(done);
        let told = measure::measure(&*executor, input.path(), bytes, arguments.dtype.dtype, &mut progress)?;
        bar.next(measure::passes() * input.len() as u64);
        files.push(told);
    }
    drop(bar);

    let plans = files.iter().map(|file| plan(file, &pair)).collect::<Result<Vec<_>>>()?;
    let object = Object {
        schema: SCHEMA,
        command: "report",
        splitzip: env!("CARGO_PKG_VERSION"),
        encode_on: &pair.encode_on,
        decode_on: &pair.decode_on,
        files: files.iter().zip(&plans).map(|(file, (plan, _))| FileObject { file, plan }).collect(),
    };
    let json = serde_json::to_string(&object).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut sections = Vec::new();
    for (file, (plan, codecs)) in files.iter().zip(&plans) {
        let mut figures = figures::of_file(file)?;
        if !codecs.is_empty() {
            let transfer =
                Transfer { bytes: file.raw_bytes, policy: pair.policy, codecs, about: pair.about() };
            figures.push(transfer::figure(&transfer, plan)?);
        }
        sections.push(Section { file, figures });
    }
    sink.write(page::page(&sections, &json).as_bytes(), output)?;
    sink.commit(output)?;
    if is_pipe(output) {
        return Ok(());
    }

    if arguments.json.json {
        return output::json(&object);
    }
    output::text(&format!("{}\nwritten  {}\n", table(&files), shown(output)))
}

/// The original of an `.spz` file; `None` for what is none.
fn restore(executor: &dyn Executor, input: &Mapped) -> Result<Option<Vec<u8>>> {
    if !input.starts_with(&file::MAGIC) {
        return Ok(None);
    }
    let at = |error| Failure::at(input.path())(error);
    let mut reader = Reader::from_bytes(input).map_err(at)?;
    let mut restored = Vec::new();
    file::decompress(executor, &mut reader, &mut restored, &mut |_| Ok(())).map_err(at)?;
    Ok(Some(restored))
}

/// The plan for a file on every link that has a name, with its own ratios; nothing where the devices have no rates for its dtype.
fn plan(file: &FileReport, pair: &Pair) -> Result<(Vec<LinkPlan>, Vec<splitzip_host::policy::Codec>)> {
    let codecs = match pair.codecs(file.dtype) {
        Ok(codecs) => codecs,
        Err(error) => {
            tracing::warn!("{}: there is no plan: {error}", file.input);
            return Ok((Vec::new(), Vec::new()));
        }
    };
    let codecs = with_ratios(&codecs, |codec| {
        let bases = super::plan::links::bases(codec.scheme, codec.bases);
        let coding = file.codings.iter().find(|of| (of.scheme, of.bases) == (codec.scheme, bases));
        coding.map(|of| of.ratio)
    })?;
    let links = LinkChoice::named();
    let plans = links.iter().map(|link| LinkPlan::new(&pair.policy, file.raw_bytes, link, &codecs));
    Ok((plans.collect(), codecs))
}

fn table(files: &[FileReport]) -> String {
    let mut table = Table::new(2, &["file", "scheme", "raw", "coded", "ratio"]);
    for file in files {
        for coding in &file.codings {
            let (raw, coded) = (size(file.raw_bytes), size(coding.coded_bytes));
            table.row([file.input.clone(), coding.name(), raw, coded, format!("{:.3}", coding.ratio)]);
        }
    }
    table.text()
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    splitzip: &'static str,
    encode_on: &'a str,
    decode_on: &'a str,
    files: Vec<FileObject<'a>>,
}

#[derive(Serialize)]
struct FileObject<'a> {
    #[serde(flatten)]
    file: &'a FileReport,
    plan: &'a [LinkPlan],
}
