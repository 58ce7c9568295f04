//! Frames of SplitZip over NIXL, between two processes, layer by layer.
//!
//! A [`Receiver`] has registered slots; a [`Sender`] encodes a layer into a registered buffer and has NIXL write it into one of them, with a notice that says how long it is.
//! The messages are those of `splitzip.transfer` in Python (`docs/wire.md`), so the two sides may be written in different languages. Ours are the codec and the framing; the bytes
//! are moved by NIXL.
//!
//! This crate is no part of the workspace: `nixl-sys` has `links = "nixl"`, and programs pin different versions of it. It is compiled against the stubs of `nixl-sys`, which look for
//! `libnixl_capi.so` when the program runs; where it is not found, everything here is [`Error::NoLibrary`].
//!
//! ```no_run
//! use splitzip_host::{Cpu, Dtype, Executor, Flags, FrameSpec, Scheme, TensorSpec};
//! use splitzip_nixl::{Receiver, ReceiverOptions, Result, Sender, SenderOptions};
//! use std::time::Duration;
//!
//! fn layer() -> FrameSpec {
//!     FrameSpec::new(vec![TensorSpec::new("k", Dtype::Bf16, Scheme::W2x3, &[4096, 128])], Flags::CHECKSUMS)
//! }
//!
//! fn decode(publish: impl Fn(&str)) -> Result<Vec<Vec<u8>>> {
//!     let slot = layer().layout().map_or(0, |layout| layout.max_frame_bytes as usize);
//!     let mut receiver = Receiver::new("decode", ReceiverOptions::new(slot))?;
//!     publish(receiver.address());
//!     let mut keys = vec![vec![0; 4096 * 128 * 2]; 32];
//!     let incoming = receiver.accept(Duration::from_secs(60))?;
//!     incoming.receive(|layer, frame| Cpu::new().decode(frame, &mut [&mut keys[layer as usize]]))?;
//!     Ok(keys)
//! }
//!
//! fn prefill(address: &str, keys: &[Vec<u8>]) -> Result<u64> {
//!     let mut sender = Sender::connect("prefill", address, SenderOptions::default())?;
//!     let mut transfer = sender.transfer(&vec![layer(); keys.len()])?;
//!     for (layer, keys) in (0..).zip(keys) {
//!         transfer.send(layer, &Cpu::new(), &[], &[keys])?;
//!     }
//!     transfer.finish()
//! }
//! ```

mod buffer;
mod error;
mod link;
mod message;
mod receiver;
mod sender;

pub use error::{Error, Result};
pub use receiver::{Incoming, Receiver, ReceiverOptions};
pub use sender::{Outgoing, Sender, SenderOptions};

/// Whether NIXL is there.
pub fn is_available() -> bool {
    !nixl_sys::is_stub()
}
