//! The order of locks that are held while a thread waits for others. A debug build panics if a
//! thread would wait for itself, or takes them in an order in which two threads could wait for each
//! other:
//!
//! 1. the lock of the catalog, for changes of definitions;
//! 2. the state of a collection; those of several only with the lock of the catalog held.

use std::ops::{Deref, DerefMut};

use mayfly_work::current::HoldsLock;

/// A held lock, registered with its thread.
pub(crate) struct Ranked<G> {
    guard: G,
    _held: HoldsLock,
    #[cfg(debug_assertions)]
    _noted: order::Noted,
}

/// The lock, and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Catalog,
    /// The state of the collection with this id, shared.
    Shared(u64),
    /// The state of the collection with this id, exclusive.
    Changing(u64),
}

impl<G> Ranked<G> {
    /// Takes a lock, after a check against those that the thread holds.
    #[inline]
    pub(crate) fn take<E>(rank: Rank, take: impl FnOnce() -> Result<G, E>) -> Result<Ranked<G>, E> {
        #[cfg(debug_assertions)]
        order::check(rank);
        #[cfg(not(debug_assertions))]
        let _ = rank;
        let guard = take()?;
        Ok(Ranked {
            guard,
            _held: HoldsLock::new(),
            #[cfg(debug_assertions)]
            _noted: order::note(rank),
        })
    }
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
mod order {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) struct Noted(Rank);

    impl Drop for Noted {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                    held.remove(at);
                }
            });
        }
    }

    pub(super) fn note(rank: Rank) -> Noted {
        HELD.with_borrow_mut(|held| held.push(rank));
        Noted(rank)
    }

    pub(super) fn check(rank: Rank) {
        HELD.with_borrow(|held| {
            let alone = |held: &[Rank]| !held.contains(&Rank::Catalog);
            let waits = held.iter().any(|other| match (rank, *other) {
                (Rank::Catalog, _) => true,
                (Rank::Shared(id), Rank::Changing(other)) => id == other || alone(held),
                (Rank::Changing(id), Rank::Shared(other) | Rank::Changing(other)) => {
                    id == other || alone(held)
                }
                (Rank::Shared(_), Rank::Shared(_)) | (_, Rank::Catalog) => false,
            });
            assert!(!waits, "{rank:?} is waited for with {held:?}");
        });
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    fn take(rank: Rank) -> Ranked<&'static ()> {
        Ranked::take(rank, || Ok::<_, ()>(&())).unwrap()
    }

    fn panics(rank: Rank) -> bool {
        std::panic::catch_unwind(|| drop(take(rank))).is_err()
    }

    #[test]
    fn what_could_wait_for_itself_panics() {
        let shared = take(Rank::Shared(1));
        assert!(panics(Rank::Catalog) && panics(Rank::Changing(1)) && panics(Rank::Changing(2)));
        assert!(!panics(Rank::Shared(1)) && !panics(Rank::Shared(2)));
        drop(shared);
        let catalog = take(Rank::Catalog);
        let changing = take(Rank::Changing(1));
        assert!(panics(Rank::Shared(1)) && panics(Rank::Catalog));
        assert!(!panics(Rank::Changing(2)) && !panics(Rank::Shared(2)));
        drop((catalog, changing));
        assert!(!panics(Rank::Catalog));
    }
}
