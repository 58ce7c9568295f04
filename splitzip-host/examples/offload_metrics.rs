//! A worker that offloads and reloads requests, and tells its counters to Prometheus.
//!
//! ```text
//! cargo run --release -p splitzip-host --example offload_metrics -- 127.0.0.1:9400
//! curl http://127.0.0.1:9400/metrics
//! ```
//!
//! The counters are those of [`Offloader::counters`]; the text is written by the `prometheus-client` crate. It works until it is stopped.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::{Registry, Unit};
use splitzip_host::conformance::Content;
use splitzip_host::cuda::offload::{
    Counters, DeviceKv, DirectionCounters, OffloadOptions, Offloader, PinnedPool,
};
use splitzip_host::cuda::{Cuda, StreamHandle};
use splitzip_host::policy::Policy;
use splitzip_host::{Dtype, Flags, FrameSpec, Scheme, TensorSpec};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Counters at one moment.
#[derive(Debug)]
struct Snapshot(Counters);

impl prometheus_client::collector::Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Counters { out, back, raw_chunks, variable_words, cancelled, .. } = self.0;
        for (name, help, of) in [
            ("transfers", "Transfers that ended well", (|of| of.transfers) as fn(&DirectionCounters) -> u64),
            ("raw_transfers", "Transfers that were left as they are", |of| of.raw_transfers),
            ("frames", "Frames", |of| of.frames),
            ("raw_bytes", "Bytes in front of the codec", |of| of.raw_bytes),
            ("coded_bytes", "Bytes on the link", |of| of.coded_bytes),
            ("errors", "Transfers that ended with an error", |of| of.errors),
        ] {
            let counters =
                [("out", of(&out)), ("back", of(&back))].map(|(way, n)| (way, ConstCounter::new(n)));
            directions(&mut encoder, name, help, None, &counters)?;
        }
        for (name, help, of) in [
            (
                "codec",
                "Time of the device in the codec",
                (|of| of.codec_seconds) as fn(&DirectionCounters) -> f64,
            ),
            ("copy", "Time of the device on the link", |of| of.copy_seconds),
        ] {
            let counters =
                [("out", of(&out)), ("back", of(&back))].map(|(way, n)| (way, ConstCounter::new(n)));
            directions(&mut encoder, name, help, Some(&Unit::Seconds), &counters)?;
        }
        for (name, help, of) in [
            ("raw_chunks", "Chunks that would not have shrunk", raw_chunks),
            ("variable_words", "4-byte words of escapes and later levels", variable_words),
            ("cancelled", "Offloads that were cancelled", cancelled),
        ] {
            let counter = ConstCounter::new(of);
            let name = format!("splitzip_{name}");
            counter.encode(encoder.encode_descriptor(&name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

/// One number a direction, with its label.
fn directions<T: EncodeMetric>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    counters: &[(&str, T); 2],
) -> Result<(), std::fmt::Error> {
    let name = format!("splitzip_offload_{name}");
    let mut metric = encoder.encode_descriptor(&name, help, unit, counters[0].1.metric_type())?;
    for (direction, counter) in counters {
        counter.encode(metric.encode_family(&[("direction", *direction)])?)?;
    }
    Ok(())
}

/// What Prometheus reads.
fn page(counters: Counters) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(counters)));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9400".to_owned());
    let server = tiny_http::Server::http(&address).map_err(|error| format!("{address}: {error}"))?;
    let cuda = Cuda::open(0)?;
    let pool = PinnedPool::new(&cuda, 1 << 30)?;
    let offloader = Offloader::new(&cuda, &pool, OffloadOptions::default())?;
    println!("http://{address}/metrics, of {}", cuda.info().name);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&cuda, &offloader).map_err(|error| error.to_string()));
        while !worker.is_finished() {
            // Looks from time to time whether the worker still works.
            let Some(request) = server.recv_timeout(Duration::from_millis(200))? else { continue };
            let answer = match request.url() {
                "/metrics" => tiny_http::Response::from_string(page(offloader.counters())?),
                _ => tiny_http::Response::from_string("see /metrics\n").with_status_code(404),
            };
            request.respond(answer)?;
        }
        match worker.join() {
            Ok(result) => Ok(result?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Requests of many sizes, as long as nothing goes wrong: short ones are left as they are.
fn work(cuda: &Cuda, offloader: &Offloader) -> splitzip_host::Result<()> {
    let tokens = 1 << 18;
    let kv = Content::Plain.bytes(Dtype::Bf16, tokens * 128, 128);
    let (source, target) = (cuda.upload(&kv)?, cuda.allocate(kv.len() as u64)?);
    let spec = |tokens: u64| {
        let tensor = TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[tokens, 128]);
        FrameSpec::new(vec![tensor], Flags::default())
    };
    let (from, to, stream) = ([source.address()], [target.address()], StreamHandle(0));
    // SAFETY: both live until everything was waited for, here and below; nobody else uses them.
    let policy =
        unsafe { offloader.measure_policy(Policy::default(), &spec(tokens as u64), &[], &from, stream)? };
    offloader.set_policy(Some(policy));
    for round in 0u64.. {
        let spec = spec(1 << (8 + round % 11));
        // SAFETY: as above.
        let offloaded = unsafe { offloader.offload(&spec, &[], DeviceKv::Tensors(&from), stream) }?.wait()?;
        // SAFETY: as above.
        unsafe { offloader.reload(&Arc::new(offloaded), None, DeviceKv::Tensors(&to), stream) }?.wait()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_every_counter() {
        let page = page(Counters::default()).unwrap();
        for line in [
            "splitzip_offload_raw_bytes_total{direction=\"out\"} 0",
            "splitzip_offload_coded_bytes_total{direction=\"back\"} 0",
            "splitzip_offload_codec_seconds_total{direction=\"out\"} 0.0",
            "splitzip_raw_chunks_total 0",
            "# EOF",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
