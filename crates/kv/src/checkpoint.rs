//! The files of a checkpoint.

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckpointFile {
    /// The name of the file in the folder.
    pub name: String,
    /// The engine's number of a file that never changes, and whose number is not used again.
    pub number: Option<u64>,
}
