//! What an experiment found: tables, plots and checks, written as Markdown, CSV and SVG.
//!
//! A report names no path, host or date: a run on the virtual clock gives the same bytes anywhere.

mod plot;
mod table;

pub use plot::{BarChart, LineChart, Scale, Series};
pub use table::{Cell, Table};

use onefold_types::Result;
use onefold_types::error::Context;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The name of the Markdown file of a report.
pub const REPORT_FILE: &str = "README.md";

/// What an experiment claims, before it is run.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The experiment's name, which is that of its directory.
    pub name: &'static str,
    /// The claim, in one sentence.
    pub claim: &'static str,
    /// Numbers of the checklist that it answers.
    pub items: &'static str,
    /// When the claim holds.
    pub tolerance: &'static str,
    /// Why the figures are what they are, where they differ from the paper's.
    pub explanation: &'static str,
}

/// One statement that the figures bear out, or not.
#[derive(Clone, Debug)]
pub struct Check {
    /// The statement.
    pub what: String,
    /// Whether it holds.
    pub holds: bool,
    /// The figures.
    pub figures: String,
}

enum Section {
    Text(String),
    Table(Table),
    Plot { file: String, caption: String, svg: String },
}

/// The report of one run of one experiment.
pub struct Report {
    claim: Claim,
    command: String,
    sections: Vec<Section>,
    checks: Vec<Check>,
}

impl Report {
    /// A report without results.
    #[must_use]
    pub fn new(claim: Claim, tiny: bool, with_data: bool) -> Self {
        let mut command = format!("cargo run --release -p onefold-lab -- run {}", claim.name);
        if tiny {
            command.push_str(" --tiny");
        }
        if with_data {
            command.push_str(" --data DIR");
        }
        Self { claim, command, sections: Vec::new(), checks: Vec::new() }
    }

    /// Appends a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.sections.push(Section::Text(text.into()));
    }

    /// Appends a table.
    pub fn table(&mut self, table: Table) {
        self.sections.push(Section::Table(table));
    }

    /// Appends a plot of lines.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn lines(&mut self, file: &str, chart: &LineChart) -> Result<()> {
        let svg = chart.draw()?;
        self.plot(file, &chart.title, svg);
        Ok(())
    }

    /// Appends a plot of bars.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn bars(&mut self, file: &str, chart: &BarChart) -> Result<()> {
        let svg = chart.draw()?;
        self.plot(file, &chart.title, svg);
        Ok(())
    }

    fn plot(&mut self, file: &str, caption: &str, svg: String) {
        let (file, caption) = (file.to_owned(), caption.to_owned());
        self.sections.push(Section::Plot { file, caption, svg });
    }

    /// Records whether a statement holds.
    pub fn check(&mut self, what: impl Into<String>, holds: bool, figures: impl Into<String>) {
        self.checks.push(Check { what: what.into(), holds, figures: figures.into() });
    }

    /// All statements.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Whether every statement holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    /// The experiment's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.claim.name
    }

    /// The report in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_markdown(&mut text);
        text
    }

    fn write_markdown(&self, text: &mut String) -> std::fmt::Result {
        let Claim { name, claim, items, tolerance, explanation } = self.claim;
        writeln!(text, "# {name}\n")?;
        writeln!(text, "**Claim.** {claim} ({items})\n")?;
        writeln!(text, "**Command.** `{}`\n", self.command)?;
        writeln!(text, "**Tolerance.** {tolerance}\n")?;
        let outcome = if self.holds() { "holds" } else { "does **not** hold" };
        writeln!(text, "**Result.** The claim {outcome}.\n")?;
        writeln!(text, "| statement | figures | |\n|---|---|---|")?;
        for Check { what, holds, figures } in &self.checks {
            let mark = if *holds { "holds" } else { "**fails**" };
            writeln!(text, "| {what} | {figures} | {mark} |")?;
        }
        writeln!(text)?;
        if !explanation.is_empty() {
            writeln!(text, "**Explanation.** {explanation}\n")?;
        }
        for section in &self.sections {
            match section {
                Section::Text(paragraph) => writeln!(text, "{paragraph}\n")?,
                Section::Table(table) => table.write_markdown(text)?,
                Section::Plot { file, caption, .. } => {
                    writeln!(text, "![{caption}]({file}.svg)\n")?;
                }
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        Ok(())
    }

    /// Writes Markdown, CSV and SVG into a directory, which is made.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let what = || format!("writing the report into {}", directory.display());
        fs::create_dir_all(directory).context(what)?;
        fs::write(directory.join(REPORT_FILE), self.markdown()).context(what)?;
        for section in &self.sections {
            let (file, bytes) = match section {
                Section::Text(_) => continue,
                Section::Table(table) => (format!("{}.csv", table.file), table.csv()),
                Section::Plot { file, svg, .. } => (format!("{file}.svg"), svg.clone()),
            };
            fs::write(directory.join(file), bytes).context(what)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim = Claim {
        name: "example",
        claim: "Two is more than one.",
        items: "S9.1",
        tolerance: "None.",
        explanation: "Arithmetic.",
    };

    fn report() -> Report {
        let mut report = Report::new(CLAIM, true, true);
        report.check("two is more", true, "2 > 1");
        report.text("A word.");
        let mut table = Table::new("numbers", "Numbers", ["name", "value"]);
        table.row([Cell::text("one"), Cell::count(1)]);
        report.table(table);
        let series = vec![Series::new("s", vec![(1.0, 1.0), (2.0, 4.0)])];
        let chart = LineChart::new("Squares", "x", "y", series);
        report.lines("squares", &chart).unwrap();
        report
    }

    #[test]
    fn markdown_says_what_was_claimed_and_found() {
        let mut report = report();
        let text = report.markdown();
        let parts = [
            "# example\n\n**Claim.** Two is more than one. (S9.1)",
            "-- run example --tiny --data DIR`",
            "The claim holds.",
            "| two is more | 2 > 1 | holds |",
            "| one | 1 |",
            "([CSV](numbers.csv))",
            "![Squares](squares.svg)",
        ];
        for part in parts {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.ends_with("(squares.svg)\n"));
        report.check("one is more", false, "1 < 2");
        assert!(!report.holds() && report.markdown().contains("does **not** hold"));
    }

    #[test]
    fn everything_named_is_written() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("deep/example");
        report().write(&directory).unwrap();
        let names = ["README.md", "numbers.csv", "squares.svg"];
        assert!(names.iter().all(|name| directory.join(name).is_file()));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), names.len());
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(report().write(&file).unwrap_err().to_string().contains("writing the report"));
    }
}
