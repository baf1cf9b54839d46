//! Primary deduplication: files in use, real or made up, estimated, divided and reconciled.

pub mod dataset;
pub mod file_server;
pub mod index;
pub mod logs;
mod synthetic;
