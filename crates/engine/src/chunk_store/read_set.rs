//! What a session relies on: the containers in which it found chunks (protocol, W5 and W8).
//!
//! When a collector condemns containers while a session runs, the session need not start over if it
//! can show that it relies on none of them: each chunk that it found in one must be found again
//! elsewhere, most likely where the collector has copied it. Chunks are remembered by name up to a
//! bound; beyond it only their containers are, and such a container cannot be left any more.

use onefold_types::{ContainerId, Fingerprint};
use std::collections::{BTreeSet, HashMap};

/// Chunks remembered by name: two megabytes and a half.
const NAMED_MAX: usize = 1 << 16;

/// The containers that a session relies on.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    /// `None`: on more than is remembered.
    containers: HashMap<ContainerId, Option<Vec<Fingerprint>>>,
    named: usize,
}

impl ReadSet {
    /// The session found a chunk in a container.
    pub fn note(&mut self, container: ContainerId, fingerprint: &Fingerprint) {
        let is_full = self.named >= NAMED_MAX;
        let known = self.containers.entry(container).or_insert_with(|| Some(Vec::new()));
        match known {
            Some(names) if !is_full => {
                names.push(*fingerprint);
                self.named += 1;
            }
            Some(names) => {
                self.named -= names.len();
                *known = None;
            }
            None => {}
        }
    }

    /// The chunks that were found in these containers; `None` if not all of them are known.
    #[must_use]
    pub fn chunks_in(&self, condemned: &BTreeSet<ContainerId>) -> Option<Vec<Fingerprint>> {
        let mut chunks = Vec::new();
        for id in condemned {
            match self.containers.get(id) {
                Some(Some(names)) => chunks.extend_from_slice(names),
                Some(None) => return None,
                None => {}
            }
        }
        Some(chunks)
    }

    /// The containers.
    pub fn containers(&self) -> impl Iterator<Item = ContainerId> {
        self.containers.keys().copied()
    }

    /// Nothing is relied on in these containers any more.
    pub fn leave(&mut self, condemned: &BTreeSet<ContainerId>) {
        for id in condemned {
            if let Some(Some(names)) = self.containers.remove(id) {
                self.named -= names.len();
            }
        }
    }

    /// The same, as another set.
    #[must_use]
    pub fn without(&self, condemned: &BTreeSet<ContainerId>) -> Self {
        let mut rest = self.clone();
        rest.leave(condemned);
        rest
    }

    /// Relies on all that another set relies on as well.
    pub fn extend(&mut self, other: Self) {
        for (container, names) in other.containers {
            match names {
                Some(names) => names.iter().for_each(|name| self.note(container, name)),
                None => {
                    if let Some(Some(known)) = self.containers.insert(container, None) {
                        self.named -= known.len();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_by_name_is_remembered_by_container() {
        let (a, b) = (ContainerId([1; 16]), ContainerId([2; 16]));
        let mut read_set = ReadSet::default();
        read_set.note(a, &Fingerprint([1; 32]));
        let condemned = BTreeSet::from([a]);
        assert_eq!(read_set.chunks_in(&condemned).unwrap(), [Fingerprint([1; 32])]);
        assert!(read_set.chunks_in(&BTreeSet::from([b])).unwrap().is_empty());
        for _ in 0..NAMED_MAX {
            read_set.note(b, &Fingerprint([2; 32]));
        }
        assert_eq!(read_set.chunks_in(&BTreeSet::from([b])), None);
        assert_eq!(read_set.chunks_in(&condemned).unwrap().len(), 1);
        read_set.leave(&condemned);
        assert!(read_set.chunks_in(&condemned).unwrap().is_empty());
    }
}
