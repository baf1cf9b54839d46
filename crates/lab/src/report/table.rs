//! Tables: rounded in Markdown, exact in CSV.

use std::fmt::{self, Write};

/// A field of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number, shown with so many decimals.
    Real(f64, usize),
    /// Not known, or it makes no sense here.
    Missing,
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A whole number.
    #[must_use]
    pub fn count(count: u64) -> Self {
        Self::Count(count)
    }

    /// A number, shown with so many decimals.
    #[must_use]
    pub fn real(value: f64, decimals: usize) -> Self {
        if value.is_finite() { Self::Real(value, decimals) } else { Self::Missing }
    }

    /// A share from 0 to 1, shown in per cent.
    #[must_use]
    pub fn percent(share: f64, decimals: usize) -> Self {
        Self::real(share * 100.0, decimals)
    }

    fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_))
    }
}

impl fmt::Display for Cell {
    /// As in Markdown: rounded, with thin groups of digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => f.write_str(&grouped(&count.to_string())),
            Self::Real(value, decimals) => f.write_str(&grouped(&format!("{value:.decimals$}"))),
            Self::Missing => f.write_str("-"),
        }
    }
}

/// Commas between thousands.
fn grouped(number: &str) -> String {
    let (sign, digits) = number.split_at(usize::from(number.starts_with('-')));
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = sign.to_owned();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// A table with its caption.
#[derive(Clone, Debug)]
pub struct Table {
    /// The CSV file's name without its ending.
    pub file: String,
    caption: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(
        file: impl Into<String>,
        caption: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            file: file.into(),
            caption: caption.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Appends a row; missing fields stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().collect();
        row.resize(self.columns.len(), Cell::Missing);
        self.rows.push(row);
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// The table as comma-separated values, numbers in full.
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let mut lines = vec![self.columns.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(",")];
        for row in &self.rows {
            let fields = row.iter().map(|cell| match cell {
                Cell::Text(text) => quoted(text),
                Cell::Count(count) => count.to_string(),
                Cell::Real(value, _) => value.to_string(),
                Cell::Missing => String::new(),
            });
            lines.push(fields.collect::<Vec<_>>().join(","));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// Appends the table in Markdown, with a link to the values in full.
    pub(super) fn write_markdown(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "{} ([CSV]({}.csv))\n\n{self}", self.caption, self.file)
    }
}

impl fmt::Display for Table {
    /// The table alone, in Markdown.
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(text, "| {} |", self.columns.join(" | "))?;
        let is_number = |column: usize| {
            !self.rows.is_empty()
                && self.rows.iter().all(|row| row.get(column).is_some_and(Cell::is_number))
        };
        let rules = (0..self.columns.len()).map(|c| if is_number(c) { "---:" } else { "---" });
        writeln!(text, "|{}|", rules.collect::<Vec<_>>().join("|"))?;
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::to_string).collect();
            writeln!(text, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_rounded_for_people() {
        let shown = |cell: Cell| cell.to_string();
        assert_eq!(shown(Cell::count(1_234_567)), "1,234,567");
        assert_eq!(shown(Cell::count(12)), "12");
        assert_eq!(shown(Cell::real(-1234.567, 1)), "-1,234.6");
        assert_eq!(shown(Cell::percent(0.98765, 2)), "98.77");
        assert_eq!(shown(Cell::real(f64::NAN, 1)), "-");
    }

    #[test]
    fn csv_is_exact_and_quoted() {
        let mut table = Table::new("f", "c", ["a,b", "n", "x"]);
        table.row([Cell::text("say \"so\""), Cell::real(0.123_456_789, 2)]);
        assert_eq!(table.csv(), "\"a,b\",n,x\n\"say \"\"so\"\"\",0.123456789,\n");
        assert_eq!(table.rows().len(), 1);
    }

    #[test]
    fn columns_of_numbers_stand_to_the_right() {
        let mut table = Table::new("f", "Caption", ["name", "n"]);
        table.row([Cell::text("one"), Cell::count(1)]);
        table.row([Cell::text("none"), Cell::Missing]);
        let mut text = String::new();
        table.write_markdown(&mut text).unwrap();
        let expected = "Caption ([CSV](f.csv))\n\n| name | n |\n|---|---:|\n| one | 1 |\n\
                        | none | - |\n\n";
        assert_eq!(text, expected);
    }
}
