//! What can be typed.

use crate::commands::bench::transfer::{Speed, WayName, What};
use crate::commands::bench::{CodebookKind, Kind, Placement, RowBases, Size};
use crate::commands::plan::Plan;
use crate::commands::report::ReportArguments;
use crate::device::DeviceChoice;
use clap::{Args, Parser, Subcommand};
use splitzip_host::file::{Options, Tokens};
use splitzip_host::{BasesChoice, Dtype, Scheme, SchemeChoice};
use std::path::PathBuf;

/// Lossless compression of LLM KV caches.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 all is well, 1 it failed, 2 it was called wrongly.")]
pub struct Arguments {
    /// Say more on stderr; twice, still more. RUST_LOG does the same in detail.
    #[arg(short, long, global = true, display_order = 900, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compress safetensors files, NumPy arrays, plain elements or whole checkpoints into .spz files.
    Compress(Compress),
    /// Restore the originals of .spz files, byte for byte.
    Decompress(Decompress),
    /// Prove that .spz files restore to what was compressed.
    Verify(Verify),
    /// Show exponents, coverage, escapes and ratio of every tensor.
    Inspect(Inspect),
    /// Count exponents over files, and keep a codebook for every tensor name.
    Calibrate(Calibrate),
    /// List what can encode and decode here.
    Devices(Devices),
    /// Measure encoding and decoding beside a copy of the same bytes.
    Bench(Box<Bench>),
    /// Say whether compression pays on a link, with which scheme, and why.
    Plan(Plan),
    /// Write an HTML page with plots of the exponents, ratios and escapes of KV caches, and of what that means on every link.
    Report(ReportArguments),
    /// Write completions for a shell to stdout.
    Completions(Completions),
    /// Write a man page to stdout.
    Man(Man),
}

#[derive(Debug, Args)]
pub struct Compress {
    /// Safetensors or .npy files, with --dtype also files of elements without a header; - for stdin; or one directory, whose safetensors
    /// files are compressed and whose other files are copied.
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The .spz file, - for stdout, for several inputs the directory that gets their files, for a directory the new one [default: IN
    /// with .spz appended; stdout for stdin].
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub coding: CodingArguments,
    /// Take codebooks from this file of `calibrate`, and not from a sample of every tensor.
    #[arg(long, value_name = "FILE")]
    pub codebook: Option<PathBuf>,
    /// Decode the result before it gets its name, and compare it with IN.
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub target: TargetArguments,
    #[command(flatten)]
    pub work: WorkArguments,
    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct Decompress {
    /// The .spz files; - for stdin; or one directory, as compress makes them.
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The restored file, - for stdout, for several inputs the directory that gets their files, for a directory the new one [default: IN
    /// without .spz; stdout for stdin].
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub part: PartArguments,
    /// Refuse files that restore to more bytes than this: for files that are not trusted, which can hold 315 times their size [default: no
    /// limit].
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["tensors", "tokens"])]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub target: TargetArguments,
    #[command(flatten)]
    pub work: WorkArguments,
    #[command(flatten)]
    pub json: JsonArguments,
}

/// With any of these the result is a safetensors file of the tensors that are left, with their shapes and the metadata of the original.
#[derive(Debug, Args)]
pub struct PartArguments {
    /// Restore only tensors whose names match, as in 'layers.3.*' or '*.[kv]'; may be repeated. OUT is then a safetensors file of these.
    #[arg(long, value_name = "PATTERN")]
    pub tensors: Vec<glob::Pattern>,
    /// Restore only these tokens of each tensor: A to B - 1, from A on, or up to B - 1.
    #[arg(long, value_name = "A..B", value_parser = tokens)]
    pub tokens: Option<Tokens>,
    /// The dimension that counts tokens, 0 the first, -1 the last [default: the last but one, or the only one].
    #[arg(long, value_name = "N", requires = "tokens", allow_negative_numbers = true)]
    pub token_axis: Option<i32>,
}

impl PartArguments {
    /// Whether all is wanted.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty() && self.tokens.is_none()
    }
}

#[derive(Debug, Args)]
pub struct Verify {
    /// The .spz files; - for stdin; or one directory of them.
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Compare the one IN with this file too, and say where it differs.
    #[arg(long, value_name = "ORIGINAL")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub work: WorkArguments,
    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// A safetensors, .npy or .spz file, with --dtype also one of elements without a header; - for stdin.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    #[command(flatten)]
    pub coding: CodingArguments,
    #[command(flatten)]
    pub work: WorkArguments,
    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct Calibrate {
    /// Safetensors or .npy files; - for stdin.
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub dtype: DtypeArguments,
    /// The codebook file, - for stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub target: TargetArguments,
    #[command(flatten)]
    pub work: WorkArguments,
    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct Devices {
    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// The command that the page is about [default: splitzip itself].
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure KV on its way: from a GPU to its host and back, to another process over loopback TCP, and to a file and back, raw and with every scheme in turn.
    Transfer(BenchTransfer),
}

#[derive(Debug, Args)]
pub struct BenchTransfer {
    /// The GPU that the KV is on: cuda:N, or auto for the first one; cpu keeps it in the memory of the host, where only TCP is measured.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// Move the bf16 tensors of this safetensors or .npy file, one behind the other, again and again up to the size [default: exponents of a real KV cache].
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Raw bytes of the request, which has the shape of Llama-3-8B, as in 4GiB [default: 4 GiB on a GPU, 256 MiB on a CPU].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "w4,w3,w2x3,w2x2x3", value_parser = coded, help = schemes_help())]
    pub schemes: Vec<Scheme>,
    /// What is measured.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "offload,tcp")]
    pub what: Vec<What>,
    /// Where files are written: an existing directory with room for the request; what is written is removed [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// How frames get to the host: staged (by the copy engine) or direct (by kernels that write to its memory).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "staged",
        hide_possible_values = true
    )]
    pub ways: Vec<WayName>,
    /// Raw bytes of a slice, which is a frame. In files it has at most an eighth of a tensor.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub slice: Size,
    /// Speeds that TCP is held to, in Gbit/s, or unshaped.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "unshaped,10g,25g,100g")]
    pub links: Vec<Speed>,
    /// Runs of everything that is measured.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub runs: u32,
    /// Receive, for the process that sends.
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pub receive: Option<String>,
    /// Write tables in Markdown.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    #[command(flatten)]
    pub json: JsonArguments,
}

/// Every list is separated by commas, and rows are measured for all that its members can be combined to.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    pub what: Option<BenchCommand>,
    /// What is measured: auto, cpu or cuda:N.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cpu")]
    pub device: Vec<DeviceChoice>,
    /// Measure the tensors of this safetensors or .npy file, - for stdin, one behind the other, again and again up to each size.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Measure generated data: histogram (exponents of a real KV cache in random order, random signs and mantissas), random5 (5 %
    /// of all exponents replaced by random ones), half-zeros (half of every chunk), zeros or incompressible; random5 and half-zeros change the
    /// tensors of --data if there is any [default: histogram, or what --data says].
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true)]
    pub generate: Vec<Kind>,
    /// Raw bytes of the tensors, as in 64KiB,1MiB,2GiB [default: 64 KiB to 2 GiB on a GPU as far as its memory goes, to 256 MiB on a CPU].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<Size>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = coded, help = schemes_help())]
    pub schemes: Vec<Scheme>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', help = bases_list_help())]
    pub bases: Vec<RowBases>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = float, help = dtypes_help())]
    pub dtypes: Vec<Dtype>,
    /// Order of the variable parts of a frame: canonical (the same bytes on every device) or arrival (as they are finished).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "canonical",
        hide_possible_values = true
    )]
    pub placement: Vec<Placement>,
    /// Codebooks of w4: auto (of a sample, found while encoding) or calibrated (of all the data, found before).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "calibrated",
        hide_possible_values = true
    )]
    pub codebook: Vec<CodebookKind>,
    /// Threads of the cpu [default: one a core].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Vec<u16>,
    /// The most runs of everything that is measured; long ones are run less often, but 5 times at least.
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub runs: u32,
    /// On the cpu, measure zstd (level 1) and lz4 behind byte planes as well.
    #[arg(long)]
    pub peers: bool,
    /// The rows of docs/performance.md: every scheme in both orders at all sizes, then other data and other dtypes at the
    /// largest one. Only --device, --data, --sizes, --threads and --runs go with it [default sizes: 1 MiB to 512 MiB].
    #[arg(long, conflicts_with_all = ["generate", "schemes", "bases", "dtypes", "placement", "codebook", "peers"])]
    pub record: bool,
    /// Write a table in Markdown.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct CodingArguments {
    #[arg(long, help = scheme_help())]
    pub scheme: Option<SchemeChoice>,
    #[arg(long, help = bases_help())]
    pub bases: Option<BasesChoice>,
    #[command(flatten)]
    pub dtype: DtypeArguments,
}

impl CodingArguments {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.scheme.is_none() && self.bases.is_none() && self.dtype.dtype.is_none()
    }

    /// The options of the library.
    pub fn options(&self) -> Options {
        let default = Options::default();
        Options {
            scheme: self.scheme.unwrap_or(default.scheme),
            bases: self.bases.unwrap_or(default.bases),
            dtype: self.dtype.dtype,
            ..default
        }
    }
}

#[derive(Debug, Args)]
pub struct DtypeArguments {
    #[arg(long, value_parser = float, help = dtype_help())]
    pub dtype: Option<Dtype>,
}

/// `w3, w2x3 and w2x2x3`.
fn listed<'a>(names: impl Iterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => names.concat(),
    }
}

fn scheme_help() -> String {
    let names = listed(Scheme::ALL.iter().map(|scheme| scheme.name()), "or");
    let default = Options::default().scheme;
    format!("How exponents are coded: auto (the smallest for every tensor), {names} [default: {default}]")
}

fn bases_help() -> String {
    let names = listed(Scheme::coded().filter(|scheme| scheme.has_window()).map(Scheme::name), "and");
    format!(
        "Whose mean places the window of {names}: chunk, channel (where a tensor can), or auto (the smaller for every \
         tensor) [default: auto]"
    )
}

fn schemes_help() -> String {
    let names = listed(Scheme::coded().map(Scheme::name), "or");
    format!("How exponents are coded: {names} [default: all that the dtype can have]")
}

fn bases_list_help() -> String {
    let names = listed(Scheme::coded().filter(|scheme| scheme.has_window()).map(Scheme::name), "and");
    format!(
        "Whose mean places the window of {names}: chunk, channel, or keys (one frame of K with channel bases and V with chunk bases, half of \
         the bytes each); others have none of it [default: chunk,channel]"
    )
}

fn dtypes_help() -> String {
    let names = listed(Dtype::floats().map(Dtype::name), "or");
    format!(
        "Dtypes of the elements: {names}. What --data does not have is made of its bf16 tensors, each scaled so that its largest number fits \
         [default: bf16, or those that --data has]"
    )
}

fn dtype_help() -> String {
    let of = |bytes| listed(Dtype::floats().filter(|dtype| dtype.bytes() == bytes).map(Dtype::name), "or");
    format!(
        "Treat U8, I8 and F8 tensors as {}, or U16, I16, F16 and BF16 tensors as {}, and so bytes without a header. Tensors of other dtypes are left alone",
        of(1),
        of(2)
    )
}

/// `2..5`, `2..` or `..5`.
fn tokens(text: &str) -> Result<Tokens, String> {
    let refuse = || format!("{text:?} is no range of tokens; say A..B, A.. or ..B with A not above B");
    let (start, end) = text.split_once("..").ok_or_else(refuse)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| refuse());
    let end = if end.is_empty() { None } else { Some(number(end)?) };
    let start = match start {
        "" if end.is_none() => return Err(refuse()),
        "" => 0,
        start => number(start)?,
    };
    if end.is_some_and(|end| end < start) { Err(refuse()) } else { Ok(Tokens { start, end }) }
}

/// A dtype that is coded; `bytes` is none.
pub fn float(text: &str) -> Result<Dtype, String> {
    let found = Dtype::floats().find(|dtype| dtype.name() == text);
    found.ok_or_else(|| {
        let names = Dtype::floats().map(Dtype::name).collect::<Vec<_>>().join(", ");
        format!("there is no float format {text:?}; it must be one of {names}")
    })
}

/// A scheme that codes something: a copy is measured anyway.
fn coded(text: &str) -> Result<Scheme, String> {
    let found = Scheme::coded().find(|scheme| scheme.name() == text);
    found.ok_or_else(|| {
        let names = Scheme::coded().map(Scheme::name).collect::<Vec<_>>().join(", ");
        format!("there is no scheme {text:?} to measure; it must be one of {names}")
    })
}

#[derive(Debug, Args)]
pub struct TargetArguments {
    /// Replace the output file if it exists.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct WorkArguments {
    /// What encodes and decodes: auto, cpu or cuda:N.
    #[arg(long, default_value = "auto")]
    pub device: DeviceChoice,
    /// Threads of the cpu [default: one a core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

#[derive(Debug, Args)]
pub struct JsonArguments {
    /// Write the result to stdout as one JSON object.
    #[arg(long)]
    pub json: bool,
}
