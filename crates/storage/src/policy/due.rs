//! Last-modified policies (expiry contract, section 8): a document expires by its last
//! modification, its own `ttl` or its own date. Their index has two kinds of entries:
//!
//! ```text
//! number | last-modified + own ttl, milliseconds        a document with its own ttl
//! date   | last-modified, or the document's date `_ts`  a document without one
//! ```
//!
//! A change of the policy's time to live therefore rewrites nothing. A document with `ttl: -1` has
//! no entry.

use mayfly_value::{RawDoc, RawValue};

use crate::policy::ExpireAfter;
use crate::record::{Moment, Record};

/// A document's own time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnTtl {
    /// No `ttl`, or an invalid one.
    Unset,
    /// The value -1.
    Never,
    /// A number of seconds.
    Seconds(i32),
}

/// The field `ttl` of a document. Valid are -1 and 1 to 2147483647 as int, long or double without
/// fraction.
pub(crate) fn own_ttl(document: RawDoc<'_>) -> OwnTtl {
    let seconds = match document.get("ttl") {
        Some(RawValue::Int32(seconds)) => i64::from(seconds),
        Some(RawValue::Int64(seconds)) => seconds,
        Some(RawValue::Double(seconds))
            if seconds.fract() == 0.0 && seconds.abs() <= f64::from(i32::MAX) =>
        {
            seconds as i64
        }
        _ => return OwnTtl::Unset,
    };
    match i32::try_from(seconds) {
        Ok(-1) => OwnTtl::Never,
        Ok(seconds) if seconds > 0 => OwnTtl::Seconds(seconds),
        _ => OwnTtl::Unset,
    }
}

/// The date in `_ts`, which replaces the last modification.
fn own_date(document: RawDoc<'_>) -> Option<i64> {
    match document.get("_ts") {
        Some(RawValue::Date(date)) => Some(date),
        _ => None,
    }
}

fn after(base_ms: i64, seconds: i32) -> i64 {
    base_ms.saturating_add(i64::from(seconds) * 1000)
}

/// The entries of a record in a last-modified policy's index.
pub(crate) fn last_modified_entries(record: Record<'_>, mut entry: impl FnMut(RawValue<'_>)) {
    let date = own_date(record.document);
    match own_ttl(record.document) {
        OwnTtl::Unset => entry(RawValue::Date(date.unwrap_or(record.modified_ms))),
        own => {
            if let OwnTtl::Seconds(seconds) = own {
                entry(RawValue::Int64(after(date.unwrap_or(record.modified_ms), seconds)));
            }
            // While `lastModifiedTTL` is off, only this date counts.
            if let Some(date) = date {
                entry(RawValue::Date(date));
            }
        }
    }
}

/// Whether the record is due by such a policy.
pub(crate) fn is_due_by_modification(
    record: Record<'_>,
    policy: ExpireAfter,
    moment: Moment,
) -> bool {
    let date = own_date(record.document);
    let (base, own) = match (date, moment.last_modified) {
        (Some(date), true) => (date, own_ttl(record.document)),
        (Some(date), false) => (date, OwnTtl::Unset),
        (None, true) => (record.modified_ms, own_ttl(record.document)),
        (None, false) => return false,
    };
    match (own, policy) {
        (OwnTtl::Seconds(seconds), ExpireAfter::Seconds(_) | ExpireAfter::OwnOnly)
        | (OwnTtl::Unset, ExpireAfter::Seconds(seconds)) => after(base, seconds) <= moment.now_ms,
        (OwnTtl::Never, _) | (OwnTtl::Unset, ExpireAfter::OwnOnly) | (_, ExpireAfter::Invalid) => {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, Document, doc};

    use super::*;

    fn own(document: Document) -> OwnTtl {
        own_ttl(DocBuf::from_bson(&document).as_doc())
    }

    #[test]
    fn t_64_which_values_of_ttl_mean_something() {
        assert_eq!(own(doc! { "ttl": 20 }), OwnTtl::Seconds(20));
        assert_eq!(own(doc! { "ttl": 20i64 }), OwnTtl::Seconds(20));
        assert_eq!(own(doc! { "ttl": 20.0 }), OwnTtl::Seconds(20));
        assert_eq!(own(doc! { "ttl": -1 }), OwnTtl::Never);
        assert_eq!(own(doc! { "ttl": -1.0 }), OwnTtl::Never);
        assert_eq!(own(doc! { "ttl": i32::MAX }), OwnTtl::Seconds(i32::MAX));
        let meaningless = [
            doc! { "ttl": 20.5 },
            doc! { "ttl": 2_147_483_649i64 },
            doc! { "ttl": "20" },
            doc! { "ttl": 0 },
            doc! { "ttl": -5 },
            doc! { "ttl": Bson::Null },
            doc! { "ttl": f64::NAN },
            doc! { "ttl": f64::INFINITY },
            doc! { "ttl": ["20"] },
            doc! { "TTL": 20 },
            doc! { "a": { "ttl": 20 } },
            doc! {},
        ];
        for document in meaningless {
            assert_eq!(own(document.clone()), OwnTtl::Unset, "{document}");
        }
    }

    #[test]
    fn t_65_the_nine_cells_of_the_table() {
        let due = |own: Bson, policy: ExpireAfter, after_secs: i64| {
            let document = match own {
                Bson::Null => doc! { "_id": 1 },
                own => doc! { "_id": 1, "ttl": own },
            };
            let document = DocBuf::from_bson(&document);
            let record =
                Record { document: document.as_doc(), modified_ms: 1_000_000, logged_at: None };
            let now_ms = 1_000_000 + after_secs * 1000;
            is_due_by_modification(record, policy, Moment { now_ms, last_modified: true })
        };
        let never = |own: Bson, policy| !due(own, policy, i64::from(i32::MAX) + 1);
        assert!(never(Bson::Null, ExpireAfter::OwnOnly));
        assert!(never(Bson::Int32(-1), ExpireAfter::OwnOnly));
        assert!(due(Bson::Int32(20), ExpireAfter::OwnOnly, 20));
        assert!(!due(Bson::Int32(20), ExpireAfter::OwnOnly, 19));
        assert!(due(Bson::Null, ExpireAfter::Seconds(10), 10));
        assert!(!due(Bson::Null, ExpireAfter::Seconds(10), 9));
        assert!(never(Bson::Int32(-1), ExpireAfter::Seconds(10)));
        assert!(!due(Bson::Int32(20), ExpireAfter::Seconds(10), 19));
        assert!(due(Bson::Int32(20), ExpireAfter::Seconds(10), 20));
    }
}
