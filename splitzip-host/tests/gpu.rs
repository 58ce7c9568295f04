//! The CUDA executor, on a machine that has a device: the conformance list, foreign streams, graphs, two streams at once, bad input.
//!
//! Without a device every test says on stderr that it was skipped. What ran on one last is in `docs/gpu/`, and `record.rs` sees
//! to it that the record is of the PTX that ships.

use cudarc::driver::{result, sys};
use splitzip_host::conformance::{self, Case, Content, Member};
use splitzip_host::cuda::{Cuda, DeviceBytes, DevicePool, EncodePlan, StreamHandle};
use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageTable};
use splitzip_host::{Cpu, Dtype, Error, Executor, Flags, Frame, Scheme};

#[path = "support/device.rs"]
mod device;
#[path = "support/members.rs"]
mod members;
use members::members;

/// Everything that encoding and decoding one case needs on the device.
struct Buffers {
    inputs: Vec<DeviceBytes>,
    outputs: Vec<DeviceBytes>,
    frame: DeviceBytes,
    workspaces: [DeviceBytes; 2],
    status: DeviceBytes,
}

impl Buffers {
    fn new(cuda: &Cuda, plan: &EncodePlan, case: &Case) -> Buffers {
        let decode = cuda.plan_decode(&case.spec).unwrap();
        let allocate = |bytes: u64| cuda.allocate(bytes).unwrap();
        let buffers = Buffers {
            inputs: case.inputs.iter().map(|input| cuda.upload(input).unwrap()).collect(),
            outputs: case.inputs.iter().map(|input| cuda.upload(&vec![0xa5; input.len()]).unwrap()).collect(),
            frame: allocate(plan.max_frame_bytes()),
            workspaces: [allocate(plan.workspace_bytes()), allocate(decode.workspace_bytes())],
            status: cuda.upload(&[0; 4]).unwrap(),
        };
        // Not the default stream, which no thread may use while another one captures a graph.
        let stream = cuda.context().new_stream().unwrap();
        // SAFETY: the workspace is as long as the plan says, and outlives the synchronisation.
        unsafe { plan.prepare(StreamHandle::from(&*stream), buffers.workspaces[0].address()) }.unwrap();
        stream.synchronize().unwrap();
        buffers
    }

    fn addresses(memory: &[DeviceBytes]) -> Vec<u64> {
        memory.iter().map(DeviceBytes::address).collect()
    }

    /// Queues the encoding.
    fn encode(&self, plan: &EncodePlan, stream: StreamHandle) {
        let inputs = Buffers::addresses(&self.inputs);
        // SAFETY: the callers synchronise before they drop the buffers.
        unsafe { plan.encode(stream, &inputs, self.frame.address(), self.workspaces[0].address()) }.unwrap();
    }

    /// Queues the decoding of the whole buffer of the frame.
    fn decode(&self, plan: &splitzip_host::cuda::DecodePlan, stream: StreamHandle) {
        let outputs = Buffers::addresses(&self.outputs);
        let (frame, workspace) = (self.frame.address(), self.workspaces[1].address());
        // SAFETY: as above.
        unsafe {
            plan.decode(stream, frame, self.frame.bytes(), &outputs, workspace, self.status.address(), 0)
        }
        .unwrap();
    }

    /// The frame and the outputs, once everything has run: the bytes of the CPU, and the inputs.
    fn verify(&self, cuda: &Cuda, case: &Case, what: &str) {
        let expected = Cpu::new().encode_to_vec(&case.spec, &case.codebooks, &case.slices()).unwrap();
        let mut frame = vec![0; expected.len()];
        cuda.download(&self.frame, &mut frame).unwrap();
        let differs = frame.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{what}: {}: another frame than the CPU's", case.name);
        let mut status = [0xff; 4];
        cuda.download(&self.status, &mut status).unwrap();
        assert_eq!(status, [0; 4], "{what}: {}", case.name);
        for (output, input) in self.outputs.iter().zip(&case.inputs) {
            let mut bytes = vec![0; input.len()];
            cuda.download(output, &mut bytes).unwrap();
            assert!(bytes == *input, "{what}: {}: does not come back", case.name);
        }
    }
}

fn case(member: Member, content: Content) -> Case {
    Case::new(member, content, &[9000, 64], Flags::CHECKSUMS)
}

#[test]
fn it_has_exactly_these_members() {
    let cuda = device!("it_has_exactly_these_members");
    members::check(&cuda);
}

#[test]
fn it_conforms() {
    let cuda = device!("it_conforms");
    let report = conformance::run(&cuda, &members()).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.cases >= 80 * members().len(), "{report:?}");
}

#[test]
fn it_conforms_in_pages() {
    let cuda = device!("it_conforms_in_pages");
    for member in members() {
        for content in [Content::Mixed, Content::Outliers, Content::Far] {
            conformance::check_paged(&cuda, member, content).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// A graph holds the address of the page numbers: replayed after they have changed, it codes other pages.
#[test]
fn a_graph_on_other_pages() {
    let cuda = device!("a_graph_on_other_pages");
    let stream = cuda.context().new_stream().unwrap();
    let handle = StreamHandle::from(&*stream);
    let shape = KvShape { layers: 3, pages: 50, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };
    let layout = KvLayout::vllm(&shape).unwrap();
    let host: Vec<Vec<u8>> = layout
        .pool_bytes()
        .unwrap()
        .iter()
        .map(|&bytes| Content::Mixed.bytes(Dtype::Bf16, bytes as usize / 2, 64))
        .collect();
    let source: Vec<DeviceBytes> = host.iter().map(|pool| cuda.upload(pool).unwrap()).collect();
    let target: Vec<DeviceBytes> =
        host.iter().map(|pool| cuda.upload(&vec![0xa5; pool.len()]).unwrap()).collect();
    let pools = |memory: &[DeviceBytes]| -> Vec<DevicePool> {
        memory.iter().map(|of| DevicePool { address: of.address(), bytes: of.bytes() }).collect()
    };
    let ids = cuda.upload(&[0; 40]).unwrap();
    let on_device = PageIds::Device { address: ids.address(), count: 10, entry_bytes: 4 };
    let paged = layout.bind(PageTable::new(on_device, 16, 155).unwrap()).unwrap();
    let spec = paged.spec(Scheme::W2x3, Flags::default());
    let encode = cuda.plan_encode_paged(&spec, &[], &paged, &pools(&source)).unwrap();
    let decode = cuda.plan_decode_paged(&spec, None, &paged, &pools(&target)).unwrap();
    let (frame, status) = (cuda.allocate(encode.max_frame_bytes()).unwrap(), cuda.upload(&[0; 4]).unwrap());
    let workspaces =
        [encode.workspace_bytes(), decode.workspace_bytes()].map(|bytes| cuda.allocate(bytes).unwrap());
    let [for_encode, for_decode] = workspaces.each_ref().map(DeviceBytes::address);
    let call = || {
        // SAFETY: buffers are as long as the plans say, and outlive the graph.
        unsafe {
            encode.encode(handle, frame.address(), for_encode).unwrap();
            decode.decode(handle, frame.address(), frame.bytes(), for_decode, status.address(), 0).unwrap();
        }
    };
    // SAFETY: as above.
    unsafe { encode.prepare(handle, for_encode) }.unwrap();
    stream.synchronize().unwrap();
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    call();
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    for round in 0..4 {
        let numbers: Vec<i32> = (0..10).map(|entry| (entry * 7 + round * 3) % 50).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        // SAFETY: as long as the numbers; nothing is queued.
        unsafe { result::memcpy_htod_sync(ids.address(), &bytes) }.unwrap();
        cuda.context().synchronize().unwrap();
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        let named = layout.bind(PageTable::new(PageIds::I32(&numbers), 16, 155).unwrap()).unwrap();
        let slices: Vec<&[u8]> = host.iter().map(Vec::as_slice).collect();
        let mut expected = vec![0; spec.layout().unwrap().max_frame_bytes as usize];
        let length = Cpu::new().encode_paged(&spec, &[], &named, &slices, &mut expected).unwrap();
        let mut got = vec![0; length];
        cuda.download(&frame, &mut got).unwrap();
        assert!(got == expected[..length], "round {round}: another frame than the CPU's");
        let decoded: Vec<Vec<u8>> = target
            .iter()
            .map(|of| {
                let mut bytes = vec![0; of.bytes() as usize];
                cuda.download(of, &mut bytes).unwrap();
                bytes
            })
            .collect();
        let slices: Vec<&[u8]> = decoded.iter().map(Vec::as_slice).collect();
        let length = Cpu::new().encode_paged(&spec, &[], &named, &slices, &mut expected).unwrap();
        assert!(got == expected[..length], "round {round}: other elements in the pages");
    }
    let mut found = [0xff; 4];
    cuda.download(&status, &mut found).unwrap();
    assert_eq!(found, [0; 4]);
}

#[test]
fn a_foreign_stream() {
    let cuda = device!("a_foreign_stream");
    let stream = cuda.context().new_stream().unwrap();
    for member in members() {
        let case = case(member, Content::Mixed);
        let (encode, decode) =
            (cuda.plan_encode(&case.spec, &[]).unwrap(), cuda.plan_decode(&case.spec).unwrap());
        let buffers = Buffers::new(&cuda, &encode, &case);
        for _ in 0..3 {
            buffers.encode(&encode, StreamHandle::from(&*stream));
            buffers.decode(&decode, StreamHandle::from(&*stream));
        }
        stream.synchronize().unwrap();
        buffers.verify(&cuda, &case, "foreign stream");
    }
}

/// A graph holds addresses, not bytes: captured on some data, it codes whatever lies there when it is replayed.
#[test]
fn a_graph_on_other_data() {
    let cuda = device!("a_graph_on_other_data");
    let stream = cuda.context().new_stream().unwrap();
    for member in members() {
        let first = case(member, Content::Plain);
        let (encode, decode) =
            (cuda.plan_encode(&first.spec, &[]).unwrap(), cuda.plan_decode(&first.spec).unwrap());
        let buffers = Buffers::new(&cuda, &encode, &first);
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        buffers.encode(&encode, StreamHandle::from(&*stream));
        buffers.decode(&decode, StreamHandle::from(&*stream));
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().unwrap();
        for content in [Content::Plain, Content::Mixed, Content::Zero, Content::Random, Content::Outliers] {
            let other = case(member, content);
            for (memory, input) in buffers.inputs.iter().zip(&other.inputs) {
                // SAFETY: as long as before; nothing is queued.
                unsafe { result::memcpy_htod_sync(memory.address(), input) }.unwrap();
                // The bytes are read when that returns; now they have arrived.
                cuda.context().synchronize().unwrap();
            }
            graph.launch().unwrap();
            stream.synchronize().unwrap();
            buffers.verify(&cuda, &other, "graph");
        }
    }
}

#[test]
fn two_streams_at_once() {
    let cuda = device!("two_streams_at_once");
    let streams = [cuda.context().new_stream().unwrap(), cuda.context().new_stream().unwrap()];
    for member in members() {
        let cases = [case(member, Content::Mixed), case(member, Content::Outliers)];
        let encode = cases.each_ref().map(|case| cuda.plan_encode(&case.spec, &[]).unwrap());
        let decode = cases.each_ref().map(|case| cuda.plan_decode(&case.spec).unwrap());
        let buffers = [0, 1].map(|i| Buffers::new(&cuda, &encode[i], &cases[i]));
        for round in 0..40 {
            let i = round % 2;
            buffers[i].encode(&encode[i], StreamHandle::from(&*streams[i]));
            buffers[i].decode(&decode[i], StreamHandle::from(&*streams[i]));
        }
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        for i in [0, 1] {
            buffers[i].verify(&cuda, &cases[i], "two streams");
        }
    }
}

#[test]
fn a_device_that_is_not_there() {
    match Cuda::open(99) {
        Err(Error::CudaUnavailable { reason }) => assert!(!reason.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_arguments_are_refused_and_nothing_is_queued() {
    let cuda = device!("bad_arguments_are_refused_and_nothing_is_queued");
    let stream = StreamHandle(0);
    for member in members() {
        let case = case(member, Content::Plain);
        let (encode, decode) =
            (cuda.plan_encode(&case.spec, &[]).unwrap(), cuda.plan_decode(&case.spec).unwrap());
        let b = Buffers::new(&cuda, &encode, &case);
        let (input, output) = (b.inputs[0].address(), b.outputs[0].address());
        let (frame, workspace) = (b.frame.address(), b.workspaces[0].address());
        let (status, bytes) = (b.status.address(), b.frame.bytes());
        // SAFETY: every address has as many bytes as it should; what is wrong is refused.
        unsafe {
            let refused = encode.encode(stream, &[], frame, workspace);
            assert!(matches!(refused, Err(Error::Count { expected: 1, got: 0, .. })), "{refused:?}");
            let refused = encode.encode(stream, &[input + 2], frame, workspace);
            assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
            let refused = encode.encode(stream, &[input], frame + 8, workspace);
            assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
            let refused = encode.encode(stream, &[input], frame, workspace + 16);
            assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
            let refused = decode.decode(stream, frame, bytes, &[], workspace, status, 0);
            assert!(matches!(refused, Err(Error::Count { .. })), "{refused:?}");
            let refused = decode.decode(stream, frame, 100, &[output], workspace, status, 0);
            assert!(matches!(refused, Err(Error::BufferSize { .. })), "{refused:?}");
            let refused = decode.decode(stream, frame, bytes, &[output + 4], workspace, status, 0);
            assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
        }
        b.encode(&encode, stream);
        b.decode(&decode, stream);
        cuda.context().synchronize().unwrap();
        b.verify(&cuda, &case, "after the refusals");
    }
}

/// Whatever a frame says, a decoder stays in its buffers; and the call over host bytes never returns other bits without an error.
#[test]
fn damaged_frames() {
    let cuda = device!("damaged_frames");
    for member in members() {
        let case = Case::new(member, Content::Mixed, &[521, 8], Flags::CHECKSUMS);
        let good = Cpu::new().encode_to_vec(&case.spec, &[], &case.slices()).unwrap();
        let decode = cuda.plan_decode(&case.spec).unwrap();
        let start = Frame::parse(&good).unwrap().layout().static_bytes as usize;
        let workspace = cuda.allocate(decode.workspace_bytes()).unwrap();
        // The output lies between guards.
        let (guard, bytes) = (4096, case.inputs[0].len());
        let mut state = 1u64;
        for _ in 0..300 {
            let mut bad = good.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                let place = start + (state >> 33) as usize % (bad.len() - start);
                bad[place] = (state >> 24) as u8;
            }
            let frame = cuda.upload(&bad).unwrap();
            let memory = cuda.upload(&vec![0xa5; bytes + 2 * guard]).unwrap();
            let status = cuda.upload(&[0; 4]).unwrap();
            let (output, length) = (memory.address() + guard as u64, bad.len() as u64);
            let (workspace, status) = (workspace.address(), status.address());
            // SAFETY: all of it lives until the download has waited.
            unsafe {
                decode.decode(StreamHandle(0), frame.address(), length, &[output], workspace, status, 0)
            }
            .unwrap();
            let mut found = vec![0; bytes + 2 * guard];
            cuda.download(&memory, &mut found).unwrap();
            let guards = found[..guard].iter().chain(&found[guard + bytes..]);
            assert!(guards.into_iter().all(|&byte| byte == 0xa5), "{member}: writes outside of the output");
            if let Ok(frame) = Frame::parse(&bad)
                && let Ok(back) = cuda.decode_to_vecs(&frame)
            {
                assert!(back == case.inputs, "{member}: other bits, and no error");
            }
        }
    }
}
