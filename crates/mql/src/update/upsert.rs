//! The document that an upsert inserts: the equalities of the filter, then the update.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, ValueBuf};

use super::path::compare_paths;
use super::tree::Node;
use super::{Update, UpdateContext, UpdateKind, Upserted};
use crate::FieldPath;
use crate::matcher::{CmpOp, Expr, Matcher, Predicate};

pub(super) fn upsert_document(
    update: &Update,
    filter: &Matcher,
    context: &UpdateContext,
) -> Result<Upserted> {
    let mut equalities = Vec::new();
    collect(filter.root(), &mut equalities);
    // A replacement is the whole document; only the `_id` may come from the filter.
    if matches!(update.kind, UpdateKind::Replacement(_)) {
        equalities.retain(|(path, _)| path.parts().first().is_some_and(|part| &**part == "_id"));
        check_whole_id(&equalities)?;
    }
    check_distinct(&equalities)?;
    let mut root = Node::root(RawDoc::EMPTY);
    for (path, value) in equalities {
        root.create(path.parts(), value.clone())?;
    }
    let base = root.into_document(256);
    let context = UpdateContext { is_insert: true, ..*context };
    let document = update.apply(base.as_doc(), &context)?.unwrap_or(base);
    let has_id = document.as_doc().get_element("_id").is_some();
    Ok(Upserted { document, has_id })
}

fn collect<'m>(expr: &'m Expr, equalities: &mut Vec<(&'m FieldPath, &'m ValueBuf)>) {
    match expr {
        Expr::And(parts) => parts.iter().for_each(|part| collect(part, equalities)),
        Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } } => {
            equalities.push((path, value));
        }
        // A list of one value is equality with it.
        Expr::Path { path, predicate: Predicate::In(list) }
            if list.regexes().is_empty() && list.values().len() == 1 =>
        {
            equalities.extend(list.values().iter().map(|value| (path, value)));
        }
        Expr::Path { .. } | Expr::Or(_) | Expr::Nor(_) | Expr::Document(_) | Expr::Always(_) => {}
    }
}

/// A replacement takes the `_id` of the filter as a whole or not at all.
fn check_whole_id(equalities: &[(&FieldPath, &ValueBuf)]) -> Result<()> {
    let part_of_id = |path: &FieldPath| {
        path.parts().len() > 1 && path.parts().first().is_some_and(|p| &**p == "_id")
    };
    match equalities.iter().find(|(path, _)| part_of_id(path)) {
        None => Ok(()),
        Some((path, _)) => Err(Error::new(
            ErrorCode::NotExactValueField,
            format!("field at '_id' must be exactly specified, field at sub-path '{path}'found"),
        )),
    }
}

fn check_distinct(equalities: &[(&FieldPath, &ValueBuf)]) -> Result<()> {
    let mut paths: Vec<&FieldPath> = equalities.iter().map(|(path, _)| *path).collect();
    paths.sort_by(|a, b| compare_paths(a, b));
    for pair in paths.windows(2) {
        let text = match pair {
            [a, b] if a == b => {
                format!("cannot infer query fields to set, path '{a}' is matched twice")
            }
            [a, b] if b.parts().starts_with(a.parts()) => {
                format!("cannot infer query fields to set, both paths '{a}' and '{b}' are matched")
            }
            _ => continue,
        };
        return Err(Error::new(ErrorCode::NotSingleValueField, text));
    }
    Ok(())
}
