//! The conformance list: to be written.
