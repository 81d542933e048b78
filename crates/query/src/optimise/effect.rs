//! What a stage does to the fields of a document, as far as a condition behind it cares.

use mayfly_value::{DocBuf, RawDoc, RawElement, RawValue};

use super::conjuncts::Conjunct;

/// What a stage does to fields.
pub(super) enum Effect {
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

fn top(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The name of a field, when the value is nothing but its path.
fn plain_field(value: RawValue<'_>) -> Option<&str> {
    let name = value.as_str()?.strip_prefix('$')?;
    (!name.is_empty() && !name.starts_with('$') && !name.contains('.')).then_some(name)
}

impl Effect {
    /// Of a stage that passes each document on once or not at all, or several times with the same values elsewhere.
    pub(super) fn of(name: &str, operand: RawValue<'_>) -> Option<Effect> {
        let changes = |paths| Some(Effect::Changes { paths, renames: Vec::new() });
        match (name, operand) {
            ("$sort", _) => Some(Effect::None),
            ("$addFields" | "$set", RawValue::Document(fields)) => Some(Effect::setting(fields)),
            ("$unset", RawValue::String(path)) => changes(vec![path.to_owned()]),
            ("$unset", RawValue::Array(list)) => {
                let paths: Option<Vec<String>> =
                    list.iter().map(|path| Some(path.value().as_str()?.to_owned())).collect();
                changes(paths?)
            }
            ("$unwind", RawValue::String(path)) => {
                changes(vec![path.strip_prefix('$')?.to_owned()])
            }
            ("$unwind", RawValue::Document(spec)) => {
                let path = spec.get("path")?.as_str()?.strip_prefix('$')?;
                let index = spec.get("includeArrayIndex").and_then(RawValue::as_str).map(top);
                changes(std::iter::once(path).chain(index).map(str::to_owned).collect())
            }
            ("$lookup" | "$graphLookup", RawValue::Document(spec)) => {
                changes(vec![top(spec.get("as")?.as_str()?).to_owned()])
            }
            ("$project", RawValue::Document(fields)) => Effect::projecting(fields),
            ("$replaceWith", root) => Effect::replacing(root),
            ("$replaceRoot", RawValue::Document(spec)) => Effect::replacing(spec.get("newRoot")?),
            ("$group", RawValue::Document(spec)) => {
                Some(Effect::GroupsBy(plain_field(spec.get("_id")?)?.to_owned()))
            }
            _ => None,
        }
    }

    fn setting(fields: RawDoc<'_>) -> Effect {
        let (mut paths, mut renames) = (Vec::new(), Vec::new());
        for field in fields {
            let name = field.name();
            // A scalar on the way to an inner field gives way to a document.
            paths.push(top(name).to_owned());
            if let (Some(old), false) = (plain_field(field.value()), name.contains('.')) {
                renames.push((name.to_owned(), old.to_owned()));
            }
        }
        Effect::Changes { paths, renames }
    }

    fn projecting(fields: RawDoc<'_>) -> Option<Effect> {
        let is_off = |value: RawValue<'_>| {
            value == RawValue::Bool(false)
                || value.is_number() && mayfly_value::equal_values(value, RawValue::Int32(0))
        };
        let is_on = |value: RawValue<'_>| {
            value == RawValue::Bool(true) || value.is_number() && !is_off(value)
        };
        let others = || fields.iter().filter(|field| field.name() != "_id");
        if others().all(|field| is_off(field.value())) && fields.iter().all(|f| is_off(f.value())) {
            let paths = fields.iter().map(|field| field.name().to_owned()).collect();
            return Some(Effect::Changes { paths, renames: Vec::new() });
        }
        let (mut names, mut renames) = (Vec::new(), Vec::new());
        if fields.get("_id").is_none() {
            names.push("_id".to_owned());
        }
        for field in fields {
            let (name, value) = (field.name(), field.value());
            if name.contains('.') {
                continue;
            }
            if is_on(value) {
                names.push(name.to_owned());
            } else if let Some(old) = plain_field(value) {
                renames.push((name.to_owned(), old.to_owned()));
            }
        }
        Some(Effect::Keeps { names, renames })
    }

    /// A new root that is written out field by field, or is the old one with some more.
    fn replacing(root: RawValue<'_>) -> Option<Effect> {
        let RawValue::Document(root) = root else { return None };
        let written = |doc: RawDoc<'_>| doc.iter().all(|field| !field.name().starts_with('$'));
        if written(root) {
            let rename = |field: RawElement<'_>| {
                Some((field.name().to_owned(), plain_field(field.value())?.to_owned()))
            };
            let renames = root.iter().filter_map(rename).collect();
            return Some(Effect::Keeps { names: Vec::new(), renames });
        }
        let mut parts = root.get("$mergeObjects")?.as_array()?.iter().map(|part| part.value());
        if parts.next()? != RawValue::String("$$ROOT") {
            return None;
        }
        let mut paths = Vec::new();
        for part in parts {
            let part = part.as_document().filter(|part| written(*part))?;
            // A field whose value is missing leaves the old one: nothing is renamed.
            paths.extend(part.iter().map(|field| field.name().to_owned()));
        }
        Some(Effect::Changes { paths, renames: Vec::new() })
    }

    /// The condition that holds before the stage if and only if this one holds behind it.
    pub(super) fn before(&self, known: &Conjunct) -> Option<DocBuf> {
        let as_it_is = || Some(known.condition.clone());
        match self {
            Effect::None => as_it_is(),
            Effect::Changes { paths, renames } => {
                let changed = |path: &String| paths.iter().any(|changed| touches(changed, path));
                if !known.paths.iter().any(changed) {
                    return as_it_is();
                }
                // One field that is nothing but another's value.
                let [path] = known.paths.iter().collect::<Vec<_>>()[..] else { return None };
                let name = top(path);
                let (_, old) = renames.iter().find(|(new, _)| *new == name)?;
                let once = paths.iter().filter(|changed| touches(changed, name)).count() == 1;
                if once { known.renamed(name, old) } else { None }
            }
            Effect::Keeps { names, renames } => {
                if known.paths.iter().all(|path| names.iter().any(|name| name == top(path))) {
                    return as_it_is();
                }
                let [path] = known.paths.iter().collect::<Vec<_>>()[..] else { return None };
                let name = top(path);
                let (_, old) = renames.iter().find(|(new, _)| *new == name)?;
                known.renamed(name, old)
            }
            Effect::GroupsBy(field) => {
                let [path] = known.paths.iter().collect::<Vec<_>>()[..] else { return None };
                let compares = path == "_id" && compares_only(known.condition.as_doc());
                if compares { known.renamed("_id", field) } else { None }
            }
        }
    }
}

/// Whether a condition on one field compares with values that no missing field equals: a group has null for those.
pub(super) fn compares_only(condition: RawDoc<'_>) -> bool {
    let plain = |value: RawValue<'_>| {
        value.is_number()
            || matches!(
                value,
                RawValue::String(_) | RawValue::Date(_) | RawValue::ObjectId(_) | RawValue::Bool(_)
            )
    };
    let Some(field) = condition.iter().next() else { return false };
    match field.value() {
        RawValue::Document(operators) if !operators.is_empty() => {
            operators.iter().all(|operator| match (operator.name(), operator.value()) {
                ("$eq" | "$gt" | "$gte" | "$lt" | "$lte", value) => plain(value),
                ("$in", RawValue::Array(list)) => list.iter().all(|item| plain(item.value())),
                _ => false,
            })
        }
        value => plain(value),
    }
}
