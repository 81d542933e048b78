//! Queryable encryption, the server's part: payloads of clients, tokens, tags, and the state that
//! counts encrypted values. Protocol version 2, for equality and for ranges; text search is
//! refused.
//!
//! Clients encrypt values with keys that the server does not have. To answer queries, the server
//! stores a random-looking *tag* with each value. The tag is an HMAC of a counter, and a client
//! that looks for the value sends the HMAC's key, so that the server can compute the tags of all
//! counts.
//!
//! * [`EncryptedFields`] is the definition of a collection.
//! * [`plan_write`] turns a document with payloads into the stored one, and returns what the state
//!   collections gain. [`write`](mod@write) describes it.
//! * [`FilterRewriter`] turns filters with query payloads into conditions on tags. [`find_tags`]
//!   and [`ValuePredicate`] do so for one payload.
//! * [`plan_compaction`] and [`plan_cleanup`] shrink the state, see [`upkeep`](mod@upkeep).
//! * [`state`](mod@state) describes the state collections. [`EscReader`] reads them.
//!
//! Pure and synchronous: no store, no network, no clock, no source of randomness. Callers pass
//! random bytes ([`RandomIv`]). Decoders accept any bytes; malformed ones are an error.

mod cipher;
mod find;
mod payload;
mod schema;
pub mod state;
#[cfg(test)]
mod tests;
mod tokens;
pub mod upkeep;
pub mod write;

pub use cipher::RandomIv;
pub use find::{
    DEFAULT_MAX_TAGS, FallbackField, FilterRewriter, TagSearch, ValuePredicate, find_tags,
};
pub use payload::{
    ENCRYPTED, EqualityFind, FindPayload, FindTokens, InsertPayload, InsertTokens, MAX_BLOCKS,
    MetadataBlock, PayloadKind, RangeFind, RangeOperator, RangeOptions, StoredKind, StoredValue,
    encrypted_bytes,
};
pub use schema::{EncryptedField, EncryptedFields, FieldIndex};
pub use state::{
    EscId, EscReader, EscRecord, QueueEntry, QueuedToken, esc_document, queued_tokens,
};
pub use tokens::{
    AnchorPaddingToken, CountToken, EcocToken, EdcContentionToken, EdcDataToken, EdcTagToken,
    EscContentionToken, EscDataToken, EscTagToken, EscValueToken, ServerDataToken,
    ServerValueToken, TOKEN_BYTES, Tag, ZerosToken,
};
pub use upkeep::{
    FieldToken, StateChange, check_tokens, parse_tokens, plan_cleanup, plan_compaction,
    plan_padding, plan_padding_cleanup,
};
pub use write::{SAFE_CONTENT, WritePlan, plan_write, stored_tags};
