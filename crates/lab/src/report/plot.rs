//! Plots a person can look at: lines and stacked bars, as SVG with text, without fonts.

use onefold_types::{Error, Result};
use plotters::coord::ranged1d::{AsRangedCoord, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::series::{DashedLineSeries, LineSeries};
use std::ops::Range;

const SIZE: (u32, u32) = (1060, 460);
/// The legend stands beside the data, in what is right of this.
const LEGEND_FROM: u32 = 800;
/// From one line of the legend to the next.
const LEGEND_LINE: i32 = 20;
/// Characters of a name that fit beside its mark.
const LEGEND_CHARACTERS: usize = 30;
/// The dashes of what a paper has: pixels drawn, and left out.
const DASHES: (u32, u32) = (7, 4);
const LABEL: (&str, u32) = ("sans-serif", 13);
const TITLE: (&str, u32) = ("sans-serif", 18);
/// Distinguishable for colour-blind people (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(0, 0, 0),
];

/// How an axis runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By orders of magnitude; values must be above zero.
    Log,
}

/// One line of a plot.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line through points.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points }
    }

    /// Whether these are figures of a publication: those are dashed, and their points are rings.
    fn is_published(&self) -> bool {
        self.name.to_lowercase().contains("paper")
    }
}

/// Lines over two axes.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// The title.
    pub title: String,
    x_label: String,
    y_label: String,
    x_scale: Scale,
    y_scale: Scale,
    series: Vec<Series>,
}

impl LineChart {
    /// A plot with even axes.
    #[must_use]
    pub fn new(title: &str, x_label: &str, y_label: &str, series: Vec<Series>) -> Self {
        Self {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            x_scale: Scale::Linear,
            y_scale: Scale::Linear,
            series,
        }
    }

    /// The same plot with other axes.
    #[must_use]
    pub fn scaled(self, x_scale: Scale, y_scale: Scale) -> Self {
        Self { x_scale, y_scale, ..self }
    }

    /// The plot as SVG.
    ///
    /// # Errors
    /// There is nothing to draw, or a value does not fit its axis.
    pub fn draw(&self) -> Result<String> {
        let x = self.range(self.x_scale, |point| point.0)?;
        let y = self.range(self.y_scale, |point| point.1)?;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            match (self.x_scale, self.y_scale) {
                (Scale::Linear, Scale::Linear) => self.draw_on(&root, x, y),
                (Scale::Linear, Scale::Log) => self.draw_on(&root, x, y.log_scale()),
                (Scale::Log, Scale::Linear) => self.draw_on(&root, x.log_scale(), y),
                (Scale::Log, Scale::Log) => self.draw_on(&root, x.log_scale(), y.log_scale()),
            }
            .map_err(|error| Error::invalid(format!("drawing '{}': {error}", self.title)))?;
        }
        Ok(svg)
    }

    fn range(&self, scale: Scale, of: fn(&(f64, f64)) -> f64) -> Result<Range<f64>> {
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        for point in self.series.iter().flat_map(|series| &series.points) {
            let value = of(point);
            if !value.is_finite() || (scale == Scale::Log && value <= 0.0) {
                let message =
                    format!("'{}' has a point at {value}, which its axis has not", self.title);
                return Err(Error::invalid(message));
            }
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return Err(Error::invalid(format!("'{}' has no points", self.title)));
        }
        Ok(match scale {
            Scale::Log => low / 1.3..high * 1.3,
            Scale::Linear => {
                let low = low.min(0.0);
                low..high + ((high - low) * 0.05).max(f64::MIN_POSITIVE.max(1e-9))
            }
        })
    }

    fn draw_on<X, Y>(&self, root: &Area<'_>, x: X, y: Y) -> std::result::Result<(), DrawingError>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        root.fill(&WHITE)?;
        let (plot, legend) = root.split_horizontally(LEGEND_FROM);
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, TITLE)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .label_style(LABEL)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .draw()?;
        for (place, (series, colour)) in self.series.iter().zip(COLOURS.iter().cycle()).enumerate()
        {
            let points = series.points.iter().copied();
            let line = colour.stroke_width(2);
            let at = legend_line(place);
            let mark = [(8, at), (32, at)];
            // Dots, where there are few enough to be told apart.
            let dots = series.points.iter().filter(|_| series.points.len() <= 24);
            if series.is_published() {
                let (drawn, left) = DASHES;
                chart.draw_series(DashedLineSeries::new(points, drawn, left, line))?;
                chart.draw_series(dots.map(|point| Circle::new(*point, 4, line)))?;
                legend.draw(&DashedPathElement::new(mark, drawn, left, line))?;
            } else {
                chart.draw_series(LineSeries::new(points, line))?;
                chart.draw_series(dots.map(|point| Circle::new(*point, 3, colour.filled())))?;
                legend.draw(&PathElement::new(mark, line))?;
            }
            legend_name(&legend, &series.name, at)?;
        }
        root.present()
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawingError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

/// Bars, each divided into parts.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// The title.
    pub title: String,
    /// What the height means.
    pub y_label: String,
    /// The names of the parts, from the bottom up.
    pub parts: Vec<String>,
    /// Each bar's name and the heights of its parts.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// Evenly numbered bars with their names below.
#[derive(Clone)]
struct Names(RangedCoordf64, Vec<String>);

impl Ranged for Names {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<Hint: plotters::coord::ranged1d::KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.1.len()).map(|place| place as f64 + 0.5).collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.range()
    }
}

impl ValueFormatter<f64> for Names {
    fn format(value: &f64) -> String {
        short(*value)
    }
}

impl BarChart {
    /// The plot as SVG.
    ///
    /// # Errors
    /// There is nothing to draw, or a height is no number.
    pub fn draw(&self) -> Result<String> {
        let sums = self.bars.iter().map(|(_, parts)| parts.iter().sum::<f64>());
        let high = sums.fold(0.0, f64::max);
        if self.bars.is_empty() || !(high.is_finite() && high > 0.0) {
            return Err(Error::invalid(format!("'{}' has no bars to draw", self.title)));
        }
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw_on(&root, high * 1.05)
                .map_err(|error| Error::invalid(format!("drawing '{}': {error}", self.title)))?;
        }
        Ok(svg)
    }

    fn draw_on(&self, root: &Area<'_>, high: f64) -> std::result::Result<(), DrawingError> {
        root.fill(&WHITE)?;
        let (plot, legend) = root.split_horizontally(LEGEND_FROM);
        let names: Vec<String> = self.bars.iter().map(|(name, _)| name.clone()).collect();
        let axis = Names((0.0..names.len() as f64).into(), names.clone());
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, TITLE)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(axis, 0.0..high)?;
        let name = |place: &f64| names.get(*place as usize).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .y_desc(&self.y_label)
            .label_style(LABEL)
            .light_line_style(TRANSPARENT)
            .disable_x_mesh()
            .x_label_formatter(&name)
            .y_label_formatter(&|value| short(*value))
            .draw()?;
        for ((part, part_name), colour) in self.parts.iter().enumerate().zip(COLOURS.iter().cycle())
        {
            let bars = self.bars.iter().enumerate().map(|(place, (_, heights))| {
                let below: f64 = heights.iter().take(part).sum();
                let height = heights.get(part).copied().unwrap_or(0.0);
                let left = place as f64;
                let corners = [(left + 0.15, below), (left + 0.85, below + height)];
                Rectangle::new(corners, colour.filled())
            });
            chart.draw_series(bars)?;
            let at = legend_line(part);
            legend.draw(&Rectangle::new([(16, at - 5), (28, at + 5)], colour.filled()))?;
            legend_name(&legend, part_name, at)?;
        }
        root.present()
    }
}

/// How far down a line of the legend is.
fn legend_line(place: usize) -> i32 {
    56 + place as i32 * LEGEND_LINE
}

/// Writes a name of the legend beside its mark; a long one ends early.
fn legend_name(legend: &Area<'_>, name: &str, at: i32) -> std::result::Result<(), DrawingError> {
    let mut shown: String = name.chars().take(LEGEND_CHARACTERS).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    legend.draw(&Text::new(shown, (40, at - 7), LABEL.into_font()))
}

/// A number for an axis: no more digits than needed.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    let text = match magnitude {
        m if m >= 1e9 => return format!("{}G", short(value / 1e9)),
        m if m >= 1e6 => return format!("{}M", short(value / 1e6)),
        m if m >= 1e4 => return format!("{}k", short(value / 1e3)),
        m if m >= 100.0 || m == 0.0 => format!("{value:.0}"),
        m if m >= 1.0 => format!("{value:.2}"),
        m if m >= 1e-3 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    };
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(x: f64, y: f64) -> LineChart {
        let series = vec![
            Series::new("a <b> & \"c\"", vec![(1.0, 2.0), (x, y)]),
            Series::new("many", (1..100).map(|n| (f64::from(n), f64::from(n))).collect()),
        ];
        LineChart::new("Title < & >", "x", "y", series)
    }

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).expect("well-formed");
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.filter_map(|node| node.text().map(|text| text.trim().to_owned())).collect()
    }

    #[test]
    fn lines_are_well_formed_on_every_scale() {
        for x_scale in [Scale::Linear, Scale::Log] {
            for y_scale in [Scale::Linear, Scale::Log] {
                let svg = lines(3000.0, 0.001).scaled(x_scale, y_scale).draw().unwrap();
                let texts = texts(&svg);
                for text in ["Title < & >", "a <b> & \"c\"", "x", "y"] {
                    assert!(texts.iter().any(|other| other == text), "{text} in {texts:?}");
                }
                assert!(!svg.contains("NaN") && !svg.contains("inf"));
            }
        }
    }

    #[test]
    fn bars_are_well_formed_and_named() {
        let chart = BarChart {
            title: "Bars".into(),
            y_label: "seconds".into(),
            parts: vec!["filter".into(), "device".into()],
            bars: vec![("HDD".into(), vec![1.0, 20.0]), ("PM".into(), vec![1.0, 0.0])],
        };
        let texts = texts(&chart.draw().unwrap());
        for text in ["HDD", "PM", "filter", "device", "seconds"] {
            assert!(texts.iter().any(|other| other == text), "{text} in {texts:?}");
        }
        assert!(BarChart { bars: Vec::new(), ..chart }.draw().is_err());
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        assert!(lines(f64::NAN, 1.0).draw().is_err());
        assert!(lines(0.0, 1.0).scaled(Scale::Log, Scale::Linear).draw().is_err());
        let empty = LineChart::new("Nothing", "x", "y", Vec::new());
        assert!(empty.draw().unwrap_err().to_string().contains("no points"));
        let flat = LineChart::new("F", "x", "y", vec![Series::new("s", vec![(0.0, 0.0)])]);
        texts(&flat.draw().unwrap());
    }

    #[test]
    fn numbers_on_axes_are_short() {
        let shown = [0.0, 0.5, 0.000_01, 2.5, 100.0, 12_345.0, 2e6, 3.5e9].map(short);
        assert_eq!(shown, ["0", "0.5", "1.0e-5", "2.5", "100", "12.35k", "2M", "3.5G"]);
    }
}
