//! Which chunks give what compression saves, and what leaving the others out gives in time.

use super::{Experiment, Setting};
use crate::primary::file_server::FileServer;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::source::tree;
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_engine::primary::estimate::kind::{class_of, kind_of};
use onefold_format::codec::{Compression, Compressor};
use onefold_policy::selective_compression::{excess, is_worth_compressing};
use onefold_types::error::Context;
use onefold_types::{Error, Result, limits};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const EXPLANATION: &str = "\
    What compresses little is not all noise: archives of many small members and images have \
    stretches that repeat, which a look at how often each byte value occurs does not see. So what \
    is left out is not free: of archives the savings are small, and the look gives up a part of \
    them for most of the time. Where savings are spread evenly, as in source texts, half of the \
    bytes cannot give much more than half of them. The compressors themselves stride over noise: \
    the time that is spared on ordinary data is little, and with LZ4 there is none.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "selective-compression",
        claim: "Half of the chunks give most of what compression saves; a look at 4 KiB finds \
                those that do not compress and spares their time.",
        items: "S4.24",
        tolerance: "The half of the unique chunks that compresses best gives at least 86 % of the \
                    savings; looking first keeps at least 99.5 % of the savings at every level, \
                    and takes at most 2 % more time where everything compresses.",
        explanation: EXPLANATION,
    },
    run,
};

/// What a store puts into a frame.
const FRAME_BYTES: usize = limits::FRAME_PLAIN_TARGET_BYTES;
/// The compressors that are asked: those that are used, and a slow one.
const LEVELS: [Compression; 3] = [Compression::Lz4, Compression::Zstd(2), Compression::Zstd(9)];
/// The place of the default among them.
const DEFAULT_LEVEL: usize = 1;
/// Other bounds of the look, as parts of what noise has.
const BOUNDS: [(f64, &str); 6] = [
    (0.25, "1/4"),
    (0.125, "1/8"),
    (0.0625, "1/16"),
    (0.03125, "1/32"),
    (0.02, "1/50"),
    (0.0125, "1/80"),
];
/// Classes of files that are compressed already.
const PACKED: [&str; 4] = ["archives", "audio and video", "documents, packed", "images"];
/// Ways to decide.
const WAYS: [&str; 3] = ["look at 4 KiB", "kind of file", "try 16 KiB with lz4"];
const TRIED_BYTES: usize = 16 << 10;

/// What a compressor does with frames: all of them, and those that each way leaves to it.
#[derive(Clone, Copy, Default)]
struct Spent {
    nanoseconds: u64,
    saved_bytes: u64,
}

/// Everything that was measured.
#[derive(Default)]
struct Measured {
    frames: u64,
    bytes: u64,
    all: [Spent; LEVELS.len()],
    chosen: [[Spent; WAYS.len()]; LEVELS.len()],
    deciding: [Spent; WAYS.len()],
    left_out_bytes: [u64; WAYS.len()],
    /// With the default compressor, what each bound leaves to it, and the bytes that it leaves out.
    bounds: [(Spent, u64); BOUNDS.len()],
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let server = FileServer::new(setting.data.as_deref(), if setting.tiny { 60 } else { 600 })?;
    cumulative(&server, report, setting.tiny)?;
    let mut bench = Bench::new(if setting.tiny { 2 } else { LEVELS.len() })?;
    for path in tree::files(server.root())? {
        bench.file(server.root(), &path)?;
    }
    let measured = &bench.measured;
    report.table(ways(measured, bench.compressors.len()));
    report.table(bounds(measured));
    checks(report, measured, bench.compressors.len(), setting.tiny);
    Ok(())
}

/// S4.24 as the paper has it: chunks of 64 KiB, those that compress best first.
fn cumulative(server: &FileServer, report: &mut Report, is_tiny: bool) -> Result<()> {
    let found = server.estimate(&[64 * limits::KIB], Compression::default())?;
    let Some(size) = found.sizes.first() else { return Ok(()) };
    let curve = size.tally.compression_curve();
    let chunks = curve.len().max(1) as f64;
    let columns = ["unique chunks, %", "their bytes, %", "of compression's savings, %"];
    let mut table = Table::new("cumulative", "Savings by the chunks that give them", columns);
    for tenth in 1..=10 {
        if let Some((bytes, saved)) = curve.get((curve.len() * tenth / 10).saturating_sub(1)) {
            let cells = [tenth as f64 / 10.0, *bytes, *saved];
            table.row(cells.map(|share| Cell::percent(share, 1)));
        }
    }
    report.table(table);
    let step = curve.len().div_ceil(200).max(1);
    let point = |(number, (_, saved)): (usize, &(f64, f64))| {
        ((number + 1) as f64 / chunks * 100.0, saved * 100.0)
    };
    let points = curve.iter().enumerate().step_by(step).map(point).collect();
    let lines = vec![Series::new("chunks of 64 KiB", points)];
    let (x, y) = ("unique chunks, best first, %", "of the savings, %");
    report.lines("cumulative", &LineChart::new("What compression saves", x, y, lines))?;
    let saved = |(_, saved): &(f64, f64)| *saved;
    let half = curve.get((curve.len() / 2).saturating_sub(1)).map_or(0.0, saved);
    let stiff = curve.iter().filter(|point| saved(point) >= 1.0).count().saturating_sub(1);
    let (half_of_bytes, stiff_bytes) = size.compressibility;
    let figures = format!(
        "{:.1} % (half of the bytes: {:.1} %); {:.1} % of the chunks, {:.1} % of the bytes do not \
         shrink by 3 %",
        half * 100.0,
        half_of_bytes * 100.0,
        stiff as f64 / chunks * 100.0,
        stiff_bytes * 100.0
    );
    // What is made up has the halves it was given.
    let enough = if is_tiny { 0.5 } else { 0.86 };
    let what = format!("the better half gives {:.0} % of the savings", enough * 100.0);
    report.check(what, half >= enough, figures);
    Ok(())
}

struct Bench {
    compressors: Vec<Compressor>,
    lz4: Compressor,
    fingerprinter: Fingerprinter,
    seen: HashSet<u64>,
    coded: Vec<u8>,
    measured: Measured,
}

impl Bench {
    fn new(levels: usize) -> Result<Self> {
        let levels = LEVELS.iter().take(levels);
        Ok(Self {
            compressors: levels.map(|level| Compressor::new(*level)).collect::<Result<_>>()?,
            lz4: Compressor::new(Compression::Lz4)?,
            fingerprinter: Fingerprinter::new(HashKind::Blake3, None),
            seen: HashSet::new(),
            coded: Vec::new(),
            measured: Measured::default(),
        })
    }

    fn file(&mut self, root: &Path, path: &Path) -> Result<()> {
        let whole = root.join(path);
        let what = || whole.display().to_string();
        let mut input = std::fs::File::open(&whole).context(what)?;
        let kind = kind_of(path.as_os_str().as_bytes()).unwrap_or_default();
        let is_packed = PACKED.contains(&class_of(&kind));
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        loop {
            frame.clear();
            let limited = &mut (&mut input).take(FRAME_BYTES as u64);
            if limited.read_to_end(&mut frame).context(what)? == 0 {
                return Ok(());
            }
            if self.seen.insert(self.fingerprinter.data(&frame).prefix()) {
                self.frame(&frame, is_packed)?;
            }
        }
    }

    fn frame(&mut self, frame: &[u8], is_packed: bool) -> Result<()> {
        let bytes = frame.len() as u64;
        let (looked, look_ns) = timed(|| Ok(is_worth_compressing(frame)))?;
        let lz4 = &mut self.lz4;
        let tried = &mut self.coded;
        let (tried, try_ns) = timed(|| {
            let sample = frame.get(..TRIED_BYTES).unwrap_or(frame);
            lz4.compress(sample, tried)?;
            Ok(tried.len() < sample.len())
        })?;
        let decisions = [(looked, look_ns), (!is_packed, 0), (tried, try_ns)];
        self.measured.frames += 1;
        self.measured.bytes += bytes;
        for (way, (is_worth, nanoseconds)) in decisions.into_iter().enumerate() {
            self.measured.deciding[way].nanoseconds += nanoseconds;
            self.measured.left_out_bytes[way] += if is_worth { 0 } else { bytes };
        }
        for (level, compressor) in self.compressors.iter_mut().enumerate() {
            let coded = &mut self.coded;
            let ((), nanoseconds) = timed(|| {
                coded.clear();
                compressor.compress(frame, coded).map(drop)
            })?;
            let saved_bytes = bytes.saturating_sub(coded.len() as u64);
            let add = |sum: &mut Spent| {
                sum.nanoseconds += nanoseconds;
                sum.saved_bytes += saved_bytes;
            };
            add(&mut self.measured.all[level]);
            let excess = excess(frame).unwrap_or(f64::INFINITY);
            for (bound, sum) in BOUNDS.iter().zip(&mut self.measured.bounds) {
                match (level == DEFAULT_LEVEL, excess > bound.0) {
                    (true, true) => add(&mut sum.0),
                    (true, false) => sum.1 += bytes,
                    (false, _) => {}
                }
            }
            for (way, (is_worth, _)) in decisions.into_iter().enumerate() {
                if is_worth {
                    add(&mut self.measured.chosen[level][way]);
                }
            }
        }
        Ok(())
    }
}

/// What something takes of the processor.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let now = || -> Result<u64> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec)
            .map_err(|_| Error::invalid("the clock of the thread is before its beginning"))
    };
    let begun = now()?;
    let done = work()?;
    Ok((done, now()?.saturating_sub(begun)))
}

/// The share of the savings that a way keeps at a level, and of the time that it takes.
fn shares(measured: &Measured, level: usize, way: usize) -> (f64, f64) {
    let (all, chosen) = (measured.all[level], measured.chosen[level][way]);
    let spent = chosen.nanoseconds + measured.deciding[way].nanoseconds;
    let kept = match all.saved_bytes {
        0 => 1.0,
        saved => chosen.saved_bytes as f64 / saved as f64,
    };
    (kept, spent as f64 / all.nanoseconds.max(1) as f64)
}

fn ways(measured: &Measured, levels: usize) -> Table {
    let columns = [
        "compression",
        "MB/s of all",
        "saved by all, %",
        "left out by",
        "bytes left out, %",
        "savings kept, %",
        "CPU, % of all",
    ];
    let caption = "Frames of up to 256 KiB: what leaving some out keeps and takes";
    let mut table = Table::new("ways", caption, columns);
    for (level, compression) in LEVELS.iter().enumerate().take(levels) {
        let all = measured.all[level];
        let bytes = measured.bytes.max(1) as f64;
        for (way, name) in WAYS.iter().enumerate() {
            let (kept, time) = shares(measured, level, way);
            table.row([
                Cell::text(compression.to_string()),
                Cell::real(bytes * 1e3 / all.nanoseconds.max(1) as f64, 0),
                Cell::percent(all.saved_bytes as f64 / bytes, 2),
                Cell::text(*name),
                Cell::percent(measured.left_out_bytes[way] as f64 / bytes, 2),
                Cell::percent(kept, 3),
                Cell::percent(time, 1),
            ]);
        }
    }
    table
}

fn bounds(measured: &Measured) -> Table {
    let columns = ["bound", "bytes left out, %", "savings kept, %", "CPU, % of all"];
    let caption = "The look with other bounds, with the default compression";
    let mut table = Table::new("bounds", caption, columns);
    let all = measured.all[DEFAULT_LEVEL];
    for ((_, name), (kept, left_out)) in BOUNDS.iter().zip(&measured.bounds) {
        let spent = kept.nanoseconds + measured.deciding[0].nanoseconds;
        table.row([
            Cell::text(*name),
            Cell::percent(*left_out as f64 / measured.bytes.max(1) as f64, 2),
            Cell::percent(kept.saved_bytes as f64 / all.saved_bytes.max(1) as f64, 3),
            Cell::percent(spent as f64 / all.nanoseconds.max(1) as f64, 1),
        ]);
    }
    table
}

fn checks(report: &mut Report, measured: &Measured, levels: usize, is_tiny: bool) {
    let all: Vec<(f64, f64)> = (0..levels).map(|level| shares(measured, level, 0)).collect();
    let kept = all.iter().map(|share| share.0).fold(1.0, f64::min);
    report.check(
        "looking first keeps at least 99.5 % of the savings at every level",
        kept >= 0.995,
        format!(
            "{:.3} % at least, {:.1} % of the bytes left out, {} frames",
            kept * 100.0,
            measured.left_out_bytes[0] as f64 / measured.bytes.max(1) as f64 * 100.0,
            measured.frames
        ),
    );
    // A busy machine tells nothing of times that are so short.
    let most = all.iter().map(|share| share.1).fold(0.0, f64::max);
    report.check(
        "looking first takes at most 2 % more time",
        most <= 1.02 || is_tiny,
        format!("{:.1} % of the time at most", most * 100.0),
    );
}
