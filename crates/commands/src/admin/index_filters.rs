//! Index filters: the indexes that plans for queries of one shape may use. They are kept with the
//! collection until it is dropped or the server stops. Manual: "planCacheSetFilter",
//! "planCacheListFilters", "planCacheClearFilters".

use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, Result};
use mayfly_query::{
    AllowedBy, AllowedIndexes, CanonicalQuery, FindOptions, Hint, IndexFilter, IndexFilters,
    PlanShape,
};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::plan_cache::find_collection;
use crate::context::{Command, CommandContext};
use crate::crud::Collating;
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request};

pub(super) const SET: Command = Command::new("planCacheSetFilter", "Sets an index filter", run_set)
    .needs(Needs::Collection(&[Action::PlanCacheIndexFilter]))
    .flags(RowFlags::LENIENT);
pub(super) const LIST: Command =
    Command::new("planCacheListFilters", "Lists index filters", run_list)
        .needs(Needs::Collection(&[Action::PlanCacheIndexFilter]))
        .flags(RowFlags::LENIENT);
pub(super) const CLEAR: Command =
    Command::new("planCacheClearFilters", "Removes index filters", run_clear)
        .needs(Needs::Collection(&[Action::PlanCacheIndexFilter]))
        .flags(RowFlags::LENIENT);

/// The query that selects a shape in a command.
pub(super) struct NamedQuery<'a> {
    query: RawDoc<'a>,
    sort: Option<RawDoc<'a>>,
    projection: Option<RawDoc<'a>>,
    parsed: CanonicalQuery,
}

impl<'a> NamedQuery<'a> {
    /// Reads `query`, `sort`, `projection` and `collation`; `None` if all are missing.
    ///
    /// # Errors
    /// 2 BadValue for wrong types and for the others without a query; errors of the query.
    pub(super) fn parse(
        ctx: &CommandContext<'_>,
        fields: &Fields<'a>,
        collection: &Collection,
    ) -> Result<Option<NamedQuery<'a>>> {
        let document = |name: &str| match fields.doc().get(name) {
            None => Ok(None),
            // As in the reference, an array is taken as the document of its items.
            Some(RawValue::Document(document) | RawValue::Array(document)) => Ok(Some(document)),
            Some(_) => Err(Error::bad_value(format!("optional field {name} must be an object"))),
        };
        let (sort, projection) = (document("sort")?, document("projection")?);
        let collation = document("collation")?;
        if collation.is_some_and(RawDoc::is_empty) {
            let text = "optional field collation cannot be an empty object";
            return Err(Error::bad_value(text));
        }
        let query = match fields.get("query") {
            None if sort.is_some() || projection.is_some() || collation.is_some() => {
                let text = "sort, projection, or collation provided without query";
                return Err(Error::bad_value(text));
            }
            None => return Ok(None),
            Some(RawValue::Document(query) | RawValue::Array(query)) => query,
            Some(_) => return Err(Error::bad_value("required field query must be an object")),
        };
        let options = FindOptions {
            sort,
            projection,
            time: Some(ctx.time()),
            collation: Collating::parse(fields)?.over(Some(collection)),
            scripts: Some(ctx.service.settings.script_limits()),
            ..FindOptions::default()
        };
        let parsed = CanonicalQuery::parse(query, options)?;
        Ok(Some(NamedQuery { query, sort, projection, parsed }))
    }

    pub(super) fn shape(&self) -> PlanShape {
        PlanShape::of(&self.parsed)
    }
}

fn run_set(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = Fields::new(request.body, "planCacheSetFilter");
    let Some(collection) = find_collection(ctx, request)? else {
        return Err(Error::bad_value("no such collection"));
    };
    if fields.get("query").is_none() {
        return Err(Error::bad_value("required field query missing"));
    }
    let allowed = Arc::new(allowed(&fields)?);
    let Some(named) = NamedQuery::parse(ctx, &fields, &collection)? else { return Ok(()) };
    let owned =
        |document: Option<RawDoc<'_>>| document.map_or_else(DocBuf::empty, RawDoc::to_owned);
    let collation = named.parsed.collation.as_ref();
    let filter = IndexFilter {
        query: named.query.to_owned(),
        sort: owned(named.sort),
        projection: owned(named.projection),
        collation: owned(collation.map(|collation| collation.document())),
        allowed,
    };
    IndexFilters::set(&collection, named.shape(), filter)
}

/// Reads `indexes`.
fn allowed(fields: &Fields<'_>) -> Result<AllowedIndexes> {
    let items = match fields.get("indexes") {
        None => return Err(Error::bad_value("required field indexes missing")),
        Some(RawValue::Array(items)) => items,
        Some(_) => return Err(Error::bad_value("required field indexes must be an array")),
    };
    if items.is_empty() {
        return Err(Error::bad_value("required field indexes must contain at least one index"));
    }
    let mut allowed = AllowedIndexes::none(AllowedBy::IndexFilter);
    for item in items {
        allowed.allow(match item.value() {
            RawValue::Document(key) if key.is_empty() => {
                return Err(Error::bad_value("index specification cannot be empty"));
            }
            RawValue::Document(key) => Hint::Key(key.to_owned()),
            RawValue::String(name) => Hint::Name(name.to_owned()),
            _ => {
                let text = "each item in indexes must be an object or string";
                return Err(Error::bad_value(text));
            }
        });
    }
    Ok(allowed)
}

fn run_list(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let filters = find_collection(ctx, request)?.map(|collection| IndexFilters::all(&collection));
    reply.start_array("filters");
    for filter in filters.unwrap_or_default() {
        filter.append_to(reply.push_document());
        reply.end();
    }
    reply.end();
    Ok(())
}

fn run_clear(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = Fields::new(request.body, "planCacheClearFilters");
    let Some(collection) = find_collection(ctx, request)? else { return Ok(()) };
    match NamedQuery::parse(ctx, &fields, &collection)? {
        Some(named) => IndexFilters::remove(&collection, named.shape()),
        None => IndexFilters::clear(&collection),
    }
    Ok(())
}
