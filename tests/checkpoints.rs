//! Weights of models: what `compress` makes of them, beside what entropy coders could. `docs/checkpoints.md` has the table;
//! `SPLITZIP_BLESS=1` writes it. With the feature `peers`, as `cargo xtask test` has it, zstd is one of them.
#![cfg(feature = "peers")]

mod common;

use common::safetensors_of;
use splitzip_host::file::{self, Options, Report};
use splitzip_host::{Cpu, Dtype, Executor, Scheme, SchemeChoice};
use std::collections::BinaryHeap;
use std::path::Path;
use std::{cmp::Reverse, env, fs};

const HEAD: &str = "\
# Model checkpoints

Weights are floats with few exponents too, so `splitzip compress model.safetensors` works on checkpoints as it does on KV caches: bf16 weights become a third smaller at the speed of a copy.
`--scheme auto` takes the smallest scheme of every piece and is the one to store with; the default, `w2x3`, decodes a little faster on a GPU. A directory with shards, index, configuration and tokenizer is
compressed as a whole ([docs/cli.md](cli.md)).

**An entropy coder gets a few percent more.** Codes of fixed width and a window cannot reach the entropy of the exponents; Huffman codes as in ZipNN or DFloat11 come within a percent of it. That is the price
of decoding at the speed of memory. Where a checkpoint is stored once and read seldom, and size is all that counts, take one of those. F32 and integer tensors are stored as they are.

The rows are synthetic weights, a quarter of a million elements each, made and measured by `tests/checkpoints.rs` (`cargo xtask bless` writes the table): normal numbers, as trained matrices nearly have, at
several scales and with rows or columns of different scale, heavy tails, what layers of other kinds have, and one small model of all of them in the shares of a transformer. Ratios are of whole
`.spz` files, everything counted. *Huffman* and *entropy* are bounds: 8 bits of sign and mantissa, and the exponent in the length of its Huffman code or in its entropy over the tensor, without any
table or header. *zstd* is level 1 on each byte plane of a tensor; where zeros or few different numbers repeat (embeddings, norms) it gains from that too, and windows that follow the
exponents can beat a bound that is taken over the whole tensor.

";

/// Normal numbers, by the method of Box and Muller.
struct Normal(fastrand::Rng);

impl Normal {
    fn next(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.f64()).cos()
    }

    /// Student's t with 4 degrees of freedom: heavy tails.
    fn heavy(&mut self) -> f64 {
        let square: f64 = (0..4).map(|_| self.next().powi(2)).sum();
        self.next() / (square / 4.0).sqrt()
    }
}

/// A tensor of `rows` rows of `columns` bf16 elements, each rounded to the nearest.
fn tensor(rows: usize, columns: usize, mut element: impl FnMut(usize, usize) -> f64) -> Vec<u8> {
    let elements = (0..rows * columns).map(|i| half::bf16::from_f64(element(i / columns, i % columns)));
    elements.flat_map(|element| element.to_le_bytes()).collect()
}

type Weights = (String, Vec<u64>, Vec<u8>);

/// What the rows of the table are of: a name, and one tensor or several.
fn checkpoints() -> Vec<(&'static str, Vec<Weights>)> {
    let mut normal = Normal(fastrand::Rng::with_seed(11));
    let (rows, columns) = (128, 2048);
    let one = |name, bytes| (name, vec![("w".to_owned(), vec![rows as u64, columns as u64], bytes)]);
    let mut all = Vec::new();
    for (name, deviation) in [
        ("normal, deviation 0.02", 0.02),
        ("normal, deviation 0.0071", 0.0071),
        ("normal, deviation 0.5", 0.5),
    ] {
        all.push(one(name, tensor(rows, columns, |_, _| deviation * normal.next())));
    }
    let scales: Vec<f64> = (0..rows).map(|_| 0.02 * (0.5 * normal.next()).exp()).collect();
    all.push(one(
        "normal, rows of different scale",
        tensor(rows, columns, |row, _| scales[row] * normal.next()),
    ));
    let scales: Vec<f64> = (0..columns).map(|_| 0.02 * normal.next().exp()).collect();
    all.push(one(
        "normal, columns of very different scale",
        tensor(rows, columns, |_, column| scales[column] * normal.next()),
    ));
    all.push(one("heavy tails (t, 4 degrees)", tensor(rows, columns, |_, _| 0.02 * normal.heavy())));
    let mut uniform = fastrand::Rng::with_seed(3);
    all.push(one(
        "uniform, as initialised",
        tensor(rows, columns, |_, _| 0.03 * (2.0 * uniform.f64() - 1.0)),
    ));
    all.push(one(
        "embedding, a twentieth of its rows unused",
        tensor(rows, columns, |row, _| if row % 20 == 0 { 0.0 } else { 0.04 * normal.next() }),
    ));
    all.push(one("norms, around 1", tensor(rows, columns, |_, _| 1.0 + 0.1 * normal.next())));

    // A small transformer: hidden size 256, 4 layers, in the shares of a large one.
    let mut model: Vec<Weights> = Vec::new();
    let mut add = |name: String, rows: usize, columns: usize, deviation: f64, normal: &mut Normal| {
        let scales: Vec<f64> = (0..rows).map(|_| deviation * (0.2 * normal.next()).exp()).collect();
        model.push((
            name,
            vec![rows as u64, columns as u64],
            tensor(rows, columns, |row, _| scales[row] * normal.next()),
        ));
    };
    add("model.embed_tokens.weight".to_owned(), 1024, 256, 0.03, &mut normal);
    for layer in 0..4 {
        let of = |name: &str| format!("model.layers.{layer}.{name}.weight");
        for name in ["self_attn.q_proj", "self_attn.o_proj"] {
            add(of(name), 256, 256, 0.02, &mut normal);
        }
        for name in ["self_attn.k_proj", "self_attn.v_proj"] {
            add(of(name), 64, 256, 0.03, &mut normal);
        }
        for name in ["mlp.gate_proj", "mlp.up_proj"] {
            add(of(name), 1024, 256, 0.02, &mut normal);
        }
        add(of("mlp.down_proj"), 256, 1024, 0.02 / 8f64.sqrt(), &mut normal);
    }
    for layer in 0..4 {
        let norm = tensor(1, 256, |_, _| 1.0 + 0.1 * normal.next());
        model.push((format!("model.layers.{layer}.input_layernorm.weight"), vec![256], norm));
    }
    all.push(("**a small transformer**", model));
    all
}

fn compressed(weights: &[Weights], scheme: SchemeChoice) -> Report {
    let tensors: Vec<_> = weights
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), "BF16", &shape[..], bytes.clone()))
        .collect();
    let (original, mut packed) = (safetensors_of(&tensors), Vec::new());
    let options = Options { scheme, ..Options::default() };
    let report =
        file::compress(&Cpu::new(), &original, &mut packed, &options, &mut |_| Ok(())).expect("compress");
    let (mut reader, mut back) = (file::Reader::from_bytes(&packed).expect("a file"), Vec::new());
    file::decompress(&Cpu::new(), &mut reader, &mut back, &mut |_| Ok(())).expect("decompress");
    assert!(back == original, "other bytes came back");
    report
}

/// Bits of all exponents in a Huffman code.
fn huffman(counts: &[u64]) -> u64 {
    let mut heap: BinaryHeap<Reverse<u64>> =
        counts.iter().filter(|&&count| count != 0).map(|&c| Reverse(c)).collect();
    // One value alone still takes a bit.
    let mut bits = if heap.len() == 1 { counts.iter().sum() } else { 0 };
    while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
        bits += a + b;
        heap.push(Reverse(a + b));
        if heap.len() == 1 {
            break;
        }
    }
    bits
}

/// Bytes of zstd, level 1, of each byte plane.
fn zstd_bytes(bytes: &[u8]) -> usize {
    let plane = |at: usize| bytes.iter().skip(at).step_by(2).copied().collect::<Vec<u8>>();
    [0, 1].map(|at| zstd::bulk::compress(&plane(at), 1).expect("zstd").len()).iter().sum()
}

#[test]
fn weights_shrink_by_a_third() {
    let mut made = HEAD.to_owned();
    made += "| weights | `w4` | `w3` | `w2x3` | `w2x2x3` | `--scheme auto` | zstd | Huffman | entropy |\n";
    made += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for (name, weights) in checkpoints() {
        let raw: usize = weights.iter().map(|(_, _, bytes)| bytes.len()).sum();
        let schemes = [Scheme::W4, Scheme::W3, Scheme::W2x3, Scheme::W2x2x3].map(SchemeChoice::Given);
        let mut ratios: Vec<f64> = schemes
            .into_iter()
            .chain([SchemeChoice::Auto])
            .map(|scheme| compressed(&weights, scheme).ratio())
            .collect();
        let [_, _, default, _, auto] = ratios[..] else { panic!("five ratios") };
        let zstd: usize = weights.iter().map(|(_, _, bytes)| zstd_bytes(bytes)).sum();
        let (mut code, mut entropy) = (0.0, 0.0);
        for (_, _, bytes) in &weights {
            let histogram = Cpu::new().histogram(Dtype::Bf16, bytes).expect("a histogram");
            code += huffman(histogram.counts()) as f64 / 8.0;
            entropy += histogram.entropy() * histogram.total() as f64 / 8.0;
        }
        // A byte an element is sign and mantissa.
        let rest = raw as f64 / 2.0;
        ratios.extend([raw as f64 / zstd as f64, raw as f64 / (rest + code), raw as f64 / (rest + entropy)]);
        let cells: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        made += &format!("| {name} | {} |\n", cells.join(" | "));
        let bound = raw as f64 / (rest + entropy);
        assert!(auto >= 0.95 * bound || bound > 1.7, "{name}: {auto} of {bound}");
        assert!(auto >= 0.999 * default && default >= 1.36, "{name}: {default}, {auto}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/checkpoints.md");
    if env::var_os("SPLITZIP_BLESS").is_some() {
        fs::write(&path, &made).expect("write docs/checkpoints.md");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "docs/checkpoints.md is stale; `cargo xtask bless` writes it anew");
}
