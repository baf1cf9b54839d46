//! Version by version: Fig. 8 of FAST'19.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::{Kind, Way};
use crate::rewriting::restored::{Restored, adaptive, forward_assembly, papers_adaptive, restore};
use crate::rewriting::{Sizes, workloads};
use onefold_types::Result;

const EXPLANATION: &str = "\
    No drop at version 5 as in the paper: the generator ages its data evenly, and the lines mostly \
    fall most from the first version, which lies in order, to the second. With forward assembly \
    LBW is the best in no version but the first, in which all are equal: FCRC is ahead of it \
    throughout, and from version 8 on capping is. With ALACC and the paper's look-ahead of eight \
    containers it is the best of the paper's policies up to version 9, by 0.5 to 5 %, and 2 % \
    behind capping in the tenth; with a look-ahead that grows to 64 it is the best in all ten, in \
    versions 3, 8 and 10 with both bounds only. That holds whether capping and FCRC choose among \
    copies or take the newest; at this loss the two differ by 2 % at most, for there are few \
    copies in this workload. All lines fall, because each version tears more than 7 % pays for, \
    and how they fall depends on when a policy spends. What the store may lose grows with it from \
    version to version; FCRC, LBW and the default spend it as it comes and are ahead in the first \
    half. Capping knows no loss, does nothing while few containers are used, and pays in later \
    versions what it saved in earlier ones: at an equal loss over ten versions its mean is lower, \
    and its last version is as good. With both bounds LBW restores as fast for a loss of 5 % as \
    with a loss alone for 7; the bisection found nothing between 5 and 7.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "versions-restore",
        claim: "Without rewriting versions restore more and more slowly; with it, at 7 % of the \
                ratio, the last one restores at least one and a half times as fast.",
        items: "S2.38",
        tolerance: "With all three engines: without rewriting the factor falls to half at most; \
                    no way of rewriting is below none in the last version, and LBW and the \
                    default are at least 1.5 times none there (tiny: 1.25).",
        explanation: EXPLANATION,
    },
    run,
};

/// The ratio loss of S2.37.
const LOSS: f64 = 0.07;

/// Lines of the figure.
const WAYS: [Way; 9] = [
    Way::of(Kind::None),
    Way::of(Kind::Capping).newest(),
    Way::of(Kind::Capping),
    Way::of(Kind::Flexible).newest(),
    Way::of(Kind::Flexible),
    Way::of(Kind::Window),
    Way::of(Kind::Window).reads(14),
    Way::of(Kind::Window).reads(14).by_version(),
    Way::of(Kind::Auto),
];

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::PAPER;
    let versions = workloads::papers_example(setting.tiny)?;
    let none = ingest(&versions, sizes, &Kind::None.with_loss(0.0))?;
    let stores = parallel::map(&WAYS, parallel::threads(), |way| {
        Ok(way.at_loss(&versions, sizes, &none, LOSS)?.1)
    })?;
    report.text(format!(
        "The workload is {}. In the paper all lines drop at version 5, where its trace becomes \
         more fragmented, and LBW is the best in all ten versions.",
        versions.name
    ));
    let columns = ["engine", "statement", "paper", "here"];
    let mut paper = Table::new("paper", "What the paper says of Fig. 8, tested", columns);
    for (engine, name, title) in [
        (forward_assembly(sizes), "forward", "Forward assembly (Fig. 8a)"),
        (papers_adaptive(sizes), "adaptive-8", "ALACC, look-ahead of 8 containers (Fig. 8b)"),
        (adaptive(sizes), "adaptive-64", "ALACC, look-ahead that grows to 64 containers"),
    ] {
        let restored = stores
            .iter()
            .map(|stored| restore(stored, sizes, &engine))
            .collect::<Result<Vec<_>>>()?;
        checks(report, name, &restored, if setting.tiny { 1.25 } else { 1.5 });
        statements(&mut paper, name, &restored);
        report.table(table(name, title, &stores, &none, &restored));
        let series = WAYS.iter().zip(&restored).map(|(way, restored)| {
            let points = restored
                .iter()
                .map(|one| (f64::from(one.generation + 1), one.speed_factor()))
                .collect();
            Series::new(way.name(), points)
        });
        let chart =
            LineChart::new(title, "version", "MB for each container read", series.collect());
        report.lines(name, &chart)?;
    }
    report.table(paper);
    Ok(())
}

/// What FAST'19 says about Fig. 8, and what is found here.
fn statements(table: &mut Table, engine: &str, restored: &[Vec<Restored>]) {
    let factors: Vec<Vec<f64>> = restored
        .iter()
        .map(|versions| versions.iter().map(Restored::speed_factor).collect())
        .collect();
    // The version in which a line falls most, as a share of what it was.
    let drop = |line: &Vec<f64>| {
        let falls = line.iter().zip(line.iter().skip(1)).zip(2..);
        let falls = falls.map(|((before, after), version)| (after / before, version));
        falls.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, version)| version)
    };
    let drops: Vec<String> = factors.iter().map(|line| drop(line).to_string()).collect();
    let best = |at: usize, wanted: &dyn Fn(&Way) -> bool| {
        let lines = WAYS.iter().zip(&factors).filter(|(way, _)| wanted(way));
        lines.filter_map(|(_, line)| line.get(at)).copied().fold(0.0, f64::max)
    };
    let versions = factors.first().map_or(0, Vec::len);
    let count = |newest: bool| {
        let is_ahead = |at: &usize| {
            let theirs = |way: &Way| {
                matches!(way.kind, Kind::Capping | Kind::Flexible)
                    && way.knows_newest_only == newest
            };
            best(*at, &|way| way.kind == Kind::Window) >= best(*at, &theirs)
        };
        format!("in {} of {versions}", (0..versions).filter(is_ahead).count())
    };
    for (statement, paper, here) in [
        ("each line falls most at version", "5", drops.join(", ")),
        ("LBW is best, baselines with the newest copy", "in 10 of 10", count(true)),
        ("LBW is best, greedy baselines", "", count(false)),
    ] {
        table.row([engine.to_owned(), statement.into(), paper.into(), here].map(Cell::text));
    }
}

fn checks(report: &mut Report, engine: &str, restored: &[Vec<Restored>], least: f64) {
    let last = |one: &Vec<Restored>| one.last().map_or(0.0, Restored::speed_factor);
    let lasts: Vec<f64> = restored.iter().map(last).collect();
    let list: Vec<String> =
        WAYS.iter().zip(&lasts).map(|(way, one)| format!("{} {one:.3}", way.name())).collect();
    let none = lasts.first().copied().unwrap_or_default();
    report.check(
        format!("{engine}: no way of rewriting is below none in the last version"),
        lasts.iter().all(|last| *last >= none),
        list.join(", "),
    );
    let of = |wanted: Kind| {
        let found = WAYS.iter().zip(&lasts).find(|(way, _)| **way == Way::of(wanted));
        found.map_or(0.0, |(_, last)| last / none)
    };
    let (window, auto) = (of(Kind::Window), of(Kind::Auto));
    report.check(
        format!("{engine}: LBW and the default are at least {least} times none there"),
        window.min(auto) >= least,
        format!("{window:.2} and {auto:.2} times"),
    );
    let factors = restored.first().map_or(&[][..], Vec::as_slice);
    let (first, last) = (factors.first(), factors.last());
    let factor = |one: Option<&Restored>| one.map_or(0.0, Restored::speed_factor);
    report.check(
        format!(
            "{engine}: without rewriting the last version is at most half as fast as the first"
        ),
        2.0 * factor(last) <= factor(first),
        format!("from {:.3} to {:.3}", factor(first), factor(last)),
    );
}

fn table(
    file: &str,
    title: &str,
    stores: &[Stored],
    none: &Stored,
    restored: &[Vec<Restored>],
) -> Table {
    let mut columns = vec!["version".to_owned()];
    columns.extend(
        WAYS.iter().zip(stores).map(|(way, stored)| {
            format!("{} ({:.2} % lost)", way.name(), stored.loss(none) * 100.0)
        }),
    );
    let mut table = Table::new(file, format!("{title}: speed factor"), columns);
    for place in 0..restored.first().map_or(0, Vec::len) {
        let mut row = vec![Cell::count(place as u64 + 1)];
        row.extend(restored.iter().map(|restored| {
            restored.get(place).map_or(Cell::Missing, |one| Cell::real(one.speed_factor(), 3))
        }));
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_38_versions_restore_ever_more_slowly_and_rewriting_slows_that_down() {
        let (sizes, versions) = (Sizes::PAPER, workloads::papers_example(true).unwrap());
        let line = |kind: Kind, loss| {
            let stored = ingest(&versions, sizes, &kind.with_loss(loss)).unwrap();
            let restored = restore(&stored, sizes, &forward_assembly(sizes)).unwrap();
            restored.iter().map(Restored::speed_factor).collect::<Vec<_>>()
        };
        let none = line(Kind::None, 0.0);
        assert!(none.is_sorted_by(|before, after| *after <= 1.02 * before), "{none:?}");
        assert!(2.0 * none[9] <= none[0], "{none:?}");
        for kind in [Kind::Flexible, Kind::Window, Kind::Auto] {
            let own = line(kind, 0.1);
            assert!(own[0] == none[0] && own[9] >= 1.2 * none[9], "{}: {own:?}", kind.name());
        }
    }
}
