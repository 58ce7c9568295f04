//! What there are kernels for.

use splitzip_host::Executor;
use splitzip_host::conformance::{self, Member, has};

/// By name, so that a kernel that goes missing is a failing test and not a shorter list.
const MEMBERS: &[&str] = &[
    "bf16 w4",
    "bf16 w3",
    "bf16 w3 channel",
    "bf16 w2x3",
    "bf16 w2x3 channel",
    "bf16 w2x2x3",
    "bf16 w2x2x3 channel",
    "fp16 w4",
    "fp16 w3",
    "fp16 w3 channel",
    "fp16 w2x3",
    "fp16 w2x3 channel",
    "fp16 w2x2x3",
    "fp16 w2x2x3 channel",
    "e4m3 w3",
    "e4m3 w3 channel",
    "e4m3 w2x3",
    "e4m3 w2x3 channel",
    "e4m3 w2x2x3",
    "e4m3 w2x2x3 channel",
    "e5m2 w4",
    "e5m2 w3",
    "e5m2 w3 channel",
    "e5m2 w2x3",
    "e5m2 w2x3 channel",
    "e5m2 w2x2x3",
    "e5m2 w2x2x3 channel",
];

/// The members that the kernels are for; those whose names have a word that `SPLITZIP_MEMBERS` says, for a quick run over few of them.
pub fn members() -> Vec<Member> {
    let mut members = conformance::members();
    members.retain(|member| MEMBERS.contains(&member.to_string().as_str()));
    assert_eq!(members.len(), MEMBERS.len(), "a name in the list is no member, or there twice");
    if let Ok(word) = std::env::var("SPLITZIP_MEMBERS") {
        members.retain(|member| member.to_string().split(' ').any(|name| name == word));
        assert!(!members.is_empty(), "no member has the word {word:?} of SPLITZIP_MEMBERS");
    }
    members
}

/// The executor has these members, and refuses all others.
pub fn check(executor: &dyn Executor) {
    for member in conformance::members() {
        let expected = MEMBERS.contains(&member.to_string().as_str());
        let found = has(executor, member).unwrap_or_else(|error| panic!("{error}"));
        let name = executor.name();
        assert!(expected || !found, "{name} has {member}: add it to the list in tests/support/members.rs");
        assert!(
            found || !expected,
            "{name} has no {member}, which is in the list of tests/support/members.rs"
        );
    }
}
