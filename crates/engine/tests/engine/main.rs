//! Integration tests of the engine: one binary, one module per subject.

mod check;
mod check_index;
mod faults;
mod index;
mod ingest;
mod restore;
mod roundtrip;
mod steps;
mod synthesis;
mod walks;
