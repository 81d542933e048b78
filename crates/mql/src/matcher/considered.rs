//! The values of a document that a condition considered, to explain a failed validation.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use mayfly_geo::Geometry;
use mayfly_value::paths::{Hit, LeafArrays, visit_path_with};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

/// Most values in an explanation.
const MAX_CONSIDERED: usize = 10;

const NUMBERS: &[&str] = &["decimal", "double", "int", "long"];

/// The values at the end of a path. An array at its end stands for its items, except for conditions
/// on arrays.
pub(super) struct Considered<'a> {
    values: Vec<RawValue<'a>>,
    is_cut_off: bool,
}

impl<'a> Considered<'a> {
    /// The values that an operator considers, or nothing if the path leads nowhere.
    pub(super) fn at(path: &str, operator: &str, document: RawDoc<'a>) -> Option<Considered<'a>> {
        let arrays = match operator {
            "$size" | "$elemMatch" | "$all" => LeafArrays::Keep,
            _ => LeafArrays::Expand,
        };
        let parts: Vec<&str> = path.split('.').collect();
        let mut considered = Considered { values: Vec::new(), is_cut_off: false };
        let mut exists = false;
        let _ = visit_path_with(document, &parts, arrays, &mut |hit| {
            let Hit::Value(value, is_item) = hit else { return ControlFlow::Continue(()) };
            exists = true;
            let stands_for_items = arrays == LeafArrays::Expand && !is_item;
            if stands_for_items && matches!(value, RawValue::Array(_)) {
                return ControlFlow::Continue(());
            }
            if considered.values.len() == MAX_CONSIDERED {
                considered.is_cut_off = true;
                return ControlFlow::Break(());
            }
            considered.values.push(value);
            ControlFlow::Continue(())
        });
        exists.then_some(considered)
    }

    /// Appends the reason if no value has a type that the operator needs.
    pub(super) fn append_mismatch(&self, operator: &str, out: &mut DocBuilder) -> bool {
        let needed: &[&str] = match operator {
            "$mod" => NUMBERS,
            "$regex" => &["regex", "string", "symbol"],
            "$size" | "$elemMatch" => &["array"],
            "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => {
                &["binData", "decimal", "double", "int", "long"]
            }
            _ => return false,
        };
        let types = self.types();
        if types.iter().any(|name| needed.contains(name)) {
            return false;
        }
        out.append("reason", "type did not match");
        append_names("consideredType", types.iter().copied(), out);
        append_names("expectedType", needed.iter().copied(), out);
        true
    }

    /// Whether one of the values is a place, or the field as a whole.
    pub(super) fn has_geometry(&self, path: &str, document: RawDoc<'_>) -> bool {
        let whole = document.get(path);
        self.values.iter().copied().chain(whole).any(is_geometry)
    }

    /// Appends the values, with their types for a condition on types.
    pub(super) fn append(&self, operator: &str, out: &mut DocBuilder) {
        match self.values.as_slice() {
            [value] => {
                out.append("consideredValue", *value);
            }
            several => {
                out.start_array("consideredValues");
                several.iter().for_each(|value| {
                    out.push(*value);
                });
                out.end();
            }
        }
        if self.is_cut_off {
            out.append("consideredValuesTruncated", true);
        }
        if operator == "$type" {
            append_names("consideredType", self.types().into_iter(), out);
        }
    }

    fn types(&self) -> BTreeSet<&'static str> {
        self.values.iter().map(|value| value.type_name()).collect()
    }
}

fn is_geometry(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Document(_) | RawValue::Array(_))
        && Geometry::of_value(value).is_ok_and(|found| found.is_some())
}

/// Appends one name as a field, several as an array whose name is a plural.
fn append_names<'n>(
    field: &str,
    names: impl ExactSizeIterator<Item = &'n str>,
    out: &mut DocBuilder,
) {
    match names.len() {
        0 => {}
        1 => names.for_each(|name| {
            out.append(field, name);
        }),
        _ => {
            out.start_array(&format!("{field}s"));
            names.for_each(|name| {
                out.push(name);
            });
            out.end();
        }
    }
}
