//! The policy: what must hold for all links, codecs and sizes, the model beside a simulation, and rates beside what was measured.

use proptest::prelude::*;
use splitzip_host::policy::{Codec, Decision, Link, Policy, PolicyError, Rate, Rates, Stage, Way};
use splitzip_host::{Bases, Dtype, Scheme};
use std::path::Path;

fn codec(ratio: f64, encode: (f64, f64), decode: (f64, f64)) -> Codec {
    let rate = |(gigabytes, micro): (f64, f64)| Rate::new(gigabytes * 1e9, micro * 1e-6).expect("a rate");
    Codec::new(Scheme::W2x3, Bases::Chunk, ratio, rate(encode), rate(decode)).expect("a codec")
}

fn link(gigabytes: f64) -> Link {
    Link::new(gigabytes * 1e9, 1e-5).expect("a link")
}

/// Numbers over many orders of magnitude.
fn spread(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.ln()..high.ln()).prop_map(f64::exp)
}

fn codecs() -> impl Strategy<Value = Vec<Codec>> {
    let rate = || (spread(0.1, 5000.0), spread(0.01, 100.0));
    let one = (0.9..2.0f64, rate(), rate()).prop_map(|(ratio, encode, decode)| codec(ratio, encode, decode));
    prop::collection::vec(one, 0..5)
}

fn policies() -> impl Strategy<Value = Policy> {
    (0.0..0.5f64, any::<bool>(), 10..26u32).prop_map(|(least_gain, pipelined, shift)| Policy {
        least_gain,
        pipelined,
        least_piece_bytes: 1 << shift,
    })
}

fn bytes() -> impl Strategy<Value = u64> {
    spread(1.0, 1e12).prop_map(|bytes| bytes as u64)
}

/// Encoding, sending and decoding of equal pieces, event by event.
fn simulate(pieces: u64, piece: u64, link: &Link, codec: &Codec) -> f64 {
    let seconds = |rate: Rate| rate.seconds_per_call() + piece as f64 / rate.bytes_per_second();
    let send = link.latency_seconds() + piece as f64 / codec.ratio() / link.bytes_per_second();
    let (mut encoded, mut sent, mut decoded) = (0.0f64, 0.0f64, 0.0f64);
    for _ in 0..pieces {
        encoded += seconds(codec.encode());
        sent = sent.max(encoded) + send;
        decoded = decoded.max(sent) + seconds(codec.decode());
    }
    decoded
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Not longer, up to the last digits.
fn at_most(a: f64, b: f64) -> bool {
    a <= b * (1.0 + 1e-12)
}

proptest! {
    #[test]
    fn it_is_never_slower_than_raw_and_saves_what_was_asked_for(
        policy in policies(), bytes in bytes(), speed in spread(0.01, 2000.0), codecs in codecs()
    ) {
        let link = link(speed);
        let decision = policy.decide(bytes, &link, &codecs);
        prop_assert!(decision.seconds <= decision.raw_seconds);
        prop_assert!(decision.speedup() >= 1.0);
        prop_assert_eq!(decision.way == Way::Raw, decision.codec.is_none());
        let fastest = codecs.iter().map(|codec| policy.estimate(bytes, &link, codec));
        let fastest = fastest.map(|of| of.pipelined_seconds.min(of.serial_seconds)).fold(f64::INFINITY, f64::min);
        let limit = decision.raw_seconds * (1.0 - policy.least_gain);
        match decision.way {
            Way::Raw => prop_assert!(fastest > limit || fastest >= decision.raw_seconds),
            Way::Serial => prop_assert!(decision.seconds <= limit && decision.piece_bytes == bytes),
            Way::Pipelined => {
                prop_assert!(policy.pipelined && decision.seconds <= limit);
                prop_assert!((policy.least_piece_bytes..bytes).contains(&decision.piece_bytes));
            }
        }
        if decision.way != Way::Raw {
            prop_assert_eq!(decision.seconds, fastest);
        }
    }

    #[test]
    fn a_faster_link_takes_no_longer_and_never_makes_compression_pay(
        policy in policies(), bytes in bytes(), speed in spread(0.01, 2000.0), factor in 1.001..100.0f64, codecs in codecs()
    ) {
        let (slow, fast) = (link(speed), link(speed * factor));
        let (slower, faster) = (policy.decide(bytes, &slow, &codecs), policy.decide(bytes, &fast, &codecs));
        prop_assert!(at_most(faster.raw_seconds, slower.raw_seconds));
        prop_assert!(slower.way != Way::Raw || faster.way == Way::Raw);
        for codec in &codecs {
            let (slower, faster) = (policy.estimate(bytes, &slow, codec), policy.estimate(bytes, &fast, codec));
            prop_assert!(at_most(faster.serial_seconds, slower.serial_seconds));
            prop_assert!(at_most(faster.pipelined_seconds, slower.pipelined_seconds));
        }
    }

    #[test]
    fn more_bytes_take_longer_and_better_codecs_do_not(
        policy in policies(), bytes in bytes(), more in 1..1_000_000_000u64, speed in spread(0.01, 2000.0),
        better in 1.0..3.0f64, of in (0.9..2.0f64, spread(0.1, 5000.0), spread(0.1, 5000.0))
    ) {
        let (ratio, encode, decode) = of;
        let plain = codec(ratio, (encode, 9.0), (decode, 7.0));
        let time = |bytes: u64, codec: &Codec| {
            let estimate = policy.estimate(bytes, &link(speed), codec);
            prop_assert!(estimate.pipelined_seconds <= estimate.serial_seconds);
            let parts = estimate.encode_seconds + estimate.send_seconds + estimate.decode_seconds;
            prop_assert!(close(estimate.serial_seconds, parts));
            Ok(estimate.pipelined_seconds)
        };
        let usual = time(bytes, &plain)?;
        prop_assert!(at_most(usual, time(bytes + more, &plain)?));
        for codec in [
            codec(ratio * better, (encode, 9.0), (decode, 7.0)),
            codec(ratio, (encode * better, 9.0), (decode, 7.0)),
            codec(ratio, (encode, 9.0), (decode, 7.0 / better)),
        ] {
            prop_assert!(at_most(time(bytes, &codec)?, usual));
        }
    }

    #[test]
    fn pipelined_is_what_a_simulation_says(
        pieces in 1..200u64, shift in 16..28u32, speed in spread(0.1, 1000.0), codecs in codecs()
    ) {
        let piece = 1u64 << shift;
        for codec in &codecs {
            // One size of pieces: the next one is the whole.
            let policy = Policy { least_piece_bytes: piece, ..Policy::default() };
            let estimate = policy.estimate(pieces * piece, &link(speed), codec);
            let simulated = simulate(pieces, piece, &link(speed), codec);
            prop_assert!(at_most(estimate.pipelined_seconds, simulated * (1.0 + 1e-9)));
            let chosen = estimate.piece_bytes;
            if (pieces * piece).is_multiple_of(chosen) {
                let simulated = simulate(pieces * piece / chosen, chosen, &link(speed), codec);
                prop_assert!(close(estimate.pipelined_seconds, simulated), "{estimate:?} {simulated}");
            }
        }
    }

    #[test]
    fn compression_pays_up_to_the_break_even(policy in policies(), bytes in bytes(), codecs in codecs()) {
        for codec in codecs {
            for way in [Way::Serial, Way::Pipelined] {
                let decides = |bytes_per_second: f64| {
                    let link = Link::new(bytes_per_second, 1e-5).expect("a link");
                    let policy = Policy { pipelined: policy.pipelined && way == Way::Pipelined, ..policy };
                    policy.decide(bytes, &link, &[codec]).way
                };
                match policy.break_even(bytes, 1e-5, &codec, way) {
                    Some(speed) => {
                        prop_assert!(decides(speed * 0.999) != Way::Raw);
                        prop_assert_eq!(decides(speed * 1.001), Way::Raw);
                    }
                    None => prop_assert_eq!(decides(1e3), Way::Raw),
                }
            }
        }
    }

    #[test]
    fn nothing_panics(
        bytes in any::<u64>(), numbers in prop::array::uniform6(any::<f64>()), least in any::<u64>(), pipelined in any::<bool>()
    ) {
        let [ratio, encode, decode, speed, latency, least_gain] = numbers;
        let of = |speed: f64| Rate::new(speed, latency);
        if let (Ok(encode), Ok(decode), Ok(link)) = (of(encode), of(decode), Link::new(speed, latency))
            && let Ok(codec) = Codec::new(Scheme::W4, Bases::Chunk, ratio, encode, decode)
        {
            let policy = Policy { least_gain, pipelined, least_piece_bytes: least };
            let decision = policy.decide(bytes, &link, &[codec]);
            prop_assert!(decision.way == Way::Raw || decision.seconds < decision.raw_seconds);
            policy.break_even(bytes, latency, &codec, Way::Pipelined);
        }
    }
}

#[test]
fn serial_and_pipelined_break_even_where_the_formulas_say() {
    // Without the time of calls: serial n (1 - 1/r) / (1/E + 1/D); pipelined, for many small pieces, the slower codec.
    let codec = codec(1.45, (300.0, 0.0), (500.0, 0.0));
    let policy = Policy { least_gain: 0.0, ..Policy::default() };
    let even = |way| policy.break_even(1 << 40, 0.0, &codec, way).expect("it pays on a slow link");
    let serial = (1.0 - 1.0 / 1.45) / (1.0 / 300e9 + 1.0 / 500e9);
    assert!((even(Way::Serial) / serial - 1.0).abs() < 1e-6, "{} {serial}", even(Way::Serial));
    assert!((even(Way::Pipelined) / 300e9 - 1.0).abs() < 1e-3, "{}", even(Way::Pipelined));
    assert_eq!(policy.break_even(1 << 40, 0.0, &codec, Way::Raw), None);
    let useless = codec.with_ratio(1.0).expect("a codec");
    assert_eq!(policy.break_even(1 << 40, 0.0, &useless, Way::Pipelined), None);
}

#[test]
fn it_says_what_is_in_the_way() {
    let decide =
        |speed: f64, of: &[Codec]| -> Decision { Policy::default().decide(1 << 30, &link(speed), of) };
    let slow = codec(1.45, (9.0, 0.0), (8.0, 0.0));
    assert_eq!((decide(48.0, &[slow]).way, decide(48.0, &[slow]).bottleneck), (Way::Raw, Stage::Decode));
    assert_eq!((decide(1.0, &[slow]).way, decide(1.0, &[slow]).bottleneck), (Way::Pipelined, Stage::Link));
    let fast = codec(1.33, (2000.0, 5.0), (2000.0, 5.0));
    // The slow one has the better ratio, and is the better one as long as it keeps up with the link.
    assert_eq!(decide(48.0, &[slow, fast]).codec, Some(fast));
    assert_eq!(decide(1.0, &[slow, fast]).codec, Some(slow));
    let none = decide(1.0, &[]);
    assert_eq!(
        (none.way, none.bottleneck, none.piece_bytes, none.speedup()),
        (Way::Raw, Stage::Link, 1 << 30, 1.0)
    );
    // No bytes: latency is all there is, and nothing can be saved.
    assert_eq!(Policy::default().decide(0, &link(1.0), &[fast]).way, Way::Raw);
}

#[test]
fn links_have_names_or_numbers() {
    for named in Link::NAMED {
        assert_eq!(named.name.parse(), Ok(named.link));
        let share = named.link.bytes_per_second() / 1e9 / named.nominal_gigabytes_per_second;
        assert!((0.7..1.0).contains(&share), "{}: {share} of nominal", named.name);
    }
    for text in ["12.5", "12.5GB/s", "12.5 GB/s"] {
        assert_eq!(text.parse::<Link>().expect("a link").bytes_per_second(), 12.5e9);
    }
    assert_eq!(
        "300g".parse::<Link>().expect_err("no link").to_string(),
        "there is no link \"300g\"; it must be one of 25g, 100g, 200g, 400g, pcie4, pcie5, nvlink, or a speed in GB/s, as in 12.5"
    );
    assert_eq!("1e-9".parse::<Link>().expect("a link").bytes_per_second(), 1.0);
    for text in ["0", "-1", "inf", "NaN", "9e-10", "1e-320"] {
        let error = text.parse::<Link>().expect_err("no link");
        assert!(matches!(error, PolicyError::Number { .. }), "{text}: {error}");
        assert!(error.to_string().ends_with("it must be finite and at least 1"), "{error}");
    }
}

#[test]
fn links_of_the_document() {
    let document = include_str!("../../docs/transfers.md");
    let rows: Vec<String> = Link::NAMED
        .iter()
        .map(|of| {
            let (speed, latency) = (of.link.bytes_per_second() / 1e9, of.link.latency_seconds() * 1e6);
            let nominal = of.nominal_gigabytes_per_second;
            format!("| `{}` | {} | {nominal} | {speed} | {latency:.0} |", of.name, of.what)
        })
        .collect();
    assert!(document.contains(&rows.join("\n")), "docs/transfers.md needs these rows:\n{}", rows.join("\n"));
}

/// What the document says of large and small transfers.
#[test]
fn numbers_of_the_document() {
    let policy = Policy { least_gain: 0.0, ..Policy::default() };
    let even =
        |speed: f64| policy.break_even(1 << 40, 0.0, &codec(1.45, (speed, 0.0), (speed, 0.0)), Way::Serial);
    assert_eq!(
        [2300.0, 9.0].map(|speed| even(speed).map(|of| (of / 1e8).round() / 10.0)),
        [Some(356.9), Some(1.4)]
    );
    let (_, rates) = h200();
    let codecs = rates.codecs("cuda:0", "cuda:0", Dtype::Bf16).expect("codecs");
    let calls = |codec: &Codec| codec.encode().seconds_per_call() + codec.decode().seconds_per_call();
    let fastest = codecs.iter().map(calls).fold(f64::INFINITY, f64::min);
    assert!((5e-6..20e-6).contains(&fastest), "some 10 microseconds: {fastest}");
    for named in Link::NAMED {
        assert_eq!(Policy::default().decide(64 << 10, &named.link, &codecs).way, Way::Raw, "{}", named.name);
    }
}

fn h200() -> (String, Rates) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gpu/bench-h200.json");
    let text = std::fs::read_to_string(path).expect("the record");
    let rates = Rates::from_bench_json(&text).expect("rates");
    (text, rates)
}

/// Every row of the record, from the rate that was made of the smallest and the largest.
#[test]
fn rates_are_near_what_was_measured() {
    let (text, rates) = h200();
    let bench: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut rows = 0;
    for of in &rates.devices {
        for scheme in &of.schemes {
            for row in bench["rows"].as_array().expect("rows") {
                let same = row["dtype"] == of.dtype.name()
                    && row["scheme"] == scheme.scheme.name()
                    && (row["bases"].is_null() || row["bases"] == scheme.bases.name())
                    && row["placement"] == "canonical"
                    && row["codebook"] != "auto"
                    && row["data"] == bench["rows"][0]["data"];
                if !same {
                    continue;
                }
                rows += 1;
                let bytes = row["raw_bytes"].as_f64().expect("bytes");
                for (rate, name) in [(scheme.encode, "encode"), (scheme.decode, "decode")] {
                    // Events around a short call measure what the host does as well, and on a busy one little else.
                    let seconds = row["graph"][name]["seconds"].as_f64().expect("seconds");
                    let model = rate.seconds_per_call() + bytes / rate.bytes_per_second();
                    let limit = if seconds > 50e-6 { 1.25 } else { 2.0 };
                    let off = (model / seconds).max(seconds / model);
                    assert!(
                        off < limit,
                        "{} {} {bytes}: {name} {model} {seconds}",
                        scheme.scheme,
                        scheme.bases
                    );
                }
            }
        }
    }
    assert!(rows >= 42, "only {rows} rows were compared");
}

#[test]
fn codecs_of_a_pair_of_devices() {
    let (_, rates) = h200();
    assert_eq!(rates.names(), ["cuda:0"]);
    let codecs = rates.codecs("cuda:0", "cuda:0", Dtype::Bf16).expect("codecs");
    assert_eq!(codecs.len(), 7, "every scheme with every kind of bases");
    assert!(
        rates
            .codecs("cuda:0", "cuda:0", Dtype::E4m3)
            .expect("codecs")
            .iter()
            .all(|codec| codec.scheme != Scheme::W4)
    );
    assert_eq!(
        rates.codecs("cpu", "cuda:0", Dtype::Bf16).expect_err("not measured").to_string(),
        "there are no rates of cpu; there are those of cuda:0"
    );
    assert_eq!(
        rates.codecs("cuda:0", "cuda:0", Dtype::Bytes).expect_err("no floats").to_string(),
        "there are no rates of bytes on cuda:0; there are those of bf16, fp16, e4m3, e5m2 there"
    );
    // With the default policy a GPU compresses on every network and bus, and not on NVLink for a small transfer.
    for named in Link::NAMED.iter().filter(|named| named.name != "nvlink") {
        let decision = Policy::default().decide(1 << 30, &named.link, &codecs);
        assert!(decision.way != Way::Raw && decision.speedup() > 1.3, "{}: {decision:?}", named.name);
    }
}

#[test]
fn what_is_no_measurement_is_refused() {
    let row = |change: &str| {
        let row = r#"{"device":"cpu","threads":1,"data":"x","dtype":"bf16","codec":"splitzip","scheme":"w4","bases":null,
            "codebook":"calibrated","placement":"canonical","raw_bytes":1000,"ratio":1.3,"encode":{"seconds":1},"decode":{"seconds":1}}"#;
        let (from, to) = change.split_once("=>").unwrap_or(("", ""));
        format!(
            r#"{{"schema":1,"command":"bench","rows":[{}]}}"#,
            row.replacen(from, to, usize::from(!from.is_empty()))
        )
    };
    let one = Rates::from_bench_json(&row("")).expect("rates");
    assert_eq!(one.devices[0].schemes[0].encode, Rate::new(1000.0, 0.0).expect("a rate"));
    // A graph says what the device takes, whatever the host did meanwhile.
    let graph = r#""decode":{"seconds":1}}=>"decode":{"seconds":1},"graph":{"encode":{"seconds":0.5},"decode":{"seconds":0.25}}}"#;
    let rates = Rates::from_bench_json(&row(graph)).expect("rates");
    let of = rates.devices[0].schemes[0];
    assert_eq!([of.encode, of.decode].map(|rate| rate.bytes_per_second()), [2000.0, 4000.0]);
    for (text, word) in [
        (row("\"bases\":null=>\"bases\":\"keys\""), "no row of a canonical frame"),
        (row("\"canonical\"=>\"arrival\""), "no row of a canonical frame"),
        (row("\"splitzip\"=>\"zstd\""), "no row of a canonical frame"),
        (row("\"seconds\":1=>\"seconds\":0"), "must be finite and above 0"),
        (row("\"ratio\":1.3=>\"other\":1.3"), "missing field"),
        (row("").replace("bench", "inspect"), "schema 1 of \"inspect\""),
        (row("").replace("\"schema\":1", "\"schema\":2"), "schema 2 of \"bench\""),
        ("{".to_owned(), "EOF"),
    ] {
        let error = Rates::from_bench_json(&text);
        let error = error
            .and_then(|rates| rates.codecs("cpu", "cpu", Dtype::Bf16))
            .expect_err("no rates")
            .to_string();
        assert!(error.contains(word), "{error}");
    }
}
