//! The conformance list on the reference. Other executors run it in test files of their own.

use splitzip_host::{Reference, conformance};

#[test]
fn the_reference_conforms() {
    let members = conformance::members();
    assert_eq!(members.len(), 27);
    let report = conformance::run(&Reference, &members).unwrap_or_else(|error| panic!("{error}"));
    println!("{report:?}");
    assert!(report.cases > 2000, "{report:?}");
}
