//! Checks a write against an engine's limits, with the same messages for every engine.

use crate::{Caps, KvError, KvResult};

impl Caps {
    /// Checks that a key is greater than the one that an [`Ingest`](crate::Ingest) added last.
    pub fn check_ascending(&self, last: Option<&[u8]>, key: &[u8]) -> KvResult<()> {
        match last {
            Some(last) if last >= key => Err(KvError::Invalid("a key out of order".into())),
            _ => Ok(()),
        }
    }

    /// Checks that one more write fits into a transaction of this size
    /// ([`Txn::size`](crate::Txn::size)).
    pub fn check_write(&self, key: &[u8], value: &[u8], size: (usize, usize)) -> KvResult<()> {
        let checks = [
            ("a key", key.len(), self.max_key_bytes, "bytes"),
            ("a value", value.len(), self.max_value_bytes, "bytes"),
            ("a transaction", size.0 + key.len() + value.len(), self.max_txn_bytes, "bytes"),
            ("a transaction", size.1 + 1, self.max_txn_keys, "keys"),
        ];
        for (what, is, max, unit) in checks {
            if is > max {
                let text = format!("{what} of {is} {unit}; the engine takes {max}");
                return Err(KvError::TooLarge(text));
            }
        }
        Ok(())
    }
}
