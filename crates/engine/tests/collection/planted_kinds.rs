//! A walk through the table of docs/PROTOCOL.md, section 11: an object of each kind that whoever
//! may append can put, and that lies as far as it can. Then the honest commands of others. Objects
//! of the other kinds take the right to collect, and the server refuses them.

use crate::basics::{Saved, everything};
use crate::canaries::is_loss;
use crate::planted::{
    plant_change, plant_pack, plant_run, remembering, save_root_of_nothing, seal,
};
use crate::steps::*;
use crate::world::content_of;
use onefold_crypto::{Purpose, Suite};
use onefold_engine::collection::collect;
use onefold_engine::container::frame::{CodedFrame, FrameChunk};
use onefold_engine::container::open::OpenContainer;
use onefold_engine::container::reader;
use onefold_engine::session::{SnapshotList, WriterSession, doubts};
use onefold_engine::{Repository, retention};
use onefold_format::codec::Codec;
use onefold_format::container::ChunkDescriptor;
use onefold_format::layout::{self, ChangeName, Kind};
use onefold_format::record::{self, Damage};
use onefold_store::Blobs;
use onefold_types::{CheckpointId, ContainerId, DoubtId, KeyId, MarkId, PlanId, RunId, SessionId};
use std::mem::discriminant;
use std::sync::Arc;

/// A kind that whoever may append can put, or `None` for one that takes more.
fn planted(kind: Kind) -> Option<fn(&Saved, &Arc<Repository>)> {
    match kind {
        Kind::Container => Some(plant_twins),
        Kind::MetadataPack => Some(|_, repository| plant_pack(repository, &|_| true)),
        Kind::IndexRun => Some(|_, repository| plant_run(repository)),
        Kind::Announced(_) => Some(|_, repository| {
            WriterSession::begin(repository).unwrap();
        }),
        Kind::Ready(_) => Some(plant_ready),
        Kind::Outcome(_) => Some(|_, repository| {
            save_root(repository, save_root_of_nothing(repository));
        }),
        Kind::Mark => Some(|saved, repository| {
            retention::forget(repository, &saved.ids(), "them").unwrap();
        }),
        Kind::Fate => Some(|saved, repository| {
            retention::forget(repository, &saved.ids(), "them").unwrap();
            retention::undelete(repository, &saved.ids()).unwrap();
        }),
        Kind::Change => Some(plant_changes),
        Kind::Damage => Some(plant_quarantine),
        Kind::Doubt => Some(|_, repository| doubts::raise(repository, "a lie").unwrap()),
        Kind::Configuration
        | Kind::Key
        | Kind::Generation
        | Kind::Tombstone
        | Kind::Final
        | Kind::Checkpoint
        | Kind::Collection => None,
    }
}

/// One name of each kind.
fn kinds() -> Vec<Kind> {
    let (session, key) = (SessionId([7; 16]), KeyId([7; 16]));
    let change = ChangeName { snapshot: session, number: 1 };
    let names = [
        layout::CONFIGURATION.to_owned(),
        layout::key_slot(key),
        layout::generation(2),
        layout::container(ContainerId([7; 16])),
        layout::metadata_pack(ContainerId([7; 16])),
        layout::index_run(RunId([7; 16])),
        layout::session_announced(session),
        layout::session_ready(session, 1),
        layout::outcome(session),
        layout::tombstone(session),
        layout::mark(session, MarkId([7; 16])),
        layout::fate(MarkId([7; 16])),
        layout::change(change),
        layout::finality(change),
        layout::checkpoint(CheckpointId([7; 16])),
        layout::damage(ContainerId([7; 16])),
        layout::doubt(DoubtId([7; 16])),
        layout::plan(PlanId([7; 16])),
    ];
    names.iter().map(|name| Kind::of(name).unwrap()).collect()
}

/// Containers with every chunk there is, as zeros.
fn plant_twins(_: &Saved, repository: &Arc<Repository>) {
    let context = forging(repository);
    let mut open = OpenContainer::new(Arc::clone(&context));
    for id in containers(repository) {
        let section = reader::read_section(repository, id).unwrap();
        let of = |chunk: &ChunkDescriptor| {
            let ChunkDescriptor { fingerprint, length, level, .. } = *chunk;
            FrameChunk { fingerprint, length, level }
        };
        let chunks: Vec<_> = section.chunks.iter().map(of).collect();
        let plain_length = chunks.iter().map(|chunk| chunk.length).sum();
        // What is carried is not looked into.
        open.carry(CodedFrame {
            bytes: vec![0; plain_length as usize],
            codec: Codec::Raw,
            plain_length,
            chunks,
            deltas: Vec::new(),
            sketches: Vec::new(),
        })
        .unwrap();
    }
    open.finish().unwrap();
    context.log.settle().unwrap();
}

/// A session that says to know every epoch that will be.
fn plant_ready(_: &Saved, repository: &Arc<Repository>) {
    let id = WriterSession::begin(repository).unwrap().id();
    for epoch in 0..20 {
        let sealed = seal(repository, Purpose::Session, &layout::ready_sealed_as(id, epoch), &[]);
        repository.store().put(&key(layout::session_ready(id, epoch)), &sealed).unwrap();
    }
}

/// Each snapshot is not held, and forgotten for good.
fn plant_changes(saved: &Saved, repository: &Arc<Repository>) {
    for snapshot in saved.ids() {
        let is_free = |name: &ChangeName| {
            let name = key(layout::change(*name));
            repository.store().size(&name).is_err()
        };
        let mut all = (1..).map(|number| ChangeName { snapshot, number });
        let name = all.find(is_free).unwrap();
        plant_change(repository, name);
    }
}

/// Each container is said to be damaged.
fn plant_quarantine(_: &Saved, repository: &Arc<Repository>) {
    for id in containers(repository) {
        let body = record::encode(&Damage { time_ns: 1, problem: "a lie".to_owned() }).unwrap();
        let sealed = seal(repository, Purpose::Damage, &id.0, &body);
        repository.store().put(&key(layout::damage(id)), &sealed).unwrap();
    }
}

/// Puts what of it whoever may append can put: new names of kinds that do not take the right to
/// collect.
fn plant(saved: &Saved, plants: fn(&Saved, &Arc<Repository>), seed: u64) -> Vec<String> {
    let theirs = saved.memory.clone_state();
    plants(saved, &reopen(&theirs, seed));
    let before = names(&saved.memory, "");
    let mut put = Vec::new();
    for name in names(&theirs, "") {
        let may = Kind::of(&name).is_some_and(|kind| !kind.takes_collecting());
        if may && !before.contains(&name) {
            saved.memory.put(&key(&*name), &theirs.get(&key(&*name)).unwrap()).unwrap();
            put.push(name);
        }
    }
    put
}

impl Saved {
    fn ids(&self) -> Vec<SessionId> {
        self.contents.keys().copied().collect()
    }

    fn assert_readable(&self, seed: u64, after: &str) {
        for (id, content) in &self.contents {
            let read = content_of(&reopen(&self.memory, seed), *id);
            let read = read.unwrap_or_else(|error| panic!("{after}: {id}: {error}"));
            assert!(read == *content, "{after}: {id} is something else");
        }
    }
}

/// Another machine saves, checks, collects everything that is dead, and reads: each snapshot is
/// what it was.
fn others_lose_nothing(mut saved: Saved, what: &str) {
    let state = tempfile::tempdir().unwrap();
    let hidden = SnapshotList::load(&reopen(&saved.memory, 30)).unwrap();
    let hidden = hidden.snapshots.iter().filter(|one| one.hidden).map(|one| one.id);
    // The list says so, and it is taken back.
    retention::undelete(&reopen(&saved.memory, 31), &hidden.collect::<Vec<_>>()).unwrap();
    saved.assert_readable(32, what);
    saved.repository = remembering(&saved.memory, 33, state.path());
    // Some of it is there, and some is new.
    saved.save(&[("a", 0, 60_000), ("new", 5000, 60_000), ("own", 1005, 150_000)]);
    let report = check_all(&reopen(&saved.memory, 34));
    assert!(report.damaged_paths.is_empty() && !is_loss(&report.problems), "{what}: {report:?}");
    for seed in [35, 36] {
        let repository = remembering(&saved.memory, seed, state.path());
        collect(&repository, &everything(), &job())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        saved.assert_readable(37, what);
    }
    saved.repository = remembering(&saved.memory, 38, state.path());
    saved.save(&[("a", 0, 60_000), ("newer", 6000, 60_000), ("own", 1005, 150_000)]);
    saved.assert_readable(39, what);
    let report = check_all(&reopen(&saved.memory, 40));
    assert!(report.damaged_paths.is_empty(), "{what}: {report:?}");
}

#[test]
fn r150_whatever_who_may_append_plants_others_lose_nothing() {
    for kind in kinds() {
        let Some(plants) = planted(kind) else {
            assert!(kind.takes_collecting(), "{kind:?}");
            continue;
        };
        assert!(!kind.takes_collecting(), "{kind:?}");
        let saved = Saved::versions(Suite::Aes256Gcm);
        let put = plant(&saved, plants, 900);
        let is_it = |name: &String| {
            Kind::of(name).is_some_and(|of| discriminant(&of) == discriminant(&kind))
        };
        assert!(put.iter().any(is_it), "{kind:?}: {put:?}");
        others_lose_nothing(saved, &format!("{kind:?}"));
    }
    let saved = Saved::versions(Suite::Aes256Gcm);
    for (seed, plants) in (900..).zip(kinds().into_iter().filter_map(planted)) {
        plant(&saved, plants, seed);
    }
    others_lose_nothing(saved, "all of them");
}
