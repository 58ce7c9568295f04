//! `completions` and `man`: what a packager installs beside the program, made from the same description as the help.

use crate::arguments::{Arguments, Completions, Man};
use crate::failure::{Failure, Result};
use clap::CommandFactory;
use std::io::Write;

pub fn completions(arguments: &Completions) -> Result {
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "splitzip", &mut out);
    write(&out)
}

pub fn page(arguments: &Man) -> Result {
    let mut command = Arguments::command();
    command.build();
    let command = match &arguments.command {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).filter(|found| found.get_name() != "help").cloned();
            let names: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .filter(|name| *name != "help")
                .collect();
            found.ok_or_else(|| {
                Failure::Usage(format!(
                    "there is no command {name:?}; it must be one of {}",
                    names.join(", ")
                ))
            })?
        }
    };
    let mut out = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut out);
    rendered.map_err(|error| Failure::Failed(error.to_string()))?;
    write(&out)
}

fn write(bytes: &[u8]) -> Result {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::stdout)
}
