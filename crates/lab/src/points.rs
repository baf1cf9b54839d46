//! Lines of text as a plot: what scripts measured, drawn as the reports are.
//!
//! A line is `x series y`, divided by spaces; what follows is passed over, and so are empty lines.

use crate::report::{LineChart, Series};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::fs;
use std::path::Path;

/// How a plot is called, and its axes.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The title.
    pub title: &'a str,
    /// The name of the horizontal axis.
    pub x: &'a str,
    /// The name of the vertical axis.
    pub y: &'a str,
}

/// Draws the points in a file, one line for each series.
///
/// # Errors
/// A file cannot be read or written, or a line is no point.
pub fn plot(points: &Path, labels: Labels<'_>, out: &Path) -> Result<()> {
    let what = || format!("reading '{}'", points.display());
    let text = fs::read_to_string(points).context(what)?;
    let chart = LineChart::new(labels.title, labels.x, labels.y, series(&text).context(what)?);
    fs::write(out, chart.draw()?).context(|| format!("writing '{}'", out.display()))
}

/// The series in the order in which they first occur, each from left to right.
fn series(text: &str) -> Result<Vec<Series>> {
    let mut all: Vec<Series> = Vec::new();
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (name, point) = point(line).ok_or_else(|| {
            Error::invalid(format!("line {}, {line:?}, must be: x series y", place + 1))
        })?;
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series::new(name, vec![point])),
        }
    }
    for series in &mut all {
        series.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    Ok(all)
}

fn point(line: &str) -> Option<(&str, (f64, f64))> {
    let mut fields = line.split_whitespace();
    let x = fields.next()?.parse().ok()?;
    let name = fields.next()?;
    Some((name, (x, fields.next()?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_keep_their_order_and_points_go_from_left_to_right() {
        let all = series("10 b 2.5 and more\n\n0 a 1\n0 b 3\n5 a -4e1\n").unwrap();
        let shown: Vec<_> = all.iter().map(|one| (one.name.as_str(), &one.points[..])).collect();
        let b = [(0.0, 3.0), (10.0, 2.5)];
        assert_eq!(shown, [("b", &b[..]), ("a", &[(0.0, 1.0), (5.0, -40.0)])]);
    }

    #[test]
    fn a_line_that_is_no_point_is_named() {
        for line in ["x a 1", "0 a", "0", "0 a y"] {
            let message = series(&format!("0 a 1\n{line}\n")).unwrap_err().to_string();
            assert!(message.contains("line 2") && message.contains("x series y"), "{message}");
        }
    }

    #[test]
    fn files_become_plots() {
        let place = tempfile::tempdir().unwrap();
        let (points, out) = (place.path().join("points"), place.path().join("out.svg"));
        let labels = Labels { title: "Times", x: "generation", y: "seconds" };
        assert!(plot(&points, labels, &out).unwrap_err().to_string().contains("points"));
        fs::write(&points, "").unwrap();
        assert!(plot(&points, labels, &out).unwrap_err().to_string().contains("no points"));
        fs::write(&points, "0 one 1 2\n1 one 2 3\n0 two 3\n1 two 1\n").unwrap();
        plot(&points, labels, &out).unwrap();
        let svg = fs::read_to_string(out).unwrap();
        roxmltree::Document::parse(&svg).expect("well-formed");
        for text in ["Times", "generation", "seconds", "one", "two"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
