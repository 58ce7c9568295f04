//! Whether KV is coded on its way out, or copied as it is.

use super::{DeviceKv, Offloader, StreamHandle, slices};
use crate::policy::{Codec, Link, Load, Policy, Rate, Way};
use crate::{CodebookChoice, Dtype, FrameSpec, Result, TensorSpec};
use std::time::Instant;

/// Bytes of the short transfer that is measured.
const SHORT_BYTES: u64 = 64 << 10;
/// How often everything is measured.
const RUNS: usize = 9;

/// What was measured of a link and a codec in front of it, and how much coding has to save.
///
/// It answers for every transfer: with nothing else on the link by comparing two numbers, and by [`Policy::decide_under`] while others are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OffloadPolicy {
    policy: Policy,
    link: Link,
    codec: Codec,
    least_bytes: u64,
}

impl OffloadPolicy {
    /// A policy for a link and a codec.
    pub fn new(policy: Policy, link: Link, codec: Codec) -> OffloadPolicy {
        let pays = |bytes: u64| policy.decide(bytes, &link, &[codec]).way != Way::Raw;
        // The fewest bytes from which on it pays: a call takes its time, whatever it moves, so it pays for all that are more.
        let (mut low, mut high) = (0, 1 << 40);
        if !pays(high) {
            return OffloadPolicy { policy, link, codec, least_bytes: u64::MAX };
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if pays(middle) { high = middle } else { low = middle }
        }
        OffloadPolicy { policy, link, codec, least_bytes: high }
    }

    /// The fewest raw bytes that are coded while nothing else is on the link; `u64::MAX` when coding never pays.
    pub fn least_bytes(&self) -> u64 {
        self.least_bytes
    }

    /// What was measured of the link.
    pub fn link(&self) -> Link {
        self.link
    }

    /// What was measured of the codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether so many raw bytes are to be coded, while so many are queued in front of them.
    pub(super) fn pays(&self, bytes: u64, queued: u64) -> bool {
        if queued == 0 || bytes >= self.least_bytes {
            return bytes >= self.least_bytes;
        }
        let link_seconds = queued as f64 / self.codec.ratio() / self.link.bytes_per_second();
        self.policy.decide_under(&Load { link_seconds }, bytes, &self.link, &[self.codec]).way != Way::Raw
    }
}

/// Seconds and bytes on the link of one transfer.
struct Transfer {
    seconds: f64,
    raw_bytes: u64,
    coded_bytes: u64,
}

impl Offloader {
    /// Decides from now on for every offload whether it is coded; `None` codes them all.
    pub fn set_policy(&self, policy: Option<OffloadPolicy>) {
        *self.policy.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = policy;
    }

    /// What decides.
    pub fn policy(&self) -> Option<OffloadPolicy> {
        *self.policy.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Measures the link and the codec with KV like that of later transfers: 32 MiB and more, as short ones say nothing about the speed of the link. Some
    /// fifty transfers, while nothing else should be under way. `stream` waits for nothing but them.
    ///
    /// # Errors
    /// As [`Offloader::offload`] and [`Offloading::wait`](super::Offloading::wait); [`Error::Policy`](crate::Error::Policy) for KV of which no speed can be told.
    ///
    /// # Safety
    /// As [`Offloader::offload`], until this returns.
    pub unsafe fn measure_policy(
        &self,
        policy: Policy,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        addresses: &[u64],
        stream: StreamHandle,
    ) -> Result<OffloadPolicy> {
        let short = slices::cut(spec, slices::Rows::Any, SHORT_BYTES)?.into_iter().find(|slice| {
            // Empty tensors are no transfer.
            slice.pieces.iter().any(|piece| !piece.rows.is_empty())
        });
        let (mut short_spec, mut short_addresses, mut short_codebooks) =
            (FrameSpec::default(), Vec::new(), Vec::new());
        if let Some(slice) = short {
            let of = |tensor: usize| addresses.get(tensor).copied().unwrap_or_default();
            short_addresses =
                slice.pieces.iter().map(|piece| of(piece.tensor) + piece.bytes().start).collect();
            let pieces = slice.pieces.iter();
            short_codebooks = pieces.filter_map(|piece| codebooks.get(piece.tensor)).copied().collect();
            short_spec = slice.spec;
        }
        let long = (spec, codebooks, addresses);
        let short = (&short_spec, &short_codebooks[..], &short_addresses[..]);
        let kinds = [(short, true), (short, false), (long, true), (long, false)];
        // The first ones allocate and load kernels.
        for ((spec, codebooks, addresses), raw) in kinds {
            // SAFETY: by contract.
            unsafe { self.timed(spec, codebooks, addresses, raw, stream) }?;
        }
        let mut fastest: [Option<Transfer>; 4] = [const { None }; 4];
        let before = self.counters().out;
        // In turns, and the fastest of each: what else the machine does makes some of them longer, and none shorter.
        for _ in 0..RUNS {
            for (((spec, codebooks, addresses), raw), fastest) in kinds.into_iter().zip(&mut fastest) {
                // SAFETY: by contract.
                let run = unsafe { self.timed(spec, codebooks, addresses, raw, stream) }?;
                if fastest.as_ref().is_none_or(|before| run.seconds < before.seconds) {
                    *fastest = Some(run);
                }
            }
        }
        let after = self.counters().out;
        let [Some(short_raw), Some(short_coded), Some(long_raw), Some(long_coded)] = fastest else {
            return Err(crate::Error::Device {
                what: "measuring".to_owned(),
                reason: "nothing ran".to_owned(),
            });
        };

        let bytes = long_raw.raw_bytes.saturating_sub(short_raw.raw_bytes) as f64;
        let speed = bytes / (long_raw.seconds - short_raw.seconds);
        let latency = (short_raw.seconds - short_raw.raw_bytes as f64 / speed).max(0.0);
        let link = Link::new(speed, latency)?;
        // Raw ones are in the counters as well.
        let encoded = (RUNS as u64 * (short_coded.raw_bytes + long_coded.raw_bytes)) as f64;
        let call = (short_coded.seconds - short_raw.seconds).max(0.0);
        let encode = Rate::new(encoded / (after.codec_seconds - before.codec_seconds), call)?;
        // What reloads it later is not waited for.
        let decode = Rate::new(f64::MAX, 0.0)?;
        let ratio = long_coded.raw_bytes as f64 / long_coded.coded_bytes as f64;
        let most = spec.tensors.iter().max_by_key(|tensor| tensor.elements().unwrap_or_default());
        let (scheme, bases) = most
            .map_or((crate::Scheme::Stored, crate::Bases::Chunk), |of: &TensorSpec| (of.scheme, of.bases));
        Ok(OffloadPolicy::new(policy, link, Codec::new(scheme, bases, ratio, encode, decode)?))
    }
}

impl Offloader {
    /// One transfer, and how long it took.
    ///
    /// # Safety
    /// As [`Offloader::offload`].
    unsafe fn timed(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        addresses: &[u64],
        raw: bool,
        stream: StreamHandle,
    ) -> Result<Transfer> {
        let start = Instant::now();
        // SAFETY: by contract; it is waited for.
        let offloading =
            unsafe { self.offload_as(spec, codebooks, DeviceKv::Tensors(addresses), stream, raw) }?;
        let offloaded = offloading.wait()?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Transfer { seconds, raw_bytes: offloaded.raw_bytes(), coded_bytes: offloaded.coded_bytes() })
    }
}

/// Raw bytes of all tensors; those of a description that no frame can hold are found out later.
pub(super) fn raw_bytes(spec: &FrameSpec) -> u64 {
    spec.tensors.iter().fold(0u64, |sum, tensor| {
        let elements = tensor.elements().unwrap_or(u64::MAX);
        sum.saturating_add(elements.saturating_mul(Dtype::bytes(tensor.dtype) as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bases, Scheme};

    #[test]
    fn short_transfers_go_as_they_are_unless_the_link_is_busy() {
        let rate = |speed: f64, call: f64| Rate::new(speed, call).unwrap();
        let codec =
            Codec::new(Scheme::W2x3, Bases::Chunk, 1.45, rate(2.3e12, 60e-6), rate(f64::MAX, 0.0)).unwrap();
        let link = Link::new(55e9, 8e-6).unwrap();
        let policy = OffloadPolicy::new(Policy::default(), link, codec);
        // 60 microseconds are 3.3 MB on the link; a third of what is sent has to be more.
        assert!((8 << 20..32 << 20).contains(&policy.least_bytes()), "{}", policy.least_bytes());
        assert!(!policy.pays(policy.least_bytes() - 1, 0));
        assert!(policy.pays(policy.least_bytes(), 0));
        assert!(policy.pays(1 << 20, 1 << 30), "encoded while others are sent");
        assert!(!policy.pays(0, 1 << 30));
        // Never: the codec is slower than the link.
        let slow = Codec::new(Scheme::W2x3, Bases::Chunk, 1.45, rate(9e9, 0.0), rate(f64::MAX, 0.0)).unwrap();
        assert_eq!(OffloadPolicy::new(Policy::default(), link, slow).least_bytes(), u64::MAX);
    }
}
