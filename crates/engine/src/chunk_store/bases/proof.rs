//! The proof that what a section's deltas are made of is there (protocol, W5).
//!
//! Two passes: first each base is looked for where it was when the delta was made, container by
//! container; then the index is asked for all at once that were not there. A base is seldom lost
//! alone, and asked for one by one those of one container cost an access of the device each.

use super::Bases;
use crate::container::FrameId;
use onefold_format::container::{Delta, MetadataSection};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::{BTreeSet, HashMap};

/// Which deltas of a section count as there.
#[derive(Debug, Default)]
pub struct Proved {
    /// Positions of those that do not.
    pub unproved: Vec<u32>,
    /// The containers that hold the bases of the others.
    pub made_of: BTreeSet<ContainerId>,
    /// Accesses of the device for that: sections of other containers, and pages of the index.
    pub reads: u64,
}

impl Bases {
    /// Shows of the deltas of a section which can be made, and out of which containers.
    pub fn prove(&self, container: ContainerId, section: &MetadataSection) -> Result<Proved> {
        let mut proved = Proved::default();
        if section.deltas.is_empty() && self.state().known.is_none() {
            return Ok(proved);
        }
        self.note(container, section);
        // Container by container, so that none is read twice for one section.
        let mut deltas: Vec<&Delta> = section.deltas.iter().collect();
        deltas.sort_by_key(|delta| delta.bases.first().and_then(|base| base.container));
        let before = self.state().reads;
        let (mut rest_on, mut elsewhere) = (Vec::new(), Vec::new());
        for delta in deltas {
            match self.prove_one(delta, &HashMap::new(), &mut proved.made_of)? {
                Some(frame) => rest_on.push((delta.chunk, frame)),
                None => elsewhere.push(delta),
            }
        }
        // What is not where it was is asked for all at once: it is seldom lost alone.
        let located = self.locate_bases(&elsewhere)?;
        for delta in elsewhere {
            match self.prove_one(delta, &located, &mut proved.made_of)? {
                Some(frame) => rest_on.push((delta.chunk, frame)),
                None => proved.unproved.push(delta.chunk),
            }
        }
        rest_on.sort_unstable_by_key(|(chunk, _)| *chunk);
        proved.unproved.sort_unstable();
        let mut state = self.state();
        if let Some((known, _)) = &mut state.known {
            known.note_deltas(container, rest_on);
        }
        proved.reads = state.reads - before;
        Ok(proved)
    }

    /// The frame of a delta's base, if the delta can be made of what is where it says, or where it
    /// was located.
    fn prove_one(
        &self,
        delta: &Delta,
        located: &HashMap<Fingerprint, Vec<ContainerId>>,
        all_made_of: &mut BTreeSet<ContainerId>,
    ) -> Result<Option<FrameId>> {
        let mut made_of = BTreeSet::new();
        let mut found = None;
        for base in &delta.bases {
            let others = located.get(&base.fingerprint).into_iter().flatten();
            let others = others.filter(|container| Some(**container) != base.container);
            found = None;
            for container in base.container.iter().chain(others) {
                found = self.find_in(*container, base, delta.depth, &mut made_of)?;
                if found.is_some() {
                    break;
                }
            }
            if found.is_none() {
                return Ok(None);
            }
        }
        all_made_of.append(&mut made_of);
        Ok(found)
    }

    /// Where the index knows the bases of some deltas.
    fn locate_bases(&self, deltas: &[&Delta]) -> Result<HashMap<Fingerprint, Vec<ContainerId>>> {
        let mut bases: Vec<Fingerprint> =
            deltas.iter().flat_map(|delta| &delta.bases).map(|base| base.fingerprint).collect();
        if bases.is_empty() {
            return Ok(HashMap::new());
        }
        bases.sort_unstable();
        bases.dedup();
        let (mut found, mut pages) = (Vec::with_capacity(bases.len()), 0);
        self.index.locate_many(&self.repository, &bases, &mut found, &mut pages)?;
        self.state().reads += pages;
        Ok(bases.into_iter().zip(found).collect())
    }
}
