//! Every projection operator: one row each, for the lists.

/// An operator as the lists show it.
pub struct ProjectionRow {
    /// As it is written.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether it works.
    pub works: bool,
}

const fn row(name: &'static str, help: &'static str, works: bool) -> ProjectionRow {
    ProjectionRow { name, help, works }
}

/// All projection operators.
pub const ROWS: &[ProjectionRow] = &[
    row("inclusion", "Only these fields.", true),
    row("exclusion", "All but these fields.", true),
    row("$ (positional)", "The array item that the filter found.", true),
    row("$elemMatch", "The first array item that satisfies a condition.", true),
    row("$slice", "A part of an array.", true),
    row("expressions", "Fields made by aggregation expressions.", true),
    row("literals", "Fields with constant values.", true),
    row("$meta", "What is known about a document beside its fields.", true),
];
