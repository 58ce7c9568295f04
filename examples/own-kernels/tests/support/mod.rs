//! What the tests and the record of a GPU have in common: inputs, naive code, and the whole list of runs for any machine.
#![allow(dead_code)]

pub mod inputs;
pub mod machine;
pub mod naive;
