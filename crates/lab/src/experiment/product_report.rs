//! One report of one store: what the papers measure one by one, of the same data (SX.7).
//!
//! FAST'08 reports ratios, look-ups and MB/s (Tables 1 to 4, Figs. 8 and 9), FAST'19 speed factors,
//! FAST'17 what marking and copying cost, ATC'12 the memory of an index; each of other data. Here
//! the product backs up generations of the same data into one store on this machine's disk,
//! restores each of them, forgets the older half, collects, and restores what is left. All of it is
//! in one table, and what the collection did in a second one.
//!
//! | module | does |
//! | --- | --- |
//! | [`data`] | data sets: directories, and an image that is made |
//! | [`measuring`] | backups, restores, a collection, and what they took |

mod data;
mod measuring;

use self::data::Data;
use self::measuring::{Collected, Generation, Measured, measure};
use super::{Experiment, Setting};
use crate::product::Spread;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use onefold_policy::rewrite::LOSS_DEFAULT;
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    Two cores were shared with much other work, so that times say next to nothing; figures are \
    medians of three stores, which take turns. The files are in the page cache; every file is \
    read, since each generation is another directory; the newest has 5,161 of them. Look-ups keep \
    the bound, 0.90 and 0.84 % at most, with the accesses that show that bases of differences are \
    there. The image missed it with 1.31 % before: a section that had been read for that was read \
    again when a look-up found chunks in its container. Each generation finds its duplicates in \
    more containers than the one before, and each of these is one read. Of the files most requests \
    are for bases, up to 13 a MB. Speed factors fall as fragments add up, and rewriting slows that \
    down but does not end it (see product-throughput); what differences are made of counts as it \
    is read. A collection, which copies in the order of the newest snapshots, raises them by 1.3 \
    to 1.9 times of the files and 1.1 to 1.9 times of the image, there most for the newest; the \
    clock shows that for the files only. Marking takes a tenth of copying, or less. The \
    collector's account of what is live agrees with a new store of the same generations within 4 \
    %. It stops at the default goal, 5 % unused, and writes 0.57 and 0.76 bytes for each that it \
    frees: of the image, a sixth of which is new each day, more live chunks stand beside dead \
    ones. The index is counted with all of its pieces loaded and with its tables. The physical \
    ratio is plain bytes over everything in the store, index and records included.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "product-report",
        claim: "On the same data the default settings together give what each is there for: few \
                reads for look-ups, a small index, cheap rewriting, restores that stay fast, and \
                collections that leave little unused and write less than they free.",
        items: "SX.7",
        tolerance: "For each data set: every byte restored is the one saved, before the collection \
                    and after it; look-ups read the device for at most one chunk in 100 of any \
                    generation; the index takes at most 2 bytes of memory a chunk; what is stored \
                    again is at most the default loss; after the collection at most 7 % more \
                    is stored than what is live, and it has written less than it freed; the newest \
                    generation's speed factor is at least 0.95 times what it was. In the tiny \
                    form, in which a container is most of a store, one chunk in 50 and one \
                    container more for the newest generation, and nothing is said of the index and \
                    of what the collection wrote.",
        explanation: EXPLANATION,
    },
    run,
};

/// A chunk in so many may cost the device a read.
const READS_SHARE_MAX: f64 = 0.01;
const INDEX_BYTES_MAX: f64 = 2.0;
/// The default loss of the deduplication ratio, and what rounding adds to it.
const REWRITTEN_MAX: f64 = LOSS_DEFAULT + 0.001;
/// The default goal, 5 % of what is live, and what a container more or less makes of it.
const SPACE_MAX: f64 = 1.07;
const FACTOR_MIN: f64 = 0.95;

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    report.text(format!(
        "Memory limit {} MiB, {} threads, standard store. Ratios and reads are those of the first \
         store; times are medians of as many stores as there are rounds, which take turns.",
        limits::MEMORY_LIMIT_DEFAULT_BYTES >> 20,
        crate::parallel::threads(),
    ));
    for data in [Data::files(setting)?, Data::image(setting)?] {
        let measured = measure(&data, if setting.tiny { 1 } else { 3 })?;
        checks(setting, report, &data, &measured);
        report.table(generations(&data, &measured));
        report.table(collection(&data, &measured));
        plot(report, &data, &measured)?;
    }
    Ok(())
}

fn checks(setting: &Setting, report: &mut Report, data: &Data, measured: &Measured) {
    let Measured { generations, collected, .. } = measured;
    let name = data.name();
    let left = generations.iter().filter(|generation| generation.after.is_some()).count();
    report.check(
        format!("{name}: every byte restored is the one saved"),
        measured.compared == generations.iter().chain(&generations[..left]).count(),
        format!("{} generations, and {left} after the collection", generations.len()),
    );
    let share = |one: &Generation| one.device_reads as f64 / one.lookups.max(1) as f64;
    let shares = Spread::of(generations.iter().map(share));
    let most = if setting.tiny { 2.0 * READS_SHARE_MAX } else { READS_SHARE_MAX };
    report.check(
        format!("{name}: look-ups read the device for one chunk in 100 at most"),
        shares.greatest <= most,
        format!("{:.2} to {:.2} %", shares.least * 100.0, shares.greatest * 100.0),
    );
    let index = generations.last().map_or(f64::NAN, |last| last.index_bytes_a_chunk);
    if !setting.tiny {
        report.check(
            format!("{name}: the index takes 2 bytes of memory a chunk at most"),
            index <= INDEX_BYTES_MAX,
            format!("{index:.2} bytes"),
        );
    }
    let sum = |of: fn(&Generation) -> u64| generations.iter().map(of).sum::<u64>() as f64;
    let again = sum(|one| one.rewritten_bytes);
    let share = again / (again + sum(|one| one.new_bytes));
    report.check(
        format!("{name}: what is stored again is at most the loss that is allowed"),
        share <= REWRITTEN_MAX,
        format!("{:.2} % of what is stored", share * 100.0),
    );
    let of = |of: fn(&Collected) -> f64| Spread::of(collected.iter().map(of));
    let (before, after) = (of(|one| one.space_before), of(|one| one.space_after));
    report.check(
        format!("{name}: a collection leaves at most 7 % more than what is live"),
        after.greatest <= SPACE_MAX && after.greatest < before.least,
        format!("{:.3} times what is live before, {:.3} after", before.median, after.median),
    );
    if !setting.tiny {
        let writes = of(Collected::written_a_byte_freed);
        report.check(
            format!("{name}: a collection writes less than it frees"),
            writes.greatest < 1.0,
            format!(
                "{:.2} bytes a byte ({:.2} to {:.2})",
                writes.median, writes.least, writes.greatest
            ),
        );
    }
    let newest = generations.last().map_or(f64::NAN, |one| {
        one.after.as_ref().map_or(f64::NAN, |after| after.speed_factor) / one.before.speed_factor
    });
    // Six containers instead of five.
    let least = if setting.tiny { 5.0 / 6.0 } else { FACTOR_MIN };
    report.check(
        format!("{name}: the newest generation reads as well after the collection"),
        newest >= least,
        format!("{newest:.2} times the speed factor before"),
    );
}

fn generations(data: &Data, measured: &Measured) -> Table {
    let columns = [
        "generation",
        "MB",
        "deduplication, this generation",
        "deduplication, so far",
        "physical ratio, so far",
        "look-ups a MB",
        "device reads for them a MB",
        "all read requests a MB",
        "index, bytes of memory a chunk",
        "ingest MB/s",
        "least",
        "greatest",
        "speed factor, MiB a container",
        "restore MB/s",
        "after the collection: speed factor",
        "restore MB/s after it",
    ];
    let caption = format!("{}: {}", data.name(), data.description());
    let mut table = Table::new(format!("report-{}", data.name()), caption, columns);
    let (mut plain, mut distinct) = (0, 0);
    for (number, one) in measured.generations.iter().enumerate() {
        plain += one.bytes;
        distinct += one.new_bytes;
        let megabytes = one.bytes as f64 / 1e6;
        let ingest = Spread::of(one.ingest.iter().map(|took| took.speed(one.bytes)));
        let speed = |restored: &measuring::Restored| {
            Spread::of(restored.took.iter().map(|took| took.speed(one.bytes))).median
        };
        table.row([
            Cell::count(number as u64),
            Cell::real(megabytes, 1),
            Cell::real(one.bytes as f64 / one.new_bytes.max(1) as f64, 1),
            Cell::real(plain as f64 / distinct as f64, 2),
            Cell::real(plain as f64 / one.store_bytes as f64, 2),
            Cell::real(one.lookups as f64 / megabytes, 1),
            Cell::real(one.device_reads as f64 / megabytes, 3),
            Cell::real(one.read_requests as f64 / megabytes, 2),
            Cell::real(one.index_bytes_a_chunk, 2),
            Cell::real(ingest.median, 0),
            Cell::real(ingest.least, 0),
            Cell::real(ingest.greatest, 0),
            Cell::real(one.before.speed_factor, 2),
            Cell::real(speed(&one.before), 0),
            one.after.as_ref().map_or(Cell::Missing, |after| Cell::real(after.speed_factor, 2)),
            one.after.as_ref().map_or(Cell::Missing, |after| Cell::real(speed(after), 0)),
        ]);
    }
    table
}

fn collection(data: &Data, measured: &Measured) -> Table {
    let caption = format!(
        "{}: the collection after the older {} of {} generations are forgotten",
        data.name(),
        measured.forgotten,
        measured.generations.len()
    );
    let columns = ["figure", "median", "least", "greatest"];
    let mut table = Table::new(format!("collection-{}", data.name()), caption, columns);
    let mut row = |name: &str, decimals: usize, of: fn(&Collected) -> f64| {
        let Spread { median, least, greatest } = Spread::of(measured.collected.iter().map(of));
        let cells = [median, least, greatest].map(|value| Cell::real(value, decimals));
        table.row([Cell::text(name)].into_iter().chain(cells));
    };
    row("marking, ms", 1, |one| one.mark_seconds * 1e3);
    row("copying, ms", 1, |one| one.copy_seconds * 1e3);
    row("all of it, ms", 1, |one| one.took.wall_seconds * 1e3);
    row("processors", 2, |one| one.took.processors());
    row("containers before, MB", 1, |one| one.stored_before as f64 / 1e6);
    row("containers after, MB", 1, |one| one.stored_after as f64 / 1e6);
    row("space amplification before: stored over live", 3, |one| one.space_before);
    row("space amplification after", 3, |one| one.space_after);
    row("before, over a new store of what is left", 3, |one| {
        one.stored_before as f64 / one.fresh_bytes as f64
    });
    row("after, over a new store of what is left", 3, |one| {
        one.stored_after as f64 / one.fresh_bytes as f64
    });
    row("copied, MB", 1, |one| one.copied_bytes as f64 / 1e6);
    row("written in all, MB", 1, |one| one.written_bytes as f64 / 1e6);
    row("freed, MB", 1, |one| one.freed_bytes as f64 / 1e6);
    row("write amplification: bytes written for each freed", 3, Collected::written_a_byte_freed);
    table
}

fn plot(report: &mut Report, data: &Data, measured: &Measured) -> Result<()> {
    let factors = |of: &dyn Fn(&Generation) -> Option<f64>| {
        let each = measured.generations.iter().enumerate();
        each.filter_map(|(at, one)| Some((at as f64, of(one)?))).collect()
    };
    let series = vec![
        Series::new("before", factors(&|one| Some(one.before.speed_factor))),
        Series::new("after", factors(&|one| Some(one.after.as_ref()?.speed_factor))),
    ];
    let title = format!("Speed factor by generation, {}", data.name());
    let chart = LineChart::new(&title, "generation", "MiB for each container read", series);
    report.lines(&format!("speed-{}", data.name()), &chart)
}
