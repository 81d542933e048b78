//! The stages of the reference that are not available, and why.

use mayfly_base::{Error, ErrorCode};

/// Why a known stage is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Not implemented yet.
    Missing,
    /// Added to the reference after version 8.2; handled as unknown.
    Newer,
    /// Sent between servers only, never by a client.
    Internal,
}

/// A stage that is not available.
pub struct AbsentStage {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// Why the stage is not available, which decides the error.
    pub absence: Absence,
}

const fn stage(name: &'static str, absence: Absence) -> AbsentStage {
    AbsentStage { name, absence }
}

/// Stages that are not available.
pub const ABSENT: &[AbsentStage] = &[
    stage("$backupCursorExtend", Absence::Missing),
    stage("$operationMetrics", Absence::Missing),
    stage("$rerank", Absence::Missing),
    stage("$listMqlEntities", Absence::Newer),
    stage("$mergeCursors", Absence::Internal),
];

/// The error for a name without a row: 5491300 for a stage of servers, 238 for a stage that is not
/// implemented, 40324 for another name.
pub(super) fn absent(name: &str) -> Error {
    let Some(stage) = ABSENT.iter().find(|stage| stage.name == name) else {
        return unrecognized(name);
    };
    match stage.absence {
        Absence::Internal => {
            Error::new(ErrorCode(5491300), format!("{name}' is not allowed in user requests"))
        }
        Absence::Missing => Error::not_implemented(format!("pipeline stage '{name}'")),
        Absence::Newer => unrecognized(name),
    }
}

fn unrecognized(name: &str) -> Error {
    Error::new(ErrorCode(40324), format!("Unrecognized pipeline stage name: '{name}'"))
}
