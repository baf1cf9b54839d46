//! A trace of somebody's own, looked up with every strategy on every device.

use crate::device::Device;
use crate::parallel;
use crate::report::{Cell, Table};
use crate::simulation::{IndexSetup, Outcome, Setup};
use crate::trace::{GenerationTotals, Summary, Trace};
use onefold_engine::index::IndexMode;
use onefold_policy::FilterOrder;
use onefold_policy::lookup::{LazyParameters, LookupStrategy, SampledParameters};
use onefold_types::Result;
use std::fmt::Write;

/// The cache that traces are replayed with: what a process of 256 MiB gives it.
const CACHE_BYTES: usize = 54 << 20;

/// Replays a trace and shows what it holds, and what look-ups cost.
///
/// # Errors
/// The trace is damaged or cannot be read.
pub fn compare(trace: &dyn Trace, devices: &[Device]) -> Result<String> {
    let total = Summary::of(trace)?.total();
    let lazy = LazyParameters::default();
    let strategies = [
        ("eager, cache first", LookupStrategy::Eager(FilterOrder::CacheFirst)),
        ("eager, filter first", LookupStrategy::Eager(FilterOrder::FilterFirst)),
        ("lazy", LookupStrategy::Lazy(lazy)),
        ("lazy, second look", LookupStrategy::SecondLook(lazy)),
        ("sampled", LookupStrategy::Sampled(SampledParameters::default())),
    ];
    let outcomes = parallel::map(&strategies, parallel::threads(), |(_, strategy)| {
        let setup = Setup::new(*strategy, CACHE_BYTES);
        let mode = match strategy {
            LookupStrategy::Sampled(_) => IndexMode::Sampled,
            _ => IndexMode::Exact,
        };
        Setup { index: IndexSetup { mode, ..setup.index }, ..setup }.run(trace)
    })?;
    let named: Vec<(&str, Outcome)> =
        strategies.into_iter().map(|(name, _)| name).zip(outcomes).collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, &total, devices, &named);
    Ok(text)
}

fn write_text(
    text: &mut String,
    total: &GenerationTotals,
    devices: &[Device],
    outcomes: &[(&str, Outcome)],
) -> std::fmt::Result {
    let GenerationTotals { chunks, bytes, chunks_new, .. } = total;
    let ratio = total.ratio();
    writeln!(text, "{chunks} chunks, {bytes} bytes, {chunks_new} unique chunks, {ratio:.2} : 1\n")?;
    let mut columns = vec!["strategy".to_owned(), "device accesses".into(), "found, %".into()];
    columns.extend(devices.iter().map(|device| format!("{} s", device.name)));
    let mut table = Table::new("replay", "Virtual seconds of look-ups", columns);
    for (name, outcome) in outcomes {
        let sum = outcome.total();
        let mut row = vec![
            Cell::text(*name),
            Cell::count(sum.counters.device_reads()),
            Cell::percent(sum.found_share(), 2),
        ];
        let seconds = |device| outcome.stages(device).total_ns() as f64 / 1e9;
        row.extend(devices.iter().map(|device| Cell::real(seconds(device), 3)));
        table.row(row);
    }
    writeln!(text, "{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::generator::{Generator, Preset};

    #[test]
    fn every_strategy_is_shown_on_every_device() {
        let trace = Generator::preset(Preset::Primary, 300).unwrap();
        let text = compare(&trace, &Device::modelled()).unwrap();
        for part in ["chunks", "eager, cache first", "second look", "sampled", "HDD s", "PM s"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(
            text.matches("| 100.00 |").count() >= 4,
            "exact strategies find everything\n{text}"
        );
    }
}
