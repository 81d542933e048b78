//! Passing over the entries of an index whose first value was shown already.

use mayfly_storage::{Direction, Entry, KeyRange};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::{DocBuf, DocBuilder, RawValue, ValueBuf};

/// Entries of one value that are passed over one by one before a seek is cheaper.
const FEW_ENTRIES: usize = 32;

/// The value that was shown last.
#[derive(Debug)]
pub(super) struct Shown {
    descending: bool,
    /// Its bytes at the beginning of keys; empty before the first.
    present: Vec<u8>,
    passed: usize,
}

impl Shown {
    pub(super) fn new(descending: bool) -> Shown {
        Shown { descending, present: Vec::new(), passed: 0 }
    }

    /// Whether the entry has the value that was shown last.
    pub(super) fn has(&mut self, entry: &Entry<'_>) -> bool {
        let same = !self.present.is_empty() && entry.values.starts_with(&self.present);
        self.passed = if same { self.passed + 1 } else { 0 };
        same
    }

    /// Whether so many were passed over that a seek is due.
    pub(super) fn should_seek(&self) -> bool {
        self.passed > FEW_ENTRIES
    }

    /// The entry's document was shown.
    pub(super) fn note(&mut self, values: &[u8]) {
        let end = keys::skip_value(values, self.descending).unwrap_or(values.len());
        self.present.clear();
        self.present.extend_from_slice(&values[..end]);
        self.passed = 0;
    }

    /// What is left of a range behind the value; nothing when that is all.
    pub(super) fn rest(&mut self, range: &KeyRange, direction: Direction) -> Option<KeyRange> {
        self.passed = 0;
        let mut rest = range.clone();
        match direction {
            Direction::Forward => {
                rest.start = KeyRange::prefix(&self.present).end;
                if rest.start.is_empty() {
                    return None;
                }
            }
            Direction::Backward => rest.end.clone_from(&self.present),
        }
        (rest.end.is_empty() || rest.start < rest.end).then_some(rest)
    }

    /// A document with nothing but the value; nothing when the key does not say whether there is one.
    pub(super) fn document(&self, entry: &Entry<'_>, path: &[String]) -> Option<DocBuf> {
        let mut bits = TypeBitsReader::new(entry.type_bits);
        let (value, _) = keys::decode_value(entry.values, self.descending, &mut bits)?;
        if matches!(value.as_raw(), RawValue::Null | RawValue::Undefined) {
            return None;
        }
        Some(nested(path, &value))
    }
}

fn nested(path: &[String], value: &ValueBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    let Some((last, around)) = path.split_last() else { return DocBuf::empty() };
    for name in around {
        out.start_document(name);
    }
    out.append(last, value);
    for _ in around {
        out.end();
    }
    out.finish()
}
