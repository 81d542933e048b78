//! The keyspaces.

/// The fixed set of keyspaces. Objects of one kind share a keyspace; each key begins with its
/// object's 8-byte id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Keyspace {
    /// Documents.
    Record = 0,
    /// Index entries.
    Index = 1,
    /// The operation log.
    Oplog = 2,
    /// Collections, indexes, parameters, progress of background work.
    Catalog = 3,
    /// Sessions and retryable writes.
    Session = 4,
    /// Record versions that the operation log refers to and that are overwritten in `Record`, and
    /// the names of retired records.
    Versions = 5,
}

impl Keyspace {
    /// All of them, by number.
    pub const ALL: [Keyspace; 6] = [
        Keyspace::Record,
        Keyspace::Index,
        Keyspace::Oplog,
        Keyspace::Catalog,
        Keyspace::Session,
        Keyspace::Versions,
    ];

    /// The name of its column family or table.
    pub fn name(self) -> &'static str {
        match self {
            Keyspace::Record => "record",
            Keyspace::Index => "index",
            Keyspace::Oplog => "oplog",
            Keyspace::Catalog => "catalog",
            Keyspace::Session => "session",
            Keyspace::Versions => "kept",
        }
    }
}
