//! What several operators have: `query`, `path`, numbers.

use mayfly_base::Result;
use mayfly_value::{Number, RawValue};

use super::WordPath;
use crate::fault::FieldPath;
use crate::read::Fields;

/// Most strings of `query` and most paths of one operator.
const MAX_ITEMS: usize = 1_024;

/// A value, or the items of an array that is not empty.
pub(super) fn items<'a>(
    fields: &mut Fields<'a>,
    name: &str,
) -> Result<Vec<(FieldPath, RawValue<'a>)>> {
    let path = fields.path_of(name);
    let value = fields.value(name);
    let RawValue::Array(array) = fields.required(name, value)? else {
        return Ok(value.map(|value| (path, value)).into_iter().collect());
    };
    if array.is_empty() {
        return Err(path.refuse("cannot be empty"));
    }
    let items = array.iter().take(MAX_ITEMS + 1).enumerate();
    let items: Vec<_> = items.map(|(at, item)| (path.item(at), item.value())).collect();
    if items.len() > MAX_ITEMS {
        return Err(path.refuse(format_args!("has more than {MAX_ITEMS} items")));
    }
    Ok(items)
}

/// A string that is not empty, or several.
pub(super) fn strings(fields: &mut Fields<'_>, name: &str) -> Result<Vec<String>> {
    let string = |(path, value): (FieldPath, RawValue<'_>)| match value {
        RawValue::String("") => Err(path.refuse("cannot be empty")),
        RawValue::String(text) => Ok(text.to_owned()),
        value => Err(path.wrong_type("string", value)),
    };
    items(fields, name)?.into_iter().map(string).collect()
}

/// `path` of an operator on words: strings, `{value, multi}` and `{wildcard}`.
pub(super) fn word_paths(fields: &mut Fields<'_>) -> Result<Vec<WordPath>> {
    items(fields, "path")?.into_iter().map(|(path, value)| word_path(path, value)).collect()
}

fn word_path(path: FieldPath, value: RawValue<'_>) -> Result<WordPath> {
    let document = match value {
        RawValue::String("") => return Err(path.refuse("cannot be empty")),
        RawValue::String(text) => return Ok(WordPath::Path(text.to_owned(), String::new())),
        RawValue::Document(document) => document,
        value => return Err(path.wrong_type("string or document", value)),
    };
    let mut members = Fields::new(document, path.clone())?;
    let value = members.text("value")?;
    let multi = members.text("multi")?;
    let wildcard = members.text("wildcard")?;
    members.finish()?;
    match (value, multi, wildcard) {
        (Some(value), multi, None) => {
            Ok(WordPath::Path(value.to_owned(), multi.unwrap_or_default().to_owned()))
        }
        (None, None, Some(pattern)) if pattern.contains("**") => {
            Err(path.field("wildcard").refuse("cannot contain \"**\""))
        }
        (None, None, Some(pattern)) => Ok(WordPath::Wildcard(pattern.to_owned())),
        (None, _, None) => Err(path.refuse("one of [value, wildcard] must be present")),
        _ => Err(path.refuse("only one of [value, wildcard] may be present")),
    }
}

/// A finite number of any type but decimal.
pub(super) fn number(fields: &mut Fields<'_>, name: &str) -> Result<Option<f64>> {
    let path = fields.path_of(name);
    match fields.value(name) {
        None => Ok(None),
        Some(value @ RawValue::Decimal128(_)) => Err(path.wrong_type("number", value)),
        Some(value) => match Number::from_value(value).map(Number::to_f64) {
            Some(number) if number.is_finite() => Ok(Some(number)),
            Some(_) => Err(path.refuse("must be finite")),
            None => Err(path.wrong_type("number", value)),
        },
    }
}
