//! Help for tests: waiting for a condition that another thread or process brings about, and the
//! folder with the files of a test.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest wait. A condition that takes longer on a busy machine does not occur in the tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a wait only yields, so that it observes short-lived states; afterwards it sleeps
/// between two polls.
const EAGER: Duration = Duration::from_millis(20);
/// The interval between two polls.
const POLL: Duration = Duration::from_millis(2);

/// Waits until a condition holds.
///
/// # Panics
/// The condition does not hold within a minute.
#[track_caller]
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(holds_within(PATIENCE, holds), "{what}: not within {PATIENCE:?}");
}

/// The folder of the crate whose test or program runs, by the variable that cargo sets when it runs
/// one. The variable at compile time is that of the clone which compiled it, and several clones
/// have the same target folder.
///
/// # Panics
/// The program was not started by cargo.
pub fn crate_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR");
    PathBuf::from(folder.expect("cargo runs this program"))
}

fn holds_within(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        match begun.elapsed() {
            elapsed if elapsed > patience => return false,
            elapsed if elapsed < EAGER => std::thread::yield_now(),
            _ => std::thread::sleep(POLL),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_condition_or_its_patience() {
        let mut looks = 0;
        wait_until("three looks", || {
            looks += 1;
            looks == 3
        });
        assert!(!holds_within(Duration::from_millis(1), || false));
    }
}
