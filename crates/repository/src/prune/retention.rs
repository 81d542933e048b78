//! Which backups a retention keeps: a pure decision on their times.

use std::collections::HashSet;

/// How many backups to keep. A backup that any of the three rules keeps is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest backups.
    pub keep_last: u32,
    /// Days in UTC, counted from the newest backup back, without those that have no backup. Of each
    /// day the newest backup is kept.
    pub keep_daily: u32,
    /// Weeks from Monday on, in the same way.
    pub keep_weekly: u32,
}

/// Why a backup is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeepReason {
    /// It is one of the newest.
    Last,
    /// It is the newest of its day.
    Daily,
    /// It is the newest of its week.
    Weekly,
    /// It is the newest backup.
    Newest,
    /// It is the newest backup that has all of its objects.
    NewestWhole,
    /// The caller asked for it.
    Requested,
}

const DAY_SECONDS: u32 = 24 * 3600;

impl Retention {
    /// Whether no rule keeps anything, which is more likely a mistake than a wish.
    pub(super) fn is_empty(self) -> bool {
        self == Retention::default()
    }

    /// The reasons to keep each backup, from their times in seconds since 1970, the newest last.
    pub(crate) fn reasons(self, times: &[u32]) -> Vec<Vec<KeepReason>> {
        let mut reasons = vec![Vec::new(); times.len()];
        let day = |seconds: u32| seconds / DAY_SECONDS;
        // 1970-01-01 was a Thursday.
        let week = |seconds: u32| (day(seconds) + 3) / 7;
        let (mut days, mut weeks) = (HashSet::new(), HashSet::new());
        for (age, (seconds, reasons)) in times.iter().zip(&mut reasons).rev().enumerate() {
            if age < self.keep_last as usize {
                reasons.push(KeepReason::Last);
            }
            if days.len() < self.keep_daily as usize && days.insert(day(*seconds)) {
                reasons.push(KeepReason::Daily);
            }
            if weeks.len() < self.keep_weekly as usize && weeks.insert(week(*seconds)) {
                reasons.push(KeepReason::Weekly);
            }
        }
        reasons
    }
}
