//! How local duplicates are in every workload of the laboratory: the premise of FAST'08.
//!
//! [`crate::locality`] has the definitions.

use super::{Experiment, Setting};
use crate::locality::{DISTANCES, Locality};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::workloads;
use crate::source::data_centre::{DataCentre, Site};
use crate::source::generator::Preset;
use crate::trace::Trace;
use crate::workload::Workload;
use onefold_chunking::ChunkerKind;
use onefold_types::Result;

const EXPLANATION: &str = "\
    A pair is a duplicate and the duplicate before it in the same backup; it is at home if the \
    first occurrences of both went into one container, within k if both were handed in last at \
    most k chunks apart, and a run is a stretch of duplicates that directly followed each other \
    then, too. A backup follows the last one, so that neighbours were neighbours nearly \
    everywhere. Where they are stored is another matter: homes stay what they were, and after \
    many backups with small changes in many places neighbours have different ones. The scattered \
    workload, which is made to be as fragmented as can be, stays below the bound for that reason: \
    the fragmentation that the paper leaves aside (S1.41). Real data are less orderly than any \
    generated workload, half of their runs being one or two chunks, though the median duplicate \
    stands in a run of about a hundred; why is not measured. Nowhere are fewer pairs at home \
    than 50 times those by chance. The bounds were set before the first run.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "duplicate-locality",
        claim: "In every workload, duplicates come again next to what they stood next to before.",
        items: "S1.19, S1.41",
        tolerance: "In every workload at least 80 % of pairs are at home and as many times 10 as \
                    by chance, at least 90 % were next to each other, and runs are 16 chunks long \
                    on average. Without the comparison with chance where chance is above 8 %, \
                    which few containers make it.",
        explanation: EXPLANATION,
    },
    run,
};

/// Least shares of pairs.
const AT_HOME_MIN: f64 = 0.8;
const NEXT_MIN: f64 = 0.9;
/// The least mean length of runs.
const RUN_MIN: f64 = 16.0;
/// How many times more pairs are at home than by chance, where that is possible.
const CHANCE_TIMES: f64 = 10.0;

/// A workload that is counted.
enum Source {
    /// Of the experiments on look-up.
    Workload(Workload),
    /// A data centre.
    Centre(DataCentre),
    /// Of the experiments on restoring.
    Versions(crate::rewriting::versions::Versions),
}

struct Counted {
    name: String,
    locality: Locality,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sources = sources(setting)?;
    let container_chunks = if setting.tiny { 256 } else { 1024 };
    let counted = parallel::map(&sources, parallel::threads(), |source| {
        let (name, locality) = match source {
            Source::Workload(one) => {
                (one.name.clone(), Locality::of(&*one.trace, one.container_chunks)?)
            }
            Source::Centre(one) => (one.name().to_owned(), Locality::of(one, container_chunks)?),
            Source::Versions(one) => {
                let locality = Locality::of_versions(one, container_chunks);
                (format!("{}, versions", one.name), locality)
            }
        };
        Ok(Counted { name, locality })
    })?;
    counted.iter().for_each(|one| checks(report, one));
    let aged = if setting.tiny { ", those of the aged and the scattered workload 128" } else { "" };
    report.text(format!(
        "Containers have {container_chunks} chunks{aged}. Workloads called versions are those of \
         the experiments on restoring, the others those of the experiments on look-up; the data \
         centres are those of data-centres, seed 1."
    ));
    report.table(pairs_table(&counted));
    report.table(runs_table(&counted));
    let of_many = counted.iter().filter(|one| one.locality.backups().len() >= 20);
    let series = of_many.map(|one| {
        let backups = one.locality.backups().iter();
        let points = backups.filter_map(|(backup, pairs)| {
            Some((f64::from(*backup), 100.0 * pairs.at_home_share()?))
        });
        Series::new(one.name.clone(), points.collect())
    });
    let title = "Pairs at home, by backup";
    let chart = LineChart::new(title, "backup", "pairs at home, %", series.collect());
    report.lines("at-home", &chart)
}

fn sources(setting: &Setting) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for preset in Preset::ALL {
        sources.push(Source::Workload(Workload::generated(preset, setting.tiny)?));
    }
    if let Some(data) = &setting.data {
        sources.push(Source::Workload(Workload::real(data, ChunkerKind::Rabin, 8192)?));
    }
    for site in Site::ALL {
        sources.push(Source::Centre(DataCentre::new(site, 1, setting.tiny)?));
    }
    let versions = workloads::all(setting.tiny, setting.data.as_deref())?;
    sources.extend(versions.into_iter().map(Source::Versions));
    Ok(sources)
}

fn checks(report: &mut Report, one: &Counted) {
    let Counted { name, locality } = one;
    let pairs = locality.pairs();
    let share = |count: u64| count as f64 / pairs.count.max(1) as f64;
    let (home, chance) = (share(pairs.at_home), locality.chance());
    let is_compared = chance * CHANCE_TIMES <= AT_HOME_MIN;
    report.check(
        format!("{name}: neighbours are at home together"),
        home >= AT_HOME_MIN && (!is_compared || home >= CHANCE_TIMES * chance),
        format!("{:.1} %, by chance {:.1} %", home * 100.0, chance * 100.0),
    );
    let [next, ..] = pairs.within;
    let run = locality.mean_run();
    report.check(
        format!("{name}: neighbours were neighbours"),
        share(next) >= NEXT_MIN && run >= RUN_MIN,
        format!("{:.1} %, runs of {run:.0} on average", share(next) * 100.0),
    );
}

fn pairs_table(counted: &[Counted]) -> Table {
    let mut columns = vec!["workload".to_owned(), "duplicates, %".into(), "pairs".into()];
    columns.extend(["at home, %", "last backup, %", "by chance, %"].map(str::to_owned));
    columns.extend(DISTANCES.map(|distance| format!("within {distance}, %")));
    let caption = "A duplicate and the one before it: one container, and distance when last seen";
    let mut table = Table::new("pairs", caption, columns);
    for Counted { name, locality } in counted {
        let pairs = locality.pairs();
        let share = |count: u64| Cell::percent(count as f64 / pairs.count.max(1) as f64, 2);
        let last = locality.backups().values().next_back().and_then(|pairs| pairs.at_home_share());
        let mut row = vec![
            Cell::text(name.clone()),
            Cell::percent(locality.duplicate_share(), 1),
            Cell::count(pairs.count),
            share(pairs.at_home),
            last.map_or(Cell::Missing, |share| Cell::percent(share, 2)),
            Cell::percent(locality.chance(), 2),
        ];
        row.extend(pairs.within.map(share));
        table.row(row);
    }
    table
}

fn runs_table(counted: &[Counted]) -> Table {
    let columns = [
        "workload",
        "median",
        "mean",
        "90th percentile",
        "99th percentile",
        "run of the median duplicate",
    ];
    let caption = "Lengths of runs of duplicates in their earlier order, in chunks";
    let mut table = Table::new("runs", caption, columns);
    for Counted { name, locality } in counted {
        table.row([
            Cell::text(name.clone()),
            Cell::count(locality.run_quantile(0.5)),
            Cell::real(locality.mean_run(), 1),
            Cell::count(locality.run_quantile(0.9)),
            Cell::count(locality.run_quantile(0.99)),
            Cell::count(locality.run_of_median_duplicate()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_local_in_every_generated_workload_but_the_scattered_one() {
        let setting = Setting { tiny: true, ..Setting::default() };
        let report = EXPERIMENT.run(&setting).unwrap();
        let failing = report.checks().iter().filter(|check| !check.holds);
        let failing: Vec<&str> = failing.map(|check| check.what.as_str()).collect();
        assert_eq!(failing, ["scattered: neighbours are at home together"]);
        // Six presets, two data centres, three workloads of versions.
        assert_eq!(report.checks().len(), 2 * 11);
    }
}
