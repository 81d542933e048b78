//! What is restored: a backup, and the segments of the log from there to a time.

use anyhow::anyhow;
use jiff::Timestamp;
use mayfly_repository::{
    BackupId, Chain, ClusterTime, LogBreak, Repository, RestoreRange, SegmentName,
};

use super::RestoreFlags;
use super::marker::Marker;
use crate::backup::archive::number;
use crate::backup::task::backup_id;
use crate::backup::{failed, show};
use crate::failure::{Failure, FailureKind};

/// The choice of the operator.
#[derive(Debug)]
pub(super) struct Wanted {
    backup: Option<BackupId>,
    until: Option<ClusterTime>,
}

/// What is restored.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) backup: BackupId,
    /// Entries of the log are applied up to and with this time.
    pub(super) until: Option<u64>,
    /// The segments with these entries, in order.
    pub(super) segments: Vec<SegmentName>,
}

impl Wanted {
    /// Reads the flags. Without `--backup` and `--at`, a restore that was interrupted goes on.
    ///
    /// # Errors
    /// A [`Failure`] for a time or a name that is invalid.
    pub(super) fn of(flags: &RestoreFlags, begun: Option<&Marker>) -> anyhow::Result<Wanted> {
        let backup = flags.backup.as_deref().map(backup_id).transpose()?;
        let until = flags.at.as_deref().map(time).transpose()?;
        match begun {
            Some(marker) if backup.is_none() => {
                let is_same = until.is_none() || until.map(number) == marker.until;
                let until = match is_same {
                    true => marker.until.map(of_number),
                    // The comparison with the marker refuses it.
                    false => until,
                };
                Ok(Wanted { backup: Some(backup_id(&marker.backup)?), until })
            }
            _ => Ok(Wanted { backup, until }),
        }
    }
}

impl Target {
    /// Finds the backup, and checks that the log reaches from it to the time.
    ///
    /// # Errors
    /// A [`Failure`] with the times to which a restore is possible.
    pub(super) async fn find(
        repository: &Repository,
        from: &str,
        wanted: Wanted,
    ) -> anyhow::Result<Target> {
        let tried = || format!("cannot restore from {from}");
        let failed = |error| failed::repository(tried(), error);
        let Wanted { backup, until } = wanted;
        let Some(until) = until else {
            let backup = match backup {
                Some(backup) => backup,
                None => newest(repository.backup_ids().await.map_err(failed)?, tried())?,
            };
            return Ok(Target { backup, until: None, segments: Vec::new() });
        };
        let ranges = repository.restore_ranges().await.map_err(failed)?;
        let impossible = |text: String| {
            let possible = show::ranges(&ranges);
            let advice = match possible.is_empty() {
                true => "make a backup first".to_owned(),
                false => format!("restores from this repository are possible to: {possible}"),
            };
            anyhow!(text).context(Failure::new(FailureKind::Options, tried(), advice))
        };
        let mut chosen = None;
        for listed in repository.backups().await.map_err(failed)? {
            let Ok(summary) = listed.summary else { continue };
            let is_wanted = backup.as_ref().is_none_or(|backup| *backup == listed.id);
            let is_later = chosen.as_ref().is_none_or(|(_, time, _)| *time <= summary.time);
            // A time has whole seconds, and includes all entries of its second.
            if is_wanted && is_later && summary.time <= until {
                chosen = Some((listed.id, summary.time, summary.timeline));
            }
        }
        let Some((backup, time, timeline)) = chosen else {
            let text = format!("{} is before the first backup", until.rfc3339());
            return Err(impossible(text));
        };
        let has = |range: &&RestoreRange| range.backups.contains(&backup);
        let reach = ranges.iter().find(has).map_or(time, |range| range.to);
        let parts = repository.log(&timeline).await.map_err(failed)?;
        let end = parts.iter().map(|part| part.name.to).fold(time, Ord::max);
        if end.seconds < until.seconds {
            let text = format!("the log of the repository ends before {}", until.rfc3339());
            return Err(impossible(text));
        }
        // What the log has of a second is all that is known of it.
        let to = match reach.seconds >= until.seconds {
            true => until.min(reach),
            false => until,
        };
        let Chain { segments, breaks } = match time < to {
            true => repository.chain(&timeline, time, to).await.map_err(failed)?,
            false => Chain::default(),
        };
        match breaks.first() {
            None => Ok(Target { backup, until: Some(number(until)), segments }),
            Some(LogBreak::Overlap { .. } | LogBreak::WrongLink { .. }) => {
                let advice = "'mayflydb backup verify' lists all damage of the repository";
                let failure = Failure::new(FailureKind::Damage, tried(), advice);
                Err(anyhow!("{}", breaks[0]).context(failure))
            }
            Some(found) => Err(impossible(format!(
                "the log has no entries for a part of the time after the backup {backup}: {found}"
            ))),
        }
    }
}

fn newest(mut ids: Vec<BackupId>, tried: String) -> anyhow::Result<BackupId> {
    ids.pop().ok_or_else(|| {
        let advice = "make a backup first, or name another repository with --from";
        let failure = Failure::new(FailureKind::Folder, tried, advice);
        anyhow!("the repository has no complete backup").context(failure)
    })
}

/// The last time of the log in the second of this text.
fn time(text: &str) -> anyhow::Result<ClusterTime> {
    let tried = format!("cannot use --at {text}");
    let advice = "write it like 2026-11-24T10:15:00Z or 2026-11-24T11:15:00+01:00";
    let parsed: Timestamp = text.parse().map_err(|_| {
        failed::options(tried.clone(), "it is not a time with a zone or an offset", advice)
    })?;
    let seconds = u32::try_from(parsed.as_second())
        .map_err(|_| failed::options(tried, "it is out of range", advice))?;
    Ok(ClusterTime { seconds, increment: u32::MAX })
}

fn of_number(time: u64) -> ClusterTime {
    ClusterTime { seconds: (time >> 32) as u32, increment: time as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_zone() {
        let expected = ClusterTime { seconds: 1_795_515_300, increment: u32::MAX };
        for text in ["2026-11-24T10:15:00Z", "2026-11-24T11:15:00+01:00", "2026-11-24T10:15:00.9Z"]
        {
            assert_eq!(time(text).unwrap(), expected, "{text}");
        }
        for text in
            ["", "2026-11-24", "2026-11-24T10:15:00", "10:15", "1795515300", "1969-01-01T00:00:00Z"]
        {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
