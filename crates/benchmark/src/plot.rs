//! A plot of points over two axes: CPU time to the right, stored bytes upwards, as SVG with text.
//!
//! Points of one tool have one colour; a thin line joins those that no other of the same tool beats
//! in both values. Each has a number beside it, which the legend beside the data explains: names
//! would cover each other. A number takes the first of a few places around its point that no other
//! point or number has, so that the same figures always give the same plot.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use std::ops::Range;

/// Width and height of the plot without its legend.
const DATA: (u32, u32) = (720, 560);
/// Width of the legend, which stands to the right of that.
const LEGEND_WIDTH: u32 = 330;
/// From one line of the legend to the next.
const LEGEND_LINE: i32 = 20;
/// Where the first line of the legend is.
const LEGEND_FROM: i32 = 44;
const LABEL: (&str, u32) = ("sans-serif", 13);
const NUMBER: (&str, u32) = ("sans-serif", 12);
const TITLE: (&str, u32) = ("sans-serif", 18);
/// Half the width and height that a point takes.
const POINT: i32 = 5;
/// Width of one digit of a number, and the height of all.
const DIGIT: (i32, i32) = (7, 12);
/// Distinguishable for colour-blind people (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(90, 90, 90),
    RGBColor(230, 159, 0),
];

/// One point and what the legend says of it.
#[derive(Clone, Debug)]
pub struct Point {
    /// The name.
    pub name: String,
    /// The value of the axis to the right; above zero.
    pub x: f64,
    /// The value of the axis upwards.
    pub y: f64,
}

/// A plot of several groups of points.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The title.
    pub title: String,
    /// What the axis to the right means. It runs by orders of magnitude.
    pub x_label: String,
    /// What the axis upwards means. It begins at zero.
    pub y_label: String,
    /// The points of each tool.
    pub groups: Vec<Vec<Point>>,
}

/// An axis by orders of magnitude, with numbers however little of it is seen.
#[derive(Clone, Debug)]
struct Magnitudes(Range<f64>);

/// Where numbers stand on it within ten times; the first that are not too many.
const STEPS: [&[f64]; 4] =
    [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], &[1.0, 2.0, 3.0, 5.0], &[1.0, 3.0], &[1.0]];
/// As many numbers as there is room for.
const NUMBERS_MAX: usize = 12;

impl Ranged for Magnitudes {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value / self.0.start).ln() / (self.0.end / self.0.start).ln();
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let decades = self.0.start.log10().floor() as i32..=self.0.end.log10().floor() as i32;
        let numbers = |steps: &&[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|n| steps.iter().map(move |s| s * 10_f64.powi(n)));
            all.filter(|value| self.0.contains(value)).collect()
        };
        let mut choices = STEPS.iter().map(numbers);
        choices.find(|numbers| numbers.len() <= NUMBERS_MAX).unwrap_or_default()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failure = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

/// A rectangle of pixels, from its upper left to its lower right corner.
#[derive(Clone, Copy, Debug)]
struct Place {
    from: (i32, i32),
    to: (i32, i32),
}

impl Place {
    fn around(point: (i32, i32)) -> Place {
        let (x, y) = point;
        Place { from: (x - POINT, y - POINT), to: (x + POINT, y + POINT) }
    }

    fn meets(&self, other: &Place) -> bool {
        let apart = |a: (i32, i32), b: (i32, i32)| a.1 < b.0 || b.1 < a.0;
        !apart((self.from.0, self.to.0), (other.from.0, other.to.0))
            && !apart((self.from.1, self.to.1), (other.from.1, other.to.1))
    }
}

impl Scatter {
    /// The plot as SVG, or nothing if there is no point that fits the axes.
    pub fn draw(&self) -> Option<String> {
        let points = || self.groups.iter().flatten();
        let fits = |point: &Point| {
            point.x.is_finite() && point.x > 0.0 && point.y.is_finite() && point.y >= 0.0
        };
        if points().next().is_none() || !points().all(fits) {
            return None;
        }
        let mut svg = String::new();
        {
            let lines = LEGEND_FROM + points().count() as i32 * LEGEND_LINE;
            let size = (DATA.0 + LEGEND_WIDTH, DATA.1.max(lines.unsigned_abs()));
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            // Writing to a string cannot fail.
            self.draw_on(&root).ok()?;
        }
        Some(svg)
    }

    fn draw_on(&self, root: &Area<'_>) -> Result<(), Failure> {
        root.fill(&WHITE)?;
        let (all, legend) = root.split_horizontally(DATA.0);
        let (area, _) = all.split_vertically(DATA.1);
        let points = || self.groups.iter().flatten();
        let low = points().map(|point| point.x).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| point.x).fold(0.0, f64::max);
        let top = points().map(|point| point.y).fold(f64::MIN_POSITIVE, f64::max) * 1.08;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, TITLE)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(Magnitudes(low / 1.2..high * 1.2), 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .label_style(LABEL)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|value| axis_number(*value))
            .y_label_formatter(&|value| axis_number(*value))
            .draw()?;
        for (group, colour) in self.groups.iter().zip(COLOURS.iter().cycle()) {
            chart.draw_series(LineSeries::new(unbeaten(group), colour.mix(0.4)))?;
            let dots = group.iter().map(|point| (point.x, point.y));
            chart.draw_series(dots.map(|point| Circle::new(point, 4, colour.filled())))?;
        }
        let places: Vec<(i32, i32)> =
            points().map(|point| chart.backend_coord(&(point.x, point.y))).collect();
        let colours = self.groups.iter().zip(COLOURS.iter().cycle());
        let colours = colours.flat_map(|(group, colour)| group.iter().map(move |_| colour));
        let numbers = number_places(&places);
        for (n, ((point, number), colour)) in points().zip(numbers).zip(colours).enumerate() {
            let text = (n + 1).to_string();
            root.draw(&Text::new(text, number, NUMBER.into_font().color(colour)))?;
            let at = LEGEND_FROM + n as i32 * LEGEND_LINE;
            legend.draw(&Circle::new((14, at), 4, colour.filled()))?;
            let name = format!("{} {}", n + 1, point.name);
            legend.draw(&Text::new(name, (26, at - 7), LABEL.into_font()))?;
        }
        root.present()
    }
}

/// The points that no other is both left of and below, from left to right.
fn unbeaten(group: &[Point]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = group.iter().map(|point| (point.x, point.y)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut lowest = f64::INFINITY;
    points.retain(|point| {
        let keep = point.1 < lowest;
        lowest = lowest.min(point.1);
        keep
    });
    points
}

/// Where the numbers of points go: the upper left corner of each.
fn number_places(points: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut taken: Vec<Place> = points.iter().map(|point| Place::around(*point)).collect();
    let mut corners = Vec::new();
    for (n, (x, y)) in points.iter().copied().enumerate() {
        let (width, height) = (DIGIT.0 * (n + 1).to_string().len() as i32, DIGIT.1);
        let near = POINT + 2;
        // Right, above, left, below, the corners, and the same again farther away.
        let candidates = [0, 12, 24].into_iter().flat_map(|more| {
            let (left, right) = (x - near - width - more, x + near + more);
            let (above, below) = (y - near - height - more, y + near + more);
            let (middle_x, middle_y) = (x - width / 2, y - height / 2);
            [
                (right, middle_y),
                (middle_x, above),
                (left, middle_y),
                (middle_x, below),
                (right, above),
                (left, above),
                (left, below),
                (right, below),
            ]
        });
        let place = |from: (i32, i32)| Place { from, to: (from.0 + width, from.1 + height) };
        let free = |from: &(i32, i32)| taken.iter().all(|other| !place(*from).meets(other));
        let corner = candidates.clone().find(free).unwrap_or((x + near, y - height / 2));
        taken.push(place(corner));
        corners.push(corner);
    }
    corners
}

/// A number for an axis: no more digits than needed.
fn axis_number(value: f64) -> String {
    let text = if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, x: f64, y: f64) -> Point {
        Point { name: name.to_string(), x, y }
    }

    fn scatter(groups: Vec<Vec<Point>>) -> Scatter {
        let (x_label, y_label) = ("CPU s".to_string(), "MB".to_string());
        Scatter { title: "Title < & >".to_string(), x_label, y_label, groups }
    }

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).expect("well-formed");
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.filter_map(|node| node.text().map(|text| text.trim().to_owned())).collect()
    }

    #[test]
    fn every_point_has_a_number_and_a_name_in_the_legend() {
        let first = vec![point("own & <small>", 7.0, 330.0), point("own fast", 5.0, 400.0)];
        let plot = scatter(vec![first, vec![point("peer", 26.0, 594.0)]]);
        let svg = plot.draw().unwrap();
        let texts = texts(&svg);
        for text in ["Title < & >", "CPU s", "MB", "1 own & <small>", "3 peer", "1", "2", "3"] {
            assert!(texts.iter().any(|other| other == text), "{text} in {texts:?}");
        }
        assert_eq!(svg, plot.draw().unwrap());
        // Three points, each once among the data and once in the legend.
        assert_eq!(svg.matches("<circle").count(), 6);
    }

    #[test]
    fn a_long_legend_has_room() {
        let many = (1..=60).map(|n| point("x", f64::from(n), 1.0)).collect();
        let svg = scatter(vec![many]).draw().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let number = |text: Option<&str>| text.unwrap().parse::<i32>().unwrap();
        let height = number(document.root_element().attribute("height"));
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        assert!(texts.map(|text| number(text.attribute("y"))).all(|y| y < height));
    }

    #[test]
    fn numbers_keep_clear_of_points_and_of_each_other() {
        let points = [(100, 100), (103, 101), (100, 112), (96, 95), (120, 100)];
        let corners = number_places(&points);
        let places: Vec<Place> = corners
            .iter()
            .map(|from| Place { from: *from, to: (from.0 + DIGIT.0, from.1 + DIGIT.1) })
            .collect();
        for (n, place) in places.iter().enumerate() {
            assert!(points.iter().all(|point| !place.meets(&Place::around(*point))), "{n}");
            assert!(places[..n].iter().all(|other| !place.meets(other)), "{n}");
        }
    }

    #[test]
    fn the_line_leaves_out_what_is_beaten() {
        let group = [
            point("c", 3.0, 1.0),
            point("a", 1.0, 9.0),
            point("d", 4.0, 2.0),
            point("b", 2.0, 9.0),
        ];
        assert_eq!(unbeaten(&group), [(1.0, 9.0), (3.0, 1.0)]);
    }

    #[test]
    fn a_short_axis_has_numbers_and_a_long_one_not_too_many() {
        let numbers = |range| Magnitudes(range).key_points(10);
        assert_eq!(numbers(0.45..0.95).len(), 3);
        for end in [9.0, 90.0, 9e3, 9e5] {
            let count = numbers(0.5..end).len();
            assert!((4..=NUMBERS_MAX).contains(&count), "{count} up to {end}");
        }
        let axis = Magnitudes(1.0..100.0);
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.map(&value, (40, 240))), [40, 140, 240]);
    }

    #[test]
    fn what_cannot_be_drawn_is_not() {
        assert_eq!(scatter(vec![]).draw(), None);
        assert_eq!(scatter(vec![vec![]]).draw(), None);
        assert_eq!(scatter(vec![vec![point("x", 0.0, 1.0)]]).draw(), None);
        assert_eq!(scatter(vec![vec![point("x", 1.0, f64::NAN)]]).draw(), None);
        assert!(scatter(vec![vec![point("x", 1.0, 0.0)]]).draw().is_some());
    }

    #[test]
    fn numbers_on_axes_are_short() {
        let shown = [0.0, 0.25, 2.0, 10.0, 1200.0, 12.5].map(axis_number);
        assert_eq!(shown, ["0", "0.25", "2", "10", "1200", "12.5"]);
    }
}
