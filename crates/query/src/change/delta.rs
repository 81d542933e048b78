//! `updateDescription`: the delta of a log entry as paths and values (manual, "update Event"). The
//! oplog module of storage defines the form of deltas.

use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::options::ChangeOptions;

/// Limit on the nesting of deltas.
const MAX_LEVELS: usize = 32;

/// The changes of an update.
#[derive(Default)]
pub(super) struct UpdateDescription<'a> {
    updated: Vec<(String, RawValue<'a>)>,
    removed: Vec<String>,
    truncated: Vec<(String, i32)>,
    /// Ambiguous paths, which contain field names that look like array positions or contain dots,
    /// with their components.
    ambiguous: Vec<(String, Vec<PathStep>)>,
}

/// A component of a path.
#[derive(Clone)]
enum PathStep {
    Name(String),
    Position(i32),
}

impl<'a> UpdateDescription<'a> {
    pub(super) fn of(delta: RawDoc<'a>) -> UpdateDescription<'a> {
        let mut found = UpdateDescription::default();
        found.walk(delta, &mut Vec::new());
        found
    }

    fn walk(&mut self, delta: RawDoc<'a>, path: &mut Vec<PathStep>) {
        if path.len() > MAX_LEVELS {
            return;
        }
        if let Some(RawValue::Bool(true)) = delta.get("a") {
            return self.walk_array(delta, path);
        }
        for element in delta {
            let inner = element.value().as_document();
            match (element.name(), inner) {
                ("u" | "i", Some(fields)) => {
                    for field in fields {
                        let path = self.path(path, PathStep::Name(field.name().to_owned()));
                        self.updated.push((path, field.value()));
                    }
                }
                ("d", Some(fields)) => {
                    for field in fields {
                        let path = self.path(path, PathStep::Name(field.name().to_owned()));
                        self.removed.push(path);
                    }
                }
                (name, Some(inner)) if name.starts_with('s') => {
                    path.push(PathStep::Name(name[1..].to_owned()));
                    self.walk(inner, path);
                    path.pop();
                }
                _ => {}
            }
        }
    }

    fn walk_array(&mut self, delta: RawDoc<'a>, path: &mut Vec<PathStep>) {
        for element in delta {
            let (kind, at) = element.name().split_at(usize::from(!element.name().is_empty()));
            let position = at.parse::<i32>().ok();
            match (kind, position, element.value()) {
                ("l", None, RawValue::Int32(size)) => {
                    if let Some(last) = path.pop() {
                        let name = self.path(path, last.clone());
                        path.push(last);
                        self.truncated.push((name, size));
                    }
                }
                ("u", Some(at), value) => {
                    let path = self.path(path, PathStep::Position(at));
                    self.updated.push((path, value));
                }
                ("s", Some(at), RawValue::Document(inner)) => {
                    path.push(PathStep::Position(at));
                    self.walk(inner, path);
                    path.pop();
                }
                _ => {}
            }
        }
    }

    /// The dotted path of a field or array item. Ambiguous paths are recorded.
    fn path(&mut self, above: &[PathStep], last: PathStep) -> String {
        let parts: Vec<PathStep> = above.iter().cloned().chain([last]).collect();
        let text = |part: &PathStep| match part {
            PathStep::Name(name) => name.clone(),
            PathStep::Position(at) => at.to_string(),
        };
        let path = parts.iter().map(text).collect::<Vec<_>>().join(".");
        let odd = |part: &PathStep| match part {
            PathStep::Name(name) => {
                name.contains('.') || !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
            }
            PathStep::Position(_) => false,
        };
        if parts.iter().any(odd) {
            self.ambiguous.push((path.clone(), parts));
        }
        path
    }

    /// Appends `updateDescription`, with the details that the options ask for.
    pub(super) fn append(&self, out: &mut DocBuilder, options: &ChangeOptions) {
        out.start_document("updateDescription").start_document("updatedFields");
        for (path, value) in &self.updated {
            out.append(path, *value);
        }
        out.end().start_array("removedFields");
        for path in &self.removed {
            out.push(path.as_str());
        }
        out.end().start_array("truncatedArrays");
        for (path, size) in &self.truncated {
            out.push_document().append("field", path.as_str()).append("newSize", *size).end();
        }
        out.end();
        if options.expanded {
            out.start_document("disambiguatedPaths");
            for (path, parts) in &self.ambiguous {
                out.start_array(path);
                for part in parts {
                    match part {
                        PathStep::Name(name) => out.push(name.as_str()),
                        PathStep::Position(at) => out.push(*at),
                    };
                }
                out.end();
            }
            out.end();
        }
        out.end();
    }
}
