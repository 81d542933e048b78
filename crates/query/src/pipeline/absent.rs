//! The stages of the reference that are not available, and why.

/// Why a known stage is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Not implemented yet.
    Missing,
    /// Part of a hosted search engine, which a server does not contain.
    Search,
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
    /// Whether a transaction rejects the stage as such, before it is rejected as not available.
    pub(super) not_in_transaction: bool,
    /// Whether the stage must be the first of its pipeline, and is not allowed in a `$facet`.
    pub(super) is_first: bool,
}

const fn absent(name: &'static str, absence: Absence) -> AbsentStage {
    AbsentStage { name, absence, not_in_transaction: false, is_first: false }
}

const fn absent_source(name: &'static str, absence: Absence) -> AbsentStage {
    AbsentStage { is_first: true, ..absent(name, absence) }
}

const fn absent_and_outside_transactions(name: &'static str, absence: Absence) -> AbsentStage {
    AbsentStage { not_in_transaction: true, ..absent_source(name, absence) }
}

/// Stages that are not available.
pub const ABSENT: &[AbsentStage] = &[
    absent("$backupCursorExtend", Absence::Missing),
    absent("$operationMetrics", Absence::Missing),
    absent("$rerank", Absence::Missing),
    absent_and_outside_transactions("$listSearchIndexes", Absence::Search),
    absent_source("$search", Absence::Search),
    absent_source("$searchBeta", Absence::Search),
    absent_source("$searchMeta", Absence::Search),
    absent_source("$vectorSearch", Absence::Search),
    absent("$listMqlEntities", Absence::Newer),
    absent("$mergeCursors", Absence::Internal),
];
