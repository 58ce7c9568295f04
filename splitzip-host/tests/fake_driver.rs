//! The CUDA executor on a driver that fails: no driver at all, no device, one that is too old, no memory, every call in turn, kernels that never run. Each is an
//! error that says what to do, and nobody takes what is left for a frame or for decoded bits.
//!
//! The driver is `support/fake_cuda.rs`, compiled here and loaded by a second process of this test. What needs a real one is in `gpu.rs` and `gpu_faults.rs`.
#![cfg(target_os = "linux")]

use splitzip_host::conformance::{Case, Content, Member};
use splitzip_host::cuda::{Cuda, devices, driver_version};
use splitzip_host::paged::{KvLayout, KvShape};
use splitzip_host::{Bases, Cpu, Dtype, Error, Executor, Flags, Frame, Result, Scheme};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The fake driver as a library in a folder of its own.
fn build() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_cuda.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(compiler);
    command.args(["--crate-type", "cdylib", "--crate-name", "cuda", "--edition", "2024", "-o"]);
    let output = command.arg(&library).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Both names under which a driver is looked for.
    std::fs::copy(&library, folder.path().join("libcuda.so.1")).unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

/// A test of this file in a process that has the driver in `folder`.
fn run(test: &str, folder: &Path, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads", "1"]);
    command.env("LD_LIBRARY_PATH", folder).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test}, {variables:?}: {text}");
}

#[test]
fn drivers_that_fail() {
    let (_kept, folder) = build();
    run("a_device_that_does_nothing", &folder, &[]);
    run("every_call_fails_in_turn", &folder, &[]);
    run("an_old_driver", &folder, &[("FAKE_CUDA_FAULT", "cuModuleLoadData:222:0")]);
    for (variables, words) in [
        (("FAKE_CUDA_DEVICES", "0"), "no device"),
        (("FAKE_CUDA_FAULT", "cuInit:803:0"), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (("FAKE_CUDA_FAULT", "cuDeviceGetCount:3:0"), "CUDA_ERROR_NOT_INITIALIZED"),
        (("FAKE_CUDA_CAPABILITY", "75"), "7.5"),
    ] {
        run("it_is_unavailable", &folder, &[variables, ("EXPECTED_WORDS", words)]);
    }
    // A file that is no library is no driver.
    let empty = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(empty.path().join(name), "no library").unwrap();
    }
    if devices().is_err() {
        run("it_is_unavailable", empty.path(), &[("EXPECTED_WORDS", "no NVIDIA driver")]);
    }
}

#[test]
#[ignore = "started with drivers of all kinds by the test above"]
fn it_is_unavailable() {
    let words = std::env::var("EXPECTED_WORDS").unwrap();
    match Cuda::open(0) {
        Err(error @ Error::CudaUnavailable { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&words) && text.ends_with("use the cpu executor"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn case() -> Case {
    let member = Member { dtype: Dtype::Bf16, scheme: Scheme::W4, bases: Bases::Chunk };
    Case::new(member, Content::Mixed, &[90, 64], Flags::CHECKSUMS)
}

#[test]
#[ignore = "started with a driver of its own by the first test"]
fn an_old_driver() {
    // The driver is there and lists its device: what it cannot do is read our PTX.
    let cuda = Cuda::open(0).unwrap();
    assert_eq!((devices().unwrap().len(), driver_version().unwrap().cuda.as_str()), (1, "13.0"));
    let case = case();
    let text = cuda.encode_to_vec(&case.spec, &[], &case.slices()).unwrap_err().to_string();
    assert!(
        text.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION") && text.contains("driver at least"),
        "{text}"
    );
}

/// Kernels that never run, as on a device that has failed without saying so.
#[test]
#[ignore = "started with a driver of its own by the first test"]
fn a_device_that_does_nothing() {
    let cuda = Cuda::open(0).unwrap();
    let case = case();
    let frame = cuda.encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let refused = Frame::parse(&frame).unwrap_err();
    assert!(matches!(refused, Error::FrameCheck { what: "dynamic part", .. }), "{refused}");
    let frame = Cpu::new().encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let refused = cuda.decode_to_vecs(&Frame::parse(&frame).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Checksum { .. }), "{refused}");
    // More than the device has.
    let refused = cuda.allocate(1 << 40).unwrap_err().to_string();
    assert!(refused.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused}");
}

/// All that a host does with a device.
fn work(case: &Case, frame: &[u8]) -> Result<()> {
    let cuda = Cuda::open(0)?;
    devices()?;
    driver_version()?;
    let plan = cuda.plan_encode(&case.spec, &[])?;
    assert!(plan.workspace_bytes() != 0);
    cuda.encode_to_vec(&case.spec, &[], &case.slices())?;
    let decoded = cuda.decode_to_vecs(&Frame::parse(frame)?);
    match decoded {
        Err(Error::Checksum { .. }) => {}
        Err(error) => return Err(error),
        Ok(_) => panic!("nothing was decoded, and nobody has noticed"),
    }
    cuda.histogram(Dtype::Bf16, &case.inputs[0])?;
    let shape = KvShape { layers: 1, pages: 4, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };
    let paged = KvLayout::vllm(&shape).unwrap().bind_consecutive(0, 50).unwrap();
    let spec = paged.spec(Scheme::W2x3, Flags::CHECKSUMS);
    let pools = vec![0x3f; 2 * 4 * 16 * 2 * 64 * 2];
    let mut out = vec![0; spec.layout()?.max_frame_bytes as usize];
    cuda.encode_paged(&spec, &[], &paged, &[&pools], &mut out)?;
    Ok(())
}

/// Each function of the driver fails at its first call, at its second, and so on, until it is called no more.
#[test]
#[ignore = "started with a driver of its own by the first test"]
fn every_call_fails_in_turn() {
    const CALLS: [&str; 19] = [
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetAttribute",
        "cuDeviceGetName",
        "cuDeviceTotalMem_v2",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuStreamSynchronize",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemAlloc_v2",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemsetD8Async",
        "cuLaunchKernel",
    ];
    let case = case();
    let frame = Cpu::new().encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    work(&case, &frame).unwrap();
    let mut failed = 0;
    for name in CALLS {
        let mut good = 0;
        loop {
            // SAFETY: nobody else reads or writes the environment now: the test has one thread, and the pool of the CPU does not look.
            unsafe { std::env::set_var("FAKE_CUDA_FAULT", format!("{name}:700:{good}")) };
            match work(&case, &frame) {
                Ok(()) => break,
                Err(Error::Device { reason, .. } | Error::CudaUnavailable { reason }) => {
                    assert!(reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{name}, {good}: {reason}");
                }
                Err(error) => panic!("{name} fails after {good} calls: {error}"),
            }
            (good, failed) = (good + 1, failed + 1);
            assert!(good < 2000, "{name} is called for ever");
        }
        assert!(good != 0, "{name} is never called: take it out of the list");
    }
    println!("{failed} calls failed, one in each run");
    assert!(failed > 100, "{failed}");
}
