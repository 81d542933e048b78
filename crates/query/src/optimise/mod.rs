//! Rewrites a pipeline, as it is written, into one that gives the same and does less: filters go to the front, where indexes serve
//! them, and so do limits.
//!
//! Works on what was sent, after it was parsed and found good, so that explaining shows what runs. Stages that no rule names
//! are left where they are, and nothing goes past them.

mod conjuncts;
mod effect;

#[cfg(test)]
mod tests;

use mayfly_expr::Scope;
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

use conjuncts::{Conjunct, conjuncts};
pub(crate) use conjuncts::{below, joined};
use effect::{Effect, compares_only};
use mayfly_value::paths::array_index;

/// Rewritings of one pipeline. Each brings a stage nearer to the front or removes one, so the end comes by itself.
const MAX_REWRITINGS: usize = 10_000;

/// A pipeline that gives the same; nothing when there is nothing to gain.
pub(crate) fn optimised(pipeline: RawDoc<'_>, scope: &Scope) -> Option<DocBuf> {
    let mut stages = Vec::new();
    for stage in pipeline {
        stages.push(stage.value().as_document()?.to_owned());
    }
    let mut changed = false;
    let mut rewrite = |stages: &mut Vec<DocBuf>| {
        for _ in 0..MAX_REWRITINGS {
            if !rewrite_once(stages, scope) {
                break;
            }
            changed = true;
        }
    };
    rewrite(&mut stages);
    let before = stages.len();
    before_redacts(&mut stages, scope);
    if stages.len() > before {
        rewrite(&mut stages);
        changed = true;
    }
    changed.then(|| {
        let mut out = DocBuilder::new_array();
        stages.iter().for_each(|stage| {
            out.push(stage);
        });
        out.finish()
    })
}

fn parts<'s>(stage: &'s DocBuf) -> Option<(&'s str, RawValue<'s>)> {
    stage.as_doc().iter().next().map(|field| (field.name(), field.value()))
}

fn stage<'v>(name: &str, operand: impl Into<RawValue<'v>>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(name, operand);
    out.finish()
}

/// Applies the first rule that fits two neighbours.
fn rewrite_once(stages: &mut Vec<DocBuf>, scope: &Scope) -> bool {
    for at in 1..stages.len() {
        let Some(replacement) = pair(&stages[at - 1], &stages[at], scope) else { continue };
        stages.splice(at - 1..=at, replacement);
        return true;
    }
    false
}

/// Puts before a `$redact` what a `$match` behind it asks for and what redaction cannot bring about: there is nothing in a
/// redacted document that was not there before, so comparisons with values hold before if they hold behind. They stay behind, too.
fn before_redacts(stages: &mut Vec<DocBuf>, scope: &Scope) {
    for at in (1..stages.len()).rev() {
        let Some(("$redact", _)) = parts(&stages[at - 1]) else { continue };
        let Some(("$match", RawValue::Document(filter))) = parts(&stages[at]) else { continue };
        let safe: Vec<DocBuf> = conjuncts(filter)
            .into_iter()
            .filter(|condition| {
                let known = Conjunct::of(condition.as_doc(), scope);
                // Items of arrays have other positions behind.
                let moves = |path: &String| path.split('.').any(|it| array_index(it).is_some());
                known.is_some_and(|known| known.renamable && !known.paths.iter().any(moves))
                    && compares_only(condition.as_doc())
            })
            .collect();
        if !safe.is_empty() {
            stages.insert(at - 1, stage("$match", &joined(&safe)));
        }
    }
}

fn pair(first: &DocBuf, second: &DocBuf, scope: &Scope) -> Option<Vec<DocBuf>> {
    let (before, value) = parts(first)?;
    match (before, parts(second)?) {
        ("$match", ("$match", RawValue::Document(later))) => {
            let earlier = value.as_document()?;
            Some(vec![stage("$match", &joined(&[earlier.to_owned(), later.to_owned()]))])
        }
        ("$limit", ("$limit", later)) => {
            let least = count(value)?.min(count(later)?);
            Some(vec![stage("$limit", least)])
        }
        ("$skip", ("$skip", later)) => {
            let sum = count(value)?.checked_add(count(later)?)?;
            Some(vec![stage("$skip", sum)])
        }
        (name, ("$limit" | "$skip", _)) if one_for_one(name) => {
            Some(vec![second.clone(), first.clone()])
        }
        ("$unionWith", ("$match", RawValue::Document(filter))) => into_union(value, filter, scope),
        (name, ("$match", RawValue::Document(filter))) => push_match(name, first, filter, scope),
        _ => None,
    }
}

fn count(value: RawValue<'_>) -> Option<i64> {
    Number::from_value(value)?.to_i64_exact()
}

/// Whether it gives exactly one document for each.
fn one_for_one(name: &str) -> bool {
    matches!(name, "$project" | "$addFields" | "$set" | "$unset" | "$lookup" | "$graphLookup")
}

/// Moves what it can of a filter before a stage.
fn push_match(
    name: &str,
    first: &DocBuf,
    filter: RawDoc<'_>,
    scope: &Scope,
) -> Option<Vec<DocBuf>> {
    let effect = Effect::of(name, parts(first)?.1)?;
    let (mut ahead, mut behind) = (Vec::new(), Vec::new());
    for condition in conjuncts(filter) {
        match Conjunct::of(condition.as_doc(), scope).and_then(|known| effect.before(&known)) {
            Some(moved) => ahead.push(moved),
            None => behind.push(condition),
        }
    }
    if ahead.is_empty() {
        return None;
    }
    let mut out = vec![stage("$match", &joined(&ahead)), first.clone()];
    if !behind.is_empty() {
        out.push(stage("$match", &joined(&behind)));
    }
    Some(out)
}

/// A filter behind a union is one on both of its sides.
fn into_union(union: RawValue<'_>, filter: RawDoc<'_>, scope: &Scope) -> Option<Vec<DocBuf>> {
    let all = conjuncts(filter);
    if all.iter().any(|condition| Conjunct::of(condition.as_doc(), scope).is_none()) {
        return None;
    }
    let (from, pipeline) = match union {
        RawValue::String(name) => (Some(name), RawDoc::EMPTY),
        RawValue::Document(spec) => (
            spec.get("coll").and_then(RawValue::as_str),
            spec.get("pipeline").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY),
        ),
        _ => return None,
    };
    let mut out = DocBuilder::new();
    out.start_document("$unionWith");
    if let Some(from) = from {
        out.append("coll", from);
    }
    out.start_array("pipeline");
    pipeline.iter().for_each(|stage| {
        out.push(stage.value());
    });
    out.push_document().append("$match", filter).end().end().end();
    Some(vec![stage("$match", filter), out.finish()])
}
