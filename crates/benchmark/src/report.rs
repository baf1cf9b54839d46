//! The report, as Markdown. It names no path and no host of the machine it was made on.

use crate::dataset::Dataset;
use crate::machine::Machine;
use crate::results::{Conditions, Layout, Operation, Results, Verification};
use crate::space;
use crate::targets::{CRITERIA, Goal, Metric, Score, cell, score, stored_bytes, value};
use crate::tools::{COMMON_ENVIRONMENT, Found, Line, OWN, Values};
use std::fmt::Write;

/// The name of the report's file.
pub const REPORT_FILE: &str = "REPORT.md";

/// Others may use this share of the processors in a run that passes as quiet.
const QUIET_SHARE: f64 = 0.05;

/// Tables with a column for each variant are divided beyond this.
const COLUMNS_MAX: usize = 6;

/// Everything about an invocation besides its results.
#[derive(Debug)]
pub struct Context<'a> {
    /// The day it began.
    pub date: String,
    /// The project's commit.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// Who took part.
    pub tools: &'a [Found],
    /// Who was asked for and is not installed.
    pub missing: &'a [&'static str],
    /// The data.
    pub data: &'a Dataset,
    /// How many runs were asked for.
    pub runs: usize,
}

/// Writes the report.
pub fn render(context: &Context<'_>, results: &Results) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut text, context, results)
        .and_then(|()| ratios(&mut text, context, results))
        .and_then(|()| space::section(&mut text, context, results))
        .and_then(|()| medians(&mut text, context, results))
        .and_then(|()| sizes(&mut text, context, results))
        .and_then(|()| restores(&mut text, context, results))
        .and_then(|()| conditions(&mut text, results))
        .and_then(|()| commands(&mut text, context));
    text
}

fn head(text: &mut String, context: &Context<'_>, results: &Results) -> std::fmt::Result {
    let Context { date, data, .. } = context;
    writeln!(text, "# Onefold and its peers, {date}\n")?;
    let done = results.conditions.len();
    let runs = if done == 1 { "the one run".to_string() } else { format!("{done} runs") };
    let cut = if done < context.runs { ", more having been asked for" } else { "" };
    writeln!(
        text,
        "Medians of {runs} made{cut}, on {}: {} generations, {} MB, of which the first has {} \
         files and {} MB, the last {} files and {} MB.\n",
        data.name,
        data.generations.len(),
        megabytes(data.total_bytes() as f64),
        data.first().files,
        megabytes(data.first().bytes as f64),
        data.last().files,
        megabytes(data.last().bytes as f64),
    )?;
    if results.conditions.iter().any(is_noisy) {
        writeln!(
            text,
            "**The machine was noisy:** others used more than {:.0} % of it in at least one run \
             (see the table of runs). CPU times stretch under such load, wall times more so.\n",
            QUIET_SHARE * 100.0
        )?;
    }
    if !results.failures.is_empty() || results.verifications.iter().any(differs) {
        writeln!(text, "**Not everything went well:** see Correctness below.\n")?;
    }
    facts(text, context)
}

fn facts(text: &mut String, context: &Context<'_>) -> std::fmt::Result {
    let Context { machine, commit, .. } = context;
    writeln!(text, "| | |\n|---|---|")?;
    writeln!(text, "| processor | {}, {} logical |", machine.processor, machine.cores)?;
    writeln!(text, "| memory | {} MiB |", machine.memory_mib)?;
    writeln!(text, "| kernel | {} |", machine.kernel)?;
    writeln!(text, "| repositories on | {} |", machine.repositories)?;
    writeln!(text, "| restored to | {} |", machine.restores)?;
    writeln!(text, "| commit | {commit} |")?;
    for found in context.tools {
        let (label, configuration) = (found.label(), found.variant.configuration);
        writeln!(text, "| {label} | {}; {configuration} |", found.version)?;
    }
    if !context.missing.is_empty() {
        writeln!(text, "| not installed | {} |", context.missing.join(", "))?;
    }
    writeln!(text)
}

fn ratios(text: &mut String, context: &Context<'_>, results: &Results) -> std::fmt::Result {
    // Also where all variants take part: what the targets are held against stays the same.
    let peers = context.tools.iter().filter(|found| !found.is_own() && found.variant.standard);
    let peers: Vec<&'static str> = peers.map(Found::label).collect();
    writeln!(text, "## Against the best peer\n")?;
    writeln!(
        text,
        "The best peer is found anew for each line, among the configurations that always take \
         part. Ratio: {OWN} / best peer.\n"
    )?;
    writeln!(text, "| | unit | {OWN} | best peer | ratio | target | |")?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for criterion in CRITERIA {
        let Score { own, best, ratio, met } =
            score(results, criterion, OWN, &peers, context.data.increment_bytes());
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            criterion.name,
            criterion.unit,
            own.map_or_else(|| "not measured".to_string(), figure),
            best.map_or_else(
                || "-".to_string(),
                |(peer, best)| format!("{} ({peer})", figure(best))
            ),
            ratio.map_or_else(|| "-".to_string(), |ratio| format!("{ratio:.2}")),
            target(criterion.goal, criterion.unit),
            match met {
                Some(true) => "met",
                Some(false) => "**missed**",
                None => "",
            },
        )?;
    }
    writeln!(text)
}

fn target(goal: Goal, unit: &str) -> String {
    match goal {
        Goal::RatioAtMost(limit) => format!("<= {limit}x"),
        Goal::RatioAtLeast(limit) => format!(">= {limit}x"),
        Goal::AtMost(limit) => format!("<= {limit} {unit}"),
        Goal::None => "-".to_string(),
    }
}

fn header(text: &mut String, tools: &[Found]) -> std::fmt::Result {
    let labels: Vec<&str> = tools.iter().map(Found::label).collect();
    writeln!(text, "| | {} |", labels.join(" | "))?;
    writeln!(text, "|---|{}", "---|".repeat(labels.len()))
}

/// One row with a cell for every tool.
fn row(
    text: &mut String,
    tools: &[Found],
    name: &str,
    entry: impl Fn(&'static str) -> Option<String>,
) -> std::fmt::Result {
    write!(text, "| {name} |")?;
    for found in tools {
        write!(text, " {} |", entry(found.label()).unwrap_or_else(|| "-".to_string()))?;
    }
    writeln!(text)
}

fn medians(text: &mut String, context: &Context<'_>, results: &Results) -> std::fmt::Result {
    writeln!(text, "## Medians\n")?;
    writeln!(text, "CPU s (user and system) / wall s / peak MiB. Increments are added up.\n")?;
    for tools in context.tools.chunks(COLUMNS_MAX) {
        header(text, tools)?;
        for operation in Operation::ALL {
            row(text, tools, operation.name(), |tool| {
                let cell = cell(results, tool, operation)?;
                Some(format!("{} / {} / {:.0}", figure(cell.cpu), figure(cell.wall), cell.peak))
            })?;
        }
        let bytes = context.data.increment_bytes();
        row(text, tools, "increments, MB per CPU s", |tool| {
            Some(figure(value(results, tool, Metric::IncrementRate, bytes)?))
        })?;
        row(text, tools, "stream, MB per CPU s", |tool| {
            let cpu = cell(results, tool, Operation::Stream)?.cpu;
            (cpu > 0.0).then(|| figure(context.data.total_bytes() as f64 / 1e6 / cpu))
        })?;
        writeln!(text)?;
    }
    Ok(())
}

fn sizes(text: &mut String, context: &Context<'_>, results: &Results) -> std::fmt::Result {
    writeln!(text, "## Repository sizes\n")?;
    writeln!(text, "Sum of the lengths of all files; in parentheses, data stored / that.\n")?;
    // The unchanged re-run stores the last generation once more, but nothing new.
    let data = context.data.total_bytes() as f64;
    for tools in context.tools.chunks(COLUMNS_MAX) {
        header(text, tools)?;
        for layout in [Layout::Trees, Layout::Collected, Layout::Stream] {
            row(text, tools, &format!("{}, bytes", layout.name()), |tool| {
                let bytes = stored_bytes(results, tool, layout)?;
                Some(format!("{bytes:.0} ({:.2})", data / bytes))
            })?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn differs(verification: &Verification) -> bool {
    !verification.differences.is_empty()
}

fn restores(text: &mut String, context: &Context<'_>, results: &Results) -> std::fmt::Result {
    writeln!(text, "## Correctness\n")?;
    writeln!(
        text,
        "Each restored tree was compared with its source: names, kinds, contents, permissions, \
         modification times.\n"
    )?;
    for found in context.tools {
        let label = found.label();
        let of_tool = results.verifications.iter().filter(|v| v.tool == label);
        let differing: Vec<_> = of_tool.clone().filter(|v| differs(v)).collect();
        match differing.first() {
            None if of_tool.clone().next().is_none() => writeln!(text, "- {label}: none restored")?,
            None => writeln!(text, "- {label}: {} restored, all equal", of_tool.count())?,
            Some(v) => writeln!(
                text,
                "- {label}: {} of {} restored trees **differ**; run {}: {} differences, the \
                 first: `{}`",
                differing.len(),
                of_tool.count(),
                v.run,
                v.differences.len(),
                v.differences[0]
            )?,
        }
    }
    for f in &results.failures {
        let (operation, message) = (f.operation.name(), &f.message);
        writeln!(text, "- **{} failed** in run {}, {operation}: `{message}`", f.tool, f.run)?;
    }
    writeln!(text)
}

fn is_noisy(conditions: &Conditions) -> bool {
    conditions.others > QUIET_SHARE
}

fn conditions(text: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(text, "## Runs\n")?;
    writeln!(
        text,
        "The load averages (1, 5, 15 minutes) include the benchmark's own work; the share of \
         others is the processor time that went to anything else, the kernel's own threads and \
         other guests of the host included.\n"
    )?;
    writeln!(text, "| run | load at begin | load at end | share of others | |")?;
    writeln!(text, "|---|---|---|---|---|")?;
    for c in &results.conditions {
        let Conditions { run, load_begin, load_end, others } = c;
        let verdict = if is_noisy(c) { "**noisy**" } else { "quiet" };
        let share = others * 100.0;
        writeln!(text, "| {run} | {load_begin} | {load_end} | {share:.1} % | {verdict} |")?;
    }
    writeln!(text)
}

fn commands(text: &mut String, context: &Context<'_>) -> std::fmt::Result {
    writeln!(text, "## Command lines\n")?;
    writeln!(
        text,
        "Backups run in the generation's directory, restores in the empty target. `$REPOSITORY` \
         and `$HOME` are fresh directories for every run, and others for the stream than for the \
         trees. Variables of the caller that would configure a tool are not passed on.\n\n```"
    )?;
    let values = Values::for_display();
    for (name, value) in COMMON_ENVIRONMENT {
        writeln!(text, "{name}={}", values.fill(value))?;
    }
    for tools in context.tools.chunk_by(|a, b| a.tool.binary == b.tool.binary) {
        for (place, found) in tools.iter().enumerate() {
            match place {
                0 => all_commands(text, context, found, &values)?,
                _ => other_commands(text, &tools[0], found, &values)?,
            }
        }
    }
    writeln!(text, "```")
}

/// All commands of one variant.
fn all_commands(
    text: &mut String,
    context: &Context<'_>,
    found: &Found,
    values: &Values,
) -> std::fmt::Result {
    let tool = found.tool;
    writeln!(text, "\n# {}", found.label())?;
    for (name, value) in tool.environment {
        writeln!(text, "{name}={}", values.fill(value))?;
    }
    let tended = tool.forget.iter().chain(tool.collect);
    let measured = [tool.backup, tool.restore, tool.check];
    for line in tool.init.iter().chain(&measured).chain(tended) {
        writeln!(text, "{}", command_line(found, line, values))?;
    }
    let stream = command_line(found, tool.stream, values);
    let (first, last) = (&context.data.first().name, &context.data.last().name);
    writeln!(text, "tar --sort=name --owner=0 --group=0 -cf - {first} .. {last} | {stream}")
}

/// The commands of a variant that another variant of the same tool has not.
fn other_commands(
    text: &mut String,
    base: &Found,
    found: &Found,
    values: &Values,
) -> std::fmt::Result {
    writeln!(text, "\n# {}: as {}, but", found.label(), base.label())?;
    let tool = found.tool;
    for line in tool.init.iter().chain(&[tool.backup, tool.stream]) {
        let command = command_line(found, line, values);
        if command != command_line(base, line, values) {
            writeln!(text, "{command}")?;
        }
    }
    Ok(())
}

fn command_line(found: &Found, line: Line, values: &Values) -> String {
    let arguments = found.arguments(line, values);
    std::iter::once(found.tool.binary.to_string()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// A number with as many digits as it deserves.
pub fn figure(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        medium if medium < 100.0 => format!("{medium:.1}"),
        large => format!("{large:.0}"),
    }
}

fn megabytes(bytes: f64) -> String {
    figure(bytes / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Generation;
    use crate::measure::Usage;
    use crate::results::{Failure, Measurement, Size};
    use crate::tools::TOOLS;
    use std::time::Duration;

    fn data() -> Dataset {
        let generation = |name: &str| Generation {
            name: name.to_string(),
            path: format!("/secret/place/{name}").into(),
            files: 10,
            bytes: 100_000_000,
        };
        Dataset {
            name: "data set A",
            directory: "/secret/place".into(),
            generations: vec![generation("g00"), generation("g01")],
        }
    }

    fn found(label: &str) -> Found {
        let variants = TOOLS.iter().flat_map(|tool| tool.variants.iter().map(move |v| (tool, v)));
        let (tool, variant) = { variants }.find(|(_, v)| v.label == label).unwrap();
        let version = format!("{label} 9.9");
        Found { tool, variant, program: "/secret/bin".into(), version }
    }

    fn results() -> Results {
        let mut results = Results::default();
        for (tool, ms) in [("onefold", 500), ("restic", 2000)] {
            for operation in Operation::ALL {
                let user = Duration::from_millis(ms);
                let usage = Usage { user, wall: user, peak_bytes: 80 << 20, ..Usage::default() };
                let generation = None;
                results.measurements.push(Measurement {
                    run: 1,
                    tool,
                    operation,
                    generation,
                    usage,
                });
            }
            for layout in [Layout::Trees, Layout::Collected, Layout::Stream] {
                results.sizes.push(Size { run: 1, tool, layout, bytes: ms * 100_000 });
            }
            results.verifications.push(Verification { run: 1, tool, differences: vec![] });
        }
        results.conditions.push(Conditions {
            run: 1,
            load_begin: "0.10 0.20 0.30".into(),
            load_end: "1.10 0.40 0.30".into(),
            others: 0.01,
        });
        results
    }

    fn rendered(results: &Results, tools: &[Found]) -> String {
        let machine = Machine {
            processor: "Fast One".into(),
            cores: 2,
            memory_mib: 24_000,
            kernel: "6.1".into(),
            repositories: "ext4".into(),
            restores: "tmpfs".into(),
        };
        let (date, commit) = ("2026-11-21".to_string(), "0123456789ab".to_string());
        let (missing, data) = (["kopia"], data());
        let context =
            Context { date, commit, machine, tools, missing: &missing, data: &data, runs: 1 };
        render(&context, results)
    }

    #[test]
    fn the_report_has_figures_ratios_and_verdicts() {
        let text = rendered(&results(), &[found("onefold"), found("restic")]);
        for line in [
            "| first backup | CPU s | 0.50 | 2.00 (restic) | 0.25 | <= 0.5x | met |",
            "| increments | MB per CPU s | 200 | 50.0 (restic) | 4.00 | >= 3x | met |",
            "| peak memory | MiB | 80.0 | 80.0 (restic) | 1.00 | <= 100 MiB | met |",
            "| unchanged re-run | 0.50 / 0.50 / 80 | 2.00 / 2.00 / 80 |",
            "| trees, bytes | 50000000 (4.00) | 200000000 (1.00) |",
            "![CPU time against stored bytes, trees](trees.svg)",
            "| onefold | 0.50 | 0.50 | 1.00 | 50.0 | 0.50 |",
            "| 50.0 | 80.0 | trees, stream |",
            "| 200 | 80.0 |  |",
            "- restic: 1 restored, all equal",
            "| not installed | kopia |",
            "restic backup .",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("noisy") && !text.contains("Not everything"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn variants_have_rows_commands_and_points_but_no_part_in_the_targets() {
        let mut results = results();
        let slow = |m: &Measurement| m.tool == "restic";
        let copies: Vec<Measurement> =
            results.measurements.iter().filter(|m| slow(m)).cloned().collect();
        for mut copy in copies {
            copy.tool = "restic off";
            copy.usage.user /= 4;
            results.measurements.push(copy);
        }
        let layout = Layout::Trees;
        results.sizes.push(Size { run: 1, tool: "restic off", layout, bytes: 900_000_000 });
        let tools = [found("onefold"), found("restic"), found("restic off")];
        let text = rendered(&results, &tools);
        for line in [
            "| first backup | CPU s | 0.50 | 2.00 (restic) | 0.25 |",
            "| restic off | 0.50 | 0.50 | 1.00 | 900 |",
            "\n# restic off: as restic, but\nrestic backup --compression off .\n\
             restic backup --compression off --stdin",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("restic check --read-data").count(), 1);
    }

    #[test]
    fn many_variants_are_divided_into_several_tables() {
        let tools: Vec<Found> = (0..COLUMNS_MAX).map(|_| found("onefold")).collect();
        let count = |tools: &[Found]| rendered(&results(), tools).matches("| init |").count();
        // One of them is the comparison with the best peer.
        assert_eq!(count(&tools), 2);
        assert_eq!(count(&[tools, vec![found("restic")]].concat()), 3);
    }

    #[test]
    fn without_the_own_tool_the_peers_are_still_reported() {
        let mut results = results();
        results.measurements.retain(|m| m.tool != OWN);
        let text = rendered(&results, &[found("restic")]);
        let line = "| check | CPU s | not measured | 2.00 (restic) | - | <= 0.5x |  |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("- restic: 1 restored, all equal"), "{text}");
    }

    #[test]
    fn a_tool_that_restored_nothing_is_not_called_equal() {
        let mut results = results();
        results.verifications.clear();
        let text = rendered(&results, &[found("restic")]);
        assert!(text.contains("- restic: none restored"), "{text}");
    }

    #[test]
    fn noise_failures_and_differences_are_named() {
        let mut results = results();
        results.conditions[0].others = 0.3;
        let differences = vec!["a: contents differ".to_string()];
        results.verifications.push(Verification { run: 2, tool: "restic", differences });
        let message = "exit status: 1".to_string();
        let operation = Operation::Check;
        results.failures.push(Failure { run: 2, tool: "onefold", operation, message });
        let text = rendered(&results, &[found("onefold"), found("restic")]);
        for line in [
            "**The machine was noisy:**",
            "**Not everything went well:**",
            "| 30.0 % | **noisy** |",
            "1 of 2 restored trees **differ**; run 2: 1 differences, the first: `a: contents",
            "- **onefold failed** in run 2, check: `exit status: 1`",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn figures_have_three_digits_or_so() {
        assert_eq!(figure(0.315), "0.32");
        assert_eq!(figure(25.74), "25.7");
        assert_eq!(figure(936.2), "936");
    }
}
