//! Basic against regression chunking: sizes, forced cuts against the formula, and savings by class
//! of files (ATC'12, regression chunking performance).

use super::{Experiment, Setting};
use crate::primary::dataset::{DataSet, Roots};
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::source::content;
use crate::source::tree::Reader;
use onefold_chunking::ChunkerParameters;
use onefold_policy::primary::partition::{FileClass, Partitioning};
use onefold_types::Result;

const EXPLANATION: &str = "\
    The formula (1 - 2^-(|P| - k))^(max - min) describes random data; chunks of a stream agree \
    with it. With minimum, average and maximum of 32, 64 and 128 KiB |P| is 15: 5.0 % for k = 0, \
    0.25 % for k = 1, which is the slides' 2e-3, 6e-6 for k = 2 and 1.4e-21 for k = 4, where the \
    slides say 1e-14. Exponents double with every bit, so both figures of the slides cannot come \
    from the same sizes. Real data are not random: wherever few different windows of 48 bytes \
    occur (runs, tables, sparse pages) no pattern matches however short it is, and forced cuts \
    remain at every k. They do no harm there: equal runs give equal chunks. Regression cuts by \
    content what the basic chunker cuts by force, so the spike at the maximum goes, but the sizes \
    between do not become uniform: a reserve is the last weak match, so it adds chunks just below \
    the maximum. What it gains in savings is small wherever files are smaller than the maximum or \
    come again whole, as here. The paper's gain for PDF (27 %) was not to be had: there are no \
    such files here.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "regression-chunking",
        claim: "Regression leaves hardly any forced cut, so that sizes have no spike at the \
                maximum, and saves as much as basic chunking or more.",
        items: "S4.9, S4.10, S4.11, S4.12",
        tolerance: "On random data forced cuts are within 30 % of the formula, or within five of \
                    it where fewer than 40 are expected; on every data set k = 4 leaves at most \
                    half of the forced cuts of k = 0; all together k = 4 saves no less than k = \
                    0.",
        explanation: EXPLANATION,
    },
    run,
};

/// The paper's savings: data, basic, regression, in percent.
const PAPER: [(&str, f64, f64); 5] = [
    ("Audio-Video", 2.98, 2.98),
    ("PDF", 9.96, 12.70),
    ("Office-2007", 35.82, 36.65),
    ("VHD", 48.64, 51.39),
    ("GFS-US", 36.14, 37.2),
];
const DEPTHS: [u8; 5] = [0, 1, 2, 3, 4];
/// Bins of the histogram below the maximum.
const BINS: usize = 32;

/// Sizes of the chunks of a data set.
#[derive(Clone, Debug, Default)]
struct Sizes {
    /// Chunks by content or by force, and their bytes. Ends of files are not among them.
    cut: u64,
    bytes: u64,
    squares: f64,
    /// Chunks that reached the maximum.
    forced: u64,
    /// Chunks that could have.
    could: u64,
    /// Ends of files.
    ends: u64,
    bins: Vec<u64>,
}

impl Sizes {
    fn of(set: &DataSet, max: u32) -> Self {
        let mut sizes = Self { bins: vec![0; BINS], ..Self::default() };
        for file in &set.files {
            let lengths = file.chunks.iter().map(|chunk| chunk.length_bytes);
            sizes.add(&lengths.collect::<Vec<_>>(), max);
        }
        sizes
    }

    fn add(&mut self, lengths: &[u32], max: u32) {
        let mut left: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        for length in lengths {
            let length = *length;
            self.could += u64::from(left >= u64::from(max));
            left -= u64::from(length);
            if left == 0 && length < max {
                self.ends += 1;
                continue;
            }
            self.cut += 1;
            self.bytes += u64::from(length);
            self.squares += f64::from(length).powi(2);
            self.forced += u64::from(length == max);
            let bin = (length as usize * BINS / max as usize).min(BINS - 1);
            if let Some(count) = self.bins.get_mut(bin).filter(|_| length < max) {
                *count += 1;
            }
        }
    }

    fn mean(&self) -> f64 {
        self.bytes as f64 / self.cut.max(1) as f64
    }

    fn deviation(&self) -> f64 {
        (self.squares / self.cut.max(1) as f64 - self.mean().powi(2)).max(0.0).sqrt()
    }

    fn forced_share(&self) -> f64 {
        self.forced as f64 / self.could.max(1) as f64
    }

    /// The share of the chunks in the lowest eighth between minimum and maximum.
    fn small_share(&self, parameters: &ChunkerParameters) -> f64 {
        let (min, max) = (parameters.size_min_bytes, parameters.size_max_bytes);
        let below = (min + (max - min) / 8) * BINS / max;
        self.bins.iter().take(below).sum::<u64>() as f64 / self.cut.max(1) as f64
    }
}

/// The formula of S4.10.
fn forced_by_formula(parameters: &ChunkerParameters, depth: u8) -> f64 {
    let spread = parameters.size_avg_bytes - parameters.size_min_bytes;
    let bits = f64::from(spread.ilog2()) - f64::from(depth);
    let places = parameters.size_max_bytes - parameters.size_min_bytes;
    (1.0 - (-bits).exp2()).powf(places as f64)
}

/// All data sets under one depth.
struct Cut {
    depth: u8,
    parameters: ChunkerParameters,
    random: Sizes,
    /// The data sets, then all of them together.
    sets: Vec<DataSet>,
    sizes: Vec<Sizes>,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut roots = Roots::of(setting)?;
    let random_chunks = if setting.tiny { 4000 } else { 6000 };
    let mut random = Vec::new();
    content::append(1, random_chunks * roots.parameters.size_avg_bytes, 1.0, &mut random)?;
    let mut cuts = Vec::new();
    for depth in DEPTHS {
        roots.parameters.regression_depth = depth;
        let parameters = roots.parameters.clone();
        let max = u32::try_from(parameters.size_max_bytes).unwrap_or(u32::MAX);
        let chunks = Reader::new(&parameters)?.chunks(&mut random.as_slice())?;
        let lengths: Vec<u32> = chunks.iter().map(|chunk| chunk.length_bytes).collect();
        let mut random = Sizes { bins: vec![0; BINS], ..Sizes::default() };
        random.add(&lengths, max);
        let mut sets = roots.read()?;
        sets.push(DataSet::together("all together", &sets));
        let sizes = sets.iter().map(|set| Sizes::of(set, max)).collect();
        cuts.push(Cut { depth, parameters, random, sets, sizes });
    }
    forced(report, &cuts);
    histogram(report, &cuts)?;
    savings(report, &cuts, setting.tiny);
    Ok(())
}

fn forced(report: &mut Report, cuts: &[Cut]) {
    let columns = [
        "data",
        "k",
        "chunks",
        "mean, bytes",
        "deviation, bytes",
        "small, %",
        "forced, %",
        "by the formula, %",
        "ends of files",
    ];
    let caption =
        "Sizes of chunks, ends of files left out; small: in the lowest eighth of the range";
    let mut table = Table::new("sizes", caption, columns);
    let names = cuts.first().map(|cut| cut.sets.iter().map(|set| set.name.clone()));
    let names: Vec<String> = names.into_iter().flatten().collect();
    let cases = (0..names.len()).map(Some).chain([None]);
    for case in cases {
        let of =
            |cut: &'_ Cut| case.map_or(Some(cut.random.clone()), |n| cut.sizes.get(n).cloned());
        let name = case.and_then(|case| names.get(case)).map_or("random", String::as_str);
        for cut in cuts {
            let (Some(sizes), formula) = (of(cut), forced_by_formula(&cut.parameters, cut.depth))
            else {
                continue;
            };
            table.row([
                Cell::text(name),
                Cell::count(cut.depth.into()),
                Cell::count(sizes.cut),
                Cell::real(sizes.mean(), 0),
                Cell::real(sizes.deviation(), 0),
                Cell::percent(sizes.small_share(&cut.parameters), 2),
                Cell::percent(sizes.forced_share(), 4),
                Cell::text(format!("{:.2e}", formula * 100.0)),
                Cell::count(sizes.ends),
            ]);
            if case.is_none() {
                let expected = formula * sizes.could as f64;
                let off = (sizes.forced as f64 - expected).abs();
                report.check(
                    format!("random data, k = {}: forced cuts follow the formula", cut.depth),
                    off <= if expected < 40.0 {
                        5.0_f64.max(expected * 0.7)
                    } else {
                        expected * 0.3
                    },
                    format!("{} of {}, {expected:.1} expected", sizes.forced, sizes.could),
                );
            }
        }
        if let (Some(basic), Some(best)) = (cuts.first().and_then(of), cuts.last().and_then(of)) {
            report.check(
                format!("{name}: k = 4 leaves at most half of the forced cuts"),
                best.forced * 2 <= basic.forced,
                format!("{} of {}", best.forced, basic.forced),
            );
        }
    }
    report.table(table);
}

/// How sizes are distributed over all data, with k = 0 and k = 4.
fn histogram(report: &mut Report, cuts: &[Cut]) -> Result<()> {
    let ends = [cuts.first(), cuts.last()].map(|cut| cut.and_then(|cut| cut.sizes.last()));
    let ([Some(basic), Some(best)], Some(cut)) = (ends, cuts.first()) else {
        return Ok(());
    };
    let bin_kib = cut.parameters.size_max_bytes as f64 / BINS as f64 / 1024.0;
    let columns = ["from, KiB", "basic, % of chunks", "regression, % of chunks"];
    let caption = "Distribution of sizes, all data together; the last row is the maximum itself";
    let mut table = Table::new("histogram", caption, columns);
    let share = |sizes: &Sizes, count: u64| count as f64 / sizes.cut.max(1) as f64;
    let mut points = [Vec::new(), Vec::new()];
    for bin in 0..=BINS {
        let count = |sizes: &Sizes| sizes.bins.get(bin).copied().unwrap_or(sizes.forced);
        let shares = [share(basic, count(basic)), share(best, count(best))];
        let from = bin as f64 * bin_kib;
        table.row([Cell::real(from, 2), Cell::percent(shares[0], 2), Cell::percent(shares[1], 2)]);
        for (points, share) in points.iter_mut().zip(shares) {
            points.push((from, share * 100.0));
        }
    }
    report.table(table);
    let [basic, best] = points;
    let series = vec![Series::new("basic, k = 0", basic), Series::new("regression, k = 4", best)];
    let chart = LineChart::new("Sizes of chunks, all data together", "KiB", "% of chunks", series);
    report.lines("histogram", &chart)
}

fn savings(report: &mut Report, cuts: &[Cut], tiny: bool) {
    let columns =
        ["data", "MB", "k = 0, %", "k = 1, %", "k = 2, %", "k = 3, %", "k = 4, %", "benefit, %"];
    let caption = "Bytes saved by duplicates; classes of files within all data together";
    let mut table = Table::new("savings", caption, columns);
    let mut row = |name: &str, of: &dyn Fn(&Cut) -> Option<DataSet>| {
        let sets: Vec<DataSet> = cuts.iter().filter_map(of).collect();
        let Some(bytes) = sets.first().map(DataSet::bytes).filter(|bytes| *bytes > 0) else {
            return Vec::new();
        };
        let whole = Partitioning::Whole;
        let saved: Vec<f64> = sets.iter().map(|set| set.saved_within(&whole)).collect();
        let mut cells = vec![Cell::text(name), Cell::real(bytes as f64 / 1e6, 1)];
        cells.extend(saved.iter().map(|saved| Cell::percent(*saved, 2)));
        let ends = saved.first().zip(saved.last());
        cells.push(ends.map_or(Cell::Missing, |(from, to)| Cell::percent(to / from - 1.0, 1)));
        table.row(cells);
        saved
    };
    let names = cuts.first().map(|cut| cut.sets.iter().map(|set| set.name.clone()));
    let mut last = Vec::new();
    for (number, name) in names.into_iter().flatten().enumerate() {
        last = row(&name, &|cut| cut.sets.get(number).cloned());
    }
    for class in FileClass::ALL {
        row(class.name(), &|cut| {
            let all = cut.sets.last()?;
            let of_class = all.files.iter().filter(|file| FileClass::of(&file.path) == class);
            Some(DataSet { name: String::new(), files: of_class.cloned().collect() })
        });
    }
    for (name, basic, regression) in PAPER {
        let mut cells = vec![Cell::text(format!("paper's {name}")), Cell::Missing];
        cells.extend([Cell::real(basic, 2), Cell::Missing, Cell::Missing, Cell::Missing]);
        cells.extend([Cell::real(regression, 2), Cell::percent(regression / basic - 1.0, 1)]);
        table.row(cells);
    }
    report.table(table);
    if let Some((basic, best)) = last.first().zip(last.last()) {
        // A few edited files decide in the tiny form.
        let slack = if tiny { 0.01 } else { 0.0 };
        report.check(
            "all together: k = 4 saves no less than k = 0",
            *best >= basic - slack,
            format!("{:.2} and {:.2} %", best * 100.0, basic * 100.0),
        );
    }
}
