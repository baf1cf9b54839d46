//! The section of the report that sets CPU time against stored bytes, variant by variant.
//!
//! A variant stands unbeaten if no other stores the data in no more bytes for no more CPU time.
//! Both figures are of the same backups: the first and all increments, or the one stream.

use crate::plot::{Point, Scatter};
use crate::report::{Context, figure};
use crate::results::{Layout, Operation, Results};
use crate::targets::{Metric, value};
use crate::tools::Found;
use std::fmt::Write;

/// One way to store the data, and what it costs.
struct Way {
    /// The name of the plot's file, without its ending.
    file: &'static str,
    title: &'static str,
    cpu: Metric,
    layout: Layout,
}

const WAYS: [Way; 2] = [
    Way {
        file: "trees",
        title: "Generation by generation",
        cpu: Metric::BackupCpu,
        layout: Layout::Trees,
    },
    Way {
        file: "stream",
        title: "As one tar stream",
        cpu: Metric::Cpu(Operation::Stream),
        layout: Layout::Stream,
    },
];

/// The columns of the table but the first and the last.
const COLUMNS: [(&str, Metric); 12] = [
    ("first, CPU s", Metric::Cpu(Operation::First)),
    ("increments, CPU s", Metric::Cpu(Operation::Increment)),
    ("both, CPU s", Metric::BackupCpu),
    ("stored, MB", Metric::Stored(Layout::Trees)),
    ("unchanged, CPU s", Metric::Cpu(Operation::Unchanged)),
    ("restore, CPU s", Metric::Cpu(Operation::Restore)),
    ("check, CPU s", Metric::Cpu(Operation::Check)),
    ("collect, CPU s", Metric::Cpu(Operation::Collect)),
    ("left, MB", Metric::Stored(Layout::Collected)),
    ("stream, CPU s", Metric::Cpu(Operation::Stream)),
    ("stream, MB", Metric::Stored(Layout::Stream)),
    ("peak, MiB", Metric::Peak),
];

/// Writes the section; without its plots, which are [`plots`].
pub fn section(text: &mut String, context: &Context<'_>, results: &Results) -> std::fmt::Result {
    writeln!(text, "## CPU time against stored bytes\n")?;
    writeln!(
        text,
        "Medians. *Restore* is that of the newest generation; *left* is what is stored after half \
         of the snapshots are forgotten and collected. The last column says where a variant is \
         unbeaten: no other stores no more for no more CPU time.\n"
    )?;
    for (file, _) in plots(context, results) {
        writeln!(text, "![CPU time against stored bytes, {file}]({file}.svg)\n")?;
    }
    write!(text, "| |")?;
    for (name, _) in COLUMNS {
        write!(text, " {name} |")?;
    }
    writeln!(text, " unbeaten |")?;
    writeln!(text, "|---|{}---|", "---|".repeat(COLUMNS.len()))?;
    let bytes = context.data.increment_bytes();
    for found in context.tools {
        let label = found.label();
        write!(text, "| {label} |")?;
        for (_, metric) in COLUMNS {
            let value = value(results, label, metric, bytes);
            write!(text, " {} |", value.map_or_else(|| "-".to_string(), figure))?;
        }
        let unbeaten = WAYS.iter().filter(|way| is_unbeaten(&costs(context, results, way), label));
        let unbeaten: Vec<&str> = unbeaten.map(|way| way.file).collect();
        writeln!(text, " {} |", unbeaten.join(", "))?;
    }
    writeln!(text)
}

/// The plots, as SVG, by the names of their files without the ending. What was not measured has
/// none.
pub fn plots(context: &Context<'_>, results: &Results) -> Vec<(&'static str, String)> {
    let plot = |way: &Way| {
        let costs = costs(context, results, way);
        let of_tool = |found: &[Found]| -> Vec<Point> {
            let measured =
                costs.iter().filter(|cost| found.iter().any(|f| f.label() == cost.label));
            measured.map(Cost::point).collect()
        };
        let groups = context.tools.chunk_by(|a, b| a.tool.binary == b.tool.binary);
        let plot = Scatter {
            title: format!("{}, {}", way.title, context.data.name),
            x_label: "CPU seconds of all backups".to_string(),
            y_label: "stored, MB".to_string(),
            groups: groups.map(of_tool).collect(),
        };
        Some((way.file, plot.draw()?))
    };
    WAYS.iter().filter_map(plot).collect()
}

/// What one variant needed to store the data.
struct Cost {
    label: &'static str,
    cpu: f64,
    megabytes: f64,
}

impl Cost {
    fn point(&self) -> Point {
        let Cost { label, cpu, megabytes } = self;
        let name = format!("{label}: {} CPU s, {megabytes:.1} MB", figure(*cpu));
        Point { name, x: *cpu, y: *megabytes }
    }

    fn beats(&self, other: &Cost) -> bool {
        self.cpu <= other.cpu
            && self.megabytes <= other.megabytes
            && (self.cpu < other.cpu || self.megabytes < other.megabytes)
    }
}

/// The costs of every variant that was measured, in the table's order.
fn costs(context: &Context<'_>, results: &Results, way: &Way) -> Vec<Cost> {
    let bytes = context.data.increment_bytes();
    let of = |found: &Found| {
        let label = found.label();
        let cpu = value(results, label, way.cpu, bytes)?;
        let megabytes = value(results, label, Metric::Stored(way.layout), bytes)?;
        Some(Cost { label, cpu, megabytes })
    };
    context.tools.iter().filter_map(of).collect()
}

fn is_unbeaten(costs: &[Cost], label: &str) -> bool {
    costs
        .iter()
        .find(|cost| cost.label == label)
        .is_some_and(|cost| costs.iter().all(|other| !other.beats(cost)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(label: &'static str, cpu: f64, megabytes: f64) -> Cost {
        Cost { label, cpu, megabytes }
    }

    #[test]
    fn what_is_both_slower_and_larger_is_beaten() {
        let costs = [
            cost("fast", 5.0, 700.0),
            cost("small", 9.0, 300.0),
            cost("slower", 5.5, 700.0),
            cost("worse", 10.0, 400.0),
            cost("between", 7.0, 500.0),
        ];
        let unbeaten: Vec<&str> =
            costs.iter().map(|c| c.label).filter(|label| is_unbeaten(&costs, label)).collect();
        assert_eq!(unbeaten, ["fast", "small", "between"]);
        assert!(!is_unbeaten(&costs, "not measured"));
    }

    #[test]
    fn equals_do_not_beat_each_other() {
        let costs = [cost("a", 5.0, 700.0), cost("b", 5.0, 700.0)];
        assert!(is_unbeaten(&costs, "a") && is_unbeaten(&costs, "b"));
    }

    #[test]
    fn the_legend_has_the_figures() {
        assert_eq!(
            cost("restic max", 41.26, 571.32).point().name,
            "restic max: 41.3 CPU s, 571.3 MB"
        );
    }
}
