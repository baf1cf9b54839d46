//! How many fingerprints of a bucket are located together: the sweep that conclusion (a) of S0 is
//! about and that the paper does not show (S0.32).

use super::sweep::{Sweep, device};
use super::{Experiment, Setting};
use crate::report::{Cell, Claim, Report, Table};
use crate::source::generator::Preset;
use crate::workload::Workload;
use onefold_types::Result;

const EXPLANATION: &str = "";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "bucket-threshold-sweep",
        claim: "Larger batches need fewer device accesses and more memory accesses, so the best \
                threshold falls as the device gets faster.",
        items: "S0.16, S0.28a, S0.32",
        tolerance: "Device accesses fall from the smallest to the largest threshold; the best \
                    threshold on PM is at most that on the HDD.",
        explanation: EXPLANATION,
    },
    run,
};

const THRESHOLDS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let workload = Workload::generated(Preset::Mirror, setting.tiny)?;
    let largest = if setting.tiny { 32 } else { 512 };
    let thresholds: Vec<usize> = THRESHOLDS.into_iter().filter(|one| *one <= largest).collect();
    let sweep = Sweep::run(&workload, &thresholds, |threshold| workload.lazy(threshold))?;
    let columns = ["device", "best threshold", "time / eager", "time at threshold 1 / best"];
    let mut table = Table::new("best", "The best threshold on each device", columns);
    for one in setting.devices() {
        let (threshold, time) = sweep.best(&one);
        let single = sweep.totals(&one).first().map_or(f64::NAN, |(_, time)| *time);
        table.row([
            Cell::text(one.name.clone()),
            Cell::count(threshold as u64),
            Cell::real(time / sweep.eager_total(&one), 3),
            Cell::real(single / time, 3),
        ]);
    }
    report.table(table);
    let reads = sweep.device_reads();
    report.check(
        "device accesses fall from the smallest to the largest threshold",
        reads.first() > reads.last(),
        reads.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
    let best = |name| device(setting, name).map(|one| sweep.best(&one).0);
    let (slow, fast) = (best("HDD")?, best("PM")?);
    report.check(
        "the best threshold on PM is at most that on the HDD",
        fast <= slow,
        format!("PM {fast}, HDD {slow}"),
    );
    buffers(report, &sweep);
    report.table(sweep.stage_table(setting, "stages", "threshold"));
    let title = "Lazy look-up by bucket threshold";
    sweep.plot(setting, report, "total", title, "bucket threshold")?;
    for (name, file) in [("HDD", "stages-hdd"), ("PM", "stages-pm")] {
        sweep.plot_stages(&device(setting, name)?, report, file, "bucket threshold")?;
    }
    Ok(())
}

/// What large thresholds cost besides time: chunks that wait (S0.33).
fn buffers(report: &mut Report, sweep: &Sweep) {
    let columns = [
        "threshold",
        "fingerprints waiting at most",
        "buckets located",
        "of them not full",
        "fingerprints in a bucket",
        "hits by post-lookup",
    ];
    let mut table = Table::new("buffers", "What waits for a verdict", columns);
    for (threshold, outcome) in sweep.values.iter().zip(&sweep.outcomes) {
        let total = outcome.total();
        let counters = total.counters;
        let buckets = counters.buckets_resolved.max(1) as f64;
        table.row([
            Cell::count(*threshold as u64),
            Cell::count(total.waiting_max),
            Cell::count(counters.buckets_resolved),
            Cell::count(counters.forced_resolves),
            Cell::real(counters.fingerprints_batched as f64 / buckets, 2),
            Cell::count(counters.post_lookup_hits),
        ]);
    }
    report.table(table);
}
