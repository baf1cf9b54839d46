//! A small store, the actors that work on it, and what must hold when they have ended.

use crate::schedule::{Gated, Lie, Schedule, Segment};
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::collection::{
    CollectOptions, CollectReport, MarkAlgorithm, SpaceGoal, collect,
};
use onefold_engine::ingest::{BackupOptions, ParentChoice, Selection, Source, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::patterns::Patterns;
use onefold_engine::restore::DumpOptions;
use onefold_engine::session::{SnapshotList, snapshots};
use onefold_engine::{InitOptions, Repository, find, restore, retention};
use onefold_format::node::EntryKind;
use onefold_policy::accelerated_filter::{FilterConfiguration, FilterOrder};
use onefold_store::MemoryStore;
use onefold_store::layers::Operation;
use onefold_types::{ErrorKind, Result, SessionId};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Clocks of seeds from here on are later than any time of a file: files that have changed since
/// a backup began would be read again, and nothing would ever be reused.
const LATER: u64 = 1_000_000;

/// The files of a snapshot.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// What an actor does, in a process of its own.
pub type Task = Arc<dyn Fn(&World, &Arc<Repository>) -> Result<()> + Send + Sync>;

/// One actor of a run.
pub struct Actor {
    pub task: Task,
    /// Makes what its store lies about.
    pub lie: Option<Box<dyn Fn() -> Lie + Send + Sync>>,
    /// Its clock and its names; its place in the list of actors if it is zero.
    pub seed: u64,
}

impl Actor {
    pub fn new(task: Task) -> Self {
        Self { task, lie: None, seed: 0 }
    }

    pub fn lying(self, lie: impl Fn() -> Lie + Send + Sync + 'static) -> Self {
        Self { lie: Some(Box::new(lie)), ..self }
    }

    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// How a run went.
pub struct Run {
    pub store: MemoryStore,
    pub schedule: Arc<Schedule>,
    /// What must not be, or must not be said.
    pub problems: Vec<String>,
}

/// A store with some history, and the sources on disk that backups read.
pub struct World {
    base: MemoryStore,
    root: tempfile::TempDir,
    contents: Mutex<BTreeMap<String, Content>>,
}

pub fn collect_options() -> CollectOptions {
    CollectOptions {
        goal: SpaceGoal::Everything,
        algorithm: MarkAlgorithm::Exact,
        patience: Duration::ZERO,
        threads: 1,
        ..CollectOptions::default()
    }
}

pub fn backup_options(description: &str, parent: ParentChoice) -> BackupOptions {
    BackupOptions {
        host: "host".into(),
        user: "user".into(),
        tags: Vec::new(),
        description: description.into(),
        hold: false,
        time_ns: None,
        parent,
        compression: None,
        threads: 1,
        streams: 1,
        dry_run: false,
        skip_if_unchanged: false,
        filter: FilterConfiguration::ALL[3],
        lookup: LookupChoice::Eager(FilterOrder::CacheFirst),
        device_costs: None,
        index_kind: None,
        rewrite: onefold_policy::rewrite::RewriteChoice::None,
        program: "test".into(),
    }
}

pub fn paths(root: &Path) -> Source {
    let selection = Box::new(Selection {
        excludes: Patterns::none(),
        one_file_system: false,
        exclude_larger_than_bytes: None,
        exclude_caches: false,
        exclude_if_present: Vec::new(),
    });
    Source::Paths { paths: vec![root.to_path_buf()], selection }
}

/// A store that starts empty, with small containers.
pub fn create_in(memory: &MemoryStore, suite: Suite) -> Arc<Repository> {
    let options = InitOptions { container_size_bytes: 128 * 1024, ..init_options(suite) };
    let store = Arc::new(memory.clone());
    Repository::create(store, &options, Some(PASSWORD), environment(1), memory_plan())
        .map(Arc::new)
        .unwrap()
}

impl World {
    pub fn new() -> Self {
        let base = MemoryStore::new();
        create_in(&base, Suite::None);
        let memory = Path::new("/dev/shm");
        let root = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        Self { base, root, contents: Mutex::default() }
    }

    /// The source of this name: a file for each letter, of which equal ones have equal bytes.
    /// What a source holds may be changed until the first run.
    pub fn source(&self, name: &str, files: &str) {
        let directory = self.path(name);
        fs::create_dir_all(&directory).unwrap();
        for file in fs::read_dir(&directory).unwrap() {
            let path = file.unwrap().path();
            let letter = path.file_name().unwrap().to_string_lossy().into_owned();
            if !files.contains(&letter) {
                fs::remove_file(path).unwrap();
            }
        }
        for letter in files.chars() {
            let path = directory.join(letter.to_string());
            if !path.exists() {
                fs::write(path, random_bytes(letter as u64, 20_000)).unwrap();
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn content_of(files: &str) -> Content {
        let file = |letter: char| (vec![letter as u8], random_bytes(letter as u64, 20_000));
        files.chars().map(file).collect()
    }

    /// A backup before the first run.
    pub fn save(&self, name: &str, files: &str, seed: u64) -> SessionId {
        self.source(name, files);
        // Changes are noticed by times, which must not be too new to be trusted.
        std::thread::sleep(Duration::from_millis(40));
        let repository = reopen(&self.base, LATER + seed);
        let options = backup_options(&self.describe(files), ParentChoice::Newest);
        backup(&repository, paths(&self.path(name)), &options, &job()).unwrap().snapshot.unwrap()
    }

    pub fn forget(&self, id: SessionId) {
        retention::forget_final(&reopen(&self.base, LATER + 900), &[id], "me").unwrap();
    }

    /// Remembers what a snapshot with this description holds.
    pub fn describe(&self, files: &str) -> String {
        let mut contents = self.contents.lock().unwrap();
        contents.entry(files.to_owned()).or_insert_with(|| Self::content_of(files));
        files.to_owned()
    }

    pub fn base(&self) -> &MemoryStore {
        &self.base
    }

    /// Runs the actors by the schedule and looks what they have left.
    pub fn run(&self, actors: &[Actor], segments: &[Segment], splits_lists: bool) -> Run {
        let store = self.base.clone_state();
        let schedule = Schedule::new(actors.len(), segments);
        let problems = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (number, actor) in actors.iter().enumerate() {
                let (schedule, problems, store) = (&schedule, &problems, store.clone());
                scope.spawn(move || {
                    let ended = Ending { schedule, number };
                    let gated = Gated {
                        store,
                        actor: number,
                        schedule: Arc::clone(schedule),
                        splits_lists,
                        lie: actor.lie.as_ref().map(|make| make()),
                    };
                    let seed = if actor.seed == 0 { 1000 + number as u64 } else { actor.seed };
                    let seed = LATER + seed;
                    let result = schedule
                        .step(number, Operation::Size, "start")
                        .and_then(|()| open_on(Arc::new(gated), seed))
                        .and_then(|repository| (actor.task)(self, &repository));
                    if let Err(error) = result
                        && !schedule.has_crashed(number)
                        && error.kind() != ErrorKind::Fenced
                    {
                        problems.lock().unwrap().push(format!("actor {number}: {error}"));
                    }
                    drop(ended);
                });
            }
        });
        let mut problems = problems.into_inner().unwrap();
        problems.extend(schedule.broken());
        Run { store, schedule, problems }
    }

    /// Everything that must hold after a run.
    pub fn verify(&self, run: &mut Run) {
        self.verify_whole(&run.store, "after the run", &mut run.problems);
        if !run.problems.is_empty() {
            return;
        }
        // A collector alone finishes and leaves no garbage.
        for seed in [5000, 5001] {
            match collect(&reopen(&run.store, LATER + seed), &collect_options(), &job()) {
                Ok(_) => {}
                Err(error) => run.problems.push(format!("the last collector: {error}")),
            }
        }
        self.verify_whole(&run.store, "after the last collection", &mut run.problems);
        match dry_run(&reopen(&run.store, LATER + 5002)) {
            Ok(report) if report.deleted_containers == 0 && report.taken_over.is_none() => {}
            other => run.problems.push(format!("garbage is left: {other:?}")),
        }
        let repository = reopen(&run.store, LATER + 5003);
        let unused = wholly_dead(&repository);
        if !unused.is_empty() {
            run.problems.push(format!("containers without a live chunk are left: {unused:?}"));
        }
    }

    /// Every live snapshot is there with its bytes, and the store is clean.
    pub fn verify_whole(&self, store: &MemoryStore, when: &str, problems: &mut Vec<String>) {
        let repository = reopen(store, LATER + 4000);
        let options = CheckOptions { read_data: ReadData::All, threads: 1, record_findings: false };
        match check::check(&repository, options, &job()) {
            Ok(report) if report.is_clean() => {}
            other => problems.push(format!("{when}: {other:?}")),
        }
        let list = SnapshotList::load(&repository).unwrap();
        let contents = self.contents.lock().unwrap();
        for snapshot in &list.snapshots {
            let expected = contents.get(&snapshot.record.description);
            match content_of(&repository, snapshot.id) {
                Ok(content) if Some(&content) == expected => {}
                Ok(_) => problems.push(format!("{when}: {} has other bytes", snapshot.id)),
                Err(error) => problems.push(format!("{when}: {} is lost: {error}", snapshot.id)),
            }
        }
    }
}

/// Ends an actor's turns, however it ends.
struct Ending<'a> {
    schedule: &'a Schedule,
    number: usize,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.schedule.end(self.number);
    }
}

pub fn dry_run(repository: &Arc<Repository>) -> Result<CollectReport> {
    collect(repository, &CollectOptions { mark_only: true, ..collect_options() }, &job())
}

/// All files of a snapshot, by their last names.
pub fn content_of(repository: &Arc<Repository>, id: SessionId) -> Result<Content> {
    let list = SnapshotList::load(repository)?;
    let snapshot = list.get(id).ok_or_else(|| snapshots::forgotten(id))?;
    let mut files = Vec::new();
    find::walk(repository, snapshot.record.root, &job(), &mut |path, entry| {
        if entry.kind == EntryKind::File {
            files.push((path.to_vec(), entry.clone()));
        }
        Ok(true)
    })?;
    let mut content = Content::new();
    for (path, entry) in files {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let mut bytes = Vec::new();
        restore::dump(repository, &entry, &DumpOptions::default(), &mut bytes, &job())?;
        content.insert(name, bytes);
    }
    Ok(content)
}

/// Containers of which no live snapshot needs a chunk, found without the collector.
pub fn wholly_dead(repository: &Arc<Repository>) -> Vec<onefold_types::ContainerId> {
    use onefold_engine::collection::enumeration::logical;
    use onefold_engine::container::reader;
    let list = SnapshotList::load(repository).unwrap();
    let mut roots = Vec::new();
    for snapshot in &list.snapshots {
        roots.push(snapshot.record.root);
        roots.extend(snapshot.record.placement);
    }
    let mut live = std::collections::BTreeSet::new();
    let mut trees = onefold_engine::tree::TreeReader::open(repository).unwrap();
    logical(&mut trees, &roots, &job(), &mut |chunk| {
        live.insert(*chunk);
        Ok(())
    })
    .unwrap();
    let is_dead = |id: &onefold_types::ContainerId| {
        let section = reader::read_section(repository, *id).unwrap();
        !section.chunks.iter().any(|chunk| live.contains(&chunk.fingerprint))
    };
    containers(repository).into_iter().filter(is_dead).collect()
}

/// Backs a source up without looking at what was saved before.
pub fn backs_up(name: &'static str, files: &'static str) -> Task {
    backs_up_from(name, files, ParentChoice::None)
}

/// Backs a source up by reuse of its newest snapshot.
pub fn reuses(name: &'static str, files: &'static str) -> Task {
    backs_up_from(name, files, ParentChoice::Newest)
}

fn backs_up_from(name: &'static str, files: &'static str, parent: ParentChoice) -> Task {
    Arc::new(move |world, repository| {
        let options = backup_options(&world.describe(files), parent);
        backup(repository, paths(&world.path(name)), &options, &job()).map(drop)
    })
}

/// Backs a stream up; the bytes are those of one file.
pub fn streams(file: &'static str) -> Task {
    Arc::new(move |world, repository| {
        let options = backup_options(&world.describe(file), ParentChoice::None);
        let letter = file.as_bytes()[0];
        let source = Source::Stream {
            name: vec![letter],
            reader: Box::new(std::io::Cursor::new(random_bytes(u64::from(letter), 20_000))),
            finish: Box::new(|| Ok(())),
        };
        backup(repository, source, &options, &job()).map(drop)
    })
}

/// Forgets all snapshots with this description that there are when it looks.
pub fn forgets(files: &'static str) -> Task {
    Arc::new(move |_, repository| {
        let list = SnapshotList::load(repository)?;
        let matching = list.snapshots.iter().filter(|one| one.record.description == files);
        let ids: Vec<SessionId> = matching.map(|one| one.id).collect();
        retention::forget_final(repository, &ids, "me")
    })
}

pub fn collects() -> Task {
    collects_with(collect_options())
}

pub fn collects_with(options: CollectOptions) -> Task {
    Arc::new(move |_, repository| collect(repository, &options, &job()).map(drop))
}

/// Reads all snapshots that there are when it begins; one may be forgotten while it reads.
pub fn restores() -> Task {
    Arc::new(move |world, repository| {
        let list = SnapshotList::load(repository)?;
        for snapshot in &list.snapshots {
            match content_of(repository, snapshot.id) {
                Ok(content) => {
                    let contents = world.contents.lock().unwrap();
                    assert_eq!(contents.get(&snapshot.record.description), Some(&content));
                }
                Err(_) if snapshots::is_forgotten(repository, snapshot.id)? => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}
