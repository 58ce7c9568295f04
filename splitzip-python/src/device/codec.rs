//! A frame's description with everything that coding it on a device takes: plans, kernels, and a workspace for every stream.

use super::driver::{self, Context, Relaxed};
use super::lanes::{CHECKED, Lane, LaneBytes, Lanes, SUMS};
use super::verify::{self, u64_at};
use crate::codebook::PyCodebook;
use crate::error::{Fault, Result};
use crate::host::{check_dtype, choices};
use crate::spec::Spec;
use crate::view::{View, check_apart};
use pyo3::prelude::*;
use splitzip_host::Error;
use splitzip_host::cuda::{DecodePlan, EncodePlan, StreamHandle};
use splitzip_host::format::{FrameSpec, write};

/// See the module.
#[pyclass(frozen, module = "splitzip._splitzip")]
pub struct DeviceCodec {
    lanes: Lanes,
    spec: FrameSpec,
    encode: Option<EncodePlan>,
    decode: DecodePlan,
    statics: Vec<u8>,
}

#[pymethods]
impl DeviceCodec {
    #[new]
    #[pyo3(signature = (device, spec, codebooks, encodes=true))]
    fn new(
        py: Python<'_>,
        device: usize,
        spec: PyRef<'_, Spec>,
        codebooks: Vec<Option<PyRef<'_, PyCodebook>>>,
        encodes: bool,
    ) -> Result<DeviceCodec> {
        let (spec, codebooks) = (spec.spec.clone(), choices(&codebooks));
        py.detach(|| {
            let cuda = driver::cuda(device)?;
            let _context = Context::enter(&cuda)?;
            let _relaxed = Relaxed::enter();
            let encode = encodes.then(|| cuda.plan_encode(&spec, &codebooks)).transpose()?;
            let decode = cuda.plan_decode(&spec)?;
            let statics = write::static_bytes(&spec, decode.layout());
            let bytes = LaneBytes {
                encode: encode.as_ref().map_or(0, EncodePlan::workspace_bytes),
                decode: decode.workspace_bytes(),
                results: SUMS + 8 * spec.tensors.len() as u64,
            };
            let lanes = Lanes::new(cuda, bytes, &|stream, workspace| prepare(&encode, stream, workspace))?;
            Ok(DeviceCodec { lanes, spec, encode, decode, statics })
        })
    }

    /// Queues the encoding of tensors into the start of `out`.
    fn encode(&self, py: Python<'_>, inputs: Vec<Py<View>>, out: Py<View>, stream: u64) -> Result<()> {
        let plan = self.encode.as_ref();
        let plan = plan.ok_or_else(|| Fault::unsupported("this codec was made for decoding only"))?;
        let tensors = &plan.layout().tensors;
        if inputs.len() != tensors.len() {
            let (expected, got) = (tensors.len(), inputs.len());
            return Err(Error::Count { what: "inputs", expected, got }.into());
        }
        for (number, (view, tensor)) in inputs.iter().zip(tensors).enumerate() {
            let what = format!("the input of tensor {number}");
            check_dtype(view.get(), tensor.dtype, &what)?;
            self.lanes.check_memory(view.get(), &what, tensor.bytes, true)?;
        }
        self.lanes.check_memory(out.get(), "the memory for the frame", plan.max_frame_bytes(), false)?;
        let read: Vec<&View> = inputs.iter().map(Py::get).collect();
        check_apart(&read, &[out.get()])?;
        let addresses: Vec<u64> = read.iter().map(|view| view.address_of()).collect();
        let frame = out.get().address_of();
        let views = inputs.into_iter().chain([out]).collect();
        self.queue(py, stream, views, |lane, _| {
            // SAFETY: views were checked against the layout and are held until the work has run; the workspace is that of this stream.
            unsafe { plan.encode(StreamHandle(stream), &addresses, frame, lane.encode())? };
            Ok(())
        })
    }

    /// Queues the decoding of a frame. With `check` it waits, and says what is wrong with it; without, damage shows in [`DeviceCodec::check`].
    fn decode(
        &self,
        py: Python<'_>,
        frame: Py<View>,
        outputs: Vec<Py<View>>,
        stream: u64,
        check: bool,
    ) -> Result<()> {
        let layout = self.decode.layout();
        if outputs.len() != layout.tensors.len() {
            let (expected, got) = (layout.tensors.len(), outputs.len());
            return Err(Error::Count { what: "outputs", expected, got }.into());
        }
        for (number, (view, tensor)) in outputs.iter().zip(&layout.tensors).enumerate() {
            let what = format!("the output of tensor {number}");
            check_dtype(view.get(), tensor.dtype, &what)?;
            self.lanes.check_memory(view.get(), &what, tensor.bytes, true)?;
        }
        let (needed, got) = (layout.dense_bytes, frame.get().bytes());
        if got < needed {
            return Err(Error::Truncated { what: "its dense part", needed, got }.into());
        }
        self.lanes.check_memory(frame.get(), "the frame", needed, false)?;
        let written: Vec<&View> = outputs.iter().map(Py::get).collect();
        check_apart(&[frame.get()], &written)?;
        let addresses: Vec<u64> = written.iter().map(|view| view.address_of()).collect();
        let (at, bytes) = (frame.get().address_of(), frame.get().bytes());
        let sums_wanted = check && self.spec.flags.tensor_checksums;
        let views = outputs.into_iter().chain([frame]).collect();
        self.queue(py, stream, views, |lane, captures| {
            if check && captures {
                return Err(Fault::argument(
                    "a decoding that is captured into a graph cannot be waited for; leave check out, and call check() after the replay",
                ));
            }
            let results = lane.results();
            let (status, sums) = (results + if check { CHECKED } else { 0 }, results + SUMS);
            // SAFETY: as for encoding; the results lie in the lane.
            unsafe {
                if check {
                    driver::clear(stream, status, self.lanes.bytes().results - CHECKED)?;
                }
                let sums = if sums_wanted { sums } else { 0 };
                self.decode.decode(StreamHandle(stream), at, bytes, &addresses, lane.decode(), status, sums)?;
            }
            if check { self.verify(stream, lane, at, bytes) } else { Ok(()) }
        })
    }

    /// Waits for all that was queued, and says whether a frame was damaged since the last time.
    fn check(&self, py: Python<'_>) -> Result<()> {
        self.lanes.check(py)
    }

    #[getter]
    fn workspace_bytes(&self) -> u64 {
        self.lanes.bytes().all()
    }

    /// How many calls hold what they work on.
    #[getter]
    fn pending(&self, py: Python<'_>) -> usize {
        self.lanes.pending(py)
    }
}

impl Drop for DeviceCodec {
    fn drop(&mut self) {
        self.lanes.end(|| self.encode = None);
    }
}

fn prepare(plan: &Option<EncodePlan>, stream: StreamHandle, workspace: u64) -> splitzip_host::Result<()> {
    match plan {
        // SAFETY: the workspace of a lane that nobody else has yet.
        Some(plan) => unsafe { plan.prepare(stream, workspace) },
        None => Ok(()),
    }
}

impl DeviceCodec {
    fn queue(
        &self,
        py: Python<'_>,
        stream: u64,
        views: Vec<Py<View>>,
        work: impl FnOnce(&Lane, bool) -> Result<()> + Send,
    ) -> Result<()> {
        let prepare = |stream, workspace| prepare(&self.encode, stream, workspace);
        self.lanes.queue(py, stream, views, &[], &prepare, work)
    }

    /// Waits for a decoding, and compares what the frame says of itself with the codec and with what was decoded.
    fn verify(&self, stream: u64, lane: &Lane, frame: u64, bytes: u64) -> Result<()> {
        let layout = self.decode.layout();
        let mut results = vec![0; self.lanes.bytes().results as usize];
        // SAFETY: results lie in the lane, the start in the dense part of the frame, which was checked.
        let dynamic = unsafe {
            driver::download(stream, lane.results(), &mut results)?;
            verify::start(layout, &self.statics, stream, frame, bytes)?
        };
        let Some(dynamic) = dynamic else {
            return Err(Fault::argument(
                "the frame holds other tensors than this codec is for; make a codec for its form, or use decompress",
            ));
        };
        if u64_at(&results, CHECKED as usize) as u32 != 0 {
            // SAFETY: inside of the view of the frame.
            unsafe { verify::on_host(layout, stream, frame, bytes)? };
            return Err(Fault::frame("the device has found a damaged chunk in the frame; get it again"));
        }
        if self.spec.flags.tensor_checksums {
            verify::sums(&dynamic, &results[SUMS as usize..], 0..layout.tensors.len())?;
        }
        Ok(())
    }
}
