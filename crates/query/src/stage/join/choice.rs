//! The choice between an index and a table for a join.
//!
//! The number of documents that will be joined is unknown. A join with an index therefore starts
//! with index look-ups, and counts how much a table would have saved. Once the saving equals the
//! cost of the table, it reads the table. The total cost is thereby at most twice that of the
//! better choice. A table that exceeds the memory saves nothing, because its documents would be
//! read from a file one by one.
//!
//! A server does not always know how many documents a collection has: a secondary does not, nor a
//! server after a crash. Then they are counted, as many as the saving would pay for, and again each
//! time the saving has doubled.
//!
//! Without an index each look-up is a scan, and the table is read at once.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::Collection;
use mayfly_work::spill::Operator;

use super::table::ENTRY_BYTES;
use crate::stage::StageContext;

// In units of half a microsecond, measured over 100,000 documents of 450 bytes: an index look-up
// took 7 us and 0.9 us for each document, a table look-up 2.5 us and 0.4 us, and reading the table
// 1 us for each document.

/// The cost that a table saves for each value.
const LOOK_UP_SAVES: u64 = 8;
/// The same for each round trip over a network.
const ROUND_TRIP_SAVES: u64 = 500;
/// The cost that a table saves for each document found by the index.
const DOCUMENT_SAVES: u64 = 1;
/// Fixed cost of reading the table.
const TABLE_COSTS: u64 = 20;
/// The same over a network: two round trips.
const REMOTE_TABLE_COSTS: u64 = 2 * ROUND_TRIP_SAVES;
/// Cost of reading the table, for each document.
const DOCUMENT_COSTS: u64 = 2;
/// The same over a network.
const REMOTE_DOCUMENT_COSTS: u64 = 4;

/// The saving at which documents are counted for the first time.
const COUNT_AT: u64 = 4_000;

/// Decides whether a join reads the other collection into a table.
#[derive(Default)]
pub(crate) struct Choice {
    saved: u64,
    /// The round trips over a network that a look-up takes.
    round_trips: u64,
    cost: Cost,
    /// Whether a table did not fit or cannot be built.
    refused: bool,
}

/// What a table would cost.
#[derive(Default)]
enum Cost {
    Known(u64),
    /// The collection is counted when this was saved.
    Unknown(Arc<Collection>, u64),
    /// It would not fit.
    #[default]
    TooLarge,
}

impl Choice {
    /// Prepares the choice before the first query of this collection. A look-up over a network
    /// takes this many round trips: one by `_id`, two by another index.
    pub(crate) fn begin(
        &mut self,
        context: &StageContext<'_>,
        other: &Arc<Collection>,
        round_trips: u64,
    ) {
        self.round_trips = if context.session.store.is_remote() { round_trips } else { 0 };
        self.cost = match other.has_known_size() {
            true => {
                let (documents, bytes) = other.known_size();
                let known = |size: i64| u64::try_from(size).unwrap_or(0);
                Cost::of(context, known(documents), known(bytes))
            }
            false => Cost::Unknown(other.clone(), COUNT_AT),
        };
    }

    /// Ends a batch. The next one starts without a table.
    pub(crate) fn end_batch(&mut self) {
        self.saved = 0;
    }

    /// Records an index look-up of `values` values that examined `documents` documents.
    pub(crate) fn record_lookup(&mut self, values: usize, documents: u64) {
        let each = LOOK_UP_SAVES + self.round_trips * ROUND_TRIP_SAVES;
        let saved = values as u64 * each + documents * DOCUMENT_SAVES;
        self.saved = self.saved.saturating_add(saved);
    }

    /// Whether a table is cheaper from now on.
    ///
    /// # Errors
    /// Errors of the store and of the operation's deadline.
    pub(crate) fn is_table_due(&mut self, context: &StageContext<'_>) -> Result<bool> {
        if self.refused {
            return Ok(false);
        }
        if let Cost::Unknown(other, at) = &mut self.cost
            && self.saved >= *at
        {
            let (store, op) = (context.session.store, context.session.op);
            let most = self.saved / DOCUMENT_COSTS;
            match store.count_up_to(op, other, most)? {
                Some(documents) => {
                    self.cost = Cost::of(context, documents, store.record_bytes(other, documents)?);
                }
                None => *at = self.saved.saturating_mul(2),
            }
        }
        Ok(self.has_paid())
    }

    /// Whether as much was saved as a table costs.
    fn has_paid(&self) -> bool {
        matches!(self.cost, Cost::Known(cost) if self.saved >= cost)
    }

    /// Whether a table may be built.
    pub(crate) fn may_have_table(&self) -> bool {
        !self.refused
    }

    /// Excludes a table.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }
}

impl Cost {
    fn of(context: &StageContext<'_>, documents: u64, bytes: u64) -> Cost {
        let limits = context.settings.budget.limits();
        let room = limits.operation.saturating_sub(context.settings.budget.used());
        let room = limits.of(Operator::HashLookup).min(room) as u64;
        let bytes = bytes.saturating_add(documents.saturating_mul(3 * ENTRY_BYTES as u64));
        let (fixed, each) = match context.session.store.is_remote() {
            true => (REMOTE_TABLE_COSTS, REMOTE_DOCUMENT_COSTS),
            false => (TABLE_COSTS, DOCUMENT_COSTS),
        };
        match bytes <= room {
            true => Cost::Known(documents.saturating_mul(each).saturating_add(fixed)),
            false => Cost::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_when_it_would_have_paid() {
        let mut choice =
            Choice { cost: Cost::Known(TABLE_COSTS + 1000 * DOCUMENT_COSTS), ..Choice::default() };
        let mut looks = 0;
        while !choice.has_paid() {
            choice.record_lookup(1, 1);
            looks += 1;
        }
        assert_eq!(looks, 225);
        choice.refuse();
        assert!(!choice.may_have_table());
    }

    #[test]
    fn over_a_network_a_table_pays_soon() {
        let cost = Cost::Known(REMOTE_TABLE_COSTS + 1000 * REMOTE_DOCUMENT_COSTS);
        let mut choice = Choice { cost, round_trips: 2, ..Choice::default() };
        (0..4).for_each(|_| choice.record_lookup(1, 1));
        assert!(!choice.has_paid());
        choice.record_lookup(1, 1);
        assert!(choice.has_paid());
    }

    #[test]
    fn one_look_at_many_documents_is_enough() {
        let mut choice = Choice { cost: Cost::Known(1000), ..Choice::default() };
        choice.record_lookup(1, 2000);
        assert!(choice.has_paid());
    }

    #[test]
    fn what_does_not_fit_memory_is_asked_for() {
        let mut choice = Choice::default();
        choice.record_lookup(1, 1 << 40);
        assert!(!choice.has_paid() && choice.may_have_table());
    }
}
