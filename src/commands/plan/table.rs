//! The plan for people: one link with all codecs, or one row a link.

use super::links::{LinkPlan, Told};
use crate::output::binary;
use crate::table::Table;
use splitzip_host::policy::{Stage, Way};
use splitzip_host::{Bases, Scheme};

/// All codecs over one link.
pub fn one(plan: &LinkPlan) -> String {
    let titles = [
        "codec",
        "bases",
        "slowest",
        "pieces",
        "ratio",
        "encode GB/s",
        "decode GB/s",
        "serial",
        "pipelined",
        "speedup",
        "pays up to GB/s",
    ];
    let mut table = Table::new(4, &titles);
    let dash = || "-".to_owned();
    let raw = ["raw", "-", "link", "-", "1.000", "-", "-", "-"].map(str::to_owned);
    table.row(raw.into_iter().chain([time(plan.raw_seconds), "1.00".to_owned(), dash()]));
    for of in &plan.codecs {
        let estimate = &of.estimate;
        let speed = |bytes_per_second: f64| three(bytes_per_second / 1e9);
        let seconds = estimate.pipelined_seconds.min(estimate.serial_seconds);
        table.row([
            of.scheme.to_string(),
            of.bases.map_or_else(dash, |bases| bases.to_string()),
            stage(estimate.bottleneck).to_owned(),
            pieces(estimate.pipelined_seconds < estimate.serial_seconds, estimate.piece_bytes),
            format!("{:.3}", of.ratio),
            speed(of.encode.bytes_per_second()),
            speed(of.decode.bytes_per_second()),
            time(estimate.serial_seconds),
            time(estimate.pipelined_seconds),
            format!("{:.2}", estimate.raw_seconds / seconds),
            of.pays_up_to.pipelined.or(of.pays_up_to.serial).map_or_else(dash, speed),
        ]);
    }
    format!("{}\n{}\n", table.text(), told(plan))
}

/// One row a link.
pub fn many(plans: &[LinkPlan]) -> String {
    let mut table = Table::new(
        6,
        &["link", "send it as", "bases", "way", "pieces", "slowest", "GB/s", "raw", "time", "speedup"],
    );
    for plan in plans {
        let Told { way, scheme, bases, piece_bytes, .. } = plan.decision;
        table.row([
            plan.link.clone(),
            scheme.map_or("raw", Scheme::name).to_owned(),
            bases.map_or("-", Bases::name).to_owned(),
            way_text(way).to_owned(),
            pieces(way == Way::Pipelined, piece_bytes),
            stage(plan.decision.bottleneck).to_owned(),
            three(plan.bytes_per_second / 1e9),
            time(plan.raw_seconds),
            time(plan.decision.seconds),
            format!("{:.2}", plan.decision.speedup),
        ]);
    }
    // Most links share their reason with others.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for plan in plans {
        let reason = plan.decision.reason.as_str();
        match reasons.iter_mut().find(|of| of.0 == reason) {
            Some(of) => of.1.push(&plan.link),
            None => reasons.push((reason, vec![&plan.link])),
        }
    }
    let line = |(reason, links): &(&str, Vec<&str>)| format!("{}: {reason}.\n", links.join(", "));
    format!("{}\n{}", table.text(), reasons.iter().map(line).collect::<String>())
}

/// What to do with one link, and why, in a sentence.
pub fn told(plan: &LinkPlan) -> String {
    let Told { way, scheme, bases, seconds, speedup, piece_bytes, ref reason, .. } = plan.decision;
    let Some(scheme) = scheme else { return format!("do not compress: {reason}.") };
    let bases = if bases == Some(Bases::Channel) { " with channel bases" } else { "" };
    let way = match way {
        Way::Pipelined => format!("in pieces of {}", binary(piece_bytes)),
        Way::Serial | Way::Raw => "in one piece".to_owned(),
    };
    let (seconds, raw) = (time(seconds), time(plan.raw_seconds));
    format!(
        "compress with {scheme}{bases}, {way}: {seconds} instead of {raw}, {speedup:.2} times as fast; {reason}."
    )
}

pub fn way_text(way: Way) -> &'static str {
    match way {
        Way::Raw => "raw",
        Way::Serial => "serial",
        Way::Pipelined => "pipelined",
    }
}

pub fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Encode => "encode",
        Stage::Link => "link",
        Stage::Decode => "decode",
    }
}

fn pieces(cut: bool, bytes: u64) -> String {
    if cut { binary(bytes) } else { "-".to_owned() }
}

/// Seconds in a unit that people read: `357.9 ms`.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 1e-3 => (1e6 * seconds, "us"),
        seconds if seconds < 1.0 => (1e3 * seconds, "ms"),
        seconds => (seconds, "s"),
    };
    format!("{} {unit}", three(value))
}

/// Three or four digits: `9.04`, `12.5`, `2324`.
pub fn three(value: f64) -> String {
    let digits = match value {
        value if value >= 999.5 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}
