//! How live containers are: the assumption below the selection of FAST'17, section 3.1.

use super::{Experiment, Setting};
use crate::collection::bench::{Bench, PLENTY_BYTES};
use crate::collection::load::Load;
use crate::report::{BarChart, Cell, Claim, Report, Table};
use crate::source::generator::{Parameters, Preset};
use crate::source::versions::Versions;
use onefold_engine::collection::MarkAlgorithm;
use onefold_engine::ingest::{self, BackupOptions};
use onefold_engine::job::Job;
use onefold_engine::retention;
use onefold_policy::collection::select::Selection;
use onefold_types::{Result, SessionId, limits};

const EXPLANATION: &str = "\
    Hardly any container is dead, whatever changes: what a generation adds stays in use until it \
    is changed or deleted in turn, and that happens piece by piece (likely). 74 to 100 % of what \
    is dead lies in containers that are half or mostly live. Which generations are kept matters \
    more than what changes: 28 to 36 % of the containers are at the ends if the last quarter is \
    kept, 71 to 78 % if every other one is, and those are nearly all live. Real files, twelve \
    monthly releases of the same software, are the paper's case: 56 to 81 % of their containers \
    are at the ends, though with half of the versions gone or more most of what is dead lies in \
    containers that are dead or mostly dead. Bimodality is a property of the load and of the \
    policy, not of the store; the selection does not rest on it.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "gc-liveness",
        claim: "Containers are mostly dead or mostly live, so that most space comes from few \
                copies.",
        items: "S3.46",
        tolerance: "Where whole files come and go, at least half of the containers are less than a \
                    tenth or at least nine tenths live under every policy. Of the \
                    other loads the share is reported.",
        explanation: EXPLANATION,
    },
    run,
};

/// Which generations are forgotten.
#[derive(Clone, Copy)]
struct Policy {
    name: &'static str,
    keeps: fn(generation: usize, generations: usize) -> bool,
}

const POLICIES: [Policy; 3] = [
    Policy { name: "the last quarter", keeps: |one, all| one + all / 4 >= all },
    Policy {
        name: "the last four, before that one in five",
        keeps: |one, all| one + 4 >= all || one.is_multiple_of(5),
    },
    Policy { name: "every other one", keeps: |one, all| one + 1 == all || !one.is_multiple_of(2) },
];

/// What changes.
const LOADS: [(&str, Preset); 3] = [
    ("whole files", Preset::Engineering),
    ("few hot files", Preset::Aged),
    ("short runs anywhere", Preset::Scattered),
];

/// Versions of real files, backed up as by a user.
const REAL: &str = "real files";

struct Outcome {
    load: &'static str,
    policy: &'static str,
    selection: Selection,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut outcomes = Vec::new();
    for (load, preset) in LOADS {
        for policy in POLICIES {
            let selection = outcome(preset, load == "whole files", policy, setting.tiny)?;
            outcomes.push(Outcome { load, policy: policy.name, selection });
        }
    }
    if let Some(data) = &setting.data {
        let versions = Versions::real(data)?;
        for policy in POLICIES {
            let selection = of_real(&versions, policy)?;
            outcomes.push(Outcome { load: REAL, policy: policy.name, selection });
        }
    }
    checks(report, &outcomes);
    report.table(histograms(&outcomes));
    report.table(classes(&outcomes));
    let bars = |load: &'static str| {
        let parts: Vec<String> =
            ["dead to 0.1", "0.1 to 0.5", "0.5 to 0.9", "0.9 to live"].map(str::to_owned).into();
        let bar = |outcome: &Outcome| {
            let shares = shares(&outcome.selection);
            let sum = |range: std::ops::Range<usize>| {
                shares.get(range).map_or(0.0, |part| part.iter().sum::<f64>() * 100.0)
            };
            (outcome.policy.to_owned(), vec![sum(0..1), sum(1..5), sum(5..9), sum(9..11)])
        };
        BarChart {
            title: format!("Containers by live share: {load}"),
            y_label: "containers, %".into(),
            parts,
            bars: outcomes.iter().filter(|one| one.load == load).map(bar).collect(),
        }
    };
    for (place, load) in loads(&outcomes).into_iter().enumerate() {
        report.bars(&format!("liveness-{place}"), &bars(load))?;
    }
    Ok(())
}

fn outcome(preset: Preset, whole: bool, policy: Policy, tiny: bool) -> Result<Selection> {
    let (chunks, generations) = if tiny { (4_000, 12) } else { (24_000, 16) };
    let base = Parameters::preset(preset, chunks);
    let parameters = Parameters {
        streams: 2,
        lineages: 1,
        generations,
        generations_min: generations,
        chunk_min_bytes: 1024,
        chunk_max_bytes: 3072,
        self_reference: 0.0,
        deletion: None,
        schedule: crate::source::generator::Schedule::Full,
        // Whole files, and nothing else, if that is what is asked for.
        changed_share: if whole { 0.0 } else { base.changed_share },
        deleted_share: if whole { 0.05 } else { base.deleted_share },
        added_share: if whole { 0.05 } else { base.added_share },
        file_chunks: if whole { 64.0 } else { base.file_chunks },
        ..base
    };
    let streams = parameters.streams as usize;
    let bench = Bench::new(limits::MEMORY_LIMIT_MIN_BYTES)?;
    let mut load = Load::new(parameters, 16)?;
    for _ in 0..generations {
        load.generation(&bench)?;
    }
    let goes = |place: usize| !(policy.keeps)(place / streams, generations as usize);
    load.forget(&bench, usize::MAX, goes)?;
    selection(&bench)
}

/// Backs real versions up and forgets some of them.
fn of_real(versions: &Versions, policy: Policy) -> Result<Selection> {
    let bench = Bench::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let mut snapshots: Vec<SessionId> = Vec::new();
    versions.each(&mut |source| {
        let (job, _) = Job::unattended();
        let report = ingest::backup(&bench.repository, source, &BackupOptions::default(), &job)?;
        snapshots.extend(report.snapshot);
        Ok(())
    })?;
    let all = snapshots.len();
    let goes = |(place, id): (usize, &SessionId)| (!(policy.keeps)(place, all)).then_some(*id);
    let forgotten: Vec<SessionId> = snapshots.iter().enumerate().filter_map(goes).collect();
    retention::forget_final(&bench.repository, &forgotten, "lab")?;
    selection(&bench)
}

/// What the collector finds in the containers.
fn selection(bench: &Bench) -> Result<Selection> {
    let mark = bench.mark(MarkAlgorithm::Exact, PLENTY_BYTES)?;
    Ok(mark.report.selection.unwrap_or_else(|| {
        onefold_policy::collection::select::select(&[], Default::default(), None)
    }))
}

/// The loads, in their order.
fn loads(outcomes: &[Outcome]) -> Vec<&'static str> {
    let mut loads: Vec<&'static str> = outcomes.iter().map(|one| one.load).collect();
    loads.dedup();
    loads
}

/// Shares of all containers by live share in tenths.
fn shares(selection: &Selection) -> Vec<f64> {
    let all: u32 = selection.histogram.iter().sum();
    selection.histogram.iter().map(|count| f64::from(*count) / f64::from(all.max(1))).collect()
}

/// The share of containers that are less than a tenth or at least nine tenths live.
fn at_the_ends(selection: &Selection) -> f64 {
    let shares = shares(selection);
    shares.first().copied().unwrap_or_default() + shares.iter().skip(9).sum::<f64>()
}

fn checks(report: &mut Report, outcomes: &[Outcome]) {
    for load in loads(outcomes) {
        let ends: Vec<f64> = outcomes
            .iter()
            .filter(|one| one.load == load)
            .map(|one| at_the_ends(&one.selection))
            .collect();
        let listed: Vec<String> = ends.iter().map(|end| format!("{:.0} %", end * 100.0)).collect();
        // What the paper says of backups is claimed of such only; the others are reported.
        let holds = load != "whole files" || ends.iter().all(|end| *end >= 0.5);
        report.check(
            format!("{load}: containers less than a tenth or at least nine tenths live"),
            holds,
            listed.join(", "),
        );
    }
}

fn histograms(outcomes: &[Outcome]) -> Table {
    let mut columns = vec!["changes".to_owned(), "kept".into(), "containers".into()];
    columns.extend((0..10).map(|tenth| format!("from 0.{tenth}")));
    columns.extend(["wholly live".into(), "at the ends, %".into()]);
    let caption = "Containers by the share of them that is live, %";
    let mut table = Table::new("histogram", caption, columns);
    for outcome in outcomes {
        let mut row = vec![Cell::text(outcome.load), Cell::text(outcome.policy)];
        let all: u32 = outcome.selection.histogram.iter().sum();
        row.push(Cell::count(u64::from(all)));
        row.extend(shares(&outcome.selection).iter().map(|share| Cell::percent(*share, 1)));
        row.push(Cell::percent(at_the_ends(&outcome.selection), 1));
        table.row(row);
    }
    table
}

fn classes(outcomes: &[Outcome]) -> Table {
    let mut columns = vec!["changes".to_owned(), "kept".into(), "dead, % of stored".into()];
    let names = onefold_policy::collection::select::CLASS_NAMES;
    columns.extend(names.iter().map(|name| format!("{name}, % of what is dead")));
    let caption = "Where the dead bytes are";
    let mut table = Table::new("classes", caption, columns);
    for Outcome { load, policy, selection } in outcomes {
        let dead: u64 = selection.classes.iter().map(|class| class.dead_bytes_stored).sum();
        let stored: u64 = selection.classes.iter().map(|class| class.stored_bytes).sum();
        let share = |part: u64, all: u64| Cell::percent(part as f64 / all.max(1) as f64, 1);
        let mut row = vec![Cell::text(*load), Cell::text(*policy), share(dead, stored)];
        let parts = selection.classes.iter().map(|class| share(class.dead_bytes_stored, dead));
        row.extend(parts);
        table.row(row);
    }
    table
}
