//! The state of `autoCompact`.

use mayfly_base::{Error, ErrorCode, Result};
use parking_lot::Mutex;

/// The options of compaction in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// A collection with fewer bytes is skipped.
    pub target_bytes: u64,
    /// Whether it ends after one round.
    pub runs_once: bool,
}

/// The compaction that is enabled, with the number of its thread.
#[derive(Default)]
pub struct AutoCompact {
    enabled: Mutex<(Option<Compaction>, u64)>,
}

impl AutoCompact {
    /// Enables compaction; returns the number of the thread to start, or `None` if it was enabled
    /// with the same options.
    ///
    /// # Errors
    /// 23 AlreadyInitialized when it is enabled with other options.
    pub(crate) fn enable(&self, compaction: Compaction) -> Result<Option<u64>> {
        let mut enabled = self.enabled.lock();
        match enabled.0 {
            Some(present) if present == compaction => Ok(None),
            Some(_) => {
                let text = "background compaction is already enabled with other options";
                Err(Error::new(ErrorCode::AlreadyInitialized, text))
            }
            None => {
                *enabled = (Some(compaction), enabled.1 + 1);
                Ok(Some(enabled.1))
            }
        }
    }

    /// Disables compaction. The collection that is being compacted is finished.
    pub fn disable(&self) {
        self.enabled.lock().0 = None;
    }

    /// Whether the thread with this number may continue.
    pub(crate) fn is_current(&self, thread: u64) -> bool {
        let enabled = self.enabled.lock();
        enabled.0.is_some() && enabled.1 == thread
    }

    /// Disables compaction by the thread with this number.
    pub(crate) fn end(&self, thread: u64) {
        let mut enabled = self.enabled.lock();
        if enabled.1 == thread {
            enabled.0 = None;
        }
    }
}
