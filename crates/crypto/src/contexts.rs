//! The contexts under which subkeys are derived from a store's secrets: one for each use.
//!
//! Invariant: they are part of the format. Another text is another key, and nothing that was
//! stored before can be read, found or believed; `tests/known_answers.rs` holds each fast.

/// Keys of sealed objects.
pub const SEALING: &str = "onefold 2026 sealing of stored objects";
/// The public id of a sealing generation.
pub const GENERATION: &str = "onefold 2026 name of a sealing generation";
/// Fingerprints of data; with SHA-256 and SHA-1, of nodes as well.
pub const DATA: &str = "onefold 2026 fingerprints of data chunks";
/// Fingerprints of tree nodes with BLAKE3.
pub const NODES: &str = "onefold 2026 fingerprints of tree nodes";
/// The secret of the chunker.
pub const BOUNDARIES: &str = "onefold 2026 chunk boundaries";
/// The configuration's tag.
pub const CONFIGURATION: &str = "onefold 2026 authenticity of the configuration";
/// Fingerprints of tree nodes where there is no master key: derived from no input.
pub const PUBLIC_NODES: &str = "onefold 2026 tree nodes of an unencrypted store";
/// What wraps the keys for a key file: HKDF is told it, with the store's name.
pub const KEY_FILE: &str = "onefold 2026 wrapping key of a key file";
