//! The log of a store in its repository: segments of entries, and recorded gaps.
//!
//! ```text
//! log/<timeline>/<from>-<to>.bson.zst
//! log/<timeline>/<from>-<to>.gap.json
//! ```
//!
//! [`segment`] is the content of a segment, [`chain`] decides what is continuous.

mod chain;
mod segment;

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::names::{BackupId, Checksum, ClusterTime, StoreId, Timeline};
use crate::objects::{LOG, timeline_prefix};
use crate::repository::Repository;
use crate::sealed::{FORMAT, seal, unseal};

pub use chain::{Chain, LogBreak, RestoreRange};
pub use segment::MAX_SEGMENT_BYTES;

/// Longest record of a gap in bytes.
const MAX_GAP_BYTES: u64 = 64 << 10;
/// Headers that are read at the same time.
const HEADERS_AT_ONCE: usize = 8;
const SEGMENT_ENDING: &str = ".bson.zst";
const GAP_ENDING: &str = ".gap.json";

/// The times that a segment or a gap covers: those after `from`, up to and with `to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// The timeline that the log is of.
    pub timeline: Timeline,
    /// The end of the segment before it.
    pub from: ClusterTime,
    /// The time of its last entry.
    pub to: ClusterTime,
}

impl SegmentName {
    /// The name of the segment's object.
    pub fn object(&self) -> String {
        format!("{}{SEGMENT_ENDING}", self.stem())
    }

    fn gap_object(&self) -> String {
        format!("{}{GAP_ENDING}", self.stem())
    }

    fn stem(&self) -> String {
        format!("{}/{}-{}", timeline_prefix(&self.timeline), self.from, self.to)
    }

    fn check(&self) -> Result<()> {
        match self.from < self.to {
            true => Ok(()),
            false => Err(Error::InvalidInput {
                why: format!("a part of the log from {} to {} has no times", self.from, self.to),
            }),
        }
    }
}

/// The name and the checksum of a segment, by which the next one refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentLink {
    /// The name of the object.
    pub name: String,
    /// The checksum in its header.
    pub sha256: Checksum,
}

/// Whether a part of the log has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartKind {
    /// The entries are there.
    Segment,
    /// The server recorded that the entries were lost.
    Gap,
}

/// A segment or a recorded gap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPart {
    /// The times that it covers.
    pub name: SegmentName,
    /// Whether it has entries.
    pub kind: PartKind,
}

impl LogPart {
    /// The name of the object.
    pub fn object(&self) -> String {
        match self.kind {
            PartKind::Segment => self.name.object(),
            PartKind::Gap => self.name.gap_object(),
        }
    }

    fn parse(object: &str) -> Option<LogPart> {
        let (timeline, file) = object.strip_prefix(LOG)?.strip_prefix('/')?.split_once('/')?;
        let (stem, kind) = match file.strip_suffix(SEGMENT_ENDING) {
            Some(stem) => (stem, PartKind::Segment),
            None => (file.strip_suffix(GAP_ENDING)?, PartKind::Gap),
        };
        let (from, to) = stem.split_once('-')?;
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        let name = SegmentName { timeline: timeline.parse().ok()?, from, to };
        (from < to).then_some(LogPart { name, kind })
    }
}

/// The content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The entries, as the caller wrote them.
    pub entries: Vec<u8>,
    /// The segment that was written before it; `None` for the first of a timeline.
    pub previous: Option<SegmentLink>,
    /// The reference that the next segment needs.
    pub link: SegmentLink,
}

#[derive(Serialize, Deserialize)]
struct Gap {
    format: u64,
    store: StoreId,
    timeline: Timeline,
    from: ClusterTime,
    to: ClusterTime,
    reason: String,
    recorded: String,
}

impl Repository {
    /// Writes a segment of at most [`MAX_SEGMENT_BYTES`], and returns what the next one refers to.
    /// To write the same segment again is not an error.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if `from` is not before `to`, [`Error::TooLarge`],
    /// [`Error::Exists`], [`Error::Store`].
    pub async fn write_segment(
        &self,
        name: &SegmentName,
        previous: Option<SegmentLink>,
        entries: &[u8],
    ) -> Result<SegmentLink> {
        name.check()?;
        let (bytes, sha256) = segment::encode(self.store(), name, previous.clone(), entries)?;
        let object = name.object();
        match self.objects.write_new(&object, bytes.into()).await {
            Ok(()) => Ok(SegmentLink { name: object, sha256 }),
            // Another version of the compressor may have written the same entries.
            Err(Error::Exists { object }) => match self.read_segment(name).await? {
                found if found.entries == entries && found.previous == previous => Ok(found.link),
                _ => Err(Error::Exists { object }),
            },
            Err(error) => Err(error),
        }
    }

    /// Records that the entries of these times are lost to the repository, with the reason.
    ///
    /// # Errors
    /// [`Error::InvalidInput`], [`Error::Exists`], [`Error::Store`].
    pub async fn write_gap(&self, name: &SegmentName, reason: &str) -> Result<()> {
        name.check()?;
        let now_ms = self.clock.now_ms();
        let recorded = Timestamp::from_millisecond(now_ms).map_err(|_| Error::Clock { now_ms })?;
        let gap = Gap {
            format: FORMAT,
            store: self.store(),
            timeline: name.timeline.clone(),
            from: name.from,
            to: name.to,
            reason: reason.to_owned(),
            recorded: recorded.to_string(),
        };
        let object = name.gap_object();
        self.objects.write_new(&object, seal(&object, &gap)?.into()).await
    }

    /// Reads a segment, and checks its checksum and its header.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Damaged`], [`Error::NewerFormat`], [`Error::OtherStore`],
    /// [`Error::Store`].
    pub async fn read_segment(&self, name: &SegmentName) -> Result<Segment> {
        let object = name.object();
        let bytes = self.objects.read(&object, segment::MAX_OBJECT_BYTES).await?;
        let (opened, entries) = segment::decode(self.store(), name, &bytes)?;
        let link = SegmentLink { name: object, sha256: opened.sha256 };
        Ok(Segment { entries, previous: opened.header.previous, link })
    }

    /// Reads the reason of a recorded gap.
    ///
    /// # Errors
    /// As [`Repository::read_segment`].
    pub async fn read_gap(&self, name: &SegmentName) -> Result<String> {
        let object = name.gap_object();
        let bytes = self.objects.read(&object, MAX_GAP_BYTES).await?;
        let gap: Gap = unseal(&object, &bytes)?;
        let is_named = (&gap.timeline, gap.from, gap.to) == (&name.timeline, name.from, name.to);
        if gap.store != self.store() {
            return Err(Error::OtherStore { found: gap.store, expected: self.store() });
        }
        match is_named {
            true => Ok(gap.reason),
            false => Err(Error::damaged(&object, "its times are those of another gap")),
        }
    }

    /// The segments and gaps of a timeline, sorted by their times.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn log(&self, timeline: &Timeline) -> Result<Vec<LogPart>> {
        let found = self.objects.list(&timeline_prefix(timeline)).await?;
        Ok(sorted(found.iter().filter_map(|found| LogPart::parse(&found.name))))
    }

    /// The segments and gaps of all timelines, each timeline sorted by their times.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn logs(&self) -> Result<BTreeMap<Timeline, Vec<LogPart>>> {
        let found = self.objects.list(LOG).await?;
        let mut logs: BTreeMap<Timeline, Vec<LogPart>> = BTreeMap::new();
        for part in sorted(found.iter().filter_map(|found| LogPart::parse(&found.name))) {
            logs.entry(part.name.timeline.clone()).or_default().push(part);
        }
        Ok(logs)
    }

    /// The segments that cover the times after `from` up to `to`, with all breaks: recorded gaps,
    /// missing segments, overlaps, and wrong links. The headers of the segments are read.
    ///
    /// # Errors
    /// As [`Repository::read_segment`].
    pub async fn chain(
        &self,
        timeline: &Timeline,
        from: ClusterTime,
        to: ClusterTime,
    ) -> Result<Chain> {
        let mut chain = chain::find(&self.log(timeline).await?, from, to);
        let headers = stream::iter(chain.segments.clone())
            .map(|name| async move { self.link_of(&name).await })
            .buffered(HEADERS_AT_ONCE);
        let links: Vec<Links> = headers.try_collect().await?;
        chain.breaks.extend(wrong_links(&chain.segments, &links));
        Ok(chain)
    }

    async fn link_of(&self, name: &SegmentName) -> Result<Links> {
        let object = name.object();
        let bytes = self.objects.read_start(&object, segment::MAX_HEADER_BYTES).await?;
        match segment::open(self.store(), name, &bytes) {
            Ok(opened) => {
                let link = SegmentLink { name: object, sha256: opened.sha256 };
                Ok(Links { link, previous: opened.header.previous })
            }
            // The checksum covers the whole object: a damaged header must not look like the
            // header of another store or of a newer format.
            Err(_) => {
                let Segment { previous, link, .. } = self.read_segment(name).await?;
                Ok(Links { link, previous })
            }
        }
    }

    /// The ranges of times to which a restore is possible, per timeline and in order. Only names
    /// and manifests are read: what a verification would find is not considered, and backups whose
    /// manifests are damaged are left out.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn restore_ranges(&self) -> Result<Vec<RestoreRange>> {
        let logs = self.logs().await?;
        let mut backups: BTreeMap<Timeline, Vec<(ClusterTime, BackupId)>> = BTreeMap::new();
        for backup in self.backups().await? {
            if let Ok(summary) = backup.summary {
                backups.entry(summary.timeline).or_default().push((summary.time, backup.id));
            }
        }
        let ranges = backups.into_iter().map(|(timeline, backups)| {
            let parts = logs.get(&timeline).map_or(&[][..], Vec::as_slice);
            chain::ranges(&timeline, parts, backups)
        });
        Ok(ranges.flatten().collect())
    }
}

/// What a segment says of itself and of the one before.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) link: SegmentLink,
    pub(crate) previous: Option<SegmentLink>,
}

/// The breaks between neighbours that do not refer to each other.
pub(crate) fn wrong_links(segments: &[SegmentName], links: &[Links]) -> Vec<LogBreak> {
    let neighbours = segments.windows(2).zip(links.windows(2));
    let wrong = neighbours.filter(|(names, links)| {
        names[0].to == names[1].from && links[1].previous.as_ref() != Some(&links[0].link)
    });
    wrong.map(|(names, _)| LogBreak::WrongLink { object: names[1].object() }).collect()
}

/// The breaks of all parts of a timeline, except for wrong links.
pub(crate) fn breaks(parts: &[LogPart]) -> Vec<LogBreak> {
    chain::whole(parts).breaks
}

fn sorted(parts: impl Iterator<Item = LogPart>) -> Vec<LogPart> {
    let mut parts: Vec<LogPart> = parts.collect();
    parts.sort();
    parts
}
