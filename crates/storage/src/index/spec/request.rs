//! The check of a requested definition.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use super::checks::{
    boolean, check_collated, check_key, collation_option, document_option, is_id_pattern,
    is_last_modified, key_pattern, name, only_boolean, version,
};
use super::types::{check_clustered, check_combinations, check_types};
use super::{IndexSpec, LAST_MODIFIED};
use crate::index::id_index;
use crate::index::kinds::{self, FieldKind};
use crate::policy::value::{expire_after_for_create, last_modified_for_create};
use crate::policy::{ExpireAfter, TtlIndexRules, TtlOptions};

/// A note in the reply for a compound key whose TTL option is dropped.
const TTL_IGNORED_NOTE: &str = "expireAfterSeconds ignored: TTL indexes are single-field indexes";

/// The result of a checked request.
pub(crate) enum Requested {
    /// The index on `_id`, which always exists, and the requested collation.
    Id(Option<Option<Arc<Collation>>>),
    /// A further index, and a note for the reply.
    Index(Box<IndexSpec>, Option<&'static str>),
}

/// How requests are checked.
#[derive(Clone, Copy)]
pub(crate) struct SpecRules {
    /// Which rules apply where the manual and servers differ.
    pub ttl: TtlIndexRules,
    /// An index on `_ts` is a last-modified policy.
    pub last_modified: bool,
    /// Drop unknown options instead of refusing them.
    pub ignore_unknown: bool,
}

/// Options that are stored and listed as given.
const KNOWN: &[&str] = &[
    "v",
    "key",
    "name",
    "ns",
    "unique",
    "sparse",
    "hidden",
    "background",
    "expireAfterSeconds",
    "partialFilterExpression",
    "collation",
    "storageEngine",
    "prepareUnique",
    "dropDups",
    "clustered",
    "ttl",
];

impl IndexSpec {
    /// Checks a requested definition.
    ///
    /// # Errors
    /// 67, 197, 9, 14, 2 and 238 as the reference has them.
    pub(crate) fn request(raw: RawDoc<'_>, rules: SpecRules) -> Result<Requested> {
        check_clustered(raw)?;
        let key = key_pattern(raw)?;
        let name = name(raw, key)?;
        check_types(raw)?;
        if is_id_pattern(key) {
            return Ok(Requested::Id(id_index::collation_of(raw, key)?));
        }
        if name == "_id_" {
            return Err(Error::bad_value(format!(
                "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, found {}",
                Shell(key)
            )));
        }
        let kind = kinds::row_of_key(key);
        let is_wildcard = kind.is_some_and(|row| row.field == FieldKind::Wildcard);
        if raw.get("expireAfterSeconds").is_some() && is_wildcard {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "cannot make a TTL index :: caused by :: Index type 'wildcard' does not support the \
                 'expireAfterSeconds' option",
            ));
        }
        check_key(key)?;
        let is_text = kind.is_some_and(|row| row.field == FieldKind::Text);
        if !is_text && key.iter().any(|field| matches!(field.name(), "_fts" | "_ftsx")) {
            let text = "Index key contains an illegal field name: '_fts' belongs to text indexes";
            return Err(Error::new(ErrorCode::CannotCreateIndex, text));
        }
        let last_modified =
            rules.last_modified && raw.get("expireAfterSeconds").is_some() && is_last_modified(key);
        if raw.get("ttl").is_some() && raw.get("expireAfterSeconds").is_none() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "'ttl' can be used only together with 'expireAfterSeconds'",
            ));
        }
        if let Some(row) = kind
            && raw.get("ttl").is_some()
        {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("'ttl' is not supported on an index of type '{}'", row.name),
            ));
        }
        let requested = kinds::request(raw, key)?;
        check_combinations(raw)?;
        let mut note = None;
        let mut expire_after = None;
        // Version 1 has no collations, not even that of the collection.
        let mut inherits = version(raw)? > 1;
        let mut out = DocBuilder::new();
        check_collated(raw)?;
        out.append("v", version(raw)?);
        out.append("key", requested.key.as_ref().map_or(key, DocBuf::as_doc)).append("name", name);
        for element in raw {
            match element.name() {
                // The server has one engine, without options for an index. They are listed as
                // given.
                "storageEngine" => match element.value() {
                    RawValue::Document(_) => {
                        out.append_element(element);
                    }
                    RawValue::Null | RawValue::Undefined => {}
                    other => return Err(wrong_type("storageEngine", other, "object")),
                },
                "v" | "key" | "name" | "ns" | "dropDups" | "_id" => {}
                "expireAfterSeconds" if last_modified => {
                    let seconds = last_modified_for_create(element.value())?;
                    out.append("expireAfterSeconds", seconds);
                    expire_after = Some(ExpireAfter::of_last_modified(seconds));
                }
                "ttl" => {
                    TtlOptions::parse(element.value())?;
                    if key.iter().count() == 1 {
                        out.append_element(element);
                    }
                }
                "expireAfterSeconds" => {
                    let seconds = expire_after_for_create(element.value())?;
                    if key.iter().count() == 1 {
                        out.append("expireAfterSeconds", seconds);
                        expire_after = Some(ExpireAfter::Seconds(seconds));
                    } else if rules.ttl == TtlIndexRules::Manual {
                        note = Some(TTL_IGNORED_NOTE);
                    } else {
                        return Err(Error::new(
                            ErrorCode::CannotCreateIndex,
                            "TTL indexes are single-field indexes, compound indexes do not support TTL",
                        ));
                    }
                }
                "collation" => {
                    inherits = false;
                    if let Some(collation) = collation_option(element)? {
                        out.append("collation", collation.document());
                    }
                }
                // It has no effect, and is listed as given.
                "background" => {
                    boolean(element)?;
                    out.append_element(element);
                }
                "hidden" => {
                    if only_boolean(element)? {
                        out.append("hidden", true);
                    }
                }
                "sparse" => {
                    out.append("sparse", boolean(element)?);
                }
                "unique" | "prepareUnique" => {
                    if boolean(element)? {
                        out.append(element.name(), true);
                    }
                }
                "partialFilterExpression" => {
                    document_option(element)?;
                    out.append_element(element);
                }
                own if kind.is_some_and(|row| row.option(own).is_some()) => {}
                // Options of other kinds have no effect, and are listed.
                known if known == "bucketSize" || kinds::option_form(known).is_some() => {
                    out.append_element(element);
                }
                known if KNOWN.contains(&known) => {
                    return Err(Error::not_implemented(format!("index option '{known}'")));
                }
                unknown if rules.ignore_unknown => tracing::debug!(unknown, "ignored index option"),
                unknown => {
                    return Err(Error::new(
                        ErrorCode::InvalidIndexSpecificationOption,
                        format!(
                            "The field '{unknown}' is not valid for an index specification. Specification: {}",
                            Shell(raw)
                        ),
                    ));
                }
            }
        }
        if last_modified {
            out.append(LAST_MODIFIED, true);
        }
        let own = requested.options.finish();
        own.as_doc().iter().for_each(|element| {
            out.append_element(element);
        });
        let document = out.finish();
        let mut spec = IndexSpec::from_catalog(document)?;
        spec.expire_after = expire_after;
        spec.inherits = inherits;
        if last_modified && spec.unique {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "a '_ts' policy cannot be unique",
            ));
        }
        if spec.sparse && spec.partial_filter().is_some() {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "cannot mix \"partialFilterExpression\" and \"sparse\" options",
            ));
        }
        Ok(Requested::Index(Box::new(spec), note))
    }
}

/// Adds the definition to an error's message, as the reference does.
pub(crate) fn in_spec_context(error: Error, spec: RawDoc<'_>) -> Error {
    match error.code() {
        ErrorCode::CannotCreateIndex | ErrorCode::TypeMismatch => {
            error.in_context(format_args!(". Index spec: {}", Shell(spec)))
        }
        _ => error,
    }
}
