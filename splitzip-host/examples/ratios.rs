//! Prints the ratios of all dtypes and schemes for a safetensors file of bf16 KV tensors, as `docs/format.md` has them:
//!
//!     cargo run --release -p splitzip-host --example ratios -- KV.safetensors

#[path = "../tests/support/mod.rs"]
mod support;

use splitzip_host::{Dtype, Scheme};
use std::path::PathBuf;
use support::{Tensor, Zeros, cast, load, ratio, with_zeros};

fn main() {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: ratios KV.safetensors");
        std::process::exit(2);
    };
    let plain = load(&path);
    const WINDOWS: [Scheme; 3] = [Scheme::W3, Scheme::W2x3, Scheme::W2x2x3];
    let row = |name: &str, tensors: &[Tensor]| {
        let cell = |scheme, channel| {
            ratio(tensors, scheme, channel).map_or("-".to_owned(), |ratio| format!("{ratio:.4}"))
        };
        let chunk = Scheme::coded().map(|scheme| cell(scheme, "none")).collect::<Vec<_>>().join(" | ");
        println!("| {name} | {chunk} | {} |", WINDOWS.map(|scheme| cell(scheme, "k")).join(" | "));
    };
    println!("| | w4 | w3 | w2x3 | w2x2x3 | w3, K channel | w2x3, K channel | w2x2x3, K channel |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for dtype in Dtype::floats() {
        row(dtype.name(), &plain.iter().map(|tensor| cast(tensor, dtype)).collect::<Vec<_>>());
    }
    let shares = [5, 10, 20, 50, 125, 250, 700].map(Zeros::Share);
    for zeros in [Zeros::HalfChunks, Zeros::Rows, Zeros::Channels, Zeros::Random].into_iter().chain(shares) {
        let name = format!("bf16, zeros: {zeros:?}");
        row(&name, &plain.iter().map(|tensor| with_zeros(tensor, zeros)).collect::<Vec<_>>());
    }
}
