//! Requests in the pages of a device: plans for one request, and a workspace for every stream.

use super::driver::{self, Context, Relaxed};
use super::lanes::{CHECKED, Lane, LaneBytes, Lanes, SUMS};
use super::verify::{self, u64_at};
use crate::codebook::PyCodebook;
use crate::error::{Fault, Result};
use crate::host::choices;
use crate::paged::PyPaged;
use crate::spec::Spec;
use crate::view::{Place, View, check_apart};
use pyo3::prelude::*;
use splitzip_host::cuda::{DecodePagedPlan, DevicePool, EncodePagedPlan, StreamHandle};
use splitzip_host::format::{Layout, write};
use splitzip_host::{Error, Flags};

/// Everything that encoding and decoding the pages of one request takes. It holds the pools and the page numbers.
#[pyclass(frozen, module = "splitzip._splitzip")]
pub struct DevicePagedCodec {
    lanes: Lanes,
    encode: Option<EncodePagedPlan>,
    decode: Option<DecodePagedPlan>,
    layout: Layout,
    flags: Flags,
    statics: Vec<u8>,
    paged: PyPaged,
    pools: Vec<Py<View>>,
    /// Streams that the owners of pools and page numbers name.
    producers: Vec<u64>,
}

#[pymethods]
impl DevicePagedCodec {
    /// `once` is the stream of a call of its own, which cannot be captured: the codec ends with it.
    #[new]
    #[pyo3(signature = (device, spec, codebooks, paged, pools, tokens, encodes, decodes, once=None))]
    #[allow(clippy::too_many_arguments, reason = "those of both plans")]
    fn new(
        py: Python<'_>,
        device: usize,
        spec: PyRef<'_, Spec>,
        codebooks: Vec<Option<PyRef<'_, PyCodebook>>>,
        paged: PyRef<'_, PyPaged>,
        pools: Vec<Py<View>>,
        tokens: Option<(u64, u64)>,
        encodes: bool,
        decodes: bool,
        once: Option<u64>,
    ) -> Result<DevicePagedCodec> {
        let (spec, codebooks, paged) = (spec.spec.clone(), choices(&codebooks), paged.clone());
        let views: Vec<&View> = pools.iter().map(Py::get).collect();
        check_places(&views, &paged, device)?;
        if decodes {
            check_apart(&paged.device_ids(), &views)?;
        }
        let of_all = views.iter().copied().chain(paged.device_ids());
        let producers = of_all.filter_map(View::producer).collect();
        let memory: Vec<DevicePool> =
            views.iter().map(|view| DevicePool { address: view.address_of(), bytes: view.bytes() }).collect();
        py.detach(|| {
            let cuda = driver::cuda(device)?;
            let _context = Context::enter(&cuda)?;
            let _relaxed = Relaxed::enter();
            if let Some(stream) = once {
                driver::check_stream(&cuda, stream)?;
                if driver::captures(stream)? {
                    return Err(Fault::argument(
                        "the stream is being captured into a graph, and this call makes what only it needs; make a PagedCodec before the capture",
                    ));
                }
            }
            let layout = spec.layout()?;
            let tokens = tokens.map(|(start, stop)| start..stop);
            let (encode, decode) = {
                let bound = paged.paged()?;
                let encode = || cuda.plan_encode_paged(&spec, &codebooks, &bound, &memory);
                let decode = || cuda.plan_decode_paged(&spec, tokens, &bound, &memory);
                (encodes.then(encode).transpose()?, decodes.then(decode).transpose()?)
            };
            let bytes = LaneBytes {
                encode: encode.as_ref().map_or(0, EncodePagedPlan::workspace_bytes),
                decode: decode.as_ref().map_or(0, DecodePagedPlan::workspace_bytes),
                results: SUMS + 8 * layout.tensors.len() as u64,
            };
            let lanes = Lanes::new(cuda, bytes, &|stream, workspace| prepare(&encode, stream, workspace))?;
            let statics = write::static_bytes(&spec, &layout);
            let flags = spec.flags;
            Ok(DevicePagedCodec { lanes, encode, decode, layout, flags, statics, paged, pools, producers })
        })
    }

    /// Queues the encoding of the pages into the start of `out`.
    fn encode(&self, py: Python<'_>, out: Py<View>, stream: u64) -> Result<()> {
        let plan = self.encode.as_ref();
        let plan = plan.ok_or_else(|| Fault::unsupported("this codec was made for decoding only"))?;
        self.lanes.check_memory(out.get(), "the memory for the frame", plan.max_frame_bytes(), false)?;
        let read: Vec<&View> = self.pools.iter().map(Py::get).chain(self.paged.device_ids()).collect();
        check_apart(&read, &[out.get()])?;
        let frame = out.get().address_of();
        self.queue(py, stream, out, |lane, _| {
            // SAFETY: the frame was checked and is held until the work has run, as pools and page numbers are by the codec, which waits for it; the
            // workspace is that of this stream.
            unsafe { plan.encode(StreamHandle(stream), frame, lane.encode())? };
            Ok(())
        })
    }

    /// Queues the decoding of a frame into its pages. With `check` it waits, and says what is wrong; without, damage shows in [`DevicePagedCodec::check`].
    fn decode(&self, py: Python<'_>, frame: Py<View>, stream: u64, check: bool) -> Result<()> {
        let plan = self.decode.as_ref();
        let plan = plan.ok_or_else(|| Fault::unsupported("this codec was made for encoding only"))?;
        let (needed, got) = (self.layout.dense_bytes, frame.get().bytes());
        if got < needed {
            return Err(Error::Truncated { what: "its dense part", needed, got }.into());
        }
        self.lanes.check_memory(frame.get(), "the frame", needed, false)?;
        let written: Vec<&View> = self.pools.iter().map(Py::get).collect();
        check_apart(&[frame.get()], &written)?;
        let (at, bytes) = (frame.get().address_of(), frame.get().bytes());
        self.queue(py, stream, frame, |lane, captures| {
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
                let sums = if check && self.flags.tensor_checksums { sums } else { 0 };
                plan.decode(StreamHandle(stream), at, bytes, lane.decode(), status, sums)?;
            }
            if check { self.verify(stream, lane, plan, (at, bytes)) } else { Ok(()) }
        })
    }

    /// As that of [`super::DeviceCodec`].
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

impl Drop for DevicePagedCodec {
    fn drop(&mut self) {
        self.lanes.end(|| (self.encode, self.decode) = (None, None));
    }
}

fn prepare(
    plan: &Option<EncodePagedPlan>,
    stream: StreamHandle,
    workspace: u64,
) -> splitzip_host::Result<()> {
    match plan {
        // SAFETY: the workspace of a lane that nobody else has yet.
        Some(plan) => unsafe { plan.prepare(stream, workspace) },
        None => Ok(()),
    }
}

/// Refuses pools and page numbers that are not on the device.
fn check_places(pools: &[&View], paged: &PyPaged, device: usize) -> Result<()> {
    let elsewhere = |view: &&View| view.bytes() != 0 && view.place() != Place::Cuda(device);
    if let Some(number) = pools.iter().position(elsewhere) {
        return Err(Fault::argument(format!(
            "pool {number} is not on cuda:{device}, as others are; the pools of a request are on one device"
        )));
    }
    if paged.device_ids().iter().any(elsewhere) {
        return Err(Fault::argument(format!(
            "the page ids are on another device than the pools, which are on cuda:{device}; copy them there or to the host"
        )));
    }
    Ok(())
}

impl DevicePagedCodec {
    fn queue(
        &self,
        py: Python<'_>,
        stream: u64,
        view: Py<View>,
        work: impl FnOnce(&Lane, bool) -> Result<()> + Send,
    ) -> Result<()> {
        let prepare = |stream, workspace| prepare(&self.encode, stream, workspace);
        self.lanes.queue(py, stream, vec![view], &self.producers, &prepare, work)
    }

    /// Waits for a decoding, and compares what the frame says of itself with the codec and with its checksums.
    fn verify(
        &self,
        stream: u64,
        lane: &Lane,
        plan: &DecodePagedPlan,
        (frame, bytes): (u64, u64),
    ) -> Result<()> {
        let mut results = vec![0; self.lanes.bytes().results as usize];
        // SAFETY: results lie in the lane, the start in the dense part of the frame, which was checked.
        let dynamic = unsafe {
            driver::download(stream, lane.results(), &mut results)?;
            verify::start(&self.layout, &self.statics, stream, frame, bytes)?
        };
        let Some(dynamic) = dynamic else {
            return Err(Fault::argument(
                "the frame holds other tensors than this codec is for; make a codec for its form, or use decompress_paged",
            ));
        };
        let damaged = u64_at(&results, CHECKED as usize) as u32 != 0;
        // What was decoded in part has no checksum of its own, and those of chunks are not added up.
        if damaged || self.flags.chunk_checksums || self.flags.tensor_checksums && !plan.takes_whole_tensors()
        {
            // SAFETY: inside of the view of the frame.
            unsafe { verify::on_host(&self.layout, stream, frame, bytes)? };
        } else if self.flags.tensor_checksums {
            verify::sums(&dynamic, &results[SUMS as usize..], plan.whole_tensors().iter().copied())?;
        }
        match damaged {
            false => Ok(()),
            true if !self.paged.device_ids().is_empty() => Err(Fault::Own(
                "PagedError",
                "a page id in device memory is none of its pool: its page was not written".to_owned(),
            )),
            true => Err(Fault::frame("the device has found a damaged chunk in the frame; get it again")),
        }
    }
}
