//! Which indexes a request refers to: the missing ones, the one to change, those to drop.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::RawDoc;
use mayfly_value::shell::Shell;

use super::IndexSelector;
use crate::catalog::Index;
use crate::index::kinds::{self, KindCount};
use crate::index::spec::IndexSpec;

/// The requested indexes that do not exist yet. Expiry contract, section 1.3.
pub(super) fn new_specs(
    existing: &[Arc<Index>],
    requested: Vec<IndexSpec>,
) -> Result<Vec<IndexSpec>> {
    let mut fresh: Vec<IndexSpec> = Vec::new();
    for spec in requested {
        let known = existing.iter().map(|index| &index.spec).chain(fresh.iter());
        let mut known: Vec<&IndexSpec> = known.collect();
        // A conflict with an equivalent index is reported before one with the same name only.
        known.sort_by_key(|other| !spec.same_identity(other));
        let mut there = false;
        for other in known {
            if spec.same_definition(other) {
                there = true;
                break;
            }
            check_conflict(&spec, other)?;
        }
        if !there {
            let known = existing.iter().map(|index| &index.spec).chain(fresh.iter());
            check_only_one(&spec, known)?;
        }
        if !there {
            fresh.push(spec);
        }
    }
    Ok(fresh)
}

/// Refuses a second index of a kind whose operator does not name its index.
fn check_only_one<'s>(
    spec: &IndexSpec,
    mut others: impl Iterator<Item = &'s IndexSpec>,
) -> Result<()> {
    let name = |spec: &IndexSpec| spec.kind().row().map(|row| row.name);
    let Some(row) = spec.kind().row().filter(|row| row.count == KindCount::One) else {
        return Ok(());
    };
    match others.find(|other| name(other) == Some(row.name)) {
        Some(other) => Err(Error::new(
            ErrorCode::CannotCreateIndex,
            format!(
                "only one {kind} index per collection allowed, found existing {kind} index \"{}\"",
                other.name(),
                kind = row.name
            ),
        )),
        None => Ok(()),
    }
}

fn check_conflict(spec: &IndexSpec, other: &IndexSpec) -> Result<()> {
    let both = || {
        format!(
            "Requested index: {}, existing index: {}",
            Shell(spec.document()),
            Shell(other.document())
        )
    };
    let same_name = spec.name() == other.name();
    if spec.same_identity(other) {
        let options_differ = !spec.same_policy(other)
            || spec.hidden() != other.hidden()
            || !kinds::same_options(spec, other);
        let text = match (same_name, options_differ) {
            (false, false) => {
                format!("Index already exists with a different name: {}", other.name())
            }
            (true, _) => format!(
                "An equivalent index already exists with the same name but different options. {}",
                both()
            ),
            (false, true) => format!(
                "An equivalent index already exists with a different name and options. {}",
                both()
            ),
        };
        return Err(Error::new(ErrorCode::IndexOptionsConflict, text));
    }
    if same_name {
        return Err(Error::new(
            ErrorCode::IndexKeySpecsConflict,
            format!(
                "An existing index has the same name as the requested index. When index names are not specified, they \
                 are auto generated and can cause conflicts. Please refer to our documentation. {}",
                both()
            ),
        ));
    }
    Ok(())
}

pub(super) fn is_id_selector(selector: IndexSelector<'_>) -> bool {
    match selector {
        IndexSelector::Name(name) => name == "_id_",
        IndexSelector::Key(key) => {
            let mut elements = key.iter();
            elements.next().is_some_and(|element| element.name() == "_id")
                && elements.next().is_none()
        }
    }
}

fn same_pattern(spec: &IndexSpec, key: RawDoc<'_>) -> bool {
    crate::index::kinds::fields_of_key(key) == spec.fields()
}

/// The indexes except those that are being built to replace another one of the same name, as by
/// `reIndex`.
pub(super) fn without_replacements(existing: &[Arc<Index>]) -> Vec<Arc<Index>> {
    let replaces = |index: &Arc<Index>, other: &Arc<Index>| {
        !index.is_ready() && other.is_ready() && index.spec.name() == other.spec.name()
    };
    let kept = |index: &&Arc<Index>| !existing.iter().any(|other| replaces(index, other));
    existing.iter().filter(kept).cloned().collect()
}

pub(super) fn select(
    existing: &[Arc<Index>],
    selector: IndexSelector<'_>,
    ns: &Namespace,
) -> Result<Arc<Index>> {
    let existing = without_replacements(existing);
    let (shown, matching): (String, Vec<_>) = match selector {
        IndexSelector::Name(name) => {
            (name.to_owned(), existing.iter().filter(|index| index.spec.name() == name).collect())
        }
        IndexSelector::Key(key) => (
            Shell(key).to_string(),
            existing.iter().filter(|index| same_pattern(&index.spec, key)).collect(),
        ),
    };
    match matching.as_slice() {
        [one] => Ok(Arc::clone(one)),
        [] => Err(Error::new(
            ErrorCode::IndexNotFound,
            format!("cannot find index {shown} for ns {ns}"),
        )),
        several => {
            let names: Vec<String> =
                several.iter().map(|index| Shell(index.spec.document()).to_string()).collect();
            Err(Error::new(
                ErrorCode::AmbiguousIndexKeyPattern,
                format!(
                    "index keyPattern {shown} matches {} indexes, must use index name. Conflicting indexes:{}",
                    several.len(),
                    names.join(",")
                ),
            ))
        }
    }
}

pub(super) fn droppable(
    existing: &[Arc<Index>],
    selector: IndexSelector<'_>,
    ns: &Namespace,
) -> Result<Arc<Index>> {
    if is_id_selector(selector) {
        return Err(Error::new(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    // A key pattern may match several indexes with different options; then the name is required.
    select(existing, selector, ns).map_err(|error| match (error.code(), selector) {
        (ErrorCode::IndexNotFound, IndexSelector::Name(name)) => {
            Error::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"))
        }
        (ErrorCode::IndexNotFound, IndexSelector::Key(key)) => Error::new(
            ErrorCode::IndexNotFound,
            format!("can't find index with key: {}", Shell(key)),
        ),
        _ => error,
    })
}
