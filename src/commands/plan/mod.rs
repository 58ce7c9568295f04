//! `plan`: whether compression pays on a link, and how to send.
//!
//! The decision is `splitzip_host::policy`; here are its inputs, and how it is told.

mod arguments;
pub mod links;
mod rates;
pub mod table;

pub use arguments::{LinkChoice, Pair, Plan, RatesArguments};

use super::ratios;
use crate::failure::{Failure, Result};
use crate::output::{self, SCHEMA, size};
use links::LinkPlan;
use serde::Serialize;
use splitzip_host::Dtype;
use splitzip_host::policy::{Codec, Policy};

pub fn run(arguments: &Plan) -> Result {
    let pair = arguments.rates.pair()?;
    let (bytes, dtype, of) = what(arguments)?;
    let mut codecs = pair.codecs(dtype).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(of) = &of {
        codecs = of.codecs(&codecs)?;
    }
    let policy = Policy { pipelined: !arguments.serial, ..pair.policy };
    let links = if arguments.link.is_empty() { LinkChoice::named() } else { arguments.link.clone() };
    let plans: Vec<LinkPlan> =
        links.iter().map(|link| LinkPlan::new(&policy, bytes, link, &codecs)).collect();

    if arguments.json.json {
        let [encode_rates, decode_rates] = pair.sources();
        return output::json(&Object {
            schema: SCHEMA,
            command: "plan",
            input: arguments.input.as_ref().map(|path| path.display().to_string()),
            bytes,
            dtype,
            encode_on: pair.encode_on,
            encode_rates,
            decode_on: pair.decode_on,
            decode_rates,
            least_gain: policy.least_gain,
            links: plans,
        });
    }
    let mut text = format!("{} of {dtype}", size(bytes));
    if let [only] = &plans[..] {
        let latency = table::time(only.latency_seconds);
        text +=
            &format!(" over {} ({} GB/s, {latency})", only.link, table::three(only.bytes_per_second / 1e9));
    }
    text += &format!(", {}\n", pair.about());
    text += if of.is_some() {
        "Ratios are those of the file.\n\n"
    } else {
        "Ratios are those that were measured there.\n\n"
    };
    text += &match &plans[..] {
        [only] => table::one(only),
        many => table::many(many),
    };
    output::text(&text)
}

/// Raw bytes, their dtype, and the ratios of a file.
fn what(arguments: &Plan) -> Result<(u64, Dtype, Option<ratios::Ratios>)> {
    let dtype = arguments.dtype.unwrap_or(Dtype::Bf16);
    if let Some(path) = &arguments.input {
        let ratios = ratios::sample(&super::open(path)?, arguments.dtype)?;
        return Ok((ratios.raw_bytes, ratios.dtype, Some(ratios)));
    }
    if let Some(bytes) = arguments.bytes {
        return Ok((bytes.0, dtype, None));
    }
    let shape = [arguments.layers, arguments.kv_heads, arguments.head_dim, arguments.tokens];
    let elements = shape.into_iter().try_fold(2u64, |product, of| product.checked_mul(of?));
    let bytes = elements.and_then(|elements| elements.checked_mul(dtype.bytes() as u64));
    if arguments.layers.is_none() {
        let reason = "say what is to be sent: a safetensors file, --bytes, or --layers, --kv-heads, --head-dim and --tokens";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let bytes =
        bytes.ok_or_else(|| Failure::Usage("a cache of this shape has more than 2^64 bytes".to_owned()))?;
    Ok((bytes, dtype, None))
}

#[derive(Serialize)]
struct Object {
    schema: u32,
    command: &'static str,
    input: Option<String>,
    bytes: u64,
    dtype: Dtype,
    encode_on: String,
    encode_rates: String,
    decode_on: String,
    decode_rates: String,
    least_gain: f64,
    links: Vec<LinkPlan>,
}

/// The codecs of a pair of devices, with other ratios.
pub fn with_ratios(codecs: &[Codec], ratio: impl Fn(&Codec) -> Option<f64>) -> Result<Vec<Codec>> {
    let of = codecs.iter().filter_map(|codec| ratio(codec).map(|ratio| codec.with_ratio(ratio)));
    of.collect::<Result<_, _>>().map_err(|error| Failure::Failed(error.to_string()))
}
