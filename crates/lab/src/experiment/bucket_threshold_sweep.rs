//! How many fingerprints of a bucket are located together: the sweep that conclusion (a) of S0 is
//! about and that the paper does not show (S0.32).

use super::sweep::{Sweep, device};
use super::{Experiment, Setting};
use crate::report::{Cell, Claim, Report, Table};
use crate::workload::{SHIPPED, Workload};
use onefold_types::Result;

const EXPLANATION: &str = "\
    The paper draws conclusion (a), smaller batches on faster devices, from its model and shows \
    no sweep. It is right: 512, the largest tried, is best on the hard disk, 128 and 16 on \
    Optane with 4 and 8 bits, 4 and 1 on PM; with the whole ring looked for after each hit 512, \
    32 and 8, 4 and 1. Larger batches save accesses of the device to the \
    end, but for one threshold with 8 bits, and what they cost is post-lookups and chunks that \
    wait. An earlier report had its best on the hard disk at 32 and 2, and said that larger \
    batches read again what has come into the cache meanwhile. That is **withdrawn**: a bucket \
    was several accesses then, and the more of them the longer its chunks had waited. Buckets \
    that do not fill are made fewer and longer, so the accesses of large thresholds read more \
    bytes, which this table does not count; that of lengths in lookup-devices does.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "bucket-threshold-sweep",
        claim: "Batches need fewer device accesses and more memory accesses, so the best threshold \
                falls as the device gets faster.",
        items: "S0.16, S0.28a, S0.32",
        tolerance: "Some threshold above 1 needs fewer device accesses than 1; the best threshold \
                    on PM is at most that on the HDD.",
        explanation: EXPLANATION,
    },
    run,
};

const THRESHOLDS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Bits of the filter for each unique chunk: it lets 4 % of the new chunks pass, or 0.5 %.
const BITS: [f64; 2] = [4.0, 8.0];

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let largest = if setting.tiny { 16 } else { 512 };
    let thresholds: Vec<usize> = THRESHOLDS.into_iter().filter(|one| *one <= largest).collect();
    for bits in BITS {
        let workload = Workload::papers_images(setting.tiny, bits)?;
        let ring = workload.container_chunks;
        let sweep = Sweep::run(setting, &workload, &thresholds, |threshold| (ring, threshold))?;
        best(setting, report, &workload, &sweep);
        checks(setting, report, &workload, &sweep)?;
        buffers(setting, report, &workload, &sweep);
        let title = format!("Lazy look-up by bucket threshold, {}", workload.name);
        sweep.plot(setting, report, &format!("total-{bits}-bits"), &title, "bucket threshold")?;
        if bits == BITS[0] {
            report.table(sweep.stage_table(setting, "stages", "threshold"));
            for (name, file) in [("HDD", "stages-hdd"), ("PM", "stages-pm")] {
                let device = device(setting, name)?;
                sweep.plot_stages(&device, report, file, "bucket threshold")?;
            }
        }
    }
    Ok(())
}

fn best(setting: &Setting, report: &mut Report, workload: &Workload, sweep: &Sweep) {
    let columns = [
        "device",
        "as shipped / eager",
        "best threshold",
        "whole ring: best threshold",
        "time / eager",
        "whole ring: time / eager",
        "time at threshold 1 / best",
    ];
    let file = format!("best-{}", workload.file_name());
    let caption = format!("{}: the best threshold on each device", workload.name);
    let mut table = Table::new(file, caption, columns);
    for (place, one) in setting.devices().into_iter().enumerate() {
        let (threshold, time) = sweep.best(&one);
        let (threshold_published, published) = sweep.best_published(&one);
        let single = sweep.totals(&one).first().map_or(f64::NAN, |(_, time)| *time);
        table.row([
            Cell::text(one.name.clone()),
            Cell::real(sweep.shipped_total(place, &one) / sweep.eager_total(&one), 3),
            Cell::count(threshold as u64),
            Cell::count(threshold_published as u64),
            Cell::real(time / sweep.eager_total(&one), 3),
            Cell::real(published / sweep.eager_total(&one), 3),
            Cell::real(single / time, 3),
        ]);
    }
    report.table(table);
}

fn checks(
    setting: &Setting,
    report: &mut Report,
    workload: &Workload,
    sweep: &Sweep,
) -> Result<()> {
    let name = &workload.name;
    let best = |name| device(setting, name).map(|one| sweep.best(&one).0);
    let (slow, fast) = (best("HDD")?, best("PM")?);
    report.check(
        format!("{name}: the best threshold on PM is at most that on the HDD"),
        fast <= slow,
        format!("PM {fast}, HDD {slow}"),
    );
    let reads = sweep.device_reads();
    let least = reads.iter().min();
    report.check(
        format!("{name}: a batch of some size needs fewer device accesses than none"),
        least < reads.first(),
        reads.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
    Ok(())
}

/// What large thresholds cost besides time: chunks that wait (S0.33).
fn buffers(setting: &Setting, report: &mut Report, workload: &Workload, sweep: &Sweep) {
    let columns = [
        "threshold",
        "fingerprints waiting at most",
        "buckets located",
        "of them not full",
        "fingerprints in a bucket",
        "hits by post-lookup",
    ];
    let file = format!("buffers-{}", workload.file_name());
    let caption = format!("{}: what waits for a verdict", workload.name);
    let mut table = Table::new(file, caption, columns);
    let names = setting.devices().into_iter().map(|one| format!("{SHIPPED} on {}", one.name));
    let shipped = names.map(Cell::text).zip(&sweep.shipped);
    let swept = sweep.values.iter().map(|threshold| Cell::count(*threshold as u64));
    for (threshold, outcome) in shipped.chain(swept.zip(&sweep.outcomes)) {
        let total = outcome.total();
        let counters = total.counters;
        let buckets = counters.buckets_resolved.max(1) as f64;
        table.row([
            threshold,
            Cell::count(total.waiting_max),
            Cell::count(counters.buckets_resolved),
            Cell::count(counters.forced_resolves),
            Cell::real(counters.fingerprints_batched as f64 / buckets, 2),
            Cell::count(counters.post_lookup_hits),
        ]);
    }
    report.table(table);
}
