//! Tables for people: columns as wide as their widest cell, if that can be read; control characters
//! never get through.

use crate::output::Output;
use onefold_engine::tree::path;
use onefold_types::Result;

/// Characters of a cell that are shown; what is longer is cut. (A width above 65,535 cannot even be
/// formatted.)
const CELL_CHARS_MAX: usize = 1000;

/// Rows of cells under a heading.
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(heading: &[&str]) -> Self {
        Self { heading: heading.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| cut(path::display(cell.as_bytes())));
        self.rows.push(cells.collect());
    }

    /// Prints the table.
    pub fn print(&self, output: &Output) -> Result<()> {
        let widths = self.widths();
        output.row(&line(&self.heading, &widths))?;
        let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        output.row(&"-".repeat(total))?;
        for row in &self.rows {
            output.row(&line(row, &widths))?;
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let all = || self.rows.iter().chain([&self.heading]);
        let width = |column: usize| {
            let cells = all().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.heading.len()).map(width).collect()
    }
}

fn cut(cell: String) -> String {
    match cell.char_indices().nth(CELL_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &cell[..at]),
        None => cell,
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, &width)| format!("{cell:width$}"));
    let joined = padded.collect::<Vec<_>>().join("  ");
    joined.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r77_a_cell_of_any_length_is_shown() {
        let mut table = Table::new(&["ID", "Text"]);
        table.row(vec!["1".into(), "ä".repeat(70_000)]);
        let widths = table.widths();
        assert_eq!(widths, [2, CELL_CHARS_MAX + 3]);
        assert!(line(&table.rows[0], &widths).ends_with("ää..."));
    }

    #[test]
    fn columns_are_aligned_and_control_characters_escaped() {
        let mut table = Table::new(&["ID", "Host"]);
        table.row(vec!["1".into(), "a\x1b[31m".into()]);
        table.row(vec!["long".into(), "ä".into()]);
        let widths = table.widths();
        assert_eq!(widths, [4, 9]);
        assert_eq!(line(&table.rows[0], &widths), "1     a\\x1b[31m");
        assert_eq!(line(&table.rows[1], &widths), "long  ä");
    }
}
