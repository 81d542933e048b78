//! The progress of a task on the terminal: a bar or a line if the standard error output is one,
//! nothing otherwise.

use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{msg} {bytes} of {total_bytes} [{bar:40}] {bytes_per_sec}, {eta} left";
const PARTS: &str = "[{elapsed}] checking {wide_msg}";

/// A bar for this number of bytes, which may change later.
pub(crate) fn bar(message: &'static str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes).with_message(message);
    // Not expected: the template is constant.
    match ProgressStyle::with_template(TEMPLATE) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// A line with the part of a check that is running.
pub(crate) fn parts() -> ProgressBar {
    let line = ProgressBar::no_length();
    match ProgressStyle::with_template(PARTS) {
        Ok(style) => line.with_style(style),
        Err(_) => line,
    }
}
