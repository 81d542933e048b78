//! What the stages of a pipeline need: read from the stages as they were written, before anything is made of them.
//!
//! Every stage of the table has a row here, a test sees to it; one that is not there does not exist, and its parser says so.

use mayfly_auth::{Action, Target};
use mayfly_value::{RawDoc, RawValue};

use crate::request::{Demands, Request};

/// Pipelines in pipelines beyond this are refused by their parser.
const MAX_DEPTH: usize = 64;

/// Where a pipeline stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    /// It is a command's own.
    Command,
    /// It is a part of another pipeline or of a view.
    Another,
}

/// What a stage needs.
enum StageNeeds {
    /// Nothing beside reading what the pipeline reads.
    Nothing,
    /// It does not read the collection; this action on it.
    Describes(Action),
    /// It does not read any collection; this action on the cluster.
    Cluster(Action),
    /// It lists sessions: listing those of others needs a right.
    Sessions,
    /// It brings its own documents.
    Free,
    /// It has a function.
    Own(fn(&mut Demands<'_>, &On<'_>, RawValue<'_>, usize)),
}

/// What a pipeline reads.
struct On<'a> {
    db: &'a str,
    /// Nothing for a pipeline without a collection.
    collection: Option<&'a str>,
}

impl On<'_> {
    fn target(&self) -> Target<'_> {
        match self.collection {
            Some(collection) => Target::Collection(self.db, collection),
            None => Target::Database(self.db),
        }
    }
}

const STAGES: &[(&str, StageNeeds)] = &[
    ("$match", StageNeeds::Nothing),
    ("$sort", StageNeeds::Nothing),
    ("$skip", StageNeeds::Nothing),
    ("$limit", StageNeeds::Nothing),
    ("$project", StageNeeds::Nothing),
    ("$count", StageNeeds::Nothing),
    ("$group", StageNeeds::Nothing),
    ("$set", StageNeeds::Nothing),
    ("$addFields", StageNeeds::Nothing),
    ("$unset", StageNeeds::Nothing),
    ("$replaceRoot", StageNeeds::Nothing),
    ("$replaceWith", StageNeeds::Nothing),
    ("$unwind", StageNeeds::Nothing),
    ("$sortByCount", StageNeeds::Nothing),
    ("$_internalUnpackBucket", StageNeeds::Nothing),
    ("$_internalShowBuckets", StageNeeds::Nothing),
    ("$lookup", StageNeeds::Own(lookup)),
    ("$graphLookup", StageNeeds::Own(graph_lookup)),
    ("$unionWith", StageNeeds::Own(union_with)),
    ("$facet", StageNeeds::Own(facet)),
    ("$bucket", StageNeeds::Nothing),
    ("$bucketAuto", StageNeeds::Nothing),
    ("$setWindowFields", StageNeeds::Nothing),
    ("$fill", StageNeeds::Nothing),
    ("$densify", StageNeeds::Nothing),
    ("$redact", StageNeeds::Nothing),
    ("$sample", StageNeeds::Nothing),
    ("$documents", StageNeeds::Free),
    ("$geoNear", StageNeeds::Nothing),
    ("$out", StageNeeds::Own(out)),
    ("$merge", StageNeeds::Own(merge)),
    ("$changeStream", StageNeeds::Own(change_stream)),
    ("$changeStreamSplitLargeEvent", StageNeeds::Nothing),
    ("$currentOp", StageNeeds::Own(current_op)),
    ("$listLocalSessions", StageNeeds::Sessions),
    ("$listSessions", StageNeeds::Sessions),
    ("$collStats", StageNeeds::Describes(Action::CollStats)),
    ("$planCacheStats", StageNeeds::Describes(Action::PlanCacheRead)),
    ("$querySettings", StageNeeds::Cluster(Action::QuerySettings)),
    ("$indexStats", StageNeeds::Describes(Action::IndexStats)),
    ("$ttlStats", StageNeeds::Cluster(Action::ServerStatus)),
    ("$shardedDataDistribution", StageNeeds::Cluster(Action::ShardedDataDistribution)),
];

/// Demands what a pipeline over a collection needs. What the stages say wrongly is their parser's business.
pub(super) fn demand(
    demands: &mut Demands<'_>,
    (db, collection): (&str, Option<&str>),
    stages: RawDoc<'_>,
    inside: Inside,
) {
    let on = On { db, collection };
    if inside == Inside::Another || first_reads(stages) {
        match collection {
            Some(collection) => demands.need(Target::Collection(db, collection), Action::Find),
            None => demands.need(Target::Everything, Action::Find),
        }
    }
    each(demands, &on, stages, 0);
}

/// Whether the pipeline reads documents of its collection.
fn first_reads(stages: RawDoc<'_>) -> bool {
    let first = stages.iter().next().and_then(|first| first.value().as_document());
    let name = first.and_then(|stage| stage.iter().next()).map_or("", |field| field.name());
    match STAGES.iter().find(|row| row.0 == name) {
        Some((
            _,
            StageNeeds::Describes(_)
            | StageNeeds::Cluster(_)
            | StageNeeds::Sessions
            | StageNeeds::Free,
        )) => false,
        Some((name, _)) => !matches!(*name, "$changeStream" | "$currentOp"),
        None => true,
    }
}

fn each(demands: &mut Demands<'_>, on: &On<'_>, stages: RawDoc<'_>, depth: usize) {
    if depth > MAX_DEPTH {
        return demands.need(Target::Everything, Action::AnyAction);
    }
    for stage in stages {
        let Some(stage) = stage.value().as_document() else { continue };
        // A stage has one field; its parser refuses more, and here none of them is overlooked.
        for field in stage {
            let Some((_, needs)) = STAGES.iter().find(|row| row.0 == field.name()) else {
                continue;
            };
            match needs {
                StageNeeds::Nothing | StageNeeds::Free => {}
                StageNeeds::Describes(action) => demands.need(on.target(), *action),
                StageNeeds::Cluster(action) => demands.need(Target::Cluster, *action),
                StageNeeds::Sessions
                    if field.value().as_document().is_some_and(|it| it.is_empty()) => {}
                StageNeeds::Sessions => demands.need(Target::Cluster, Action::ListSessions),
                StageNeeds::Own(_) if field.value().as_document().is_some_and(repeats) => {
                    demands.need(Target::Everything, Action::AnyAction);
                }
                StageNeeds::Own(own) => own(demands, on, field.value(), depth + 1),
            }
        }
    }
}

fn repeats(spec: RawDoc<'_>) -> bool {
    has_repeats(spec, 2)
}

/// Whether a field stands twice in a document or, as deep as is asked for, in one inside: what is checked could then be another
/// value than what is used.
pub(super) fn has_repeats(document: RawDoc<'_>, depth: usize) -> bool {
    document.iter().enumerate().any(|(at, field)| {
        let name = field.name_bytes();
        document.iter().take(at).any(|before| before.name_bytes() == name)
            || (depth > 1
                && matches!(field.value(), RawValue::Document(inner) if has_repeats(inner, depth - 1)))
    })
}

/// Reading another collection, and a pipeline over it.
fn joined(
    demands: &mut Demands<'_>,
    on: &On<'_>,
    from: Option<RawValue<'_>>,
    stages: Option<RawValue<'_>>,
    depth: usize,
) {
    let (db, collection) = match from {
        None => (on.db, None),
        Some(RawValue::String(collection)) => (on.db, Some(collection)),
        Some(RawValue::Document(name)) => {
            let part = |part: &str| name.get(part).and_then(RawValue::as_str);
            (part("db").unwrap_or(on.db), part("coll"))
        }
        Some(_) => return demands.need(Target::Everything, Action::Find),
    };
    if let Some(collection) = collection {
        demands.need(Target::Collection(db, collection), Action::Find);
    }
    if let Some(RawValue::Array(stages)) = stages {
        each(demands, &On { db, collection }, stages, depth);
    }
}

/// A client may see its own operations.
fn current_op(demands: &mut Demands<'_>, _: &On<'_>, value: RawValue<'_>, _: usize) {
    let all = value.as_document().and_then(|spec| spec.get("allUsers"));
    if !matches!(all, None | Some(RawValue::Bool(false))) {
        demands.need(Target::Cluster, Action::Inprog);
    }
}

fn lookup(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, depth: usize) {
    let Some(spec) = value.as_document() else { return };
    joined(demands, on, spec.get("from"), spec.get("pipeline"), depth);
}

fn graph_lookup(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, depth: usize) {
    let Some(spec) = value.as_document() else { return };
    joined(demands, on, spec.get("from"), None, depth);
}

fn union_with(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, depth: usize) {
    match value {
        RawValue::Document(spec) => {
            let db = spec.get("db").and_then(RawValue::as_str).unwrap_or(on.db);
            let on = On { db, collection: on.collection };
            joined(demands, &on, spec.get("coll"), spec.get("pipeline"), depth);
        }
        name => joined(demands, on, Some(name), None, depth),
    }
}

fn facet(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, depth: usize) {
    for branch in value.as_document().into_iter().flatten() {
        if let RawValue::Array(stages) = branch.value() {
            each(demands, on, stages, depth);
        }
    }
}

fn change_stream(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, _: usize) {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
    let all = spec.get("allChangesForCluster").is_some_and(|all| all != RawValue::Bool(false));
    let target = if all { Target::AllNormal } else { on.target() };
    demands.need_all(target, &[Action::ChangeStream, Action::Find]);
}

/// Where `$out` and `$merge` write: a name in the same database, or `{ db, coll }`.
fn goal<'v>(on: &On<'v>, value: Option<RawValue<'v>>) -> Target<'v> {
    match value {
        Some(RawValue::String(collection)) => Target::Collection(on.db, collection),
        Some(RawValue::Document(name)) => {
            let part = |part: &str| name.get(part).and_then(RawValue::as_str);
            match part("coll") {
                Some(collection) => Target::Collection(part("db").unwrap_or(on.db), collection),
                None => Target::Everything,
            }
        }
        _ => Target::Everything,
    }
}

fn out(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, _: usize) {
    demands.need_all(goal(on, Some(value)), &[Action::Insert, Action::Remove]);
}

fn merge(demands: &mut Demands<'_>, on: &On<'_>, value: RawValue<'_>, _: usize) {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
    let goal = merge_goal(on, value);
    let word = |name: &str| spec.get(name).and_then(RawValue::as_str);
    if !matches!(word("whenNotMatched"), Some("discard" | "fail")) {
        demands.need(goal, Action::Insert);
    }
    if word("whenMatched") != Some("fail") {
        demands.need(goal, Action::Update);
    }
}

fn merge_goal<'v>(on: &On<'v>, value: RawValue<'v>) -> Target<'v> {
    match value {
        RawValue::Document(spec) => goal(on, spec.get("into")),
        name => goal(on, Some(name)),
    }
}

/// `bypassDocumentValidation` of a pipeline that writes.
pub(super) fn bypasses(demands: &mut Demands<'_>, request: &Request<'_>, stages: RawDoc<'_>) {
    let flag = request.body.get("bypassDocumentValidation");
    if matches!(flag, None | Some(RawValue::Null | RawValue::Undefined | RawValue::Bool(false))) {
        return;
    }
    let on = On { db: request.db, collection: request.target().as_str() };
    for stage in stages.iter().filter_map(|stage| stage.value().as_document()) {
        for field in stage {
            let goal = match field.name() {
                "$out" => goal(&on, Some(field.value())),
                "$merge" => merge_goal(&on, field.value()),
                _ => continue,
            };
            demands.need(goal, Action::BypassDocumentValidation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_query::STAGES as TABLE;

    #[test]
    fn every_stage_says_what_it_needs() {
        for stage in TABLE {
            assert!(STAGES.iter().any(|row| row.0 == stage.name), "{}", stage.name);
        }
        assert_eq!(STAGES.len(), TABLE.len());
    }
}
