//! The segments of a timeline as a chain: pure functions on their names.
//!
//! A segment covers the times after `from` up to and with `to`. The next segment begins where the
//! one before ends:
//!
//! ```text
//! (10, 20] (20, 35]            (40, 50]      segments
//!                   (35, 40]                 a recorded gap
//! ```

use super::{LogPart, PartKind, SegmentName};
use crate::names::{BackupId, ClusterTime, Timeline};

/// A place where the log of a timeline is not continuous. Times are exclusive at `from` and
/// inclusive at `to`, as in segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogBreak {
    /// A gap that the server recorded when it could not write the log.
    Gap {
        /// The end of what is before the gap.
        from: ClusterTime,
        /// The end of the gap.
        to: ClusterTime,
    },
    /// No segment and no recorded gap covers these times: segments are missing.
    Missing {
        /// The end of what is before.
        from: ClusterTime,
        /// The start of what comes after.
        to: ClusterTime,
    },
    /// A segment covers times that one before it covers, too.
    Overlap {
        /// The name of the object.
        object: String,
    },
    /// A segment does not name the one before it with its checksum.
    WrongLink {
        /// The name of the object.
        object: String,
    },
}

impl std::fmt::Display for LogBreak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogBreak::Gap { from, to } => write!(f, "a recorded gap after {from} up to {to}"),
            LogBreak::Missing { from, to } => {
                write!(f, "segments are missing after {from} up to {to}")
            }
            LogBreak::Overlap { object } => {
                write!(f, "'{object}' covers times that an earlier segment covers")
            }
            LogBreak::WrongLink { object } => {
                write!(f, "'{object}' does not name the segment before it with its checksum")
            }
        }
    }
}

/// The segments from one time to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The segments in order. The first and the last may cover more than was asked for.
    pub segments: Vec<SegmentName>,
    /// Where the chain is not continuous. A chain without breaks can be replayed.
    pub breaks: Vec<LogBreak>,
}

/// The chain of sorted parts that covers the times after `from` up to `to`.
pub(super) fn find(parts: &[LogPart], from: ClusterTime, to: ClusterTime) -> Chain {
    let mut chain = Chain::default();
    let mut at = from;
    let mut covered = None;
    for part in parts {
        let name = &part.name;
        let overlaps = covered.is_some_and(|covered| name.from < covered);
        if overlaps {
            chain.breaks.push(LogBreak::Overlap { object: part.object() });
        } else if at >= to {
            break;
        }
        // Inside of what an earlier segment covers, or before the start, or after the end.
        if name.to <= at || at >= to {
            continue;
        }
        if name.from > at {
            chain.breaks.push(LogBreak::Missing { from: at, to: name.from.min(to) });
            if name.from >= to {
                return chain;
            }
        }
        match part.kind {
            PartKind::Segment => chain.segments.push(name.clone()),
            PartKind::Gap => {
                chain.breaks.push(LogBreak::Gap { from: name.from.max(at), to: name.to });
            }
        }
        at = name.to;
        covered = Some(at);
    }
    if at < to {
        chain.breaks.push(LogBreak::Missing { from: at, to });
    }
    chain
}

/// The whole chain of sorted parts.
pub(super) fn whole(parts: &[LogPart]) -> Chain {
    let last = parts.iter().map(|part| part.name.to).max();
    match (parts.first(), last) {
        (Some(first), Some(last)) => find(parts, first.name.from, last),
        _ => Chain::default(),
    }
}

/// Times to which a restore is possible, from and to inclusive: that of a backup, or any time after
/// it that the log reaches without a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreRange {
    /// The timeline of the backups and of the log.
    pub timeline: Timeline,
    /// The time of the oldest backup of the range.
    pub from: ClusterTime,
    /// The end of the log that continues the newest backup, or the time of that backup.
    pub to: ClusterTime,
    /// The backups whose times are in the range, the oldest first.
    pub backups: Vec<BackupId>,
}

/// The ranges of a timeline, from its sorted parts and its backups.
pub(super) fn ranges(
    timeline: &Timeline,
    parts: &[LogPart],
    mut backups: Vec<(ClusterTime, BackupId)>,
) -> Vec<RestoreRange> {
    backups.sort();
    let mut ranges: Vec<RestoreRange> = Vec::new();
    for (time, id) in backups {
        match ranges.last_mut() {
            Some(range) if time <= range.to => range.backups.push(id),
            _ => {
                let (timeline, backups) = (timeline.clone(), vec![id]);
                let to = reach(parts, time);
                ranges.push(RestoreRange { timeline, from: time, to, backups });
            }
        }
    }
    ranges
}

/// The end of the segments that continue from this time without a break.
fn reach(parts: &[LogPart], from: ClusterTime) -> ClusterTime {
    let mut at = from;
    for LogPart { name, kind } in parts {
        if name.to <= at {
            continue;
        }
        if name.from > at || *kind == PartKind::Gap {
            break;
        }
        at = name.to;
    }
    at
}
