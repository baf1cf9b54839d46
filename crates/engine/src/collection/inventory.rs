//! What there is: all containers with their sizes, and a scan over their metadata sections.
//!
//! The scan reads the metadata packs, newest first, as long sequential reads, and the containers
//! that no pack has, one by one (S3.4, S3.21): those that are newer than a pack before it, because
//! what is scanned first counts as the newest instance. That is what a collection has written that
//! was stopped, and the next one goes on with it. The list alone tells that a container exists.
//!
//! A pack proves nothing by itself: it is compared with the containers first ([`packs`]).
//!
//! Names follow a clock, so their order is a preference. A section that does not open in its
//! container is looked for in every pack before the scan fails.
//!
//! Memory: some 64 bytes a container; a section or a pack at a time.

use crate::container::list;
use crate::container::packs::{self, Compared, Pack};
use crate::container::reader::{self, OpenedSection};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::evidence;
use onefold_format::container::MetadataSection;
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Fewer than one in so many containers are read one by one: packs hold all of them.
const FEW: usize = 16;

/// A container of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InventoryItem {
    /// Its name.
    pub id: ContainerId,
    /// Its length.
    pub stored_bytes: u64,
    /// Whether the index covers it: only then does it count as a holder of chunks.
    pub indexed: bool,
    /// Whether nothing bad was found about it: a damaged container is no holder either, and what it
    /// may still hold alone is left to it.
    pub sound: bool,
    /// Whether its section opens somewhere: no scan meets it otherwise.
    pub readable: bool,
    /// Whether it may be condemned.
    pub eligible: bool,
}

/// All containers of a store, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// The containers, rising.
    pub containers: Vec<InventoryItem>,
    /// The sessions that containers may name; `None`: any.
    sessions: Option<BTreeSet<SessionId>>,
}

/// How a scan read the sections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCounters {
    /// Packs read.
    pub packs: u64,
    /// Sections read from containers.
    pub sections: u64,
    /// Containers that were listed and are gone.
    pub vanished: u64,
}

impl Inventory {
    /// Lists the containers; `covered` are those that the index knows, rising.
    pub fn take(repository: &Repository, covered: &[ContainerId]) -> Result<Self> {
        let mut containers = Vec::new();
        repository.store().list(layout::CONTAINERS, &mut |listed| {
            if let Some(id) = layout::container_of(listed.key.as_str()) {
                let indexed = covered.binary_search(&id).is_ok();
                let stored_bytes = listed.size_bytes;
                let (sound, readable, eligible) = (true, true, true);
                let item = InventoryItem { id, stored_bytes, indexed, sound, readable, eligible };
                containers.push(item);
            }
            Ok(())
        })?;
        containers.sort_unstable_by_key(|container| container.id);
        containers.dedup_by_key(|container| container.id);
        Ok(Self { containers, sessions: None })
    }

    /// Has every scan fail that meets a container of a session of which nothing is known any more
    /// (rule D4): what its record named may be in any container.
    pub fn refuse_lost_sessions(&mut self, repository: &Repository) -> Result<()> {
        self.sessions = Some(evidence::known_sessions(repository)?);
        Ok(())
    }

    fn refuse_if_lost(&self, section: &MetadataSection) -> Result<()> {
        match (&self.sessions, section.session) {
            (Some(known), Some(session)) if !known.contains(&session) => {
                Err(Error::damaged(evidence::only_containers_tell_of(session)))
            }
            _ => Ok(()),
        }
    }

    /// The ordinal of a container.
    #[must_use]
    pub fn ordinal(&self, id: ContainerId) -> Option<usize> {
        self.containers.binary_search_by_key(&id, |container| container.id).ok()
    }

    /// The names of all containers, rising.
    #[must_use]
    pub fn ids(&self) -> Vec<ContainerId> {
        self.containers.iter().map(|container| container.id).collect()
    }

    /// Bytes of all containers.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.containers.iter().map(|container| container.stored_bytes).sum()
    }

    /// Calls `each` with the section of every container that `wanted` names, each once, about
    /// newest first. Containers that have vanished are passed over, and those whose section is
    /// known to open nowhere.
    ///
    /// Errors: `Damaged` with the container's name if a section can be read nowhere.
    pub fn scan(
        &self,
        repository: &Repository,
        wanted: &dyn Fn(&InventoryItem) -> bool,
        job: &Job,
        each: &mut dyn FnMut(usize, &MetadataSection) -> Result<()>,
    ) -> Result<ScanCounters> {
        self.scan_opened(repository, (wanted, false), job, &mut |ordinal, opened| {
            each(ordinal, &opened.section)
        })
    }

    /// The containers that are sealed under older keys than the newest ones. Nothing is read where
    /// there are none.
    pub fn of_older_keys(
        &self,
        repository: &Repository,
        job: &Job,
    ) -> Result<BTreeSet<ContainerId>> {
        let mut older = BTreeSet::new();
        if repository.vault().has_older_generations() {
            let is_sound = |container: &InventoryItem| container.sound;
            self.scan_opened(repository, (&is_sound, false), job, &mut |ordinal, opened| {
                let container = self.containers.get(ordinal).filter(|_| opened.is_of_older_keys);
                older.extend(container.map(|container| container.id));
                Ok(())
            })?;
        }
        Ok(older)
    }

    /// Scans sections as [`Self::scan`] does, and tells how old their seals are. Where containers
    /// come first, a pack is asked only for a section that does not open in its container: a
    /// collection deletes nothing by what a pack says.
    pub fn scan_opened(
        &self,
        repository: &Repository,
        (wanted, are_containers_first): (&dyn Fn(&InventoryItem) -> bool, bool),
        job: &Job,
        each: &mut dyn FnMut(usize, &OpenedSection) -> Result<()>,
    ) -> Result<ScanCounters> {
        let is_wanted = |container: &InventoryItem| container.readable && wanted(container);
        let mut left: Vec<bool> = self.containers.iter().map(is_wanted).collect();
        let mut counters = ScanCounters::default();
        let count = left.iter().filter(|wanted| **wanted).count();
        let all = 0..self.containers.len();
        let are_many = count * FEW >= left.len() && !are_containers_first;
        if !are_many {
            let some = (all.clone(), &mut left[..], false);
            self.scan_alone(repository, some, job, &mut counters, each)?;
        }
        if are_many || left.contains(&true) {
            self.scan_packs(repository, &mut left, job, &mut counters, each)?;
        }
        self.scan_alone(repository, (all, &mut left, true), job, &mut counters, each)?;
        Ok(counters)
    }

    /// Scans those that are left of some containers one by one, newest first. What cannot be read
    /// is left, unless this is its last chance.
    fn scan_alone(
        &self,
        repository: &Repository,
        (some, left, is_last): (Range<usize>, &mut [bool], bool),
        job: &Job,
        counters: &mut ScanCounters,
        each: &mut dyn FnMut(usize, &OpenedSection) -> Result<()>,
    ) -> Result<()> {
        for ordinal in some.rev() {
            let (Some(left), Some(container)) =
                (left.get_mut(ordinal), self.containers.get(ordinal))
            else {
                continue;
            };
            if !*left {
                continue;
            }
            job.interrupt.check()?;
            let read = reader::read_section_told(repository, container.id);
            if !is_last && read.as_ref().is_err_and(|error| error.is_unreadable()) {
                continue;
            }
            *left = false;
            match read {
                Ok(opened) => {
                    counters.sections += 1;
                    self.refuse_if_lost(&opened.section)?;
                    each(ordinal, &opened)?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => counters.vanished += 1,
                Err(error) => return Err(error),
            }
            job.progress.add(1, 0);
        }
        Ok(())
    }

    fn scan_packs(
        &self,
        repository: &Repository,
        left: &mut [bool],
        job: &Job,
        counters: &mut ScanCounters,
        each: &mut dyn FnMut(usize, &OpenedSection) -> Result<()>,
    ) -> Result<()> {
        // What is wrong with a pack, or with all of them, costs speed only: their containers are
        // read one by one. Another collector may also have replaced it since it was listed.
        let mut older = self.containers.len();
        let mut proved = BTreeSet::new();
        for name in list::list_packs(repository).unwrap_or_default().iter().rev() {
            job.interrupt.check()?;
            // A pack is written after the containers that it describes.
            if let Ok(written) = layout::last_component(name).parse::<ContainerId>() {
                let newer = self.containers.partition_point(|container| container.id <= written);
                let some = (newer..older, &mut *left, false);
                self.scan_alone(repository, some, job, counters, each)?;
                older = older.min(newer);
            }
            let Ok(bytes) = repository.store().get(&Key::new(name.as_str())?) else {
                continue;
            };
            counters.packs += 1;
            let records = packs::newest_first(&bytes);
            let mut pack = Pack::of(repository, &bytes);
            let listed = records.iter().filter(|(id, _)| self.ordinal(*id).is_some());
            let _foreseen = pack.foresee(listed.map(|(id, _)| *id));
            for (id, sealed) in records {
                // Also one that was not listed: it may have been stored since.
                let own = match pack.compare(id, sealed)? {
                    Compared::Other(own) => Some(own),
                    Compared::Same | Compared::Unread | Compared::Gone => None,
                };
                let Some(ordinal) = self.ordinal(id).filter(|ordinal| left[*ordinal]) else {
                    continue;
                };
                let mut sealed = own.unwrap_or_else(|| sealed.to_vec());
                match reader::open_section_told(repository, id, &mut sealed) {
                    Ok(opened) => {
                        left[ordinal] = false;
                        self.refuse_if_lost(&opened.section)?;
                        each(ordinal, &opened)?;
                        job.progress.add(1, 0);
                    }
                    Err(error) if error.kind() == ErrorKind::KeysChanged => return Err(error),
                    Err(_) => {}
                }
            }
            proved.extend(pack.proved());
        }
        repository.remembered().inspect(|remembered| remembered.set_packs(proved));
        Ok(())
    }

    /// Notes the containers that something bad was found about.
    pub fn distrust(&mut self, quarantine: &BTreeSet<ContainerId>) {
        for container in &mut self.containers {
            container.sound &= !quarantine.contains(&container.id);
        }
    }

    /// Has all scans pass over containers whose section opens nowhere. They hold nothing, and
    /// nobody may condemn them.
    pub fn pass_over(&mut self, unreadable: &BTreeSet<ContainerId>) {
        for container in &mut self.containers {
            if unreadable.contains(&container.id) {
                (container.readable, container.sound, container.eligible) = (false, false, false);
            }
        }
    }

    /// Bars containers from being condemned.
    pub fn bar(&mut self, barred: impl Fn(&InventoryItem) -> bool) {
        for container in &mut self.containers {
            container.eligible &= !barred(container);
        }
    }

    /// The index's containers that are not in the store.
    #[must_use]
    pub fn missing(&self, covered: &[ContainerId]) -> BTreeSet<ContainerId> {
        covered.iter().copied().filter(|id| self.ordinal(*id).is_none()).collect()
    }

    /// The index's containers that hold nothing any more: they are missing, or their section opens
    /// nowhere.
    #[must_use]
    pub fn gone(&self, covered: &[ContainerId]) -> BTreeSet<ContainerId> {
        let found = |id: ContainerId| self.ordinal(id).and_then(|at| self.containers.get(at));
        let is_gone = |id: &ContainerId| found(*id).is_none_or(|container| !container.readable);
        covered.iter().copied().filter(is_gone).collect()
    }
}
