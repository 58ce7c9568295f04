//! The side that has the tensors.

use crate::buffer::Buffer;
use crate::link::{Link, Shared, Side, new_number, nixl};
use crate::message::{Address, Credit, Kind, Landed, Message, pack_plan, unpack_credits};
use crate::{Error, Result};
use nixl_sys::{MemType, OptArgs, XferDescList, XferOp, XferRequest};
use splitzip_host::{CodebookChoice, Executor, FrameSpec, Layout};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What this side is asked for, besides its address.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions {
    /// How many frames may be on their way.
    pub buffers: usize,
    /// After so long without a word from the other side it is taken for dead.
    pub timeout: Duration,
}

impl Default for SenderOptions {
    fn default() -> Self {
        SenderOptions { buffers: 3, timeout: Duration::from_secs(30) }
    }
}

/// A frame that is being written.
struct Flight {
    request: XferRequest,
    buffer: usize,
}

/// The transfer that is going on.
struct Current {
    number: u64,
    accepted: bool,
    done: bool,
    credits: Vec<Credit>,
    error: Option<Error>,
    quiet: bool,
}

pub(crate) struct Sending {
    welcome: bool,
    current: Option<Current>,
    flights: Vec<Flight>,
    /// Whether a credit was taken for a write that is not in the list yet.
    posting: bool,
    /// Buffers that nobody uses.
    free: Vec<usize>,
}

impl Sending {
    fn writes(&self) -> bool {
        self.posting || !self.flights.is_empty()
    }
}

impl Side for Sending {
    fn take(link: &Link<Self>, shared: &mut Shared<Self>, message: Message) -> Result<()> {
        match message.kind {
            Kind::Welcome => shared.side.welcome = true,
            Kind::Bye => shared.fail(Error::PeerLost("the receiver was closed".into())),
            Kind::Refused if message.transfer == 0 => shared.fail(Error::Refused(message.text())),
            kind => {
                let current =
                    shared.side.current.as_mut().filter(|current| current.number == message.transfer);
                let Some(current) = current.filter(|current| !current.done && !current.quiet) else {
                    tracing::warn!(?kind, "ignored a message about a transfer that is over");
                    shared.common.ignored += 1;
                    return Ok(());
                };
                match kind {
                    Kind::Accept | Kind::Credit => {
                        current.credits.extend(unpack_credits(&message.body));
                        current.accepted = true;
                    }
                    Kind::Done => {
                        current.done = true;
                        shared.common.open = false;
                    }
                    Kind::Refused => {
                        // Nothing was written, so there is nothing to say.
                        current.quiet = true;
                        current.error.get_or_insert(Error::Refused(message.text()));
                        shared.common.open = false;
                    }
                    Kind::Failed => drop(current.error.get_or_insert(Error::Failed(message.text()))),
                    Kind::Cancelled => drop(current.error.get_or_insert(Error::Cancelled(message.text()))),
                    _ => shared.common.ignored += 1,
                }
            }
        }
        link_quiet(link, shared)
    }

    fn poll(link: &Link<Self>, shared: &mut Shared<Self>) -> Result<bool> {
        let mut going = Vec::new();
        let mut lost = None;
        for flight in std::mem::take(&mut shared.side.flights) {
            match link.agent.get_xfer_status(&flight.request) {
                Ok(status) if !status.is_success() => going.push(flight),
                Ok(_) => shared.side.free.push(flight.buffer),
                Err(error) => lost = Some(Error::PeerLost(format!("a write failed ({error})"))),
            }
        }
        shared.side.flights = going;
        if let Some(error) = lost {
            return Err(error);
        }
        link_quiet(link, shared)?;
        Ok(!shared.side.flights.is_empty())
    }

    fn end(&mut self, error: &Error) {
        if let Some(current) = &mut self.current {
            current.error.get_or_insert_with(|| error.clone());
        }
    }
}

/// After an error: says that nothing is written any more, once that is so. The receiver waits for it, also if it has failed itself.
fn link_quiet(link: &Link<Sending>, shared: &mut Shared<Sending>) -> Result<()> {
    let writes = shared.side.writes();
    let Some(current) = &mut shared.side.current else { return Ok(()) };
    let Some(error) = &current.error else { return Ok(()) };
    if current.quiet || current.done || writes || shared.common.failed.is_some() {
        return Ok(());
    }
    current.quiet = true;
    shared.common.open = false;
    let (number, text) = (current.number, error.to_string());
    link.say(&mut shared.common, Kind::Cancelled, number, text.as_bytes())
}

/// Sends frames to one [`Receiver`](crate::Receiver), of this crate or of `splitzip.transfer` in Python.
pub struct Sender {
    link: Arc<Link<Sending>>,
    thread: Option<JoinHandle<()>>,
    to: Address,
    buffers: Vec<Buffer>,
    options: SenderOptions,
}

impl Sender {
    /// Connects to what [`Receiver::address`](crate::Receiver::address) says.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] without NIXL, [`Error::Argument`] for what is no address, and what NIXL refuses.
    pub fn connect(name: &str, address: &str, options: SenderOptions) -> Result<Sender> {
        if options.buffers == 0 {
            return Err(Error::Argument("0 buffers cannot hold a frame; give at least 1".into()));
        }
        let to = Address::unpack(address)?;
        let here = format!("nixl/{}", crate::link::BACKEND);
        if to.engine != here {
            return Err(Error::Argument(format!(
                "the receiver is on {}, and this side on {here}; both sides must use the same",
                to.engine
            )));
        }
        let side =
            Sending { welcome: false, current: None, flights: Vec::new(), posting: false, free: Vec::new() };
        let link = Link::new(name, options.timeout, side)?;
        let peer = nixl("take the metadata of the receiver", link.agent.load_remote_md(&to.metadata()?))?;
        let metadata = nixl("describe itself", link.agent.get_local_md())?;
        let mut shared = link.lock();
        shared.common.peer = Some((peer, to.channel));
        link.say(&mut shared.common, Kind::Hello, 0, &metadata)?;
        drop(shared);
        let thread = Some(link.start()?);
        let sender = Sender { link, thread, to, buffers: Vec::new(), options };
        let limit = Some(Instant::now() + options.timeout);
        let what = "the receiver to answer; is it still there?";
        sender.link.wait(sender.link.lock(), limit, what, |shared| shared.side.welcome.then_some(Ok(())))?;
        Ok(sender)
    }

    /// Announces a transfer of one frame a layer, and returns when the receiver has accepted it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the receiver does not take it; nothing was sent then.
    pub fn transfer(&mut self, layers: &[FrameSpec]) -> Result<Outgoing<'_>> {
        let layouts: Result<Vec<Layout>, _> = layers.iter().map(FrameSpec::layout).collect();
        let layouts = layouts.map_err(|error| Error::Argument(error.to_string()))?;
        let Some(largest) = layouts.iter().map(|layout| layout.max_frame_bytes).max() else {
            return Err(Error::Argument("a transfer has at least one layer".into()));
        };
        self.reserve(usize::try_from(largest).unwrap_or(usize::MAX))?;
        let number = new_number();
        let link = Arc::clone(&self.link);
        let mut shared = link.lock();
        if let Some(error) = &shared.common.failed {
            return Err(error.clone());
        }
        let (credits, error) = (Vec::new(), None);
        shared.side.current =
            Some(Current { number, accepted: false, done: false, credits, error, quiet: false });
        shared.begin();
        link.say(&mut shared.common, Kind::Start, number, &pack_plan(layers))?;
        let outgoing =
            Outgoing { sender: self, specs: layers.to_vec(), given: vec![false; layers.len()], bytes: 0 };
        outgoing.wait(shared, "the receiver to accept the transfer", |side| {
            side.current.as_ref().is_some_and(|current| current.accepted).then_some(())
        })?;
        Ok(outgoing)
    }

    /// Buffers that hold the largest frame. Nothing is on its way.
    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.settle()?;
        if self.buffers.first().is_some_and(|buffer| buffer.len() >= bytes) {
            return Ok(());
        }
        self.buffers.clear();
        self.link.lock().side.free.clear();
        for number in 0..self.options.buffers {
            self.buffers.push(Buffer::new(&self.link.agent, bytes)?);
            self.link.lock().side.free.push(number);
        }
        Ok(())
    }

    /// Waits until nothing of the transfer before is written any more.
    fn settle(&self) -> Result<()> {
        let limit = Some(Instant::now() + self.options.timeout);
        self.link.wait(self.link.lock(), limit, "writes of a transfer that is over", |shared| {
            let over = shared.side.current.as_ref().is_none_or(|current| current.done || current.quiet);
            (over && !shared.side.writes()).then_some(Ok(()))
        })
    }

    /// Messages that changed nothing: late, duplicate, foreign.
    pub fn ignored(&self) -> u64 {
        self.link.lock().common.ignored
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut shared = self.link.lock();
        if shared.common.failed.is_none() {
            // Whether it arrives or not, this side ends.
            let _ = self.link.say(&mut shared.common, Kind::Bye, 0, &[]);
        }
        let busy = shared.side.writes();
        shared.side.flights.clear();
        drop(shared);
        self.link.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if busy {
            // The engine may still read there.
            self.buffers.drain(..).for_each(Buffer::leak);
        }
    }
}

/// A transfer: give it every layer, then [`finish`](Outgoing::finish). Dropped before that, it is cancelled.
pub struct Outgoing<'s> {
    sender: &'s mut Sender,
    specs: Vec<FrameSpec>,
    given: Vec<bool>,
    bytes: u64,
}

impl Outgoing<'_> {
    /// Encodes a layer and begins to write it; returns while it is on its way. Waits while no buffer is free, or no slot of the receiver.
    ///
    /// # Errors
    /// What the codec refuses, and what has ended the transfer.
    pub fn send(
        &mut self,
        layer: u32,
        executor: &dyn Executor,
        codebooks: &[CodebookChoice],
        tensors: &[&[u8]],
    ) -> Result<u64> {
        let spec = match (self.specs.get(layer as usize), self.given.get_mut(layer as usize)) {
            (Some(spec), Some(given)) if !*given => {
                *given = true;
                spec
            }
            _ => {
                let all = self.specs.len();
                return Err(Error::Argument(format!(
                    "layer {layer} was sent already, or is none of the {all} that were announced"
                )));
            }
        };
        let link = Arc::clone(&self.sender.link);
        let number = self.wait(link.lock(), "a buffer", |side| side.free.pop())?;
        let buffer = &self.sender.buffers[number];
        // SAFETY: the buffer was free, so no write reads it, and `&mut self` keeps others from taking it: its number is in no list now.
        let encoded = executor.encode(spec, codebooks, tensors, unsafe { buffer.bytes_mut() });
        let flight = encoded
            .map_err(|error| Error::Frame { layer, reason: error.to_string() })
            .and_then(|bytes| Ok((bytes, self.post(layer, number, bytes)?)));
        let mut shared = link.lock();
        shared.side.posting = false;
        match flight {
            Ok((bytes, request)) => {
                shared.side.flights.push(Flight { request, buffer: number });
                self.bytes += bytes as u64;
                Ok(bytes as u64)
            }
            Err(error) => {
                shared.side.free.push(number);
                shared.side.end(&error);
                Err(error)
            }
        }
    }

    /// Begins to write a frame into a slot of the receiver; the notice that it is there comes with it.
    fn post(&self, layer: u32, number: usize, bytes: usize) -> Result<XferRequest> {
        let link = &self.sender.link;
        let credit = self.wait(link.lock(), "a slot of the receiver", |side| {
            let current = side.current.as_mut().filter(|current| !current.credits.is_empty())?;
            side.posting = true;
            Some(current.credits.remove(0))
        })?;
        let slot = self.sender.to.slots.get(credit.slot as usize).filter(|slot| slot.1 >= bytes as u64);
        let Some(&(address, _, _)) = slot else {
            return Err(Error::Failed(format!("slot {} is not there, or too small", credit.slot)));
        };
        let (peer, number_there) =
            link.lock().common.peer.clone().ok_or(Error::PeerLost("it is gone".into()))?;
        let transfer = link.lock().side.current.as_ref().map_or(0, |current| current.number);
        let body = Landed { layer, credit, bytes: bytes as u64 }.pack();
        let notice =
            Message { kind: Kind::Landed, to: number_there, sender: link.number, transfer, body }.pack();
        let mut options = nixl("begin a write", OptArgs::new())?;
        nixl("begin a write", options.set_notification_message(&notice))?;
        nixl("begin a write", options.set_has_notification(true))?;
        let mut from = nixl("begin a write", XferDescList::new(MemType::Dram))?;
        from.add_desc(self.sender.buffers[number].address(), bytes, 0);
        let mut into = nixl("begin a write", XferDescList::new(MemType::Dram))?;
        into.add_desc(address as usize, bytes, 0);
        let request = nixl(
            "begin a write",
            link.agent.create_xfer_req(XferOp::Write, &from, &into, &peer, Some(&options)),
        )?;
        let posted = link.agent.post_xfer_req(&request, Some(&options));
        posted.map_err(|error| Error::PeerLost(format!("a write cannot begin ({error})")))?;
        Ok(request)
    }

    /// Waits until the receiver has decoded all layers; returns the bytes of the frames.
    ///
    /// # Errors
    /// What has ended the transfer on either side.
    pub fn finish(self) -> Result<u64> {
        let missing = self.given.iter().filter(|given| !**given).count();
        if missing > 0 {
            return Err(Error::Argument(format!("{missing} layers were not sent; send them before")));
        }
        self.wait(self.sender.link.lock(), "the receiver to decode the last layer", |side| {
            side.current.as_ref().is_some_and(|current| current.done).then_some(())
        })?;
        Ok(self.bytes)
    }

    /// Waits for something, or for what ends the transfer. As long as the other side gives signs of life, that may take any time.
    fn wait<T>(
        &self,
        shared: std::sync::MutexGuard<'_, Shared<Sending>>,
        what: &str,
        mut find: impl FnMut(&mut Sending) -> Option<T>,
    ) -> Result<T> {
        self.sender.link.wait(shared, None, what, |shared| {
            if let Some(error) = shared.side.current.as_ref().and_then(|current| current.error.clone()) {
                return Some(Err(error));
            }
            find(&mut shared.side).map(Ok)
        })
    }
}

impl Drop for Outgoing<'_> {
    fn drop(&mut self) {
        let mut shared = self.sender.link.lock();
        let cancelled = Error::Cancelled("the sender gave it up".into());
        if shared.side.current.as_ref().is_some_and(|current| !current.done) {
            shared.side.end(&cancelled);
        }
        drop(shared);
        // The thread says so as soon as nothing is written any more; a sender that cannot wait for that says so at its next transfer.
        let _ = self.sender.settle();
    }
}
