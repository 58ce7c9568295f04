//! Tests of the tests: every kernel with one instruction changed has to fail.
//!
//! The mutants of an entry run through the cases of `ptx.rs` that concern it, until one notices: a fault, other bits, or a status that should not be.
//! Those that nothing notices are listed in `docs/mutants.md`, each with the reason why it computes the same, or as open; a survivor
//! without a reason fails here, and so does a reason without a survivor. `SPLITZIP_BLESS=1` writes the list, with `?` for reasons to be found.

#[path = "support/cases.rs"]
mod cases;
#[path = "support/in_pages.rs"]
mod in_pages;
#[path = "support/interpreter.rs"]
mod interpreter;
#[path = "support/mutation.rs"]
mod mutation;

use in_pages::InPages;
use interpreter::Interpreter;
use mutation::{Kind, Mutant, mutants};
use rayon::prelude::*;
use splitzip_host::conformance::{self, Case, Content, Member, in_arrival_order, in_chunk_order, members};
use splitzip_host::cuda::{PTX, Ptx};
use splitzip_host::{Bases, Dtype, Executor, Frame, Reference, Scheme};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

const SEED: u64 = 0x5EED;
/// Instructions of a launch, after which a mutant counts as one that never ends: 4 times the longest launch of the list.
const STEPS: u64 = 4_000_000;

/// A case with what the reference makes of it.
struct Prepared {
    case: Case,
    frame: Vec<u8>,
    arrived: Vec<u8>,
}

/// A frame that is not what it was, and what the kernel that ships makes of it, if it accepts it. (`ptx.rs` compares this with the reference.)
struct Damaged {
    case: Case,
    frame: Vec<u8>,
    expected: Option<Vec<Vec<u8>>>,
}

struct Cases {
    member: Member,
    in_pages: Vec<InPages>,
    prepared: Vec<Prepared>,
    damaged: Vec<Damaged>,
}

/// The member whose cases run an entry.
fn member_of(entry: &str) -> Member {
    let named = |kernel: &str, member: &Member| {
        let channel = if member.bases == Bases::Channel { "channel" } else { "" };
        entry == format!("{kernel}_{}_{}{channel}", member.dtype.name(), member.scheme.name())
    };
    let with = |dtype: &str, scheme: &str, bases: Bases, member: &Member| {
        (member.dtype.name(), member.scheme.name(), member.bases) == (dtype, scheme, bases)
    };
    let find = |fits: &dyn Fn(&Member) -> bool| members().into_iter().find(|member| fits(member));
    let found = match entry.split_once('_') {
        Some(("encode", rest)) if rest.starts_with("arrival_") => {
            find(&|member| named("encode_arrival", member))
        }
        Some(("encode", rest)) if rest.starts_with("batch_") => find(&|member| named("encode_batch", member)),
        Some(("decode", rest)) if rest.starts_with("batch_") => find(&|member| named("decode_batch", member)),
        Some(("encode", _)) => find(&|member| named("encode", member)),
        Some(("decode", _)) => find(&|member| named("decode", member)),
        Some(("histogram", "e4m3")) => find(&|member| with("e4m3", "w3", Bases::Chunk, member)),
        Some(("histogram", dtype)) => find(&|member| with(dtype, "w4", Bases::Chunk, member)),
        Some(("bases", dtype)) => find(&|member| with(dtype, "w3", Bases::Channel, member)),
        Some(("checksum", dtype)) => find(&|member| with(dtype, "w3", Bases::Chunk, member)),
        // One without kernels over batches: its elements are copied out of pages and back.
        _ if entry == "copy_pages" => find(&|member| with("fp16", "w3", Bases::Chunk, member)),
        _ if entry == "pick" => find(&|member| with("bf16", "w4", Bases::Chunk, member)),
        _ => find(&|member| with("bf16", "w2x3", Bases::Chunk, member)),
    };
    found.unwrap_or_else(|| panic!("no member runs {entry}: say here which one does"))
}

fn prepare(member: Member) -> Cases {
    let mut cases = conformance::cases(member);
    cases.extend(cases::small(member));
    // Those with much in them and few elements first.
    cases.sort_by_key(|case| {
        let checksums = case.spec.flags.tensor_checksums;
        (!checksums, case.inputs.iter().map(Vec::len).sum::<usize>())
    });
    cases.extend(cases::exponents(member));
    cases.extend([cases::crowded(member, 60), cases::large(member)]);
    let in_pages = match cases::has_batches(member) {
        true => cases.iter().filter_map(InPages::new).collect(),
        false => Vec::new(),
    };
    let prepared = cases
        .into_iter()
        .map(|case| {
            let frame = Reference.encode_to_vec(&case.spec, &case.codebooks, &case.slices()).unwrap();
            let arrived = in_arrival_order(&Frame::parse(&frame).unwrap());
            Prepared { case, frame, arrived }
        })
        .collect();
    let interpreter = Interpreter::new("sm_80").for_damage();
    let mut damaged = Vec::new();
    for content in [Content::Mixed, Content::Outliers, Content::ZeroRandom] {
        let (case, frames) = cases::damaged(member, content, 24);
        for frame in frames {
            let decoded = interpreter.decode_bytes(&case.spec, &frame, false).unwrap();
            let expected = (decoded.status == 0).then_some(decoded.outputs);
            damaged.push(Damaged { case: case.clone(), frame, expected });
        }
    }
    Cases { member, in_pages, prepared, damaged }
}

/// Does the kernel do what it should? Only what concerns the entry is run.
fn run(interpreter: Interpreter, entry: &str, cases: &Cases, count: usize) -> Result<Interpreter, String> {
    let text = |error: splitzip_host::Error| error.to_string();
    if entry.contains("batch") || ["begin", "copy_pages"].contains(&entry) {
        for &content in cases::contents_in_pages(cases.member) {
            conformance::check_paged(&interpreter, cases.member, content)?;
        }
        cases.in_pages.iter().take(count).try_for_each(|case| case.check(&interpreter))?;
        return Ok(interpreter);
    }
    if entry.starts_with("checksum") {
        cases
            .prepared
            .iter()
            .take(count)
            .try_for_each(|Prepared { case, .. }| run_stored(&interpreter, case))?;
        return Ok(interpreter);
    }
    let decodes = entry.starts_with("decode");
    if let Some(dtype) = entry.strip_prefix("histogram_") {
        let dtype = Dtype::floats().find(|found| found.name() == dtype).unwrap();
        for elements in [330, 850, 1000, 5000, 20_000] {
            let bytes = Content::Outliers.bytes(dtype, elements, 64);
            let (got, expected) = (
                interpreter.histogram(dtype, &bytes).map_err(text)?,
                Reference.histogram(dtype, &bytes).unwrap(),
            );
            if got.counts() != expected.counts() {
                return Err("other counts".to_owned());
            }
        }
    }
    for Prepared { case, frame, arrived } in cases.prepared.iter().take(count) {
        if !decodes {
            // Twice with one workspace: the first call leaves it ready for the second.
            let mut spec = case.spec.clone();
            spec.flags.arrival = entry.starts_with("encode_arrival");
            let slices = case.slices();
            let frames =
                interpreter.encode_again(&spec, &case.codebooks, &[&slices, &slices]).map_err(text)?;
            for got in frames {
                let got = match spec.flags.arrival {
                    true => in_chunk_order(&Frame::parse(&got).map_err(text)?),
                    false => got,
                };
                if got != *frame {
                    return Err(format!("{}: another frame", case.name));
                }
            }
        }
        if decodes {
            for bytes in [frame, arrived] {
                let outputs =
                    interpreter.decode_to_vecs(&Frame::parse(bytes).map_err(text)?).map_err(text)?;
                if outputs != case.inputs {
                    return Err(format!("{}: other elements", case.name));
                }
            }
        }
    }
    let interpreter = interpreter.for_damage();
    for damaged in cases.damaged.iter().filter(|_| decodes) {
        let decoded = interpreter.decode_bytes(&damaged.case.spec, &damaged.frame, false).map_err(text)?;
        if (decoded.status == 0) != damaged.expected.is_some() {
            return Err("another status for a damaged frame".to_owned());
        }
        if damaged.expected.as_ref().is_some_and(|expected| *expected != decoded.outputs) {
            return Err("other elements of a damaged frame".to_owned());
        }
    }
    Ok(interpreter)
}

/// The tensors of a case, stored as they are: only then a launch of its own adds checksums up.
fn run_stored(interpreter: &Interpreter, case: &Case) -> Result<(), String> {
    let text = |error: splitzip_host::Error| error.to_string();
    let mut spec = case.spec.clone();
    for tensor in &mut spec.tensors {
        (tensor.scheme, tensor.bases) = (Scheme::Stored, Bases::Chunk);
    }
    let expected = Reference.encode_to_vec(&spec, &[], &case.slices()).map_err(text)?;
    if interpreter.encode_to_vec(&spec, &[], &case.slices()).map_err(text)? != expected {
        return Err(format!("{}: another frame", case.name));
    }
    if interpreter.decode_to_vecs(&Frame::parse(&expected).map_err(text)?).map_err(text)? != case.inputs {
        return Err(format!("{}: other elements", case.name));
    }
    Ok(())
}

/// Cases by member, each prepared once.
#[derive(Default)]
struct Shelf(Mutex<HashMap<Member, Arc<Cases>>>);

impl Shelf {
    fn cases(&self, entry: &str) -> Arc<Cases> {
        let member = member_of(entry);
        if let Some(found) = self.0.lock().unwrap().get(&member) {
            return found.clone();
        }
        let new = Arc::new(prepare(member));
        self.0.lock().unwrap().entry(member).or_insert(new).clone()
    }
}

/// Makes and runs the mutants of an entry: all of them, and those that nothing noticed.
fn survivors(shelf: &Shelf, ptx: &'static Ptx, count: usize) -> (Vec<Mutant>, Vec<Mutant>) {
    let cases = shelf.cases(ptx.entry);
    // The kernels that ship pass: or no mutant would mean anything. What they run is what is changed.
    let shipped = run(Interpreter::new(ptx.target), ptx.entry, &cases, 30);
    let shipped = shipped.unwrap_or_else(|error| panic!("{}: {error}", ptx.entry));
    let lines = shipped.lines();
    let lines = lines.get(ptx.entry).unwrap_or_else(|| panic!("{} is not run by its cases", ptx.entry));
    let live: BTreeSet<u32> = lines.keys().copied().collect();
    let all = mutants(ptx, &live, count, SEED);
    let survives = |mutant: &&Mutant| {
        let broken = Interpreter::new(ptx.target).with_text(ptx.entry, &mutant.text(), STEPS);
        let broken = broken.unwrap_or_else(|error| panic!("{mutant}: is no PTX: {error}"));
        run(broken, ptx.entry, &cases, usize::MAX).is_ok()
    };
    let left = all.iter().filter(survives).cloned().collect();
    (all, left)
}

/// Caught and all, by kind.
fn summary(all: &[Mutant], left: &[Mutant]) -> String {
    let mut kinds: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
    all.iter().for_each(|mutant| kinds.entry(mutant.kind).or_default().1 += 1);
    all.iter().for_each(|mutant| kinds.entry(mutant.kind).or_default().0 += 1);
    left.iter().for_each(|mutant| kinds.entry(mutant.kind).or_default().0 -= 1);
    let rows = kinds.iter().map(|(kind, (caught, all))| format!("{kind:?} {caught}/{all}"));
    rows.collect::<Vec<_>>().join(", ")
}

fn run_all(count: usize) -> (Vec<Mutant>, Vec<Mutant>) {
    let shelf = Shelf::default();
    let found: Vec<_> = PTX.par_iter().map(|ptx| survivors(&shelf, ptx, count)).collect();
    let (all, left): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    (all.concat(), left.concat())
}

/// The reasons in the list, by mutant.
fn reasons(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("- "));
    let row = |row: &str| row.rsplit_once("`: ").map(|(name, why)| (format!("{name}`"), why.to_owned()));
    rows.filter_map(row).collect()
}

#[test]
fn the_tests_notice_what_is_changed() {
    let (all, left) = run_all(2);
    println!("{} mutants, {} survive: {}", all.len(), left.len(), summary(&all, &left));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/mutants.md");
    let list = std::fs::read_to_string(&path).unwrap_or_default();
    let known = reasons(&list);
    let names: BTreeSet<String> = left.iter().map(Mutant::to_string).collect();
    if std::env::var_os("SPLITZIP_BLESS").is_some() {
        let head = list.split("\n- ").next().unwrap_or_default().trim_end();
        let why = |name: &String| known.get(name).map_or("?", String::as_str);
        let rows: Vec<String> = names.iter().map(|name| format!("- {name}: {}\n", why(name))).collect();
        std::fs::write(&path, format!("{head}\n\n{}", rows.concat())).unwrap();
        return;
    }
    assert!(all.len() >= 200, "{}", all.len());
    // Those that compute the same cannot be caught; of the others, 95 in 100 must be.
    let open = known.values().filter(|why| why.starts_with("open, ")).count();
    let same = left.len().saturating_sub(open);
    assert!(left.len() * 8 <= all.len(), "more than one in 8 survives:\n{names:#?}");
    assert!(open * 20 <= all.len() - same, "more than one in 20 is open:\n{names:#?}");
    let listed: BTreeSet<String> = known.keys().cloned().collect();
    assert_eq!(names, listed, "survivors and docs/mutants.md differ; SPLITZIP_BLESS=1 writes the list");
    assert!(known.values().all(|why| why.len() > 10), "a survivor has no reason in docs/mutants.md");
}

/// Ten times as many; minutes to an hour. `SPLITZIP_MUTANTS` is how many an entry gets.
#[test]
#[ignore = "takes long; cargo test -p splitzip-host --test mutants -- --ignored --nocapture"]
fn many_more() {
    let count = std::env::var("SPLITZIP_MUTANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let (all, left) = run_all(count);
    left.iter().for_each(|mutant| println!("{mutant}"));
    println!("{} mutants, {} survive: {}", all.len(), left.len(), summary(&all, &left));
    assert!(left.len() * 6 <= all.len());
}
