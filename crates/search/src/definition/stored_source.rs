//! `storedSource`: the fields that the index keeps, so that a query can return them without a read
//! of the document.

use mayfly_base::Result;
use mayfly_value::RawValue;

use crate::fault::FieldPath;
use crate::read::Fields;

/// The fields that an index keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredSource {
    /// None.
    None,
    /// The whole document.
    All,
    /// Only these paths.
    Include(Vec<String>),
    /// All but these paths.
    Exclude(Vec<String>),
}

pub(super) fn parse(fields: &mut Fields<'_>) -> Result<StoredSource> {
    let path = fields.path_of("storedSource");
    let document = match fields.value("storedSource") {
        None | Some(RawValue::Bool(false)) => return Ok(StoredSource::None),
        Some(RawValue::Bool(true)) => return Ok(StoredSource::All),
        Some(RawValue::Document(document)) => document,
        Some(value) => return Err(path.wrong_type("boolean or document", value)),
    };
    let mut members = Fields::new(document, path.clone())?;
    let include = paths(&mut members, "include")?;
    let exclude = paths(&mut members, "exclude")?;
    members.finish()?;
    match (include, exclude) {
        (Some(paths), None) => Ok(StoredSource::Include(paths)),
        (None, Some(paths)) => Ok(StoredSource::Exclude(paths)),
        (None, None) => Err(path.refuse("one of [include, exclude] must be present")),
        (Some(_), Some(_)) => Err(path.refuse("only one of [include, exclude] may be present")),
    }
}

fn paths(members: &mut Fields<'_>, name: &str) -> Result<Option<Vec<String>>> {
    let Some(items) = members.array(name)? else { return Ok(None) };
    let path = members.path_of(name);
    if items.is_empty() {
        return Err(path.refuse("cannot be empty"));
    }
    let text = |(at, value): (usize, RawValue<'_>)| match value {
        RawValue::String("") => Err(path.item(at).refuse("cannot be empty")),
        RawValue::String(text) => Ok(text.to_owned()),
        value => Err(FieldPath::wrong_type(&path.item(at), "string", value)),
    };
    items.iter().map(|item| item.value()).enumerate().map(text).collect::<Result<_>>().map(Some)
}
