//! Draws the course of a load as SVG: latencies on a logarithmic scale above, throughput below.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::timeline::{Point, Spread, Timeline};

const SIZE: (u32, u32) = (1000, 570);
/// Height of the latencies.
const ABOVE: u32 = 360;
const LABELS: u32 = 70;

/// A curve: its name, its colour, and its latency in a spread.
type Curve = (&'static str, RGBColor, fn(&Spread) -> f64);
const CURVES: [Curve; 3] = [
    ("max", RGBColor(0xc0, 0x39, 0x2b), |spread| spread.max),
    ("p99", RGBColor(0xe0, 0x8e, 0x0b), |spread| spread.p99),
    ("p50", RGBColor(0x24, 0x71, 0xa3), |spread| spread.p50),
];
const RATE: RGBColor = RGBColor(0x1e, 0x84, 0x49);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The drawing.
///
/// # Errors
/// Errors of the drawing library.
pub(crate) fn svg(title: &str, timeline: &Timeline) -> Result<String> {
    let points = timeline.points(1);
    let step = timeline.width.as_secs_f64();
    let mut out = String::new();
    let root = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
    draw(&root, title, &points, step).map_err(|error| anyhow!("{error}"))?;
    drop(root);
    Ok(out)
}

fn draw<'a>(
    root: &Area<'a>,
    title: &str,
    points: &[Point],
    step: f64,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(ABOVE);
    let seconds = 0.0..(points.len() as f64 * step).max(step);
    let (low, high) = latency_bounds(points);
    let mut latencies = ChartBuilder::on(&above)
        .caption(title, ("sans-serif", 16))
        .margin_right(20)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(seconds.clone(), (low..high).log_scale())?;
    latencies.configure_mesh().disable_x_mesh().y_desc("ms").draw()?;
    for (name, colour, of) in CURVES {
        for (number, run) in runs(points, step, of).into_iter().enumerate() {
            let curve = latencies.draw_series(LineSeries::new(run, colour))?;
            if number == 0 {
                curve
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour));
            }
        }
    }
    latencies.configure_series_labels().background_style(WHITE).draw()?;
    let most = points.iter().map(|point| point.rate).fold(1.0, f64::max);
    let mut rates = ChartBuilder::on(&below)
        .margin_right(20)
        .margin_top(20)
        .x_label_area_size(30)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(seconds, 0.0..most)?;
    rates.configure_mesh().disable_x_mesh().x_desc("s").y_desc("per second").draw()?;
    let rate = points.iter().enumerate().map(|(at, point)| (middle(at, step), point.rate));
    rates.draw_series(LineSeries::new(rate, RATE))?;
    root.present()
}

fn middle(at: usize, step: f64) -> f64 {
    (at as f64 + 0.5) * step
}

/// Powers of ten, in milliseconds, around all latencies.
fn latency_bounds(points: &[Point]) -> (f64, f64) {
    let spreads = || points.iter().filter_map(|point| point.latency);
    let low = spreads().map(|spread| spread.p50).fold(f64::INFINITY, f64::min);
    let high = spreads().map(|spread| spread.max).fold(0.0, f64::max);
    let low = if low.is_finite() { low.max(0.001) } else { 0.1 };
    let lowest = low.log10().floor();
    let highest = high.max(low).log10().ceil().max(lowest + 1.0);
    (10f64.powf(lowest), 10f64.powf(highest))
}

/// The parts of a curve between gaps in which no request was answered.
fn runs(points: &[Point], step: f64, of: fn(&Spread) -> f64) -> Vec<Vec<(f64, f64)>> {
    let values: Vec<_> = points.iter().enumerate().collect();
    let stretches = values.chunk_by(|a, b| a.1.latency.is_some() == b.1.latency.is_some());
    stretches
        .map(|stretch| {
            let there = stretch.iter().filter_map(|(at, point)| Some((*at, point.latency?)));
            there.map(|(at, spread)| (middle(at, step), of(&spread))).collect::<Vec<_>>()
        })
        .filter(|run| !run.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_curve_is_drawn() {
        let began = Instant::now();
        let mut timeline = Timeline::new(began, Duration::from_millis(100));
        for number in 0..100u64 {
            // A stall between 3 s and 5 s.
            if !(30..50).contains(&number) {
                let latency = Duration::from_micros(100 + number * 50);
                timeline.record(began + Duration::from_millis(100 * number + 5), latency, 10);
            }
        }
        let drawing = svg("a < b", &timeline).unwrap();
        assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
        assert!(drawing.contains("a &lt; b") && drawing.contains("p99"));
        // The latencies have a gap, the throughput goes to zero.
        let curves = |colour: RGBColor| {
            let RGBColor(red, green, blue) = colour;
            let stroke = format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\"");
            let lines = drawing.lines().filter(|line| line.starts_with("<polyline"));
            lines.filter(|line| line.contains(&stroke)).count()
        };
        // Two parts of the curve, and the line of the legend.
        assert!(CURVES.iter().all(|(_, colour, _)| curves(*colour) == 3));
        assert_eq!(curves(RATE), 1);
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
    }

    #[test]
    fn an_empty_course_is_drawn() {
        let empty = Timeline::new(Instant::now(), Duration::from_millis(100));
        assert!(!svg("empty", &empty).unwrap().contains("NaN"));
    }
}
