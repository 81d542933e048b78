//! A tailable scan: at the end of a capped collection it waits for records after the last one that
//! it examined.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, Direction, KeyRange, RecordKey, Snapshot, whole_range};

use crate::language::CanonicalQuery;

/// The position of a tailable scan.
#[derive(Default)]
pub(crate) struct Tail {
    last: Option<RecordKey>,
}

/// Checks that a query can be tailable.
///
/// # Errors
/// 2 BadValue for a collection that is not capped, and for an order other than the natural one.
pub(super) fn check(collection: &Collection, query: &CanonicalQuery) -> Result<()> {
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
    Ok(())
}

impl Tail {
    /// Records that the scan examined this record.
    pub(crate) fn examined(&mut self, key: &[u8]) {
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Whether the scan has a position to continue from. A scan of an empty collection has none,
    /// and ends.
    pub(crate) fn is_alive(&self) -> bool {
        self.last.is_some()
    }

    /// The range left to scan; `None` before the first record.
    ///
    /// # Errors
    /// 136 CappedPositionLost if the record at the position was deleted.
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

/// Checks that the last examined record of a capped collection still exists. Otherwise records
/// after it may have been deleted unseen.
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
