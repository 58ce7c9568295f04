//! Files far larger than the memory that they may take. `cargo xtask soak` and `cargo xtask large` run the large ones: 20 GiB through pipes,
//! which need no disk, and as much through files.
//!
//! The exponents are drawn from those of a real KV cache, signs and mantissas are random, so nothing but exponents can be gained. Memory is
//! limited by the system (`RLIMIT_DATA`: everything private and writable; a mapped input is neither), so an allocation beyond the limit would
//! fail; and the peak of all that is resident, pages of mapped files with it, stays below the same limit.
#![cfg(target_os = "linux")]

mod common;

use common::Place;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What either direction may have in kilobytes: 2 GiB.
const MEMORY_KIB: u64 = 2 << 20;
/// What one gains on such exponents.
const RATIO: RangeInclusive<f64> = 1.40..=1.50;
const EXPONENTS: &str = include_str!("../src/commands/bench/exponents.json");

/// The exponents of one tensor of the real cache.
#[derive(Deserialize)]
struct Exponents {
    name: String,
    counts: Vec<(u8, u64)>,
}

impl Exponents {
    /// Exponents in their shares, one of which is drawn with 16 random bits.
    fn table(&self) -> Vec<u8> {
        let total: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let (mut table, mut before) = (Vec::with_capacity(1 << 16), 0);
        for &(exponent, count) in &self.counts {
            before += count;
            table.resize((before << 16).div_ceil(total) as usize, exponent);
        }
        table
    }
}

/// A safetensors file that is made while it is written.
struct Checkpoint {
    header: Vec<u8>,
    tables: Vec<Vec<u8>>,
    tensor_bytes: u64,
}

impl Checkpoint {
    /// Tensors of `[rows, 64]`, as many as the real cache has, of about `bytes` bytes together.
    fn new(bytes: u64) -> Checkpoint {
        let all: Vec<Exponents> = serde_json::from_str(EXPONENTS).expect("the stored exponents");
        let tensor_bytes = (bytes / all.len() as u64).next_multiple_of(1 << 16);
        let entry = |(number, of): (u64, &Exponents)| {
            let (start, rows) = (number * tensor_bytes, tensor_bytes / 128);
            let end = start + tensor_bytes;
            format!(r#""{}":{{"dtype":"BF16","shape":[{rows},64],"data_offsets":[{start},{end}]}}"#, of.name)
        };
        let entries: Vec<String> = (0..).zip(&all).map(entry).collect();
        let header = common::safetensors(&format!("{{{}}}", entries.join(",")), b"");
        Checkpoint { header, tables: all.iter().map(Exponents::table).collect(), tensor_bytes }
    }

    fn bytes(&self) -> u64 {
        self.header.len() as u64 + self.tables.len() as u64 * self.tensor_bytes
    }

    /// Writes it, and returns its SHA-256.
    fn write(&self, mut out: impl Write) -> io::Result<[u8; 32]> {
        let (mut digest, mut random) = (Sha256::new(), fastrand::Rng::with_seed(7));
        let mut put = |bytes: &[u8]| {
            digest.update(bytes);
            out.write_all(bytes)
        };
        put(&self.header)?;
        let mut block = vec![0u8; 1 << 16];
        for table in &self.tables {
            for _ in 0..self.tensor_bytes >> 16 {
                for words in block.chunks_exact_mut(4) {
                    let bits = random.u64(..);
                    for (word, bits) in words.chunks_exact_mut(2).zip([bits, bits >> 32]) {
                        let (exponent, rest) = (table[(bits & 0xffff) as usize], (bits >> 16) as u16);
                        let element = (rest & 0x80) << 8 | u16::from(exponent) << 7 | rest & 0x7f;
                        word.copy_from_slice(&element.to_le_bytes());
                    }
                }
                put(&block)?;
            }
        }
        Ok(digest.finalize().into())
    }
}

/// The program with a limit of its memory.
fn limited(arguments: &[&str], files: [&Path; 2]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"ulimit -d "$LIMIT" || exit 9; exec "$0" "$@""#, env!("CARGO_BIN_EXE_splitzip")]);
    shell.args(arguments).arg(files[0]).arg("-o").arg(files[1]).args(["--device", "cpu"]);
    shell.env("LIMIT", MEMORY_KIB.to_string()).env_remove("RUST_LOG").stderr(Stdio::piped());
    shell
}

/// The most memory that a process had, in kilobytes: all that was resident, and what of it belonged to no file.
#[derive(Clone, Copy, Default, Debug)]
struct Peak {
    resident: u64,
    anonymous: u64,
}

fn watch(child: &Child) -> JoinHandle<Peak> {
    let status = format!("/proc/{}/status", child.id());
    thread::spawn(move || {
        let mut peak = Peak::default();
        while let Ok(status) = fs::read_to_string(&status) {
            let field = |name: &str| -> Option<u64> {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim().trim_end_matches(" kB").parse().ok()
            };
            // A process that has ended and is not waited for has none.
            let Some(resident) = field("VmHWM:") else { break };
            peak.resident = peak.resident.max(resident);
            peak.anonymous = peak.anonymous.max(field("RssAnon:").unwrap_or(0));
            thread::sleep(Duration::from_millis(10));
        }
        peak
    })
}

/// Waits for a child, which must succeed, and returns its peak.
fn finish(mut child: Child, watched: JoinHandle<Peak>) -> Peak {
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("stderr");
    let peak = watched.join().expect("the watcher");
    let status = child.wait().expect("wait");
    assert!(status.success(), "{status}: {said}");
    // Pages of mapped files count too.
    assert!(peak.anonymous > 0 && peak.resident < MEMORY_KIB, "{peak:?}");
    peak
}

/// Says what came of one form.
fn report(form: &str, raw: u64, coded: u64, times: &str, peaks: [Peak; 2]) {
    let ratio = raw as f64 / coded as f64;
    let mib = |kib: u64| kib >> 10;
    println!("{form}: {raw} bytes to {coded}, ratio {ratio:.4}; {times}");
    for (name, peak) in ["compress", "decompress"].iter().zip(peaks) {
        let Peak { resident, anonymous } = peak;
        println!("  {name}: peak {} MiB resident, {} MiB of it in no file", mib(resident), mib(anonymous));
    }
    assert!(RATIO.contains(&ratio), "{ratio}");
}

/// `generator | compress - | decompress -`, and the hash of what comes out.
fn through_pipes(bytes: u64) {
    let (checkpoint, started) = (Checkpoint::new(bytes), Instant::now());
    let start = |name: &str| {
        let mut command = limited(&[name], [Path::new("-"); 2]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let watched = watch(&child);
        (child, watched)
    };
    let ((mut compress, compress_peak), (mut decompress, decompress_peak)) =
        (start("compress"), start("decompress"));
    let raw = compress.stdin.take().expect("a pipe");
    let (mut coded, coded_on) =
        (compress.stdout.take().expect("a pipe"), decompress.stdin.take().expect("a pipe"));
    let mut restored = decompress.stdout.take().expect("a pipe");
    let (written, coded_bytes, read) = thread::scope(|scope| {
        let written = scope.spawn(|| checkpoint.write(raw).expect("write the original"));
        let counted = scope.spawn(move || {
            let mut coded_on = coded_on;
            io::copy(&mut coded, &mut coded_on).expect("hand the compressed bytes on")
        });
        let mut digest = Sha256::new();
        io::copy(&mut restored, &mut digest).expect("read what is restored");
        (written.join().expect("the generator"), counted.join().expect("the pipe"), digest.finalize())
    });
    let seconds = started.elapsed().as_secs_f64();
    let peaks = [finish(compress, compress_peak), finish(decompress, decompress_peak)];
    assert_eq!(written, <[u8; 32]>::from(read), "other bytes came back");
    let raw_bytes = checkpoint.bytes();
    let rate = raw_bytes as f64 / seconds / 1e9;
    report("pipes", raw_bytes, coded_bytes, &format!("{seconds:.0} s for all, {rate:.2} GB/s"), peaks);
}

fn digest_of(path: &Path) -> [u8; 32] {
    let mut digest = Sha256::new();
    io::copy(&mut File::open(path).expect("open"), &mut digest).expect("read");
    digest.finalize().into()
}

/// The same through files; at most two are there at a time.
fn through_files(bytes: u64) {
    let (checkpoint, place) = (Checkpoint::new(bytes), Place::new());
    let [original, packed, back] =
        ["original.safetensors", "packed.spz", "back"].map(|name| place.path(name));
    let written = checkpoint.write(File::create(&original).expect("create")).expect("write the original");
    let run = |name: &str, from: &PathBuf, to: &PathBuf| {
        let started = Instant::now();
        let child = limited(&[name], [from, to]).stdout(Stdio::null()).spawn().expect("the program starts");
        let watched = watch(&child);
        (finish(child, watched), started.elapsed().as_secs_f64())
    };
    let (compress, compress_seconds) = run("compress", &original, &packed);
    let raw_bytes = fs::metadata(&original).expect("the original").len();
    let coded_bytes = fs::metadata(&packed).expect("the compressed file").len();
    fs::remove_file(&original).expect("remove");
    let (decompress, decompress_seconds) = run("decompress", &packed, &back);
    assert_eq!(digest_of(&back), written, "other bytes came back");
    let rate = |seconds: f64| raw_bytes as f64 / seconds / 1e9;
    let times = format!(
        "compressed in {compress_seconds:.0} s, {:.2} GB/s, restored in {decompress_seconds:.0} s, {:.2} GB/s",
        rate(compress_seconds),
        rate(decompress_seconds)
    );
    report("files", raw_bytes, coded_bytes, &times, [compress, decompress]);
}

#[test]
fn a_small_checkpoint() {
    through_pipes(6 << 20);
    through_files(6 << 20);
}

/// `SPLITZIP_SOAK`: GiB through pipes, and behind a comma GiB through files.
#[test]
#[ignore = "takes minutes: cargo xtask soak"]
fn a_checkpoint_larger_than_memory() {
    let sizes = std::env::var("SPLITZIP_SOAK").unwrap_or_else(|_| "20,4".to_owned());
    let mut sizes = sizes.split(',').map(|size| size.trim().parse::<f64>().expect("GiB, GiB"));
    let mut next = || (sizes.next().unwrap_or(0.0) * f64::from(1 << 30)) as u64;
    let (pipes, files) = (next(), next());
    if pipes != 0 {
        through_pipes(pipes);
    }
    if files != 0 {
        through_files(files);
    }
}
