//! Every way of rewriting with every restore engine, at an equal loss and in equal memory: Fig. 7
//! of FAST'19, and beyond it.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::{Kind, Policy};
use crate::rewriting::restored::{last_speed_factor, mean_speed_factor, restore};
use crate::rewriting::versions::Versions;
use crate::rewriting::{Sizes, workloads};
use crate::workload::file_name;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::Result;

const EXPLANATION: &str = "\
    The paper's order LBW > FCRC > capping is a matter of the engine. With forward assembly FCRC \
    is ahead of LBW wherever small pieces lie all over: the area is filled from where it begins, \
    which is what a segment models, and a window that slides lets containers pass that are used \
    all the time, a little, by chunks of theirs that it has kept before. With ALACC, which holds \
    what is needed soon wherever it comes from, LBW is level or ahead. What matters more than the \
    policy is the engine: with the same memory, keeping exactly the chunks that the recipe needs \
    next (optimal-chunks) gains about as much without any rewriting as rewriting gains with \
    forward assembly, and ALACC comes close to it. An output that can be written anywhere \
    (direct) reads each container once, and rewriting can only add to that. `asked` is the loss \
    asked for; the policies count chunks, keep below what they may spend so far, and end a little \
    under it.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "rewrite-grid",
        claim: "With 7 % of the deduplication ratio given up and equal memory, restores read far \
                fewer containers; the default is near the best everywhere.",
        items: "S2.32, S2.33, S2.37, issue 4",
        tolerance: "Ten versions each, seen before by 93 % at least; mean speed factors; losses \
                    are made equal by bisection. With forward assembly LBW is up to 1.97 times \
                    none, and the default up to 1.41 times capping, on workloads where none is \
                    not above 1.3 (tiny: 1.2 both). With both engines no policy is below none by \
                    more than 2 %, the default is at most 3 % behind the best policy on any \
                    workload and above LBW and FCRC on the mean of all.",
        explanation: EXPLANATION,
    },
    run,
};

/// The ratio loss of S2.37.
const LOSS: f64 = 0.07;

/// The engines of Fig. 7.
const PAPERS_ENGINES: [&str; 2] = ["forward", "adaptive"];
/// Where none is not above this the paper's traces are, and counts as fragmented.
const FRAGMENTED: f64 = 1.3;

/// What one policy made of one workload.
struct Outcome {
    kind: Kind,
    policy: Policy,
    ratio: f64,
    loss: f64,
    /// For each engine the mean speed factor, and that of the last version.
    factors: Vec<(f64, f64)>,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::PAPER;
    let workloads = workloads::all(setting.tiny, setting.data.as_deref())?;
    let engines = RestoreEngine::with_memory(sizes.memory_bytes());
    let none = Kind::None.with_loss(0.0);
    let threads = parallel::threads();
    let nones = parallel::map(&workloads, threads, |versions| ingest(versions, sizes, &none))?;
    let jobs: Vec<(&Versions, &Stored, Kind)> = workloads
        .iter()
        .zip(&nones)
        .flat_map(|(versions, none)| Kind::ALL.map(|kind| (versions, none, kind)))
        .collect();
    let outcomes = parallel::map(&jobs, threads, |(versions, none, kind)| {
        outcome(versions, none, *kind, sizes, &engines)
    })?;
    seen(report, &workloads);
    let grid: Vec<(&str, &[Outcome])> = workloads
        .iter()
        .map(|one| one.name.as_str())
        .zip(outcomes.chunks(Kind::ALL.len()))
        .collect();
    for (place, engine) in engines.iter().enumerate() {
        if PAPERS_ENGINES.contains(&label(engine).as_str()) {
            let factor = |outcome: &Outcome| outcome.factors.get(place).map_or(0.0, |one| one.0);
            checks(report, &label(engine), &grid, &factor, setting.tiny);
        }
    }
    report.table(paper(&grid, &engines));
    for (place, engine) in engines.iter().enumerate() {
        plot(report, engine, &grid, place)?;
    }
    report.table(summary(&grid, &engines));
    for (versions, outcomes) in workloads.iter().zip(outcomes.chunks(Kind::ALL.len())) {
        let caption = format!("{}: mean speed factor of ten versions", versions.name);
        let file = file_name(&versions.name);
        report.table(table(&file, caption, &engines, outcomes, |one| one.0));
        let caption = format!("{}: speed factor of the last version", versions.name);
        let file = format!("{file}-last");
        report.table(table(&file, caption, &engines, outcomes, |one| one.1));
    }
    Ok(())
}

fn outcome(
    versions: &Versions,
    none: &Stored,
    kind: Kind,
    sizes: Sizes,
    engines: &[RestoreEngine],
) -> Result<Outcome> {
    let (policy, stored) = kind.at_loss(versions, sizes, none, LOSS)?;
    let factors = engines.iter().map(|engine| {
        let restored = restore(&stored, sizes, engine)?;
        Ok((mean_speed_factor(&restored), last_speed_factor(&restored)))
    });
    let factors = factors.collect::<Result<_>>()?;
    Ok(Outcome { kind, policy, ratio: stored.ratio(), loss: stored.loss(none), factors })
}

fn seen(report: &mut Report, workloads: &[Versions]) {
    let shares: Vec<String> = workloads
        .iter()
        .map(|one| format!("{} {:.1} %", one.name, one.seen_share() * 100.0))
        .collect();
    let enough = |one: &Versions| one.seen_share() >= 0.93 || one.name == workloads::REAL;
    report.check(
        "at least 93 % of the chunks of each generated workload were seen before",
        workloads.iter().all(enough),
        shares.join(", "),
    );
}

/// The factor of one policy.
fn of(kind: Kind, outcomes: &[Outcome], factor: &dyn Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().find(|outcome| outcome.kind == kind).map_or(0.0, factor)
}

fn checks(
    report: &mut Report,
    engine: &str,
    grid: &[(&str, &[Outcome])],
    factor: &dyn Fn(&Outcome) -> f64,
    tiny: bool,
) {
    // For each workload one policy's factor relative to another's.
    let against = |one: Kind, other: Kind, fragmented: bool| {
        let rows = grid
            .iter()
            .filter(|(_, outcomes)| !fragmented || of(Kind::None, outcomes, factor) <= FRAGMENTED);
        rows.map(|(name, outcomes)| {
            (*name, of(one, outcomes, factor) / of(other, outcomes, factor))
        })
        .collect::<Vec<_>>()
    };
    let list = |ratios: &[(&str, f64)]| {
        ratios.iter().map(|(name, one)| format!("{name} {one:.2}")).collect::<Vec<_>>().join(", ")
    };
    let most = |ratios: &[(&str, f64)]| ratios.iter().map(|one| one.1).fold(0.0, f64::max);
    if engine == PAPERS_ENGINES[0] {
        let gains = against(Kind::Window, Kind::None, true);
        let (window, auto) = if tiny { (1.2, 1.2) } else { (1.97, 1.41) };
        report.check(
            format!("{engine}: LBW is up to {window} times none on fragmented workloads"),
            most(&gains) >= window,
            list(&gains),
        );
        let gains = against(Kind::Auto, Kind::Capping, true);
        report.check(
            format!("{engine}: the default is up to {auto} times capping on fragmented workloads"),
            most(&gains) >= auto,
            list(&gains),
        );
    }
    let least = Kind::ALL.map(|kind| {
        let least = against(kind, Kind::None, false).into_iter().map(|one| one.1);
        (kind.name(), least.fold(f64::INFINITY, f64::min))
    });
    report.check(
        format!("{engine}: no policy is below none anywhere (by more than 2 %)"),
        least.iter().all(|(_, least)| *least >= 0.98),
        format!("at least {}", list(&least)),
    );
    let behind: Vec<(&str, f64)> = grid
        .iter()
        .map(|(name, outcomes)| {
            let best = outcomes.iter().map(factor).fold(0.0, f64::max);
            (*name, of(Kind::Auto, outcomes, factor) / best)
        })
        .collect();
    report.check(
        format!("{engine}: the default is at most 3 % behind the best policy everywhere"),
        behind.iter().all(|(_, share)| *share >= 0.97),
        list(&behind),
    );
    let mean = |kind| {
        let sum: f64 = grid.iter().map(|(_, outcomes)| of(kind, outcomes, factor)).sum();
        sum / grid.len().max(1) as f64
    };
    let means = Kind::ALL.map(|kind| (kind.name(), mean(kind)));
    report.check(
        format!("{engine}: the default is above LBW and FCRC on the mean of all workloads"),
        mean(Kind::Auto) > mean(Kind::Window).max(mean(Kind::Flexible)),
        list(&means),
    );
}

/// What FAST'19 says about Fig. 7, and what is found here.
fn paper(grid: &[(&str, &[Outcome])], engines: &[RestoreEngine]) -> Table {
    let columns = ["engine", "statement", "paper", "here"];
    let mut table = Table::new("paper", "What the paper says of Fig. 7, tested", columns);
    for (place, engine) in engines.iter().enumerate() {
        if !PAPERS_ENGINES.contains(&label(engine).as_str()) {
            continue;
        }
        let factor = |outcome: &Outcome| outcome.factors.get(place).map_or(0.0, |one| one.0);
        let range = |one: Kind, other: Option<Kind>| {
            let ratios = grid.iter().map(|(_, outcomes)| {
                let divisor = other.map_or(1.0, |other| of(other, outcomes, &factor));
                of(one, outcomes, &factor) / divisor
            });
            let (least, most) = ratios.fold((f64::INFINITY, 0.0_f64), |(least, most), one| {
                (least.min(one), most.max(one))
            });
            format!("{least:.2} to {most:.2}")
        };
        let ordered = grid.iter().filter(|(_, outcomes)| {
            let order = [Kind::Window, Kind::Flexible, Kind::Capping, Kind::None];
            order.map(|kind| of(kind, outcomes, &factor)).is_sorted_by(|a, b| a >= b)
        });
        let order = format!("in {} of {} workloads", ordered.count(), grid.len());
        let window = |other| range(Kind::Window, Some(other));
        for (statement, paper, here) in [
            ("speed factor of none", "below 1.3", range(Kind::None, None)),
            ("LBW / none", "up to 1.97", window(Kind::None)),
            ("LBW / capping", "up to 1.41", window(Kind::Capping)),
            ("LBW / FCRC", "up to 1.07", window(Kind::Flexible)),
            ("auto / none", "", range(Kind::Auto, Some(Kind::None))),
            ("auto / capping", "", range(Kind::Auto, Some(Kind::Capping))),
            ("LBW > FCRC > capping > none", "in 6 of 6 traces", order),
        ] {
            let cells = [label(engine), statement.into(), paper.into(), here];
            table.row(cells.map(Cell::text));
        }
    }
    table
}

/// The policies in the order of the workloads, for one engine.
fn plot(
    report: &mut Report,
    engine: &RestoreEngine,
    grid: &[(&str, &[Outcome])],
    place: usize,
) -> Result<()> {
    let names: Vec<String> = grid
        .iter()
        .zip(1..)
        .map(|((name, _), number): (_, u32)| format!("{number} {name}"))
        .collect();
    let series = Kind::ALL.iter().enumerate().map(|(at, kind)| {
        let factor = |outcomes: &&[Outcome]| {
            let factors = outcomes.get(at).and_then(|outcome| outcome.factors.get(place));
            factors.map_or(0.0, |one| one.0)
        };
        let points = grid
            .iter()
            .zip(1..)
            .map(|((_, outcomes), number): (_, u32)| (f64::from(number), factor(outcomes)));
        Series::new(kind.name(), points.collect())
    });
    let title = format!("{}, 7 % of the ratio given up (Fig. 7)", label(engine));
    let y_label = "MB for each container read";
    let chart = LineChart::new(&title, &names.join(", "), y_label, series.collect());
    report.lines(&format!("engine-{}", file_name(&label(engine))), &chart)
}

/// Means over all workloads.
fn summary(grid: &[(&str, &[Outcome])], engines: &[RestoreEngine]) -> Table {
    let mut columns = vec!["policy".to_owned()];
    columns.extend(engines.iter().map(label));
    let caption = "Mean speed factor of all workloads";
    let mut table = Table::new("summary", caption, columns);
    for kind in Kind::ALL {
        let mut row = vec![Cell::text(kind.name())];
        row.extend((0..engines.len()).map(|place| {
            let factor = |one: &Outcome| one.factors.get(place).map_or(0.0, |factors| factors.0);
            let sum: f64 = grid.iter().map(|(_, outcomes)| of(kind, outcomes, &factor)).sum();
            Cell::real(sum / grid.len().max(1) as f64, 3)
        }));
        table.row(row);
    }
    table
}

fn table(
    file: &str,
    caption: String,
    engines: &[RestoreEngine],
    outcomes: &[Outcome],
    of: fn(&(f64, f64)) -> f64,
) -> Table {
    let mut columns = vec!["policy".to_owned(), "asked".into(), "ratio".into(), "loss, %".into()];
    columns.extend(engines.iter().map(label));
    let mut table = Table::new(format!("grid-{file}"), caption, columns);
    for outcome in outcomes {
        let mut row = vec![
            Cell::text(outcome.kind.name()),
            Cell::text(outcome.policy.choice.to_string()),
            Cell::real(outcome.ratio, 2),
            Cell::percent(outcome.loss, 2),
        ];
        row.extend(outcome.factors.iter().map(|factors| Cell::real(of(factors), 3)));
        table.row(row);
    }
    table
}

/// An engine's name, without its memory, which is the same for all.
fn label(engine: &RestoreEngine) -> String {
    match engine {
        RestoreEngine::ForwardAssembly { rolling: true, .. } => "forward, rolling".to_owned(),
        engine => engine.name().to_owned(),
    }
}
