//! The vocabulary of Onefold: names, bounds and errors shared by every layer.
//!
//! This crate sits at layer 0. It depends on nothing, performs no input or output, and holds no
//! algorithm: only the nouns that the layers above exchange.
//!
//! | module | holds |
//! | --- | --- |
//! | [`fingerprint`] | the 32-byte name of a chunk |
//! | [`ids`] | 16-byte random names of containers, sessions, runs, plans and stores |
//! | [`level`] | height of a chunk in the Merkle forest |
//! | [`limits`] | every bound of the system, in one place |
//! | [`words`] | refuses what people say at too great length |
//! | [`environment`] | the traits through which randomness and time enter |
//! | [`error`] | the one error type: what happened, where, and of which kind |
//! | [`invariant`](mod@invariant) | what must hold, or the program itself is wrong |

pub mod environment;
pub mod error;
pub mod fingerprint;
pub mod ids;
pub mod invariant;
pub mod level;
pub mod limits;
pub mod words;

pub use error::{Error, ErrorKind, Result};
pub use fingerprint::Fingerprint;
pub use ids::{
    CheckpointId, ContainerId, DoubtId, KeyId, MarkId, PlanId, RunId, SessionId, ShareId, StoreId,
};
pub use level::Level;
