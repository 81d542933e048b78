//! The encrypted data of a filter, found before it is rewritten: whether there is any, and which
//! payloads are the two halves of a range.
//!
//! The half with edges decides for the whole range, so the other half, the stub, becomes a
//! condition that always holds. This is right only if both halves belong to one conjunction:
//! `{$and: [edges, stub]}` is the range, while `{$or: [edges, stub]}` would match everything and is
//! refused.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use crate::payload::{FindPayload, PayloadKind, encrypted_bytes};

/// The most nested documents of a filter or an expression that may contain payloads.
const MAX_DEPTH: usize = mayfly_base::limits::MAX_BSON_DEPTH;
/// Operators whose array is a conjunction, or the operands of one comparison.
const CONJUNCTIVE: [&str; 5] = ["$and", "$gt", "$gte", "$lt", "$lte"];

/// The content of encrypted data in a query. `None` for other values, and for stored encrypted
/// values, which are compared like other binary data.
pub(super) fn query_bytes(value: RawValue<'_>) -> Option<&[u8]> {
    encrypted_bytes(value).filter(|bytes| match PayloadKind::of(bytes) {
        Some(
            PayloadKind::Deterministic
            | PayloadKind::Random
            | PayloadKind::StoredEquality
            | PayloadKind::StoredRange
            | PayloadKind::StoredText
            | PayloadKind::Unindexed,
        ) => false,
        Some(
            PayloadKind::Insert
            | PayloadKind::FindEquality
            | PayloadKind::FindRange
            | PayloadKind::FindText,
        )
        | None => true,
    })
}

/// Whether a value is or contains encrypted data that must be rewritten. [`check`] has limited the
/// depth.
pub(super) fn has_encrypted(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Document(inner) | RawValue::Array(inner) => {
            inner.iter().any(|element| has_encrypted(element.value()))
        }
        value => query_bytes(value).is_some(),
    }
}

/// Checks the halves of ranges in a filter, an expression or a pipeline. Returns whether it
/// contains encrypted data that must be rewritten.
///
/// # Errors
/// 2 BadValue for a stub without the other half; 15 Overflow for values that are nested too deeply;
/// errors of the payloads.
pub(super) fn check(value: RawValue<'_>) -> Result<bool> {
    let mut found = Found::default();
    found.add(value, "", 0)?;
    found.close()?;
    Ok(found.any)
}

/// The halves of ranges in one conjunction.
#[derive(Default)]
struct Found {
    any: bool,
    edges: HashSet<i32, RandomState>,
    stubs: Vec<i32>,
}

impl Found {
    /// Adds the argument of an operator or the value of a field.
    fn add(&mut self, value: RawValue<'_>, name: &str, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            let text = "a filter with encrypted data is nested too deeply";
            return Err(Error::new(ErrorCode::Overflow, text));
        }
        match value {
            RawValue::Document(inner) if name == "$not" => {
                self.add_apart(RawValue::Document(inner), depth)
            }
            RawValue::Document(inner) => {
                inner.iter().try_for_each(|item| self.add(item.value(), item.name(), depth + 1))
            }
            RawValue::Array(items) if CONJUNCTIVE.contains(&name) => {
                items.iter().try_for_each(|item| self.add(item.value(), "", depth + 1))
            }
            RawValue::Array(items) => {
                items.iter().try_for_each(|item| self.add_apart(item.value(), depth))
            }
            value => {
                let Some(bytes) = query_bytes(value) else { return Ok(()) };
                self.any = true;
                if let FindPayload::Range(range) = FindPayload::parse(bytes)? {
                    match range.edges {
                        Some(_) => drop(self.edges.insert(range.payload_id)),
                        None => self.stubs.push(range.payload_id),
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds a conjunction of its own, such as an alternative of an `$or`.
    fn add_apart(&mut self, value: RawValue<'_>, depth: usize) -> Result<()> {
        let mut inner = Found::default();
        inner.add(value, "", depth + 1)?;
        inner.close()?;
        self.any |= inner.any;
        Ok(())
    }

    /// Checks that each stub has the other half of its range.
    fn close(&self) -> Result<()> {
        match self.stubs.iter().find(|id| !self.edges.contains(id)) {
            None => Ok(()),
            Some(id) => Err(Error::bad_value(format!(
                "the second comparison of the encrypted range {id} is not in a conjunction with \
                 the first"
            ))),
        }
    }
}
