//! The length of the locality ring: Figures 7 and 8 and Table 5 of S0.

use super::sweep::{Sweep, device};
use super::{Experiment, Setting};
use crate::report::{Cell, Claim, Report, Table};
use crate::workload::Workload;
use onefold_types::Result;

const EXPLANATION: &str = "\
    The shape is the paper's: longer rings need fewer device accesses and more post-lookups, and \
    the best ring is shorter where the device is fast: 2048 on the hard disk, 256 on Optane, 16 \
    on PM (paper: 512, 64, 32), with the whole ring looked for 1024, 512 and 2. The slope is \
    flatter than the paper's, because here there are as many buckets as fill; with a bucket for \
    each block, as in published-lookup, it is steep. A post-lookup within reach (S0.7) looks \
    only at the ranks that the prefetched container can have, so a ring of 2048 costs 0.7 % on \
    PM. With differences that small, and one trace, the optima are no more than a tendency; the \
    three seeds of published-lookup are more. What Table 5 gives for the hard disk (68.82 s) is \
    less than the device part of Table 4 alone (69.36 s; S0.31): it is compared with eager \
    look-up's total here as in the paper.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "ring-sweep",
        claim: "Longer rings trade device accesses for post-lookups, so the best ring is shorter \
                the faster the device is.",
        items: "S0.16, S0.21, S0.26, S0.27, S0.28b",
        tolerance: "Device accesses fall and post-lookups rise from the shortest to the longest \
                    ring; the filter's share is the same for all; no faster device has a longer \
                    best ring than the HDD.",
        explanation: EXPLANATION,
    },
    run,
};

/// S0.21; one is added, which is lazy look-up without post-lookups (S0.16).
pub(super) const RINGS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 256, 512, 1024, 2048];
/// Table 5: device, best ring, seconds.
const TABLE_5: [(&str, u64, f64); 3] =
    [("HDD", 512, 68.82), ("Optane SSD", 64, 19.22), ("PM", 32, 18.44)];

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let workload = Workload::papers_images(setting.tiny, 4.0)?;
    let longest = workload.container_chunks;
    let rings: Vec<usize> = RINGS.into_iter().filter(|ring| *ring <= longest).collect();
    let threshold = workload.bucket_threshold;
    let sweep = Sweep::run(setting, &workload, &rings, |ring| (ring, threshold))?;
    best_rings(setting, report, &sweep)?;
    shape(setting, report, &sweep)?;
    report.table(sweep.stage_table(setting, "stages", "ring"));
    let title = "Lazy look-up by length of the locality ring (Fig. 7b, 8a)";
    sweep.plot(setting, report, "total", title, "ring length")?;
    for (name, file) in
        [("HDD", "stages-hdd"), ("Optane SSD", "stages-optane"), ("PM", "stages-pm")]
    {
        sweep.plot_stages(&device(setting, name)?, report, file, "ring length")?;
    }
    Ok(())
}

fn best_rings(setting: &Setting, report: &mut Report, sweep: &Sweep) -> Result<()> {
    let columns = [
        "device",
        "as shipped / eager",
        "best ring",
        "whole ring: best ring",
        "paper's best ring",
        "time / eager",
        "whole ring: time / eager",
        "paper's time / eager",
        "time at the longest ring / best",
    ];
    let mut table = Table::new("best", "The best ring on each device (Table 5)", columns);
    // S0.31: what Table 5 gives for the HDD is less than Table 4's device part alone.
    let eager = [("HDD", 179.49), ("Optane SSD", 18.25), ("PM", 15.54)];
    for (place, one) in setting.devices().into_iter().enumerate() {
        let (ring, time) = sweep.best(&one);
        let (ring_published, published) = sweep.best_published(&one);
        let paper = TABLE_5.iter().find(|(name, ..)| *name == one.name);
        let paper_eager = eager.iter().find(|(name, _)| *name == one.name);
        let longest = sweep.totals(&one).last().map_or(f64::NAN, |(_, time)| *time);
        table.row([
            Cell::text(one.name.clone()),
            Cell::real(sweep.shipped_total(place, &one) / sweep.eager_total(&one), 3),
            Cell::count(ring as u64),
            Cell::count(ring_published as u64),
            paper.map_or(Cell::Missing, |(_, ring, _)| Cell::count(*ring)),
            Cell::real(time / sweep.eager_total(&one), 3),
            Cell::real(published / sweep.eager_total(&one), 3),
            paper
                .zip(paper_eager)
                .map_or(Cell::Missing, |((.., best), (_, eager))| Cell::real(best / eager, 3)),
            Cell::real(longest / time, 3),
        ]);
    }
    report.table(table);
    let slowest = sweep.best(&device(setting, "HDD")?).0;
    let bests: Vec<String> =
        setting.devices().iter().map(|one| format!("{} {}", one.name, sweep.best(one).0)).collect();
    let none_longer = setting.devices().iter().all(|one| sweep.best(one).0 <= slowest);
    report.check("no device has a longer best ring than the HDD", none_longer, bests.join(", "));
    Ok(())
}

fn shape(setting: &Setting, report: &mut Report, sweep: &Sweep) -> Result<()> {
    let reads = sweep.device_reads();
    report.check(
        "device accesses fall from the shortest to the longest ring",
        reads.first() > reads.last(),
        reads.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
    let posts: Vec<u64> =
        sweep.outcomes.iter().map(|outcome| outcome.total().counters.post_lookups).collect();
    report.check(
        "post-lookups rise from the shortest to the longest ring",
        posts.first() < posts.last(),
        posts.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
    let hdd = device(setting, "HDD")?;
    let filters = sweep.outcomes.iter().map(|outcome| outcome.stages(&hdd).filter_ns as f64);
    let (least, most) = filters
        .fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(one), most.max(one)));
    report.check(
        "the filter takes the same time with every ring",
        most / least < 1.02,
        format!("{:.4} times at most", most / least),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::published_lookup;
    use super::*;

    #[test]
    fn s0_21_every_ring_of_the_paper_is_swept() {
        let papers = [2, 4, 8, 16, 32, 64, 512, 1024, 2048];
        for rings in [RINGS, published_lookup::RINGS] {
            assert!(papers.iter().all(|ring| rings.contains(ring)), "{rings:?}");
        }
        // Rings are swept up to the fingerprints of a container.
        assert_eq!(Workload::IMAGES.1, 2048);
    }
}
