//! What a stage looks at of a document, and what it does to its fields.

use std::collections::{BTreeSet, HashSet};

use mayfly_expr::{Dependencies, Expression};
use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_mql::projection::ProjectedFields;
use mayfly_value::RawValue;

use super::Step;

/// The fields that a stage looks at.
#[derive(Clone, Debug)]
pub(crate) enum Reads {
    /// It may be any.
    Anything,
    /// Those at these paths; the stages behind it may look at others.
    Some(BTreeSet<String>),
    /// Those at these paths; the stages behind it see none of the others.
    Only(BTreeSet<String>),
}

impl Reads {
    /// Of a stage that passes documents on.
    pub(crate) fn some(paths: impl IntoIterator<Item = String>) -> Reads {
        Reads::Some(paths.into_iter().collect())
    }

    /// What expressions read, and these paths; documents are passed on.
    pub(crate) fn some_of(read: Dependencies, paths: impl IntoIterator<Item = String>) -> Reads {
        match read.whole_document {
            true => Reads::Anything,
            false => Reads::some(read.paths.into_iter().chain(paths)),
        }
    }

    /// What expressions read, and these paths; nothing else is passed on.
    pub(crate) fn only_of(read: Dependencies, paths: impl IntoIterator<Item = String>) -> Reads {
        match read.whole_document {
            true => Reads::Anything,
            false => Reads::Only(read.paths.into_iter().chain(paths).collect()),
        }
    }
}

/// The first name of a path.
pub(crate) fn top(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The top-level fields that stages look at; nothing when that may be any.
pub(crate) fn wanted<'s>(steps: impl Iterator<Item = &'s Step>) -> Option<HashSet<String>> {
    let mut wanted = HashSet::new();
    let mut add = |paths: BTreeSet<String>| {
        wanted.extend(paths.iter().map(|path| top(path).to_owned()));
    };
    for step in steps {
        match step.stage().reads() {
            Reads::Anything => return None,
            Reads::Some(paths) => add(paths),
            Reads::Only(paths) => {
                add(paths);
                return Some(wanted);
            }
        }
    }
    None
}

/// What a stage does to fields that passes each document on once or not at all, or several times with the same values elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// It may be anything.
    Unknown,
    /// Nothing at all: it changes the order only.
    None,
    /// Fields at these paths change; those at some have the values that others had.
    Changes {
        /// Dotted.
        paths: Vec<String>,
        /// New name and old name.
        renames: Vec<(String, String)>,
    },
    /// Only these fields stay, and those with another's values.
    Keeps {
        /// Names without a dot.
        names: Vec<String>,
        /// New name and old name.
        renames: Vec<(String, String)>,
    },
    /// The `_id` of a group has the values of this field.
    GroupsBy(String),
}

fn touches(a: &str, b: &str) -> bool {
    let inside = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    inside(a, b) || inside(b, a)
}

/// The name of a field, when the value is nothing but that field.
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
    /// Whether a path has the same values behind the stage as before it.
    pub(crate) fn leaves(&self, path: &str) -> bool {
        match self {
            Effect::None => true,
            Effect::Changes { paths, .. } => !paths.iter().any(|changed| touches(changed, path)),
            Effect::Unknown | Effect::Keeps { .. } | Effect::GroupsBy(_) => false,
        }
    }

    /// Of a stage that changes these paths.
    pub(crate) fn changes(paths: impl IntoIterator<Item = String>) -> Effect {
        Effect::Changes { paths: paths.into_iter().collect(), renames: Vec::new() }
    }

    /// Of a stage that gives paths values.
    pub(crate) fn setting(fields: &[(String, &Expression)]) -> Effect {
        // A scalar on the way to an inner field gives way to a document.
        let paths = fields.iter().map(|(path, _)| top(path).to_owned()).collect();
        let renames = renames(fields.iter().map(|(path, value)| (path.as_str(), *value)));
        Effect::Changes { paths, renames }
    }

    /// Of a projection.
    pub(crate) fn projecting(fields: &ProjectedFields<'_>) -> Effect {
        match fields {
            ProjectedFields::Without(paths) => Effect::changes(paths.iter().cloned()),
            ProjectedFields::Only { kept, made, .. } => Effect::Keeps {
                names: kept.iter().map(|name| (*name).to_owned()).collect(),
                renames: renames(made.iter().map(|(path, value)| (path.as_str(), *value))),
            },
        }
    }

    /// Of a new root that is written out field by field, or is the old one with some more.
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
            // A field whose value is missing leaves the old one: nothing is renamed.
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

    /// The condition that holds before the stage if and only if this one holds behind it.
    pub(crate) fn before(&self, condition: &Expr) -> Option<Expr> {
        let reads = condition.reads()?;
        let as_it_is = || Some(condition.clone());
        // One field that is nothing but another's value.
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

/// Whether a condition on one field compares with values that no missing field equals: a group has null for those.
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
