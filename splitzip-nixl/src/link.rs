//! One end of a pair of sender and receiver, with a thread that drives NIXL: it hands on messages, looks after writes, gives signs of life and notices silence.

use crate::message::{Kind, Message};
use crate::{Error, Result};
use nixl_sys::{Agent, AgentConfig, NotificationMap};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the thread sleeps: while something moves, and while nothing does.
const BUSY: Duration = Duration::from_micros(50);
const IDLE: Duration = Duration::from_millis(1);

/// The backend of NIXL.
pub(crate) const BACKEND: &str = "UCX";

/// What the ends have in common.
pub(crate) struct Common {
    /// The name of the other agent, and its number.
    pub peer: Option<(String, u64)>,
    /// Whether silence is an error: a transfer is going on.
    pub open: bool,
    /// Why nothing goes on any more.
    pub failed: Option<Error>,
    /// Messages that changed nothing.
    pub ignored: u64,
    heard: Instant,
    said: Instant,
}

/// What differs between them.
pub(crate) trait Side: Send + Sized + 'static {
    /// Takes a message of the other end, or a HELLO of anybody.
    fn take(link: &Link<Self>, shared: &mut Shared<Self>, message: Message) -> Result<()>;

    /// Looks after writes. True while there are any.
    fn poll(link: &Link<Self>, shared: &mut Shared<Self>) -> Result<bool>;

    /// Everything is over.
    fn end(&mut self, error: &Error);
}

pub(crate) struct Shared<S> {
    pub common: Common,
    pub side: S,
}

impl<S: Side> Shared<S> {
    /// Ends everything; the first reason counts.
    pub fn fail(&mut self, error: Error) {
        self.common.open = false;
        self.side.end(&error);
        self.common.failed.get_or_insert(error);
    }

    /// From now on silence is an error.
    pub fn begin(&mut self) {
        self.common.open = true;
        self.common.heard = Instant::now();
        self.common.said = Instant::now();
    }
}

pub(crate) struct Link<S> {
    pub agent: Agent,
    /// What messages for this end carry.
    pub number: u64,
    pub timeout: Duration,
    shared: Mutex<Shared<S>>,
    changed: Condvar,
    stop: AtomicBool,
}

/// Adds what NIXL was asked for to what it says.
pub(crate) fn nixl<T>(what: &'static str, result: Result<T, nixl_sys::NixlError>) -> Result<T> {
    result.map_err(|error| Error::Nixl { what, reason: error.to_string() })
}

/// A number that nobody else has, also in no other process: the keys of a hash map come from the system.
pub(crate) fn new_number() -> u64 {
    // Other languages have 63 bits for it.
    RandomState::new().build_hasher().finish() >> 1 | 1
}

impl<S: Side> Link<S> {
    /// Makes an agent. [`Error::NoLibrary`] where NIXL is not there, before any of its functions is called: those would end the program.
    pub fn new(name: &str, timeout: Duration, side: S) -> Result<Arc<Link<S>>> {
        if nixl_sys::is_stub() {
            return Err(Error::NoLibrary);
        }
        let number = new_number();
        let config = AgentConfig { enable_prog_thread: false, ..AgentConfig::default() };
        let agent = nixl("make an agent", Agent::new_configured(&format!("{name}-{number:x}"), &config))?;
        let params = agent.get_plugin_params(BACKEND).map(|(_, params)| params);
        let params =
            nixl("find its backend UCX; does NIXL_PLUGIN_DIR name the folder of its plugins?", params)?;
        nixl("make its backend UCX", agent.create_backend(BACKEND, &params))?;
        let now = Instant::now();
        let common = Common { peer: None, open: false, failed: None, ignored: 0, heard: now, said: now };
        let shared = Mutex::new(Shared { common, side });
        Ok(Arc::new(Link {
            agent,
            number,
            timeout,
            shared,
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        }))
    }

    /// Starts the thread. It ends when the link is stopped.
    pub fn start(self: &Arc<Self>) -> Result<thread::JoinHandle<()>> {
        let link = Arc::clone(self);
        let thread = thread::Builder::new().name("splitzip-nixl".into()).spawn(move || link.run());
        thread.map_err(|error| Error::Nixl { what: "have a thread", reason: error.to_string() })
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub fn lock(&self) -> MutexGuard<'_, Shared<S>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to the other end.
    pub fn say(&self, common: &mut Common, kind: Kind, transfer: u64, body: &[u8]) -> Result<()> {
        let Some((name, to)) = &common.peer else {
            return Err(Error::PeerLost("there is nobody to talk to".into()));
        };
        common.said = Instant::now();
        self.tell(name, Message { kind, to: *to, sender: self.number, transfer, body: body.to_vec() })
    }

    /// Sends a message to anybody.
    pub fn tell(&self, name: &str, message: Message) -> Result<()> {
        let sent = self.agent.send_notification(name, &message.pack(), None);
        sent.map_err(|error| Error::PeerLost(format!("{:?} cannot be sent ({error})", message.kind)))
    }

    /// Waits until there is something, or for the reason why there never will be.
    pub fn wait<T>(
        &self,
        mut shared: MutexGuard<'_, Shared<S>>,
        limit: Option<Instant>,
        what: &str,
        mut find: impl FnMut(&mut Shared<S>) -> Option<Result<T>>,
    ) -> Result<T> {
        loop {
            if let Some(found) = find(&mut shared) {
                return found;
            }
            if let Some(error) = &shared.common.failed {
                return Err(error.clone());
            }
            let left = limit.map_or(self.timeout, |limit| limit.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Error::Timeout(what.to_owned()));
            }
            shared = self.changed.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let found = self.notifications();
            let mut shared = self.lock();
            let busy = self.step(found, &mut shared).unwrap_or_else(|error| {
                shared.fail(error);
                false
            });
            let busy = busy || shared.common.open;
            drop(shared);
            self.changed.notify_all();
            thread::sleep(if busy { BUSY } else { IDLE });
        }
    }

    fn notifications(&self) -> Result<Vec<Vec<u8>>> {
        let mut map = nixl("look for notifications", NotificationMap::new())?;
        nixl("look for notifications", self.agent.get_notifications(&mut map, None))?;
        let mut found = Vec::new();
        for name in map.agents() {
            let name = nixl("read notifications", name)?;
            for number in 0..nixl("read notifications", map.get_notifications_size(name))? {
                found.push(nixl("read notifications", map.get_notification_bytes(name, number))?);
            }
        }
        Ok(found)
    }

    fn step(&self, found: Result<Vec<Vec<u8>>>, shared: &mut Shared<S>) -> Result<bool> {
        for data in found? {
            match Message::unpack(&data) {
                Some(message) if message.to == self.number => self.deliver(shared, message)?,
                _ => {
                    tracing::warn!(bytes = data.len(), "a message was for nobody here");
                    shared.common.ignored += 1;
                }
            }
        }
        let busy = S::poll(self, shared)?;
        if shared.common.open && shared.common.failed.is_none() {
            if shared.common.heard.elapsed() > self.timeout {
                return Err(Error::Timeout(format!("a sign of life, {:?} long", self.timeout)));
            }
            if shared.common.said.elapsed() > self.timeout / 4 {
                self.say(&mut shared.common, Kind::Alive, 0, &[])?;
            }
        }
        Ok(busy)
    }

    fn deliver(&self, shared: &mut Shared<S>, message: Message) -> Result<()> {
        let ours = shared.common.peer.as_ref().is_some_and(|(_, number)| *number == message.sender);
        if ours {
            shared.common.heard = Instant::now();
        }
        match message.kind {
            Kind::Alive if ours => Ok(()),
            Kind::Hello => S::take(self, shared, message),
            _ if ours => S::take(self, shared, message),
            kind => {
                tracing::warn!(?kind, "ignored a message of a stranger");
                shared.common.ignored += 1;
                Ok(())
            }
        }
    }
}
