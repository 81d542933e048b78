//! The table of an index's fields. It only grows: a field keeps its number, and a segment contains
//! the table as it was when the segment was written.
//!
//! ```text
//!  kind u8 | detail u8 | has norms u8 | path length u16 | path | name length u16 | name of `multi`
//! ```

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Definition;
use crate::definition::PostingsDetail;

/// What a field contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FieldKind {
    /// Values as keys.
    Values,
    /// Words of strings.
    Words,
    /// Parts of words.
    Parts,
}

/// The name of a field: its kind, its path, and the name of its `multi` or nothing.
pub(crate) type FieldName = (FieldKind, String, String);

/// What belongs to the fields that a document has, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByField<T>(Box<[(u16, T)]>);

impl<T> ByField<T> {
    /// The same fields with what each becomes, in no more memory than they need.
    pub(crate) fn of<S>(fields: BTreeMap<u16, S>, finish: impl Fn(S) -> T) -> ByField<T> {
        ByField(fields.into_iter().map(|(number, begun)| (number, finish(begun))).collect())
    }

    pub(crate) fn get(&self, number: u16) -> Option<&T> {
        let at = self.0.binary_search_by_key(&number, |entry| entry.0).ok()?;
        self.0.get(at).map(|entry| &entry.1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u16, T)> {
        self.0.iter()
    }
}

/// A field of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: FieldName,
    pub(crate) detail: PostingsDetail,
    pub(crate) has_norms: bool,
}

/// The fields of an index, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldTable {
    fields: Vec<Field>,
    /// The fields of each path.
    numbers: HashMap<String, Vec<PathField>>,
    /// The number of each text field among the text fields.
    text_numbers: HashMap<u16, u32>,
}

/// A field of a path: its kind, the name of its `multi` or nothing, and its number.
type PathField = (FieldKind, String, u16);

impl FieldTable {
    /// A field with values.
    pub(crate) fn values_field(path: &str) -> Field {
        let name = (FieldKind::Values, path.to_owned(), String::new());
        Field { name, detail: PostingsDetail::Documents, has_norms: false }
    }

    /// The table of an index that is empty. Filter fields have the numbers of the definition.
    pub(crate) fn of(definition: &Definition) -> FieldTable {
        let mut table = FieldTable::default();
        for path in &definition.filters {
            table.add(&FieldTable::values_field(path));
        }
        table
    }

    /// All fields, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Field)> {
        self.fields.iter().enumerate().map(|(at, field)| (at as u16, field))
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The number of a field.
    pub(crate) fn find(&self, kind: FieldKind, path: &str, multi: &str) -> Option<u16> {
        let mut fields = self.numbers.get(path)?.iter();
        fields.find(|field| field.0 == kind && field.1 == multi).map(|field| field.2)
    }

    /// The number of a field, which is added if it is new. `None`: the table is full.
    pub(crate) fn add(&mut self, field: &Field) -> Option<u16> {
        let (kind, path, multi) = &field.name;
        if let Some(number) = self.find(*kind, path, multi) {
            return Some(number);
        }
        let number = u16::try_from(self.fields.len()).ok().filter(|number| *number < u16::MAX)?;
        if field.name.0 != FieldKind::Values {
            self.text_numbers.insert(number, self.text_numbers.len() as u32);
        }
        self.numbers.entry(path.clone()).or_default().push((*kind, multi.clone(), number));
        self.fields.push(field.clone());
        Some(number)
    }

    /// The fields with words or parts of words.
    pub(crate) fn text_fields(&self) -> impl Iterator<Item = (u16, &Field)> {
        self.iter().filter(|(_, field)| field.name.0 != FieldKind::Values)
    }

    /// The number of a text field among the text fields.
    pub(crate) fn text_number(&self, number: u16) -> Option<u32> {
        self.text_numbers.get(&number).copied()
    }

    /// Whether one table is the beginning of the other.
    pub(crate) fn is_related(&self, other: &FieldTable) -> bool {
        self.fields.iter().zip(&other.fields).all(|(left, right)| left == right)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in &self.fields {
            let (kind, path, multi) = &field.name;
            bytes.extend([*kind as u8, field.detail as u8, u8::from(field.has_norms)]);
            for text in [path, multi] {
                bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
                bytes.extend_from_slice(&text.as_bytes()[..text.len().min(usize::from(u16::MAX))]);
            }
        }
        bytes
    }

    /// Reads a table; `None`: the bytes are none.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<FieldTable> {
        let mut table = FieldTable::default();
        while !bytes.is_empty() {
            let (&[kind, detail, has_norms], rest) = bytes.split_first_chunk()?;
            let (path, rest) = text(rest)?;
            let (multi, rest) = text(rest)?;
            bytes = rest;
            let kinds = [FieldKind::Values, FieldKind::Words, FieldKind::Parts];
            let kind = *kinds.get(usize::from(kind))?;
            let details =
                [PostingsDetail::Documents, PostingsDetail::Frequencies, PostingsDetail::Positions];
            let detail = *details.get(usize::from(detail))?;
            let field = Field { name: (kind, path, multi), detail, has_norms: has_norms == 1 };
            let before = table.len();
            table.add(&field)?;
            if table.len() == before {
                return None;
            }
        }
        Some(table)
    }
}

/// A field that a document has.
pub(crate) struct FieldRef<'p> {
    pub(crate) kind: FieldKind,
    pub(crate) path: &'p str,
    /// The name of its `multi`, or nothing.
    pub(crate) multi: &'p str,
    pub(crate) detail: PostingsDetail,
    pub(crate) has_norms: bool,
}

/// The table of an index as the reader of documents sees it, which adds the fields that are new.
pub(crate) struct GrowingTable<'t> {
    shared: &'t Mutex<Arc<FieldTable>>,
    seen: Arc<FieldTable>,
}

impl GrowingTable<'_> {
    pub(crate) fn new(shared: &Mutex<Arc<FieldTable>>) -> GrowingTable<'_> {
        GrowingTable { shared, seen: shared.lock().clone() }
    }

    /// The number of a field. `None`: it is new, and the table is full.
    pub(crate) fn number(&mut self, field: &FieldRef<'_>) -> Option<u16> {
        let FieldRef { kind, path, multi, detail, has_norms } = *field;
        if let Some(number) = self.seen.find(kind, path, multi) {
            return Some(number);
        }
        let name = (kind, path.to_owned(), multi.to_owned());
        // The table is copied only while a search or a commit uses it.
        drop(mem::take(&mut self.seen));
        let mut shared = self.shared.lock();
        let number = Arc::make_mut(&mut shared).add(&Field { name, detail, has_norms });
        self.seen = shared.clone();
        number
    }

    /// The number of a field with values.
    pub(crate) fn number_of_values(&mut self, path: &str) -> Option<u16> {
        let detail = PostingsDetail::Documents;
        let kind = FieldKind::Values;
        self.number(&FieldRef { kind, path, multi: "", detail, has_norms: false })
    }
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?.to_owned(), rest))
}
