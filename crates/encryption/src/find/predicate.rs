//! The predicate of a query for one stored value, which needs no state: the metadata of the value
//! contains encrypted zeros that only the value's token decrypts.
//!
//! The reference has the same predicate as `$_internalFleEq` and `$_internalFleBetween`.

use mayfly_value::RawValue;

use crate::cipher::ZerosCipher;
use crate::payload::{FindPayload, StoredValue, encrypted_bytes};
use crate::tokens::ZerosToken;

/// Decides whether a stored value is the one that a query looks for, or in its range.
#[derive(Clone, Debug)]
pub struct ValuePredicate {
    tokens: Vec<ZerosToken>,
    ciphers: Vec<ZerosCipher>,
}

impl ValuePredicate {
    /// The predicate of a payload. `None` for the stub of a range: the other payload of the range
    /// decides.
    pub fn new(payload: &FindPayload) -> Option<ValuePredicate> {
        let sets = match payload {
            FindPayload::Equality(find) => std::slice::from_ref(&find.tokens),
            FindPayload::Range(find) => &find.edges.as_ref()?.0[..],
        };
        let tokens = sets.iter().map(|set| set.server_data.zeros_token());
        Some(ValuePredicate::of_tokens(tokens.collect()))
    }

    /// The predicate that recognizes stored values by these tokens.
    pub fn of_tokens(tokens: Vec<ZerosToken>) -> ValuePredicate {
        let ciphers = tokens.iter().map(|token| ZerosCipher::new(token.as_bytes())).collect();
        ValuePredicate { tokens, ciphers }
    }

    /// Its tokens: one for an equality, one for each edge of a range.
    pub fn tokens(&self) -> &[ZerosToken] {
        &self.tokens
    }

    /// Whether the stored value matches. Other values, and values that are not encrypted for
    /// queries, do not.
    pub fn matches(&self, value: RawValue<'_>) -> bool {
        let stored = encrypted_bytes(value).and_then(|bytes| StoredValue::parse(bytes).ok());
        stored.is_some_and(|stored| {
            stored
                .blocks()
                .any(|block| self.ciphers.iter().any(|cipher| block.is_recognized(cipher)))
        })
    }
}
