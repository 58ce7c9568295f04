//! Links: how fast bytes get from one machine to another.

use super::PolicyError;
use super::error::not_negative;
use serde::Serialize;
use std::str::FromStr;

/// A link, as one transfer sees it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Link {
    bytes_per_second: f64,
    latency_seconds: f64,
}

/// A link that has a name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NamedLink {
    /// The name: `100g`.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// What it is sold as, in GB/s in one direction.
    pub nominal_gigabytes_per_second: f64,
    /// What a transfer gets of that.
    pub link: Link,
}

/// What a message pays before its first byte: both hosts agree, or a driver is called. Every piece of a transfer is a message of its own: a stack that
/// posts them ahead does better than the model.
const NETWORK: f64 = 10e-6;
const BUS: f64 = 5e-6;

const fn named(
    name: &'static str,
    what: &'static str,
    nominal_gigabytes_per_second: f64,
    gigabytes_per_second: f64,
    latency_seconds: f64,
) -> NamedLink {
    let link = Link { bytes_per_second: gigabytes_per_second * 1e9, latency_seconds };
    NamedLink { name, what, nominal_gigabytes_per_second, link }
}

/// Usable speeds are assumptions, and good ones: 0.96 of nominal for one network port with RDMA (11 to 12 GB/s is what people report of 100G; with
/// TCP it is less), three quarters of a bus (54 GB/s were seen on PCIe 5.0), 400 of the 450 GB/s that NVLink has in one direction.
const NAMED: [NamedLink; 7] = [
    named("25g", "25 Gbit/s Ethernet", 3.125, 3.0, NETWORK),
    named("100g", "100 Gbit/s Ethernet or InfiniBand", 12.5, 12.0, NETWORK),
    named("200g", "200 Gbit/s InfiniBand or Ethernet", 25.0, 24.0, NETWORK),
    named("400g", "400 Gbit/s InfiniBand or Ethernet", 50.0, 48.0, NETWORK),
    named("pcie4", "PCIe 4.0 x16", 31.5, 24.0, BUS),
    named("pcie5", "PCIe 5.0 x16", 63.0, 50.0, BUS),
    named("nvlink", "NVLink 4, one direction", 450.0, 400.0, BUS),
];

impl Link {
    /// The links that have a name, with assumed usable speeds.
    pub const NAMED: &'static [NamedLink] = &NAMED;

    /// A link that carries so many bytes per second, and takes so long before the first one of a message.
    ///
    /// # Errors
    /// [`PolicyError::Number`] unless the speed is finite and at least a byte per second, and the latency finite and not below 0.
    pub fn new(bytes_per_second: f64, latency_seconds: f64) -> Result<Link, PolicyError> {
        // Below that, times of whole caches are no numbers any more, and no answer means anything.
        if !(bytes_per_second.is_finite() && bytes_per_second >= 1.0) {
            return Err(PolicyError::Number {
                what: "the speed of a link in bytes per second",
                given: bytes_per_second,
                allowed: "finite and at least 1",
            });
        }
        Ok(Link {
            bytes_per_second,
            latency_seconds: not_negative("the latency of a link in seconds", latency_seconds)?,
        })
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.bytes_per_second
    }

    /// Seconds before the first byte of a message.
    pub fn latency_seconds(self) -> f64 {
        self.latency_seconds
    }

    /// Seconds for this many bytes in this many messages.
    pub(super) fn seconds(self, bytes: f64, messages: f64) -> f64 {
        messages * self.latency_seconds + bytes / self.bytes_per_second
    }
}

/// A name of [`Link::NAMED`], or GB/s: `12.5`, `12.5GB/s`.
impl FromStr for Link {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Link, PolicyError> {
        if let Some(named) = Link::NAMED.iter().find(|named| named.name == text) {
            return Ok(named.link);
        }
        let number = text.strip_suffix("GB/s").unwrap_or(text).trim_end();
        match number.parse::<f64>() {
            Ok(gigabytes) => Link::new(gigabytes * 1e9, NETWORK),
            Err(_) => {
                let names: Vec<&str> = Link::NAMED.iter().map(|named| named.name).collect();
                Err(PolicyError::Link { given: text.to_owned(), allowed: names.join(", ") })
            }
        }
    }
}
