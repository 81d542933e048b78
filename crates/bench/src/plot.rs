//! Draws the course of a load as SVG: latencies on a logarithmic scale above, throughput below.

use std::fmt::Write;

use crate::timeline::{Point, Spread, Timeline};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Top and bottom of the latencies.
const LATENCY: (f64, f64) = (50.0, 330.0);
/// Top and bottom of the throughput.
const RATE: (f64, f64) = (380.0, 530.0);
const HEIGHT: f64 = 570.0;
/// About so many marks on the axis of time.
const MARKS: f64 = 10.0;

/// A curve: name, colour, which latency.
type Curve = (&'static str, &'static str, fn(&Spread) -> f64);
const CURVES: [Curve; 3] = [
    ("max", "#c0392b", |spread| spread.max),
    ("p99", "#e08e0b", |spread| spread.p99),
    ("p50", "#2471a3", |spread| spread.p50),
];

/// The drawing.
pub(crate) fn svg(title: &str, timeline: &Timeline) -> String {
    let points = timeline.points(1);
    let frame = Frame::around(&points, timeline.width.as_secs_f64());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, LEFT, 20.0, "start", &escaped(title));
    legend(&mut out);
    latency_axis(&mut out, &frame);
    rate_axis(&mut out, &frame);
    time_axis(&mut out, &frame);
    for (_, colour, of) in CURVES {
        let curve =
            points.iter().map(|point| point.latency.map(|spread| frame.latency_y(of(&spread))));
        line(&mut out, &frame, colour, curve);
    }
    line(&mut out, &frame, "#1e8449", points.iter().map(|point| Some(frame.rate_y(point.rate))));
    out += "</svg>\n";
    out
}

/// Where values are drawn.
struct Frame {
    /// Seconds of a point, and of all.
    step: f64,
    seconds: f64,
    /// Powers of ten, in milliseconds.
    lowest: i32,
    highest: i32,
    rate: f64,
}

impl Frame {
    fn around(points: &[Point], step: f64) -> Frame {
        let spreads = || points.iter().filter_map(|point| point.latency);
        let low = spreads().map(|spread| spread.p50).fold(f64::INFINITY, f64::min);
        let high = spreads().map(|spread| spread.max).fold(0.0, f64::max);
        let low = if low.is_finite() { low.max(0.001) } else { 0.1 };
        let lowest = low.log10().floor() as i32;
        let highest = (high.max(low).log10().ceil() as i32).max(lowest + 1);
        let rate = points.iter().map(|point| point.rate).fold(1.0, f64::max);
        Frame { step, seconds: (points.len() as f64 * step).max(step), lowest, highest, rate }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds
    }

    fn latency_y(&self, millis: f64) -> f64 {
        let low = f64::from(self.lowest);
        let part = (millis.max(1e-6).log10() - low) / (f64::from(self.highest) - low);
        LATENCY.1 - (LATENCY.1 - LATENCY.0) * part.clamp(0.0, 1.0)
    }

    fn rate_y(&self, rate: f64) -> f64 {
        RATE.1 - (RATE.1 - RATE.0) * rate / self.rate
    }
}

fn legend(out: &mut String) {
    let entries = CURVES.iter().map(|(name, colour, _)| (*name, *colour));
    for (number, (name, colour)) in entries.chain([("per second", "#1e8449")]).enumerate() {
        let x = WIDTH - 330.0 + 75.0 * number as f64;
        let _ =
            writeln!(out, "<rect x=\"{x}\" y=\"12\" width=\"14\" height=\"4\" fill=\"{colour}\"/>");
        text(out, x + 18.0, 18.0, "start", name);
    }
}

fn latency_axis(out: &mut String, frame: &Frame) {
    for power in frame.lowest..=frame.highest {
        let y = frame.latency_y(10f64.powi(power));
        rule(out, y);
        text(out, LEFT - 6.0, y + 4.0, "end", &format!("{} ms", 10f64.powi(power)));
    }
}

fn rate_axis(out: &mut String, frame: &Frame) {
    for part in [0.0, 0.5, 1.0] {
        let y = frame.rate_y(frame.rate * part);
        rule(out, y);
        text(out, LEFT - 6.0, y + 4.0, "end", &crate::table::figure((frame.rate * part).round()));
    }
}

fn time_axis(out: &mut String, frame: &Frame) {
    let step = mark_step(frame.seconds);
    let mut seconds = 0.0;
    while seconds <= frame.seconds {
        text(out, frame.x(seconds), RATE.1 + 18.0, "middle", &format!("{seconds} s"));
        seconds += step;
    }
}

/// A round distance between the marks.
fn mark_step(seconds: f64) -> f64 {
    let rough = seconds / MARKS;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

fn rule(out: &mut String, y: f64) {
    let right = WIDTH - RIGHT;
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// A curve with gaps where nothing was answered.
fn line(out: &mut String, frame: &Frame, colour: &str, values: impl Iterator<Item = Option<f64>>) {
    let mut path = String::new();
    let mut pen = 'M';
    for (number, value) in values.enumerate() {
        match value {
            Some(y) => {
                let x = frame.x((number as f64 + 0.5) * frame.step);
                let _ = write!(path, "{pen}{x:.1} {y:.1}");
                pen = 'L';
            }
            None => pen = 'M',
        }
    }
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\" \
         stroke-linecap=\"round\"/>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_curve_is_drawn_inside_the_frame() {
        let began = Instant::now();
        let mut timeline = Timeline::new(began, Duration::from_millis(100));
        for number in 0..100u64 {
            // A stall between 3 s and 5 s.
            if !(30..50).contains(&number) {
                let latency = Duration::from_micros(100 + number * 50);
                timeline.record(began + Duration::from_millis(100 * number + 5), latency, 10);
            }
        }
        let drawing = svg("a < b", &timeline);
        assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"));
        assert_eq!(drawing.matches("<path").count(), 4);
        assert!(drawing.contains("a &lt; b") && drawing.contains(">10 ms<"));
        // The latencies have a gap, the throughput goes to zero.
        let moves = |path: &str| path.matches('M').count();
        let paths: Vec<&str> = drawing.lines().filter(|line| line.starts_with("<path")).collect();
        assert_eq!((moves(paths[0]), moves(paths[3])), (2, 1));
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
    }

    #[test]
    fn an_empty_course_and_round_marks() {
        let empty = Timeline::new(Instant::now(), Duration::from_millis(100));
        assert!(!svg("empty", &empty).contains("NaN"));
        assert_eq!([4.0, 60.0, 3600.0].map(mark_step), [0.5, 10.0, 500.0]);
    }
}
