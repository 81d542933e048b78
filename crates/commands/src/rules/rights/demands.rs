//! The rights of commands that depend on their arguments, one function per command. These functions
//! do not report invalid arguments: an invalid one demands at least the rights of a valid one, and
//! the handler reports it.

use mayfly_auth::{Action, Target};
use mayfly_query::{PipelineOwner, UncheckedPipeline};
use mayfly_value::arguments::convert::whole_number;
use mayfly_value::{RawDoc, RawValue};

use crate::request::{Demands, Fields, Request, RowFlags};

/// A boolean as handlers read it; an invalid value counts as set.
pub(crate) fn is_set(body: RawDoc<'_>, name: &str) -> bool {
    Fields::new(body, "").bool(name).map_or(true, |flag| flag.unwrap_or(false))
}

fn bypasses(demands: &mut Demands<'_>, request: &Request<'_>, target: Target<'_>) {
    if is_set(request.body, "bypassDocumentValidation") {
        demands.need(target, Action::BypassDocumentValidation);
    }
}

/// The collection in the command's value; any other value, which the handler refuses, counts as
/// everything.
fn target<'r>(request: &Request<'r>) -> Target<'r> {
    match request.target().as_str() {
        Some(collection) => Target::Collection(request.db, collection),
        None => Target::Everything,
    }
}

pub(crate) fn insert(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(target(request), Action::Insert);
    bypasses(demands, request, target(request));
}

pub(crate) fn update(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(target(request), Action::Update);
    let upserts = match request.documents("updates") {
        Ok(Some(mut statements)) => statements.any(|statement| is_set(statement, "upsert")),
        Ok(None) | Err(_) => true,
    };
    if upserts {
        demands.need(target(request), Action::Insert);
    }
    bypasses(demands, request, target(request));
}

pub(crate) fn find_and_modify(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(target(request), Action::Find);
    match is_set(request.body, "remove") {
        true => demands.need(target(request), Action::Remove),
        false => demands.need(target(request), Action::Update),
    }
    if is_set(request.body, "upsert") {
        demands.need(target(request), Action::Insert);
    }
    bypasses(demands, request, target(request));
}

pub(crate) fn bulk_write(demands: &mut Demands<'_>, request: &Request<'_>) {
    let names: Option<Vec<&str>> =
        request.documents("nsInfo").ok().flatten().and_then(|infos| {
            infos.map(|info| info.get("ns").and_then(RawValue::as_str)).collect()
        });
    let (Some(names), Ok(Some(operations))) = (names, request.documents("ops")) else {
        return demands.need(Target::Everything, Action::AnyAction);
    };
    for operation in operations {
        let (action, at) = match operation.iter().next() {
            Some(first) => match first.name() {
                "insert" => (Action::Insert, whole_number(first.value())),
                "update" => (Action::Update, whole_number(first.value())),
                "delete" => (Action::Remove, whole_number(first.value())),
                _ => (Action::AnyAction, None),
            },
            None => (Action::AnyAction, None),
        };
        let at = at.and_then(|at| usize::try_from(at).ok());
        let Some(name) = at.and_then(|at| names.get(at).copied()) else {
            return demands.need(Target::Everything, Action::AnyAction);
        };
        demands.need_on_full_name(Some(name), &[action]);
        if action == Action::Update && is_set(operation, "upsert") {
            demands.need_on_full_name(Some(name), &[Action::Insert]);
        }
        if is_set(request.body, "bypassDocumentValidation") {
            demands.need_on_full_name(Some(name), &[Action::BypassDocumentValidation]);
        }
    }
}

/// The cursor belongs to the user, who also still needs a right to read.
pub(crate) fn get_more(demands: &mut Demands<'_>, request: &Request<'_>) {
    match request.body.get("collection").and_then(RawValue::as_str) {
        // Cursors of listings and of pipelines without a collection: their rights were checked when
        // they were opened.
        Some(name) if name.starts_with("$cmd.") => {}
        Some(name) => {
            let target = Target::Collection(request.db, name);
            let choices =
                [Action::Find, Action::CollStats, Action::IndexStats, Action::ListIndexes];
            demands.need_any(&choices.map(|action| (target, action)));
        }
        None => demands.need(Target::Everything, Action::Find),
    }
}

pub(crate) fn create(demands: &mut Demands<'_>, request: &Request<'_>) {
    let ns = target(request);
    demands.need_any(&[(ns, Action::CreateCollection), (ns, Action::Insert)]);
    archives(demands, request.body, MAX_ARCHIVE_DEPTH);
    if demands.may(ns, Action::Find) {
        view(demands, request);
    } else if request.body.get("viewOn").is_some() {
        demands.need(ns, Action::CreateCollection);
    }
}

pub(crate) fn create_indexes(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(target(request), Action::CreateIndex);
    archives(demands, request.body, MAX_ARCHIVE_DEPTH);
    for index in request.documents("indexes").ok().flatten().into_iter().flatten() {
        archives(demands, index, MAX_ARCHIVE_DEPTH);
    }
}

/// The depth of a policy in a command: `indexes.0.ttl.archive`.
const MAX_ARCHIVE_DEPTH: usize = 6;

/// A policy that archives writes to another collection with the rights of the client that defines
/// it.
fn archives(demands: &mut Demands<'_>, body: RawDoc<'_>, depth: usize) {
    for field in body {
        let (RawValue::Document(inner) | RawValue::Array(inner)) = field.value() else { continue };
        if field.name() == "archive" && field.type_byte() == mayfly_value::ty::DOCUMENT {
            for part in inner.iter().filter(|part| part.name() == "collection") {
                demands.need_on_full_name(part.value().as_str(), &[Action::Insert]);
            }
        }
        if depth > 0 {
            archives(demands, inner, depth - 1);
        }
    }
}

/// A view returns documents of its collections to everyone who may read the view, so the client
/// that defines it needs the right to read them. A client that creates a view and cannot read it
/// does not need this right: `mongorestore` creates views with the role `restore`.
fn view(demands: &mut Demands<'_>, request: &Request<'_>) {
    let on = request.body.get("viewOn");
    let Some(on) = on else { return };
    let Some(on) = on.as_str() else {
        return demands.need(Target::Everything, Action::Find);
    };
    demands.need(Target::Collection(request.db, on), Action::Find);
    if let Some(RawValue::Array(stages)) = request.body.get("pipeline") {
        self::stages(demands, (request.db, Some(on)), stages, PipelineOwner::View);
    }
}

pub(crate) fn coll_mod(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(target(request), Action::CollMod);
    archives(demands, request.body, MAX_ARCHIVE_DEPTH);
    if request.body.get("pipeline").is_some() && request.body.get("viewOn").is_none() {
        demands.need(Target::Everything, Action::Find);
    }
    view(demands, request);
}

/// A rename within a database has its own action; a rename to another database needs reading,
/// writing and dropping.
pub(crate) fn rename(demands: &mut Demands<'_>, request: &Request<'_>) {
    let full = |value: Option<RawValue<'_>>| -> Option<(String, String)> {
        let (db, collection) = value?.as_str()?.split_once('.')?;
        Some((db.to_owned(), collection.to_owned()))
    };
    let (Some(from), Some(to)) = (full(Some(request.target())), full(request.body.get("to")))
    else {
        return demands.need(Target::Everything, Action::AnyAction);
    };
    let (source, goal) = (Target::Collection(&from.0, &from.1), Target::Collection(&to.0, &to.1));
    let within = from.0 == to.0
        && demands.may(source, Action::RenameCollectionSameDb)
        && demands.may(goal, Action::RenameCollectionSameDb)
        && (demands.may(source, Action::Find) || !demands.may(goal, Action::Find));
    if !within {
        demands.need_all(source, &[Action::Find, Action::DropCollection]);
        demands.need_all(goal, &[Action::Insert, Action::CreateIndex]);
    }
    if is_set(request.body, "dropTarget") {
        demands.need(goal, Action::DropCollection);
    }
}

pub(crate) fn clone_as_capped(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(target(request), Action::Find);
    let to = request.body.get("toCollection").and_then(RawValue::as_str);
    let goal = to.map_or(Target::Everything, |to| Target::Collection(request.db, to));
    demands.need_all(goal, &[Action::Insert, Action::CreateIndex, Action::ConvertToCapped]);
}

/// Listing only names needs no right: the names of collections on which the user has rights are
/// returned.
pub(crate) fn list_collections(demands: &mut Demands<'_>, request: &Request<'_>) {
    let own = is_set(request.body, "authorizedCollections") && is_set(request.body, "nameOnly");
    if !own {
        demands.need(Target::Database(request.db), Action::ListCollections);
    }
}

/// Without the right to list all databases, those on which the user has rights are returned, unless
/// the command asks for all.
pub(crate) fn list_databases(demands: &mut Demands<'_>, request: &Request<'_>) {
    if request.body.get("authorizedDatabases") == Some(RawValue::Bool(false)) {
        demands.need(Target::Cluster, Action::ListDatabases);
    }
}

/// -1 reads the settings; any other level changes them.
pub(crate) fn profile(demands: &mut Demands<'_>, request: &Request<'_>) {
    let reads = whole_number(request.target()) == Some(-1);
    let system = Target::Collection(request.db, "system.profile");
    let enables = (Target::Database(request.db), Action::EnableProfiler);
    match reads && request.body.get("filter").is_none() {
        true => demands.need_any(&[enables, (system, Action::Find)]),
        false => demands.need_any(&[enables]),
    }
}

/// Demands the rights of a pipeline, for commands that explain or store it. The handler checks the
/// parsed pipeline again; this check comes before the command has any effect.
fn stages(
    demands: &mut Demands<'_>,
    on: (&str, Option<&str>),
    stages: RawDoc<'_>,
    inside: PipelineOwner,
) {
    demands.need_rights(UncheckedPipeline::parse_alone(stages, on.0, inside).rights(), on);
}

/// Demands the rights of the explained command.
pub(crate) fn explain(demands: &mut Demands<'_>, request: &Request<'_>) {
    let RawValue::Document(body) = request.target() else {
        return demands.need(Target::Everything, Action::Find);
    };
    if has_repeats(body) {
        return demands.need(Target::Everything, Action::AnyAction);
    }
    let name = body.iter().next().map_or("", |first| first.name());
    let Some(row) = demands.row(name) else { return };
    // An explain of an explain is refused and needs no right, at any depth.
    if row.name != request.row.name {
        let inner = Request::inner(row, request.db, body);
        demands.need_for(&inner);
        if let Some(RawValue::Array(pipeline)) = body.get("pipeline")
            && row.flags.contains(RowFlags::PIPELINE)
        {
            stages(demands, (inner.db, inner.target().as_str()), pipeline, PipelineOwner::Command);
        }
    }
}

/// Whether a field is repeated in a document: the checked value could differ from the one that is
/// used.
fn has_repeats(document: RawDoc<'_>) -> bool {
    document.iter().enumerate().any(|(at, field)| {
        document.iter().take(at).any(|before| before.name_bytes() == field.name_bytes())
    })
}

/// The balancer's settings are documents of `config.settings`.
pub(crate) fn config_settings(demands: &mut Demands<'_>, _: &Request<'_>) {
    demands.need(Target::Collection("config", "settings"), Action::Find);
}
