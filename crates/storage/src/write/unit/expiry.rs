//! Deletions by policies.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::RawDoc;

use super::WriteUnit;
use crate::catalog::Policy;
use crate::oplog::ExpiredBy;
use crate::record::StoredDocument;

impl WriteUnit<'_> {
    /// Whether a policy holds the document; it then does not expire by any policy.
    pub(crate) fn holds(&self, document: RawDoc<'_>) -> bool {
        self.state.holds(document)
    }

    /// Deletes a document that is due by this policy. The caller has archived it.
    ///
    /// # Errors
    /// 112 WriteConflict.
    pub(crate) fn expire(
        &mut self,
        record_key: &[u8],
        document: &StoredDocument,
        policy: &Arc<Policy>,
    ) -> Result<()> {
        let expired = ExpiredBy { index: policy.name(), expire_after_secs: policy.listed_secs() };
        self.delete_as(record_key, document.record(), Some(expired))?;
        match self.effects.expired.last_mut() {
            Some((last, count)) if last.id == policy.id => *count += 1,
            _ => self.effects.expired.push((policy.clone(), 1)),
        }
        Ok(())
    }
}
