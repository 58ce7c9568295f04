//! The first rounds of `examples/soak.rs` on the CPU: `cargo xtask soak random` goes on for an hour.

use rayon::prelude::*;
use splitzip_host::{Cpu, Reference};

#[path = "support/rounds/mod.rs"]
mod rounds;

#[test]
fn random_rounds() {
    (0..400u64).into_par_iter().for_each(|round| {
        let (cpu, one) = (Cpu::new(), Cpu::with_threads(1).unwrap());
        let executors = rounds::Executors { device: &cpu, other: &one, reference: &Reference };
        let mut counts = rounds::Counts::default();
        rounds::run(&executors, 7, round, 1 << 20, &mut counts)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(counts.encoded >= 2 && counts.decoded >= 2, "{counts:?}");
    });
}
