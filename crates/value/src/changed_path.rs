//! The paths that an update's operators name, for the log.

/// A path that an operator changes in one document.
#[derive(Clone, Copy, Debug)]
pub struct ChangedPath<'a> {
    /// Its parts, with positions of array items.
    pub parts: &'a [Box<str>],
    /// The parts as the statement has them. One that begins with `$[` selects items of an array.
    pub given: &'a [Box<str>],
    /// What the operator does with the value at the path.
    pub write: PathWrite,
}

/// What an operator does with the value at its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathWrite {
    /// It sets, changes or removes the value.
    Whole,
    /// It adds items, usually at the end of an array.
    Append,
}
