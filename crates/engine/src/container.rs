//! Containers on the way in and out: frames, the open container, and reading.
//!
//! | module | holds |
//! | --- | --- |
//! | [`delta`] | deltas made whole again, out of their bases |
//! | [`frame`] | one frame: compress, seal, decode and compare; and the way back |
//! | [`frame_id`] | names of frames, and which chunks they hold |
//! | [`frame_pool`] | the threads that seal frames |
//! | [`open`] | an open container: frames in stream order until it is full (SISL) |
//! | [`list`] | the names of what is stored |
//! | [`log`] | appends finished containers to the store and keeps what is not yet indexed |
//! | [`packs`] | metadata packs, compared with the containers that they describe |
//! | [`reader`] | metadata sections and frames of stored containers |
//! | [`seen`] | containers that a session has seen to exist |
//! | [`similar`] | which chunks of a frame are stored as deltas |
//! | [`unreadable`] | containers whose section opens nowhere |
//! | [`verify`] | chunks out of a plain frame, verified by name |
//! | [`whole`] | all of a stored container, in pieces |

pub mod delta;
pub mod frame;
pub mod frame_id;
pub mod frame_pool;
pub mod list;
pub mod log;
pub mod open;
pub mod packs;
pub mod reader;
pub mod seen;
pub mod similar;
pub mod unreadable;
pub mod verify;
pub mod whole;

pub use frame_id::{FrameExtent, FrameId};
