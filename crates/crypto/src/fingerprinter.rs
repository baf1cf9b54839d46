//! Names chunks by their plaintext.
//!
//! Data chunks and tree nodes are hashed in separate domains, so that a file whose bytes happen to
//! equal a tree node's never takes the node's name (a container descriptor has one level only).
//!
//! | kind | data | nodes |
//! | --- | --- | --- |
//! | BLAKE3 (default) | BLAKE3, keyed where encrypted | BLAKE3 keyed by a derived key |
//! | SHA-256 | SHA-256, or HMAC where encrypted | the same over a prefix and the node |
//! | SHA-1 (FAST'08) | SHA-1, or HMAC where encrypted | the same over a prefix and the node |
//!
//! SHA-1 is there to reproduce the papers. Collisions for unkeyed SHA-1 can be made on purpose; the
//! command line warns when a store is created with it.
//!
//! The keys are wiped from memory when a fingerprinter is dropped.

use crate::blake3_batch::BatchHasher;
use crate::contexts;
use crate::master_key::MasterKey;
use aws_lc_rs::{digest, hmac};
use onefold_types::{Error, Fingerprint, Result};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

const NODE_PREFIX: &[u8] = b"onefold tree node\0";

/// The hash that names chunks; fixed when a store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HashKind {
    /// BLAKE3, 32 bytes.
    #[default]
    Blake3,
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-1, 20 bytes padded with zeros.
    Sha1,
}

impl FromStr for HashKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "blake3" => Ok(Self::Blake3),
            "sha256" => Ok(Self::Sha256),
            "sha1" => Ok(Self::Sha1),
            _ => Err(Error::invalid(format!("'{text}' is not one of blake3, sha256, sha1"))),
        }
    }
}

impl fmt::Display for HashKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Sha1 => "sha1",
        })
    }
}

enum Engine {
    Blake3 { data: BatchHasher, nodes: BatchHasher },
    Digest(&'static digest::Algorithm),
    Hmac(Box<hmac::Key>),
}

/// Computes fingerprints; shared by all threads of a process.
pub struct Fingerprinter {
    engine: Engine,
}

impl Fingerprinter {
    /// A fingerprinter of `kind`, keyed where the store has a master key.
    #[must_use]
    pub fn new(kind: HashKind, master_key: Option<&MasterKey>) -> Self {
        let subkey = |context| master_key.map(|key| key.subkey(context));
        let keyed = subkey(contexts::DATA);
        let engine = match (kind, keyed) {
            (HashKind::Blake3, keyed) => {
                let nodes = subkey(contexts::NODES).unwrap_or_else(|| {
                    Zeroizing::new(blake3::derive_key(contexts::PUBLIC_NODES, &[]))
                });
                Engine::Blake3 {
                    data: BatchHasher::new(keyed.as_deref()),
                    nodes: BatchHasher::new(Some(&nodes)),
                }
            }
            (HashKind::Sha256, None) => Engine::Digest(&digest::SHA256),
            (HashKind::Sha1, None) => Engine::Digest(&digest::SHA1_FOR_LEGACY_USE_ONLY),
            (HashKind::Sha256, Some(key)) => {
                Engine::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &*key)))
            }
            (HashKind::Sha1, Some(key)) => {
                Engine::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &*key)))
            }
        };
        Self { engine }
    }

    /// The fingerprint of a data chunk.
    #[must_use]
    pub fn data(&self, bytes: &[u8]) -> Fingerprint {
        match &self.engine {
            Engine::Blake3 { data, .. } => data.hash(bytes),
            _ => self.digest(&[bytes]),
        }
    }

    /// Appends the fingerprint of each data chunk to `fingerprints`.
    pub fn data_batch(&self, chunks: &[&[u8]], fingerprints: &mut Vec<Fingerprint>) {
        match &self.engine {
            Engine::Blake3 { data, .. } => data.hash_batch(chunks, fingerprints),
            _ => fingerprints.extend(chunks.iter().map(|chunk| self.digest(&[chunk]))),
        }
    }

    /// The fingerprint of a tree node.
    #[must_use]
    pub fn node(&self, bytes: &[u8]) -> Fingerprint {
        match &self.engine {
            Engine::Blake3 { nodes, .. } => nodes.hash(bytes),
            _ => self.digest(&[NODE_PREFIX, bytes]),
        }
    }

    fn digest(&self, parts: &[&[u8]]) -> Fingerprint {
        match &self.engine {
            Engine::Blake3 { data, .. } => data.hash(&parts.concat()),
            Engine::Digest(algorithm) => {
                let mut context = digest::Context::new(algorithm);
                parts.iter().for_each(|part| context.update(part));
                padded(context.finish().as_ref())
            }
            Engine::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                padded(context.sign().as_ref())
            }
        }
    }
}

fn padded(digest: &[u8]) -> Fingerprint {
    let mut fingerprint = Fingerprint::ZERO;
    for (to, from) in fingerprint.0.iter_mut().zip(digest) {
        *to = *from;
    }
    fingerprint
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [HashKind; 3] = [HashKind::Blake3, HashKind::Sha256, HashKind::Sha1];

    #[test]
    fn unkeyed_kinds_give_the_published_digests() {
        let hex = |kind| Fingerprinter::new(kind, None).data(b"abc").to_string();
        assert!(hex(HashKind::Blake3).starts_with("6437b3ac38465133ffb63b75273a8db5"));
        assert!(hex(HashKind::Sha256).starts_with("ba7816bf8f01cfea414140de5dae2223"));
        assert!(hex(HashKind::Sha1).starts_with("a9993e364706816aba3e25717850c26c9cd0d89d0000"));
    }

    #[test]
    fn keys_and_domains_separate() {
        let (one, two) = (MasterKey::from_bytes([1; 32]), MasterKey::from_bytes([2; 32]));
        for kind in KINDS {
            let keyed = Fingerprinter::new(kind, Some(&one));
            assert_ne!(keyed.data(b"x"), Fingerprinter::new(kind, None).data(b"x"), "{kind}");
            assert_ne!(keyed.data(b"x"), Fingerprinter::new(kind, Some(&two)).data(b"x"));
            assert_ne!(keyed.data(b"x"), keyed.node(b"x"), "{kind}");
            let open = Fingerprinter::new(kind, None);
            assert_ne!(open.data(b"x"), open.node(b"x"), "{kind}");
        }
    }

    #[test]
    fn batch_equals_single() {
        let chunks: Vec<Vec<u8>> = (0..50).map(|n| vec![n as u8; n * 331]).collect();
        let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        for kind in KINDS {
            let fingerprinter = Fingerprinter::new(kind, None);
            let mut batch = Vec::new();
            fingerprinter.data_batch(&slices, &mut batch);
            let single: Vec<_> = slices.iter().map(|slice| fingerprinter.data(slice)).collect();
            assert_eq!(batch, single, "{kind}");
        }
    }
}
