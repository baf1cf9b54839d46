//! A writer's session (protocol, W1 to W4, W7 and W8).
//!
//! The type makes the order of the steps the only possible one: [`WriterSession::begin`] announces
//! and then reads the epoch; [`WriterSession::check_parent`] can only come after that; and
//! [`WriterSession::commit`] consumes the session, so that nothing can be added afterwards.
//!
//! A session never waits for anybody. If a collector fenced it, commit says so and the writer
//! starts over with a fresh session and looks everything up again.

use super::decided::DecidedName;
use super::epoch::{self, Epoch};
use super::outcome::read_outcome;
use super::tombstones::{self, SnapshotState};
use crate::environment::process_name;
use crate::repository::Repository;
use onefold_crypto::Purpose;
use onefold_format::layout;
use onefold_format::record::{self, Note, Outcome, SnapshotRecord};
use onefold_store::{Key, foresee};
use onefold_types::{ContainerId, ErrorKind, Result, SessionId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Directories of containers that are settled one by one: each takes those above it along, so more
/// are settled all at once.
const DIRECTORIES_APART_MAX: usize = 64;

/// A session that has been announced and knows its epoch.
pub struct WriterSession {
    repository: Arc<Repository>,
    id: SessionId,
    epoch: Epoch,
    /// The epochs that it declared itself ready for.
    ready: Vec<u64>,
}

/// How a commit went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// The snapshot is saved; it survives power loss.
    Saved(SessionId),
    /// A collector gave the session up; start over.
    Fenced,
}

impl WriterSession {
    /// Announces a fresh session (W1), then reads the newest epoch (W2).
    pub fn begin(repository: &Arc<Repository>) -> Result<Self> {
        let environment = repository.environment();
        let id = SessionId::random(&*environment.randomness);
        let note =
            Note { time_ns: environment.clock.now_ns(), by: process_name(), reason: String::new() };
        let bytes = record::encode(&note)?;
        let sealed = repository.vault().seal_record(
            Purpose::Session,
            &id.0,
            &bytes,
            &*environment.randomness,
        )?;
        repository.store().put_fresh(&Key::new(layout::session_announced(id))?, &sealed)?;
        let epoch = epoch::read_newest(repository)?;
        Ok(Self { repository: Arc::clone(repository), id, epoch, ready: Vec::new() })
    }

    /// The session's name.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Containers whose chunks must be stored again (W5).
    #[must_use]
    pub fn avoid(&self) -> &BTreeSet<ContainerId> {
        &self.epoch.avoid
    }

    /// Whether `parent` is committed and not forgotten, so that its subtrees may be reused (W3).
    /// What cannot be told, because its tombstone cannot be read, counts as forgotten (rule D1).
    pub fn check_parent(&self, parent: SessionId) -> Result<bool> {
        Ok(self.record_of_live(parent)?.is_some())
    }

    /// The record of a parent that may be relied upon.
    pub fn record_of_live(&self, parent: SessionId) -> Result<Option<Box<SnapshotRecord>>> {
        // Both are read after the epoch (W2 before W3), and neither says anything of the other.
        let asked = [
            DecidedName::outcome(parent).asked()?[..1].to_vec(),
            DecidedName::tombstone(parent).asked()?.to_vec(),
        ];
        let _foreseen = foresee(self.repository.store(), asked.concat());
        let committed = match read_outcome(&self.repository, parent) {
            Ok(Some(Outcome::Committed(record))) => Some(record),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::Damaged => None,
            Err(error) => return Err(error),
        };
        let is_kept = committed.is_some()
            && tombstones::state_of(&self.repository, parent)? == SnapshotState::Kept;
        Ok(committed.filter(|_| is_kept))
    }

    /// Declares that the session knows its epoch (W4).
    pub fn declare_ready(&mut self) -> Result<()> {
        let name = layout::ready_sealed_as(self.id, self.epoch.number);
        let randomness = &*self.repository.environment().randomness;
        let sealed =
            self.repository.vault().seal_record(Purpose::Session, &name, &[], randomness)?;
        let key = Key::new(layout::session_ready(self.id, self.epoch.number))?;
        self.repository.store().put_fresh(&key, &sealed)?;
        self.ready.push(self.epoch.number);
        Ok(())
    }

    /// Takes notice of a newer epoch (W8), so that no collector has to fence this session: reads
    /// what it condemns, checks the parent again, lets `leave` find every chunk that the session
    /// found in a condemned container again elsewhere and avoid these from now on, and declares
    /// the session ready. `false` if there is no newer epoch, or if that cannot be done; the
    /// session goes on as it was.
    pub fn renew(
        &mut self,
        parent: Option<SessionId>,
        leave: impl FnOnce(&BTreeSet<ContainerId>) -> Result<bool>,
    ) -> Result<bool> {
        if epoch::newest_number(&self.repository)? <= self.epoch.number {
            return Ok(false);
        }
        let newest = epoch::read_newest(&self.repository)?;
        let is_live = parent.map_or(Ok(true), |parent| self.check_parent(parent))?;
        if !is_live || !leave(&newest.avoid)? {
            return Ok(false);
        }
        self.epoch = newest;
        self.declare_ready()?;
        Ok(true)
    }

    /// Decides the outcome (W7). Everything the record refers to must be stored and indexed; it is
    /// made durable here, because hits may lie in containers and runs that other writers have not
    /// made durable yet.
    pub fn commit(self, record: SnapshotRecord) -> Result<Commit> {
        self.repository.store().settle(layout::CONTAINERS)?;
        self.decide(record)
    }

    /// The same for whoever knows in which containers of others chunks were found: these are made
    /// durable. What the session has stored is, and so is all that a parent refers to, whose own
    /// commit has seen to it.
    pub fn commit_relying_on(
        self,
        record: SnapshotRecord,
        found_in: &BTreeSet<ContainerId>,
    ) -> Result<Commit> {
        let directory = |id: &ContainerId| layout::container_directory(*id);
        let directories: BTreeSet<String> = found_in.iter().map(directory).collect();
        if directories.len() > DIRECTORIES_APART_MAX {
            return self.commit(record);
        }
        for directory in &directories {
            self.repository.store().settle(directory)?;
        }
        self.decide(record)
    }

    fn decide(mut self, record: SnapshotRecord) -> Result<Commit> {
        if self.ready.is_empty() {
            self.declare_ready()?;
        }
        self.repository.store().settle(layout::INDEX)?;
        let bytes = record::encode(&Outcome::Committed(Box::new(record)))?;
        let is_own = match DecidedName::outcome(self.id).decide(&self.repository, &bytes) {
            // The name is taken by something that does not open: this session has not saved it.
            Err(error) if error.kind() == ErrorKind::Damaged => false,
            decision => decision?.is_own,
        };
        self.clean_up();
        // A commit of the same session by another process, such as one that was restored from a
        // checkpoint of this one, saved what that process had seen.
        Ok(match is_own {
            true => Commit::Saved(self.id),
            false => Commit::Fenced,
        })
    }

    /// Gives the session up: decides that it was fenced, so that no collector has to.
    ///
    /// Best effort: a session that stays undecided is fenced by the next collector.
    pub fn abandon(self) {
        let decide = || {
            let bytes = record::encode(&Outcome::Fenced)?;
            DecidedName::outcome(self.id).decide(&self.repository, &bytes)
        };
        if decide().is_ok() {
            self.clean_up();
        }
    }

    /// Removes the session's objects; they are needed only while it is undecided.
    fn clean_up(&self) {
        let ready = self.ready.iter().map(|epoch| layout::session_ready(self.id, *epoch));
        for name in ready.chain([layout::session_announced(self.id)]) {
            // What stays behind is removed by the next collector: the outcome is decided.
            let _ = Key::new(name).and_then(|key| self.repository.store().delete(&key));
        }
    }
}
