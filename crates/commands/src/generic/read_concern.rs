//! Read concerns: which levels a command takes, and the times that a read is bound to. Manual: "Read Concern".
//!
//! On a single node `local`, `available` and `majority` read the same. `linearizable` waits until the log is synced, so that
//! nothing it has shown is lost; `snapshot` pins the reads of the command ([`mayfly_storage::Core::pin_reads`]).

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Service;
use mayfly_value::{RawDoc, RawValue};

use crate::Row;
use crate::fields::wrong_type;

/// How a command wants to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLevel {
    /// The default.
    #[default]
    Local,
    /// As local.
    Available,
    /// What most members have: as local, with one member.
    Majority,
    /// Only what is durable by the time of the reply.
    Linearizable,
    /// Everything as of one time.
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

/// The `readConcern` of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadConcern {
    /// The level.
    pub level: ReadLevel,
    /// `afterClusterTime`; 0 for none.
    pub after: u64,
    /// `atClusterTime`; 0 for none.
    pub at: u64,
}

const KNOWN: &[&str] = &["level", "afterOpTime", "afterClusterTime", "atClusterTime", "provenance"];
/// Who may have made up a read concern.
const PROVENANCES: &[&str] = &[
    "clientSupplied",
    "implicitDefault",
    "customDefault",
    "getLastErrorDefaults",
    "internalWriteDefault",
];

/// Commands that read as local and in no other way.
const ONLY_LOCAL: &[&str] = &[
    "collMod",
    "convertToCapped",
    "create",
    "fsync",
    "fsyncUnlock",
    "killAllSessions",
    "killCursors",
    "killSessions",
    "listDatabases",
];
/// Commands that take the two levels that cost something.
const LINEARIZABLE: &[&str] = &["aggregate", "count", "distinct", "find"];
const SNAPSHOT: &[&str] = &["aggregate", "distinct", "find"];
/// Stages that read as local and in no other way.
const ONLY_LOCAL_STAGES: &[&str] = &["$currentOp", "$listLocalSessions", "$planCacheStats"];

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text)
}

impl ReadConcern {
    /// Parses a `readConcern` argument; null counts as absent.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<ReadConcern> {
        let doc = match value {
            RawValue::Null | RawValue::Undefined => return Ok(ReadConcern::default()),
            RawValue::Document(doc) => doc,
            other => return Err(wrong_type("readConcern", other, "object")),
        };
        let mut concern = ReadConcern::default();
        let (mut after, mut at) = (None, None);
        for element in doc {
            match (element.name(), element.value()) {
                ("level", RawValue::Null | RawValue::Undefined) => {}
                ("level", RawValue::String(name)) => {
                    concern.level = ReadLevel::named(name).ok_or_else(|| {
                        Error::bad_value(format!(
                            "Enumeration value '{name}' for field 'readConcern.level' is not a valid value."
                        ))
                    })?;
                }
                ("level", other) => return Err(wrong_type("readConcern.level", other, "string")),
                ("afterClusterTime", time) => {
                    after = Some(timestamp("readConcern.afterClusterTime", time)?);
                }
                ("atClusterTime", time) => {
                    at = Some(timestamp("readConcern.atClusterTime", time)?);
                }
                ("provenance", RawValue::String(name)) if PROVENANCES.contains(&name) => {}
                ("provenance", RawValue::String(name)) => {
                    return Err(Error::bad_value(format!(
                        "Enumeration value '{name}' for field 'readConcern.provenance' is not a valid value."
                    )));
                }
                ("provenance", other) => {
                    return Err(wrong_type("readConcern.provenance", other, "string"));
                }
                (name, _) if KNOWN.contains(&name) => {}
                (name, _) => {
                    let text = format!("BSON field 'readConcern.{name}' is an unknown field.");
                    return Err(Error::new(ErrorCode(40415), text));
                }
            }
        }
        check_times(concern.level, after, at)?;
        (concern.after, concern.at) = (after.unwrap_or(0), at.unwrap_or(0));
        Ok(concern)
    }

    /// Whether the command takes it here.
    ///
    /// # Errors
    /// 72 for a level that the command does not take, and for a time that nobody has come to; 123 NotAReplicaSet for levels that
    /// only members of a replica set have.
    #[inline]
    pub(crate) fn check(&self, service: &Service, row: &Row, body: RawDoc<'_>) -> Result<()> {
        let plain = self.level == ReadLevel::Local && self.after == 0;
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
        let costly = matches!(level, ReadLevel::Linearizable | ReadLevel::Snapshot);
        if level != ReadLevel::Local && ONLY_LOCAL.contains(&row.name)
            || level == ReadLevel::Snapshot && row.name == "count"
        {
            return refused();
        }
        if row.name == "aggregate" {
            check_stages(level, body)?;
        }
        if costly && service.replica_set.get().is_none() {
            return Err(Error::new(
                ErrorCode::NotAReplicaSet,
                format!("node needs to be a replica set member to use readConcern: {name}"),
            ));
        }
        let takes = match level {
            ReadLevel::Linearizable => LINEARIZABLE.contains(&row.name),
            ReadLevel::Snapshot => SNAPSHOT.contains(&row.name),
            ReadLevel::Local | ReadLevel::Available | ReadLevel::Majority => true,
        };
        if !takes {
            return refused();
        }
        if level == ReadLevel::Linearizable && !service.is_primary() {
            return Err(Error::new(
                ErrorCode::NotWritablePrimary,
                "cannot satisfy linearizable read concern on non-primary node",
            ));
        }
        self.check_after(service)
    }

    /// Whether the time that it must have come to is there.
    ///
    /// # Errors
    /// 72 for a time that nobody has come to.
    pub(crate) fn check_after(&self, service: &Service) -> Result<()> {
        let known = service.store.last_timestamp().max(service.gossiped());
        match self.after > known {
            true => Err(too_late("afterClusterTime", self.after, known)),
            false => Ok(()),
        }
    }

    /// Whether a snapshot of this time is the one that was asked for. There are no others: what was overwritten is gone.
    ///
    /// # Errors
    /// 239 SnapshotTooOld, 72 for a time that nobody has come to.
    pub(crate) fn check_snapshot(&self, time: u64) -> Result<()> {
        match self.at {
            0 => Ok(()),
            at if at < time => Err(Error::new(
                ErrorCode::SnapshotTooOld,
                format!(
                    "Read timestamp {} is older than the oldest available timestamp.",
                    shown(at)
                ),
            )),
            at if at > time => Err(too_late("atClusterTime", at, time)),
            _ => Ok(()),
        }
    }
}

/// Whether the times suit the level, and each other.
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

fn timestamp(path: &str, value: RawValue<'_>) -> Result<u64> {
    match value {
        RawValue::Timestamp(time) => Ok(time),
        other => Err(wrong_type(path, other, "timestamp")),
    }
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

/// What stages of a pipeline have against a level.
fn check_stages(level: ReadLevel, body: RawDoc<'_>) -> Result<()> {
    let Some(RawValue::Array(pipeline)) = body.get("pipeline") else { return Ok(()) };
    let stages = pipeline.iter().filter_map(|stage| stage.value().as_document()?.iter().next());
    for stage in stages {
        let name = stage.name();
        let refused = match level {
            ReadLevel::Local => false,
            _ if ONLY_LOCAL_STAGES.contains(&name) => true,
            // What is written is not of the time that is read.
            ReadLevel::Linearizable | ReadLevel::Snapshot => {
                matches!(name, "$out" | "$merge" | "$changeStream")
            }
            ReadLevel::Available | ReadLevel::Majority => false,
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
