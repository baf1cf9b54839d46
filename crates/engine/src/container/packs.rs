//! Metadata packs, compared with the containers that they describe.
//!
//! A holder of the password can seal any section under any container's name, so a pack proves
//! nothing (docs/PROTOCOL.md, section 11). A collection compares each record with the container's
//! own section. Where all records are true it remembers the hash of the pack
//! ([`crate::remembered`]), and does not compare it again. A collection of a program without a
//! memory believes every section that opens. Whoever makes the index anew compares always.
//!
//! Invariant: a record of a container that is gone neither proves nor disproves a pack. Names are
//! never used twice.

use crate::container::reader;
use crate::repository::Repository;
use onefold_format::metadata_pack;
use onefold_store::{Foresight, foresee};
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result};

/// A pack that is being compared.
pub struct Pack<'a> {
    repository: &'a Repository,
    hash: Fingerprint,
    was_proved: bool,
    is_true: bool,
}

/// How a record compares with its container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compared {
    /// The record is the container's own section.
    Same,
    /// The container has another section, this one.
    Other(Vec<u8>),
    /// The container's own section cannot be read; the record is all that tells of it.
    Unread,
    /// The container is gone.
    Gone,
}

impl<'a> Pack<'a> {
    /// A pack of these bytes.
    #[must_use]
    pub fn of(repository: &'a Repository, bytes: &[u8]) -> Self {
        let pack = Self::unknown(repository, bytes);
        Self { was_proved: pack.was_proved || repository.remembered().is_none(), ..pack }
    }

    /// A pack of these bytes, which also a program without a memory compares.
    #[must_use]
    pub fn unknown(repository: &'a Repository, bytes: &[u8]) -> Self {
        let hash = repository.fingerprinter().data(bytes);
        let remembered = repository.remembered();
        let was_proved = remembered.is_some_and(|remembered| remembered.is_proved(&hash));
        Self { repository, hash, was_proved, is_true: true }
    }

    /// Announces the tails of containers that comparing reads, in this order.
    pub fn foresee(&self, containers: impl Iterator<Item = ContainerId>) -> Foresight<'a> {
        let compared = containers.filter(|_| !self.was_proved);
        let asked = compared.filter_map(|id| reader::asked_tail(id).ok());
        foresee(self.repository.store(), asked.collect())
    }

    /// Compares a record, unless the pack was proved before.
    ///
    /// Errors: those of the device.
    pub fn compare(&mut self, id: ContainerId, sealed: &[u8]) -> Result<Compared> {
        if self.was_proved {
            return Ok(Compared::Same);
        }
        let compared = match reader::read_sealed_section(self.repository, id) {
            Ok(own) if own == sealed => Compared::Same,
            Ok(own) => Compared::Other(own),
            Err(error) if error.kind() == ErrorKind::NotFound => Compared::Gone,
            Err(error) if error.is_unreadable() => Compared::Unread,
            Err(error) => return Err(error),
        };
        self.is_true &= matches!(compared, Compared::Same | Compared::Gone);
        Ok(compared)
    }

    /// Whether every record that was compared is true.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.was_proved || self.is_true
    }

    /// The pack's hash, if it is proved.
    #[must_use]
    pub fn proved(&self) -> Option<Fingerprint> {
        self.is_proved().then_some(self.hash)
    }
}

/// The records of a pack, the last one first; none if it cannot be understood.
#[must_use]
pub fn newest_first(bytes: &[u8]) -> Vec<(ContainerId, &[u8])> {
    let mut records = metadata_pack::read(bytes).unwrap_or_default();
    records.reverse();
    records
}
