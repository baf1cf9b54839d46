//! What differences save and cost: whole backups, restores and collections of the product.
//!
//! One history at a time is backed up version by version into a store in memory, with chunks of
//! several sizes, levels of compression, and with differences or without; frames follow from the
//! chunks, as in the product, and with the product's chunks shorter and longer ones are tried. What
//! it gives is bytes of containers, and what is left of them once the older half of the versions is
//! forgotten and collected; what it takes is CPU time of the backups, and CPU time, bytes and
//! containers of a restore of the newest version.

use super::{Experiment, Setting};
use crate::collection::bench::cpu_seconds;
use crate::collection::restores::{CLASSES, Output, Restoring, restore};
use crate::report::{Cell, Claim, Report, Table};
use crate::source::edits::{Change, Edits};
use crate::source::versions::Versions;
use onefold_crypto::Suite;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::environment::Environment;
use onefold_engine::ingest::{self, BackupOptions, DeltaReport};
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::repository::{InitOptions, Repository};
use onefold_engine::retention;
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_policy::collection::select::SpaceGoal;
use onefold_store::{Blobs, MemoryStore, Store};
use onefold_types::{Result, SessionId, limits};
use std::sync::Arc;
use std::time::Duration;

const EXPLANATION: &str = "\
    With differences the size of chunks hardly matters where edits are small; without, smaller \
    ones are the only help. Chunks of 64 KiB are found by features less often than smaller ones, \
    because more edits fall into each. What is found by features alone is as much as by place \
    here, where every file is like one other. Frames of 32 to 256 KiB take the same room within 1 \
    %. Restores of the newest version of these read 0.34 to 0.98 times as much as without \
    differences, since each frame is read once, for what lies in it and for what it is the base \
    of; of real files 1.01 to 1.13 times as much, 1.05 with the product's chunks, for 1.10 to \
    1.24 times the CPU time, because some bases lie in frames that nothing else is needed of. One \
    stream is restored in its order, which takes up to 1.78 times the CPU time. Without versions \
    sketches are what is paid for: 4 % more CPU time in this run of half a second on a machine \
    that did little else, and 6, 9, 12, 14 and 21 in earlier ones beside other work; three of the \
    six are more than allowed. \
    Differences against differences save next to nothing, of renamed files they take up to twice \
    the room, and restores of all but one stream read 1.01 to 3.9 times as much, because what has \
    deeper bases is made one by one.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "deltas",
        claim: "What changed a little is stored as what changed, wherever it comes from, and \
                stays so when older versions go; data without versions pays little for it.",
        items: "issue 16; beyond the papers",
        tolerance: "With chunks and level of the product: files that were edited where they are, \
                    under other names or in one stream take at most half of what they take without \
                    differences, and at most three quarters after the older half is gone; found by \
                    place where there are places, by features elsewhere. Data without versions \
                    takes no more bytes (0.5 %), and at most 10 % more CPU time in the full form.",
        explanation: EXPLANATION,
    },
    run,
};

/// Threads of a backup.
const THREADS: usize = 2;
/// Restores of the newest version, the quickest of which counts.
const ROUNDS: usize = 2;

/// How a store is made and filled.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    chunk_kib: usize,
    /// None: as the product has them with such chunks.
    frame_kib: Option<usize>,
    level: i32,
    delta: DeltaChoice,
}

/// What the product does, which comes first, and the same without differences.
const SHIPPED: [Way; 2] = [
    Way { chunk_kib: 32, frame_kib: None, level: 2, delta: DeltaChoice::Depth(1) },
    Way { chunk_kib: 32, frame_kib: None, level: 2, delta: DeltaChoice::Off },
];

/// What a history takes and gives.
struct Outcome {
    way: Way,
    frame_bytes: usize,
    stored_bytes: u64,
    left_bytes: u64,
    backup_seconds: f64,
    deltas: DeltaReport,
    restoring: Restoring,
}

/// A history and what is made of its newest version.
struct History {
    name: &'static str,
    versions: Versions,
    output: Output,
}

fn ways(setting: &Setting) -> Vec<Way> {
    let (sizes, levels): (&[usize], &[i32]) = match setting.tiny {
        true => (&[8, 32], &[2]),
        false => (&[8, 16, 32, 64], &[2, 9]),
    };
    let mut ways = SHIPPED.to_vec();
    for delta in [DeltaChoice::Off, DeltaChoice::Depth(1), DeltaChoice::Depth(2)] {
        for (chunk_kib, level) in sizes.iter().flat_map(|size| levels.iter().map(|l| (*size, *l))) {
            let way = Way { chunk_kib, frame_kib: None, level, delta };
            // Deeper ones at the level of the product only.
            let is_wanted = delta != DeltaChoice::Depth(2) || level == SHIPPED[0].level;
            if is_wanted && !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    let frames: &[usize] = if setting.tiny { &[256] } else { &[32, 64, 256] };
    for (way, kib) in SHIPPED.iter().flat_map(|way| frames.iter().map(move |kib| (way, *kib))) {
        ways.push(Way { frame_kib: Some(kib), ..*way });
    }
    ways
}

fn histories(setting: &Setting) -> Result<Vec<History>> {
    let (files, file_bytes, versions) =
        if setting.tiny { (24, 200_000, 4) } else { (100, 400_000, 6) };
    let edits = |change| Edits { change, files, file_bytes, versions };
    let files = |name, change| History {
        name,
        versions: Versions::Edited(edits(change)),
        output: Output::Files,
    };
    let mut all = vec![
        files("edited", Change::Edited),
        files("renamed", Change::Renamed),
        History {
            name: "one stream",
            versions: Versions::EditedImage(edits(Change::Edited)),
            output: Output::Stream,
        },
        files("without versions", Change::Replaced),
    ];
    if let Some(data) = &setting.data {
        let versions = Versions::real(data)?;
        all.push(History { name: "real files", versions, output: Output::Files });
    }
    Ok(all)
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for history in histories(setting)? {
        let outcomes =
            ways(setting).into_iter().map(|way| measure(way, &history)).collect::<Result<Vec<_>>>();
        let outcomes = outcomes?;
        checks(setting, report, history.name, &outcomes);
        report.table(table(history.name, &outcomes));
    }
    Ok(())
}

fn measure(way: Way, history: &History) -> Result<Outcome> {
    let objects = MemoryStore::new();
    let environment = Environment::system();
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let standard = InitOptions::standard()?.with_chunks_of(way.chunk_kib * limits::KIB)?;
    let options = InitOptions {
        suite: Suite::None,
        compression: Compression::Zstd(way.level),
        delta: way.delta,
        ..standard
    };
    let store: Arc<dyn Store> = Arc::new(objects.clone());
    let repository = Repository::create(store, &options, None, environment.clone(), memory)?;
    let repository = match way.frame_kib {
        Some(kib) => repository.with_frames_of(kib * limits::KIB),
        None => repository,
    };
    let frame_bytes = repository.frame_target_bytes();
    let repository = Arc::new(repository);
    let (mut snapshots, mut backup_seconds) = (Vec::new(), 0.0);
    let mut deltas = DeltaReport::default();
    history.versions.each(&mut |source| {
        let before = cpu_seconds();
        let options = BackupOptions { threads: THREADS, ..BackupOptions::default() };
        let done = ingest::backup(&repository, source, &options, &Job::unattended().0)?;
        backup_seconds += cpu_seconds() - before;
        snapshots.extend(done.snapshot);
        deltas.chunks += done.deltas.chunks;
        deltas.bases_tried += done.deltas.bases_tried;
        deltas.chunks_by_place += done.deltas.chunks_by_place;
        deltas.chunks_by_features += done.deltas.chunks_by_features;
        Ok(())
    })?;
    let stored_bytes = container_bytes(&objects)?;
    let mut rounds = Vec::new();
    for id in snapshots.last().iter().flat_map(|id| [**id; ROUNDS]) {
        let reach = CLASSES[0].reach();
        rounds.push(restore(&objects, &environment, memory, id, history.output, None, reach)?);
    }
    let quickest = rounds.into_iter().min_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    let left_bytes = without_the_older_half(&repository, &objects, &snapshots)?;
    let restoring = quickest.unwrap_or_default();
    Ok(Outcome { way, frame_bytes, stored_bytes, left_bytes, backup_seconds, deltas, restoring })
}

/// What is left of the containers once the older half of the snapshots is forgotten.
fn without_the_older_half(
    repository: &Arc<Repository>,
    objects: &MemoryStore,
    snapshots: &[SessionId],
) -> Result<u64> {
    let older = snapshots.get(..snapshots.len() / 2).unwrap_or_default();
    retention::forget_final(repository, older, "lab")?;
    let options = CollectOptions {
        grace: Duration::ZERO,
        goal: SpaceGoal::Everything,
        ..CollectOptions::default()
    };
    // What only the first one's deletions have made needless goes with the second one.
    for _ in 0..2 {
        collect(repository, &options, &Job::unattended().0)?;
    }
    container_bytes(objects)
}

/// Bytes of all containers.
pub(super) fn container_bytes(objects: &MemoryStore) -> Result<u64> {
    let mut bytes = 0;
    objects.list(layout::CONTAINERS, &mut |listed| {
        bytes += listed.size_bytes;
        Ok(())
    })?;
    Ok(bytes)
}

fn checks(setting: &Setting, report: &mut Report, name: &str, outcomes: &[Outcome]) {
    let [with, without, ..] = outcomes else { return };
    let ratio = |of: fn(&Outcome) -> u64| of(with) as f64 / of(without).max(1) as f64;
    let (all, left) = (ratio(|one| one.stored_bytes), ratio(|one| one.left_bytes));
    let sizes = format!("{all:.3} times all, {left:.3} times after forgetting");
    let DeltaReport { chunks_by_place, chunks_by_features, bases_tried, .. } = with.deltas;
    let found = format!(
        "{chunks_by_place} by place, {chunks_by_features} by features, of {bases_tried} tried"
    );
    match name {
        "real files" => report.check(format!("{name}: less is stored"), all < 1.0, sizes),
        "without versions" => {
            report.check(
                format!("{name}: it costs no bytes"),
                all <= 1.005 && left <= 1.005,
                sizes,
            );
            if !setting.tiny {
                let cpu = with.backup_seconds / without.backup_seconds;
                let figures = format!("{cpu:.3} times without");
                report.check(format!("{name}: it costs little CPU time"), cpu <= 1.1, figures);
            }
        }
        _ => {
            report.check(
                format!("{name}: at most half is stored"),
                all <= 0.5 && left <= 0.75,
                sizes,
            );
            let is_found = match name {
                "edited" => chunks_by_place > 9 * chunks_by_features,
                // Names without their digits lead to some file of the version before.
                "renamed" => chunks_by_features > chunks_by_place,
                _ => chunks_by_features > 0 && chunks_by_place == 0,
            };
            report.check(format!("{name}: bases are found as they can be"), is_found, found);
        }
    }
}

fn table(name: &str, outcomes: &[Outcome]) -> Table {
    let columns = [
        "chunks, KiB",
        "frames, KiB",
        "level",
        "differences",
        "stored, MB",
        "after forgetting half, MB",
        "CPU of backups, s",
        "deltas",
        "by place",
        "by features",
        "bases tried",
        "restore, CPU s",
        "restore, MB read",
        "restore, containers",
    ];
    let megabytes = outcomes.first().map_or(0.0, |one| one.restoring.bytes as f64 / 1e6);
    let caption = format!("{name}: the newest version has {megabytes:.1} MB");
    let mut table = Table::new(name.replace(' ', "-"), caption, columns);
    for one in outcomes {
        let Outcome { way, deltas, restoring, .. } = one;
        table.row([
            Cell::count(way.chunk_kib as u64),
            Cell::count((one.frame_bytes / limits::KIB) as u64),
            Cell::text(way.level.to_string()),
            Cell::text(way.delta.to_string()),
            Cell::real(one.stored_bytes as f64 / 1e6, 1),
            Cell::real(one.left_bytes as f64 / 1e6, 1),
            Cell::real(one.backup_seconds, 2),
            Cell::count(deltas.chunks),
            Cell::count(deltas.chunks_by_place),
            Cell::count(deltas.chunks_by_features),
            Cell::count(deltas.bases_tried),
            Cell::real(restoring.cpu_seconds, 2),
            Cell::real(restoring.data_bytes as f64 / 1e6, 1),
            Cell::count(restoring.containers),
        ]);
    }
    table
}
