//! `calibrate`.

use super::{open, refuse_same};
use crate::arguments::Calibrate;
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, percent, shown};
use crate::pipe::{Sink, is_pipe, refuse_json, refuse_twice};
use crate::progress::{Bar, catch_interrupts};
use crate::table::Table;
use serde::Serialize;
use splitzip_host::file::{self, Calibration, Mapped};

pub fn run(arguments: &Calibrate) -> Result {
    let output = &*arguments.output;
    refuse_json(output, arguments.json.json)?;
    refuse_twice(&arguments.inputs)?;
    let inputs = arguments.inputs.iter().map(|path| open(path)).collect::<Result<Vec<Mapped>>>()?;
    for input in &arguments.inputs {
        refuse_same(input, output)?;
    }
    let executor = device::choose(arguments.work.device, arguments.work.threads, |_| true)?;
    catch_interrupts();
    let mut sink = Sink::create(output, arguments.target.force)?;

    let mut calibration = Calibration::default();
    let mut bar = Bar::new("calibrate", inputs.iter().map(|input| input.len() as u64).sum());
    for input in &inputs {
        file::calibrate(&*executor, input, arguments.dtype.dtype, &mut calibration)
            .map_err(Failure::at(input.path()))?;
        bar.next(input.len() as u64);
        bar.at(0).map_err(Failure::at(input.path()))?;
    }
    drop(bar);
    if calibration.tensors().next().is_none() {
        let reason = "no tensor of these files has a dtype with codebooks (BF16, F16, F8_E5M2): there is nothing to calibrate";
        return Err(Failure::Failed(reason.to_owned()));
    }
    let codebooks = calibration.codebooks().map_err(Failure::at(output))?;
    sink.write(codebooks.to_json().as_bytes(), output)?;
    sink.commit(output)?;
    if is_pipe(output) {
        return Ok(());
    }

    if arguments.json.json {
        let tensors = calibration.tensors().map(|(name, exponents)| TensorObject {
            name,
            dtype: exponents.dtype().name(),
            elements: exponents.total(),
            entropy: exponents.entropy(),
            top_8: exponents.coverage(8),
            top_16: exponents.coverage(16),
        });
        return output::json(&Object {
            schema: SCHEMA,
            command: "calibrate",
            inputs: arguments.inputs.iter().map(|path| path.display().to_string()).collect(),
            output: arguments.output.display().to_string(),
            tensors: tensors.collect(),
        });
    }
    let mut table = Table::new(2, &["tensor", "dtype", "elements", "entropy", "top 8", "top 16"]);
    for (name, exponents) in calibration.tensors() {
        let (elements, entropy) = (exponents.total().to_string(), format!("{:.3}", exponents.entropy()));
        let coverage = [percent(exponents.coverage(8)), percent(exponents.coverage(16))];
        let cells = [name.to_owned(), exponents.dtype().to_string(), elements, entropy];
        table.row(cells.into_iter().chain(coverage));
    }
    output::text(&format!("{}\nwritten  {}\n", table.text(), shown(output)))
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    command: &'static str,
    inputs: Vec<String>,
    output: String,
    tensors: Vec<TensorObject<'a>>,
}

#[derive(Serialize)]
struct TensorObject<'a> {
    name: &'a str,
    dtype: &'a str,
    elements: u64,
    entropy: f64,
    top_8: f64,
    top_16: f64,
}
