//! Options of a collection: validation, and the order of `listCollections`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::TtlIndexRules;
use mayfly_storage::policy::value::expire_after_for_collection;
use mayfly_value::arguments::Argument;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use super::encrypted_fields::encrypted_fields;
use super::id_options::{clustered, id_index};
use crate::request::Fields;

/// Options of a collection that a view cannot have.
const COLLECTION_ONLY: &[&str] = &[
    "capped",
    "size",
    "max",
    "autoIndexId",
    "idIndex",
    "timeseries",
    "clusteredIndex",
    "expireAfterSeconds",
    "ttl",
    "validator",
    "validationLevel",
    "validationAction",
    "storageEngine",
    "indexOptionDefaults",
    "changeStreamPreAndPostImages",
    "encryptedFields",
    "temp",
];

/// `validationLevel` of `create` and `collMod`.
pub(super) const VALIDATION_LEVEL: Argument =
    Argument::choice("validationLevel", &["off", "strict", "moderate"]);
/// `validationAction` of `create` and `collMod`.
pub(super) const VALIDATION_ACTION: Argument =
    Argument::choice("validationAction", &["error", "warn", "errorAndLog"]);
/// `changeStreamPreAndPostImages` of `create` and `collMod`.
pub(super) const IMAGES: Argument =
    Argument::fields("changeStreamPreAndPostImages", &[Argument::bool("enabled").required()])
        .since("6.0");
/// `indexOptionDefaults` of `create`.
pub(super) const INDEX_DEFAULTS: Argument =
    Argument::fields("indexOptionDefaults", &[Argument::document("storageEngine")])
        .since("3.2")
        .unstable();

pub(super) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text)
}

/// The collection that is defined, and the context of its options.
pub(super) struct Defining<'a> {
    pub(super) ns: &'a Namespace,
    /// The UUID of the collection; `None` for a new one.
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) now_ms: i64,
    pub(super) rules: TtlIndexRules,
}

/// Checks the options of `create` for a collection and returns them as they are stored.
///
/// # Errors
/// Errors of the options.
pub(super) fn collection_options(fields: &Fields<'_>, defining: &Defining<'_>) -> Result<DocBuf> {
    let ns = defining.ns;
    let mut options = DocBuilder::new();
    auto_index_id(fields, ns)?;
    id_index(fields)?;
    capped(fields, &mut options)?;
    images(fields, Images::WhenOn, &mut options)?;
    engine_documents(fields, &mut options)?;
    validation(fields, ns, &mut options)?;
    clustered(fields, &mut options)?;
    if let Some(value) = fields.get("expireAfterSeconds") {
        let seconds = expire_after_for_collection(value, defining.now_ms, defining.rules)?;
        options.append("expireAfterSeconds", seconds);
    }
    policy(fields, &mut options)?;
    if fields.bool("temp")? == Some(true) {
        options.append("temp", true);
    }
    collation(fields, &mut options)?;
    encrypted_fields(fields, &mut options)?;
    Ok(options.finish())
}

/// Appends the document `ttl` of the collection's policy; an empty one is not stored.
pub(super) fn policy(fields: &Fields<'_>, options: &mut DocBuilder) -> Result<()> {
    let Some(ttl) = fields.document("ttl")? else { return Ok(()) };
    if fields.get("expireAfterSeconds").is_none() {
        return Err(invalid("'ttl' can be used only together with 'expireAfterSeconds'"));
    }
    if !ttl.is_empty() {
        options.append("ttl", ttl);
    }
    Ok(())
}

/// Appends the collation; the simple collation is not stored.
pub(super) fn collation(fields: &Fields<'_>, options: &mut DocBuilder) -> Result<()> {
    match fields.document("collation")? {
        None => {}
        Some(collation) => {
            if let Some(collation) = Collation::parse(collation, "create.collation")? {
                options.append("collation", collation.document());
            }
        }
    }
    Ok(())
}

/// Refuses options that a view cannot have.
///
/// # Errors
/// 72 InvalidOptions.
pub(super) fn check_view_options(fields: &Fields<'_>) -> Result<()> {
    match COLLECTION_ONLY.iter().find(|name| fields.get(name).is_some()) {
        Some(name) => Err(invalid(format!("Cannot create a view with the option '{name}'"))),
        None => Ok(()),
    }
}

/// Manual: "create", "autoIndexId": it can only be false in `local`.
fn auto_index_id(fields: &Fields<'_>, ns: &Namespace) -> Result<()> {
    match fields.bool("autoIndexId")? {
        Some(false) if ns.db() == "local" => {
            Err(Error::not_implemented("a collection without an index on '_id'"))
        }
        Some(false) => Err(invalid(format!(
            "The 'autoIndexId' option cannot be set to false for {ns}; the 'local' database alone allows it"
        ))),
        _ => Ok(()),
    }
}

/// The largest size of a capped collection: one petabyte.
const MAX_CAPPED_BYTES: i64 = 1 << 50;

/// The document limit that is stored for 0 and negative numbers: none.
const NO_MAX: i64 = i32::MAX as i64;

/// `capped`, `size`, `max`. Manual: "create".
fn capped(fields: &Fields<'_>, options: &mut DocBuilder) -> Result<()> {
    if fields.bool("capped")? != Some(true) {
        return Ok(());
    }
    let size = fields.long("size")?.unwrap_or(0);
    options.append("capped", true);
    options.append("size", compact(capped_size(size)?));
    if let Some(max) = fields.long("max")? {
        options.append("max", compact(capped_max(max)?));
    }
    Ok(())
}

/// Checks the size of a capped collection.
///
/// # Errors
/// 2 BadValue above a petabyte.
pub(super) fn capped_size(size: i64) -> Result<i64> {
    if size > MAX_CAPPED_BYTES {
        return Err(Error::bad_value("Cannot set size to more than a PB"));
    }
    Ok(size)
}

/// The document limit of a capped collection as it is stored.
///
/// # Errors
/// 2 BadValue for 2^31 and more.
pub(super) fn capped_max(max: i64) -> Result<i64> {
    if max >= 1 << 31 {
        return Err(Error::bad_value("max in a capped collection has to be < 2^31 or not set"));
    }
    Ok(if max > 0 { max } else { NO_MAX })
}

/// A number as an int32 if it fits.
pub(super) fn compact(number: i64) -> RawValue<'static> {
    i32::try_from(number).map_or(RawValue::Int64(number), RawValue::Int32)
}

/// Whether a disabled `changeStreamPreAndPostImages` is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Images {
    /// Only stored when enabled.
    WhenOn,
    /// Stored as it was given.
    AsGiven,
}

/// `changeStreamPreAndPostImages: { enabled }`.
pub(super) fn images(fields: &Fields<'_>, shown: Images, options: &mut DocBuilder) -> Result<()> {
    let Some(images) = fields.document("changeStreamPreAndPostImages")? else { return Ok(()) };
    let enabled = images.get("enabled") == Some(RawValue::Bool(true));
    if enabled || shown == Images::AsGiven {
        options.start_document("changeStreamPreAndPostImages").append("enabled", enabled).end();
    }
    Ok(())
}

/// Options for the reference's storage engine: checked and stored, without effect.
fn engine_documents(fields: &Fields<'_>, options: &mut DocBuilder) -> Result<()> {
    if let Some(engine) = fields.document("storageEngine")?.filter(|engine| !engine.is_empty()) {
        check_engine(engine, "storageEngine")?;
        options.append("storageEngine", engine);
    }
    let defaults = fields.document("indexOptionDefaults")?;
    if let Some(defaults) = defaults.filter(|defaults| !defaults.is_empty()) {
        if let Some(RawValue::Document(engine)) = defaults.get("storageEngine") {
            check_engine(engine, "indexOptionDefaults.storageEngine")?;
        }
        options.append("indexOptionDefaults", defaults);
    }
    Ok(())
}

fn check_engine(engine: RawDoc<'_>, name: &str) -> Result<()> {
    for element in engine {
        match element.value() {
            RawValue::Document(_) if element.name() == "wiredTiger" => {}
            RawValue::Document(_) => {
                let text = format!(
                    "{} is not a registered storage engine for this server",
                    element.name()
                );
                return Err(invalid(text));
            }
            _ => {
                let text = format!("'{name}.{}' has to be an embedded document.", element.name());
                return Err(Error::bad_value(text));
            }
        }
    }
    Ok(())
}

/// Appends the given ones of `validator`, `validationLevel`, `validationAction`, in this order.
///
/// # Errors
/// 72 in the internal databases.
pub(super) fn validation(
    fields: &Fields<'_>,
    ns: &Namespace,
    options: &mut DocBuilder,
) -> Result<()> {
    if let Some(validator) = fields.document("validator")? {
        check_validated(ns)?;
        options.append("validator", validator);
    }
    for name in ["validationLevel", "validationAction"] {
        if let Some(value) = fields.string(name)? {
            options.append(name, value);
        }
    }
    Ok(())
}

/// Manual: "Specify JSON Schema Validation", "Restrictions": not in `admin`, `local`, `config`, and
/// not for `system.*`.
fn check_validated(ns: &Namespace) -> Result<()> {
    if ns.collection().starts_with("system.") {
        return Err(invalid(format!("Document validators not allowed on system collection {ns}")));
    }
    if matches!(ns.db(), "admin" | "local" | "config") {
        return Err(invalid(format!(
            "Document validators are not allowed on collection {ns} in the {} internal database",
            ns.db()
        )));
    }
    Ok(())
}

/// Merges new options into old ones, in the fixed order.
pub(super) fn merged(old: RawDoc<'_>, new: RawDoc<'_>) -> DocBuf {
    const ORDER: &[&str] = &[
        "capped",
        "size",
        "max",
        "changeStreamPreAndPostImages",
        "storageEngine",
        "indexOptionDefaults",
        "validator",
        "validationLevel",
        "validationAction",
    ];
    let mut out = DocBuilder::new();
    for name in ORDER {
        match new.get_element(name).or_else(|| old.get_element(name)) {
            // An empty validator removes the validator.
            Some(element)
                if *name == "validator"
                    && element.value().as_document().is_some_and(RawDoc::is_empty) => {}
            Some(element)
                if *name == "changeStreamPreAndPostImages"
                    && element.value().as_document().and_then(|inner| inner.get("enabled"))
                        == Some(RawValue::Bool(false)) => {}
            Some(element) => {
                out.append_element(element);
            }
            None => {}
        }
    }
    for element in old.iter().filter(|element| !ORDER.contains(&element.name())) {
        out.append_element(element);
    }
    out.finish()
}

/// The options with this `expireAfterSeconds`, or without one.
pub(super) fn with_expiry(old: RawDoc<'_>, seconds: Option<i64>) -> DocBuf {
    let mut out = DocBuilder::new();
    let kept = |name: &str| match name {
        "expireAfterSeconds" => false,
        "ttl" => seconds.is_some(),
        _ => true,
    };
    for element in old.iter().filter(|element| kept(element.name())) {
        let name = element.name();
        match seconds {
            // At the position where `create` stores it.
            Some(seconds) if name == "timeseries" => {
                out.append("expireAfterSeconds", seconds).append_element(element);
            }
            Some(seconds) if name == "clusteredIndex" && old.get("timeseries").is_none() => {
                out.append_element(element).append("expireAfterSeconds", seconds);
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    out.finish()
}

/// The options with this document `ttl`; an empty one removes it.
pub(super) fn with_ttl(old: RawDoc<'_>, ttl: RawDoc<'_>) -> Result<DocBuf> {
    if old.get("expireAfterSeconds").is_none() && !ttl.is_empty() {
        return Err(invalid("'ttl' can be used only together with 'expireAfterSeconds'"));
    }
    let mut out = DocBuilder::new();
    for element in old.iter().filter(|element| element.name() != "ttl") {
        out.append_element(element);
    }
    if !ttl.is_empty() {
        out.append("ttl", ttl);
    }
    Ok(out.finish())
}
