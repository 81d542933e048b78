//! A write unit over several collections: all of its writes become visible at once, or none.
//!
//! The unit belongs to one of the collections, and writes to the others through
//! [`WriteUnit::within`]. The others must not be capped.

use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result};
use mayfly_work::OpCtx;

use super::others::{OpenCollection, OtherCollection};
use super::{WriteOptions, WriteUnit, Writer};
use crate::catalog::Collection;
use crate::isolation::ReadView;

/// The collections of one unit.
pub struct UnitCollections {
    /// The collection that the unit belongs to.
    pub first: Arc<Collection>,
    /// The others, each with its name.
    pub others: Vec<(Namespace, Arc<Collection>)>,
}

impl Writer {
    /// Runs a unit over several collections, as [`Writer::write`] does over one.
    ///
    /// # Errors
    /// As [`Writer::write`]; 72 InvalidOptions when one of the others is capped.
    pub fn write_together<T>(
        &self,
        (op, view): (&OpCtx, &ReadView),
        together: &UnitCollections,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        let others: Vec<OtherCollection> = together
            .others
            .iter()
            .map(|(ns, collection)| (ns.clone(), Ok(collection.clone())))
            .collect();
        let options = WriteOptions::new(op, view, &together.first);
        self.write_with(options.with_others(&others), body)
    }
}

impl WriteUnit<'_> {
    /// Writes into the collection of this name, which is one of the unit's.
    ///
    /// # Errors
    /// Errors of `act`; 112 WriteConflict when the collection is being changed.
    pub fn within<T>(
        &mut self,
        ns: &Namespace,
        act: impl FnOnce(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.namespace() == ns.as_str() {
            return act(self);
        }
        let open = self.other(ns)?;
        open.check_uncapped("written in one unit with others")?;
        let unvalidated = self.is_unvalidated();
        self.on_collection(open, |unit| {
            unit.set_unvalidated(unvalidated);
            act(unit)
        })
    }
}

impl<'s> WriteUnit<'s> {
    /// The unit's other collection of this name.
    ///
    /// # Errors
    /// 112 WriteConflict when it is being changed.
    pub(super) fn other(&self, ns: &Namespace) -> Result<&'s OpenCollection<'s>> {
        match self.others {
            Some(others) => others.get(ns),
            None => Err(Error::internal("a unit without its other collections")),
        }
    }
}
