//! The damage list on the golden frames: every bit of their heads flipped, many bits of the rest, every truncation, through the reference and the CPU on
//! every level of machine instructions. `examples/damage.rs` runs the whole list, also on a GPU.

use rayon::prelude::*;
use splitzip_host::conformance::{Damaged, Victim};
use splitzip_host::{Cpu, Executor, Reference};

#[path = "support/golden.rs"]
mod golden;

#[path = "support/levels.rs"]
mod levels;

/// All flips of the head and `flips` of the rest. Frames side by side, each on the thread that it is checked on.
fn flip(executor: impl Fn() -> Box<dyn Executor> + Sync, flips: usize) -> Damaged {
    let check = |victim: &Victim| {
        let done = victim.check(&*executor(), victim.flips(flips, 1));
        done.unwrap_or_else(|error| panic!("{error}"))
    };
    let victims = golden::victims_of_both_kinds();
    let total = victims.par_iter().map(check).reduce(Damaged::default, Damaged::and);
    println!("{total:?}");
    total
}

#[test]
fn every_flip_on_every_level() {
    levels::run();
}

#[test]
#[ignore = "started once for each level by the test above"]
fn one_level() {
    // A tenth of the list; `examples/damage.rs` has all of it.
    let total = flip(|| Box::new(Cpu::new()), 1000);
    // Most of it is noticed even where there is no checksum, and some of it is not.
    assert!(total.tried > 84 * 1000 && total.refused > total.tried / 2, "{total:?}");
    assert!(total.confined > 10_000 && total.harmless > 1000, "{total:?}");
    levels::say_ran();
}

#[test]
fn every_flip_through_the_reference() {
    let total = flip(|| Box::new(Reference), 100);
    assert!(total.refused > total.tried / 2 && total.confined > 100, "{total:?}");
}

#[test]
fn every_truncation() {
    let cpu = Cpu::new();
    let check = |victim: &Victim| victim.check(&cpu, victim.cuts()).unwrap_or_else(|error| panic!("{error}"));
    let total = golden::victims_of_both_kinds().par_iter().map(check).reduce(Damaged::default, Damaged::and);
    assert_eq!(total.refused, total.tried);
    assert!(total.tried > 100_000, "{total:?}");
}
