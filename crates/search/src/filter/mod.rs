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

pub(crate) use bits::BitSet;
pub(crate) use column::Column;
pub(crate) use parse::parse;

/// A condition. A field is named by its place in [`crate::Definition::filters`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    /// One of the field's values is one of these.
    In(usize, Vec<Vec<u8>>),
    /// One of the field's values is in this range of keys; the end is exclusive.
    Range(usize, std::ops::Range<Vec<u8>>),
    /// The document has the field.
    Exists(usize),
}

impl Condition {
    /// One more than the greatest field that it names.
    pub(crate) fn fields(&self) -> usize {
        match self {
            Condition::And(parts) | Condition::Or(parts) => {
                parts.iter().map(Condition::fields).max().unwrap_or(0)
            }
            Condition::Not(part) => part.fields(),
            Condition::In(field, _) | Condition::Range(field, _) | Condition::Exists(field) => {
                field + 1
            }
        }
    }

    /// Whether a document with these values matches. Each field's keys are sorted.
    pub(crate) fn matches(&self, values: &[Vec<Vec<u8>>]) -> bool {
        let keys = |field: &usize| values.get(*field).map_or(&[][..], Vec::as_slice);
        match self {
            Condition::And(parts) => parts.iter().all(|part| part.matches(values)),
            Condition::Or(parts) => parts.iter().any(|part| part.matches(values)),
            Condition::Not(part) => !part.matches(values),
            Condition::In(field, wanted) => {
                wanted.iter().any(|key| keys(field).binary_search(key).is_ok())
            }
            Condition::Range(field, range) => keys(field).iter().any(|key| range.contains(key)),
            Condition::Exists(field) => keys(field).iter().any(|key| key == value::PRESENT),
        }
    }

    /// The documents of a segment that match, of `documents` ones.
    pub(crate) fn select(&self, columns: &[Option<Column<'_>>], documents: usize) -> BitSet {
        let column = |field: &usize| columns.get(*field).and_then(Option::as_ref);
        let mut selected = BitSet::new(documents);
        match self {
            Condition::And(parts) => {
                selected.fill();
                for part in parts {
                    selected.intersect(&part.select(columns, documents));
                }
            }
            Condition::Or(parts) => {
                for part in parts {
                    selected.unite(&part.select(columns, documents));
                }
            }
            Condition::Not(part) => {
                selected = part.select(columns, documents);
                selected.invert();
            }
            Condition::In(field, wanted) => {
                if let Some(column) = column(field) {
                    wanted.iter().for_each(|key| column.select_key(key, &mut selected));
                }
            }
            Condition::Range(field, range) => {
                if let Some(column) = column(field) {
                    column.select_range(range, &mut selected);
                }
            }
            Condition::Exists(field) => {
                if let Some(column) = column(field) {
                    column.select_key(value::PRESENT, &mut selected);
                }
            }
        }
        selected
    }
}
