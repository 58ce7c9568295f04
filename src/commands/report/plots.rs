//! Plots as SVG text, by plotters with its SVG backend: no fonts, no browser, no script, so a plot looks the same wherever it is made and
//! works wherever HTML does. (charming and plotly draw with scripts of megabytes; poloto has had no release for years.)
//!
//! A plot has no colours of its own: every colour here stands for one in `style.css`, which has a light and a dark one for it and selects by
//! the attribute. Dashes are in the style as well. plotters rounds to whole pixels, so plots are drawn at four times their size.

use crate::failure::{Failure, Result};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

const SCALE: u32 = 4;
/// Of a panel, in pixels of CSS when it has its natural size.
pub const WIDTH: u32 = 560;
pub const HEIGHT: u32 = 300;

/// What a colour means. The numbers are those of `style.css`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    Text,
    Axis,
    Grid,
    Mark,
    K,
    V,
    Other,
    W4,
    W3,
    W2x3,
    W2x2x3,
    /// A step of the ramp of heat maps, from 1 on.
    Heat(u8),
}

/// Steps of the ramp. A cell below the first one is not drawn.
pub const HEAT_STEPS: u8 = 8;

impl Ink {
    fn color(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(0x1f, 0x29, 0x33),
            Ink::Axis => RGBColor(0x8a, 0x94, 0xa0),
            Ink::Grid => RGBColor(0xe3, 0xe7, 0xec),
            Ink::Mark => RGBColor(0x5f, 0x6b, 0x7a),
            Ink::K => RGBColor(0x00, 0x68, 0xb5),
            Ink::V => RGBColor(0xc8, 0x4c, 0x00),
            Ink::Other => RGBColor(0x4d, 0x5a, 0x69),
            Ink::W4 => RGBColor(0x8a, 0x6d, 0x00),
            Ink::W3 => RGBColor(0x00, 0x84, 0x6b),
            Ink::W2x3 => RGBColor(0xa4, 0x50, 0x8b),
            Ink::W2x2x3 => RGBColor(0x5b, 0x4b, 0xc4),
            Ink::Heat(step) => RGBColor(0x10, 0x10, step),
        }
    }

    /// The name of its class in `style.css`, for legends.
    pub fn class(self) -> String {
        match self {
            Ink::Heat(step) => format!("heat-{step}"),
            ink => format!("{ink:?}").to_lowercase(),
        }
    }
}

/// One axis: its ends, its ticks with their labels, what it shows.
#[derive(Clone)]
pub struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
    title: String,
}

impl Axis {
    /// Ticks at round numbers.
    pub fn linear(title: &str, low: f64, high: f64, label: impl Fn(f64) -> String) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        let rough = (high - low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(rough);
        let first = (low / step).ceil() as i64;
        let ticks = (first..first + 20).map(|number| number as f64 * step);
        let ticks =
            ticks.take_while(|&tick| tick <= high + step * 1e-6).map(|tick| (tick, label(tick))).collect();
        Axis { low, high, ticks, title: title.to_owned() }
    }

    /// Whole numbers only; half a step of room on both ends.
    pub fn whole(title: &str, low: f64, high: f64) -> Axis {
        let mut axis = Axis::linear(title, low - 0.5, high + 0.5, |tick| format!("{tick:.0}"));
        axis.ticks.retain(|(tick, _)| tick.fract() == 0.0);
        axis
    }

    /// A category at every whole number; one without a label has no tick.
    pub fn categories(title: &str, labels: Vec<String>) -> Axis {
        let high = labels.len() as f64 - 0.5;
        let labels = labels.into_iter().enumerate().filter(|of| !of.1.is_empty());
        let ticks = labels.map(|(at, label)| (at as f64, label)).collect();
        Axis { low: -0.5, high, ticks, title: title.to_owned() }
    }

    /// Decades: values are logarithms to base 10.
    pub fn decades(title: &str, low: i32, high: i32, label: impl Fn(f64) -> String) -> Axis {
        let ticks = (low..=high).map(|power| (f64::from(power), label(10f64.powi(power)))).collect();
        Axis { low: low.into(), high: high.into(), ticks, title: title.to_owned() }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        (f64::from(start) + share.clamp(0.0, 1.0) * f64::from(end - start)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.iter().map(|tick| tick.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        value.to_string()
    }
}

/// What is drawn in a panel, in order.
pub enum Shape {
    /// A line through points.
    Line { ink: Ink, dashed: bool, points: Vec<(f64, f64)> },
    /// Points: low and high of a band at x.
    Band { ink: Ink, points: Vec<(f64, f64, f64)> },
    /// A bar from 0 (the low end of the axis) to `height`.
    Bar { ink: Ink, from: f64, to: f64, height: f64 },
    /// A filled rectangle.
    Cell { ink: Ink, x: (f64, f64), y: (f64, f64) },
    /// A vertical line with a word at its upper end.
    Mark { x: f64, text: String },
    /// A horizontal line.
    Level { y: f64 },
}

/// Draws one panel.
pub fn draw(height: u32, x: &Axis, y: &Axis, shapes: &[Shape]) -> Result<String> {
    let mut svg = String::new();
    let drawn = draw_into(&mut svg, height, x, y, shapes);
    drawn.map_err(|error| Failure::Failed(format!("a plot cannot be drawn: {error}")))?;
    Ok(svg)
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw_into(svg: &mut String, height: u32, x: &Axis, y: &Axis, shapes: &[Shape]) -> Drawn {
    let size = |pixels: u32| pixels * SCALE;
    let root = SVGBackend::with_string(svg, (size(WIDTH), size(height))).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin_top(size(22))
        .margin_left(size(6))
        .margin_right(size(22))
        .x_label_area_size(size(46))
        .y_label_area_size(size(70))
        .build_cartesian_2d(x.clone(), y.clone())?;
    let text = |pixels: u32| ("sans-serif", size(pixels)).into_font().color(&Ink::Text.color());
    let label = |axis: &Axis, value: f64| {
        let tick = axis.ticks.iter().find(|tick| tick.0 == value);
        tick.map_or_else(String::new, |tick| tick.1.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .set_tick_mark_size(LabelAreaPosition::Left, size(5))
        .set_tick_mark_size(LabelAreaPosition::Bottom, size(5))
        .bold_line_style(Ink::Grid.color().stroke_width(SCALE))
        .light_line_style(TRANSPARENT)
        .axis_style(Ink::Axis.color().stroke_width(SCALE))
        .label_style(text(16))
        .axis_desc_style(text(17))
        .x_desc(&x.title)
        .y_desc(&y.title)
        .x_label_formatter(&|value| label(x, *value))
        .y_label_formatter(&|value| label(y, *value))
        .draw()?;
    for shape in shapes {
        match shape {
            Shape::Line { ink, dashed, points } => {
                // The style finds dashed lines by their width.
                let width = if *dashed { 2 * SCALE + 1 } else { 2 * SCALE };
                let style = ink.color().stroke_width(width);
                let points = points.iter().copied();
                match points.len() {
                    // A line of one point shows nothing.
                    1 => {
                        chart.draw_series(points.map(|at| Circle::new(at, size(3), ink.color().filled())))?
                    }
                    _ => chart.draw_series(LineSeries::new(points, style))?,
                };
            }
            Shape::Band { ink, points } => {
                let low = points.iter().map(|&(x, low, _)| (x, low));
                let high = points.iter().rev().map(|&(x, _, high)| (x, high));
                let around: Vec<(f64, f64)> = low.chain(high).collect();
                chart.draw_series([Polygon::new(around, ink.color().mix(0.18))])?;
            }
            Shape::Bar { ink, from, to, height } => {
                chart
                    .draw_series([Rectangle::new([(*from, y.low), (*to, *height)], ink.color().filled())])?;
            }
            Shape::Cell { ink, x, y } => {
                chart.draw_series([Rectangle::new([(x.0, y.0), (x.1, y.1)], ink.color().filled())])?;
            }
            Shape::Mark { x: at, text: word } => {
                let line = Ink::Mark.color().stroke_width(SCALE + 1);
                chart.draw_series(LineSeries::new([(*at, y.low), (*at, y.high)], line))?;
                let (across, _) = chart.backend_coord(&(*at, y.high));
                let style = ("sans-serif", size(15)).into_font().color(&Ink::Mark.color());
                let style = style.pos(plotters::style::text_anchor::Pos::new(
                    plotters::style::text_anchor::HPos::Center,
                    plotters::style::text_anchor::VPos::Top,
                ));
                root.draw(&Text::new(word.clone(), (across, 3 * SCALE as i32), style))?;
            }
            Shape::Level { y: at } => {
                let line = Ink::Mark.color().stroke_width(SCALE);
                chart.draw_series(LineSeries::new([(x.low, *at), (x.high, *at)], line))?;
            }
        }
    }
    root.present()?;
    Ok(())
}
