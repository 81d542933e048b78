//! The progress of a task on the terminal: a bar if the standard error output is one, nothing
//! otherwise.

use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{msg} {bytes} of {total_bytes} [{bar:40}] {bytes_per_sec}, {eta} left";

/// A bar for this number of bytes, which may change later.
pub(crate) fn bar(message: &'static str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes).with_message(message);
    // Not expected: the template is constant.
    match ProgressStyle::with_template(TEMPLATE) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
