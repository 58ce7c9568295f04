//! The damage list on every golden frame, with and without checksums: every bit of the head flipped, many bits of the rest, every truncation.
//!
//! Usage: `damage [--device reference|cpu|cuda:0] [--flips N] [--seed N]`
//!
//! A frame goes through `Frame::parse` and the executor; on a GPU it is also handed to the kernels as it is, between guards, as a frame that has come over a
//! network into device memory. Exit status 1 if anything is not noticed, reaches further than it may, or panics. Under compute-sanitizer, `--flips 200`.

#[path = "../tests/support/golden.rs"]
mod golden;

use rayon::prelude::*;
use splitzip_host::conformance::{Damage, Damaged, Victim};
use splitzip_host::cuda::{Cuda, DecodePlan, StreamHandle};
use splitzip_host::{Cpu, Executor, Reference};
use std::process::ExitCode;
use std::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Arguments {
    device: String,
    flips: usize,
    seed: u64,
}

impl Arguments {
    fn read() -> Result<Arguments, Failure> {
        let mut arguments = Arguments { device: "cpu".to_owned(), flips: 10_000, seed: 1 };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--device" => arguments.device = value()?,
                "--flips" => arguments.flips = value()?.parse()?,
                "--seed" => arguments.seed = value()?.parse()?,
                _ => {
                    return Err("usage: damage [--device reference|cpu|cuda:0] [--flips N] [--seed N]".into());
                }
            }
        }
        Ok(arguments)
    }
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::read()?;
    let victims = golden::victims_of_both_kinds();
    let start = Instant::now();
    let say = |name: &str, done: Result<Damaged, Failure>| match done {
        Ok(total) => {
            let Damaged { tried, refused, harmless, confined } = total;
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{name}: {} frames, {tried} damaged: {refused} refused, {harmless} decoded to the same bits, {confined} \
                 without checksums to other bits within their part; {seconds:.1} s",
                victims.len()
            );
            true
        }
        Err(failure) => {
            println!("{name}: error: {failure}");
            false
        }
    };
    // A panic is caught and reported with what caused it.
    std::panic::set_hook(Box::new(|_| {}));
    let parsed = |executor: &dyn Executor, victim: &Victim| -> Result<Damaged, Failure> {
        let flips = victim.check(executor, victim.flips(arguments.flips, arguments.seed))?;
        Ok(flips.and(victim.check(executor, victim.cuts())?))
    };
    let sum = |a: Damaged, b: Damaged| Ok(a.and(b));
    let good = match arguments.device.as_str() {
        "reference" => {
            let all = victims.par_iter().map(|victim| parsed(&Reference, victim));
            say("reference", all.try_reduce(Damaged::default, sum))
        }
        "cpu" => {
            let all = victims.par_iter().map(|victim| parsed(&Cpu::new(), victim));
            say(&format!("cpu ({})", Cpu::instructions()), all.try_reduce(Damaged::default, sum))
        }
        device => {
            let number = device.strip_prefix("cuda:").ok_or("the device is reference, cpu or cuda:N")?;
            let cuda = Cuda::open(number.parse()?)?;
            let total = |of: &dyn Fn(&Victim) -> Result<Damaged, Failure>| {
                victims.iter().try_fold(Damaged::default(), |total, victim| Ok(total.and(of(victim)?)))
            };
            let good = say(&cuda.name(), total(&|victim| parsed(&cuda, victim)));
            let unparsed = |victim: &Victim| {
                // A packed frame is unpacked on the host, and parsed for that.
                if victim.spec.flags.packed {
                    return Ok(Damaged::default());
                }
                Unparsed::new(&cuda, victim)?.run(victim.flips(arguments.flips, arguments.seed))
            };
            good & say(&format!("{}, not parsed", cuda.name()), total(&unparsed))
        }
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Frames that go to the kernels as they are, many at a time.
struct Unparsed<'a> {
    cuda: &'a Cuda,
    victim: &'a Victim,
    plan: DecodePlan,
    /// Where the output of each tensor starts in the memory of one frame, behind a guard.
    places: Vec<usize>,
    /// Bytes of all outputs of one frame with their guards.
    stride: usize,
}

/// Frames in flight.
const AT_ONCE: usize = 256;
/// Bytes in front of and behind every output.
const GUARD: usize = 256;
/// What stands in memory that nobody has written.
const UNWRITTEN: u8 = 0xa5;

impl<'a> Unparsed<'a> {
    fn new(cuda: &'a Cuda, victim: &'a Victim) -> Result<Unparsed<'a>, Failure> {
        let plan = cuda.plan_decode(&victim.spec)?;
        let (mut places, mut at) = (Vec::new(), GUARD);
        for input in &victim.inputs {
            places.push(at);
            at = (at + input.len() + GUARD).next_multiple_of(GUARD);
        }
        Ok(Unparsed { cuda, victim, plan, places, stride: at })
    }

    fn run(&self, flips: impl Iterator<Item = Damage>) -> Result<Damaged, Failure> {
        let dense = self.plan.layout().dense_bytes as usize;
        let list: Vec<Damage> = flips.chain((dense..self.victim.bytes.len()).map(Damage::Cut)).collect();
        let mut total = Damaged::default();
        for batch in list.chunks(AT_ONCE) {
            total = total.and(self.batch(batch)?);
        }
        Ok(total)
    }

    fn batch(&self, batch: &[Damage]) -> Result<Damaged, Failure> {
        let (cuda, tensors) = (self.cuda, self.places.len());
        let frame_stride = self.victim.bytes.len().next_multiple_of(128);
        let mut frames = vec![0u8; frame_stride * batch.len()];
        let mut lengths = Vec::new();
        for (damage, to) in batch.iter().zip(frames.chunks_mut(frame_stride)) {
            let bytes = damage.of(&self.victim.bytes);
            to[..bytes.len()].copy_from_slice(&bytes);
            lengths.push(bytes.len() as u64);
        }
        let frames = cuda.upload(&frames)?;
        let outputs = cuda.upload(&vec![UNWRITTEN; self.stride * batch.len()])?;
        // A status of 8 bytes a frame, then the sums of its tensors.
        let result_stride = 8 * (1 + tensors);
        let results = cuda.upload(&vec![0; result_stride * batch.len()])?;
        let workspace = cuda.allocate(self.plan.workspace_bytes())?;
        for (number, &length) in lengths.iter().enumerate() {
            let frame = frames.address() + (number * frame_stride) as u64;
            let output = outputs.address() + (number * self.stride) as u64;
            let addresses: Vec<u64> = self.places.iter().map(|&at| output + at as u64).collect();
            let status = results.address() + (number * result_stride) as u64;
            // SAFETY: all of it is as long as the plan says, and lives until the downloads have waited for the default stream.
            unsafe {
                self.plan.decode(
                    StreamHandle(0),
                    frame,
                    length,
                    &addresses,
                    workspace.address(),
                    status,
                    status + 8,
                )?;
            }
        }
        let (mut found, mut said) =
            (vec![0; self.stride * batch.len()], vec![0; result_stride * batch.len()]);
        cuda.download(&outputs, &mut found)?;
        cuda.download(&results, &mut said)?;
        let mut total = Damaged::default();
        for ((damage, found), said) in
            batch.iter().zip(found.chunks(self.stride)).zip(said.chunks(result_stride))
        {
            total = total.and(self.judge(*damage, found, said)?);
        }
        Ok(total)
    }

    fn judge(&self, damage: Damage, found: &[u8], said: &[u8]) -> Result<Damaged, Failure> {
        let mut outputs = Vec::new();
        let mut behind = 0;
        for (&at, input) in self.places.iter().zip(&self.victim.inputs) {
            if found[behind..at].iter().any(|&byte| byte != UNWRITTEN) {
                return Err(format!("{}: {damage:?}: writes outside of its output", self.victim.name).into());
            }
            behind = at + input.len();
            outputs.push(found[at..behind].to_vec());
        }
        if found[behind..].iter().any(|&byte| byte != UNWRITTEN) {
            return Err(format!("{}: {damage:?}: writes behind its output", self.victim.name).into());
        }
        let numbers = said.chunks_exact(8).map(|bytes| bytes.try_into().map(u64::from_le_bytes));
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        Ok(self.victim.judge_unparsed(damage, numbers[0] as u32, &outputs, &numbers[1..])?)
    }
}
