//! `highlight`: the paths in which a search marks what it found.

use mayfly_base::Result;

use super::WordPath;
use super::options::word_paths;
use crate::Definition;
use crate::definition::FieldType;
use crate::fault::refused;
use crate::read::{Fields, UNBOUNDED};

/// Options of `highlight`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HighlightOptions {
    pub(crate) paths: Vec<WordPath>,
    /// The characters of a field that are examined.
    pub(crate) max_characters: usize,
    /// The passages of a field that are returned.
    pub(crate) max_passages: usize,
}

pub(super) fn parse(
    fields: &mut Fields<'_>,
    definition: &Definition,
) -> Result<Option<HighlightOptions>> {
    let Some(document) = fields.document("highlight")? else { return Ok(None) };
    let mut members = Fields::new(document, fields.path_of("highlight"))?;
    let paths = word_paths(&mut members)?;
    let max_characters = members.whole("maxCharsToExamine", 1..=UNBOUNDED)?.unwrap_or(500_000);
    let max_passages = members.whole("maxNumPassages", 1..=UNBOUNDED)?.unwrap_or(5);
    members.finish()?;
    for path in &paths {
        if let WordPath::Path(path, multi) = path {
            check_path(definition, path, multi)?;
        }
    }
    Ok(Some(HighlightOptions {
        paths,
        max_characters: max_characters as usize,
        max_passages: max_passages as usize,
    }))
}

fn check_path(definition: &Definition, path: &str, multi: &str) -> Result<()> {
    let mut is_indexed = false;
    for field_type in definition.types_at(path) {
        match field_type {
            FieldType::String(field) if multi.is_empty() && !field.is_stored => {
                return Err(refused(format!(
                    "Highlights can not be generated for path:{path}. Index definition specifies \
                     store:false"
                )));
            }
            FieldType::String(field) => {
                is_indexed |= multi.is_empty() || field.multi.contains_key(multi);
            }
            FieldType::Autocomplete(_) => is_indexed |= multi.is_empty(),
            _ => {}
        }
    }
    if is_indexed {
        return Ok(());
    }
    Err(refused(format!(
        "Highlights cannot be generated. Path: \"{path}\" is not stored statically or dynamically \
         indexed."
    )))
}
