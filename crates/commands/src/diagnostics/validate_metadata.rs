//! `validateDBMetadata`: indexes that a version of the stable API does not allow. Manual:
//! "validateDBMetadata".

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::IndexSpec;
use mayfly_storage::kinds::text::TextIndex;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads};
use crate::request::{Demands, Needs, Request};

pub(super) const ROW: Command =
    Command::new("validateDBMetadata", "Reports indexes that an API version does not allow", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(demands))
        .since("5.0")
        .reads(Reads::empty())
        .expected(Expected::Long);
const ARGUMENTS: &[Argument] = &[
    Argument::fields("apiParameters", API).required(),
    Argument::string("db"),
    Argument::string("collection"),
];
const API: &[Argument] = &[
    Argument::string("version").required(),
    Argument::bool("strict").null_is_value(),
    Argument::bool("deprecationErrors").null_is_value(),
];

fn demands(demands: &mut Demands<'_>, request: &Request<'_>) {
    let target = match request.body.get("db") {
        Some(RawValue::String(db)) => Target::Database(db),
        _ => Target::AllNormal,
    };
    demands.need(target, Action::Validate);
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let api = fields.document("apiParameters")?.unwrap_or(RawDoc::EMPTY);
    let (db, name) = (fields.string("db")?, fields.string("collection")?);
    if let Some(db) = db {
        check_database(db)?;
    }
    let is_strict = api.get("strict") == Some(RawValue::Bool(true));
    let is_checked = is_strict && api.get("version") == Some(RawValue::String("1"));
    let is_named = |ns: &Namespace| name.is_none_or(|name| ns.collection() == name);
    reply.start_array("apiVersionErrors");
    let collections = match is_checked {
        true => ctx.service.store.collections(db),
        false => Vec::new(),
    };
    for collection in collections {
        ctx.op.check()?;
        let ns = collection.namespace();
        let indexes = collection.indexes();
        for index in indexes.iter().filter(|index| is_named(&ns) && is_refused(&index.spec)) {
            let name = index.spec.name();
            reply.push_document().append("ns", ns.as_str());
            reply.append("code", ErrorCode::APIStrictError.0);
            reply.append("codeName", "APIStrictError");
            let text = format!("The index with name {name} is not allowed in API version 1.");
            reply.append("errmsg", text.as_str()).end();
        }
    }
    reply.end();
    Ok(())
}

/// Whether version 1 does not have such indexes.
fn is_refused(spec: &IndexSpec) -> bool {
    spec.sparse() || spec.kind().is::<TextIndex>()
}

/// Checks the name of a database, which need not exist.
///
/// # Errors
/// 28539 when it is empty, 13280 for a space, a slash or a quote, 73 InvalidNamespace.
fn check_database(db: &str) -> Result<()> {
    if db.is_empty() {
        return Err(Error::new(ErrorCode(28539), "db name is empty"));
    }
    if db.len() >= 64 || db.contains(['.', '\0']) {
        let text = format!("Invalid namespace specified '{db}'");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    if db.contains([' ', '/', '\\', '"']) {
        return Err(Error::new(ErrorCode(13280), format!("Invalid db name: {db}")));
    }
    Ok(())
}
