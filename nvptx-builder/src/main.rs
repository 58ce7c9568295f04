//! The command line: arguments in, library calls, text out.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use nvptx_builder::{
    Build, Home, Package, Result,
    check::{self, Report, Strictness},
    compile, doctor, setup,
};

/// Builds Rust kernel crates to PTX: finds the toolchain, splits, stamps and checks the output.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    /// The folder for what `setup` brings; default: `nvptx-builder` in the cargo target folder
    #[arg(long, global = true, value_name = "DIR", env = "NVPTX_BUILDER_HOME")]
    home: Option<PathBuf>,
    /// Show the commands that are run
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what is here, what is missing, and what to type; exit status 1 if something is missing
    Doctor {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Bring what is missing, without privileges, and say from where
    Setup,
    /// Compile a kernel crate; write one PTX file for each entry
    Build {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        targets: Targets,
        /// Where to write; default: in the home, not among the committed files
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Write even what no shipped PTX may hold (calls, local memory, data)
        #[arg(long)]
        no_lint: bool,
        /// Print entries, bounds and parameter lists for programs
        #[arg(long)]
        json: bool,
    },
    /// Rebuild and compare with the committed files, assemble them, compare the resource table; exit status 1 if anything is wrong
    Check {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        targets: Targets,
        /// Do not compile: look at the committed files as they are (needs no nightly compiler)
        #[arg(long)]
        committed_only: bool,
        /// Refuse the same code from another `core`, too
        #[arg(long, conflicts_with = "committed_only")]
        strict: bool,
    },
    /// Accept what the source builds: write PTX files and resource table
    Bless {
        #[command(flatten)]
        source: Source,
    },
}

#[derive(Args)]
struct Source {
    /// The kernel crate's manifest, or its workspace's
    #[arg(long, value_name = "PATH", default_value = "Cargo.toml")]
    manifest_path: PathBuf,
    /// The package, where the manifest is a workspace's
    #[arg(short, long)]
    package: Option<String>,
    /// A cargo feature for all targets, beside those of the manifest; may be repeated
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    features: Vec<String>,
    /// Cargo's --offline
    #[arg(long)]
    offline: bool,
    /// Cargo's --locked
    #[arg(long)]
    locked: bool,
}

#[derive(Args)]
struct Targets {
    /// Only this target, for example sm_90; may be repeated. Default: those of the manifest
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
}

impl Source {
    fn package(&self) -> Result<Package> {
        Package::read(&self.manifest_path, self.package.as_deref())
    }

    fn build(&self, home: Option<&PathBuf>) -> Build {
        let build = Build::new(&self.manifest_path).offline(self.offline).locked(self.locked);
        let build = home.into_iter().fold(build, |build, home| build.home(Home::at(home)));
        self.features.iter().fold(build, |build, feature| build.feature(feature))
    }
}

impl Targets {
    fn of(&self, build: Build) -> Build {
        self.targets.iter().fold(build, |build, target| build.target(target))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = if cli.verbose { "nvptx_builder=debug" } else { "nvptx_builder=warn" };
    let filter = tracing_subscriber::EnvFilter::new(level);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode> {
    let home_around =
        |start: &std::path::Path| cli.home.as_ref().map_or_else(|| Home::around(start), Home::at);
    match &cli.command {
        Command::Doctor { json } => {
            let diagnosis = doctor::diagnose(&home_around(".".as_ref()));
            match json {
                true => println!("{}", serde_json::to_string_pretty(&diagnosis).unwrap_or_default()),
                false => println!("{diagnosis}"),
            }
            Ok(if diagnosis.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Setup => {
            let home = home_around(".".as_ref());
            setup::setup(&home, &mut |line| println!("{line}"))?;
            println!("all there, in {}", home.folder().display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Build { source, targets, out, no_lint, json } => {
            let package = source.package()?;
            let build = targets.of(source.build(cli.home.as_ref())).lint(!no_lint);
            let out = out
                .clone()
                .unwrap_or_else(|| home_around(package.folder()).folder().join("ptx").join(&package.name));
            let entries = build.run_into(&package, &out)?;
            match json {
                true => println!("{}", compile::json(&entries)),
                false => {
                    for entry in &entries {
                        let params =
                            entry.params.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                        println!("{}: {}; {params}", out.join(entry.file()).display(), entry.bounds);
                    }
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Check { source, targets, committed_only, strict } => {
            let package = source.package()?;
            let build = targets.of(source.build(cli.home.as_ref()));
            let tools = nvptx_builder::Tools::find(&home_around(package.folder()))?;
            let strictness = if *strict { Strictness::Bytes } else { Strictness::Code };
            let report = match committed_only {
                true => check::committed(&package, &build, &tools)?,
                false => check::check(&package, &build, &tools, strictness)?,
            };
            Ok(show(&report))
        }
        Command::Bless { source } => {
            let package = source.package()?;
            let tools = nvptx_builder::Tools::find(&home_around(package.folder()))?;
            Ok(show(&check::bless(&package, &source.build(cli.home.as_ref()), &tools)?))
        }
    }
}

fn show(report: &Report) -> ExitCode {
    for note in &report.notes {
        println!("note: {note}");
    }
    for problem in &report.problems {
        println!("error: {problem}");
    }
    let count =
        |count: usize, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    let looked = format!("{}, assembled {}", count(report.files, "file"), count(report.assembled, "time"));
    match report.problems.len() {
        0 => println!("{looked}: all well"),
        problems => println!("{looked}: {}", count(problems, "error")),
    }
    if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
