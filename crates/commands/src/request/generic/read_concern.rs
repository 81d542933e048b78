//! Read concerns: the levels that commands accept, and the cluster times of reads. Manual: "Read
//! Concern".
//!
//! On a single node, `local` and `available` have the same effect. `majority`, `linearizable` and
//! `snapshot` only return data that survives a power failure: their reply waits for a sync of the
//! log if it contains newer data. `snapshot` pins the reads of the command
//! ([`mayfly_storage::Core::pin_reads`]). A server outside of a replica set answers like a router,
//! which accepts all levels.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{StageConcern, StageRow};
use mayfly_service::Service;
use mayfly_value::arguments::{Argument, Form, error::wrong_type};
use mayfly_value::{RawDoc, RawValue};

use crate::request::Fields;
use crate::request::row::{Reads, Row, RowFlags};

/// The level of a read concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLevel {
    /// The default.
    #[default]
    Local,
    /// The same as `Local`.
    Available,
    /// Data on a majority of the members: durable data of the only one.
    Majority,
    /// Data that is durable before the reply.
    Linearizable,
    /// The state at a single time.
    Snapshot,
}

impl ReadLevel {
    const ALL: [(ReadLevel, &str); 5] = [
        (ReadLevel::Local, "local"),
        (ReadLevel::Available, "available"),
        (ReadLevel::Majority, "majority"),
        (ReadLevel::Linearizable, "linearizable"),
        (ReadLevel::Snapshot, "snapshot"),
    ];

    fn named(name: &str) -> Option<ReadLevel> {
        ReadLevel::ALL.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }

    fn name(self) -> &'static str {
        ReadLevel::ALL.iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }
}

impl ReadConcern {
    /// The index of its counter in [`mayfly_service::Metrics::read_concerns`].
    pub(crate) fn counted_at(&self) -> usize {
        match self.level {
            _ if !self.has_level => 5,
            ReadLevel::Available => 0,
            ReadLevel::Linearizable => 1,
            ReadLevel::Local => 2,
            ReadLevel::Majority => 3,
            ReadLevel::Snapshot => 4,
        }
    }
}

/// The `readConcern` of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadConcern {
    /// The level, which is the default if the command names none.
    pub level: ReadLevel,
    /// Whether the command names a level.
    pub has_level: bool,
    /// `afterClusterTime`; 0 for none.
    pub after: u64,
    /// `atClusterTime`; 0 for none.
    pub at: u64,
}

/// The names of the levels.
const LEVELS: &[&str] = &["local", "available", "majority", "linearizable", "snapshot"];
/// The fields of a read concern.
const DECLARED: &[Argument] = &[
    Argument::choice("level", LEVELS),
    Argument::document("afterOpTime"),
    Argument::new("afterClusterTime", Form::Timestamp).null_is_value(),
    Argument::new("atClusterTime", Form::Timestamp).null_is_value(),
    Argument::choice("provenance", PROVENANCES),
];
/// The possible origins of a read concern and of a write concern.
pub(super) const PROVENANCES: &[&str] = &[
    "clientSupplied",
    "implicitDefault",
    "customDefault",
    "getLastErrorDefaults",
    "internalWriteDefault",
];

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text)
}

impl ReadConcern {
    /// Parses `readConcern`; null counts as absent.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<ReadConcern> {
        let doc = match value {
            RawValue::Null | RawValue::Undefined => return Ok(ReadConcern::default()),
            RawValue::Document(doc) => doc,
            other => return Err(wrong_type("readConcern", other, "object")),
        };
        let fields = Fields::read(doc, "readConcern", DECLARED)?;
        let mut concern = ReadConcern::default();
        if let Some(name) = fields.string("level")? {
            concern.has_level = true;
            concern.level = ReadLevel::named(name).unwrap_or_default();
        }
        let time = |name: &str| match fields.get(name) {
            Some(RawValue::Timestamp(time)) => Some(time),
            _ => None,
        };
        let (after, at) = (time("afterClusterTime"), time("atClusterTime"));
        check_times(concern.level, after, at)?;
        (concern.after, concern.at) = (after.unwrap_or(0), at.unwrap_or(0));
        Ok(concern)
    }

    /// Checks that the command accepts the read concern.
    ///
    /// # Errors
    /// 72 for a level that the command does not accept, and for a time in the future.
    #[inline]
    pub(crate) fn check(&self, service: &Service, row: &Row, body: RawDoc<'_>) -> Result<()> {
        let plain = !self.has_level && self.after == 0;
        if plain {
            return Ok(());
        }
        self.check_given(service, row, body)
    }

    fn check_given(&self, service: &Service, row: &Row, body: RawDoc<'_>) -> Result<()> {
        let (level, name) = (self.level, self.level.name());
        let refused = || {
            let text = format!(
                "Command {} does not support {{ readConcern: {{ level: \"{name}\", provenance: \"clientSupplied\" }} }} \
                 :: caused by :: read concern not supported",
                row.name
            );
            Err(invalid(text))
        };
        let takes = match level {
            ReadLevel::Local => true,
            ReadLevel::Available | ReadLevel::Majority => row.reads.contains(Reads::COMMITTED),
            ReadLevel::Linearizable => row.reads.contains(Reads::LINEARIZABLE),
            ReadLevel::Snapshot => row.reads.contains(Reads::SNAPSHOT),
        };
        if !takes {
            return refused();
        }
        if row.flags.contains(RowFlags::PIPELINE) {
            check_stages(self, body)?;
        }
        if level == ReadLevel::Linearizable && !service.is_primary() {
            return Err(Error::new(
                ErrorCode::NotWritablePrimary,
                "cannot satisfy linearizable read concern on non-primary node",
            ));
        }
        self.check_after(service)
    }

    /// Checks that the times are not in the future.
    ///
    /// # Errors
    /// 72 for a time in the future.
    pub(crate) fn check_after(&self, service: &Service) -> Result<()> {
        let known = service.store.last_timestamp().max(service.gossiped());
        for (name, time) in [("afterClusterTime", self.after), ("atClusterTime", self.at)] {
            if time > known {
                return Err(too_late(name, time, known));
            }
        }
        Ok(())
    }

    /// The time up to which the log must be complete before the command may read; 0 for none.
    #[inline]
    pub(crate) fn time(&self) -> u64 {
        self.after.max(self.at)
    }
}

/// Checks that the times agree with the level and with each other.
fn check_times(level: ReadLevel, after: Option<u64>, at: Option<u64>) -> Result<()> {
    use ReadLevel::{Local, Majority, Snapshot};
    if at.is_some() && level != Snapshot {
        return Err(invalid("atClusterTime field can be set only if level is equal to snapshot"));
    }
    if after.is_some() && !matches!(level, Local | Majority | Snapshot) {
        return Err(invalid(
            "afterClusterTime field can be set only if level is equal to majority, local, or snapshot",
        ));
    }
    if after.is_some() && at.is_some() {
        return Err(invalid(
            "Specifying a timestamp for readConcern snapshot in a causally consistent session is not allowed. \
             See https://docs.mongodb.com/manual/core/read-isolation-consistency-recency/#causal-consistency",
        ));
    }
    if after == Some(0) {
        return Err(invalid("afterClusterTime cannot be a null timestamp"));
    }
    if at.is_some_and(|at| at <= 1) {
        return Err(invalid("atClusterTime cannot be a null timestamp"));
    }
    Ok(())
}

fn shown(time: u64) -> String {
    format!("Timestamp({}, {})", time >> 32, time & 0xFFFF_FFFF)
}

fn too_late(name: &str, time: u64, known: u64) -> Error {
    invalid(format!(
        "readConcern {name} value must not be greater than the current clusterTime. Requested clusterTime: {}; current \
         clusterTime: {}",
        shown(time),
        shown(known)
    ))
}

/// Checks that the stages of a pipeline accept the level.
fn check_stages(concern: &ReadConcern, body: RawDoc<'_>) -> Result<()> {
    let level = concern.level;
    let Some(RawValue::Array(pipeline)) = body.get("pipeline") else { return Ok(()) };
    let stages = pipeline.iter().filter_map(|stage| stage.value().as_document()?.iter().next());
    for stage in stages {
        let name = stage.name();
        let takes = StageRow::find(name).map_or(StageConcern::Any, |row| row.concern);
        let refused = match (takes, level) {
            (StageConcern::Any, _) => false,
            (StageConcern::Local, level) => level != ReadLevel::Local,
            (StageConcern::Majority, ReadLevel::Local | ReadLevel::Available) => concern.has_level,
            (StageConcern::Present | StageConcern::Majority, level) => {
                matches!(level, ReadLevel::Linearizable | ReadLevel::Snapshot)
            }
        };
        if refused {
            return Err(invalid(format!(
                "Aggregation stage {name} cannot run with a readConcern of level '{}'",
                level.name()
            )));
        }
    }
    Ok(())
}
