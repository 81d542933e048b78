//! The content of binary data of subtype 6: values that a client has encrypted, and what it sends
//! to store or to find them. The first byte is the kind.
//!
//! Sources: the specification "Client Side Encryption" of drivers (BSON Binary Subtype 6) and the
//! headers `mc-fle2-*-private-v2.h` of libmongocrypt. This crate knows version 2 of the protocol
//! (servers from 7.0) without text search.

mod fields;
mod find;
mod insert;
mod range;
mod stored;

pub(crate) use fields::GENERAL;
pub use find::{EqualityFind, FindPayload, FindTokens, RangeFind, RangeOperator};
pub use insert::{InsertPayload, InsertTokens};
pub use range::RangeOptions;
pub(crate) use stored::store;
pub use stored::{MAX_BLOCKS, MetadataBlock, StoredKind, StoredValue};

use mayfly_value::RawValue;

/// The subtype of encrypted binary data.
pub const ENCRYPTED: u8 = 6;

/// The kind of encrypted binary data: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PayloadKind {
    /// A value of client-side field level encryption, deterministic.
    Deterministic = 1,
    /// A value of client-side field level encryption, random.
    Random = 2,
    /// A value to insert, with the tokens of its index.
    Insert = 11,
    /// A query for a value.
    FindEquality = 12,
    /// A query for a range.
    FindRange = 13,
    /// A stored value, indexed for equality.
    StoredEquality = 14,
    /// A stored value, indexed for ranges.
    StoredRange = 15,
    /// A stored value without an index.
    Unindexed = 16,
    /// A stored value, indexed for text search.
    StoredText = 17,
    /// A query for text.
    FindText = 18,
}

impl PayloadKind {
    const ALL: [PayloadKind; 10] = [
        PayloadKind::Deterministic,
        PayloadKind::Random,
        PayloadKind::Insert,
        PayloadKind::FindEquality,
        PayloadKind::FindRange,
        PayloadKind::StoredEquality,
        PayloadKind::StoredRange,
        PayloadKind::Unindexed,
        PayloadKind::StoredText,
        PayloadKind::FindText,
    ];

    /// The kind of the content of encrypted binary data. `None` for no bytes, for placeholders,
    /// which clients never send to a server, and for version 1 of the protocol.
    pub fn of(bytes: &[u8]) -> Option<PayloadKind> {
        let first = *bytes.first()?;
        PayloadKind::ALL.into_iter().find(|kind| *kind as u8 == first)
    }
}

/// The content of encrypted binary data; `None` for other values.
pub fn encrypted_bytes(value: RawValue<'_>) -> Option<&[u8]> {
    match value {
        RawValue::Binary { subtype: ENCRYPTED, bytes } => Some(bytes),
        _ => None,
    }
}
