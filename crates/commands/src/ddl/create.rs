//! `create`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, RawValue};

use super::wrote;
use crate::crud::check_writable;
use crate::{CommandContext, Fields, Request, Row, RowFlags};

pub(crate) const ROW: Row =
    Row::new("create", "Creates a collection", run).flags(RowFlags::WRITE_CONCERN);

/// Options that exist in the reference and are refused here when they ask for something.
const MISSING: &[&str] = &[
    "capped",
    "size",
    "max",
    "timeseries",
    "clusteredIndex",
    "viewOn",
    "pipeline",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "changeStreamPreAndPostImages",
    "encryptedFields",
    "storageEngine",
    "indexOptionDefaults",
    "autoIndexId",
    "temp",
];

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let mut known = MISSING.to_vec();
    known.extend(["expireAfterSeconds", "idIndex", "flags"]);
    let fields = request.fields(&known)?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    check_ttl(&fields)?;
    for name in MISSING {
        refuse(&fields, name)?;
    }
    if let Some(existing) = ctx.service.store.collection(&ns) {
        // The same definition again changes nothing; this server knows plain collections only.
        if existing.options().as_doc().is_empty() {
            // Whoever made it need not have waited for the log.
            wrote(ctx, request);
            return Ok(());
        }
        return Err(Error::new(
            ErrorCode::NamespaceExists,
            format!("Collection {ns} already exists."),
        ));
    }
    let options = mayfly_value::DocBuf::empty();
    match ctx.service.store.create_collection(&ns, options) {
        // Somebody created the same meanwhile.
        Err(error) if error.code() == ErrorCode::NamespaceExists => {}
        other => {
            other?;
        }
    }
    wrote(ctx, request);
    Ok(())
}

/// Expiry contract, section 1.4.
fn check_ttl(fields: &Fields<'_>) -> Result<()> {
    let Some(value) = fields.get("expireAfterSeconds") else { return Ok(()) };
    if !value.is_number() {
        return Err(fields.wrong("expireAfterSeconds", value, "[long, int, decimal, double]"));
    }
    if fields.get("timeseries").is_some() || fields.get("clusteredIndex").is_some() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidOptions,
        "'expireAfterSeconds' can be used only for clustered collections or timeseries collections",
    ))
}

fn refuse(fields: &Fields<'_>, name: &str) -> Result<()> {
    let harmless = match fields.get(name) {
        None | Some(RawValue::Bool(false)) => true,
        Some(RawValue::Document(value)) => {
            value.is_empty() || value.get("locale") == Some(RawValue::String("simple"))
        }
        Some(RawValue::Bool(true)) => name == "autoIndexId",
        Some(_) => false,
    };
    if harmless {
        return Ok(());
    }
    Err(Error::not_implemented(format_args!("the option '{name}' of 'create'")))
}
