//! Random frames for as long as one wants: shapes, dtypes, schemes, bases, flags, contents, pages, on a CPU or a GPU beside the CPU, every bit compared.
//!
//! Usage: `soak [--seconds N] [--seed N] [--device cpu|cuda:0] [--most-mib N] [--round N]`
//!
//! Every round follows from the seed and its number alone, so `--round` repeats one that has failed. Prints counts of frames and bytes every minute and at the
//! end; exit status 1 at the first round that fails.

#[path = "../tests/support/rounds/mod.rs"]
mod rounds;

use rounds::{Counts, Executors};
use splitzip_host::cuda::Cuda;
use splitzip_host::{Cpu, Executor, Reference};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    seconds: u64,
    seed: u64,
    device: String,
    most_bytes: u64,
    round: Option<u64>,
}

impl Arguments {
    fn read() -> Result<Arguments, Failure> {
        let device = "cpu".to_owned();
        let mut arguments = Arguments { seconds: 3600, seed: 1, device, most_bytes: 16 << 20, round: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--seconds" => arguments.seconds = value()?.parse()?,
                "--seed" => arguments.seed = value()?.parse()?,
                "--device" => arguments.device = value()?,
                "--most-mib" => arguments.most_bytes = value()?.parse::<u64>()?.max(1) << 20,
                "--round" => arguments.round = Some(value()?.parse()?),
                _ => {
                    let usage = "usage: soak [--seconds N] [--seed N] [--device cpu|cuda:0] [--most-mib N] [--round N]";
                    return Err(usage.into());
                }
            }
        }
        Ok(arguments)
    }
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::read()?;
    let device: Box<dyn Executor> = match arguments.device.as_str() {
        "cpu" => Box::new(Cpu::new()),
        device => {
            let number = device.strip_prefix("cuda:").ok_or("the device is cpu or cuda:N")?;
            Box::new(Cuda::open(number.parse()?)?)
        }
    };
    let other: Box<dyn Executor> = match arguments.device.as_str() {
        "cpu" => Box::new(Cpu::with_threads(1)?),
        _ => Box::new(Cpu::new()),
    };
    let executors = Executors { device: &*device, other: &*other, reference: &Reference };
    println!("{} beside {}, seed {}", device.name(), other.name(), arguments.seed);
    let (started, mut said) = (Instant::now(), Duration::ZERO);
    let mut counts = Counts::default();
    let mut round = arguments.round.unwrap_or(0);
    loop {
        if let Err(failure) =
            rounds::run(&executors, arguments.seed, round, arguments.most_bytes, &mut counts)
        {
            println!("error: {failure}");
            println!("again: soak --device {} --seed {} --round {round}", arguments.device, arguments.seed);
            return Ok(ExitCode::FAILURE);
        }
        round += 1;
        let elapsed = started.elapsed();
        let done = arguments.round.is_some() || elapsed.as_secs() >= arguments.seconds;
        if done || elapsed >= said + Duration::from_secs(60) {
            said = elapsed;
            println!("{:.0} s: {round} rounds, {counts}", elapsed.as_secs_f64());
        }
        if done {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
