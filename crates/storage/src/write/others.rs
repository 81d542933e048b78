//! The other collections of a write unit: those that its caller names, and those that the policies
//! of its collections archive into.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use parking_lot::RwLockReadGuard;

use crate::catalog::{Collection, CollectionState};

/// Catalog changes lock collections one after the other, so a wait for a second lock is limited to
/// this.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// A collection that a unit may write to besides its own. The error, if it cannot be found or
/// created, matters only to a unit that writes to it.
pub type OtherCollection = (Namespace, Result<Arc<Collection>>);

/// Another collection, with its state locked.
pub(crate) struct OpenCollection<'s> {
    namespace: String,
    collection: &'s Arc<Collection>,
    state: RwLockReadGuard<'s, CollectionState>,
}

impl<'s> OpenCollection<'s> {
    /// Locks the state shared, like that of the unit's own collection.
    ///
    /// # Errors
    /// 112 WriteConflict during a change of the collection.
    fn open(collection: &'s Arc<Collection>) -> Result<OpenCollection<'s>> {
        let state = collection.state.try_read_for(LONGEST_WAIT);
        let state = state.filter(|_| !collection.is_dropped()).ok_or_else(being_changed)?;
        let namespace = collection.namespace().as_str().to_owned();
        Ok(OpenCollection { namespace, collection, state })
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn collection(&self) -> &'s Arc<Collection> {
        self.collection
    }

    pub(crate) fn state(&self) -> &CollectionState {
        &self.state
    }

    /// Refuses a capped collection: what it removes depends on serial commits.
    ///
    /// # Errors
    /// 72 InvalidOptions that names the role.
    pub(crate) fn check_uncapped(&self, role: &str) -> Result<()> {
        match self.state.capped {
            None => Ok(()),
            Some(_) => Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("the capped collection {} cannot be {role}", self.namespace),
            )),
        }
    }
}

/// The other collections of a unit, open.
pub(crate) struct OpenCollections<'s>(Vec<(&'s Namespace, Result<OpenCollection<'s>>)>);

impl<'s> OpenCollections<'s> {
    pub(crate) fn open(others: &'s [OtherCollection]) -> OpenCollections<'s> {
        let opened = others.iter().map(|(ns, other)| match other {
            Ok(other) => (ns, OpenCollection::open(other)),
            Err(error) => (ns, Err(error.clone())),
        });
        OpenCollections(opened.collect())
    }

    /// The collection of this name.
    ///
    /// # Errors
    /// 112 WriteConflict during a change of the collection or of the policy that names it.
    pub(crate) fn get(&'s self, ns: &Namespace) -> Result<&'s OpenCollection<'s>> {
        match self.0.iter().find(|(other, _)| *other == ns) {
            Some((_, Ok(open))) if open.namespace == ns.as_str() => Ok(open),
            Some((_, Err(error))) => Err(error.clone()),
            // The collection was renamed, or the policy is newer than the unit.
            _ => Err(being_changed()),
        }
    }
}

fn being_changed() -> Error {
    Error::new(ErrorCode::WriteConflict, "another collection of the unit is being changed")
}
