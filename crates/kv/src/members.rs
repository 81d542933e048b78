//! The servers that use one byte store.

/// A server over a byte store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its address for clients, `host:port`.
    pub address: String,
    /// Whether it owns the store, and is the only one that writes.
    pub is_owner: bool,
}

/// The servers that have shown a sign of life recently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The number of the owner: it grows with each change of the owner.
    pub term: i64,
    /// The servers, in the order of their addresses.
    pub list: Vec<Member>,
}
