//! What can be typed behind `plan`.

use super::rates::Known;
use crate::arguments::{JsonArguments, float};
use crate::commands::bench::Size;
use crate::failure::{Failure, Result};
use clap::Args;
use splitzip_host::Dtype;
use splitzip_host::policy::{Codec, Link, Policy, PolicyError};
use std::path::PathBuf;
use std::str::FromStr;

/// The bytes are those of IN, of --bytes, or of K and V of a model: 2 x layers x kv heads x head dim x tokens x bytes of the dtype.
#[derive(Debug, Args)]
pub struct Plan {
    /// What is to be sent, a safetensors or .npy file, with --dtype also one of elements without a header, - for stdin: its bytes, its dtype, and its
    /// ratios.
    #[arg(value_name = "IN", conflicts_with_all = ["bytes", "layers"])]
    pub input: Option<PathBuf>,
    /// Raw bytes of one transfer, as in 2MiB or 4GB.
    #[arg(long, value_name = "SIZE", conflicts_with = "layers")]
    pub bytes: Option<Size>,
    /// Layers of the model.
    #[arg(long, value_name = "N", requires_all = ["kv_heads", "head_dim", "tokens"], value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub layers: Option<u64>,
    /// Heads of K, and of V, in a layer.
    #[arg(long, value_name = "N", requires = "layers", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub kv_heads: Option<u64>,
    /// Elements of a head.
    #[arg(long, value_name = "N", requires = "layers", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub head_dim: Option<u64>,
    /// Tokens whose K and V are sent together.
    #[arg(long, value_name = "N", requires = "layers", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub tokens: Option<u64>,
    /// The dtype of the elements: bf16, fp16, e4m3 or e5m2 [default: that of IN, or bf16].
    #[arg(long, value_parser = float)]
    pub dtype: Option<Dtype>,
    /// The links, separated by commas: 25g, 100g, 200g, 400g, pcie4, pcie5, nvlink (usable speeds are assumed), or GB/s, as in 12.5 [default: all that
    /// have a name].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub link: Vec<LinkChoice>,
    #[command(flatten)]
    pub rates: RatesArguments,
    /// Transfers are not cut: encode all, send, decode all.
    #[arg(long)]
    pub serial: bool,
    #[command(flatten)]
    pub json: JsonArguments,
}

/// What codes, and how fast.
#[derive(Debug, Args)]
pub struct RatesArguments {
    /// Take speeds (and ratios, where no file says them) from what `bench --json` wrote into this file.
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
    /// What encodes: h200, cpu, or a device in the file of --rates [default: the first one there, or h200].
    #[arg(long, value_name = "DEVICE")]
    pub encode_on: Option<String>,
    /// What decodes [default: what encodes].
    #[arg(long, value_name = "DEVICE")]
    pub decode_on: Option<String>,
    /// Compress only where it saves so many percent of the time.
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub least_gain: u8,
}

impl RatesArguments {
    /// Reads the rates.
    pub fn pair(&self) -> Result<Pair> {
        let known = Known::new(self.rates.as_deref())?;
        let encode_on = self.encode_on.clone().unwrap_or_else(|| known.first());
        let decode_on = self.decode_on.clone().unwrap_or_else(|| encode_on.clone());
        let policy = Policy { least_gain: f64::from(self.least_gain) / 100.0, ..Policy::default() };
        let pair = Pair { known, encode_on, decode_on, policy };
        pair.check()?;
        Ok(pair)
    }
}

/// The two sides of a transfer.
pub struct Pair {
    known: Known,
    pub encode_on: String,
    pub decode_on: String,
    pub policy: Policy,
}

impl Pair {
    /// Codecs for a dtype.
    pub fn codecs(&self, dtype: Dtype) -> Result<Vec<Codec>, PolicyError> {
        self.known.rates.codecs(&self.encode_on, &self.decode_on, dtype)
    }

    /// Refuses a device that nobody has measured.
    fn check(&self) -> Result {
        let names = self.known.rates.names();
        for device in [&self.encode_on, &self.decode_on] {
            if !names.contains(&device.as_str()) {
                let (what, available) = (device.clone(), names.join(", "));
                return Err(Failure::Usage(PolicyError::NotMeasured { what, available }.to_string()));
            }
        }
        Ok(())
    }

    /// Where the rates of both sides are from.
    pub fn sources(&self) -> [String; 2] {
        [self.known.source(&self.encode_on), self.known.source(&self.decode_on)]
    }

    /// Who codes, and where the speeds are from.
    pub fn about(&self) -> String {
        let Pair { encode_on, decode_on, .. } = self;
        match self.sources() {
            [same, _] if encode_on == decode_on => format!("encoded and decoded on {encode_on} ({same})"),
            [one, other] => format!("encoded on {encode_on} ({one}), decoded on {decode_on} ({other})"),
        }
    }
}

/// A link, as it was typed.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkChoice {
    pub name: String,
    pub link: Link,
}

impl LinkChoice {
    /// All that have a name.
    pub fn named() -> Vec<LinkChoice> {
        Link::NAMED.iter().map(|named| LinkChoice { name: named.name.to_owned(), link: named.link }).collect()
    }
}

impl FromStr for LinkChoice {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<LinkChoice, PolicyError> {
        Ok(LinkChoice { name: text.to_owned(), link: text.parse()? })
    }
}
