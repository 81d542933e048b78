//! The commands about cached plans and index filters. Plans are made anew for each query, so that there is nothing to clear,
//! and index filters cannot be set, so that there are none.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{CanonicalQuery, FindOptions};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::crud::Collating;
use crate::{CommandContext, Fields, Request, Row, RowFlags};

pub(super) const CLEAR: Row =
    Row::new("planCacheClear", "Forgets plans", run_clear).flags(RowFlags::LENIENT);
pub(super) const CLEAR_FILTERS: Row =
    Row::new("planCacheClearFilters", "Removes index filters", run_clear).flags(RowFlags::LENIENT);
pub(super) const LIST_FILTERS: Row =
    Row::new("planCacheListFilters", "Lists index filters", run_list).flags(RowFlags::LENIENT);

/// The collection; whether it exists.
fn check_collection(ctx: &CommandContext<'_>, request: &Request<'_>) -> Result<bool> {
    let ns: Namespace = request.namespace()?;
    let store = &ctx.service.store;
    if store.collection(&ns).is_some() {
        return Ok(true);
    }
    match store.view(&ns)? {
        Some(_) => {
            let text = format!("{ns} is a view, not a collection");
            Err(Error::new(ErrorCode::CommandNotSupportedOnView, text))
        }
        None => Ok(false),
    }
}

fn run_clear(
    ctx: &mut CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    if !check_collection(ctx, request)? {
        return Ok(());
    }
    let fields = Fields::new(request.body, request.row.name);
    let document = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(RawValue::Document(document)) => Ok(Some(document)),
        Some(_) => Err(Error::bad_value(format!("optional field {name} must be an object"))),
    };
    let (sort, projection) = (document("sort")?, document("projection")?);
    let query = match fields.get("query") {
        None if sort.is_some() || projection.is_some() || fields.get("collation").is_some() => {
            let text = "sort, projection, or collation provided without query";
            return Err(Error::bad_value(text));
        }
        None => return Ok(()),
        Some(RawValue::Document(query)) => query,
        Some(_) => return Err(Error::bad_value("required field query must be an object")),
    };
    check_shape(ctx, &fields, query, (sort, projection))
}

/// What is no query has no plans.
fn check_shape(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    query: RawDoc<'_>,
    (sort, projection): (Option<RawDoc<'_>>, Option<RawDoc<'_>>),
) -> Result<()> {
    let options = FindOptions {
        sort,
        projection,
        now_ms: Some(ctx.op.now_ms()),
        collation: Collating::parse(fields)?.over(None),
        ..FindOptions::default()
    };
    CanonicalQuery::parse(query, options).map(|_| ())
}

fn run_list(
    ctx: &mut CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    check_collection(ctx, request)?;
    reply.start_array("filters").end();
    Ok(())
}
