//! The conditions of a filter, and what each of them looks at.

use std::collections::BTreeSet;

use mayfly_expr::{Expression, Scope};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

/// Deepest nesting that is looked into.
const MAX_DEPTH: usize = 20;

/// A condition that gives the same wherever the fields that it looks at have the same values.
pub(super) struct Conjunct {
    pub(super) condition: DocBuf,
    /// Dotted paths.
    pub(super) paths: BTreeSet<String>,
    /// Its paths stand as names of fields, so that other names can take their places.
    pub(super) renamable: bool,
}

/// The conditions that all have to hold.
pub(super) fn conjuncts(filter: RawDoc<'_>) -> Vec<DocBuf> {
    let mut out = Vec::new();
    collect(filter, 0, &mut out);
    out
}

fn collect(filter: RawDoc<'_>, depth: usize, out: &mut Vec<DocBuf>) {
    for element in filter {
        match (element.name(), element.value()) {
            ("$and", RawValue::Array(parts)) if depth < MAX_DEPTH => {
                for part in parts {
                    if let Some(part) = part.value().as_document() {
                        collect(part, depth + 1, out);
                    }
                }
            }
            ("$comment", _) => {}
            _ => {
                let mut one = DocBuilder::new();
                one.append_element(element);
                out.push(one.finish());
            }
        }
    }
}

/// One filter of several.
pub(crate) fn joined(filters: &[DocBuf]) -> DocBuf {
    let parts: Vec<DocBuf> = filters.iter().flat_map(|filter| conjuncts(filter.as_doc())).collect();
    match parts.as_slice() {
        [] => DocBuf::empty(),
        [only] => only.clone(),
        many => {
            let mut out = DocBuilder::new();
            out.start_array("$and");
            for part in many {
                out.push(part);
            }
            out.end();
            out.finish()
        }
    }
}

impl Conjunct {
    /// What a condition looks at; nothing when that is not known, or when it differs each time.
    pub(super) fn of(condition: RawDoc<'_>, scope: &Scope) -> Option<Conjunct> {
        let mut known =
            Conjunct { condition: condition.to_owned(), paths: BTreeSet::new(), renamable: true };
        known.read(condition, scope, 0)?;
        Some(known)
    }

    fn read(&mut self, filter: RawDoc<'_>, scope: &Scope, depth: usize) -> Option<()> {
        for element in filter {
            match (element.name(), element.value()) {
                ("$or" | "$nor" | "$and", RawValue::Array(parts)) if depth < MAX_DEPTH => {
                    for part in parts {
                        self.read(part.value().as_document()?, scope, depth + 1)?;
                    }
                }
                ("$expr", value) => {
                    let expression = Expression::parse_in(value, scope).ok()?;
                    let reads = expression.dependencies();
                    if reads.whole_document || reads.random || !reads.metadata.is_empty() {
                        return None;
                    }
                    // Scripts and what else is in there may do anything.
                    if mentions(value, &["$function", "$rand"], 0) {
                        return None;
                    }
                    self.paths.extend(reads.paths);
                    self.renamable = false;
                }
                (name, _) if name.starts_with('$') => return None,
                (path, value) => {
                    if mentions(value, &["$where", "$near", "$nearSphere", "$geoNear"], 0) {
                        return None;
                    }
                    self.paths.insert(path.to_owned());
                }
            }
        }
        Some(())
    }

    /// The condition with one name of a field in the place of another.
    pub(super) fn renamed(&self, from: &str, to: &str) -> Option<DocBuf> {
        self.renamable.then(|| renamed(self.condition.as_doc(), from, to))
    }
}

/// Of a filter on documents that have others in this field: what it asks of those, and whether it asks for nothing else.
pub(crate) fn below(filter: RawDoc<'_>, field: &str, scope: &Scope) -> (Vec<DocBuf>, bool) {
    let (mut inside, mut whole) = (Vec::new(), true);
    for condition in conjuncts(filter) {
        let known = Conjunct::of(condition.as_doc(), scope);
        let is_below = |path: &String| {
            path.strip_prefix(field).and_then(|rest| rest.strip_prefix('.')).is_some()
        };
        match known.filter(|known| known.renamable && known.paths.iter().all(is_below)) {
            Some(_) => inside.push(renamed(condition.as_doc(), field, "")),
            None => whole = false,
        }
    }
    (inside, whole)
}

fn mentions(value: RawValue<'_>, names: &[&str], depth: usize) -> bool {
    match value {
        RawValue::Document(inner) | RawValue::Array(inner) => {
            depth > 100
                || inner.iter().any(|element| {
                    names.contains(&element.name()) || mentions(element.value(), names, depth + 1)
                })
        }
        _ => false,
    }
}

fn renamed(filter: RawDoc<'_>, from: &str, to: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in filter {
        let name = element.name();
        match element.value() {
            RawValue::Array(parts) if name.starts_with('$') => {
                out.start_array(name);
                for part in parts {
                    if let Some(part) = part.value().as_document() {
                        out.push(&renamed(part, from, to));
                    }
                }
                out.end();
            }
            value => match name.strip_prefix(from) {
                Some("") => {
                    out.append(to, value);
                }
                Some(rest) if rest.starts_with('.') => {
                    let name = format!("{to}{rest}");
                    out.append(if to.is_empty() { &rest[1..] } else { &name }, value);
                }
                _ => {
                    out.append_element(element);
                }
            },
        }
    }
    out.finish()
}
