//! The command line of SplitZip: arguments, messages and tables. The work is done in `splitzip-host`.

mod arguments;
mod bars;
mod commands;
mod device;
mod failure;
mod output;
mod pipe;
mod progress;
#[cfg(unix)]
mod shortened;
mod table;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log(arguments.verbose);
    #[cfg(unix)]
    if let Err(error) = pipe::catch_file_size_limit().and_then(|()| shortened::catch()) {
        tracing::info!(
            "a limit of the size of files, or one that becomes shorter, may leave a temporary behind: {error}"
        );
    }
    let result = match arguments.command {
        Command::Compress(arguments) => commands::compress::run(&arguments),
        Command::Decompress(arguments) => commands::decompress::run(&arguments),
        Command::Verify(arguments) => commands::verify::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Calibrate(arguments) => commands::calibrate::run(&arguments),
        Command::Devices(arguments) => commands::devices::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Completions(arguments) => commands::manual::completions(&arguments),
        Command::Man(arguments) => commands::manual::page(&arguments),
    };
    match result {
        Ok(()) | Err(Failure::NobodyReads) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Events go to stderr: warnings always, more with `-v`, `-vv`, or as `RUST_LOG` says.
fn log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "splitzip=info,splitzip_host=info",
        _ => "splitzip=debug,splitzip_host=debug",
    };
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ => level.to_owned(),
    };
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(filter);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}
