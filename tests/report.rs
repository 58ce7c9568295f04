//! `splitzip report`: the page in a real browser, its numbers beside those of `inspect`, and what is said about it.

#[path = "common/browser.rs"]
mod browser;
mod common;

use browser::{Browser, Seen};
use common::{Place, bf16, command, fixture, noise, run, safetensors_of};
use serde_json::Value;
use splitzip_host::{Bases, Dtype, Scheme};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Every scheme, with every kind of bases that it has.
fn codings(dtype: Dtype) -> Vec<(&'static str, &'static str)> {
    let schemes = Scheme::coded().filter(|scheme| scheme.check(dtype).is_ok());
    let all = schemes.flat_map(|scheme| Bases::ALL.map(|bases| (scheme, bases)));
    all.filter(|(scheme, bases)| scheme.has_window() || *bases == Bases::Chunk)
        .map(|(scheme, bases)| (scheme.name(), bases.name()))
        .collect()
}

fn rates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rates.json")
}

/// A file that hates pages: its names are markup, one layer is far away, another one does not shrink.
fn strange(place: &Place) -> PathBuf {
    let file = safetensors_of(&[
        ("</script><img src=x onerror=alert(1)><b>0.k", "BF16", &[2, 32, 64], bf16(4096, 1)),
        ("l.1.<i>&amp;.k", "BF16", &[2, 32, 64], noise(8192, 2)),
        ("l.0.v", "BF16", &[64, 64], vec![0; 8192]),
        ("l.1.v", "BF16", &[], noise(2, 4)),
        ("none", "BF16", &[0], vec![]),
        ("half", "F16", &[4096], noise(8192, 3)),
        ("ids", "I64", &[3], noise(24, 4)),
    ]);
    place.file("<b>strange & bold.safetensors", &file)
}

/// A page of frames of these widths with the report.
fn look(browser: &Browser, place: &Place, report: &Path, widths: &[u32], dark: bool) -> Seen {
    let address = format!("file://{}", report.display());
    let frames =
        widths.iter().map(|width| format!("<iframe src=\"{address}\" width={width} height=900></iframe>"));
    let script = include_str!("common/look.js");
    let page = format!(
        "<!doctype html><meta charset=utf-8><pre id=\"found\"></pre>{}<script>{script}</script>",
        frames.collect::<String>()
    );
    browser.open(&place.file("outer.html", page.as_bytes()), dark)
}

fn inspect(file: &Path, more: &[&str]) -> Value {
    let mut command = command();
    command.arg("inspect").arg(file).args(["--json", "--device", "cpu"]).args(more);
    let said = common::Run::from(command.output().expect("the program starts")).succeeds();
    serde_json::from_str(&said.stdout).expect("one JSON object")
}

fn report(inputs: &[&dyn AsRef<OsStr>], output: &Path) -> common::Run {
    let mut command = command();
    command.arg("report").args(inputs.iter().map(|input| input.as_ref())).arg("-o").arg(output);
    command.args(["--device", "cpu", "--rates"]).arg(rates());
    command.output().expect("the program starts").into()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn figure<'v>(page: &'v Value, name: &str) -> &'v Value {
    list(&page["figures"]).iter().find(|figure| figure["name"] == name).expect("the figure")
}

/// All numbers of the page are those of `inspect`, coding by coding.
fn check_numbers(data: &Value, file: &Path, codings: &[(&str, &str)]) {
    let said: Vec<(&str, &str)> = list(&data["codings"])
        .iter()
        .map(|coding| (text(&coding["scheme"]), coding["bases"].as_str().unwrap_or("chunk")))
        .collect();
    assert_eq!(said, codings);
    for (coding, (scheme, bases)) in list(&data["codings"]).iter().zip(codings) {
        let inspected = inspect(file, &["--scheme", scheme, "--bases", bases]);
        for field in ["coded_bytes", "ratio"] {
            assert_eq!(coding[field], inspected[field], "{scheme} {bases}");
        }
        for field in ["raw_bytes", "sha256"] {
            assert_eq!(data[field], inspected[field]);
        }
        let mut escapes = 0;
        for (of, tensor) in list(&coding["tensors"]).iter().zip(list(&data["tensors"])) {
            let all = list(&inspected["tensors"]);
            let same = all.iter().find(|other| other["name"] == of["name"]).expect("the tensor");
            for field in ["scheme", "coded_bytes", "ratio", "chunks"] {
                assert_eq!(of[field], same[field], "{} {scheme} {bases}", of["name"]);
            }
            for field in ["name", "shape", "raw_bytes", "exponents"] {
                assert_eq!(tensor[field], same[field], "{}", of["name"]);
            }
            escapes += same["escapes"].as_u64().unwrap_or(0);
        }
        if *scheme == "w4" {
            let counted: u64 =
                list(&coding["escapes"]).iter().map(|of| of["escapes"].as_u64().expect("a number")).sum();
            assert_eq!(counted, escapes, "escapes by chunk and by tensor");
        }
    }
}

#[test]
fn the_page_in_a_browser() {
    let Some(browser) = Browser::find("the_page_in_a_browser") else { return };
    let place = Place::new();
    let page = place.path("report.html");
    report(&[&fixture()], &page).succeeds();
    let mut data = String::new();
    for dark in [false, true] {
        let seen = look(&browser, &place, &page, &[1280, 390], dark);
        assert_eq!(seen.console, [""; 0]);
        for found in list(&seen.found) {
            assert_eq!(found["problems"], Value::Array(vec![]), "dark: {dark}");
            assert_eq!(found["background"], if dark { "rgb(20, 24, 29)" } else { "rgb(255, 255, 255)" });
            check_page(found);
            data = text(&found["data"]).to_owned();
        }
    }
    let data: Value = serde_json::from_str(&data).expect("JSON in the page");
    check_numbers(&data["files"][0], &fixture(), &codings(Dtype::Bf16));
}

fn check_page(found: &Value) {
    assert_eq!(found["title"], "smollm2_prose_160.safetensors - SplitZip report");
    assert_eq!(found["strangers"], 0);
    let names: Vec<&str> = list(&found["figures"]).iter().map(|figure| text(&figure["name"])).collect();
    assert_eq!(names, ["exponents", "layers", "coverage", "ratios", "escapes", "plan"]);
    let data: Value = serde_json::from_str(text(&found["data"])).expect("JSON in the page");
    let file = &data["files"][0];

    // The table and the bars of exponents, from the counts.
    let figure_of = |name| figure(found, name);
    let counts = |part: &str| {
        let mut counts = [0u64; 256];
        for tensor in list(&file["tensors"]).iter().filter(|tensor| tensor["part"] == part) {
            for pair in list(&tensor["exponents"]["counts"]) {
                counts[pair[0].as_u64().expect("an exponent") as usize] += pair[1].as_u64().expect("a count");
            }
        }
        counts
    };
    let exponents = figure_of("exponents");
    for (column, part) in ["k", "v"].into_iter().enumerate() {
        let counts = counts(part);
        let total: u64 = counts.iter().sum();
        let rows = &list(&exponents["rows"])[1..];
        assert!(rows.len() >= 10, "{} exponents", rows.len());
        let mut expected = Vec::new();
        for row in rows {
            let exponent: usize = text(&row[0]).parse().expect("an exponent");
            let share = counts[exponent] as f64 / total as f64;
            assert_eq!(text(&row[column + 1]), format!("{:.2} %", 100.0 * share), "{part} {exponent}");
            expected.push(share);
        }
        let bars = list(&exponents["panels"][column]["bars"]);
        assert_eq!(bars.len(), rows.len());
        let most = bars.iter().map(|bar| number(&bar[1])).fold(0.0, f64::max);
        let highest = expected.iter().copied().fold(0.0, f64::max);
        for ((bar, share), next) in bars.iter().zip(&expected).zip(bars.iter().skip(1)) {
            let drawn = number(&bar[1]) / most;
            assert!(
                (drawn - share / highest).abs() < 2.0 / most,
                "a bar of {drawn} for {share} of {highest}"
            );
            assert!(number(&bar[0]) < number(&next[0]), "bars from left to right");
        }
    }
    // One cell a tensor and exponent at least, in several colours; one line a scheme and kind of bases; points of every layer.
    for panel in list(&figure_of("layers")["panels"]) {
        let colors: std::collections::BTreeSet<&str> =
            list(&panel["bars"]).iter().map(|bar| text(&bar[2])).collect();
        assert!(list(&panel["bars"]).len() > 30 && colors.len() >= 5, "{colors:?}");
    }
    for panel in list(&figure_of("ratios")["panels"]) {
        let lines = list(&panel["lines"]).iter().filter(|line| line[1] == 30).count();
        assert_eq!(lines, codings(Dtype::Bf16).len());
    }
    assert_eq!(list(&figure_of("ratios")["rows"]).len(), 61);
    let rows = list(&figure_of("ratios")["rows"]);
    for (row, at) in rows[1..].iter().zip(0..) {
        for (coding, of) in list(&file["codings"]).iter().enumerate() {
            assert_eq!(text(&row[coding + 1]), format!("{:.4}", number(&of["tensors"][at]["ratio"])));
        }
    }
    // 16 exponents cover what inspect says, in the mean.
    let coverage = list(&figure_of("coverage")["rows"]);
    let of_k: Vec<f64> = list(&file["tensors"])
        .iter()
        .filter(|tensor| tensor["part"] == "k")
        .map(|tensor| number(&tensor["exponents"]["top_16"]))
        .collect();
    let mean = of_k.iter().sum::<f64>() / of_k.len() as f64;
    assert_eq!(
        (&coverage[16][0], text(&coverage[16][1])),
        (&"16".into(), format!("{:.2} %", 100.0 * mean).as_str())
    );
    // Every chunk has its place: a tensor of the fixture has 30 whole ones.
    let escapes = list(&figure_of("escapes")["rows"]);
    for column in 1..list(&escapes[0]).len() {
        let chunks: u64 =
            escapes[1..].iter().map(|row| text(&row[column]).parse::<u64>().expect("a count")).sum();
        assert_eq!(chunks, 30 * 30, "{}", escapes[0][column]);
    }
    // The plan is that of `plan`.
    let plan = list(&figure_of("plan")["rows"]);
    assert_eq!(plan.len(), 8);
    for (row, link) in plan[1..].iter().zip(list(&file["plan"])) {
        assert_eq!(row[0], link["link"]);
        assert_eq!(text(&row[7]), format!("{:.2}", number(&link["decision"]["speedup"])));
    }
}

#[test]
fn names_of_strangers_in_a_browser() {
    let Some(browser) = Browser::find("names_of_strangers_in_a_browser") else { return };
    let place = Place::new();
    let (strange, page) = (strange(&place), place.path("report.html"));
    let fp8 =
        safetensors_of(&[("0.k", "F8_E4M3", &[64, 64], noise(4096, 5)), ("scale", "F32", &[1], noise(4, 6))]);
    let fp8 = place.file("fp8", &fp8);
    let said = report(&[&strange, &fp8], &page);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let seen = look(&browser, &place, &page, &[900], false);
    assert_eq!(seen.console, [""; 0]);
    let found = &seen.found[0];
    assert_eq!(found["problems"], Value::Array(vec![]));
    assert_eq!(found["strangers"], 0);
    assert_eq!(found["title"], "2 files - SplitZip report");
    assert_eq!(found["headings"], serde_json::json!(["<b>strange & bold.safetensors", "fp8"]));
    let data: Value = serde_json::from_str(text(&found["data"])).expect("JSON in the page");
    check_numbers(&data["files"][0], &strange, &codings(Dtype::Bf16));
    // Nothing to gain with w4 on e4m3.
    check_numbers(&data["files"][1], &fp8, &codings(Dtype::E4m3));
    let rows = list(&figure(found, "ratios")["rows"]);
    assert_eq!(rows[1][0], "</script><img src=x onerror=alert(1)><b>0.k");
}

/// The test would see what it looks for.
#[test]
fn a_bad_page_is_seen() {
    let Some(browser) = Browser::find("a_bad_page_is_seen") else { return };
    let place = Place::new();
    let page = place.path("report.html");
    report(&[&fixture()], &page).succeeds();
    let good = std::fs::read_to_string(&page).expect("the page");
    let seen = |page: &str| look(&browser, &place, &place.file("bad.html", page.as_bytes()), &[600], false);
    // A script, which the policy of the page forbids, and says so on the console.
    let script = seen(&good.replace("</main>", "<script>document.title = 'changed'</script></main>"));
    assert!(!script.console.is_empty());
    assert_eq!((&script.found[0]["strangers"], &script.found[0]["title"] == "changed"), (&1.into(), false));
    let image =
        seen(&good.replace(
            "</main>",
            "<img src=\"file:///nowhere.png\"><p style=\"width: 2000px\">wide</p></main>",
        ));
    assert!(!image.console.is_empty());
    let problems = image.found[0]["problems"].to_string();
    assert!(problems.contains("wide in 600") && problems.contains("something was loaded"), "{problems}");
    let faint = seen(&good.replace("--text: #1f2933", "--text: #cccccc"));
    let problems = faint.found[0]["problems"].to_string();
    assert!(problems.contains("has a contrast of"), "{problems}");
    let large = seen(&good.replace(".plot text {", ".plot text { font-size: 150px;"));
    let problems = large.found[0]["problems"].to_string();
    assert!(problems.contains("lies on") && problems.contains("is not in the plot"), "{problems}");
}

/// Without a browser too: nothing in the page points anywhere else.
#[test]
fn the_page_needs_nothing_else() {
    let place = Place::new();
    let page = place.path("report.html");
    report(&[&fixture()], &page).succeeds();
    let text = std::fs::read_to_string(&page).expect("the page");
    assert!(text.starts_with("<!DOCTYPE html>"));
    let rest = text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for word in ["http:", "https:", "//", "src=", "@import", "url(", "<script>", "<link", "onload", "onclick"]
    {
        // Names of files have slashes.
        let from = if word == "//" { rest.replace(&rates().display().to_string(), "") } else { rest.clone() };
        assert!(!from.contains(word), "{word} in the page");
    }
    let links = text.match_indices("href=\"").filter(|(at, _)| !text[at + 6..].starts_with('#')).count();
    assert_eq!(links, 0, "links lead into the page only");
    assert!(text.contains("default-src 'none'"));
}

#[test]
fn an_spz_file_says_the_same() {
    let place = Place::new();
    let (packed, one, two) = (place.path("x.spz"), place.path("1.html"), place.path("2.html"));
    run([&"compress", &fixture(), &"-o", &packed, &"--device", &"cpu"]).succeeds();
    report(&[&fixture()], &one).succeeds();
    report(&[&packed], &two).succeeds();
    let read = |path: &Path| std::fs::read_to_string(path).expect("the page");
    let name = |text: String, path: &Path| {
        let file = path.file_name().expect("a name").to_string_lossy();
        text.replace(&path.display().to_string(), "PATH").replace(&*file, "FILE")
    };
    assert_eq!(name(read(&one), &fixture()), name(read(&two), &packed));
}

#[test]
fn output_and_help() {
    let place = Place::new();
    let (input, page) = (
        place.file("in.safetensors", &std::fs::read(fixture()).expect("the fixture")),
        place.path("report.html"),
    );
    // From where the files are: the width of a column is that of its longest name.
    let mut here = command();
    here.current_dir(place.path("")).args([
        "report",
        "in.safetensors",
        "-o",
        "report.html",
        "--device",
        "cpu",
    ]);
    let shown = common::Run::from(here.output().expect("the program starts")).succeeds().stdout;
    let help = run([&"report", &"--help"]).succeeds().stdout;
    insta::assert_snapshot!(
        "report",
        format!("$ splitzip report --help\n{help}\n$ splitzip report in.safetensors -o report.html\n{shown}")
    );
    // As JSON, it is what the page holds.
    let said = run([
        &"report",
        &input,
        &"-o",
        &page,
        &"--force",
        &"--json",
        &"--device",
        &"cpu",
        &"--rates",
        &rates(),
    ])
    .succeeds();
    let object: Value = serde_json::from_str(&said.stdout).expect("one JSON object");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (_, data) = text.split_once("id=\"data\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("data");
    assert_eq!(serde_json::from_str::<Value>(data).expect("JSON"), object);
    assert_eq!(place.names(), ["in.safetensors", "report.html"]);
}

#[test]
fn refusals() {
    let place = Place::new();
    let input = place.file("in", &safetensors_of(&[("0.k", "BF16", &[64, 64], bf16(4096, 1))]));
    let ints = place.file("ints", &safetensors_of(&[("ids", "I64", &[3], vec![0; 24])]));
    let (text, page) = (place.file("text", b"hello, this is no tensor"), place.file("report.html", b"mine"));
    let cut = place
        .file("cut.spz", &[&[0x89u8, b'S', b'P', b'Z', b'\r', b'\n', 0x1a, b'\n'][..], &[0; 20]].concat());
    let mut told = String::new();
    let mut refuse = |code: i32, arguments: &[&dyn AsRef<OsStr>]| {
        let mut command = command();
        command.arg("report").args(arguments.iter().map(|argument| argument.as_ref()));
        let said = common::Run::from(command.output().expect("the program starts"));
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{}", said.stderr);
        let words =
            arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        told += &format!("$ splitzip report {words}\n{}\n", said.stderr);
    };
    refuse(2, &[]);
    refuse(2, &[&input]);
    refuse(1, &[&input, &"-o", &page]);
    refuse(1, &[&input, &"-o", &input, &"--force"]);
    refuse(1, &[&ints, &"-o", &page, &"--force"]);
    refuse(1, &[&text, &"-o", &page, &"--force"]);
    refuse(1, &[&cut, &"-o", &page, &"--force"]);
    refuse(1, &[&input, &"-o", &place.path("no/where.html")]);
    refuse(2, &[&input, &"-o", &page, &"--force", &"--decode-on", &"a100"]);
    assert_eq!(std::fs::read(&page).expect("the file"), b"mine", "what was there is untouched");
    assert_eq!(place.names(), ["cut.spz", "in", "ints", "report.html", "text"]);
    insta::assert_snapshot!(
        "report_refusals",
        told.replace(&place.path("").display().to_string(), "[place]/")
    );
}

/// Other originals than safetensors files: elements without a header, through stdin.
#[test]
fn plain_elements_through_stdin() {
    let place = Place::new();
    let page = place.path("report.html");
    let mut command = command();
    command.args(["report", "-", "--dtype", "bf16", "--device", "cpu", "--json", "-o"]).arg(&page);
    let elements = place.file("elements", &bf16(4096, 1));
    command.stdin(std::fs::File::open(elements).expect("the file"));
    let said = common::Run::from(command.output().expect("the program starts")).succeeds();
    let object: Value = serde_json::from_str(&said.stdout).expect("one JSON object");
    let file = &object["files"][0];
    assert_eq!((&file["input"], &file["raw_bytes"]), (&"stdin".into(), &8192.into()));
    assert_eq!(
        (&file["tensors"][0]["part"], &file["tensors"][0]["coded_as"]),
        (&"other".into(), &"bf16".into())
    );
}
