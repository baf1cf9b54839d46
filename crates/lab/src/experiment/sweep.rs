//! What the sweeps over one parameter of lazy look-up have in common: a table and a plot of stage
//! times for each device, and where the best value lies. Beside each value stands what it does if
//! the whole ring is looked for after each hit, and before all of them the product as it is.

use super::{Setting, seconds_per_million};
use crate::device::Device;
use crate::parallel;
use crate::report::{Cell, LineChart, Report, Scale, Series, Table};
use crate::simulation::{Outcome, Setup};
use crate::workload::{Workload, eager};
use onefold_types::Result;

/// A swept parameter with what came of each value.
pub struct Sweep {
    /// The values.
    pub values: Vec<usize>,
    /// What came of each.
    pub outcomes: Vec<Outcome>,
    /// What came of each with post-lookups as published.
    pub published: Vec<Outcome>,
    /// What the product does on each device of the setting.
    pub shipped: Vec<Outcome>,
    /// Eager look-up on the same trace, filter first.
    pub eager: Outcome,
}

impl Sweep {
    /// Runs lazy look-up with the ring and the threshold of each value, eager look-up, and the
    /// product.
    pub fn run(
        setting: &Setting,
        workload: &Workload,
        values: &[usize],
        parameters: impl Fn(usize) -> (usize, usize),
    ) -> Result<Self> {
        let [(_, eager), _] = eager();
        let mut setups = vec![workload.setup(eager)];
        for (ring, threshold) in values.iter().map(|value| parameters(*value)) {
            setups.push(workload.setup(workload.lazy_with(ring, threshold)));
            setups.push(workload.setup(workload.published(ring, threshold)));
        }
        for device in setting.devices() {
            setups.push(workload.as_shipped(&device)?);
        }
        let run = |setup: &Setup| setup.run(&*workload.trace);
        let mut found = parallel::map(&setups, parallel::threads(), run)?.into_iter();
        let eager = found.next().unwrap_or_default();
        let (mut outcomes, mut published) = (Vec::new(), Vec::new());
        for _ in values {
            outcomes.extend(found.next());
            published.extend(found.next());
        }
        Ok(Self { values: values.to_vec(), outcomes, published, shipped: found.collect(), eager })
    }

    /// Each value with its total time on a device, in seconds for each million look-ups.
    pub fn totals(&self, device: &Device) -> Vec<(usize, f64)> {
        self.values_with(&self.outcomes, device)
    }

    fn values_with(&self, outcomes: &[Outcome], device: &Device) -> Vec<(usize, f64)> {
        self.values.iter().copied().zip(outcomes.iter().map(|one| total(one, device))).collect()
    }

    /// The best value on a device, with its time; of equal ones the smallest.
    pub fn best(&self, device: &Device) -> (usize, f64) {
        best(self.totals(device))
    }

    /// The same with post-lookups as published.
    pub fn best_published(&self, device: &Device) -> (usize, f64) {
        best(self.values_with(&self.published, device))
    }

    /// Eager look-up's time on a device.
    pub fn eager_total(&self, device: &Device) -> f64 {
        total(&self.eager, device)
    }

    /// The product's time on the device of this number.
    pub fn shipped_total(&self, place: usize, device: &Device) -> f64 {
        self.shipped.get(place).map_or(f64::NAN, |outcome| total(outcome, device))
    }

    /// Device accesses for each value.
    pub fn device_reads(&self) -> Vec<u64> {
        self.outcomes.iter().map(|outcome| outcome.total().counters.device_reads()).collect()
    }

    /// A table of the stages on every device.
    pub fn stage_table(&self, setting: &Setting, file: &str, parameter: &str) -> Table {
        let columns = [
            "device",
            parameter,
            "filter s",
            "pre-lookup s",
            "device s",
            "post-lookup s",
            "upkeep s",
            "total s",
            "device accesses",
            "post-lookups",
        ];
        let caption = "Virtual seconds for each million look-ups, by stage";
        let mut table = Table::new(file, caption, columns);
        for (place, device) in setting.devices().into_iter().enumerate() {
            let shipped = self.shipped.get(place).map(|one| ("as shipped".to_owned(), one));
            let within = self.values.iter().map(ToString::to_string).zip(&self.outcomes);
            let whole = self.values.iter().map(|value| format!("{value}, whole ring"));
            let all = shipped.into_iter().chain(within).chain(whole.zip(&self.published));
            for (name, outcome) in all.chain([("eager".to_owned(), &self.eager)]) {
                let total = outcome.total();
                let stages = outcome.stages(&device);
                let seconds = |ns| Cell::real(seconds_per_million(ns, total.chunks), 4);
                table.row([
                    Cell::text(device.name.clone()),
                    Cell::text(name),
                    seconds(stages.filter_ns),
                    seconds(stages.cache_ns),
                    seconds(stages.device_ns),
                    seconds(stages.post_ns),
                    seconds(stages.upkeep_ns),
                    seconds(stages.total_ns()),
                    Cell::count(total.counters.device_reads()),
                    Cell::count(total.counters.post_lookups),
                ]);
            }
        }
        table
    }

    /// Plots the total time against the parameter, relative to eager look-up.
    pub fn plot(
        &self,
        setting: &Setting,
        report: &mut Report,
        file: &str,
        title: &str,
        parameter: &str,
    ) -> Result<()> {
        let series = setting.devices().into_iter().map(|device| {
            let eager = self.eager_total(&device);
            let points = self.totals(&device).into_iter();
            Series::new(device.name, points.map(|(v, t)| (v as f64, t / eager)).collect())
        });
        let chart = LineChart::new(title, parameter, "lazy time / eager time", series.collect());
        report.lines(file, &chart.scaled(Scale::Log, Scale::Log))
    }

    /// Plots the stages on one device.
    pub fn plot_stages(
        &self,
        device: &Device,
        report: &mut Report,
        file: &str,
        parameter: &str,
    ) -> Result<()> {
        type Stage = fn(&crate::device::Stages) -> u64;
        let stages: [(&str, Stage); 5] = [
            ("filter", |stages| stages.filter_ns),
            ("pre-lookup", |stages| stages.cache_ns),
            ("device", |stages| stages.device_ns),
            ("post-lookup", |stages| stages.post_ns),
            ("upkeep", |stages| stages.upkeep_ns),
        ];
        let series = stages.map(|(name, of)| {
            let point = |(value, outcome): (&usize, &Outcome)| {
                let ns = of(&outcome.stages(device));
                (*value as f64, seconds_per_million(ns, outcome.total().chunks))
            };
            Series::new(name, self.values.iter().zip(&self.outcomes).map(point).collect())
        });
        let title = format!("Time of each stage, {}", device.name);
        let y_label = "seconds for a million look-ups";
        let chart = LineChart::new(&title, parameter, y_label, series.into());
        report.lines(file, &chart.scaled(Scale::Log, Scale::Linear))
    }
}

/// Seconds for a million look-ups.
fn total(outcome: &Outcome, device: &Device) -> f64 {
    seconds_per_million(outcome.stages(device).total_ns(), outcome.total().chunks)
}

fn best(totals: Vec<(usize, f64)>) -> (usize, f64) {
    let best = totals.into_iter().reduce(|best, one| if one.1 < best.1 { one } else { best });
    best.unwrap_or_default()
}

/// The device of a name.
pub fn device(setting: &Setting, name: &str) -> Result<Device> {
    setting
        .devices()
        .into_iter()
        .find(|device| device.name == name)
        .ok_or_else(|| onefold_types::Error::invalid(format!("there is no device called '{name}'")))
}
