//! Integration tests of the engine: one binary, one module per subject.

mod check;
mod restore;
mod steps;
mod synthesis;
mod walks;
