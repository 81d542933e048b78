//! The text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.
//!
//! They are written by hand: the crate `prometheus-client` writes OpenMetrics only, and its
//! collectors would need a type for each shape of labels, while both formats are a few lines.

use std::fmt::Write;

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFormat {
    Prometheus,
    OpenMetrics,
}

impl TextFormat {
    /// The format that a request accepts.
    pub(super) fn accepted(accept: &str) -> TextFormat {
        // Scrapers name the version that they can read; only the first one is written here.
        let is_open = |one: &str| {
            one.trim().starts_with("application/openmetrics-text") && !one.contains("version=0")
        };
        match accept.split(',').any(is_open) {
            true => TextFormat::OpenMetrics,
            false => TextFormat::Prometheus,
        }
    }

    /// The value of `Content-Type`.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The kind of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
}

/// Writes families of metrics.
pub(super) struct MetricsText {
    format: TextFormat,
    out: String,
}

/// The names and values of labels.
pub(super) type Labels<'l> = &'l [(&'l str, &'l str)];

impl MetricsText {
    pub(super) fn new(format: TextFormat) -> MetricsText {
        MetricsText { format, out: String::with_capacity(64 * 1024) }
    }

    /// Begins a family; its samples follow. The unit is empty for counts.
    pub(super) fn family(&mut self, name: &str, kind: FamilyKind, unit: &str, help: &str) {
        let kind_name = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        let is_open = self.format == TextFormat::OpenMetrics;
        // In OpenMetrics `_total` belongs to the samples of a counter.
        let family = match is_open && kind == FamilyKind::Counter {
            true => name.strip_suffix("_total").unwrap_or(name),
            false => name,
        };
        let _ = write!(self.out, "# HELP {family} ");
        // Quotes are escaped in labels and in OpenMetrics.
        escape(help, is_open, &mut self.out);
        let _ = write!(self.out, "\n# TYPE {family} {kind_name}\n");
        if is_open && !unit.is_empty() && family.ends_with(&format!("_{unit}")) {
            let _ = writeln!(self.out, "# UNIT {family} {unit}");
        }
    }

    /// Adds a sample to the family that was begun last.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.out.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.out.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.out, "{label}=\"");
            escape(value, true, &mut self.out);
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.out.push(' ');
        append_number(value, &mut self.out);
        self.out.push('\n');
    }

    /// The text.
    pub(super) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

fn escape(text: &str, quotes: bool, out: &mut String) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

/// Appends a number; large whole numbers have all their digits.
pub(super) fn append_number(value: f64, out: &mut String) {
    let _ = match value {
        value if value == f64::INFINITY => write!(out, "+Inf"),
        value if value == f64::NEG_INFINITY => write!(out, "-Inf"),
        value => write!(out, "{value}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: TextFormat) -> String {
        let mut text = MetricsText::new(format);
        text.family("a_bytes_total", FamilyKind::Counter, "bytes", "A \"b\"\nc.");
        text.sample("a_bytes_total", &[("ns", "x\"\\\n<script>"), ("b", "")], 9007199254740993.0);
        text.family("g", FamilyKind::Gauge, "", "G.");
        text.sample("g", &[], f64::INFINITY);
        text.finish()
    }

    #[test]
    fn both_formats_escape_names() {
        let labels = "{ns=\"x\\\"\\\\\\n<script>\",b=\"\"}";
        assert_eq!(
            written(TextFormat::Prometheus),
            format!(
                "# HELP a_bytes_total A \"b\"\\nc.\n# TYPE a_bytes_total counter\n\
                 a_bytes_total{labels} 9007199254740992\n# HELP g G.\n# TYPE g gauge\ng +Inf\n"
            )
        );
        assert_eq!(
            written(TextFormat::OpenMetrics),
            format!(
                "# HELP a_bytes A \\\"b\\\"\\nc.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                 a_bytes_total{labels} 9007199254740992\n\
                 # HELP g G.\n# TYPE g gauge\ng +Inf\n# EOF\n"
            )
        );
    }

    #[test]
    fn the_client_chooses_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.3";
        assert_eq!(TextFormat::accepted(prometheus), TextFormat::OpenMetrics);
        for other in ["", "*/*", "text/html,*/*", "application/openmetrics-text; version=0.0.1"] {
            assert_eq!(TextFormat::accepted(other), TextFormat::Prometheus, "{other}");
        }
    }
}
