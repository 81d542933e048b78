//! A byte store that several servers use: one owns it, the others read what it writes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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

/// Is called when the owner may have written something that others look for.
pub type OnAnnouncement = Box<dyn Fn() + Send + Sync>;

/// What an engine knows of the other servers over its byte store. The defaults are those of a store
/// that only one server uses.
pub trait Sharing: Send + Sync {
    /// Whether another server has taken the store over, so that nothing will succeed any more.
    #[inline]
    fn is_taken_over(&self) -> bool {
        false
    }

    /// Whether the store has not answered for longer than the lease of its owner, so that another
    /// server may own it now. Calls fail at once until it answers again.
    #[inline]
    fn is_cut_off(&self) -> bool {
        false
    }

    /// Another server is to own the store; this one stays a member, and is cut off from now on.
    fn begin_to_hand_over(&self) {}

    /// Waits until another server has taken the store over; false when none can, or it is closed.
    fn await_take_over(&self) -> bool {
        false
    }

    /// The servers over the same byte store, if it knows them.
    fn members(&self) -> Members {
        Members::default()
    }

    /// Wakes the servers that listen, after a commit. It does not wait for a reply, so an
    /// announcement may get lost.
    fn announce(&self) {}

    /// Calls the function after each announcement, until the store is closed: several may be one
    /// call, and there may be calls without one. The flag is true while announcements arrive, and
    /// then one does at least every second while the owner lives; while it is false, the caller
    /// has to look for itself.
    fn listen(&self, _: OnAnnouncement) -> Arc<AtomicBool> {
        Arc::default()
    }
}

/// A store that only one server uses.
pub struct NotShared;

impl Sharing for NotShared {}
