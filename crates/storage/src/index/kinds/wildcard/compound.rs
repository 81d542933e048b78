//! Rules of compound wildcard indexes: the wildcard must not cover the ordinary fields of the key.
//! Manual: "Compound Wildcard Indexes".

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue};

use super::is_wildcard;
use crate::policy::value::as_f64;

/// The parts of a name in a key or projection.
fn parts_of(name: &str) -> Vec<String> {
    name.split('.').map(str::to_owned).collect()
}

/// The subtree of the wildcard of a key; empty for all fields.
pub(super) fn subtree_of(key: RawDoc<'_>) -> Option<Vec<String>> {
    let wildcard = key.iter().find(|field| is_wildcard(field.name()))?;
    let subtree = wildcard.name().strip_suffix(".$**");
    Some(subtree.map(parts_of).unwrap_or_default())
}

/// The paths of the ordinary fields of a key.
pub(super) fn ordinary_paths(key: RawDoc<'_>) -> impl Iterator<Item = Vec<String>> {
    let fields = key.iter().filter(|field| !is_wildcard(field.name()));
    fields.map(|field| parts_of(field.name()))
}

/// Checks that the projection of a compound index leaves its ordinary fields out.
///
/// # Errors
/// 7246200 for paths within each other, 7246208 for an included field, 7246209 and 7246210 for a
/// field that is not excluded, 7246211 for a projection that includes and excludes.
pub(super) fn check_projection(key: RawDoc<'_>, projection: RawDoc<'_>) -> Result<()> {
    let refuse = |code, text: String| Err(Error::new(ErrorCode(code), text));
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    add_paths(projection, &mut Vec::new(), &mut |path, is_included| match is_included {
        true => included.push(path.to_vec()),
        false => excluded.push(path.to_vec()),
    });
    let mut fields: Vec<Vec<String>> = ordinary_paths(key).collect();
    for paths in [&mut included, &mut excluded, &mut fields] {
        paths.sort();
    }
    for paths in [&included, &excluded] {
        let within = |pair: &&[Vec<String>]| pair[1].starts_with(&pair[0]);
        if let Some([_, path]) = paths.windows(2).find(within) {
            let path = path.join(".");
            return refuse(7_246_200, format!("wildcardProjection contains '{path}' twice"));
        }
    }
    let covered = |field: &&Vec<String>| included.iter().any(|path| field.starts_with(path));
    if let Some(field) = fields.iter().find(covered) {
        let field = field.join(".");
        return refuse(7_246_208, format!("wildcardProjection includes the key field '{field}'"));
    }
    let is_id = |paths: &[Vec<String>]| matches!(paths, [only] if *only == ["_id"]);
    let by_inclusion = included.iter().any(|path| *path != ["_id"]);
    let only_id = by_inclusion && is_id(&excluded);
    if !excluded.is_empty() && !only_id {
        let is_left_out = |field: &Vec<String>| excluded.iter().any(|path| field.starts_with(path));
        if let Some(field) = fields.iter().find(|field| !is_left_out(field)) {
            let code = if excluded.iter().any(|path| path > field) { 7_246_209 } else { 7_246_210 };
            let field = field.join(".");
            let text = format!("wildcardProjection does not exclude the key field '{field}'");
            return refuse(code, text);
        }
    }
    if included.is_empty() || excluded.is_empty() || is_id(&included) || is_id(&excluded) {
        return Ok(());
    }
    let text = "wildcardProjection can include and exclude only if one of both is _id";
    refuse(7_246_211, text.to_owned())
}

/// Calls `add` for each path that a projection includes or excludes.
fn add_paths(fields: RawDoc<'_>, above: &mut Vec<String>, add: &mut dyn FnMut(&[String], bool)) {
    for field in fields {
        let depth = above.len();
        above.extend(parts_of(field.name()));
        match field.value() {
            RawValue::Document(below) => add_paths(below, above, add),
            RawValue::Bool(is_included) => add(above, is_included),
            number if number.is_number() => add(above, as_f64(number) != Some(0.0)),
            _ => {}
        }
        above.truncate(depth);
    }
}
