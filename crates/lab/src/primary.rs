//! Primary deduplication: data sets as files with their chunks, divided and reconciled.

pub mod dataset;
pub mod index;
pub mod logs;
mod synthetic;
