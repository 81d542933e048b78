//! Which fields of a document a stage reads, and how it changes them.

use std::collections::{BTreeSet, HashSet};

use mayfly_expr::accum::Accumulator;
use mayfly_expr::{Dependencies, Expression};
use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_mql::projection::ProjectedFields;
use mayfly_value::RawValue;

use super::Step;

/// The fields that a stage reads.
#[derive(Clone, Debug)]
pub(crate) enum Reads {
    /// Possibly all fields.
    Anything,
    /// These paths; later stages may read others.
    Some(BTreeSet<String>),
    /// These paths; later stages receive no other fields.
    Only(BTreeSet<String>),
}

impl Reads {
    /// Reads of a stage that passes documents on.
    pub(crate) fn some(paths: impl IntoIterator<Item = String>) -> Reads {
        Reads::Some(paths.into_iter().collect())
    }

    /// The dependencies of expressions and these paths, for a stage that passes documents on.
    pub(crate) fn some_of(read: Dependencies, paths: impl IntoIterator<Item = String>) -> Reads {
        match read.whole_document {
            true => Reads::Anything,
            false => Reads::some(read.paths.into_iter().chain(paths)),
        }
    }

    /// The dependencies of expressions and these paths, for a stage that passes nothing else on.
    pub(crate) fn only_of(read: Dependencies, paths: impl IntoIterator<Item = String>) -> Reads {
        match read.whole_document {
            true => Reads::Anything,
            false => Reads::Only(read.paths.into_iter().chain(paths).collect()),
        }
    }

    /// The dependencies of a key and of accumulators, for a stage that returns groups.
    pub(crate) fn grouped(mut read: Dependencies, fields: &[(String, Accumulator)]) -> Reads {
        fields.iter().for_each(|(_, accumulator)| read.extend(accumulator.dependencies()));
        Reads::only_of(read, [])
    }
}

/// The first component of a path.
pub(crate) fn top(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The top-level fields that stages read; `None` if they may read any.
pub(crate) fn needed_fields<'s>(steps: impl Iterator<Item = &'s Step>) -> Option<HashSet<String>> {
    let mut fields = HashSet::new();
    let mut add = |paths: BTreeSet<String>| {
        fields.extend(paths.iter().map(|path| top(path).to_owned()));
    };
    for step in steps {
        match step.stage().reads() {
            Reads::Anything => return None,
            Reads::Some(paths) => add(paths),
            Reads::Only(paths) => {
                add(paths);
                return Some(fields);
            }
        }
    }
    None
}

/// How a stage changes fields, if it returns each input document at most once, or several times
/// with different values in known fields.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Unknown changes.
    Unknown,
    /// No change; the stage affects the order only.
    None,
    /// Fields at these paths change. Renamed ones have the values that other fields had.
    Changes {
        /// The changed paths.
        paths: Vec<String>,
        /// Pairs of new and old name.
        renames: Vec<(String, String)>,
    },
    /// Only these fields remain, together with renamed ones.
    Keeps {
        /// Top-level field names.
        names: Vec<String>,
        /// Pairs of new and old name.
        renames: Vec<(String, String)>,
    },
    /// The `_id` of each group has the values of this field.
    GroupsBy(String),
}

fn touches(a: &str, b: &str) -> bool {
    let inside = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    inside(a, b) || inside(b, a)
}

/// The name of a field, if the expression is that field.
pub(crate) fn plain_field(value: &Expression) -> Option<&str> {
    match value.as_path()? {
        [name] => Some(name),
        _ => None,
    }
}

fn renames<'e>(fields: impl Iterator<Item = (&'e str, &'e Expression)>) -> Vec<(String, String)> {
    let plain = fields.filter(|(name, _)| !name.contains('.'));
    plain
        .filter_map(|(name, value)| Some((name.to_owned(), plain_field(value)?.to_owned())))
        .collect()
}

impl Effect {
    /// Whether a path has the same values after the stage as before it.
    pub(crate) fn leaves(&self, path: &str) -> bool {
        match self {
            Effect::None => true,
            Effect::Changes { paths, .. } => !paths.iter().any(|changed| touches(changed, path)),
            Effect::Unknown | Effect::Keeps { .. } | Effect::GroupsBy(_) => false,
        }
    }

    /// The effect of a stage that changes these paths.
    pub(crate) fn changes(paths: impl IntoIterator<Item = String>) -> Effect {
        Effect::Changes { paths: paths.into_iter().collect(), renames: Vec::new() }
    }

    /// The effect of a stage that sets paths.
    pub(crate) fn setting(fields: &[(String, &Expression)]) -> Effect {
        // Setting an inner field replaces scalars on its path by documents.
        let paths = fields.iter().map(|(path, _)| top(path).to_owned()).collect();
        let renames = renames(fields.iter().map(|(path, value)| (path.as_str(), *value)));
        Effect::Changes { paths, renames }
    }

    /// The effect of a projection.
    pub(crate) fn projecting(fields: &ProjectedFields<'_>) -> Effect {
        match fields {
            ProjectedFields::Without(paths) => Effect::changes(paths.iter().cloned()),
            ProjectedFields::Only { kept, made, .. } => Effect::Keeps {
                names: kept.iter().map(|name| (*name).to_owned()).collect(),
                renames: renames(made.iter().map(|(path, value)| (path.as_str(), *value))),
            },
        }
    }

    /// The effect of a new root that is a document expression, or the old root merged with others.
    pub(crate) fn replacing(root: &Expression) -> Effect {
        if let Some(fields) = root.as_document() {
            return Effect::Keeps { names: Vec::new(), renames: renames(fields.into_iter()) };
        }
        if let Some(RawValue::Document(_)) = root.as_constant() {
            return Effect::Keeps { names: Vec::new(), renames: Vec::new() };
        }
        let Some(parts) = root.as_additions() else { return Effect::Unknown };
        let mut paths = Vec::new();
        for part in parts {
            // If the value is missing the old field remains, so this is no renaming.
            if let Some(fields) = part.as_document() {
                paths.extend(fields.iter().map(|(name, _)| (*name).to_owned()));
            } else if let Some(RawValue::Document(fields)) = part.as_constant() {
                paths.extend(fields.iter().map(|field| field.name().to_owned()));
            } else {
                return Effect::Unknown;
            }
        }
        Effect::changes(paths)
    }

    /// The condition that holds before the stage if and only if this one holds after it.
    pub(crate) fn before(&self, condition: &Expr) -> Option<Expr> {
        let reads = condition.reads()?;
        let as_it_is = || Some(condition.clone());
        // A condition on one field can follow a renaming of that field.
        let only = || match reads.paths.iter().collect::<Vec<_>>()[..] {
            [path] if !reads.computed => Some(top(path)),
            _ => None,
        };
        match self {
            Effect::Unknown => None,
            Effect::None => as_it_is(),
            Effect::Changes { paths, renames } => {
                let changed = |path: &String| paths.iter().any(|changed| touches(changed, path));
                if !reads.paths.iter().any(changed) {
                    return as_it_is();
                }
                let name = only()?;
                let (_, old) = renames.iter().find(|(new, _)| new == name)?;
                let once = paths.iter().filter(|changed| touches(changed, name)).count() == 1;
                if once { condition.renamed(name, old) } else { None }
            }
            Effect::Keeps { names, renames } => {
                if reads.paths.iter().all(|path| names.iter().any(|name| name == top(path))) {
                    return as_it_is();
                }
                let name = only()?;
                let (_, old) = renames.iter().find(|(new, _)| new == name)?;
                condition.renamed(name, old)
            }
            Effect::GroupsBy(field) => {
                let is_id = reads.paths.iter().eq(["_id"]) && compares_only(condition);
                if is_id { condition.renamed("_id", field) } else { None }
            }
        }
    }
}

/// Whether a condition on one field compares only with values that no missing field equals. In
/// `_id` of a group null stands for missing fields.
pub(crate) fn compares_only(condition: &Expr) -> bool {
    fn plain(value: RawValue<'_>) -> bool {
        value.is_number()
            || matches!(
                value,
                RawValue::String(_) | RawValue::Date(_) | RawValue::ObjectId(_) | RawValue::Bool(_)
            )
    }
    fn compares(predicate: &Predicate) -> bool {
        match predicate {
            Predicate::Cmp { value, .. } => plain(value.as_raw()),
            Predicate::In(list) => {
                list.regexes().is_empty() && list.values().iter().all(|value| plain(value.as_raw()))
            }
            Predicate::All(parts) => parts.iter().all(compares),
            _ => false,
        }
    }
    matches!(condition, Expr::Path { predicate, .. } if compares(predicate))
}
