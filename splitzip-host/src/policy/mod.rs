//! Whether compression pays for a transfer, and how to send it.
//!
//! A connector asks [`Policy::decide`] before every transfer: how many raw bytes, over which [`Link`], with which [`Codec`]s (what was
//! measured of a scheme: its ratio, and how fast it is encoded and decoded). The answer depends on nothing else: no clock, no
//! allocation, no device, a few microseconds for all schemes. `splitzip plan` prints the same answers.
//!
//! Three ways are compared:
//!
//! - **raw**: the bytes as they are; `latency + n / link`;
//! - **serial**: encode all, send, decode all; `encode(n) + latency + n / ratio / link + decode(n)`. On a link of 48 GB/s and at a ratio of
//!   1.45 that pays only when both sides code with 310 GB/s and more: a GPU does, a CPU does not;
//! - **pipelined**: in pieces, which are encoded, sent and decoded at the same time. The first piece passes all three stages, for the others the
//!   slowest stage counts. The larger a piece, the later the link starts; the smaller, the more often a call and the latency of the link are paid
//!   for: all powers of two from [`Policy::least_piece_bytes`] on are tried.
//!
//! The model leaves out what differs from one stack to the next: segments that a link sends one by one (a frame is one segment, which helps), memory
//! and multiprocessors that a codec takes from the model while both run (which does not). [`Policy::least_gain`] is there so that nobody
//! compresses for a gain that vanishes in such things. A transfer that is hidden behind the computation of the next layer gains nothing by being shorter:
//! do not ask then.
//!
//! ```
//! use splitzip_host::policy::{Codec, Link, Policy, Rate, Way};
//! use splitzip_host::{Bases, Scheme};
//!
//! # fn main() -> splitzip_host::Result<()> {
//! let rate = |gigabytes: f64| Rate::new(gigabytes * 1e9, 8e-6);
//! let codecs = [Codec::new(Scheme::W2x3, Bases::Chunk, 1.45, rate(2300.0)?, rate(2300.0)?)?];
//! let one_request = 4 << 30; // 32k tokens of an 8B model
//!
//! let decision = Policy::default().decide(one_request, &"100g".parse()?, &codecs);
//! assert_eq!(decision.way, Way::Pipelined);
//! assert!(decision.raw_seconds / decision.seconds > 1.4);
//!
//! let nvlink: Link = "nvlink".parse()?;
//! assert_eq!(Policy::default().decide(64 << 10, &nvlink, &codecs).way, Way::Raw);
//! # Ok(())
//! # }
//! ```

mod error;
mod link;
mod rates;

pub use error::PolicyError;
pub use link::{Link, NamedLink};
pub use rates::{DeviceRates, Rates, SchemeRates};

use crate::{Bases, Scheme};
use error::{not_negative, positive};
use serde::Serialize;

/// How fast one side codes: calls cost a time of their own, and every byte some more.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rate {
    bytes_per_second: f64,
    seconds_per_call: f64,
}

impl Rate {
    /// A rate in raw bytes per second, and the seconds that a call of no bytes takes.
    ///
    /// # Errors
    /// [`PolicyError::Number`] unless the first is finite and above 0, and the second finite and not below 0.
    pub fn new(bytes_per_second: f64, seconds_per_call: f64) -> Result<Rate, PolicyError> {
        Ok(Rate {
            bytes_per_second: positive("the speed of a codec in bytes per second", bytes_per_second)?,
            seconds_per_call: not_negative("the seconds that a call of a codec takes", seconds_per_call)?,
        })
    }

    /// Raw bytes per second, without the time of calls.
    pub fn bytes_per_second(self) -> f64 {
        self.bytes_per_second
    }

    /// What a call takes before its first byte, in seconds.
    pub fn seconds_per_call(self) -> f64 {
        self.seconds_per_call
    }

    /// Seconds for this many bytes in this many calls.
    fn seconds(self, bytes: f64, calls: f64) -> f64 {
        calls * self.seconds_per_call + bytes / self.bytes_per_second
    }
}

/// What was measured of one way to code: on data like that of the transfer, on the devices of both sides.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Codec {
    /// How exponents are coded.
    pub scheme: Scheme,
    /// Whose mean places the window, for schemes that have one.
    pub bases: Bases,
    ratio: f64,
    encode: Rate,
    decode: Rate,
}

impl Codec {
    /// A codec.
    ///
    /// # Errors
    /// [`PolicyError::Number`] unless the ratio (raw bytes by coded bytes) is finite and above 0.
    pub fn new(
        scheme: Scheme,
        bases: Bases,
        ratio: f64,
        encode: Rate,
        decode: Rate,
    ) -> Result<Codec, PolicyError> {
        let ratio = positive("a ratio of raw by coded bytes", ratio)?;
        Ok(Codec { scheme, bases, ratio, encode, decode })
    }

    /// Raw bytes by coded bytes.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// How fast the sender encodes.
    pub fn encode(&self) -> Rate {
        self.encode
    }

    /// How fast the receiver decodes.
    pub fn decode(&self) -> Rate {
        self.decode
    }

    /// The same with another ratio: that of the data at hand.
    ///
    /// # Errors
    /// As [`Codec::new`].
    pub fn with_ratio(self, ratio: f64) -> Result<Codec, PolicyError> {
        Codec::new(self.scheme, self.bases, ratio, self.encode, self.decode)
    }
}

/// How a transfer is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The bytes as they are.
    Raw,
    /// One frame: encoded, then sent, then decoded.
    Serial,
    /// A frame a piece, encoded, sent and decoded at the same time.
    Pipelined,
}

/// What a transfer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The sender's codec.
    Encode,
    /// The link.
    Link,
    /// The receiver's codec.
    Decode,
}

/// The times of one transfer with one codec, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Encoding all of it in one call.
    pub encode_seconds: f64,
    /// Sending the coded bytes, with the latency of the link.
    pub send_seconds: f64,
    /// Decoding all of it in one call.
    pub decode_seconds: f64,
    /// Without compression.
    pub raw_seconds: f64,
    /// One after the other.
    pub serial_seconds: f64,
    /// In pieces of `piece_bytes`; never longer than serial.
    pub pipelined_seconds: f64,
    /// The raw bytes of a piece with which that is fastest; all of them when cutting does not help.
    pub piece_bytes: u64,
    /// The stage that takes longest, of the whole or of a piece (it is the same one but for the time of calls).
    pub bottleneck: Stage,
}

/// What to do with one transfer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Decision {
    /// How to send it.
    pub way: Way,
    /// What to code it with; `None` for [`Way::Raw`].
    pub codec: Option<Codec>,
    /// How long that takes.
    pub seconds: f64,
    /// How long it takes without compression.
    pub raw_seconds: f64,
    /// The raw bytes of a piece; all of them unless it is pipelined.
    pub piece_bytes: u64,
    /// What it waits for. For [`Way::Raw`] the stage that keeps the best codec from paying; the link when there is no codec at all.
    pub bottleneck: Stage,
}

impl Decision {
    /// Time without compression by time with it: 1 for [`Way::Raw`].
    pub fn speedup(&self) -> f64 {
        if self.way == Way::Raw { 1.0 } else { self.raw_seconds / self.seconds }
    }
}

/// What else is going on when a transfer is asked for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Seconds until the link is free: while earlier transfers are on it, this one can be encoded without anybody waiting for that.
    pub link_seconds: f64,
}

/// What a connector can do, and what it wants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// The share of the raw time that has to be saved, or else bytes are sent raw. 0.05 unless changed: what is left out of the model is
    /// about as much. Taken as at least 0 and at most 1; not a number is 1, so that nothing is compressed.
    pub least_gain: f64,
    /// Whether transfers can be sent in pieces.
    pub pipelined: bool,
    /// The smallest piece: 1 MiB unless changed. An H200 codes 1 MiB in 7 microseconds and 2 MiB in the same, so smaller pieces gain nothing there.
    pub least_piece_bytes: u64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { least_gain: 0.05, pipelined: true, least_piece_bytes: 1 << 20 }
    }
}

impl Policy {
    /// The fastest way for `bytes` raw bytes: the first of equally fast codecs; [`Way::Raw`] when no codec saves enough.
    /// It is never slower than raw.
    pub fn decide(&self, bytes: u64, link: &Link, codecs: &[Codec]) -> Decision {
        self.decide_under(&Load::default(), bytes, link, codecs)
    }

    /// The same while the link is busy. Times are counted from the moment when it is free, and so is what has to be saved; what is encoded until then takes no time
    /// of the transfer.
    pub fn decide_under(&self, load: &Load, bytes: u64, link: &Link, codecs: &[Codec]) -> Decision {
        let raw_seconds = link.seconds(bytes as f64, 1.0);
        let limit = raw_seconds * (1.0 - self.gain());
        let mut best = Decision {
            way: Way::Raw,
            codec: None,
            seconds: raw_seconds,
            raw_seconds,
            piece_bytes: bytes,
            bottleneck: Stage::Link,
        };
        let mut fastest = f64::INFINITY;
        for codec in codecs {
            let estimate = self.estimate(bytes, link, codec);
            let hidden = |bytes: u64| load.link_seconds.max(0.0).min(codec.encode.seconds(bytes as f64, 1.0));
            let pipelined_seconds = estimate.pipelined_seconds - hidden(estimate.piece_bytes);
            let serial_seconds = estimate.serial_seconds - hidden(bytes);
            let seconds = pipelined_seconds.min(serial_seconds);
            if seconds >= fastest {
                continue;
            }
            fastest = seconds;
            best.bottleneck = estimate.bottleneck;
            if seconds <= limit && seconds < raw_seconds {
                let pipelined = pipelined_seconds < serial_seconds;
                best = Decision {
                    way: if pipelined { Way::Pipelined } else { Way::Serial },
                    codec: Some(*codec),
                    seconds,
                    piece_bytes: estimate.piece_bytes,
                    ..best
                };
            }
        }
        best
    }

    /// The times of `bytes` raw bytes with one codec.
    pub fn estimate(&self, bytes: u64, link: &Link, codec: &Codec) -> Estimate {
        let raw = bytes as f64;
        let encode_seconds = codec.encode.seconds(raw, 1.0);
        let send_seconds = link.seconds(raw / codec.ratio, 1.0);
        let decode_seconds = codec.decode.seconds(raw, 1.0);
        let serial_seconds = encode_seconds + send_seconds + decode_seconds;
        let (pipelined_seconds, piece_bytes) = self.best_piece(bytes, link, codec, serial_seconds);
        let bottleneck = if send_seconds >= encode_seconds.max(decode_seconds) {
            Stage::Link
        } else if encode_seconds >= decode_seconds {
            Stage::Encode
        } else {
            Stage::Decode
        };
        Estimate {
            encode_seconds,
            send_seconds,
            decode_seconds,
            raw_seconds: link.seconds(raw, 1.0),
            serial_seconds,
            pipelined_seconds,
            piece_bytes,
            bottleneck,
        }
    }

    /// The speed of a link, in bytes per second, up to which `codec` saves enough on transfers of `bytes` raw bytes this way; `None` when it
    /// does on no link, and for [`Way::Raw`]. Found by halving intervals: for tables and plots, not for every transfer.
    pub fn break_even(&self, bytes: u64, latency_seconds: f64, codec: &Codec, way: Way) -> Option<f64> {
        let pays = |bytes_per_second: f64| {
            let link = Link::new(bytes_per_second, latency_seconds).ok();
            link.is_some_and(|link| {
                let estimate = self.estimate(bytes, &link, codec);
                let seconds = match way {
                    Way::Raw => return false,
                    Way::Serial => estimate.serial_seconds,
                    Way::Pipelined => estimate.pipelined_seconds,
                };
                seconds <= estimate.raw_seconds * (1.0 - self.gain()) && seconds < estimate.raw_seconds
            })
        };
        // From a modem to faster than any memory; on the slow side only the ratio counts.
        let (mut low, mut high) = (1e3f64, 1e16f64);
        if !pays(low) {
            return None;
        }
        if pays(high) {
            return Some(high);
        }
        for _ in 0..64 {
            let middle = (low * high).sqrt();
            if pays(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Time and size of the pieces that are fastest; those of the whole when none is faster.
    fn best_piece(&self, bytes: u64, link: &Link, codec: &Codec, serial_seconds: f64) -> (f64, u64) {
        let mut best = (serial_seconds, bytes);
        let mut piece = self.least_piece_bytes.max(1);
        while self.pipelined && piece < bytes {
            let (one, rest) = (piece as f64, (bytes - piece) as f64);
            let calls = bytes.div_ceil(piece) as f64 - 1.0;
            let stages = |bytes: f64, calls: f64| {
                let send = link.seconds(bytes / codec.ratio, calls);
                [codec.encode.seconds(bytes, calls), send, codec.decode.seconds(bytes, calls)]
            };
            let slowest = stages(rest, calls).into_iter().fold(0.0, f64::max);
            let seconds = stages(one, 1.0).into_iter().sum::<f64>() + slowest;
            if seconds < best.0 {
                best = (seconds, piece);
            }
            let Some(next) = piece.checked_mul(2) else { break };
            piece = next;
        }
        best
    }

    fn gain(&self) -> f64 {
        if self.least_gain.is_nan() { 1.0 } else { self.least_gain.clamp(0.0, 1.0) }
    }
}
