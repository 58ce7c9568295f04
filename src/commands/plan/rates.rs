//! Rates of devices that one may not have at hand: the records of the repository.

use crate::failure::{Failure, Result};
use splitzip_host::policy::{DeviceRates, PolicyError, Rate, Rates, SchemeRates};
use splitzip_host::{Bases, Dtype, Scheme};
use std::path::Path;

/// What `splitzip bench --device cuda:0 --record --json` wrote on an H200.
const H200: &str = include_str!("../../../docs/gpu/bench-h200.json");

/// GB/s of encoding and decoding bf16 on one thread with AVX-512: the table "A CPU" of docs/performance.md. A test compares them.
pub const CPU: [(Scheme, f64, f64); 4] =
    [(Scheme::W4, 10.7, 12.3), (Scheme::W3, 9.3, 9.4), (Scheme::W2x3, 9.0, 9.1), (Scheme::W2x2x3, 7.1, 8.5)];

/// Rates, and where they are from.
pub struct Known {
    pub rates: Rates,
    /// The file that was given, and the devices in it.
    file: Option<(String, Vec<String>)>,
}

impl Known {
    /// The records, behind what the file says.
    pub fn new(file: Option<&Path>) -> Result<Known> {
        let wrong = |error: PolicyError| Failure::Failed(format!("docs/gpu/bench-h200.json: {error}"));
        let mut known = Rates::from_bench_json(H200).map_err(wrong)?;
        for of in &mut known.devices {
            of.device = "h200".to_owned();
        }
        let cpu = cpu(&known).map_err(wrong)?;
        known.devices.push(cpu);
        let Some(path) = file else { return Ok(Known { rates: known, file: None }) };
        let at = |reason: String| Failure::Failed(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| at(format!("cannot be read: {error}")))?;
        let mut rates = Rates::from_bench_json(&text).map_err(|error| at(error.to_string()))?;
        let devices = rates.names().into_iter().map(str::to_owned).collect();
        rates.devices.extend(known.devices);
        Ok(Known { rates, file: Some((path.display().to_string(), devices)) })
    }

    /// The device that is taken unless one says another.
    pub fn first(&self) -> String {
        self.rates.names().first().map_or_else(String::new, |&name| name.to_owned())
    }

    /// Where the rates of a device are from.
    pub fn source(&self, device: &str) -> String {
        match &self.file {
            Some((file, devices)) if devices.iter().any(|of| of == device) => file.clone(),
            _ if device == "cpu" => "docs/performance.md, one thread of a Xeon with AVX-512".to_owned(),
            _ => "docs/gpu/bench-h200.json, one NVIDIA H200".to_owned(),
        }
    }
}

/// The CPU of the table, with the ratios of the record: the data are the same tensors.
fn cpu(known: &Rates) -> Result<DeviceRates, PolicyError> {
    let mut schemes = Vec::new();
    for of in known.devices.iter().filter(|of| of.dtype == Dtype::Bf16).flat_map(|of| &of.schemes) {
        if let Some(&(scheme, encode, decode)) =
            CPU.iter().find(|row| (row.0, Bases::Chunk) == (of.scheme, of.bases))
        {
            let (encode, decode) = (Rate::new(encode * 1e9, 0.0)?, Rate::new(decode * 1e9, 0.0)?);
            schemes.push(SchemeRates { scheme, bases: Bases::Chunk, ratio: of.ratio, encode, decode });
        }
    }
    Ok(DeviceRates { device: "cpu".to_owned(), dtype: Dtype::Bf16, schemes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two numbers behind the name of a scheme in the table of AVX-512.
    #[test]
    fn the_table_of_the_cpu_is_that_of_the_document() {
        let document = include_str!("../../../docs/performance.md");
        let (_, section) = document.split_once("\n## A CPU\n").expect("the section");
        for (scheme, encode, decode) in CPU {
            let row =
                section.lines().find(|line| line.starts_with(&format!("| `{scheme}` |"))).expect("a row");
            let cells: Vec<f64> =
                row.split('|').skip(2).take(2).map(|cell| cell.trim().parse().expect("GB/s")).collect();
            assert_eq!(
                cells,
                [encode, decode],
                "{scheme}: bring CPU in src/commands/plan/rates.rs up to the document"
            );
        }
    }

    #[test]
    fn the_records_can_be_read() {
        let known = Known::new(None).expect("rates");
        assert_eq!(known.rates.names(), ["h200", "cpu"]);
        assert_eq!(known.rates.codecs("cpu", "h200", Dtype::Bf16).expect("codecs").len(), CPU.len());
    }
}
