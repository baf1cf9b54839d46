//! Objects that lie, put by a client that has the password and may only append. Honest commands of
//! other clients lose nothing by them.

use crate::basics::{Saved, everything};
use crate::steps::*;
use crate::world::content_of;
use onefold_crypto::{Purpose, Suite};
use onefold_engine::check::repair_index;
use onefold_engine::collection::inventory::Inventory;
use onefold_engine::collection::{collect, settle};
use onefold_engine::container::reader;
use onefold_engine::index::run_list::list_runs;
use onefold_engine::index::run_writer;
use onefold_engine::ingest;
use onefold_engine::job::Job;
use onefold_engine::remembered::{MOUNT_POINTS_MAX, PACKS_MAX, SNAPSHOTS_MAX};
use onefold_engine::session::WriterSession;
use onefold_engine::session::announced;
use onefold_engine::{Repository, retention, session};
use onefold_format::container::{METADATA_PART, MetadataSection};
use onefold_format::layout::{self, ChangeName, Kind};
use onefold_format::metadata_pack;
use onefold_format::record::{self, Change, Checkpoint, KnownSnapshot};
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore, Store};
use onefold_types::{CheckpointId, ContainerId, ErrorKind, Fingerprint, SessionId};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Clocks of seeds from here on are later than any time of a file, or files would be read again.
const LATER: u64 = 1_000_000;

pub fn seal(repository: &Repository, purpose: Purpose, name: &[u8; 16], body: &[u8]) -> Vec<u8> {
    let randomness = &*repository.environment().randomness;
    repository.vault().seal_record(purpose, name, body, randomness).unwrap()
}

/// Opens the store for a machine that has a memory of it.
pub fn remembering(memory: &MemoryStore, seed: u64, directory: &Path) -> Arc<Repository> {
    let repository = Repository::clone(&reopen(memory, seed));
    Arc::new(repository.remembering_in(Some(directory.to_owned())))
}

#[test]
fn r151_a_session_is_ready_only_for_what_it_has_declared_itself() {
    let (memory, repository) = create();
    let planted = WriterSession::begin(&repository).unwrap();
    let mut honest = WriterSession::begin(&repository).unwrap();
    honest.declare_ready().unwrap();
    let of = |session: &WriterSession, epoch| key(layout::session_ready(session.id(), epoch));
    let own = memory.get(&of(&honest, 0)).unwrap();
    let announced = memory.get(&key(layout::session_announced(planted.id()))).unwrap();
    let id = planted.id();
    let later = seal(&repository, Purpose::Session, &layout::ready_sealed_as(id, 9), &[]);
    // Empty, another session's, the announcement, and one for an epoch that nobody has decided.
    for (epoch, body) in [(0, &announced), (1, &Vec::new()), (2, &own), (9, &later)] {
        memory.put(&of(&planted, epoch), body).unwrap();
    }
    let settled = settle::settle(&repository, 0, Duration::ZERO, &job()).unwrap();
    assert_eq!((settled.old, settled.fenced), (1, 1), "the other one is ready");
    assert_eq!(announced::undecided(&repository).unwrap().len(), 1);
}

/// Puts a checkpoint that repeats all others.
fn plant_checkpoint(repository: &Repository, checkpoint: Checkpoint) {
    let replaces = names(repository.store(), layout::CHECKPOINTS);
    let replaces = replaces.iter().filter_map(|name| layout::last_component(name).parse().ok());
    let checkpoint = Checkpoint { replaces: replaces.collect(), ..checkpoint };
    let id = CheckpointId([0xff; 16]);
    let body = record::encode(&checkpoint).unwrap();
    let sealed = seal(repository, Purpose::Checkpoint, &id.0, &body);
    repository.store().put(&key(layout::checkpoint(id)), &sealed).unwrap();
}

#[test]
fn r152_a_checkpoint_that_lies_has_no_collection_delete_what_is_live() {
    let others = Saved::versions(Suite::Aes256Gcm);
    let list = session::SnapshotList::load(&others.repository).unwrap();
    let empty = save_root_of_nothing(&others.repository);
    let fenced: Vec<SessionId> = others.contents.keys().copied().collect();
    let committed = list.snapshots.iter().map(|one| {
        let mut snapshot = one.record.clone();
        snapshot.root = empty;
        KnownSnapshot { session: one.id, snapshot }
    });
    let committed: Vec<KnownSnapshot> = committed.collect();
    for checkpoint in [
        Checkpoint { fenced, ..Checkpoint::default() },
        Checkpoint { committed, ..Checkpoint::default() },
    ] {
        let memory = others.memory.clone_state();
        let repository = reopen(&memory, 5);
        plant_checkpoint(&repository, checkpoint);
        collect(&repository, &everything(), &job()).unwrap();
        // Whoever runs the store takes away what was planted.
        memory.remove(&key(layout::checkpoint(CheckpointId([0xff; 16]))));
        let whole = Saved { memory, repository, contents: others.contents.clone() };
        whole.assert_whole();
    }
}

/// The root of an empty tree.
pub fn save_root_of_nothing(repository: &Arc<Repository>) -> onefold_format::node::Reference {
    put_with(repository, |stream| put_directory(repository, stream, &[])).reference
}

/// Puts a pack that says of all containers but those with nodes that they hold something else.
pub fn plant_pack(repository: &Repository, is_meant: &dyn Fn(ContainerId) -> bool) {
    let mut pack = metadata_pack::begin();
    for id in containers(repository).into_iter().filter(|id| is_meant(*id)) {
        let section = reader::read_section(repository, id).unwrap();
        if section.chunks.iter().any(|chunk| chunk.level.is_node()) {
            continue;
        }
        let chunks = section.chunks.iter().take(1).map(|chunk| {
            let mut chunk = *chunk;
            chunk.fingerprint = Fingerprint([0xee; 32]);
            chunk
        });
        let mut lie = MetadataSection { chunks: chunks.collect(), ..section.clone() };
        lie.deltas.clear();
        let mut sealed = lie.encode();
        let sealer = repository.vault().object(Purpose::Container, &id.0).unwrap();
        sealer.seal(METADATA_PART, &mut sealed, 0).unwrap();
        metadata_pack::append(&mut pack, id, &sealed);
    }
    let name = layout::metadata_pack(ContainerId([0xff; 16]));
    repository.store().put(&key(name), &pack.into_bytes()).unwrap();
}

#[test]
fn r153_a_pack_that_lies_has_no_collection_delete_what_is_live() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    plant_pack(&saved.repository, &|_| true);
    let state = tempfile::tempdir().unwrap();
    let repository = remembering(&saved.memory, 6, state.path());
    let before = containers(&repository);
    collect(&repository, &everything(), &job()).unwrap();
    assert!(containers(&repository).len() < before.len(), "what is dead goes");
    saved.assert_whole();
    // What is condemned is looked at itself, also by who believes packs.
    let saved = Saved::versions(Suite::Aes256Gcm);
    plant_pack(&saved.repository, &|_| true);
    collect(&saved.repository, &everything(), &job()).unwrap();
    saved.assert_whole();
}

#[test]
fn r153_packs_are_compared_once_with_their_containers() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let state = tempfile::tempdir().unwrap();
    let read = |seed| {
        let counting = Arc::new(onefold_store::layers::Counting::new(saved.memory.clone()));
        let repository = open_on(Arc::clone(&counting) as Arc<dyn Store>, seed).unwrap();
        let directory = Some(state.path().to_owned());
        let repository = Arc::new(Repository::clone(&repository).remembering_in(directory));
        counting.take();
        let options =
            onefold_engine::collection::CollectOptions { mark_only: true, ..everything() };
        collect(&repository, &options, &job()).unwrap();
        counting.take().of(layout::CONTAINERS, onefold_store::layers::Operation::GetTail).calls
    };
    let (first, second) = (read(7), read(8));
    assert!(first >= containers(&saved.repository).len() as u64, "{first}");
    assert!(second < first / 2, "{first}, then {second}");
}

/// Puts a change that says that its snapshot is not held, and forgotten for good.
pub fn plant_change(repository: &Repository, name: ChangeName) {
    let change = Change {
        time_ns: 1,
        by: "them".to_owned(),
        hold: false,
        tags: Vec::new(),
        description: String::new(),
        forgotten: true,
    };
    let body = record::encode(&change).unwrap();
    let sealed = seal(repository, Purpose::Change, &name.sealed_as(), &body);
    repository.store().put(&key(layout::change(name)), &sealed).unwrap();
}

#[test]
fn r154_a_change_that_says_forgotten_is_final_only_by_who_may_collect() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let ids = [0, 1, 2].map(|seed| saved.save(&[("a", seed, 90_000)]));
    let [planted, held, _] = ids;
    retention::change(&saved.repository, &[held], "me", &|it| it.hold = true).unwrap();
    for (snapshot, number) in [(planted, 1), (held, 2)] {
        let name = ChangeName { snapshot, number };
        plant_change(&saved.repository, name);
        assert!(Kind::of(&layout::finality(name)).unwrap().takes_collecting());
    }
    let repository = reopen(&saved.memory, 9);
    collect(&repository, &everything(), &job()).unwrap();
    saved.assert_whole();
    // Both go on as any other.
    retention::change(&repository, &[planted], "me", &|it| it.hold = true).unwrap();
    let error = retention::forget_final(&repository, &[planted], "me").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    saved.repository = repository;
    saved.forget(&[held]);
    collect(&saved.repository, &everything(), &job()).unwrap();
    saved.assert_whole();
    assert!(names(&saved.memory, layout::FINALS).is_empty(), "they go with the changes");
}

#[test]
fn r155_only_what_this_machine_has_saved_spares_reading() {
    let (memory, first) = create();
    let (source, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("doc"), random_bytes(1, 100_000)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let run = |repository: &Arc<Repository>| {
        ingest::backup(repository, paths(source.path()), &backup_options(), &Job::unattended().0)
            .unwrap()
    };
    let unknown = run(&first).snapshot.unwrap();
    let own = remembering(&memory, LATER + 11, state.path());
    let report = run(&own);
    assert_eq!((report.parent, report.summary.files_unchanged), (None, 0), "{unknown}");
    let saved = report.snapshot;
    // Another process of the machine remembers it; what others save meanwhile is passed over.
    run(&reopen(&memory, LATER + 12));
    let report = run(&remembering(&memory, LATER + 13, state.path()));
    assert_eq!((report.parent, report.summary.files_unchanged), (saved, 1));
    // A file that somebody else has put there is none.
    let file = fs::read_dir(state.path()).unwrap().next().unwrap().unwrap().path();
    for foreign in [&b""[..], b"junk", &[0xff; 1 << 20]] {
        fs::write(&file, foreign).unwrap();
        assert_eq!(run(&remembering(&memory, LATER + 14, state.path())).parent, None);
    }
}

#[test]
fn r149_junk_where_a_session_ends_has_it_start_again() {
    let (memory, repository) = create();
    let session = WriterSession::begin(&repository).unwrap();
    let root = put_tree(&repository, &session, &[file("f", 1, 10_000)]);
    memory.put(&key(layout::outcome(session.id())), b"junk").unwrap();
    let record = record_of(&repository, root.reference);
    assert_eq!(session.commit(record).unwrap(), session::Commit::Fenced);
}

#[test]
fn r149_junk_among_containers_is_no_lost_snapshot() {
    let (memory, repository) = create();
    let id = ContainerId([0xaa; 16]);
    memory.put(&key(layout::container(id)), b"junk of 18 bytes..").unwrap();
    save(&repository, &[file("f", 1, 10_000)]);
    let list = session::SnapshotList::load(&repository).unwrap();
    assert!(list.problems.is_empty(), "{:?}", list.problems);
    collect(&repository, &everything(), &job()).unwrap();
}

#[test]
fn r150_each_object_of_a_store_has_a_name_of_the_layout() {
    let mut saved = Saved::versions(Suite::Aes256Gcm);
    let id = saved.save(&[("a", 1, 10_000)]);
    retention::forget(&saved.repository, &[id], "me").unwrap();
    retention::undelete(&saved.repository, &[id]).unwrap();
    retention::change(&saved.repository, &[id], "me", &|it| it.hold = true).unwrap();
    collect(&saved.repository, &everything(), &job()).unwrap();
    saved
        .repository
        .add_key(b"other", crate::steps::init_options(Suite::Aes256Gcm).kdf_cost, "")
        .unwrap();
    drop(WriterSession::begin(&saved.repository).unwrap());
    let all = names(&saved.memory, "");
    assert!(all.len() > 40);
    for name in all {
        assert!(Kind::of(&name).is_some(), "{name}");
    }
}

/// `SNAPSHOTS_MAX`, `PACKS_MAX` and `MOUNT_POINTS_MAX`, each crossed by one: what is not remembered
/// is looked at again.
#[test]
fn r153_of_more_than_is_remembered_the_rest_is_looked_at_again() {
    let (memory, _) = create();
    let state = tempfile::tempdir().unwrap();
    let numbered = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let session = |number: usize| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&numbered(number));
        SessionId(id)
    };
    let hash = |number: usize| {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&numbered(number));
        Fingerprint(hash)
    };
    let repository = remembering(&memory, 21, state.path());
    let own = repository.remembered().unwrap();
    (0..=SNAPSHOTS_MAX).for_each(|number| own.note_saved(session(number)));
    own.set_packs((0..=PACKS_MAX).map(hash).collect());
    let mounted = (0..=MOUNT_POINTS_MAX).map(hash).collect();
    own.note_mount_points(&mounted, &BTreeSet::new());
    let again = remembering(&memory, 22, state.path());
    let own = again.remembered().unwrap();
    assert!(!own.has_saved(session(0)) && own.has_saved(session(1)));
    assert!(own.has_saved(session(SNAPSHOTS_MAX)));
    assert_eq!((0..=PACKS_MAX).filter(|number| own.is_proved(&hash(*number))).count(), PACKS_MAX);
    let known = mounted.iter().filter(|source| own.was_mount_point(source));
    assert_eq!(known.count(), MOUNT_POINTS_MAX);
}

#[test]
fn r153_a_pack_is_proved_only_if_it_tells_the_truth_of_what_was_not_listed_yet() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    let state = tempfile::tempdir().unwrap();
    let listed = Inventory::take(&saved.repository, &[]).unwrap();
    // A container is stored, and a pack lies about it alone, after containers were listed.
    let before = containers(&saved.repository);
    save(&saved.repository, &[file("later", 77, 300_000)]);
    plant_pack(&saved.repository, &|id| !before.contains(&id));
    let repository = remembering(&saved.memory, 25, state.path());
    listed.scan(&repository, &|_| true, &job(), &mut |_, _| Ok(())).unwrap();
    let name = key(layout::metadata_pack(ContainerId([0xff; 16])));
    let hash = repository.fingerprinter().data(&saved.memory.get(&name).unwrap());
    assert!(!repository.remembered().unwrap().is_proved(&hash));
}

/// Puts a run that covers all containers, takes over from all runs, and names nothing.
pub fn plant_run(repository: &Repository) {
    let covered: BTreeSet<_> = containers(repository).into_iter().collect();
    let replaced = list_runs(repository).unwrap();
    let nothing = &mut || Ok(None);
    run_writer::write_run(repository, None, covered.into_iter().collect(), replaced, nothing)
        .unwrap();
}

#[test]
fn r157_a_run_that_covers_all_and_names_nothing_loses_nothing() {
    // Beside honest runs; after them, where who may replace objects has taken them away; and where
    // nothing can be written.
    for (takes_away, is_full) in [(false, false), (true, false), (false, true)] {
        let saved = Saved::versions(Suite::Aes256Gcm);
        let honest = list_runs(&saved.repository).unwrap();
        plant_run(&saved.repository);
        if takes_away {
            honest.iter().for_each(|id| assert!(saved.memory.remove(&key(layout::index_run(*id)))));
        }
        let report = check_all(&reopen(&saved.memory, 10));
        let wrong = |problem: &String| problem.contains("index run");
        assert!(report.problems.iter().all(wrong) && report.problems.len() == 1, "{report:?}");
        let full = Faulty::scripted(saved.memory.clone(), |call| match call.operation {
            Operation::Put => Fault::Before(ErrorKind::NoSpace),
            _ => Fault::None,
        });
        let repository = match is_full {
            true => open_on(Arc::new(full), 11).unwrap(),
            false => reopen(&saved.memory, 11),
        };
        for (id, content) in &saved.contents {
            assert_eq!(content_of(&repository, *id).unwrap(), *content);
        }
        collect(&reopen(&saved.memory, 12), &everything(), &job()).unwrap();
        repair_index(&reopen(&saved.memory, 13), None, &job()).unwrap();
        saved.assert_whole();
    }
}

#[test]
fn r157_an_index_is_made_anew_out_of_what_containers_say_themselves() {
    let saved = Saved::versions(Suite::Aes256Gcm);
    plant_pack(&saved.repository, &|_| true);
    repair_index(&reopen(&saved.memory, 14), None, &job()).unwrap();
    for (id, content) in &saved.contents {
        assert_eq!(content_of(&reopen(&saved.memory, 15), *id).unwrap(), *content);
    }
    let runs = check_all(&reopen(&saved.memory, 16)).problems;
    assert!(!runs.iter().any(|problem| problem.contains("index run")), "{runs:?}");
}
