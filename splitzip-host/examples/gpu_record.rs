//! Runs the conformance list and real tensors on a GPU, and writes down what ran: with the hash of every PTX file.
//!
//! Usage: `gpu_record [--commit ID] [--device N] [--target sm_80] -o RECORD.json FILE.safetensors...`
//!
//! Every member that the executor has is run: the whole list beside the reference, then every file, cast to the dtype, beside the CPU.
//! Exit status 1 if anything differs; the record says what. `tests/record.rs` compares the record with what ships.

#[path = "../tests/support/mod.rs"]
mod support;

#[path = "../tests/support/record.rs"]
mod record;

use rayon::prelude::*;
use serde_json::{Value, json};
use splitzip_host::conformance::{Content, Member, cases_for, check, check_paged, has, members};
use splitzip_host::cuda::Cuda;
use splitzip_host::{Bases, Cpu, Executor, Flags, Frame, FrameSpec, TensorSpec};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};
use support::Tensor;

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    commit: String,
    device: usize,
    target: Option<String>,
    out: PathBuf,
    files: Vec<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, Failure> {
        let (mut commit, mut device, mut target, mut out, mut files) =
            (String::new(), 0, None, None, Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--commit" => commit = value()?,
                "--device" => device = value()?.parse()?,
                "--target" => target = Some(value()?),
                "-o" => out = Some(value()?.into()),
                _ => files.push(word.into()),
            }
        }
        let out =
            out.ok_or("usage: gpu_record [--commit ID] [--device N] [--target sm_80] -o RECORD.json FILE.safetensors...")?;
        Ok(Arguments { commit, device, target, out, files })
    }
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::read()?;
    let (mut cuda, start) = (Cuda::open(arguments.device)?, Instant::now());
    if let Some(target) = &arguments.target {
        cuda = cuda.with_target(target)?;
    }
    let mut has_members = Vec::new();
    for member in members() {
        if has(&cuda, member)? {
            has_members.push(member);
        }
    }
    let mut failures = Vec::new();
    let mut runs = Vec::new();
    for &member in &has_members {
        runs.push(list(&cuda, member, &mut failures)?);
        eprintln!("{member}: {} failures so far, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
    }
    let mut files = Vec::new();
    for path in &arguments.files {
        let tensors = support::load(path);
        for &member in &has_members {
            files.push(file(&cuda, member, path, &tensors, &mut failures)?);
        }
        eprintln!(
            "{}: {} failures so far, {:.1} s",
            path.display(),
            failures.len(),
            start.elapsed().as_secs_f64()
        );
    }
    let (info, version) = (cuda.info(), splitzip_host::cuda::driver_version()?);
    let record = json!({
        "date": date(),
        "commit": arguments.commit,
        "device": info.name,
        "compute_capability": format!("{}.{}", info.compute_capability.0, info.compute_capability.1),
        "driver": version.driver,
        "cuda": version.cuda,
        "target": cuda.target(),
        "entries": record::ptx_hashes(cuda.target()),
        "members": runs,
        "files": files,
        "failures": failures,
    });
    std::fs::write(&arguments.out, format!("{record:#}\n"))?;
    eprintln!("{} in {:.1} s", arguments.out.display(), start.elapsed().as_secs_f64());
    failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The conformance list for one member; the reference runs on all threads.
fn list(cuda: &Cuda, member: Member, failures: &mut Vec<String>) -> Result<Value, Failure> {
    let cases = cases_for(cuda, member)?;
    let frame_bytes = AtomicU64::new(0);
    let failed: Vec<String> = cases
        .par_iter()
        .filter_map(|case| match check(cuda, case) {
            Ok(bytes) => {
                frame_bytes.fetch_add(bytes, Ordering::Relaxed);
                None
            }
            Err(failure) => Some(failure),
        })
        .collect();
    let raw_bytes: usize = cases.iter().flat_map(|case| &case.inputs).map(Vec::len).sum();
    failures.extend(failed);
    let contents = [Content::Mixed, Content::Outliers, Content::ZeroRandom, Content::Far];
    failures.extend(contents.iter().filter_map(|&content| check_paged(cuda, member, content).err()));
    Ok(json!({
        "member": member.to_string(),
        "cases": cases.len(),
        "paged": contents.len(),
        "raw_bytes": raw_bytes,
        "frame_bytes": frame_bytes.into_inner(),
    }))
}

/// All tensors of a file in one frame: the bytes of the CPU, twice, and back.
fn file(
    cuda: &Cuda,
    member: Member,
    path: &Path,
    tensors: &[Tensor],
    failures: &mut Vec<String>,
) -> Result<Value, Failure> {
    let tensors: Vec<Tensor> = tensors.par_iter().map(|tensor| support::cast(tensor, member.dtype)).collect();
    let spec = |tensor: &Tensor| {
        let channel = member.bases == Bases::Channel && tensor.name.ends_with('k');
        let spec = TensorSpec::new(&tensor.name, member.dtype, member.scheme, &tensor.shape);
        spec.with_bases(if channel { Bases::Channel } else { Bases::Chunk })
    };
    let spec = FrameSpec::new(tensors.iter().map(spec).collect(), Flags::CHECKSUMS);
    let inputs: Vec<&[u8]> = tensors.iter().map(|tensor| tensor.bytes.as_slice()).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut fail = |what: &str| failures.push(format!("{name}, {member}: {what}"));
    let expected = Cpu::new().encode_to_vec(&spec, &[], &inputs)?;
    for _ in 0..2 {
        match cuda.encode_to_vec(&spec, &[], &inputs) {
            Ok(frame) if frame == expected => {}
            Ok(_) => fail("the frame is not the CPU's"),
            Err(error) => fail(&error.to_string()),
        }
    }
    match cuda.decode_to_vecs(&Frame::parse(&expected)?) {
        Ok(back) if back.iter().map(Vec::as_slice).eq(inputs.iter().copied()) => {}
        Ok(_) => fail("decoding does not give the tensors back"),
        Err(error) => fail(&error.to_string()),
    }
    Ok(json!({
        "file": name,
        "member": member.to_string(),
        "tensors": tensors.len(),
        "raw_bytes": inputs.iter().map(|input| input.len()).sum::<usize>(),
        "frame_bytes": expected.len(),
    }))
}

/// Today, by the Gregorian calendar (days to civil, H. Hinnant).
fn date() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds as i64 / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (month, day) = ((month + 2) % 12 + 1, day - (153 * month + 2) / 5 + 1);
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + i64::from(month <= 2))
}
