//! A small store, the actors that work on it, and what must hold when they have ended.

use crate::device::{Device, Loss};
use crate::gated::{Gated, Lie, Turns};
use crate::network::Network;
use crate::schedule::{Schedule, Segment};
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::collection::{
    CollectOptions, CollectReport, MarkAlgorithm, SpaceGoal, collect,
};
use onefold_engine::ingest::{BackupOptions, ParentChoice, backup};
use onefold_engine::restore::DumpOptions;
use onefold_engine::session::outcome;
use onefold_engine::session::{SnapshotList, tombstones};
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository, find, restore, retention};
use onefold_format::delta::DeltaChoice;
use onefold_format::node::EntryKind;
use onefold_store::MemoryStore;
use onefold_store::layers::Operation;
use onefold_types::{ErrorKind, Result, SessionId};
use std::cell::RefCell;
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
    pub lie: Option<Arc<dyn Fn() -> Lie + Send + Sync>>,
    /// Whether that is what the rules allow for, as a full device is.
    pub is_allowed: bool,
    /// What it does instead when it keeps to the rules.
    pub honest_task: Option<Task>,
    /// Its clock and its names; its place in the list of actors if it is zero.
    pub seed: u64,
    /// Whether its backups renew their sessions, whenever it is the renewer's turn.
    pub renews: bool,
    /// What it may remember at once.
    pub memory: MemoryPlan,
}

impl Actor {
    pub fn new(task: Task) -> Self {
        let memory = memory_plan();
        let (lie, is_allowed) = (None, false);
        Self { task, lie, is_allowed, honest_task: None, seed: 0, renews: false, memory }
    }

    /// Does something else when it keeps to the rules.
    pub fn instead_of(self, honest_task: Task) -> Self {
        Self { honest_task: Some(honest_task), ..self }
    }

    /// The same actor keeping to the rules, on a store that tells the truth.
    pub fn honest(&self) -> Self {
        Self {
            task: Arc::clone(self.honest_task.as_ref().unwrap_or(&self.task)),
            lie: self.lie.as_ref().filter(|_| self.is_allowed).map(Arc::clone),
            honest_task: None,
            ..*self
        }
    }

    pub fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }

    pub fn remembering(self, memory: MemoryPlan) -> Self {
        Self { memory, ..self }
    }

    pub fn lying(self, lie: impl Fn() -> Lie + Send + Sync + 'static) -> Self {
        Self { lie: Some(Arc::new(lie)), ..self }
    }

    /// Its store fails in ways that every actor has to cope with.
    pub fn failing(self, lie: impl Fn() -> Lie + Send + Sync + 'static) -> Self {
        Self { is_allowed: true, ..self.lying(lie) }
    }

    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// What the store of a run is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Whether lists are read in two parts.
    pub splits_lists: bool,
    /// What a power loss leaves; without it everything is durable at once.
    pub loss: Option<Loss>,
    /// Whether objects that were opened may be read on after they were deleted.
    pub reads_on: bool,
    /// Whether reads inside an object wait for the actor's turn, too.
    pub gates_reads: bool,
    /// Whether the store is elsewhere, and by which chance requests go astray.
    pub network: Option<u64>,
}

impl From<bool> for Mode {
    fn from(splits_lists: bool) -> Self {
        Self { splits_lists, ..Self::default() }
    }
}

thread_local! {
    /// What the actor that this thread is was told to be saved.
    static SAVED: RefCell<Vec<SessionId>> = const { RefCell::new(Vec::new()) };
}

/// The actor was told that this snapshot is saved: it must be there from now on.
pub fn is_saved(id: SessionId) {
    SAVED.with_borrow_mut(|saved| saved.push(id));
}

/// How a run went.
pub struct Run {
    pub store: MemoryStore,
    pub schedule: Arc<Schedule>,
    /// Snapshots that were reported to be saved.
    pub saved: Vec<SessionId>,
    /// What must not be, or must not be said.
    pub problems: Vec<String>,
}

/// A store with some history, and the sources on disk that backups read.
pub struct World {
    base: MemoryStore,
    root: tempfile::TempDir,
    contents: Mutex<BTreeMap<String, Content>>,
    counts: Mutex<BTreeMap<String, u64>>,
}

pub fn collect_options() -> CollectOptions {
    CollectOptions {
        goal: SpaceGoal::Everything,
        algorithm: MarkAlgorithm::Exact,
        grace: Duration::ZERO,
        threads: 1,
        ..CollectOptions::default()
    }
}

pub fn described(description: &str, parent: ParentChoice) -> BackupOptions {
    let description = description.into();
    BackupOptions { description, parent, threads: 1, ..crate::steps::backup_options() }
}

/// The bytes of a file.
fn bytes_of(letter: char) -> Vec<u8> {
    let mut bytes = random_bytes(u64::from(letter.to_ascii_lowercase()), 20_000);
    if letter.is_ascii_uppercase() {
        bytes.iter_mut().skip(500).step_by(5_000).for_each(|byte| *byte ^= 1);
    }
    bytes
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
        Self::on(MemoryStore::new())
    }

    /// One whose store can be looked at as it was after each change.
    pub fn recording() -> Self {
        Self::on(MemoryStore::recording())
    }

    fn on(base: MemoryStore) -> Self {
        create_in(&base, Suite::None);
        let memory = Path::new("/dev/shm");
        let root = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        Self { base, root, contents: Mutex::default(), counts: Mutex::default() }
    }

    /// The source of this name: a file for each letter, of which equal ones have equal bytes. A
    /// capital letter is a later version of the small one's file.
    /// What a source holds may be changed until the first run.
    pub fn source(&self, name: &str, files: &str) {
        let directory = self.path(name);
        fs::create_dir_all(&directory).unwrap();
        for file in fs::read_dir(&directory).unwrap() {
            let path = file.unwrap().path();
            let letter = path.file_name().unwrap().to_string_lossy().into_owned();
            if !files.to_ascii_lowercase().contains(&letter) {
                fs::remove_file(path).unwrap();
            }
        }
        for letter in files.chars() {
            let path = directory.join(letter.to_ascii_lowercase().to_string());
            let bytes = bytes_of(letter);
            if fs::read(&path).ok().as_ref() != Some(&bytes) {
                fs::write(path, bytes).unwrap();
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn content_of(files: &str) -> Content {
        let file = |letter: char| (vec![letter.to_ascii_lowercase() as u8], bytes_of(letter));
        files.chars().map(file).collect()
    }

    /// A backup before the first run.
    pub fn save(&self, name: &str, files: &str, seed: u64) -> SessionId {
        self.save_with(name, files, seed, None)
    }

    /// The same without differences.
    pub fn save_whole(&self, name: &str, files: &str, seed: u64) -> SessionId {
        self.save_with(name, files, seed, Some(DeltaChoice::Off))
    }

    fn save_with(
        &self,
        name: &str,
        files: &str,
        seed: u64,
        delta: Option<DeltaChoice>,
    ) -> SessionId {
        self.source(name, files);
        // Changes are noticed by times, which must not be too new to be trusted.
        std::thread::sleep(Duration::from_millis(40));
        let repository = reopen(&self.base, LATER + seed);
        let options =
            BackupOptions { delta, ..described(&self.describe(files), ParentChoice::Newest) };
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

    /// What a snapshot with this description must hold.
    pub fn expected(&self, description: &str) -> Option<Content> {
        self.contents.lock().unwrap().get(description).cloned()
    }

    pub fn base(&self) -> &MemoryStore {
        &self.base
    }

    /// Runs the actors by the schedule and looks what they have left.
    pub fn run(&self, actors: &[Actor], segments: &[Segment], mode: impl Into<Mode>) -> Run {
        self.run_on(self.base.clone_state(), actors, segments, mode)
    }

    /// The same on a store in which more has happened.
    pub fn run_on(
        &self,
        mut store: MemoryStore,
        actors: &[Actor],
        segments: &[Segment],
        mode: impl Into<Mode>,
    ) -> Run {
        let mode = mode.into();
        let schedule = Schedule::new(actors.len(), segments);
        let device = mode.loss.map(|_| Device::default());
        let network = mode.network.map(Network::new);
        // All that may be peeked at was read before, by somebody on the same machine.
        let kept = mode.reads_on.then(|| Arc::new(store.clone_state()));
        let (problems, saved) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for (number, actor) in actors.iter().enumerate() {
                let (schedule, problems, saved) = (&schedule, &problems, &saved);
                let gated = Gated {
                    store: store.clone(),
                    actor: number,
                    schedule: Arc::clone(schedule),
                    splits_lists: mode.splits_lists,
                    lie: actor.lie.as_ref().map(|make| make()),
                    device: device.clone(),
                    opened: mode.reads_on.then(Mutex::default),
                    kept: kept.clone(),
                    gates_reads: mode.gates_reads,
                    network: network.clone(),
                };
                let renewer = actor.renews.then_some(actors.len() + number);
                let seed = if actor.seed == 0 { 1000 + number as u64 } else { actor.seed };
                let ticker = Arc::new(Turns { schedule: Arc::clone(schedule), renewer });
                let environment = Environment { ticker, ..environment(LATER + seed) };
                scope.spawn(move || {
                    let ended = Ending { schedule, number };
                    let result = schedule
                        .step(number, Operation::Size, "start")
                        .and_then(|()| open_in(Arc::new(gated), environment, actor.memory))
                        .and_then(|repository| (actor.task)(self, &repository));
                    if let Err(error) = result
                        && !schedule.has_crashed(number)
                        && !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Unavailable)
                    {
                        problems.lock().unwrap().push(format!("actor {number}: {error}"));
                    }
                    saved.lock().unwrap().extend(SAVED.take());
                    drop(ended);
                });
            }
        });
        let mut problems = problems.into_inner().unwrap();
        problems.extend(schedule.broken());
        if let Some(network) = network {
            self.end_network(&network, &store);
        }
        if let (Some(device), Some(loss), true) = (device, mode.loss, schedule.has_lost_power()) {
            store = device.after_loss(&store, loss);
        }
        self.count_steps(&schedule, actors.len());
        Run { store, schedule, saved: saved.into_inner().unwrap(), problems }
    }

    /// What is still on its way arrives.
    fn end_network(&self, network: &Network, store: &MemoryStore) {
        // What arrives when nobody is left is no test of anybody.
        let met = network.met();
        while network.deliver(store) {}
        self.count("late requests", met.late);
        self.count("objects brought back", met.objects_brought_back);
        self.count("decisions brought back", met.decisions_brought_back);
        self.count("answers lost", met.answers_lost);
    }

    /// Counts what the schedule's actors did.
    fn count_steps(&self, schedule: &Schedule, actors: usize) {
        let is_ready = |actor: usize, operation: Operation, name: &str| {
            let is_renewer = actor >= actors && operation == Operation::Put;
            is_renewer && name.starts_with("sessions/")
        };
        self.count("renewals", schedule.count(is_ready) as u64);
        for number in 0..actors {
            let removes_runs = |actor: usize, operation: Operation, name: &str| {
                actor == number && operation == Operation::Delete && name.starts_with("index/")
            };
            let what = format!("index runs merged by {number}");
            self.count(&what, schedule.count(removes_runs) as u64);
        }
    }

    /// Counts what actors did, in all runs together.
    pub fn count(&self, what: &str, times: u64) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += times;
    }

    /// How often something was done; what never happens tests nothing.
    pub fn counted(&self, what: &str) -> u64 {
        self.counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    /// Everything that must hold after a run.
    pub fn verify(&self, run: &mut Run) {
        self.verify_whole(&run.store, "after the run", &mut run.problems);
        let repository = reopen(&run.store, LATER + 4001);
        let list = SnapshotList::load(&repository).unwrap();
        for id in &run.saved {
            if list.get(*id).is_none() && !tombstones::is_forgotten(&repository, *id).unwrap() {
                run.problems.push(format!("{id} was saved and is lost"));
            }
        }
        if !run.problems.is_empty() {
            return;
        }
        // A collector alone finishes and leaves no garbage; one more comes for what only those were
        // made of that went with the one before.
        for seed in [5000, 5001, 5010] {
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
        let options =
            CheckOptions { read_data: ReadData::All, threads: 1, record_quarantine: false };
        match check::check(&repository, options, &job()) {
            Ok(report) if report.is_clean() => {}
            other => problems.push(format!("{when}: {other:?}")),
        }
        let list = SnapshotList::load(&repository).unwrap();
        let contents = self.contents.lock().unwrap();
        // What a share's manifests hold is compared with its files.
        for snapshot in list.snapshots.iter().filter(|one| !one.is_manifest()) {
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
    let snapshot = list.get(id).ok_or_else(|| outcome::forgotten(id))?;
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
    let trees = onefold_engine::tree::TreeReader::open(repository).unwrap();
    let marked = logical(&trees, &roots, &job(), &mut |chunk| {
        live.insert(*chunk);
        Ok(())
    });
    // That something is lost is found elsewhere; nothing is known of the rest then.
    if marked.is_err() {
        return Vec::new();
    }
    add_bases(repository, &mut live);
    let is_dead = |id: &onefold_types::ContainerId| {
        let section = reader::read_section(repository, *id).unwrap();
        !section.chunks.iter().any(|chunk| live.contains(&chunk.fingerprint))
    };
    containers(repository).into_iter().filter(is_dead).collect()
}
