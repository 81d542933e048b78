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

/// The chain of sorted parts that covers the times after `from` up to `to`. Segments count first: a
/// recorded gap whose entries were written later is none.
pub(super) fn find(parts: &[LogPart], from: ClusterTime, to: ClusterTime) -> Chain {
    let mut chain = Chain::default();
    let mut at = from;
    let mut covered = None;
    for name in segments(parts) {
        if covered.is_some_and(|covered| name.from < covered) {
            chain.breaks.push(LogBreak::Overlap { object: name.object() });
        } else if at >= to || name.from >= to {
            break;
        }
        // Before the start, after the end, or inside of what an earlier segment covers.
        if name.to <= at || at >= to {
            continue;
        }
        chain.breaks.extend(hole(parts, at, name.from));
        chain.segments.push(name.clone());
        at = name.to;
        covered = Some(at);
    }
    chain.breaks.extend(hole(parts, at, to));
    chain
}

fn segments(parts: &[LogPart]) -> impl Iterator<Item = &SegmentName> {
    parts.iter().filter(|part| part.kind == PartKind::Segment).map(|part| &part.name)
}

/// What is known of times that no segment covers: recorded gaps, and what is missing between them.
fn hole(parts: &[LogPart], from: ClusterTime, to: ClusterTime) -> Vec<LogBreak> {
    let mut breaks = Vec::new();
    let mut at = from;
    for LogPart { name, .. } in parts.iter().filter(|part| part.kind == PartKind::Gap) {
        if at >= to || name.from >= to {
            break;
        }
        if name.to <= at {
            continue;
        }
        if name.from > at {
            breaks.push(LogBreak::Missing { from: at, to: name.from });
        }
        let (from, end) = (name.from.max(at), name.to.min(to));
        breaks.push(LogBreak::Gap { from, to: end });
        at = end;
    }
    if at < to {
        breaks.push(LogBreak::Missing { from: at, to });
    }
    breaks
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
    for name in segments(parts).filter(|name| name.to > from) {
        if name.from > at {
            break;
        }
        at = name.to.max(at);
    }
    at
}
