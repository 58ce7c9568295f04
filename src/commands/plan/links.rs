//! The plan for one link, as numbers: what the table, the JSON object and the plots of a report are made of.

use super::LinkChoice;
use serde::Serialize;
use splitzip_host::policy::{Codec, Decision, Estimate, Link, Policy, Rate, Stage, Way};
use splitzip_host::{Bases, Scheme};

#[derive(Serialize)]
pub struct LinkPlan {
    pub link: String,
    pub bytes_per_second: f64,
    pub latency_seconds: f64,
    pub raw_seconds: f64,
    pub decision: Told,
    pub codecs: Vec<CodecPlan>,
}

/// What to do, and why.
#[derive(Serialize)]
pub struct Told {
    pub way: Way,
    pub scheme: Option<Scheme>,
    /// Of schemes with a window.
    pub bases: Option<Bases>,
    pub seconds: f64,
    /// Raw time by this time.
    pub speedup: f64,
    pub piece_bytes: u64,
    pub bottleneck: Stage,
    pub reason: String,
}

/// One codec over the link.
#[derive(Serialize)]
pub struct CodecPlan {
    pub scheme: Scheme,
    /// Of schemes with a window.
    pub bases: Option<Bases>,
    pub ratio: f64,
    pub encode: Rate,
    pub decode: Rate,
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Bytes per second of the fastest link on which it saves enough; null when it does on none.
    pub pays_up_to: PaysUpTo,
}

#[derive(Serialize)]
pub struct PaysUpTo {
    pub serial: Option<f64>,
    pub pipelined: Option<f64>,
}

pub fn bases(scheme: Scheme, bases: Bases) -> Option<Bases> {
    scheme.has_window().then_some(bases)
}

impl LinkPlan {
    pub fn new(policy: &Policy, bytes: u64, choice: &LinkChoice, codecs: &[Codec]) -> LinkPlan {
        let link = choice.link;
        let decision = policy.decide(bytes, &link, codecs);
        let of = |codec: &Codec| {
            let even = |way| policy.break_even(bytes, link.latency_seconds(), codec, way);
            CodecPlan {
                scheme: codec.scheme,
                bases: bases(codec.scheme, codec.bases),
                ratio: codec.ratio(),
                encode: codec.encode(),
                decode: codec.decode(),
                estimate: policy.estimate(bytes, &link, codec),
                pays_up_to: PaysUpTo { serial: even(Way::Serial), pipelined: even(Way::Pipelined) },
            }
        };
        let plans: Vec<CodecPlan> = codecs.iter().map(of).collect();
        LinkPlan {
            link: choice.name.clone(),
            bytes_per_second: link.bytes_per_second(),
            latency_seconds: link.latency_seconds(),
            raw_seconds: decision.raw_seconds,
            decision: Told {
                way: decision.way,
                scheme: decision.codec.map(|codec| codec.scheme),
                bases: decision.codec.and_then(|codec| bases(codec.scheme, codec.bases)),
                seconds: decision.seconds,
                speedup: decision.speedup(),
                piece_bytes: decision.piece_bytes,
                bottleneck: decision.bottleneck,
                reason: reason(policy, (bytes, &link), codecs, &decision, &plans),
            },
            codecs: plans,
        }
    }
}

/// Why: for a codec what it waits for, for raw what is in the way.
fn reason(
    policy: &Policy,
    (bytes, link): (u64, &Link),
    codecs: &[Codec],
    decision: &Decision,
    plans: &[CodecPlan],
) -> String {
    let gigabytes = |bytes_per_second: f64| format!("{} GB/s", super::table::three(bytes_per_second / 1e9));
    if let Some(codec) = decision.codec {
        let (encode, decode) = (codec.encode().bytes_per_second(), codec.decode().bytes_per_second());
        return match decision.bottleneck {
            Stage::Link => format!(
                "the link is the bottleneck, and {:.3} times as many bytes fit through it",
                codec.ratio()
            ),
            Stage::Encode => format!("it waits for encoding with {}, and still gains", gigabytes(encode)),
            Stage::Decode => format!("it waits for decoding with {}, and still gains", gigabytes(decode)),
        };
    }
    let limit = 1.0 / (1.0 - policy.least_gain);
    if plans.iter().all(|of| of.ratio <= limit) {
        let gain = 100.0 * policy.least_gain;
        return format!("no codec makes it so much smaller that {gain:.0} % of the time could be saved");
    }
    let even = |of: &CodecPlan| of.pays_up_to.pipelined.or(of.pays_up_to.serial).unwrap_or(0.0);
    let Some(best) = plans.iter().max_by(|a, b| even(a).total_cmp(&even(b))) else {
        return "there is no codec".to_owned();
    };
    let (encode, decode) = (best.encode, best.decode);
    let (speed, what) = if encode.bytes_per_second() <= decode.bytes_per_second() {
        (encode.bytes_per_second(), "encoding")
    } else {
        (decode.bytes_per_second(), "decoding")
    };
    // A larger transfer is cut into pieces, so that only the slower side counts: if that is enough, it is the size.
    let larger = |shift: &u32| bytes < 1 << shift && policy.decide(1 << shift, link, codecs).way != Way::Raw;
    let from = (10..50u32).find(larger).map(|shift| crate::output::binary(1 << shift));
    match from {
        Some(from) => {
            let calls = [encode, decode].map(|rate| super::table::time(rate.seconds_per_call()));
            let [encode, decode] = calls;
            format!(
                "it is too small: a codec takes {encode} and {decode} before its first byte; compression pays from {from} on"
            )
        }
        None if even(best) > 0.0 => {
            let (speed, even) = (gigabytes(speed), gigabytes(even(best)));
            format!("{what} with {speed} holds up the link; {} pays on links up to {even}", best.scheme)
        }
        None => format!("{what} with {} holds up the link", gigabytes(speed)),
    }
}
