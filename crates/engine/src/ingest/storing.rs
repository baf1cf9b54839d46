//! A session that stores chunks and commits what refers to them, whatever that is (protocol, W1 to
//! W7). What is made of the chunks, a snapshot, is not known here.
//!
//! Order, held by types: [`Announced`] (announce, read the epoch; the owner checks what it builds
//! on), [`Ready`] (declare ready, then see what may be relied on), [`StoringSession`] (chunks; all
//! of it durable and indexed; the decision).
//!
//! A dry run announces and decides nothing, and is otherwise the same. A session that fails leaves
//! what is durable behind, indexed, so that the next one finds it; it commits nothing.

use super::renewal;
use crate::chunk_store::{ChunkStore, ChunkStoreOptions, StreamWriter};
use crate::container::list;
use crate::index::{ChunkIndex, FingerprintIndex, IndexMode, JointIndex, merge, rebuild};
use crate::job::Job;
use crate::placement::{PlacementRecorder, RecordedPlacement};
use crate::repository::Repository;
use crate::session::Snapshot;
use crate::session::doubts::Doubts;
use crate::session::outcome::read_outcome;
use crate::session::{Commit, WriterSession, epoch, quarantine};
use onefold_format::index_run::IndexKind;
use onefold_format::layout;
use onefold_format::record::{Outcome, SnapshotRecord};
use onefold_store::{Asked, foresee};
use onefold_types::{ContainerId, Error, Result, SessionId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// A session that has read its epoch (W1, W2).
pub struct Announced {
    repository: Arc<Repository>,
    /// `None` in a dry run.
    session: Option<WriterSession>,
    avoid: BTreeSet<ContainerId>,
}

impl Announced {
    /// Announces a session; in a dry run only reads what is condemned.
    pub fn begin(repository: &Arc<Repository>, dry_run: bool) -> Result<Self> {
        let session = match dry_run {
            true => None,
            false => Some(WriterSession::begin(repository)?),
        };
        let avoid = match &session {
            Some(session) => session.avoid().clone(),
            None => epoch::condemned(repository)?,
        };
        Ok(Self { repository: Arc::clone(repository), session, avoid })
    }

    /// Whether a snapshot may be built upon (W3): its record says what the list says, which may be
    /// out of a checkpoint that somebody else has put.
    pub fn is_live(&self, snapshot: &Snapshot) -> Result<bool> {
        let Some(session) = &self.session else { return Ok(true) };
        let record = session.record_of_live(snapshot.id)?;
        Ok(record.is_some_and(|record| record.root == snapshot.record.root))
    }

    /// Declares the session ready (W4) and opens the index; what a crashed session left unindexed
    /// is replayed first (S1.14).
    pub fn ready(mut self, mode: IndexMode, kind: Option<IndexKind>, job: &Job) -> Result<Ready> {
        let repository = &self.repository;
        // What the index says is a hint, whenever it was listed.
        let runs = foresee(repository.store(), vec![Asked::Names(layout::INDEX.to_owned())]);
        if let Some(session) = &mut self.session {
            session.declare_ready()?;
        }
        let index = match mode {
            IndexMode::Exact => FingerprintIndex::shared(repository)?,
            IndexMode::Sampled => Arc::new(FingerprintIndex::open_with(repository, mode)?),
        };
        drop(runs);
        // After the index was opened: what it covers was there before, or is missing.
        let asked = [layout::DAMAGE, layout::DOUBTS].map(|name| Asked::Names(name.to_owned()));
        let foreseen = foresee(repository.store(), asked.to_vec());
        let present = list::container_names(repository)?;
        if self.session.is_some() {
            let (quiet, _) = Job::unattended();
            let quiet = Job { interrupt: job.interrupt.clone(), ..quiet };
            let kind = kind.unwrap_or_else(|| index.kind());
            merge::remove_superseded(repository, &index)?;
            let replayed = rebuild::replay_containers(repository, &index, &present, kind, &quiet)?;
            if replayed.containers > 0 {
                index.refresh(repository)?;
            }
        }
        let condemned = self.avoid.len();
        self.avoid.extend(list::difference(&index.covered(), &present));
        self.avoid.extend(quarantine::load_ids(repository)?);
        // After the index was opened, which raises a doubt if it had to be made anew.
        let doubts = Doubts::load(repository)?;
        drop(foreseen);
        let has_losses = self.avoid.len() > condemned;
        let present: Arc<[ContainerId]> = present.into();
        let asked = match repository.common_index() {
            Some(common) if mode == IndexMode::Exact => {
                let (runs, common) = (Arc::clone(&index), Arc::clone(common));
                let (present, session) = (Arc::clone(&present), self.session.as_ref());
                let session = session.map(|session| (session.id(), job.interrupt.clone()));
                Arc::new(JointIndex::new(repository, runs, common, present, session))
                    as Arc<dyn ChunkIndex>
            }
            _ => Arc::clone(&index) as Arc<dyn ChunkIndex>,
        };
        Ok(Ready { announced: self, index, asked, present, doubts, has_losses })
    }
}

/// A session that is ready, and what it may rely on.
pub struct Ready {
    announced: Announced,
    /// The index of the store.
    pub index: Arc<FingerprintIndex>,
    /// Where chunks are looked up: that index, or what of it the session wants to know.
    pub asked: Arc<dyn ChunkIndex>,
    /// All containers in the store.
    pub present: Arc<[ContainerId]>,
    /// Known before the first chunk was looked up.
    pub doubts: Doubts,
    /// Whether containers are gone or damaged; they are avoided.
    pub has_losses: bool,
}

impl Ready {
    /// The session's name, if there is one.
    pub fn id(&self) -> Option<SessionId> {
        self.announced.session.as_ref().map(WriterSession::id)
    }

    /// Opens the chunk store. The session builds on `parent`.
    pub fn store(
        self,
        parent: Option<SessionId>,
        mut options: ChunkStoreOptions,
    ) -> Result<StoringSession> {
        // Or whoever writes a run would have to look for the kind of those that there are.
        options.index_kind.get_or_insert(self.index.kind());
        let Announced { repository, session, avoid } = self.announced;
        let store = ChunkStore::open(&repository, self.asked, avoid, options)?;
        store.has_seen(&self.present);
        Ok(StoringSession { repository, session: session.map(Mutex::new), parent, store })
    }
}

/// A session that stores chunks.
pub struct StoringSession {
    repository: Arc<Repository>,
    /// `None` in a dry run.
    session: Option<Mutex<WriterSession>>,
    parent: Option<SessionId>,
    /// Where the chunks go.
    pub store: Arc<ChunkStore>,
}

impl StoringSession {
    /// Runs `work` over so many streams, then makes everything durable (W6). What is durable is
    /// indexed even if the work failed, so that the next session finds it.
    pub fn run<T>(
        &self,
        streams: usize,
        recorder: Option<PlacementRecorder>,
        work: impl FnOnce(&mut [StreamWriter]) -> Result<T>,
    ) -> Result<(T, RecordedPlacement)> {
        let store = &self.store;
        let mut writers: Vec<StreamWriter> =
            (0..streams).map(|_| store.stream_of(streams)).collect::<Result<_>>()?;
        if let ([only], Some(recorder)) = (writers.as_mut_slice(), recorder) {
            only.record_placement(recorder);
        }
        let ticker = &*self.repository.environment().ticker;
        renewal::while_renewing(ticker, self.session.as_ref(), self.parent, store, || {
            let done = work(&mut writers);
            let mut placement = RecordedPlacement::default();
            let mut stored = writers.into_iter().try_for_each(|writer| {
                placement = writer.finish()?;
                Ok(())
            });
            if self.session.is_some() {
                stored = stored.and_then(|()| store.finish().map(|_| ()));
            }
            let done = done?;
            stored?;
            store.expect_whole()?;
            Ok((done, placement))
        })
    }

    /// Whether something is missing because a collector fenced the session and then deleted what
    /// it had stored: its owner starts over then, as if it had learnt of it at the commit.
    pub fn was_fenced<T>(&self, done: &Result<T>) -> bool {
        let is_missing = done.as_ref().is_err_and(Error::is_lost);
        let fenced = |session: &Mutex<WriterSession>| {
            let id = session.lock().unwrap_or_else(PoisonError::into_inner).id();
            matches!(read_outcome(&self.repository, id), Ok(Some(Outcome::Fenced)))
        };
        is_missing && self.session.as_ref().is_some_and(fenced)
    }

    /// Ends a session that commits nothing.
    pub fn abandon(self) {
        if let Some(session) = self.session.and_then(|session| session.into_inner().ok()) {
            session.abandon();
        }
    }

    /// The decision (W7); `None` in a dry run.
    pub fn commit(self, record: impl FnOnce() -> SnapshotRecord) -> Result<Option<Commit>> {
        let Some(session) = self.session else {
            return Ok(None);
        };
        let session = session.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.store.cover_found()?;
        session.commit_relying_on(record(), &self.store.found_in()).map(Some)
    }
}
