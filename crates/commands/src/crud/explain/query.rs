//! Explains the commands that select documents with a filter.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{
    CanonicalQuery, Explained, FindOptions, Hint, Purpose, Shown, allowed_on, explain,
};
use mayfly_value::arguments::Argument;
use mayfly_value::{Collation, DocBuilder, RawDoc, RawValue};

use super::Inner;
use crate::context::CommandContext;
use crate::crud::delete::{STATEMENT as DELETE_STATEMENT, deletes_all};
use crate::crud::find_and_modify::returns_new;
use crate::crud::update::{STATEMENT as UPDATE_STATEMENT, parse as parse_update};
use crate::crud::{Collating, budget, count_limit};
use crate::request::Fields;

/// The parts of the query as they were sent.
#[derive(Clone)]
pub(super) struct Parts<'a> {
    pub(super) filter: RawDoc<'a>,
    pub(super) sort: Option<RawDoc<'a>>,
    pub(super) projection: Option<RawDoc<'a>>,
    pub(super) skip: i64,
    pub(super) limit: i64,
    pub(super) hint: Option<RawValue<'a>>,
    pub(super) variables: Option<RawDoc<'a>>,
    pub(super) min: Option<RawDoc<'a>>,
    pub(super) max: Option<RawDoc<'a>>,
    /// The field of `distinct`.
    pub(super) values_of: Option<&'a str>,
    /// The collation of a statement of a write; `None` for that of the command.
    pub(super) collating: Option<Collating>,
}

impl<'a> Parts<'a> {
    /// A query with only a filter.
    pub(super) fn of(filter: RawDoc<'a>) -> Parts<'a> {
        Parts {
            filter,
            sort: None,
            projection: None,
            skip: 0,
            limit: 0,
            hint: None,
            variables: None,
            min: None,
            max: None,
            values_of: None,
            collating: None,
        }
    }

    fn parse(
        &self,
        ctx: &CommandContext<'_>,
        collation: Option<Arc<Collation>>,
    ) -> Result<CanonicalQuery> {
        let mut options = FindOptions {
            sort: self.sort,
            projection: self.projection,
            skip: self.skip.unsigned_abs(),
            limit: self.limit.unsigned_abs(),
            variables: self.variables,
            allows_key_metadata: true,
            time: Some(ctx.time()),
            collation,
            scripts: Some(ctx.service.settings.script_limits()),
            ..FindOptions::default()
        };
        let hint = self.hint.map(Hint::parse).transpose()?.flatten();
        options.hint = Hint::between(hint, self.min, self.max)?;
        let query = CanonicalQuery::parse(self.filter, options)?;
        Ok(match self.values_of {
            Some(key) => query.for_values_of(key),
            None => query,
        })
    }
}

/// What the plans of a command's query are explained with.
pub(super) fn explained<'a>(
    ctx: &CommandContext<'_>,
    inner: &'a Inner<'_>,
    projection: Option<RawDoc<'a>>,
    purpose: Purpose,
) -> Result<Explained<'a>> {
    Ok(Explained {
        namespace: inner.ns.as_str(),
        projection: projection.filter(|projection| !projection.is_empty()),
        purpose,
        verbosity: inner.verbosity,
        settings: inner.setting.as_ref().map(|setting| setting.settings.as_doc()),
        budget: budget(ctx, inner.may_spill()?),
    })
}

/// Appends plan and statistics of a query.
fn write(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    parts: Parts<'_>,
    purpose: Purpose,
    doc: &mut DocBuilder,
) -> Result<()> {
    let projection = parts.projection;
    write_plan(ctx, inner, (parts, projection), purpose, doc)
}

/// Appends plan and statistics of a query, with the projection of the documents that are returned.
fn write_plan(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    (parts, projection): (Parts<'_>, Option<RawDoc<'_>>),
    purpose: Purpose,
    doc: &mut DocBuilder,
) -> Result<()> {
    let explained = explained(ctx, inner, projection, purpose)?;
    let collection = ctx.store.collection(&inner.ns);
    let collating = parts.collating.as_ref().unwrap_or(&inner.collating);
    let collation = collating.over(collection.as_deref());
    let hints = inner.setting.as_ref().and_then(|setting| setting.hints.as_deref());
    let allowed = hints.zip(collection.as_deref()).and_then(|(hints, on)| allowed_on(hints, on));
    let query = CanonicalQuery { allowed, ..parts.parse(ctx, collation)? };
    explain(ctx.store, collection, query, &explained, doc)
}

pub(super) fn find(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let parts = Parts {
        filter: fields.document("filter")?.unwrap_or(RawDoc::EMPTY),
        sort: fields.document("sort")?,
        projection: fields.document("projection")?,
        skip: fields.long("skip")?.unwrap_or(0),
        limit: fields.long("limit")?.unwrap_or(0),
        hint: fields.get("hint"),
        variables: fields.document("let")?,
        min: fields.document("min")?,
        max: fields.document("max")?,
        values_of: None,
        collating: None,
    };
    write(ctx, inner, parts, Purpose::Find, doc)
}

pub(super) fn count(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let parts = Parts {
        skip: fields.long("skip")?.unwrap_or(0),
        limit: count_limit(fields)? as i64,
        hint: fields.get("hint"),
        ..Parts::of(fields.document("query")?.unwrap_or(RawDoc::EMPTY))
    };
    write(ctx, inner, parts, Purpose::Count, doc)
}

pub(super) fn distinct(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let Some(key) = fields.string("key")? else { return Err(fields.missing("key")) };
    let filter = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
    let hint = fields.get("hint");
    let parts = Parts { hint, values_of: Some(key), ..Parts::of(filter) };
    write(ctx, inner, parts, Purpose::Find, doc)
}

/// The only statement of a write command.
fn statement<'a>(
    inner: &Inner<'a>,
    (name, path, declared): (&'static str, &'static str, &'static [Argument]),
) -> Result<Fields<'a>> {
    let Some(list) = inner.fields.array(name)? else { return Err(inner.fields.missing(name)) };
    let mut items = list.iter();
    match (items.next(), items.next()) {
        (Some(only), None) => match only.value() {
            RawValue::Document(statement) => Fields::read(statement, path, declared),
            other => Err(inner.fields.wrong(name, other, "object")),
        },
        _ => Err(Error::new(ErrorCode::InvalidLength, "explained write batches must be of size 1")),
    }
}

pub(super) fn update(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = statement(inner, ("updates", "update.updates", UPDATE_STATEMENT))?;
    let filter = fields.document("q")?.ok_or_else(|| fields.missing("q"))?;
    let collating = Some(Collating::parse(&fields)?);
    let multi = fields.bool("multi")?.unwrap_or(false);
    let upsert = fields.bool("upsert")?.unwrap_or(false);
    let sort = fields.document("sort")?;
    let variables = inner.fields.document("let")?;
    parse_update(fields.doc(), variables)?.spec(ctx, &inner.ns, None)?;
    let hint = fields.get("hint");
    let parts = Parts { hint, sort, variables, collating, ..Parts::of(filter) };
    let returned = Shown::Nothing;
    write(ctx, inner, parts, Purpose::Update { multi, upsert, returned }, doc)
}

pub(super) fn delete(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = statement(inner, ("deletes", "delete.deletes", DELETE_STATEMENT))?;
    let filter = fields.document("q")?.ok_or_else(|| fields.missing("q"))?;
    let collating = Some(Collating::parse(&fields)?);
    let multi = deletes_all(&fields)?;
    let variables = inner.fields.document("let")?;
    let parts = Parts { hint: fields.get("hint"), variables, collating, ..Parts::of(filter) };
    let returned = Shown::Nothing;
    write(ctx, inner, parts, Purpose::Delete { multi, returned }, doc)
}

pub(super) fn find_and_modify(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let returned = match returns_new(ctx, &inner.ns, fields)? {
        true => Shown::After,
        false => Shown::Before,
    };
    let db = inner.ns.db();
    if ctx.service.store.collections(Some(db)).is_empty() {
        let text = format!("database {db} does not exist");
        return Err(Error::new(ErrorCode::NamespaceNotFound, text));
    }
    let parts = Parts {
        sort: fields.document("sort")?,
        hint: fields.get("hint"),
        variables: fields.document("let")?,
        ..Parts::of(fields.document("query")?.unwrap_or(RawDoc::EMPTY))
    };
    let (multi, upsert) = (false, fields.bool("upsert")?.unwrap_or(false));
    let purpose = match fields.get("update") {
        None => Purpose::Delete { multi, returned },
        Some(_) => Purpose::Update { multi, upsert, returned },
    };
    write_plan(ctx, inner, (parts, fields.document("fields")?), purpose, doc)
}
