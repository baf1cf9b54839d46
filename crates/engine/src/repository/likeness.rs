//! What two stores have in common: whether equal bytes get equal names in both, and are cut in the
//! same places. It decides what a copy of snapshots can take over (docs/decisions/0056).

use super::Repository;
use onefold_crypto::{KeyRing, contexts};
use zeroize::Zeroizing;

/// Any bytes will do: keyed or not, fingerprints that agree on them agree on all.
const PROBE: &[u8] = b"onefold names of equal bytes";
/// The kind of chunker that no secret has a part in.
const FIXED: &str = "fixed";

impl Repository {
    /// Whether equal chunks and equal nodes have equal names in both stores.
    #[must_use]
    pub fn names_like(&self, other: &Self) -> bool {
        let (own, others) = (self.fingerprinter(), other.fingerprinter());
        own.data(PROBE) == others.data(PROBE) && own.node(PROBE) == others.node(PROBE)
    }

    /// Whether equal streams are cut into equal chunks in both stores.
    #[must_use]
    pub fn cuts_like(&self, other: &Self) -> bool {
        let own = &self.configuration.chunker;
        *own == other.configuration.chunker
            && (own.kind == FIXED || self.boundary_secret() == other.boundary_secret())
    }

    fn boundary_secret(&self) -> Option<Zeroizing<[u8; 32]>> {
        let master_key = self.ring.as_ref().map(KeyRing::master_key);
        master_key.map(|key| key.subkey(contexts::BOUNDARIES))
    }
}
