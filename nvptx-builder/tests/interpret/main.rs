//! The interpreter, on small texts.

mod shipped;
