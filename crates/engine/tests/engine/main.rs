//! Integration tests of the engine: one binary, one module per subject.

mod check;
mod index;
mod ingest;
mod check_index;
mod restore;
mod steps;
mod synthesis;
mod walks;
