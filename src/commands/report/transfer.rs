//! The figure of the transfer plan: how much faster than raw every codec is on every link.

use super::figures::{Figure, Key, Numbers, Panel, ink_of, is_channel};
use super::plots::{Axis, HEIGHT, Shape, draw};
use crate::commands::plan::links::{LinkPlan, bases};
use crate::commands::plan::table::{three, time, told, way_text};
use crate::failure::Result;
use crate::output::binary;
use splitzip_host::policy::{Codec, Link, Policy, Way};

/// What is sent, and what codes it.
pub struct Transfer<'a> {
    pub bytes: u64,
    pub policy: Policy,
    pub codecs: &'a [Codec],
    /// `encoded on h200, decoded on h200`, and where the speeds are from.
    pub about: String,
}

/// Decades of GB/s that are plotted.
const SPEEDS: (i32, i32) = (0, 3);

pub fn figure(transfer: &Transfer<'_>, plans: &[LinkPlan]) -> Result<Figure> {
    let best = transfer.codecs.iter().map(|codec| codec.ratio()).fold(1.0, f64::max);
    let x = Axis::decades("link, GB/s", SPEEDS.0, SPEEDS.1, |speed| format!("{speed:.0}"));
    let y = Axis::linear("times as fast as raw", 0.0, 1.1 * best, |tick| format!("{tick:.1}"));
    let speedup = |codec: &Codec, way: Way, power: f64| {
        let link = Link::new(1e9 * 10f64.powf(power), 10e-6).ok()?;
        let estimate = transfer.policy.estimate(transfer.bytes, &link, codec);
        let seconds = match way {
            Way::Serial => estimate.serial_seconds,
            _ => estimate.pipelined_seconds,
        };
        Some(estimate.raw_seconds / seconds)
    };
    let panel = |title: &str, way: Way| {
        let mut shapes = vec![Shape::Level { y: 1.0 }];
        for named in Link::NAMED.iter().filter(|named| !named.name.starts_with("pcie")) {
            let x = (named.link.bytes_per_second() / 1e9).log10();
            shapes.push(Shape::Mark { x, text: named.name.to_owned() });
        }
        let mut said = Vec::new();
        for codec in transfer.codecs {
            let powers = (0..=150)
                .map(|at| f64::from(SPEEDS.0) + f64::from(SPEEDS.1 - SPEEDS.0) * f64::from(at) / 150.0);
            let points = powers.filter_map(|power| Some((power, speedup(codec, way, power)?))).collect();
            let dashed = is_channel(bases(codec.scheme, codec.bases));
            shapes.push(Shape::Line { ink: ink_of(codec.scheme), dashed, points });
            if let Some(even) = transfer.policy.break_even(transfer.bytes, 10e-6, codec, way)
                && !dashed
            {
                said.push(format!("{} pays up to {} GB/s", codec.scheme, three(even / 1e9)));
            }
        }
        let said = if said.is_empty() { "no codec pays on any link".to_owned() } else { said.join("; ") };
        Ok(Panel {
            title: title.to_owned(),
            alt: format!(
                "Lines that fall from the ratio of a scheme on slow links to below 1 on fast ones. {said}."
            ),
            svg: draw(HEIGHT, &x, &y, &shapes)?,
        })
    };
    let mut panels = vec![panel("Encode all, send, decode all", Way::Serial)?];
    if transfer.policy.pipelined {
        panels.insert(0, panel("In pieces, at the same time", Way::Pipelined)?);
    }
    let legend = transfer.codecs.iter().map(|codec| {
        let channel = is_channel(bases(codec.scheme, codec.bases));
        let more = if channel { ", channel bases" } else { "" };
        Key { class: ink_of(codec.scheme).class(), dashed: channel, label: format!("{}{more}", codec.scheme) }
    });
    let head =
        ["link", "GB/s", "raw", "send as", "way", "pieces", "time", "speedup", "why"].map(str::to_owned);
    let row = |plan: &LinkPlan| {
        let of = &plan.decision;
        let bases = if is_channel(of.bases) { ", channel bases" } else { "" };
        let pieces = if of.way == Way::Pipelined { binary(of.piece_bytes) } else { "-".to_owned() };
        vec![
            plan.link.clone(),
            three(plan.bytes_per_second / 1e9),
            time(plan.raw_seconds),
            of.scheme.map_or_else(|| "raw".to_owned(), |scheme| format!("{scheme}{bases}")),
            way_text(of.way).to_owned(),
            pieces,
            time(of.seconds),
            format!("{:.2}", of.speedup),
            told(plan),
        ]
    };
    Ok(Figure {
        id: "plan",
        title: "Does it pay?".to_owned(),
        about: format!(
            "The whole file as one transfer, with its own ratios; {}. Above 1 compression is faster than sending the bytes as they are.",
            transfer.about
        ),
        legend: legend.collect(),
        panels,
        table: Numbers { head: head.to_vec(), rows: plans.iter().map(row).collect() },
    })
}
