//! The side that wants the tensors.

use crate::buffer::Buffer;
use crate::link::{BACKEND, Link, Shared, Side, nixl};
use crate::message::{Address, Credit, Kind, Landed, Message, pack_credits, unpack_plan};
use crate::{Error, Result};
use splitzip_host::{Frame, FrameSpec};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What this side is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverOptions {
    /// The largest frame that may come: `max_frame_bytes` of the layout of the largest layer.
    pub slot_bytes: usize,
    /// How many frames may have come, or be on their way, and not be decoded yet. With one nothing overlaps.
    pub slots: u32,
    /// Take only transfers of this layout.
    pub layout_id: Option<u64>,
    /// After so long without a word from the other side it is taken for dead.
    pub timeout: Duration,
}

impl ReceiverOptions {
    /// Four slots of a size, any layout, half a minute.
    pub fn new(slot_bytes: usize) -> ReceiverOptions {
        ReceiverOptions { slot_bytes, slots: 4, layout_id: None, timeout: Duration::from_secs(30) }
    }
}

/// The transfer that is going on.
struct Current {
    number: u64,
    layers: u32,
    /// Generations of the slots that the sender may write to.
    granted: HashMap<u32, u32>,
    landed: VecDeque<Landed>,
    seen: HashSet<u32>,
    error: Option<Error>,
    /// Whether the sender may still write.
    listening: bool,
    over: bool,
}

pub(crate) struct Receiving {
    options: ReceiverOptions,
    started: VecDeque<(u64, Vec<FrameSpec>)>,
    current: Option<Current>,
    generation: u32,
}

impl Receiving {
    /// Why a transfer is refused without asking anybody.
    fn objection(&self, layers: &[FrameSpec]) -> Option<String> {
        layers.iter().find_map(|spec| {
            if let Some(wanted) = self.options.layout_id.filter(|&wanted| wanted != spec.layout_id) {
                return Some(format!("its layout is {:#x}, and this side takes {wanted:#x} only", spec.layout_id));
            }
            let most = spec.layout().map_or(u64::MAX, |layout| layout.max_frame_bytes);
            let room = self.options.slot_bytes;
            (most > room as u64).then(|| {
                format!("a frame may have {most} bytes, and the slots here have {room}; make the receiver with larger ones")
            })
        })
    }

    fn grant(&mut self, slot: u32) -> Credit {
        self.generation = self.generation.wrapping_add(1);
        if let Some(current) = &mut self.current {
            current.granted.insert(slot, self.generation);
        }
        Credit { slot, generation: self.generation }
    }
}

impl Side for Receiving {
    fn take(link: &Link<Self>, shared: &mut Shared<Self>, message: Message) -> Result<()> {
        let side = &mut shared.side;
        match message.kind {
            Kind::Hello => return greet(link, shared, message),
            Kind::Start if !shared.common.open => {
                let objection = match unpack_plan(&message.body) {
                    Ok(layers) => match side.objection(&layers) {
                        None => {
                            side.started.push_back((message.transfer, layers));
                            // The sender waits until somebody accepts it, and must see that this side lives.
                            shared.begin();
                            return Ok(());
                        }
                        Some(objection) => objection,
                    },
                    Err(reason) => format!("it cannot be read: {reason}"),
                };
                return link.say(&mut shared.common, Kind::Refused, message.transfer, objection.as_bytes());
            }
            Kind::Bye => {
                let open = shared.common.open;
                shared.common.peer = None;
                if open {
                    return Err(Error::PeerLost("the sender was closed in the middle of a transfer".into()));
                }
                return Ok(());
            }
            Kind::Cancelled if side.started.iter().any(|(number, _)| *number == message.transfer) => {
                side.started.clear();
                shared.common.open = false;
                return Ok(());
            }
            _ => {}
        }
        let current = side.current.as_mut().filter(|current| current.number == message.transfer);
        let Some(current) = current.filter(|current| current.listening) else {
            tracing::warn!(kind = ?message.kind, "ignored a message about a transfer that is over");
            shared.common.ignored += 1;
            return Ok(());
        };
        match (message.kind, Landed::unpack(&message.body)) {
            // Each slot is filled once for each time that it is given, and each layer comes once.
            (Kind::Landed, Some(landed))
                if current.granted.get(&landed.credit.slot) == Some(&landed.credit.generation) =>
            {
                if landed.layer >= current.layers || !current.seen.insert(landed.layer) {
                    let reason =
                        format!("it came twice, or is none of the {} that were announced", current.layers);
                    current.error.get_or_insert(Error::Frame { layer: landed.layer, reason });
                    return Ok(());
                }
                current.granted.remove(&landed.credit.slot);
                current.landed.push_back(landed);
            }
            (Kind::Cancelled, _) => {
                current.listening = false;
                shared.common.open = false;
                current.error.get_or_insert(Error::Cancelled(message.text()));
            }
            (kind, _) => {
                tracing::warn!(?kind, "ignored a message that changes nothing");
                shared.common.ignored += 1;
            }
        }
        Ok(())
    }

    fn poll(_: &Link<Self>, _: &mut Shared<Self>) -> Result<bool> {
        Ok(false)
    }

    fn end(&mut self, error: &Error) {
        if let Some(current) = &mut self.current {
            current.error.get_or_insert_with(|| error.clone());
        }
    }
}

/// A new sender. It takes the place of one that has no transfer going on.
fn greet(link: &Link<Receiving>, shared: &mut Shared<Receiving>, message: Message) -> Result<()> {
    if shared.common.peer.as_ref().is_some_and(|(_, number)| *number == message.sender) {
        shared.common.ignored += 1;
        return Ok(());
    }
    let loaded = link.agent.load_remote_md(&message.body);
    let name = match loaded {
        Ok(name) => name,
        Err(error) => {
            tracing::warn!(%error, "ignored a sender whose metadata cannot be read");
            shared.common.ignored += 1;
            return Ok(());
        }
    };
    let answer = |kind, body: &str| {
        let body = body.as_bytes().to_vec();
        link.tell(&name, Message { kind, to: message.sender, sender: link.number, transfer: 0, body })
    };
    if let Some(error) = &shared.common.failed {
        return answer(Kind::Refused, &format!("this receiver has failed ({error}); make another one"));
    }
    if shared.common.open {
        return answer(
            Kind::Refused,
            "another sender is in the middle of a transfer; wait, or use another receiver",
        );
    }
    if shared.common.peer.is_some() {
        // It may have gone without a word.
        let _ = link.say(&mut shared.common, Kind::Bye, 0, &[]);
    }
    shared.common.peer = Some((name.clone(), message.sender));
    answer(Kind::Welcome, "")
}

/// Receives frames from one [`Sender`](crate::Sender) at a time, of this crate or of `splitzip.transfer` in Python.
///
/// When a sender is lost in the middle of a transfer, nobody knows whether it still writes: the receiver then takes nothing any more, and its memory is never freed.
/// Make another one.
pub struct Receiver {
    link: Arc<Link<Receiving>>,
    thread: Option<JoinHandle<()>>,
    slots: Vec<Buffer>,
    address: String,
}

impl Receiver {
    /// Makes an agent, and registers the slots.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] without NIXL, and what NIXL refuses.
    pub fn new(name: &str, options: ReceiverOptions) -> Result<Receiver> {
        if options.slots == 0 || options.slot_bytes == 0 {
            return Err(Error::Argument(
                "no slots, or slots of 0 bytes, hold no frame; give at least 1".into(),
            ));
        }
        let side = Receiving { options, started: VecDeque::new(), current: None, generation: 0 };
        let link = Link::new(name, options.timeout, side)?;
        let slots: Result<Vec<Buffer>> =
            (0..options.slots).map(|_| Buffer::new(&link.agent, options.slot_bytes)).collect();
        let slots = slots?;
        let metadata = nixl("describe itself", link.agent.get_local_md())?;
        let places = slots.iter().map(|slot| (slot.address() as u64, slot.len() as u64, None)).collect();
        let address = Address::new(link.number, format!("nixl/{BACKEND}"), &metadata, places).pack();
        let thread = Some(link.start()?);
        Ok(Receiver { link, thread, slots, address })
    }

    /// What a sender needs, as text of JSON: bring it there in any way.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Messages that changed nothing: late, duplicate, foreign.
    pub fn ignored(&self) -> u64 {
        self.link.lock().common.ignored
    }

    /// Waits for a transfer, of any sender.
    ///
    /// # Errors
    /// [`Error::Timeout`] when none came in time, and why this receiver takes none any more.
    pub fn accept(&mut self, limit: Duration) -> Result<Incoming<'_>> {
        let limit = Some(Instant::now() + limit);
        let (number, layers) = self.link.wait(self.link.lock(), limit, "a sender", |shared| {
            // After a failure nothing is accepted, also what came before it.
            shared.common.failed.clone().map(Err).or_else(|| shared.side.started.pop_front().map(Ok))
        })?;
        let current = Current {
            number,
            layers: u32::try_from(layers.len()).unwrap_or(u32::MAX),
            granted: HashMap::new(),
            landed: VecDeque::new(),
            seen: HashSet::new(),
            error: None,
            listening: true,
            over: false,
        };
        self.link.lock().side.current = Some(current);
        Ok(Incoming { receiver: self, number, layers, accepted: false })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut shared = self.link.lock();
        let written = shared.side.current.as_ref().is_some_and(|current| current.listening);
        let failed = shared.common.failed.is_some() || written;
        if shared.common.failed.is_none() && shared.common.peer.is_some() {
            // Whether it arrives or not, this side ends.
            let _ = self.link.say(&mut shared.common, Kind::Bye, 0, &[]);
        }
        drop(shared);
        self.link.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if failed {
            // Somebody may still write there.
            self.slots.drain(..).for_each(Buffer::leak);
        }
    }
}

/// A transfer that was announced. Dropped before it was received, it is refused, and in the middle of it cancelled.
pub struct Incoming<'r> {
    receiver: &'r mut Receiver,
    number: u64,
    layers: Vec<FrameSpec>,
    accepted: bool,
}

impl Incoming<'_> {
    /// What every layer will bring.
    pub fn layers(&self) -> &[FrameSpec] {
        &self.layers
    }

    /// Refuses the transfer before anything of it is sent.
    ///
    /// # Errors
    /// When the sender cannot be told.
    pub fn refuse(self, reason: &str) -> Result<()> {
        self.say_refused(reason)
    }

    fn say_refused(&self, reason: &str) -> Result<()> {
        let mut shared = self.receiver.link.lock();
        shared.common.open = false;
        if let Some(current) = &mut shared.side.current {
            (current.listening, current.over) = (false, true);
        }
        self.receiver.link.say(&mut shared.common, Kind::Refused, self.number, reason.as_bytes())
    }

    /// Accepts the transfer, and hands every layer to `decode` when it has landed: a frame of the form that was announced, in order of landing. A slot is free for
    /// another frame once `decode` returns. Returns the bytes of the frames.
    ///
    /// # Errors
    /// What `decode` says (the sender is told), frames that are not what was announced, and what has ended the transfer.
    pub fn receive(
        mut self,
        mut decode: impl FnMut(u32, &Frame<'_>) -> Result<(), splitzip_host::Error>,
    ) -> Result<u64> {
        self.accepted = true;
        let link = Arc::clone(&self.receiver.link);
        let slots = self.receiver.slots.len();
        let mut shared = link.lock();
        let credits: Vec<Credit> = (0..slots as u32).map(|slot| shared.side.grant(slot)).collect();
        link.say(&mut shared.common, Kind::Accept, self.number, &pack_credits(&credits))?;
        drop(shared);
        let mut bytes = 0;
        for count in 1..=self.layers.len() {
            let landed = link.wait(link.lock(), None, "a layer to land", |shared| {
                let current = shared.side.current.as_mut()?;
                current.error.clone().map(Err).or_else(|| current.landed.pop_front().map(Ok))
            })?;
            let decoded = self.decode(landed, &mut decode);
            let mut shared = link.lock();
            if let Err(error) = decoded {
                shared.side.end(&error);
                // Told by whoever drops this.
                return Err(error);
            }
            bytes += landed.bytes;
            if count + slots <= self.layers.len() {
                let credit = shared.side.grant(landed.credit.slot);
                link.say(&mut shared.common, Kind::Credit, self.number, &pack_credits(&[credit]))?;
            }
        }
        let mut shared = link.lock();
        shared.common.open = false;
        if let Some(current) = &mut shared.side.current {
            (current.listening, current.over) = (false, true);
        }
        link.say(&mut shared.common, Kind::Done, self.number, &[])?;
        Ok(bytes)
    }

    fn decode(
        &self,
        landed: Landed,
        decode: &mut impl FnMut(u32, &Frame<'_>) -> Result<(), splitzip_host::Error>,
    ) -> Result<()> {
        let refuse = |reason: String| Error::Frame { layer: landed.layer, reason };
        let wanted = &self.layers[landed.layer as usize];
        let buffer = &self.receiver.slots[landed.credit.slot as usize];
        // SAFETY: the sender said that its write is complete, and the slot is granted to nobody until this returns.
        let slot = unsafe { buffer.bytes_mut() };
        let length = usize::try_from(landed.bytes).ok().filter(|&length| length <= slot.len());
        let length = length.ok_or_else(|| {
            refuse(format!("{} bytes are announced, and a slot has {}", landed.bytes, slot.len()))
        })?;
        let frame = Frame::parse(&slot[..length]).map_err(|error| refuse(error.to_string()))?;
        if frame.spec() != wanted {
            return Err(refuse("the frame that came is of another form than was announced".into()));
        }
        if frame.bytes().len() != length {
            return Err(refuse(format!(
                "the frame that came has {} bytes, and {length} were announced",
                frame.bytes().len()
            )));
        }
        decode(landed.layer, &frame).map_err(|error| refuse(error.to_string()))?;
        // What is here is no frame now, so that it cannot pass for the next one if that never arrives.
        let words_at = frame.layout().words_at() as usize;
        slot[..8].fill(0);
        slot[words_at..words_at + 16].fill(0);
        Ok(())
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let link = &self.receiver.link;
        let mut shared = link.lock();
        let Some(current) = shared.side.current.as_mut().filter(|current| !current.over) else { return };
        if !self.accepted {
            drop(shared);
            // It sees it, or it is gone.
            let _ = self.say_refused("the receiver does not want it");
            return;
        }
        let tell = current.listening;
        let (kind, text) = match &current.error {
            Some(error) => (Kind::Failed, error.to_string()),
            None => (Kind::Cancelled, "the receiver left it".to_owned()),
        };
        current.error.get_or_insert(Error::Cancelled(text.clone()));
        if tell && shared.common.failed.is_none() {
            let _ = link.say(&mut shared.common, kind, self.number, text.as_bytes());
            let limit = Some(Instant::now() + link.timeout);
            let stopped = link.wait(shared, limit, "the sender to stop", |shared| {
                shared.side.current.as_ref().is_none_or(|current| !current.listening).then_some(Ok(()))
            });
            shared = link.lock();
            if stopped.is_err() {
                shared.fail(Error::PeerLost(
                    "the sender did not stop writing when it was asked to; make another receiver".into(),
                ));
            }
        }
        if let Some(current) = &mut shared.side.current {
            current.over = true;
        }
    }
}
