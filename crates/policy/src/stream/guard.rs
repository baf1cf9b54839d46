//! What keeps rewriting from undoing from version to version what it did: rules of a store that
//! lives on, beside those of the policy, which knows one version and the one before.
//!
//! - What the previous version used well is not the policy's concern: it is read anyway, for files
//!   that are kept unread among others, so that storing it again would gain nothing. A difference
//!   that lies there is, if its base's unit was used little: whole, it would need that no more. For
//!   the policy it then lies where its base does.
//! - Before a chunk is stored again the index is asked for a copy that lies well, which is referred
//!   to instead.
//! - No more chunks are stored a third time than the stream had new ones.
//!
//! So of data that has not changed no chunk is stored again twice. Experiments on policies alone
//! have no guard, as the publications have none.

use super::ports::{ContainerPort, Instances, Units};
use crate::rewrite::{ContainerUse, RewriteChoice, UnitId};
use onefold_types::{Fingerprint, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the rules rest on.
#[derive(Clone, Debug, Default)]
pub struct RewriteGuard {
    /// How the previous version used units.
    pub history: Option<Arc<ContainerUse>>,
    /// The units to be emptied, if the stream is only what has changed: then nothing else is stored
    /// again.
    pub targets: Option<Arc<BTreeSet<UnitId>>>,
}

/// The rules for one stream.
pub(super) struct Guard<A> {
    rules: RewriteGuard,
    /// Whether what the history keeps is kept even if there is one copy only.
    keeps_by_history: bool,
    /// Chunks stored again of which there were two copies.
    third_copies: u64,
    /// Whether history keeps what is at the address last asked about: chunks of a frame come
    /// together.
    last_kept: Option<(A, bool)>,
}

/// Whose concern a duplicate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Concern<A> {
    /// Nobody's: this instance is kept.
    Kept(A),
    /// The policy's.
    Instances,
    /// The policy's, because of what it is a difference against: for this unit.
    Base(UnitId),
}

impl<A: Copy + Ord> Guard<A> {
    pub(super) fn new(rules: RewriteGuard, choice: &RewriteChoice) -> Self {
        let limits = choice.limits();
        let keeps_by_history = match choice {
            RewriteChoice::History(_) => true,
            // A limit of reads alone holds whatever space it takes.
            RewriteChoice::Auto(_) => limits.loss_max.is_some() || limits.reads_max.is_none(),
            _ => false,
        };
        Self { rules, keeps_by_history, third_copies: 0, last_kept: None }
    }

    /// Whether only certain units are to be emptied.
    pub(super) fn has_targets(&self) -> bool {
        self.rules.targets.is_some()
    }

    /// Keeps an instance in a unit that the previous version used well, or that is not to be
    /// emptied; unless it is a difference against something in a unit of which that is not true.
    pub(super) fn concern<U>(&mut self, old: &Instances<A>, unit: &U) -> Concern<A>
    where
        U: Units<Address = A>,
    {
        if !self.keeps_by_history {
            return Concern::Instances;
        }
        if !old.others.is_empty() {
            let kept = old.iter().find(|address| self.stays(unit.unit_of(*address)));
            return kept.map_or(Concern::Instances, Concern::Kept);
        }
        let is_kept = match self.last_kept {
            Some((last, is_kept)) if last == old.first => is_kept,
            _ => self.stays(unit.unit_of(old.first)),
        };
        self.last_kept = Some((old.first, is_kept));
        match self.left_base(old, unit) {
            _ if !is_kept => Concern::Instances,
            Some(base) => Concern::Base(base),
            None => Concern::Kept(old.first),
        }
    }

    /// The unit that a duplicate's only known instance needs for its base, if the previous version
    /// used little of it.
    fn left_base<U: Units<Address = A>>(&self, old: &Instances<A>, unit: &U) -> Option<UnitId> {
        let base = old.rests_on.filter(|_| old.others.is_empty()).map(|base| unit.unit_of(base));
        base.filter(|base| self.is_left(*base))
    }

    /// A copy that makes it needless to store a chunk again, which was stored again before: of the
    /// copies `seen` or of those that the look-up did not happen to meet. One is good enough unless
    /// the previous version used little of what lies around it. Otherwise the chunk is stored a
    /// third time; so are no more chunks than `unique`, or what one version does to data that do
    /// not change the next one might undo for ever.
    pub(super) fn elsewhere<P: ?Sized, U: Units<Address = A>>(
        &mut self,
        (fingerprint, seen): (&Fingerprint, &Instances<A>),
        unique: u64,
        unit: &U,
        containers: &mut impl ContainerPort<P, A>,
    ) -> Result<Option<A>> {
        let others = containers.others(fingerprint, seen)?;
        if seen.others.is_empty() && others.is_empty() {
            return Ok(None);
        }
        // What needs a unit for its base alone is no copy that makes another one needless.
        let needs_base = self.left_base(seen, unit).is_some();
        let newest_first = || others.iter().copied().chain(seen.iter().filter(|_| !needs_base));
        let stays = newest_first().find(|one| self.stays(unit.unit_of(*one)));
        let is_good = |one: &A| !self.is_left(unit.unit_of(*one));
        let good = stays.or_else(|| others.iter().copied().find(is_good));
        if good.is_none() && self.third_copies < unique {
            self.third_copies += 1;
            return Ok(None);
        }
        Ok(good.or_else(|| newest_first().max()))
    }

    fn is_sparse(&self, unit: UnitId) -> Option<bool> {
        self.rules.history.as_ref()?.get(&unit)?.is_sparse()
    }

    fn stays(&self, unit: UnitId) -> bool {
        match &self.rules.targets {
            Some(targets) => !targets.contains(&unit),
            None => self.is_sparse(unit) == Some(false),
        }
    }

    /// Whether a unit is to be emptied, or was used little. Of one that the history does not know
    /// neither this nor that it stays is true.
    fn is_left(&self, unit: UnitId) -> bool {
        match &self.rules.targets {
            Some(targets) => targets.contains(&unit),
            None => self.is_sparse(unit) == Some(true),
        }
    }
}
