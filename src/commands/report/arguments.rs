//! What can be typed behind `report`.

use crate::arguments::{DtypeArguments, JsonArguments, TargetArguments, WorkArguments};
use crate::commands::plan::RatesArguments;
use clap::Args;
use std::path::PathBuf;

/// All schemes are tried on every file, with a base per chunk and with one per channel.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Safetensors or .npy files, with --dtype also files of elements without a header; .spz files, which are restored in memory; - for stdin.
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The HTML file, - for stdout.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub dtype: DtypeArguments,
    #[command(flatten)]
    pub rates: RatesArguments,
    #[command(flatten)]
    pub target: TargetArguments,
    #[command(flatten)]
    pub work: WorkArguments,
    #[command(flatten)]
    pub json: JsonArguments,
}
