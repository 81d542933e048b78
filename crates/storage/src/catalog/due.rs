//! What is due: one question, asked alike by the monitor, by every read that hides, and by unique checks.

use mayfly_base::Result;
use mayfly_kv::KeyRange;
use mayfly_value::RawValue;

use crate::catalog::Index;
use crate::index::keygen::{KeySet, index_keys};
use crate::index::range::{dates_up_to, numbers_up_to};
use crate::policy::value::cutoff_ms;
use crate::policy::{ExpireAfter, is_due_by_modification};
use crate::record::{Moment, Record};

impl Index {
    /// Whether this policy says that the record is due.
    ///
    /// # Errors
    /// Those of key generation.
    pub(crate) fn is_due(
        &self,
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<bool> {
        let Some(expire_after) = self.spec.expire_after() else { return Ok(false) };
        if self.spec.is_inert() {
            return Ok(false);
        }
        let document = record.document;
        if !self.covers(document)? || self.spec.ttl_options().holds(document) {
            return Ok(false);
        }
        if self.spec.is_last_modified() {
            return Ok(is_due_by_modification(record, expire_after, moment));
        }
        let ExpireAfter::Seconds(seconds) = expire_after else { return Ok(false) };
        let cutoff = cutoff_ms(moment.now_ms, i64::from(seconds));
        let field = &self.spec.fields()[0];
        // The usual case needs no keys.
        if let [name] = field.parts.as_slice() {
            match document.get(name) {
                // Of a clustered collection dates before 1970 never go.
                Some(RawValue::Date(date)) if self.is_collection_policy() => {
                    return Ok((0..=cutoff).contains(&date));
                }
                Some(RawValue::Date(date)) => return Ok(date <= cutoff),
                Some(RawValue::Array(_)) => {}
                _ => return Ok(false),
            }
        }
        index_keys(&self.spec, record, keys)?;
        let range = dates_up_to(field, cutoff);
        Ok(keys.iter().any(|(key, _)| range.start.as_slice() <= key && key < range.end.as_slice()))
    }

    /// The ranges of entries that may be due, in which a visit looks.
    pub(crate) fn due_ranges(&self, moment: Moment) -> Vec<KeyRange> {
        let field = &self.spec.fields()[0];
        let mut ranges = Vec::new();
        if self.spec.is_inert() {
            return ranges;
        }
        if self.spec.is_last_modified() && moment.last_modified {
            ranges.push(numbers_up_to(field, moment.now_ms));
        }
        if let Some(ExpireAfter::Seconds(seconds)) = self.spec.expire_after() {
            ranges.push(dates_up_to(field, cutoff_ms(moment.now_ms, i64::from(seconds))));
        }
        ranges
    }
}
