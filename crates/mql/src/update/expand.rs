//! Expands paths with `$`, `$[]` and `$[identifier]` to plain paths of one document.
//!
//! Filters are evaluated on the items before the update. The result is in the order of paths again,
//! and no two paths may conflict.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::paths::array_index;
use mayfly_value::shell::ShellValue;
use mayfly_value::{RawDoc, RawValue};

use super::array_filters::ArrayFilters;
use super::path::{ArrayPart, array_part, compare_paths};
use super::{Action, Modification, Operators, UpdateContext};
use crate::FieldPath;

/// Most plain paths of one update: more than the items of the largest possible array.
const MAX_PATHS: usize = 2_000_000;

/// All modifications with each plain path in this document.
pub(super) fn expand<'u>(
    doc: RawDoc<'_>,
    operators: &'u Operators,
    context: &UpdateContext,
) -> Result<Vec<(FieldPath, &'u Modification)>> {
    let mut expanded = Vec::new();
    for modification in &operators.modifications {
        if !modification.dynamic {
            expanded.push((modification.path.clone(), modification));
            continue;
        }
        let mut walk = Walk {
            filters: &operators.filters,
            position: context.position,
            room: MAX_PATHS.saturating_sub(expanded.len()),
            taken: Vec::new(),
            found: Vec::new(),
        };
        walk.go(Some(RawValue::Document(doc)), modification.path.parts())?;
        for path in walk.found {
            expanded.push((FieldPath::new(&path)?, modification));
        }
    }
    expanded.sort_by(|(a, _), (b, _)| compare_paths(a, b));
    check_conflicts(&expanded)?;
    Ok(expanded)
}

/// Traverses a document along one path.
struct Walk<'u> {
    filters: &'u ArrayFilters,
    position: Option<usize>,
    /// Number of paths that may still be found.
    room: usize,
    taken: Vec<String>,
    found: Vec<String>,
}

impl Walk<'_> {
    /// Continues with the rest of the path; `value` is `None` where the path would be created. The
    /// depth is bounded by the number of parts.
    fn go(&mut self, value: Option<RawValue<'_>>, parts: &[Box<str>]) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            if self.found.len() >= self.room {
                let text = format!("an update may change at most {MAX_PATHS} array items");
                return Err(Error::new(ErrorCode::ExceededMemoryLimit, text));
            }
            self.found.push(self.taken.join("."));
            return Ok(());
        };
        match array_part(part) {
            None => self.step(value, part.to_string(), rest),
            Some(ArrayPart::Matched) => match self.position {
                Some(at) => self.step(value, at.to_string(), rest),
                None => Err(Error::bad_value(
                    "The positional operator did not find the match needed from the query.",
                )),
            },
            Some(ArrayPart::All) => self.items(value, rest, |_, _| Ok(true)),
            Some(ArrayPart::Filtered(identifier)) => {
                self.items(value, rest, |filters, item| filters.takes(identifier, item))
            }
        }
    }

    fn step(&mut self, value: Option<RawValue<'_>>, name: String, rest: &[Box<str>]) -> Result<()> {
        let child = match value {
            Some(RawValue::Document(doc)) => doc.get(&name),
            Some(RawValue::Array(items)) => array_index(&name)
                .and_then(|index| items.iter().nth(index))
                .map(|item| item.value()),
            _ => None,
        };
        self.taken.push(name);
        self.go(child, rest)?;
        self.taken.pop();
        Ok(())
    }

    fn items(
        &mut self,
        value: Option<RawValue<'_>>,
        rest: &[Box<str>],
        takes: impl Fn(&ArrayFilters, RawValue<'_>) -> Result<bool>,
    ) -> Result<()> {
        let items = match value {
            Some(RawValue::Array(items)) => items,
            Some(other) => {
                let name = self.taken.last().map_or("", |name| name);
                let text = format!(
                    "Cannot apply array updates to non-array element {name}: {}",
                    ShellValue(other)
                );
                return Err(Error::bad_value(text));
            }
            None => {
                return Err(Error::bad_value(format!(
                    "The path '{}' must exist in the document in order to apply array updates.",
                    self.taken.join(".")
                )));
            }
        };
        for (at, item) in items.iter().enumerate() {
            if takes(self.filters, item.value())? {
                self.taken.push(at.to_string());
                self.go(Some(item.value()), rest)?;
                self.taken.pop();
            }
        }
        Ok(())
    }
}

/// Checks for conflicts of expanded paths, which may be equal, or one inside the other.
fn check_conflicts(expanded: &[(FieldPath, &Modification)]) -> Result<()> {
    let mut paths: Vec<&FieldPath> = Vec::with_capacity(expanded.len());
    for (path, modification) in expanded {
        paths.push(path);
        if let Action::RenameFrom(from) = &modification.action {
            paths.push(from);
        }
    }
    paths.sort_by(|a, b| compare_paths(a, b));
    for pair in paths.windows(2) {
        if pair[1].parts().starts_with(pair[0].parts()) {
            return Err(Error::new(
                ErrorCode::ConflictingUpdateOperators,
                format!("Update created a conflict at '{}'", pair[0]),
            ));
        }
    }
    Ok(())
}
