//! The table of projection operators.

/// A row of the table of projection operators.
pub struct ProjectionRow {
    /// The name in lists of operators.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// Whether it is implemented.
    pub works: bool,
}

const fn row(name: &'static str, help: &'static str, works: bool) -> ProjectionRow {
    ProjectionRow { name, help, works }
}

/// All projection operators.
pub const ROWS: &[ProjectionRow] = &[
    row("inclusion", "Only these fields.", true),
    row("exclusion", "All but these fields.", true),
    row("$ (positional)", "The array item that the filter matched.", true),
    row("$elemMatch", "The first array item that satisfies a condition.", true),
    row("$slice", "A slice of an array.", true),
    row("expressions", "Fields computed by aggregation expressions.", true),
    row("literals", "Fields with constant values.", true),
    row("$meta", "Metadata of the document.", true),
];
