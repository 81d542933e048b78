//! Conditions on the values of filter fields, as `filter` of `$vectorSearch` contains them.
//!
//! A condition is evaluated in two ways with the same result: against the values of one document
//! ([`Condition::matches`]), for the part of an index that is in memory, and against the sorted
//! values of a segment ([`Condition::select`]), which gives the set of its documents.

pub(crate) mod bits;
pub(crate) mod column;
mod parse;
#[cfg(test)]
mod tests;
pub(crate) mod value;

use mayfly_base::Result;

use crate::fields::ByField;

pub(crate) use bits::BitSet;
pub(crate) use column::Column;
pub(crate) use parse::parse;

/// The keys of a document's values, by field: sorted, without [`value::PRESENT`]. The fields are
/// those that the document has.
pub(crate) type Values = ByField<Vec<Vec<u8>>>;

/// Ends the selection of documents by an error of the caller.
pub(crate) type Check<'c> = &'c dyn Fn() -> Result<()>;

/// A test of the values of one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    /// One of them is one of these.
    In(Vec<Vec<u8>>),
    /// One of them is in this range of keys; the end is exclusive.
    Range(std::ops::Range<Vec<u8>>),
    /// There is one.
    Exists,
}

impl Test {
    /// Adds the documents of a segment that pass.
    ///
    /// # Errors
    /// Errors of the check.
    pub(crate) fn select(
        &self,
        column: &Column<'_>,
        selected: &mut BitSet,
        check: Check<'_>,
    ) -> Result<()> {
        match self {
            Test::In(keys) => {
                for key in keys {
                    check()?;
                    column.select_key(key, selected);
                }
            }
            Test::Range(range) => column.select_range(range, selected, check)?,
            Test::Exists => column.select_key(value::PRESENT, selected),
        }
        Ok(())
    }

    /// Whether a document passes that has the field with these keys.
    fn passes(&self, keys: &[Vec<u8>]) -> bool {
        match self {
            Test::In(wanted) => wanted.iter().any(|key| keys.binary_search(key).is_ok()),
            Test::Range(range) => keys.iter().any(|key| range.contains(key)),
            Test::Exists => true,
        }
    }
}

/// A condition. A field is named by its place in [`crate::Definition::filters`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    Field(usize, Test),
}

impl Condition {
    /// One more than the greatest field that it names.
    pub(crate) fn fields(&self) -> usize {
        match self {
            Condition::And(parts) | Condition::Or(parts) => {
                parts.iter().map(Condition::fields).max().unwrap_or(0)
            }
            Condition::Not(part) => part.fields(),
            Condition::Field(field, _) => field + 1,
        }
    }

    /// Whether a document with these values matches. Each field's keys are sorted.
    pub(crate) fn matches(&self, values: &Values) -> bool {
        match self {
            Condition::And(parts) => parts.iter().all(|part| part.matches(values)),
            Condition::Or(parts) => parts.iter().any(|part| part.matches(values)),
            Condition::Not(part) => !part.matches(values),
            Condition::Field(field, test) => {
                values.get(*field as u16).is_some_and(|keys| test.passes(keys))
            }
        }
    }

    /// The documents of a segment that match, of `documents` ones.
    ///
    /// # Errors
    /// Errors of the check.
    pub(crate) fn select(
        &self,
        columns: &[Option<Column<'_>>],
        documents: usize,
        check: Check<'_>,
    ) -> Result<BitSet> {
        check()?;
        let mut selected = BitSet::new(documents);
        match self {
            Condition::And(parts) => {
                selected.fill();
                for part in parts {
                    selected.intersect(&part.select(columns, documents, check)?);
                }
            }
            Condition::Or(parts) => {
                for part in parts {
                    selected.unite(&part.select(columns, documents, check)?);
                }
            }
            Condition::Not(part) => {
                selected = part.select(columns, documents, check)?;
                selected.invert();
            }
            Condition::Field(field, test) => {
                if let Some(column) = columns.get(*field).and_then(Option::as_ref) {
                    test.select(column, &mut selected, check)?;
                }
            }
        }
        Ok(selected)
    }
}
