//! Search indexes as `$listSearchIndexes` and `listSearchIndexes` show them.

use mayfly_base::{Namespace, Result};
use mayfly_storage::{SearchIndex, SearchSelector, SearchVersion};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;

/// The documents of `$listSearchIndexes` on a collection or a view, with these options.
///
/// # Errors
/// 72 InvalidOptions for `id` and `name` together, errors of types.
pub(crate) fn listed(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    options: RawDoc<'_>,
) -> Result<Vec<DocBuf>> {
    let text = |name: &str| options.get(name).and_then(RawValue::as_str);
    let selector = match (text("id"), text("name")) {
        (Some(id), _) => Some(SearchSelector::Id(id)),
        (None, name) => name.map(SearchSelector::Name),
    };
    search_indexes(ctx, ns, selector)
}

/// The documents of the selected search indexes of a collection or a view.
///
/// # Errors
/// Errors of resolving the view.
pub(crate) fn search_indexes(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    selector: Option<SearchSelector<'_>>,
) -> Result<Vec<DocBuf>> {
    let (collection, view) = match ctx.store.collection(ns) {
        Some(collection) => (Some(collection), None),
        None => match ctx.service.store.resolve_view(ctx.store.view, ns)? {
            Some(view) => (ctx.store.collection(&view.on), Some(ns.collection())),
            None => (None, None),
        },
    };
    let Some(collection) = collection else { return Ok(Vec::new()) };
    let indexes = collection.search_indexes();
    let own = indexes.iter().filter(|index| index.view.as_deref() == view);
    let selected = own.filter(|index| selector.is_none_or(|it| it.selects(index)));
    Ok(selected.map(|index| shown(index, &ctx.service.host)).collect())
}

/// The state of a version, by the names of the reference.
fn status(version: &SearchVersion) -> &'static str {
    match version {
        version if version.failure().is_some() => "FAILED",
        version if version.is_ready() && version.is_filled() => "READY",
        version if version.is_ready() => "STALE",
        version if version.has_begun() => "BUILDING",
        _ => "PENDING",
    }
}

fn shown(index: &SearchIndex, host: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("id", &*index.id).append("name", &*index.name).append("type", &*index.kind);
    let Some(latest) = index.latest() else { return out.finish() };
    let is_queryable = index.serving().is_some_and(|version| version.is_filled());
    out.append("status", status(latest)).append("queryable", is_queryable);
    append_version(&mut out, "latestDefinitionVersion", latest);
    out.append("latestDefinition", &latest.definition);
    out.start_array("statusDetail").push_document();
    out.append("hostname", host).append("status", status(latest));
    out.append("queryable", is_queryable);
    let serving = index.serving().unwrap_or(latest);
    append_detail(&mut out, "mainIndex", serving);
    if serving.file != latest.file {
        append_detail(&mut out, "stagedIndex", latest);
    }
    out.end().end();
    out.finish()
}

fn append_version(out: &mut DocBuilder, name: &str, version: &SearchVersion) {
    out.start_document(name).append("version", version.number);
    out.append("createdAt", RawValue::Date(version.created_ms)).end();
}

fn append_detail(out: &mut DocBuilder, name: &str, version: &SearchVersion) {
    out.start_document(name).append("status", status(version));
    out.append("queryable", version.is_ready() && version.is_filled());
    if let Some(why) = version.failure() {
        out.append("message", &*why);
    }
    append_version(out, "definitionVersion", version);
    out.append("definition", &version.definition).end();
}
