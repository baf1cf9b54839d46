//! Version by version: Fig. 8 of FAST'19.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::Kind;
use crate::rewriting::restored::{Restored, adaptive, forward_assembly, restore};
use crate::rewriting::{Sizes, workloads};
use onefold_types::Result;

const EXPLANATION: &str = "\
    No drop at version 5 as in the paper: the generator ages its data evenly. All lines fall, \
    because each version tears more than 7 % pays for, and how they fall depends on when a policy \
    spends. What the store may lose grows with it from version to version; FCRC, LBW and the \
    default spend it as it comes and are ahead in the first half. Capping knows no loss, does \
    nothing while few containers are used, and pays in later versions what it saved in earlier \
    ones: at an equal loss over ten versions its mean is lower, and its last version is as good. \
    Who only restores the newest version should look at the last line.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "versions-restore",
        claim: "Without rewriting versions restore more and more slowly; with it, at 7 % of the \
                ratio, the last one restores at least one and a half times as fast.",
        items: "S2.38",
        tolerance: "With both engines: without rewriting the factor falls to half at most; no way \
                    of rewriting is below none in the last version, and LBW and the default are \
                    at least 1.5 times none there (tiny: 1.25).",
        explanation: EXPLANATION,
    },
    run,
};

/// The ratio loss of S2.37.
const LOSS: f64 = 0.07;

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::PAPER;
    let versions = workloads::papers_example(setting.tiny)?;
    let none = ingest(&versions, sizes, &Kind::None.with_loss(0.0))?;
    let stores = parallel::map(&Kind::ALL, parallel::threads(), |kind| {
        Ok(kind.at_loss(&versions, sizes, &none, LOSS)?.1)
    })?;
    report.text(format!(
        "The workload is {}. In the paper all lines drop at version 5, where its trace becomes \
         more fragmented, and LBW is the best in all ten versions.",
        versions.name
    ));
    for (engine, name, title) in [
        (forward_assembly(sizes), "forward", "Forward assembly (Fig. 8a)"),
        (adaptive(sizes), "adaptive", "ALACC (Fig. 8b)"),
    ] {
        let restored = stores
            .iter()
            .map(|stored| restore(stored, sizes, &engine))
            .collect::<Result<Vec<_>>>()?;
        checks(report, name, &restored, if setting.tiny { 1.25 } else { 1.5 });
        report.table(table(name, title, &stores, &none, &restored));
        let series = Kind::ALL.iter().zip(&restored).map(|(kind, restored)| {
            let points = restored
                .iter()
                .map(|one| (f64::from(one.generation + 1), one.speed_factor()))
                .collect();
            Series::new(kind.name(), points)
        });
        let chart =
            LineChart::new(title, "version", "MB for each container read", series.collect());
        report.lines(name, &chart)?;
    }
    Ok(())
}

fn checks(report: &mut Report, engine: &str, restored: &[Vec<Restored>], least: f64) {
    let last = |one: &Vec<Restored>| one.last().map_or(0.0, Restored::speed_factor);
    let lasts: Vec<f64> = restored.iter().map(last).collect();
    let list: Vec<String> = Kind::ALL
        .iter()
        .zip(&lasts)
        .map(|(kind, one)| format!("{} {one:.3}", kind.name()))
        .collect();
    let none = lasts.first().copied().unwrap_or_default();
    report.check(
        format!("{engine}: no way of rewriting is below none in the last version"),
        lasts.iter().all(|last| *last >= none),
        list.join(", "),
    );
    let of = |wanted: Kind| {
        let found = Kind::ALL.iter().zip(&lasts).find(|(kind, _)| **kind == wanted);
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
    columns.extend(Kind::ALL.iter().zip(stores).map(|(kind, stored)| {
        format!("{} ({:.2} % lost)", kind.name(), stored.loss(none) * 100.0)
    }));
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
