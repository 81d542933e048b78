//! The value of each document of a segment that a sort or a score uses.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::Result;
use mayfly_value::RawValue;
use parking_lot::Mutex;

use super::Control;
use super::plan::number_in;
use super::segment::Segment;
use crate::filter::value::{PRESENT, key_of};
use crate::query::{NumberKind, ValueChoice};

/// The key of several that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BestKey {
    /// The key by which a sort compares the document.
    Sort(ValueChoice),
    /// The key of the least number.
    LeastNumber,
}

/// Keys between two calls of the check.
const BLOCK: usize = 4_096;

/// The time of waiting for another search between two calls of the check.
const WAIT: Duration = Duration::from_millis(50);

/// The place of a document without a key.
pub(super) const NO_PLACE: u32 = u32::MAX;

/// The place of each document's key, by the document's ordinal.
pub(super) type Places = Arc<Vec<u32>>;

/// The places that were needed so far. A list has 4 bytes for each document.
#[derive(Default)]
pub(super) struct BestPlaces(Mutex<HashMap<(u16, BestKey), Places>>);

impl Segment {
    /// The place in a column of each document's key.
    ///
    /// # Errors
    /// Errors of [`Control::check`].
    pub(super) fn best_places(
        &self,
        field: u16,
        key: BestKey,
        control: &dyn Control,
    ) -> Result<Places> {
        let mut known = loop {
            // Another search may compute the same list, which takes a while.
            match self.best.0.try_lock_for(WAIT) {
                Some(known) => break known,
                None => control.check()?,
            }
        };
        Ok(match known.entry((field, key)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                place.insert(Arc::new(self.compute(field, key, control)?)).clone()
            }
        })
    }

    fn compute(&self, field: u16, key: BestKey, control: &dyn Control) -> Result<Vec<u32>> {
        let mut places = vec![NO_PLACE; self.len()];
        let Some(column) = self.column(usize::from(field)) else { return Ok(places) };
        let null = key_of(RawValue::Null);
        // Keys are in their order, so the first one of a document is the least.
        for place in 0..column.len() {
            if place % BLOCK == 0 {
                control.check()?;
            }
            let bytes = column.key(place);
            let (is_counted, takes_last) = match key {
                BestKey::Sort(choice) => {
                    let is_highest = choice.null_is_highest && bytes == null;
                    (bytes != PRESENT && !is_highest, choice.takes_greatest)
                }
                BestKey::LeastNumber => (number_in(bytes, NumberKind::Number).is_some(), false),
            };
            if !is_counted {
                continue;
            }
            for document in column.list(place) {
                if let Some(known) = places.get_mut(document as usize)
                    && (takes_last || *known == NO_PLACE)
                {
                    *known = place as u32;
                }
            }
        }
        if let BestKey::Sort(ValueChoice { takes_greatest: true, null_is_highest: true }) = key {
            // A null is the greatest of several values.
            column.each(&null, |document| {
                if let Some(known) = places.get_mut(document as usize) {
                    *known = NO_PLACE;
                }
            });
        }
        Ok(places)
    }
}
