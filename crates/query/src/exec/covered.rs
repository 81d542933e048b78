//! Documents made of the entries of an index.

use mayfly_storage::{Entry, IndexField};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

/// A document with the fields of an entry and nothing else; nothing where a value may stand for a missing field.
pub(super) fn document(entry: &Entry<'_>, fields: &[IndexField]) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    let mut bits = TypeBitsReader::new(entry.type_bits);
    let mut rest = entry.values;
    for field in fields {
        let (value, length) = keys::decode_value(rest, field.descending, &mut bits)?;
        if matches!(value.as_raw(), RawValue::Null | RawValue::Undefined) {
            return None;
        }
        rest = rest.get(length..)?;
        let (last, around) = field.parts.split_last()?;
        for name in around {
            out.start_document(name);
        }
        out.append(last, &value);
        for _ in around {
            out.end();
        }
    }
    Some(out.finish())
}
