//! What is fresh: only what lies in the open container, or all that the session has stored (S2.4).

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, Report, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::{Kind, Way};
use crate::rewriting::restored::{
    adaptive, forward_assembly, mean_speed_factor, papers_adaptive, restore,
};
use crate::rewriting::versions::Versions;
use crate::rewriting::{Sizes, workloads};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::Result;

const EXPLANATION: &str = "\
    Where hardly anything repeats within a version, in five of eight workloads, it makes no \
    difference what is fresh. Clones and strays hold copies of what they hold themselves, in \
    places far apart: there the whole session fresh costs FCRC 19 to 23 % and the default 17 to \
    26 %, LBW 6 to 10 % and capping 6 to 8 %; ALACC with a long look-ahead makes up for most of \
    it. On real data it is within 2.5 %, to either side, and so it is on the mean with an engine \
    that knows the recipe. The paper has the open container alone, and so have all other \
    experiments here and the product, which once had all that a session had not indexed yet.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "fresh-chunks",
        claim: "A chunk that its own session has stored in another container than the open one \
                costs a read like any other: if rewriting may store it again, restores read fewer \
                containers at the same loss.",
        items: "S2.4",
        tolerance: "At 7 % of the ratio, the mean speed factor of all workloads, with forward \
                    assembly and both forms of ALACC: with the open container fresh alone it is \
                    for each policy at least that with the whole session fresh, less 1 %.",
        explanation: EXPLANATION,
    },
    run,
};

/// The ratio loss of S2.37.
const LOSS: f64 = 0.07;
/// Containers of the session that are fresh; the product's is the last, while less than a share of
/// its memory waits for the index.
const FRESH: [(u32, &str); 3] =
    [(1, "the open container"), (8, "eight containers"), (u32::MAX, "the session")];
const KINDS: [Kind; 4] = [Kind::Capping, Kind::Flexible, Kind::Window, Kind::Auto];

/// The mean speed factors of one policy on one workload, for each engine; the loss.
struct Outcome {
    loss: f64,
    factors: Vec<f64>,
}

fn engines(sizes: Sizes) -> [(&'static str, RestoreEngine); 5] {
    let memory_bytes = sizes.memory_bytes();
    [
        ("forward", forward_assembly(sizes)),
        ("ALACC, look-ahead 8", papers_adaptive(sizes)),
        ("ALACC, look-ahead 64", adaptive(sizes)),
        ("container-cache", RestoreEngine::ContainerCache { memory_bytes }),
        ("optimal-chunks", RestoreEngine::OptimalChunks { memory_bytes }),
    ]
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let workloads = workloads::all(setting.tiny, setting.data.as_deref())?;
    let none = Kind::None.with_loss(0.0);
    let threads = parallel::threads();
    let nones =
        parallel::map(&workloads, threads, |versions| ingest(versions, Sizes::PAPER, &none))?;
    // For each kind and each scope all workloads.
    let mut jobs: Vec<(Kind, u32, &Versions, &Stored)> = Vec::new();
    for kind in KINDS {
        for (fresh, _) in FRESH {
            let each = workloads.iter().zip(&nones);
            jobs.extend(each.map(|(versions, none)| (kind, fresh, versions, none)));
        }
    }
    let outcomes = parallel::map(&jobs, threads, |(kind, fresh_containers, versions, none)| {
        let sizes = Sizes { fresh_containers: *fresh_containers, ..Sizes::PAPER };
        let (_, stored) = Way::of(*kind).at_loss(versions, sizes, none, LOSS)?;
        let factors = engines(sizes)
            .iter()
            .map(|(_, engine)| Ok(mean_speed_factor(&restore(&stored, sizes, engine)?)))
            .collect::<Result<_>>()?;
        Ok(Outcome { loss: stored.loss(none), factors })
    })?;
    let scopes: Vec<&[Outcome]> = outcomes.chunks(workloads.len().max(1)).collect();
    let kinds: Vec<(Kind, &[&[Outcome]])> =
        KINDS.into_iter().zip(scopes.chunks(FRESH.len())).collect();
    checks(report, &kinds);
    report.table(means(&kinds));
    report.table(by_workload(&workloads, &kinds));
    Ok(())
}

/// The mean factor of all workloads with one engine.
fn mean(outcomes: &[Outcome], engine: usize) -> f64 {
    let factors = outcomes.iter().filter_map(|outcome| outcome.factors.get(engine));
    factors.sum::<f64>() / outcomes.len().max(1) as f64
}

/// What only the open container makes of what the session as a whole makes, with one engine.
fn gain(scopes: &[&[Outcome]], engine: usize) -> f64 {
    let of = |scope: Option<&&[Outcome]>| scope.map_or(0.0, |one| mean(one, engine));
    of(scopes.first()) / of(scopes.last())
}

fn checks(report: &mut Report, kinds: &[(Kind, &[&[Outcome]])]) {
    for (place, (name, _)) in engines(Sizes::PAPER).iter().enumerate().take(3) {
        let gains: Vec<(&str, f64)> =
            kinds.iter().map(|(kind, scopes)| (kind.name(), gain(scopes, place))).collect();
        let figures: Vec<String> =
            gains.iter().map(|(kind, gain)| format!("{kind} {gain:.3}")).collect();
        report.check(
            format!("{name}: no policy loses by it"),
            gains.iter().all(|(_, gain)| *gain >= 0.99),
            figures.join(", "),
        );
    }
}

fn means(kinds: &[(Kind, &[&[Outcome]])]) -> Table {
    let engines = engines(Sizes::PAPER);
    let mut columns = vec!["policy".to_owned(), "fresh".into(), "mean loss, %".into()];
    columns.extend(engines.iter().map(|(name, _)| (*name).to_owned()));
    let mut table = Table::new("means", "Mean speed factor of all workloads", columns);
    for (kind, scopes) in kinds {
        for ((_, fresh), outcomes) in FRESH.iter().zip(*scopes) {
            let loss = outcomes.iter().map(|one| one.loss).sum::<f64>();
            let loss = loss / outcomes.len().max(1) as f64;
            let mut row = vec![Cell::text(kind.name()), Cell::text(*fresh), Cell::percent(loss, 2)];
            row.extend((0..engines.len()).map(|place| Cell::real(mean(outcomes, place), 3)));
            table.row(row);
        }
    }
    table
}

/// The open container alone against the session, workload by workload.
fn by_workload(workloads: &[Versions], kinds: &[(Kind, &[&[Outcome]])]) -> Table {
    let mut columns = vec!["workload".to_owned()];
    let forms = ["forward", "ALACC, 8"];
    for (kind, _) in kinds {
        columns.extend(forms.map(|form| format!("{}, {form}", kind.name())));
    }
    let caption = "Speed factor with the open container fresh alone, times that with the session";
    let mut table = Table::new("by-workload", caption, columns);
    for (at, versions) in workloads.iter().enumerate() {
        let mut row = vec![Cell::text(versions.name.as_str())];
        for (_, scopes) in kinds {
            for place in 0..forms.len() {
                let of = |scope: Option<&&[Outcome]>| {
                    scope.and_then(|one| one.get(at)?.factors.get(place).copied())
                };
                let gain = of(scopes.first()).zip(of(scopes.last()));
                row.push(gain.map_or(Cell::Missing, |(open, all)| Cell::real(open / all, 3)));
            }
        }
        table.row(row);
    }
    table
}
