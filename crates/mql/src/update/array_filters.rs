//! `arrayFilters`: the array items that `$[identifier]` selects.
//!
//! A filter is an ordinary one whose paths all begin with the identifier; an item is tested as the
//! field with that name in a temporary document.

use mayfly_base::{Error, Result};
use mayfly_expr::Scope;
use mayfly_value::paths::is_dollar_name;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::Modification;
use super::path::{ArrayPart, array_part};
use crate::FieldPath;
use crate::matcher::Matcher;

/// The filters of one update.
#[derive(Debug, Default)]
pub(super) struct ArrayFilters(Vec<ArrayFilter>);

#[derive(Debug)]
struct ArrayFilter {
    identifier: String,
    filter: Matcher,
}

impl ArrayFilters {
    /// Parses the elements of the argument.
    pub(super) fn parse(filters: &[RawDoc<'_>], scope: &Scope) -> Result<ArrayFilters> {
        let mut parsed: Vec<ArrayFilter> = Vec::with_capacity(filters.len());
        for filter in filters {
            let one = ArrayFilter::parse(*filter, scope)?;
            if parsed.iter().any(|have| have.identifier == one.identifier) {
                return Err(Error::failed_to_parse(format!(
                    "Found multiple array filters with the same top-level field name {}",
                    one.identifier
                )));
            }
            parsed.push(one);
        }
        Ok(ArrayFilters(parsed))
    }

    fn find(&self, identifier: &str) -> Option<&ArrayFilter> {
        self.0.iter().find(|filter| filter.identifier == identifier)
    }

    /// Whether an identifier selects an item.
    ///
    /// # Errors
    /// Errors of its filter.
    pub(super) fn takes(&self, identifier: &str, item: RawValue<'_>) -> Result<bool> {
        let Some(filter) = self.find(identifier) else { return Ok(false) };
        let mut doc = DocBuilder::new();
        doc.append(identifier, item);
        filter.filter.matches(doc.finish().as_doc())
    }

    /// Rejects a path with an identifier that has no filter.
    pub(super) fn check_known(&self, path: &FieldPath) -> Result<()> {
        for part in path.parts() {
            if let Some(ArrayPart::Filtered(identifier)) = array_part(part)
                && self.find(identifier).is_none()
            {
                return Err(Error::bad_value(format!(
                    "No array filter found for identifier '{identifier}' in path '{path}'"
                )));
            }
        }
        Ok(())
    }

    /// Rejects a filter that no path uses.
    pub(super) fn check_used(
        &self,
        update: RawDoc<'_>,
        modifications: &[Modification],
    ) -> Result<()> {
        for ArrayFilter { identifier, .. } in &self.0 {
            let names = |part: &str| array_part(part) == Some(ArrayPart::Filtered(identifier));
            let mut paths = modifications.iter().map(|modification| &modification.path);
            if !paths.any(|path| path.parts().iter().any(|part| names(part))) {
                return Err(Error::failed_to_parse(format!(
                    "The array filter for identifier '{identifier}' was not used in the update {}",
                    Shell(update)
                )));
            }
        }
        Ok(())
    }
}

impl ArrayFilter {
    fn parse(filter: RawDoc<'_>, scope: &Scope) -> Result<ArrayFilter> {
        let in_context = |error: Error| error.in_context("Error parsing array filter");
        let matcher = Matcher::parse_plain(filter, scope).map_err(in_context)?;
        let Some(identifier) = top_level_name(filter).map_err(in_context)? else {
            return Err(Error::failed_to_parse(
                "Cannot use an expression without a top-level field name in arrayFilters",
            ));
        };
        let mut letters = identifier.chars();
        let well_formed = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_alphanumeric());
        if !well_formed {
            return Err(in_context(Error::bad_value(format!(
                "The top-level field name must be an alphanumeric string beginning with a lowercase \
                 letter, found '{identifier}'"
            ))));
        }
        Ok(ArrayFilter { identifier: identifier.to_owned(), filter: matcher })
    }
}

/// The common first name of all paths of a filter. The parser has limited its depth.
fn top_level_name(filter: RawDoc<'_>) -> Result<Option<&str>> {
    let mut found: Option<&str> = None;
    for element in filter.iter() {
        let names = match (element.name(), element.value()) {
            ("$and" | "$or" | "$nor", RawValue::Array(parts)) => {
                let parts = parts.iter().filter_map(|part| part.value().as_document());
                parts.map(top_level_name).collect::<Result<Vec<_>>>()?
            }
            (name, _) if is_dollar_name(name) => Vec::new(),
            (name, _) => vec![name.split('.').next()],
        };
        for name in names.into_iter().flatten() {
            match found {
                Some(have) if have != name => {
                    return Err(Error::failed_to_parse(format!(
                        "Expected a single top-level field name, found '{have}' and '{name}'"
                    )));
                }
                _ => found = Some(name),
            }
        }
    }
    Ok(found)
}
