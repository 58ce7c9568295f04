//! What the tests of the command line share: running it, making safetensors files, looking at what it leaves behind.
#![allow(dead_code)] // every test file uses a part

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The KV cache that the repository holds.
pub fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/smollm2_prose_160.safetensors")
}

/// The program, without what the environment may say to it.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_splitzip"));
    for name in ["RUST_LOG", "RAYON_NUM_THREADS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// What a finished run that was sent bytes wrote.
#[derive(Debug)]
pub struct Piped {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// Runs it with these bytes on stdin. It may end before it has read all of them.
pub fn pipe<const N: usize>(arguments: [&dyn AsRef<std::ffi::OsStr>; N], bytes: &[u8]) -> Piped {
    let mut command = command();
    command.args(arguments.iter().map(|argument| argument.as_ref()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = stdin.write_all(bytes);
        });
        child.wait_with_output().expect("wait")
    });
    let stderr = String::from_utf8(output.stderr).expect("stderr is UTF-8");
    Piped { code: output.status.code(), stdout: output.stdout, stderr }
}

impl Piped {
    /// What it wrote, when all is well.
    #[track_caller]
    pub fn succeeds(self) -> Vec<u8> {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        self.stdout
    }

    /// It failed with this exit code and one message, which has these words.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) {
        let Piped { code: found, stderr, .. } = self;
        Run { code: found, stdout: String::new(), stderr }.fails(code, words);
    }
}

/// The text with times and rates, which differ from run to run, taken out.
pub fn untimed(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for at in 1..words.len() {
            let number = words[at - 1].parse::<f64>().is_ok();
            match words[at].trim_end_matches([',', ':']) {
                "ms" | "s" if number => (words[at - 1], words[at]) = ("TIME", ""),
                rate if number && rate.ends_with("B/s") => (words[at - 1], words[at]) = ("RATE", ""),
                _ => {}
            }
        }
        words.retain(|word| !word.is_empty());
        let indented = line.len() - line.trim_start().len();
        format!("{}{}", &line[..indented], words.join(" "))
    };
    let untimed = |text: &str| {
        if text.contains("B/s") { line(text) } else { text.to_owned() }
    };
    text.lines().map(|text| untimed(text) + "\n").collect()
}

/// What a finished run said.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}

impl Run {
    /// All is well, and nothing was said about it on stderr.
    #[track_caller]
    pub fn succeeds(self) -> Run {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "stdout: {}", self.stdout);
        self
    }

    /// It failed with this exit code and one message of one line, which has these words.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Run {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        }
        assert_eq!(self.stdout, "");
        self
    }
}

/// An argument: text or a path.
pub fn run<const N: usize>(arguments: [&dyn AsRef<std::ffi::OsStr>; N]) -> Run {
    command()
        .args(arguments.iter().map(|argument| argument.as_ref()))
        .output()
        .expect("the program starts")
        .into()
}

/// A directory for one test, and what is in it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory for tests"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with these bytes.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("write a file for a test");
        path
    }

    /// The names in the directory, sorted: a temporary that was left behind shows.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("list the directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A safetensors file of a header and data, whatever they are.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A safetensors file of tensors (name, dtype, shape, bytes), one behind the other.
pub fn safetensors_of(tensors: &[(&str, &str, &[u64], Vec<u8>)]) -> Vec<u8> {
    let mut header = String::from("{");
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let comma = if data.is_empty() && header.len() == 1 { "" } else { "," };
        let (start, end) = (data.len(), data.len() + bytes.len());
        write!(
            header,
            r#"{comma}"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        )
        .expect("a string");
        data.extend(bytes);
    }
    header.push('}');
    safetensors(&header, &data)
}

/// `count` pseudo-random bytes.
pub fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// `count` bf16 elements that look like a KV tensor: noise in sign and mantissa, few exponents, and now and then another one.
pub fn bf16(count: usize, seed: u64) -> Vec<u8> {
    let noise = noise(2 * count, seed);
    let element = |(number, pair): (usize, &[u8])| {
        if number % 97 == 50 {
            return [pair[0], pair[1]];
        }
        let exponent = 127 - pair[1].trailing_zeros() as u16 - u16::from(pair[1] & 2);
        (u16::from(pair[0] & 0x80) << 8 | exponent << 7 | u16::from(pair[0] & 0x7f)).to_le_bytes()
    };
    noise.chunks_exact(2).enumerate().flat_map(element).collect()
}

/// Compresses, restores and verifies; returns the compressed bytes.
#[track_caller]
pub fn round_trip(original: &[u8], more: &[&str]) -> Vec<u8> {
    let place = Place::new();
    let (input, packed, back) = (place.file("in", original), place.path("x.spz"), place.path("back"));
    let arguments = |run: &[&dyn AsRef<std::ffi::OsStr>], more: &[&str]| {
        let mut command = command();
        command.args(run.iter().map(|argument| argument.as_ref())).args(more).args(["--device", "cpu"]);
        Run::from(command.output().expect("the program starts")).succeeds()
    };
    arguments(&[&"compress", &input, &"-o", &packed, &"--verify"], more);
    arguments(&[&"verify", &packed, &"--against", &input], &[]);
    arguments(&[&"verify", &packed], &[]);
    arguments(&[&"decompress", &packed, &"-o", &back], &[]);
    assert!(fs::read(&back).expect("the restored file") == original, "other bytes came back");
    assert_eq!(place.names(), ["back", "in", "x.spz"]);
    fs::read(&packed).expect("the compressed file")
}
