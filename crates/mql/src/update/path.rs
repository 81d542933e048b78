//! Rules of update paths: their parts, their order, and conflicts between them.

use std::cmp::Ordering;
use std::collections::HashMap;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::paths::array_index;

use crate::FieldPath;

/// A part of a path that selects array items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrayPart<'p> {
    /// `$`: the item that the filter matched.
    Matched,
    /// `$[]`: all items.
    All,
    /// `$[identifier]`: the items that match an array filter.
    Filtered(&'p str),
}

/// The selector in a part; `None` for names and positions.
pub(super) fn array_part(part: &str) -> Option<ArrayPart<'_>> {
    match part {
        "$" => Some(ArrayPart::Matched),
        "$[]" => Some(ArrayPart::All),
        _ => part.strip_prefix("$[")?.strip_suffix(']').map(ArrayPart::Filtered),
    }
}

/// The path up to the first selector.
pub(super) fn plain_front(path: &FieldPath) -> &str {
    let plain = path.parts().iter().take_while(|part| array_part(part).is_none());
    let len: usize = plain.map(|part| part.len() + 1).sum();
    path.as_str().get(..len.saturating_sub(1)).unwrap_or(path.as_str())
}

/// Validates and splits a path.
pub(super) fn parse_path(path: &str) -> Result<FieldPath> {
    let empty = |text: String| Err(Error::new(ErrorCode::EmptyFieldName, text));
    if path.is_empty() {
        return empty("An empty update path is not valid.".to_owned());
    }
    for part in path.split('.') {
        if part.is_empty() {
            return empty(format!(
                "The update path '{path}' contains an empty field name, which is not allowed."
            ));
        }
    }
    check_array_parts(path)?;
    FieldPath::new(path)
}

/// Checks that a selector follows an array, and that there is at most one `$`.
fn check_array_parts(path: &str) -> Result<()> {
    let first = path.split('.').next().unwrap_or(path);
    let kind = match array_part(first) {
        Some(ArrayPart::Matched) => "positional (i.e. '$')",
        Some(ArrayPart::All | ArrayPart::Filtered(_)) => "array filter identifier (i.e. '$[<id>]')",
        None if path.split('.').filter(|part| *part == "$").count() > 1 => {
            let text = format!("Too many positional (i.e. '$') elements found in path '{path}'");
            return Err(Error::bad_value(text));
        }
        None => return Ok(()),
    };
    Err(Error::bad_value(format!(
        "Cannot have {kind} element in the first position in path '{path}'"
    )))
}

/// Compares paths part by part; array positions by number, and before other names.
pub(super) fn compare_paths(left: &FieldPath, right: &FieldPath) -> Ordering {
    let rank = |part: &str| array_index(part).map_or((1, 0), |index| (0, index));
    let by_part = |a: &str, b: &str| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b));
    let parts = left.parts().iter().zip(right.parts());
    parts
        .map(|(a, b)| by_part(a, b))
        .find(|order| order.is_ne())
        .unwrap_or_else(|| left.parts().len().cmp(&right.parts().len()))
}

/// Rejects equal paths, and paths inside others. After sorting, conflicting paths are adjacent.
pub(super) fn check_conflicts(mut paths: Vec<&FieldPath>) -> Result<()> {
    paths.sort_by(|a, b| compare_paths(a, b));
    for pair in paths.windows(2) {
        if pair[1].parts().starts_with(pair[0].parts()) {
            return Err(Error::new(
                ErrorCode::ConflictingUpdateOperators,
                format!("Updating the path '{}' would create a conflict at '{}'", pair[1], pair[0]),
            ));
        }
    }
    check_mixed(&paths)
}

/// Rejects paths of which one has `$[...]` where another has a name or a position.
fn check_mixed(paths: &[&FieldPath]) -> Result<()> {
    let by_filter = |part: &str| part.starts_with("$[");
    if !paths.iter().any(|path| path.parts().iter().any(|part| by_filter(part))) {
        return Ok(());
    }
    let mut kinds: HashMap<&str, bool> = HashMap::new();
    for path in paths {
        let mut end = path.parts()[0].len();
        for part in &path.parts()[1..] {
            let parent = &path.as_str()[..end];
            if *kinds.entry(parent).or_insert(by_filter(part)) != by_filter(part) {
                return Err(Error::new(
                    ErrorCode::ConflictingUpdateOperators,
                    format!("Updating the path '{path}' would create a conflict at '{parent}'"),
                ));
            }
            end += 1 + part.len();
        }
    }
    Ok(())
}
