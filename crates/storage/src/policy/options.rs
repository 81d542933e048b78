//! The document `ttl` of a policy: options of this server in addition to `expireAfterSeconds`.
//! Expiry contract, section 9.
//!
//! It is part of an index's definition, or of the options of a clustered or time-series collection,
//! and is listed as it was given.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{RawDoc, RawValue};

use crate::policy::value::as_f64;

/// Options of a policy other than its time to live.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TtlOptions {
    /// Hides documents from the moment they are due.
    pub hide_expired: bool,
    /// The highest number of deletions in a second.
    pub max_docs_per_sec: Option<f64>,
    /// The most bytes of BSON that are deleted in a second.
    pub max_bytes_per_sec: Option<f64>,
    /// The policy deletes nothing.
    pub paused: bool,
    /// Where documents are copied before they are deleted.
    pub archive: Option<ArchiveTarget>,
    /// The path, as components, of a field that prevents the deletion while it is `true`.
    pub hold_field: Option<Vec<String>>,
}

/// The destination of expired documents.
#[derive(Clone, Debug, PartialEq)]
pub enum ArchiveTarget {
    /// Another collection, in the transaction that deletes them.
    Collection(Namespace),
    /// Files in a folder or an object store.
    Files {
        /// A path under the archive's root, or a URL.
        path: String,
        /// The format of the files.
        format: ArchiveFormat,
    },
}

/// The file format of archived documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// A line of canonical Extended JSON for each document, compressed.
    JsonLines,
    /// Concatenated BSON documents, compressed.
    Bson,
    /// Columnar Parquet files.
    Parquet,
}

impl ArchiveFormat {
    /// Every format with its name in `archive.format`, which is also the extension of its files.
    pub const ALL: [(&'static str, ArchiveFormat); 3] = [
        ("jsonl.zst", ArchiveFormat::JsonLines),
        ("bson.zst", ArchiveFormat::Bson),
        ("parquet", ArchiveFormat::Parquet),
    ];

    /// The name in `archive.format`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

fn invalid(text: String) -> Error {
    Error::new(ErrorCode::InvalidOptions, text)
}

fn wrong_type(member: &str, value: RawValue<'_>, expected: &str) -> Error {
    invalid(format!("'ttl.{member}' must be {expected}, but is of type {}", value.type_name()))
}

impl TtlOptions {
    /// Parses the document as a client sends it.
    ///
    /// # Errors
    /// 72 InvalidOptions, naming the invalid field.
    pub fn parse(value: RawValue<'_>) -> Result<TtlOptions> {
        let RawValue::Document(document) = value else {
            return Err(invalid(format!("'ttl' must be an object, but is {}", value.type_name())));
        };
        let mut options = TtlOptions::default();
        let mut seen: Vec<&str> = Vec::new();
        for element in document {
            let (name, value) = (element.name(), element.value());
            if seen.contains(&name) {
                return Err(invalid(format!("'ttl.{name}' is given twice")));
            }
            seen.push(name);
            match name {
                "hideExpired" => options.hide_expired = boolean(name, value)?,
                "paused" => options.paused = boolean(name, value)?,
                "maxDocsPerSec" => options.max_docs_per_sec = Some(rate(name, value)?),
                "maxBytesPerSec" => options.max_bytes_per_sec = Some(rate(name, value)?),
                "holdField" => options.hold_field = Some(path(name, value)?),
                "archive" => options.archive = Some(ArchiveTarget::parse(value)?),
                other => return Err(invalid(format!("'ttl.{other}' is an unknown field"))),
            }
        }
        Ok(options)
    }

    /// Parses the document from the catalog. One that cannot be read pauses the policy, so that it
    /// never deletes more than intended.
    pub(crate) fn from_catalog(value: Option<RawValue<'_>>) -> TtlOptions {
        let paused = TtlOptions { paused: true, ..TtlOptions::default() };
        value.map_or_else(TtlOptions::default, |value| Self::parse(value).unwrap_or(paused))
    }

    /// Whether the policy needs documents, not only their dates.
    pub(crate) fn needs_documents(&self) -> bool {
        self.hide_expired || self.archive.is_some() || self.hold_field.is_some()
    }

    /// Whether the document is held: a value at the hold field is `true`.
    pub(crate) fn holds(&self, document: RawDoc<'_>) -> bool {
        self.hold_field.as_ref().is_some_and(|parts| is_true(RawValue::Document(document), parts))
    }
}

fn is_true(value: RawValue<'_>, parts: &[String]) -> bool {
    match (value, parts.split_first()) {
        (RawValue::Bool(held), None) => held,
        // One `true` among several values holds the document, so that nothing is deleted in doubt.
        // BSON limits the depth of this recursion.
        (RawValue::Array(items), None) => {
            items.iter().any(|item| item.value() == RawValue::Bool(true))
        }
        (RawValue::Document(inner), Some((part, rest))) => {
            inner.get(part).is_some_and(|next| is_true(next, rest))
        }
        (RawValue::Array(items), Some((part, rest))) => items.iter().any(|item| {
            let inside = match item.value() {
                RawValue::Document(_) => is_true(item.value(), parts),
                _ => false,
            };
            inside || (item.name() == part && is_true(item.value(), rest))
        }),
        _ => false,
    }
}

fn boolean(name: &str, value: RawValue<'_>) -> Result<bool> {
    match value {
        RawValue::Bool(value) => Ok(value),
        other => Err(wrong_type(name, other, "a boolean")),
    }
}

fn rate(name: &str, value: RawValue<'_>) -> Result<f64> {
    match as_f64(value) {
        Some(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        Some(_) => Err(invalid(format!("'ttl.{name}' must be a finite number greater than 0"))),
        None => Err(wrong_type(name, value, "a number greater than 0")),
    }
}

fn path(name: &str, value: RawValue<'_>) -> Result<Vec<String>> {
    let RawValue::String(path) = value else {
        return Err(wrong_type(name, value, "a string"));
    };
    let parts: Vec<String> = path.split('.').map(str::to_owned).collect();
    let bad = |part: &String| part.is_empty() || part.starts_with('$') || part.contains('\0');
    if parts.iter().any(bad) || parts.len() > 100 {
        return Err(invalid(format!("'ttl.{name}' must be the path of a field, but is '{path}'")));
    }
    Ok(parts)
}

impl ArchiveTarget {
    fn parse(value: RawValue<'_>) -> Result<ArchiveTarget> {
        let RawValue::Document(document) = value else {
            return Err(wrong_type("archive", value, "an object"));
        };
        let (mut collection, mut path, mut format) = (None, None, None);
        for element in document {
            let RawValue::String(text) = element.value() else {
                let name = format!("archive.{}", element.name());
                return Err(wrong_type(&name, element.value(), "a string"));
            };
            match element.name() {
                "collection" => collection = Some(text),
                "path" => path = Some(text),
                "format" => format = Some(text),
                other => return Err(invalid(format!("'ttl.archive.{other}' is an unknown field"))),
            }
        }
        match (collection, path, format) {
            (Some(name), None, None) => Ok(ArchiveTarget::Collection(archive_collection(name)?)),
            (None, Some(path), Some(format)) => {
                let known = ArchiveFormat::ALL.iter().find(|(name, _)| *name == format);
                let Some((_, format)) = known else {
                    return Err(invalid(format!(
                        "'ttl.archive.format' must be one of 'jsonl.zst', 'bson.zst', 'parquet', but is '{format}'"
                    )));
                };
                if path.is_empty() || path.contains('\0') {
                    return Err(invalid("'ttl.archive.path' must not be empty".into()));
                }
                Ok(ArchiveTarget::Files { path: path.to_owned(), format: *format })
            }
            _ => Err(invalid(
                "'ttl.archive' must be { collection: \"db.collection\" } or { path, format }"
                    .into(),
            )),
        }
    }
}

fn archive_collection(name: &str) -> Result<Namespace> {
    let bad = || invalid(format!("'ttl.archive.collection' must be \"db.collection\": '{name}'"));
    let ns = Namespace::parse(name).map_err(|_| bad())?;
    let collection = ns.collection();
    let system =
        collection.starts_with("system.") || matches!(ns.db(), "admin" | "config" | "local");
    if collection.is_empty() || collection.contains('$') || system {
        return Err(bad());
    }
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Document, doc};

    use super::*;

    fn parse(document: Document) -> Result<TtlOptions> {
        let owned = DocBuf::from_bson(&document);
        TtlOptions::parse(RawValue::Document(owned.as_doc()))
    }

    #[test]
    fn members_are_checked() {
        let all = doc! {
            "hideExpired": true, "maxDocsPerSec": 10, "maxBytesPerSec": 1.5, "paused": false,
            "archive": { "collection": "a.b.c" }, "holdField": "x.y",
        };
        let options = parse(all).unwrap();
        assert!(options.hide_expired && !options.paused);
        assert_eq!(options.max_docs_per_sec, Some(10.0));
        let ns = Namespace::parse("a.b.c").unwrap();
        assert_eq!(options.archive, Some(ArchiveTarget::Collection(ns)));
        assert_eq!(options.hold_field, Some(vec!["x".to_owned(), "y".to_owned()]));
        let bad = [
            (doc! { "hideExpired": 1 }, "ttl.hideExpired"),
            (doc! { "maxDocsPerSec": 0 }, "ttl.maxDocsPerSec"),
            (doc! { "maxBytesPerSec": f64::NAN }, "ttl.maxBytesPerSec"),
            (doc! { "maxBytesPerSec": "1" }, "ttl.maxBytesPerSec"),
            (doc! { "holdField": "a..b" }, "ttl.holdField"),
            (doc! { "archive": {} }, "ttl.archive"),
            (doc! { "archive": { "collection": "a" } }, "ttl.archive.collection"),
            (doc! { "archive": { "collection": "a.system.views" } }, "ttl.archive.collection"),
            (doc! { "archive": { "path": "x", "format": "csv" } }, "ttl.archive.format"),
            (doc! { "archive": { "path": "x" } }, "ttl.archive"),
            (doc! { "archive": { "collection": "a.b", "path": "x" } }, "ttl.archive"),
            (doc! { "nope": 1 }, "ttl.nope"),
        ];
        for (document, member) in bad {
            let error = parse(document).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidOptions);
            assert!(error.message().contains(&format!("'{member}'")), "{}", error.message());
        }
    }

    #[test]
    fn a_hold_is_true_and_nothing_else() {
        let options = parse(doc! { "holdField": "a.b" }).unwrap();
        let held = |document: Document| options.holds(DocBuf::from_bson(&document).as_doc());
        assert!(held(doc! { "a": { "b": true } }));
        assert!(held(doc! { "a": [{ "b": 1 }, { "b": true }] }));
        assert!(held(doc! { "a": { "b": [false, true] } }));
        assert!(!held(doc! { "a": { "b": 1 } }));
        assert!(!held(doc! { "a": { "b": false } }));
        assert!(!held(doc! { "a": true }));
        assert!(!held(doc! { "a.b": true }));
    }
}
