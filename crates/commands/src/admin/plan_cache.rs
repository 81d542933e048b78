//! `planCacheClear`, and the lookup of collections for commands about cached plans.

use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::forget_plans;
use mayfly_storage::Collection;
use mayfly_value::DocBuilder;

use super::index_filters::NamedQuery;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request};

pub(super) const CLEAR: Command =
    Command::new("planCacheClear", "Removes plans from the plan cache", run_clear)
        .needs(Needs::Collection(&[Action::PlanCacheWrite]))
        .flags(RowFlags::LENIENT);

/// The command's collection, if it exists.
///
/// # Errors
/// 73 InvalidNamespace, 166 CommandNotSupportedOnView.
pub(super) fn find_collection(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
) -> Result<Option<Arc<Collection>>> {
    let ns: Namespace = request.namespace()?;
    let store = &ctx.service.store;
    if let Some(collection) = store.collection(ctx.store.view, &ns) {
        return Ok(Some(collection));
    }
    match store.view(ctx.store.view, &ns)? {
        Some(_) => {
            let text = format!("{ns} is a view, not a collection");
            Err(Error::new(ErrorCode::CommandNotSupportedOnView, text))
        }
        None => Ok(None),
    }
}

fn run_clear(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let Some(collection) = find_collection(ctx, request)? else { return Ok(()) };
    let fields = Fields::new(request.body, request.row.name);
    let named = NamedQuery::parse(ctx, &fields, &collection)?;
    forget_plans(&collection, named.map(|named| named.shape()));
    Ok(())
}
