//! Faults in the path to a device: memory of the wrong kind or of another device, streams of another device, no memory left, errors of others, buffers that
//! overlap, threads that have not seen CUDA. Each is an error that says what is wrong, or works; and afterwards the device still codes, or says that it does not.
//!
//! Without a device every test says on stderr that it was skipped; some need two. `fake_driver.rs` has the faults of drivers, which need none.

use cudarc::driver::{result, sys};
use splitzip_host::conformance::{Case, Content, Member, check};
use splitzip_host::cuda::{self, Cuda, DeviceBytes, StreamHandle};
use splitzip_host::{Bases, Cpu, Dtype, Error, Executor, Flags, Frame, Scheme};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

#[path = "support/device.rs"]
mod device;
#[path = "support/devices.rs"]
mod devices;
use device::device;
use devices::{in_its_own_process, two_devices};

/// One test at a time has the device: one of them takes all of its memory.
static TURN: Mutex<()> = Mutex::new(());

macro_rules! turn {
    ($get:ident, $name:literal) => {{
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        match $get($name) {
            Some(found) => (found, turn),
            None => return,
        }
    }};
}

/// A frame without checksums: encoding is one launch, which says itself what it was given.
fn case() -> Case {
    let member = Member { dtype: Dtype::Bf16, scheme: Scheme::W2x3, bases: Bases::Chunk };
    Case::new(member, Content::Mixed, &[900, 64], Flags::default())
}

/// Everything that one case needs on a device, and what it is asked to do.
struct Work {
    case: Case,
    frame: DeviceBytes,
    input: DeviceBytes,
    output: DeviceBytes,
    workspace: DeviceBytes,
    status: DeviceBytes,
    encode: splitzip_host::cuda::EncodePlan,
    decode: splitzip_host::cuda::DecodePlan,
}

/// The addresses of a call.
#[derive(Clone, Copy)]
struct Addresses {
    input: u64,
    frame: u64,
    output: u64,
    workspace: u64,
    status: u64,
}

impl Work {
    fn new(cuda: &Cuda) -> Work {
        let case = case();
        let (encode, decode) =
            (cuda.plan_encode(&case.spec, &[]).unwrap(), cuda.plan_decode(&case.spec).unwrap());
        let work = Work {
            frame: cuda.allocate(encode.max_frame_bytes()).unwrap(),
            input: cuda.upload(&case.inputs[0]).unwrap(),
            output: cuda.upload(&vec![0xa5; case.inputs[0].len()]).unwrap(),
            workspace: cuda.allocate(encode.workspace_bytes().max(decode.workspace_bytes())).unwrap(),
            status: cuda.upload(&[0; 8]).unwrap(),
            case,
            encode,
            decode,
        };
        work.prepare(StreamHandle(0));
        cuda.context().synchronize().unwrap();
        work
    }

    fn prepare(&self, stream: StreamHandle) {
        // SAFETY: the workspace is as long as the plan says; the callers synchronise.
        unsafe { self.encode.prepare(stream, self.workspace.address()) }.unwrap();
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            input: self.input.address(),
            frame: self.frame.address(),
            output: self.output.address(),
            workspace: self.workspace.address(),
            status: self.status.address(),
        }
    }

    fn encode(&self, stream: StreamHandle, at: Addresses) -> Result<(), Error> {
        // SAFETY: what is not memory of the right kind and size is refused; the rest lives until the callers have synchronised.
        unsafe { self.encode.encode(stream, &[at.input], at.frame, at.workspace) }
    }

    fn decode(&self, stream: StreamHandle, at: Addresses) -> Result<(), Error> {
        let bytes = self.frame.bytes();
        // SAFETY: as above.
        unsafe { self.decode.decode(stream, at.frame, bytes, &[at.output], at.workspace, at.status, 0) }
    }

    /// Encodes and decodes on a stream, and compares.
    fn works(&self, cuda: &Cuda, stream: StreamHandle, what: &str) {
        self.encode(stream, self.addresses()).unwrap_or_else(|error| panic!("{what}: {error}"));
        self.decode(stream, self.addresses()).unwrap_or_else(|error| panic!("{what}: {error}"));
        cuda.context().synchronize().unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut output = vec![0; self.case.inputs[0].len()];
        cuda.download(&self.output, &mut output).unwrap();
        assert!(output == self.case.inputs[0], "{what}: other bits");
        let mut status = [0xff; 8];
        cuda.download(&self.status, &mut status).unwrap();
        assert_eq!(status, [0; 8], "{what}");
    }
}

#[track_caller]
fn refused(result: Result<(), Error>, words: &[&str]) {
    match result {
        Err(error @ (Error::Device { .. } | Error::Argument(_) | Error::BufferSize { .. })) => {
            let text = error.to_string();
            for word in words {
                assert!(text.contains(word), "{text:?} does not say {word:?}");
            }
        }
        other => panic!("{other:?}"),
    }
}

/// The program does not see the devices that there are.
#[test]
fn no_device_is_an_error() {
    let _turn = turn!(device, "no_device_is_an_error");
    in_its_own_process("there_is_no_device", &[("CUDA_VISIBLE_DEVICES", "-1")]);
}

#[test]
#[ignore = "started where no device is visible by the test above"]
fn there_is_no_device() {
    for result in [Cuda::open(0).map(|_| ()), cuda::devices().map(|_| ())] {
        match result {
            Err(error @ Error::CudaUnavailable { .. }) => {
                assert!(error.to_string().ends_with("use the cpu executor"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Nothing is left: an error, and everything works again when there is some.
#[test]
fn no_memory_is_an_error() {
    let (cuda, _turn) = turn!(device, "no_memory_is_an_error");
    for bytes in [1 << 50, u64::MAX, cuda.info().memory + 1] {
        assert!(matches!(cuda.allocate(bytes), Err(Error::Device { .. } | Error::DeviceMemory { .. })));
    }
    // All of it, in pieces that become smaller.
    let (mut held, mut bytes) = (Vec::new(), cuda.info().memory);
    while bytes >= 1 << 20 {
        match cuda.allocate(bytes) {
            Ok(memory) => held.push(memory),
            Err(_) => bytes /= 2,
        }
    }
    let case = Case::new(
        Member { dtype: Dtype::Bf16, scheme: Scheme::W2x3, bases: Bases::Chunk },
        Content::Plain,
        &[1 << 20, 64],
        Flags::CHECKSUMS,
    );
    let failed = cuda.encode_to_vec(&case.spec, &[], &case.slices());
    assert!(matches!(failed, Err(Error::Device { .. } | Error::DeviceMemory { .. })), "{failed:?}");
    let frame = Cpu::new().encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    let failed = cuda.decode_to_vecs(&Frame::parse(&frame).unwrap()).map(|_| ());
    assert!(matches!(failed, Err(Error::Device { .. } | Error::DeviceMemory { .. })), "{failed:?}");
    drop(held);
    assert!(cuda.encode_to_vec(&case.spec, &[], &case.slices()).unwrap() == frame);
    assert!(cuda.decode_to_vecs(&Frame::parse(&frame).unwrap()).unwrap() == case.inputs);
}

#[test]
fn memory_of_the_host_is_refused() {
    let _turn = turn!(device, "memory_of_the_host_is_refused");
    in_its_own_process("host_pointers", &[]);
}

#[test]
#[ignore = "started in a process of its own by the test above"]
fn host_pointers() {
    let cuda = Cuda::open(0).unwrap();
    let work = Work::new(&cuda);
    let host = vec![0u8; work.frame.bytes() as usize + 256];
    let host = (host.as_ptr() as u64).next_multiple_of(256);
    // And addresses that are nobody's.
    for wrong in [host, 256, 0, u64::MAX - 255] {
        let good = work.addresses();
        let stream = StreamHandle(0);
        refused(work.encode(stream, Addresses { input: wrong, ..good }), &["input 0", "device memory"]);
        refused(work.encode(stream, Addresses { frame: wrong, ..good }), &["the frame", "device memory"]);
        refused(
            work.encode(stream, Addresses { workspace: wrong, ..good }),
            &["the workspace", "device memory"],
        );
        refused(work.decode(stream, Addresses { frame: wrong, ..good }), &["the frame", "device memory"]);
        refused(work.decode(stream, Addresses { output: wrong, ..good }), &["output 0", "device memory"]);
        refused(work.decode(stream, Addresses { status: wrong, ..good }), &["the status", "device memory"]);
    }
    work.works(&cuda, StreamHandle(0), "after the refusals");
}

#[test]
fn memory_that_is_too_short_is_refused() {
    let (cuda, _turn) = turn!(device, "memory_that_is_too_short_is_refused");
    let work = Work::new(&cuda);
    let memory = cuda.allocate(4096).unwrap();
    let (short, good) = (memory.address(), work.addresses());
    let stream = StreamHandle(0);
    refused(work.encode(stream, Addresses { input: short, ..good }), &["input 0", "4096"]);
    refused(work.encode(stream, Addresses { frame: short, ..good }), &["the frame", "4096"]);
    refused(work.decode(stream, Addresses { output: short, ..good }), &["output 0", "4096"]);
    work.works(&cuda, stream, "after the refusals");
}

#[test]
fn memory_of_another_device_is_refused() {
    let _turn = turn!(two_devices, "memory_of_another_device_is_refused");
    in_its_own_process("pointers_of_another_device", &[]);
}

#[test]
#[ignore = "started in a process of its own by the test above"]
fn pointers_of_another_device() {
    let [first, second] = [0, 1].map(|ordinal| Cuda::open(ordinal).unwrap());
    let (work, other) = (Work::new(&first), Work::new(&second));
    let (good, wrong) = (work.addresses(), other.addresses());
    let stream = StreamHandle(0);
    refused(work.encode(stream, Addresses { input: wrong.input, ..good }), &["input 0", "cuda:1", "cuda:0"]);
    refused(
        work.encode(stream, Addresses { frame: wrong.frame, ..good }),
        &["the frame", "cuda:1", "cuda:0"],
    );
    refused(
        work.decode(stream, Addresses { output: wrong.output, ..good }),
        &["output 0", "cuda:1", "cuda:0"],
    );
    work.works(&first, stream, "the first device");
    other.works(&second, stream, "the second device");
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let _turn = turn!(two_devices, "a_stream_of_another_device_is_refused");
    in_its_own_process("streams_of_another_device", &[]);
}

#[test]
#[ignore = "started in a process of its own by the test above"]
fn streams_of_another_device() {
    let [first, second] = [0, 1].map(|ordinal| Cuda::open(ordinal).unwrap());
    let (work, other) = (Work::new(&first), Work::new(&second));
    let stream = second.context().new_stream().unwrap();
    let handle = StreamHandle::from(&*stream);
    refused(work.encode(handle, work.addresses()), &[]);
    refused(work.decode(handle, work.addresses()), &[]);
    work.works(&first, StreamHandle(0), "the first device");
    other.works(&second, handle, "the second device");
}

/// 0, then 1, then 0, from one thread: every call makes its own context current.
#[test]
fn devices_in_turns() {
    let ([first, second], _turn) = turn!(two_devices, "devices_in_turns");
    let works = [(Work::new(&first), &first), (Work::new(&second), &second)];
    for round in 0..6 {
        let (work, cuda) = &works[round % 2];
        work.works(cuda, StreamHandle(0), &format!("round {round}"));
        check(*cuda, &case()).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A second context on one device is what another device is to a thread.
#[test]
fn contexts_in_turns() {
    let (cuda, _turn) = turn!(device, "contexts_in_turns");
    let work = Work::new(&cuda);
    let other = second_context();
    for round in 0..4 {
        // SAFETY: a context that is there until the process ends.
        unsafe { result::ctx::set_current(other) }.unwrap();
        work.works(&cuda, StreamHandle(0), &format!("round {round}"));
        // SAFETY: as above.
        unsafe { result::ctx::set_current(other) }.unwrap();
        check(&cuda, &case()).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A context of its own on the first device. Which function makes one is decided by the version of CUDA that cudarc was built for; the driver has the oldest.
fn second_context() -> sys::CUcontext {
    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, u32, sys::CUdevice) -> sys::CUresult;
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver is loaded already, and has this function with this signature since CUDA 3.2.
    unsafe {
        let create = dlsym(dlopen(c"libcuda.so.1".as_ptr(), 2), c"cuCtxCreate_v2".as_ptr());
        assert!(!create.is_null());
        let create: Create = std::mem::transmute(create);
        assert_eq!(create(&mut context, 0, 0), sys::CUresult::CUDA_SUCCESS);
    }
    context
}

/// Pools of threads start their threads with no context.
#[test]
fn threads_that_never_saw_cuda() {
    let (cuda, _turn) = turn!(device, "threads_that_never_saw_cuda");
    let work = Work::new(&cuda);
    std::thread::scope(|scope| {
        let fresh = scope.spawn(|| {
            assert!(result::ctx::get_current().unwrap().is_none(), "a new thread has a context");
            work.works(&cuda, StreamHandle(0), "a new thread");
        });
        fresh.join().unwrap();
        for _ in 0..8 {
            scope.spawn(|| check(&cuda, &case()).unwrap_or_else(|error| panic!("{error}")));
        }
    });
}

/// Whoever drops what is in use waits for it.
#[test]
fn dropped_before_it_has_run() {
    let (cuda, _turn) = turn!(device, "dropped_before_it_has_run");
    for round in 0..20 {
        let stream = cuda.context().new_stream().unwrap();
        let work = Work::new(&cuda);
        let handle = StreamHandle::from(&*stream);
        for _ in 0..50 {
            work.encode(handle, work.addresses()).unwrap();
            work.decode(handle, work.addresses()).unwrap();
        }
        drop(work);
        stream.synchronize().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    Work::new(&cuda).works(&cuda, StreamHandle(0), "afterwards");
}

/// Buffers with bytes in common would be read while they are written.
#[test]
fn overlapping_buffers_are_refused() {
    let (cuda, _turn) = turn!(device, "overlapping_buffers_are_refused");
    let work = Work::new(&cuda);
    let (good, stream) = (work.addresses(), StreamHandle(0));
    // In place, and with an end in common.
    for frame in [good.input, good.input + 4096] {
        refused(work.encode(stream, Addresses { frame, ..good }), &["the frame", "input 0"]);
    }
    refused(
        work.encode(stream, Addresses { workspace: good.frame, ..good }),
        &["the workspace", "the frame"],
    );
    refused(work.decode(stream, Addresses { output: good.frame, ..good }), &["output 0", "the frame"]);
    refused(work.decode(stream, Addresses { status: good.output, ..good }), &["the status", "output 0"]);
    work.works(&cuda, stream, "after the refusals");
}

/// After a kernel of somebody else has failed, nothing of the context works: every call says so, and none returns bits.
#[test]
fn an_error_of_an_earlier_kernel_is_told() {
    let _turn = turn!(device, "an_error_of_an_earlier_kernel_is_told");
    in_its_own_process("a_kernel_that_traps", &[]);
}

#[test]
#[ignore = "started in a process of its own by the test above"]
fn a_kernel_that_traps() {
    const TRAP: &str =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry trap()\n{\n    trap;\n}\n";
    let cuda = Cuda::open(0).unwrap();
    let (work, case) = (Work::new(&cuda), case());
    let frame = Cpu::new().encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
    cuda.context().bind_to_thread().unwrap();
    let text = CString::new(TRAP).unwrap();
    // SAFETY: PTX of an entry without parameters, in the context that is current.
    unsafe {
        let module = result::module::load_data(text.as_ptr().cast()).unwrap();
        let function = result::module::get_function(module, CString::new("trap").unwrap()).unwrap();
        result::launch_kernel(function, (1, 1, 1), (32, 1, 1), 0, std::ptr::null_mut(), &mut []).unwrap();
        assert_ne!(sys::cuCtxSynchronize(), sys::CUresult::CUDA_SUCCESS);
    }
    refused(work.encode(StreamHandle(0), work.addresses()), &["CUDA_ERROR"]);
    refused(work.decode(StreamHandle(0), work.addresses()), &["CUDA_ERROR"]);
    refused(cuda.encode_to_vec(&case.spec, &[], &case.slices()).map(|_| ()), &["CUDA_ERROR"]);
    refused(cuda.decode_to_vecs(&Frame::parse(&frame).unwrap()).map(|_| ()), &["CUDA_ERROR"]);
    refused(cuda.upload(&[1]).map(|_| ()), &["CUDA_ERROR"]);
    // The CPU goes on.
    assert!(Cpu::new().decode_to_vecs(&Frame::parse(&frame).unwrap()).unwrap() == case.inputs);
}
