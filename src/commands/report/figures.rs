//! The figures of a report: what each one shows, what it says in a sentence, and the numbers behind it.

use super::measure::{BUCKETS, Coding, FileReport, TensorNumbers};
use super::parts::Part;
use super::plots::{Axis, HEAT_STEPS, HEIGHT, Ink, Shape, draw};
use crate::failure::Result;
use splitzip_host::{Bases, Histogram, Scheme};

/// A figure: panels that share a legend, and a table of their numbers.
pub struct Figure {
    pub id: &'static str,
    pub title: String,
    pub about: String,
    pub legend: Vec<Key>,
    pub panels: Vec<Panel>,
    pub table: Numbers,
}

/// A row of a legend.
pub struct Key {
    pub class: String,
    pub dashed: bool,
    pub label: String,
}

/// One plot.
pub struct Panel {
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub alt: String,
    pub svg: String,
}

/// A table whose first column names its rows.
pub struct Numbers {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// Shares (0 to 1) from which on a step of the ramp is drawn.
const STEPS: [f64; HEAT_STEPS as usize] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3];

/// All figures of a file but the plan.
pub fn of_file(file: &FileReport) -> Result<Vec<Figure>> {
    Ok(vec![exponents(file)?, layers(file)?, coverage(file)?, ratios(file)?, escapes(file)?])
}

pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A share as the label of an axis: as many digits as it needs.
fn short(share: f64) -> String {
    let text = format!("{:.4}", 100.0 * share);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn ink(part: Part) -> Ink {
    match part {
        Part::K => Ink::K,
        Part::V => Ink::V,
        Part::Other => Ink::Other,
    }
}

/// A scheme that is newer than the palette is grey.
pub fn ink_of(scheme: Scheme) -> Ink {
    const INKS: [Ink; 4] = [Ink::W4, Ink::W3, Ink::W2x3, Ink::W2x2x3];
    let place = Scheme::coded().position(|coded| coded == scheme);
    place.and_then(|place| INKS.get(place)).copied().unwrap_or(Ink::Other)
}

pub fn is_channel(bases: Option<Bases>) -> bool {
    bases == Some(Bases::Channel)
}

fn key(coding: &Coding) -> Key {
    Key { class: ink_of(coding.scheme).class(), dashed: is_channel(coding.bases), label: coding.name() }
}

/// Tensors of a part. Those of another dtype than most are left out where exponents are compared: they have other exponents.
fn of_part(file: &FileReport, part: Part) -> Vec<&TensorNumbers> {
    file.tensors.iter().filter(|tensor| tensor.part == part && tensor.coded_as == file.dtype).collect()
}

/// The parts that a file has.
fn parts(file: &FileReport) -> Vec<(Part, Vec<&TensorNumbers>)> {
    let all = Part::ALL.map(|part| (part, of_part(file, part)));
    all.into_iter().filter(|(_, tensors)| !tensors.is_empty()).collect()
}

fn sum(file: &FileReport, tensors: &[&TensorNumbers]) -> Histogram {
    let mut sum = Histogram::new(file.dtype);
    for tensor in tensors {
        // All have the dtype of the file.
        let _ = sum.merge(&tensor.histogram);
    }
    sum
}

/// The exponents that are plotted: on each side at most a thousandth of a part lies outside, and a hundredth of a tensor.
fn window(file: &FileReport) -> (usize, usize) {
    let mut ends = (file.dtype.exponents() - 1, 0);
    let mut widen = |of: &Histogram, share: f64| {
        let counts = of.counts();
        let least = share * of.total() as f64;
        let reaches = |sum: &mut u64, count: u64| {
            *sum += count;
            *sum as f64 > least
        };
        let mut sum = 0;
        let low = counts.iter().position(|&count| reaches(&mut sum, count));
        let mut sum = 0;
        let high = counts.iter().rposition(|&count| reaches(&mut sum, count));
        if let (Some(low), Some(high)) = (low, high) {
            ends = (ends.0.min(low), ends.1.max(high));
        }
    };
    for (_, tensors) in parts(file) {
        widen(&sum(file, &tensors), 0.001);
        tensors.iter().for_each(|tensor| widen(&tensor.histogram, 0.01));
    }
    (ends.0.min(ends.1), ends.1)
}

fn share(of: &Histogram, exponent: usize) -> f64 {
    of.counts()[exponent] as f64 / of.total().max(1) as f64
}

/// The most frequent exponent.
fn top(of: &Histogram) -> usize {
    let counts = of.counts().iter().enumerate();
    counts.max_by_key(|&(exponent, &count)| (count, std::cmp::Reverse(exponent))).map_or(0, |of| of.0)
}

/// How many exponents cover this share.
fn needed(of: &Histogram, share: f64) -> usize {
    (1..=of.counts().len()).find(|&size| of.coverage(size) >= share).unwrap_or(of.counts().len())
}

fn exponents(file: &FileReport) -> Result<Figure> {
    let (low, high) = window(file);
    let parts = parts(file);
    let sums: Vec<(Part, Histogram)> = parts.iter().map(|(part, of)| (*part, sum(file, of))).collect();
    let highest =
        (low..=high).flat_map(|at| sums.iter().map(move |(_, of)| share(of, at))).fold(0.0, f64::max);
    let (x, y) = (
        Axis::whole("exponent", low as f64, high as f64),
        Axis::linear("share of elements", 0.0, highest * 1.05, short),
    );
    let panel = |(part, of): &(Part, Histogram)| {
        let bar = |at: usize| {
            let (from, to) = (at as f64 - 0.42, at as f64 + 0.42);
            Shape::Bar { ink: ink(*part), from, to, height: share(of, at) }
        };
        let bars: Vec<Shape> = (low..=high).map(bar).collect();
        Ok(Panel {
            title: part.name().to_owned(),
            alt: format!(
                "Bars of the share of every exponent. The most frequent one is {} with {}; {} exponents cover 99 % of all elements.",
                top(of),
                percent(share(of, top(of))),
                needed(of, 0.99)
            ),
            svg: draw(HEIGHT, &x, &y, &bars)?,
        })
    };
    let text = |(part, of): &(Part, Histogram)| {
        let outside =
            (0..of.counts().len()).filter(|at| !(low..=high).contains(at)).map(|at| share(of, at)).sum();
        format!(
            "{}: {:.2} bits of entropy, {} outside of the plot. ",
            part.name(),
            of.entropy(),
            percent(outside)
        )
    };
    let head = [vec!["exponent".to_owned()], sums.iter().map(|(part, _)| part.name().to_owned()).collect()];
    let row = |at: usize| {
        let cells = sums.iter().map(|(_, of)| percent(share(of, at)));
        [at.to_string()].into_iter().chain(cells).collect()
    };
    Ok(Figure {
        id: "exponents",
        title: "Exponents".to_owned(),
        about: format!(
            "How often every exponent of {} occurs. {}",
            file.dtype,
            sums.iter().map(text).collect::<String>()
        ),
        legend: Vec::new(),
        panels: sums.iter().map(panel).collect::<Result<_>>()?,
        table: Numbers { head: head.concat(), rows: (low..=high).map(row).collect() },
    })
}

/// The label of a row or column of a tensor: its layer where all have one of their own.
fn labels(tensors: &[&TensorNumbers]) -> (&'static str, Vec<String>) {
    let layers: Vec<u64> = tensors.iter().filter_map(|tensor| tensor.layer).collect();
    let unique = layers.len() == tensors.len() && layers.windows(2).all(|two| two[0] != two[1]);
    match unique {
        true => ("layer", layers.iter().map(u64::to_string).collect()),
        false => ("tensor, in order", (0..tensors.len()).map(|number| number.to_string()).collect()),
    }
}

/// At most 16 of the labels, evenly spread; the others are empty.
fn thinned(labels: Vec<String>) -> Vec<String> {
    let every = labels.len().div_ceil(16).max(1);
    let keep =
        |(number, label): (usize, String)| if number.is_multiple_of(every) { label } else { String::new() };
    labels.into_iter().enumerate().map(keep).collect()
}

fn layers(file: &FileReport) -> Result<Figure> {
    let (low, high) = window(file);
    let x = Axis::whole("exponent", low as f64, high as f64);
    let step = |share: f64| STEPS.iter().take_while(|&&least| share >= least).count() as u8;
    let panel = |(part, tensors): &(Part, Vec<&TensorNumbers>)| {
        let (what, mut names) = labels(tensors);
        names = thinned(names);
        names.reverse();
        let y = Axis::categories(what, names);
        let mut cells = Vec::new();
        for (number, tensor) in tensors.iter().enumerate() {
            let row = (tensors.len() - 1 - number) as f64;
            let mut at = low;
            while at <= high {
                // Neighbours of one colour are one cell.
                let color = step(share(&tensor.histogram, at));
                let same = (at..=high).take_while(|&at| step(share(&tensor.histogram, at)) == color).count();
                if color != 0 {
                    let x = (at as f64 - 0.5, (at + same) as f64 - 0.5);
                    cells.push(Shape::Cell { ink: Ink::Heat(color), x, y: (row - 0.5, row + 0.5) });
                }
                at += same;
            }
        }
        let height = (tensors.len() as u32 * 9).clamp(120, 900) + 62;
        let tops: Vec<usize> = tensors.iter().map(|tensor| top(&tensor.histogram)).collect();
        let (least, most) = (tops.iter().min().unwrap_or(&0), tops.iter().max().unwrap_or(&0));
        Ok(Panel {
            title: part.name().to_owned(),
            alt: format!(
                "Map of exponents by {what}: {} rows, darker where more elements have the exponent. The most frequent exponent lies between {least} and {most}.",
                tensors.len()
            ),
            svg: draw(height, &x, &y, &cells)?,
        })
    };
    let parts = parts(file);
    let head: Vec<String> = (low..=high).map(|at| at.to_string()).collect();
    let row = |tensor: &TensorNumbers| {
        let cells = (low..=high).map(|at| percent(share(&tensor.histogram, at)));
        [tensor.name.clone()].into_iter().chain(cells).collect()
    };
    Ok(Figure {
        id: "layers",
        title: "Exponents by layer".to_owned(),
        about: "A codebook for the whole model needs what all rows have together; a window per chunk follows each row.".to_owned(),
        legend: STEPS
            .iter()
            .zip(1..)
            .map(|(&least, number)| Key {
                class: Ink::Heat(number).class(),
                dashed: false,
                label: format!("from {}", short(least)),
            })
            .collect(),
        panels: parts.iter().map(panel).collect::<Result<_>>()?,
        table: Numbers {
            head: [vec!["tensor".to_owned()], head].concat(),
            rows: parts.iter().flat_map(|(_, tensors)| tensors.iter().map(|tensor| row(tensor))).collect(),
        },
    })
}

fn coverage(file: &FileReport) -> Result<Figure> {
    let most = file.dtype.exponents().min(24);
    let parts = parts(file);
    // Least, mean and most of the tensors of a part, for every size of a codebook of its own.
    let of = |tensors: &[&TensorNumbers], size: usize| {
        let all = tensors.iter().map(|tensor| tensor.histogram.coverage(size));
        let (least, most) = all.clone().fold((1.0f64, 0.0f64), |ends, of| (ends.0.min(of), ends.1.max(of)));
        (least, all.sum::<f64>() / tensors.len() as f64, most)
    };
    let every: Vec<&TensorNumbers> = parts.iter().flat_map(|(_, tensors)| tensors.clone()).collect();
    let one = sum(file, &every);
    let mut shapes = Vec::new();
    let mut tail = Vec::new();
    let floor = |missing: f64| missing.max(1e-5).log10();
    for (size, text) in [(3, "w2x3: 3"), (7, "w3: 7"), (16, "w4: 16")] {
        if size <= most {
            shapes.push(Shape::Mark { x: size as f64, text: text.to_owned() });
            tail.push(Shape::Mark { x: size as f64, text: text.to_owned() });
        }
    }
    for (part, tensors) in &parts {
        let points: Vec<(f64, (f64, f64, f64))> =
            (1..=most).map(|size| (size as f64, of(tensors, size))).collect();
        let band = points.iter().map(|&(x, (least, _, most))| (x, least, most)).collect();
        let ink = ink(*part);
        shapes.push(Shape::Band { ink, points: band });
        shapes.push(Shape::Line {
            ink,
            dashed: false,
            points: points.iter().map(|&(x, (_, mean, _))| (x, mean)).collect(),
        });
        let missing = points.iter().map(|&(x, (_, mean, _))| (x, floor(1.0 - mean))).collect();
        tail.push(Shape::Line { ink, dashed: false, points: missing });
    }
    let shared: Vec<(f64, f64)> = (1..=most).map(|size| (size as f64, one.coverage(size))).collect();
    let missing = shared.iter().map(|&(x, of)| (x, floor(1.0 - of))).collect();
    shapes.push(Shape::Line { ink: Ink::Other, dashed: true, points: shared });
    tail.push(Shape::Line { ink: Ink::Other, dashed: true, points: missing });

    let x = Axis::whole("exponents in the codebook", 1.0, most as f64);
    let y = Axis::linear("elements with a code", 0.0, 1.0, short);
    let logarithmic = Axis::decades("elements without a code", -5, 0, short);
    let line = |part: Part| Key {
        class: ink(part).class(),
        dashed: false,
        label: format!("{}, one codebook a tensor", part.name()),
    };
    let mut legend: Vec<Key> = parts.iter().map(|(part, _)| line(*part)).collect();
    legend.push(Key {
        class: Ink::Other.class(),
        dashed: true,
        label: "one codebook for all tensors".to_owned(),
    });
    let mut head = vec!["exponents".to_owned()];
    for (part, _) in &parts {
        head.extend(["mean", "least", "most"].map(|what| format!("{}, {what}", part.name())));
    }
    head.push("one for all".to_owned());
    let row = |size: usize| {
        let cells = parts.iter().flat_map(|(_, tensors)| {
            let (least, mean, most) = of(tensors, size);
            [percent(mean), percent(least), percent(most)]
        });
        [size.to_string()].into_iter().chain(cells).chain([percent(one.coverage(size))]).collect()
    };
    let say = |size: usize| {
        let each = parts
            .iter()
            .map(|(part, tensors)| format!("{} of {}", percent(of(tensors, size).1), part.name()));
        each.collect::<Vec<_>>().join(" and ")
    };
    let alt =
        format!("Lines that rise with the number of exponents: 8 cover {}, 16 cover {}.", say(8), say(16));
    Ok(Figure {
        id: "coverage",
        title: "Coverage against codebook size".to_owned(),
        about: format!(
            "The share of elements whose exponent is among the most frequent ones: 16 cover {}. Bands go from the worst to the best tensor. \
             Marked are the values that have the shortest codes of a scheme.",
            say(16)
        ),
        legend,
        panels: vec![
            Panel { title: "With a code".to_owned(), alt: alt.clone(), svg: draw(HEIGHT, &x, &y, &shapes)? },
            Panel {
                title: "Without a code: escapes".to_owned(),
                alt: format!("The same from the other side, in decades. {alt}"),
                svg: draw(HEIGHT, &x, &logarithmic, &tail)?,
            },
        ],
        table: Numbers { head, rows: (1..=most).map(row).collect() },
    })
}

fn ratios(file: &FileReport) -> Result<Figure> {
    let all = file.codings.iter().flat_map(|coding| coding.tensors.iter().map(|of| of.ratio));
    let (least, most) = all.fold((f64::INFINITY, 1.0f64), |ends, of| (ends.0.min(of), ends.1.max(of)));
    let room = 0.05 * (most - least).max(0.1);
    let y = Axis::linear("raw by coded bytes", least - room, most + room, |tick| format!("{tick:.2}"));
    let with_part = |part: Part| file.tensors.iter().enumerate().filter(move |of| of.1.part == part);
    let mut panels = Vec::new();
    for part in Part::ALL {
        let tensors: Vec<&TensorNumbers> = with_part(part).map(|of| of.1).collect();
        if tensors.is_empty() {
            continue;
        }
        let (what, names) = labels(&tensors);
        let x = Axis::categories(what, thinned(names));
        let line = |coding: &Coding| {
            let points = with_part(part)
                .zip(0..)
                .map(|((number, _), at)| (f64::from(at), coding.tensors[number].ratio));
            Shape::Line {
                ink: ink_of(coding.scheme),
                dashed: is_channel(coding.bases),
                points: points.collect(),
            }
        };
        let shapes: Vec<Shape> = file.codings.iter().map(line).collect();
        let said = file.codings.iter().map(|coding| {
            let (mut raw, mut coded) = (0, 0);
            for (number, tensor) in with_part(part) {
                (raw, coded) = (raw + tensor.raw_bytes, coded + coding.tensors[number].coded_bytes);
            }
            format!("{} {:.3}", coding.name(), raw as f64 / coded.max(1) as f64)
        });
        let alt = format!(
            "One line a scheme over {what}. Ratios of all together: {}.",
            said.collect::<Vec<_>>().join("; ")
        );
        panels.push(Panel { title: part.name().to_owned(), alt, svg: draw(HEIGHT, &x, &y, &shapes)? });
    }
    let names = file.codings.iter().map(Coding::name);
    let row = |(number, tensor): (usize, &TensorNumbers)| {
        let cells = file.codings.iter().map(|coding| format!("{:.4}", coding.tensors[number].ratio));
        [tensor.name.clone()].into_iter().chain(cells).collect()
    };
    Ok(Figure {
        id: "ratios",
        title: "Ratio by scheme and layer".to_owned(),
        about: "Raw bytes by coded bytes of every tensor, all that a frame needs counted.".to_owned(),
        legend: file.codings.iter().map(key).collect(),
        panels,
        table: Numbers {
            head: ["tensor".to_owned()].into_iter().chain(names).collect(),
            rows: file.tensors.iter().enumerate().map(row).collect(),
        },
    })
}

fn escapes(file: &FileReport) -> Result<Figure> {
    let bucket = |number: usize| match number {
        0..=2 => BUCKETS[number].to_string(),
        _ => format!("{}-{}", BUCKETS[number - 1] + 1, BUCKETS[number]),
    };
    let labels: Vec<String> =
        (0..BUCKETS.len()).map(bucket).chain(["raw".to_owned(), "equal".to_owned()]).collect();
    let counts = |coding: &Coding, part: Part| {
        let of = coding.escapes.iter().find(|of| of.part == part);
        of.map(|of| [&of.chunks[..], &[of.raw, of.equal]].concat())
    };
    let plotted: Vec<&Coding> = file.codings.iter().filter(|coding| !is_channel(coding.bases)).collect();
    let present = |part: &Part| file.codings.iter().any(|coding| counts(coding, *part).is_some());
    let x_labels =
        labels.iter().map(|label| label.split('-').next_back().unwrap_or(label).to_owned()).collect();
    let x = Axis::categories("escapes of a chunk, at most", x_labels);
    let y = Axis::linear("share of chunks", 0.0, 1.0, short);
    let mut panels = Vec::new();
    for part in Part::ALL.into_iter().filter(present) {
        let mut bars = Vec::new();
        let mut said = Vec::new();
        for (place, coding) in plotted.iter().enumerate() {
            let Some(counts) = counts(coding, part) else { continue };
            let total = counts.iter().sum::<u64>().max(1) as f64;
            let width = 0.84 / plotted.len() as f64;
            for (at, &count) in counts.iter().enumerate().filter(|of| *of.1 != 0) {
                let from = at as f64 - 0.42 + place as f64 * width;
                bars.push(Shape::Bar {
                    ink: ink_of(coding.scheme),
                    from,
                    to: from + 0.92 * width,
                    height: count as f64 / total,
                });
            }
            let few: u64 = counts[..5].iter().sum();
            said.push(format!(
                "{}: {} of the chunks have at most 8 escapes",
                coding.name(),
                percent(few as f64 / total)
            ));
        }
        panels.push(Panel {
            title: part.name().to_owned(),
            alt: format!("Bars of the share of chunks by their escapes. {}.", said.join("; ")),
            svg: draw(HEIGHT, &x, &y, &bars)?,
        });
    }
    let mut head = vec!["escapes".to_owned()];
    let mut columns = Vec::new();
    for coding in &file.codings {
        for part in Part::ALL {
            if let Some(counts) = counts(coding, part) {
                head.push(format!("{}, {}", part.name(), coding.name()));
                columns.push(counts);
            }
        }
    }
    let row = |(at, label): (usize, &String)| {
        let cells = columns.iter().map(|counts| counts[at].to_string());
        [label.clone()].into_iter().chain(cells).collect()
    };
    Ok(Figure {
        id: "escapes",
        title: "Escapes per chunk".to_owned(),
        about: "How many of the 1024 elements of a chunk have no code. Raw chunks would not shrink; chunks of one value need no codes. \
                Plotted with a base per chunk; the table has channel bases too."
            .to_owned(),
        legend: plotted.iter().map(|coding| key(coding)).collect(),
        panels,
        table: Numbers { head, rows: labels.iter().enumerate().map(row).collect() },
    })
}
