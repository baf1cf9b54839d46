//! Garbage collection: what it frees, what it must not, and everything at once with everything.
//!
//! [`schedule`] and [`world`] make a model of the store's users out of the real code: actors whose
//! every step is chosen. Its tests explore which step of whom may come when ([`model`]), and show
//! that the model notices what goes wrong when a rule of the protocol is broken ([`canaries`]).

#[path = "../engine/steps.rs"]
mod steps;

mod basics;
mod canaries;
mod causes;
mod checkpointing;
mod checkpoints;
mod decisions;
mod deltas;
mod device;
mod due;
mod faults_of_the_store;
mod file_copies;
mod full;
mod gated;
mod hard_ends;
mod hints;
mod holding;
mod marking;
mod model;
mod network;
mod ordering;
mod planted;
mod planted_kinds;
mod power;
mod readers;
mod renewing;
mod repacking;
mod resealing;
mod schedule;
mod share_actors;
mod share_files;
mod shares;
mod tasks;
mod wide;
mod world;
