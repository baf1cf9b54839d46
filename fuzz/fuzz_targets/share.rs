//! Fuzzes the target `share` of crates/format/tests/fuzz/targets.rs.
#![no_main]

#[path = "../../crates/format/tests/fuzz/targets.rs"]
#[allow(dead_code, reason = "each program fuzzes one of them")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::share(bytes));
