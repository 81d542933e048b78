//! A tailable scan: at the end of a capped collection it waits for what comes, behind the last record that it looked at.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, Direction, KeyRange, RecordKey, Snapshot, whole_range};

use crate::language::CanonicalQuery;

/// The position of a tailable scan.
#[derive(Default)]
pub(crate) struct Tail {
    last: Option<RecordKey>,
}

impl Tail {
    /// Checks that a query can be followed.
    ///
    /// # Errors
    /// 2 BadValue for a collection that is not capped, and for an order that is not its own.
    pub(crate) fn new(collection: &Collection, query: &CanonicalQuery) -> Result<Tail> {
        if query.matcher.text().is_some() {
            let text = "text and tailable cursor not allowed in same query";
            return Err(Error::bad_value(text));
        }
        if query.sort.is_some() || query.natural_backward == Some(true) {
            let text = "cannot use tailable option with a sort other than {$natural: 1}";
            return Err(Error::bad_value(text));
        }
        if query.matcher.seeks_by_distance() {
            let text = "Tailable cursors and geo $near cannot be used together";
            return Err(Error::bad_value(text));
        }
        if collection.capped().is_none() {
            return Err(Error::bad_value(format!(
                "error processing query: ns={} planner returned error :: caused by :: tailable cursor requested on \
                 non capped collection",
                collection.namespace()
            )));
        }
        Ok(Tail::default())
    }

    /// The scan looked at this record.
    pub(crate) fn looked_at(&mut self, key: &[u8]) {
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Whether it has a position to go on from. A scan that found the collection empty has none, and ends.
    pub(crate) fn is_alive(&self) -> bool {
        self.last.is_some()
    }

    /// What is left to scan; nothing before the first record.
    ///
    /// # Errors
    /// 136 CappedPositionLost when the record of the position has gone.
    pub(crate) fn rest(
        &self,
        snapshot: &Snapshot,
        collection: &Collection,
    ) -> Result<Option<KeyRange>> {
        let Some(last) = &self.last else { return Ok(None) };
        check_position(snapshot, collection, last)?;
        Ok(Some(whole_range().after(last, Direction::Forward)))
    }
}

/// Checks that the record is there which a scan of a capped collection looked at last: otherwise there may be a gap behind it.
///
/// # Errors
/// 136 CappedPositionLost.
pub(crate) fn check_position(
    snapshot: &Snapshot,
    collection: &Collection,
    last: &[u8],
) -> Result<()> {
    if snapshot.has_record(collection, last)? {
        return Ok(());
    }
    let text = format!(
        "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId({})",
        last.try_into().map_or(0, u64::from_be_bytes)
    );
    Err(Error::new(ErrorCode::CappedPositionLost, text))
}
