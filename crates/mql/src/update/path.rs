//! Rules of update paths: what may stand in them, their order, and conflicts between them.

use std::cmp::Ordering;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::paths::array_index;

use crate::FieldPath;

/// Checks and splits a path.
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
        if part == "$" || part.starts_with("$[") {
            return Err(Error::not_implemented(format!("the positional operator in '{path}'")));
        }
        if part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db") {
            return Err(Error::new(
                ErrorCode::DollarPrefixedFieldName,
                format!(
                    "The dollar ($) prefixed field '{part}' in '{path}' is not allowed for storage."
                ),
            ));
        }
    }
    FieldPath::new(path)
}

/// Part by part; array positions by number, and before other names.
pub(super) fn compare_paths(left: &FieldPath, right: &FieldPath) -> Ordering {
    let rank = |part: &str| array_index(part).map_or((1, 0), |index| (0, index));
    let by_part = |a: &str, b: &str| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b));
    let parts = left.parts().iter().zip(right.parts());
    parts
        .map(|(a, b)| by_part(a, b))
        .find(|order| order.is_ne())
        .unwrap_or_else(|| left.parts().len().cmp(&right.parts().len()))
}

/// Refuses paths of which one is the other or leads to it. The paths are in order, so neighbours
/// tell.
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
    Ok(())
}
