//! `createSearchIndexes`, `updateSearchIndex`, `dropSearchIndex` and `listSearchIndexes`. Manual:
//! the pages of these commands.

use std::collections::VecDeque;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{Cursor, CursorSource, SearchedView};
use mayfly_service::search::{check_definition, index_kind, type_of_definition};
use mayfly_storage::{NewSearchIndex, SearchSelector};
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

use crate::context::{Command, CommandContext};
use crate::crud::{FirstBatch, Source, first_batch, source};
use crate::diagnostics::search_indexes::search_indexes;
use crate::request::row::{Reads, Writes};
use crate::request::{Fields, Needs, Request};

/// The name of an index that a request does not name.
const DEFAULT_NAME: &str = "default";

pub(crate) const CREATE: Command =
    Command::new("createSearchIndexes", "Creates search indexes", create)
        .arguments(&[Argument::array("indexes").required()])
        .needs(Needs::Collection(&[Action::CreateSearchIndexes]))
        .since("7.0 (6.0.7)")
        .writes(Writes::Settings);

pub(crate) const UPDATE: Command =
    Command::new("updateSearchIndex", "Replaces the definition of a search index", update)
        .arguments(&[
            Argument::document("definition").required(),
            Argument::string("id"),
            Argument::string("name"),
        ])
        .needs(Needs::Collection(&[Action::UpdateSearchIndex]))
        .since("7.0 (6.0.7)")
        .writes(Writes::Settings);

pub(crate) const DROP: Command = Command::new("dropSearchIndex", "Drops a search index", drop_one)
    .arguments(&[Argument::string("id"), Argument::string("name")])
    .needs(Needs::Collection(&[Action::DropSearchIndex]))
    .since("7.0 (6.0.7)")
    .writes(Writes::Settings);

pub(crate) const LIST: Command =
    Command::new("listSearchIndexes", "Lists the search indexes of a collection", list)
        .arguments(&[Argument::string("id"), Argument::string("name")])
        .needs(Needs::Collection(&[Action::ListSearchIndexes]))
        .since("7.0")
        .reads(Reads::PREFERENCE);

/// The fields of one index in `createSearchIndexes`.
const INDEX: &[Argument] = &[
    Argument::document("definition").required(),
    Argument::string("name"),
    Argument::string("type"),
];

/// The command's selection of an index.
///
/// # Errors
/// 72 InvalidOptions for `id` and `name` together.
fn selector<'a>(fields: &Fields<'a>) -> Result<Option<SearchSelector<'a>>> {
    match (fields.string("id")?, fields.string("name")?) {
        (Some(_), Some(_)) => {
            Err(Error::new(ErrorCode::InvalidOptions, "Cannot set both 'name' and 'id'."))
        }
        (Some(id), None) => Ok(Some(SearchSelector::Id(id))),
        (None, Some(name)) => Ok(Some(SearchSelector::Name(name))),
        (None, None) => Ok(None),
    }
}

fn required<'a>(fields: &Fields<'a>) -> Result<SearchSelector<'a>> {
    selector(fields)?
        .ok_or_else(|| Error::new(ErrorCode::InvalidOptions, "Must specify either 'name' or 'id'."))
}

fn create(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    let indexes = fields.array("indexes")?.ok_or_else(|| fields.missing("indexes"))?;
    let mut new = Vec::new();
    for item in indexes {
        let path = "createSearchIndexes.indexes";
        let Some(document) = item.value().as_document() else {
            return Err(fields.wrong("indexes", item.value(), "object"));
        };
        new.push(new_index(&Fields::read(document, path, INDEX)?)?);
    }
    if new.is_empty() {
        return Err(Error::bad_value("Must specify at least one index to create"));
    }
    let store = &ctx.service.store;
    if store.time_series_named(ctx.store.view, &ns).is_none()
        && let Source::View(view) = source(ctx, &ns)?
    {
        SearchedView::of(&view)?;
    }
    let ids = store.create_search_indexes(&ns, &new)?;
    reply.start_array("indexesCreated");
    for (new, id) in new.iter().zip(&ids) {
        reply.push_document().append("id", &**id).append("name", &*new.name).end();
    }
    reply.end();
    Ok(())
}

fn new_index(fields: &Fields<'_>) -> Result<NewSearchIndex> {
    let definition = fields.document("definition")?.ok_or_else(|| fields.missing("definition"))?;
    let kind = fields.string("type")?.unwrap_or_else(|| type_of_definition(definition));
    let name = fields.string("name")?.unwrap_or(DEFAULT_NAME);
    if name.is_empty() {
        return Err(Error::new(ErrorCode::UnknownError, "\"name\" cannot be empty"));
    }
    check_definition(definition, index_kind(kind)?)?;
    let (name, kind) = (name.to_owned(), kind.to_owned());
    Ok(NewSearchIndex { name, kind, definition: definition.to_owned() })
}

fn update(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    let selector = required(&fields)?;
    let definition = fields.document("definition")?.ok_or_else(|| fields.missing("definition"))?;
    ctx.service.store.update_search_index(&ns, selector, &definition.to_owned(), |index| {
        // What is a definition of neither type gets the error of its missing fields.
        let is_definition = ["fields", "mappings"].iter().any(|it| definition.get(it).is_some());
        if is_definition && index.kind != type_of_definition(definition) {
            let text = format!(
                "the type of the search index {} is {} and cannot be changed",
                index.name, index.kind
            );
            return Err(Error::new(ErrorCode::InvalidIndexSpecificationOption, text));
        }
        check_definition(definition, index_kind(&index.kind)?)
    })
}

fn drop_one(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.service.store.drop_search_index(&ns, required(&fields)?)
}

fn list(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    let selector = selector(&fields)?;
    let shown = search_indexes(ctx, &ns, selector)?;
    let cursor = Cursor::new(ns, CursorSource::Ready(VecDeque::from(shown)));
    first_batch(ctx, cursor, FirstBatch::default(), reply)
}
