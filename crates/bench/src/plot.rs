//! Courses in time as an SVG: a small plot for each column of a table whose first column is the
//! time.

use std::fmt::Write as _;

use anyhow::Result;

/// A column of the table, and the name of its plot.
pub(crate) struct Course {
    pub(crate) title: &'static str,
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 150.0;
const COLUMNS: usize = 2;
/// Space around the lines of a plot: left, above, below.
const MARGIN: (f64, f64, f64) = (52.0, 30.0, 22.0);
const RIGHT: f64 = 14.0;

/// Plots of these columns over the seconds; `marks` are times with a vertical line.
///
/// # Errors
/// None but those of formatting.
pub(crate) fn svg(seconds: &[f64], courses: &[Course], marks: &[f64]) -> Result<String> {
    let rows = courses.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * COLUMNS as f64, HEIGHT * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let last = seconds.last().copied().unwrap_or(1.0).max(1.0);
    for (at, course) in courses.iter().enumerate() {
        let (left, top) = ((at % COLUMNS) as f64 * WIDTH, (at / COLUMNS) as f64 * HEIGHT);
        let most = nice(course.values.iter().copied().fold(0.0, f64::max));
        let (margin_left, above, below) = MARGIN;
        let x = |time: f64| margin_left + time / last * (WIDTH - margin_left - RIGHT);
        let y = |value: f64| HEIGHT - below - value / most * (HEIGHT - above - below);
        writeln!(svg, "<g transform=\"translate({left},{top})\">")?;
        writeln!(
            svg,
            "<text x=\"{margin_left}\" y=\"18\" font-weight=\"bold\" fill=\"#222\">{}</text>",
            course.title
        )?;
        for value in [0.0, most / 2.0, most] {
            let (from, to, at) = (x(0.0), x(last), y(value));
            writeln!(
                svg,
                "<path d=\"M{from:.1} {at:.1}H{to:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                from - 5.0,
                at + 4.0,
                label(value)
            )?;
        }
        for mark in marks {
            let (at, from, to) = (x(*mark), y(0.0), y(most));
            writeln!(
                svg,
                "<path d=\"M{at:.1} {from:.1}V{to:.1}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>"
            )?;
        }
        for (time, anchor) in [(0.0, "middle"), (last / 2.0, "middle"), (last, "end")] {
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#555\">\
                 {time:.0} s</text>",
                x(time),
                HEIGHT - 6.0
            )?;
        }
        let points: Vec<String> = seconds
            .iter()
            .zip(&course.values)
            .map(|(time, value)| format!("{:.1},{:.1}", x(*time), y(*value)))
            .collect();
        let points = points.join(" ");
        writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"#1f6fb2\" \
             stroke-width=\"1.3\"/>\n</g>"
        )?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The next number of the form 1, 2 or 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-3).log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| digit * power >= value);
    fits.unwrap_or(10.0) * power
}

fn label(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_ends() {
        let ends = [0.7, 3.0, 99_000.0, 100.0, 210.0].map(nice);
        assert_eq!(ends, [1.0, 5.0, 100_000.0, 100.0, 500.0]);
        assert_eq!([0.0, 2.5, 50.0, 20_000.0].map(label), ["0", "2.5", "50", "20k"]);
    }

    #[test]
    fn a_plot_has_each_course() {
        let course = |title, values: &[f64]| Course { title, values: values.to_vec() };
        let courses =
            [course("a", &[1.0, 2.0]), course("b", &[0.0, 0.0]), course("c", &[5.0, 1.0])];
        let svg = svg(&[0.0, 1.0], &courses, &[0.5]).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(svg.contains("width=\"840\" height=\"300\""));
    }
}
