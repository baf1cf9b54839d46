//! The protocol, step by step: sessions, epochs, decisions and crashes (docs/PROTOCOL.md).
//!
//! Collectors are played by hand: plans and epochs are sealed and decided as a collector does it,
//! in the order that the test wants. Tests are named after the root causes of losses elsewhere.

#[path = "../engine/steps.rs"]
mod steps;

mod crashes;
mod keys;
mod keys_model;
mod leaving;
mod lists;
mod rotation;
mod sessions;
