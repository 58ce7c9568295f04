//! The two ends of a transfer: KV in the memory of the host and the CPU, or on a GPU. Layer by layer: while one is on the wire the next is encoded, and the one before is decoded.

use super::tcp::Request;
use splitzip_host::cuda::offload::{
    DeviceKv, OffloadOptions, Offloaded, Offloader, Offloading, PinnedPool, Reloading,
};
use splitzip_host::cuda::{Cuda, DeviceBytes, StreamHandle};
use splitzip_host::measure::transfer::{LAYERS, TOKEN_BYTES};
use splitzip_host::{
    Bases, Cpu, Dtype, Error, Executor, Flags, Frame, FrameSpec, Result, Scheme, TensorSpec,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Layers between two stages.
const AHEAD: usize = 2;
/// Layers that an offloader has in flight.
const IN_FLIGHT: usize = 4;
/// How long an end waits for room in its pool.
const PATIENCE: Duration = Duration::from_secs(30);

/// The frame of a layer.
pub fn layer_spec(tokens: u64, scheme: Scheme, keys: Bases) -> FrameSpec {
    let tensor =
        |name, bases| TensorSpec::new(name, Dtype::Bf16, scheme, &[tokens, 8, 128]).with_bases(bases);
    FrameSpec::new(vec![tensor("k", keys), tensor("v", Bases::Chunk)], Flags::default())
}

/// The bytes of keys or values of a layer: the tile from some place on, again and again.
pub fn tensor_bytes(request: &Request, number: u64) -> Vec<u8> {
    let (tile, bytes) = (&request.tile, (request.tokens * TOKEN_BYTES / 2) as usize);
    let start = ((number as usize * 0x1_0000) % tile.len()) & !1;
    let mut out = Vec::with_capacity(bytes + tile.len());
    out.extend_from_slice(&tile[start..]);
    while out.len() < bytes {
        out.extend_from_slice(tile);
    }
    out.truncate(bytes);
    out
}

/// The KV of the sender.
pub enum Sender {
    Host(Arc<Vec<Vec<u8>>>),
    Device { offloader: Box<Offloader>, tensors: Vec<DeviceBytes> },
}

/// Layers of one transfer, ready to be sent one by one.
pub enum Sending<'s> {
    Host {
        layers: Receiver<Result<Vec<u8>>>,
        thread: JoinHandle<()>,
    },
    /// The tensors of the host as they are.
    Raw(std::slice::Iter<'s, Vec<u8>>),
    Device {
        offloader: &'s Offloader,
        tensors: &'s [DeviceBytes],
        spec: FrameSpec,
        next: usize,
        in_flight: VecDeque<Offloading>,
    },
}

impl Sender {
    pub fn new(cuda: Option<&Cuda>, request: &Request) -> Result<Sender> {
        let tensors = (0..2 * LAYERS).map(|number| tensor_bytes(request, number));
        let Some(cuda) = cuda else { return Ok(Sender::Host(Arc::new(tensors.collect()))) };
        let tensors = tensors.map(|bytes| cuda.upload(&bytes)).collect::<Result<_>>()?;
        let pool = PinnedPool::new(cuda, IN_FLIGHT as u64 * layer_room(request))?;
        let options = OffloadOptions::default().with_slice_bytes(u64::MAX).with_patience(PATIENCE);
        Ok(Sender::Device { offloader: Box::new(Offloader::new(cuda, &pool, options)?), tensors })
    }

    /// Starts a transfer.
    pub fn start(&self, request: &Request, scheme: Scheme, keys: Bases) -> Result<Sending<'_>> {
        let spec = layer_spec(request.tokens, scheme, keys);
        match self {
            Sender::Host(tensors) if scheme == Scheme::Stored => Ok(Sending::Raw(tensors.iter())),
            Sender::Host(tensors) => {
                let (ready, layers) = sync_channel(AHEAD);
                let tensors = tensors.clone();
                let thread = std::thread::Builder::new().name("encode".to_owned());
                let thread = thread.spawn(move || encode(&tensors, &spec, &ready))?;
                Ok(Sending::Host { layers, thread })
            }
            Sender::Device { offloader, tensors } => {
                Ok(Sending::Device { offloader, tensors, spec, next: 0, in_flight: VecDeque::new() })
            }
        }
    }
}

fn encode(tensors: &[Vec<u8>], spec: &FrameSpec, ready: &SyncSender<Result<Vec<u8>>>) {
    let cpu = Cpu::new();
    for layer in tensors.chunks(2) {
        let inputs: Vec<&[u8]> = layer.iter().map(Vec::as_slice).collect();
        // Nobody takes it when the connection is broken.
        if ready.send(cpu.encode_to_vec(spec, &[], &inputs)).is_err() {
            return;
        }
    }
}

impl Sending<'_> {
    /// Hands the bytes of the next layer, in pieces, to whoever sends them.
    pub fn next(&mut self, send: &mut dyn FnMut(&[&[u8]]) -> Result<()>) -> Result<()> {
        match self {
            Sending::Raw(tensors) => {
                let pair = [tensors.next(), tensors.next()].map(|of| of.map_or(&[][..], Vec::as_slice));
                send(&pair)
            }
            Sending::Host { layers, .. } => {
                let layer = layers.recv().map_err(|_| broken("the encoding thread ended"))??;
                send(&[&layer])
            }
            Sending::Device { offloader, tensors, spec, next, in_flight } => {
                while in_flight.len() < AHEAD && *next < tensors.len() {
                    let addresses = [tensors[*next].address(), tensors[*next + 1].address()];
                    let from = DeviceKv::Tensors(&addresses);
                    // SAFETY: the sender keeps the tensors, and nobody writes to them.
                    in_flight.push_back(unsafe { offloader.offload(spec, &[], from, StreamHandle(0)) }?);
                    *next += 2;
                }
                let layer =
                    in_flight.pop_front().ok_or_else(|| broken("there are no more layers"))?.wait()?;
                let slices: Vec<&[u8]> = layer.slices().collect();
                send(&slices)
            }
        }
    }

    /// After the last layer.
    pub fn finish(self) -> Result<()> {
        match self {
            Sending::Host { layers, thread } => {
                drop(layers);
                thread.join().map_err(|_| broken("the encoding thread panicked"))
            }
            _ => Ok(()),
        }
    }
}

fn broken(what: &str) -> Error {
    Error::Io(std::io::Error::other(what.to_owned()))
}

/// Room for a layer in page-locked memory, however it is coded.
pub fn layer_room(request: &Request) -> u64 {
    let raw = request.tokens * TOKEN_BYTES;
    (raw + raw / 16 + (1 << 20)).next_multiple_of(4096)
}

/// Where the KV of the receiver goes.
pub enum Target {
    Host(Vec<Vec<u8>>),
    Device { offloader: Box<Offloader>, pool: PinnedPool, tensors: Vec<DeviceBytes> },
}

impl Target {
    pub fn new(cuda: Option<&Cuda>, request: &Request) -> Result<Target> {
        let bytes = request.tokens * TOKEN_BYTES / 2;
        let Some(cuda) = cuda else {
            return Ok(Target::Host((0..2 * LAYERS).map(|_| vec![0; bytes as usize]).collect()));
        };
        let pool = PinnedPool::new(cuda, (IN_FLIGHT + 1) as u64 * layer_room(request))?;
        let tensors = (0..2 * LAYERS).map(|_| cuda.allocate(bytes)).collect::<Result<_>>()?;
        let offloader = Box::new(Offloader::new(cuda, &pool, OffloadOptions::default())?);
        Ok(Target::Device { offloader, pool, tensors })
    }

    /// Receives all layers: `read` fills a buffer of the size of the next one, and `first` is called when the first layer has been decoded.
    pub fn receive(
        &mut self,
        request: &Request,
        raw: bool,
        sizes: &mut dyn FnMut() -> Result<u64>,
        read: &mut dyn FnMut(&mut [u8]) -> Result<()>,
        first: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        match self {
            Target::Host(tensors) if raw => {
                for (number, layer) in tensors.chunks_mut(2).enumerate() {
                    sizes()?;
                    layer.iter_mut().try_for_each(|tensor| read(tensor))?;
                    if number == 0 {
                        first()?;
                    }
                }
                Ok(())
            }
            Target::Host(tensors) => decode_on_host(tensors, sizes, read, first),
            Target::Device { offloader, pool, tensors } => {
                let spec = layer_spec(request.tokens, Scheme::Stored, Bases::Chunk);
                let mut in_flight: VecDeque<Reloading> = VecDeque::new();
                for (number, layer) in tensors.chunks(2).enumerate() {
                    let mut buffer = pool.buffer(sizes()?, PATIENCE)?;
                    read(&mut buffer)?;
                    let received = match raw {
                        true => Offloaded::from_raw(buffer, spec.clone())?,
                        false => Offloaded::from_frame(buffer)?,
                    };
                    let to: Vec<u64> = layer.iter().map(DeviceBytes::address).collect();
                    let to = DeviceKv::Tensors(&to);
                    // SAFETY: the target keeps the tensors, and nobody else uses them.
                    let reloading =
                        unsafe { offloader.reload(&Arc::new(received), None, to, StreamHandle(0)) }?;
                    if number == 0 {
                        reloading.wait()?;
                        first()?;
                        continue;
                    }
                    in_flight.push_back(reloading);
                    if in_flight.len() >= IN_FLIGHT
                        && let Some(oldest) = in_flight.pop_front()
                    {
                        oldest.wait()?;
                    }
                }
                in_flight.into_iter().try_for_each(Reloading::wait)
            }
        }
    }

    /// Whether all has arrived as it was.
    pub fn is_right(&self, cuda: Option<&Cuda>, request: &Request) -> Result<bool> {
        for number in 0..2 * LAYERS as usize {
            let expected = tensor_bytes(request, number as u64);
            let is_right = match (self, cuda) {
                (Target::Host(tensors), _) => tensors[number] == expected,
                (Target::Device { tensors, .. }, Some(cuda)) => {
                    let mut found = vec![0; expected.len()];
                    cuda.download(&tensors[number], &mut found)?;
                    found == expected
                }
                (Target::Device { .. }, None) => false,
            };
            if !is_right {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Overwrites what is there.
    pub fn spoil(&mut self, cuda: Option<&Cuda>) -> Result<()> {
        match (self, cuda) {
            (Target::Host(tensors), _) => tensors.iter_mut().for_each(|tensor| tensor.fill(0xa5)),
            (Target::Device { tensors, .. }, Some(cuda)) => {
                for tensor in tensors {
                    *tensor = cuda.upload(&vec![0xa5; tensor.bytes() as usize])?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// One thread reads, another one decodes.
fn decode_on_host(
    tensors: &mut [Vec<u8>],
    sizes: &mut dyn FnMut() -> Result<u64>,
    read: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    first: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let layers = tensors.len() / 2;
    std::thread::scope(|scope| {
        let (arrived, frames) = sync_channel::<Vec<u8>>(AHEAD);
        let (decoded, done) = sync_channel::<()>(layers);
        let decoder = scope.spawn(move || {
            let cpu = Cpu::new();
            for layer in tensors.chunks_mut(2) {
                let Ok(bytes) = frames.recv() else { return Ok(()) };
                let mut outputs: Vec<&mut [u8]> = layer.iter_mut().map(Vec::as_mut_slice).collect();
                cpu.decode(&Frame::parse(&bytes)?, &mut outputs)?;
                let _ = decoded.send(());
            }
            Ok::<_, Error>(())
        });
        let mut is_first = true;
        for _ in 0..layers {
            let mut bytes = vec![0; usize::try_from(sizes()?).unwrap_or(usize::MAX)];
            read(&mut bytes)?;
            if arrived.send(bytes).is_err() {
                break; // the decoder says why
            }
            if is_first {
                let _ = done.recv();
                first()?;
                is_first = false;
            }
        }
        drop(arrived);
        decoder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
