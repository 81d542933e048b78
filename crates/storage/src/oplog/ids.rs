//! Lists of `_id`s, by which one item of a log entry is several deletions.
//!
//! ```text
//! list      BinData(0x81):  | for each id: shared | length of the rest, varint | the rest |
//! element   | type, 1 byte | 0 | value, BSON |                a BSON element without a name
//! ```
//!
//! An id is encoded as a BSON element. `shared` is the number of bytes, at most 255, that it has in
//! common with the beginning of the previous one. ObjectIds that one process has made in the same
//! second differ in their last bytes only:
//!
//! ```text
//! ObjectId 65920080 a1b2c3d4e5 000007    |  0 | 14 | 07 00 65920080 a1b2c3d4e5 000007 |
//! ObjectId 65920080 a1b2c3d4e5 000008    | 13 |  1 | 08 |
//! ```

use mayfly_value::{RawElement, RawValue};

use super::varint::{put_varint, take_varint};

/// The binary subtype of a list of ids.
const IDS: u8 = 0x81;
/// The most bytes that an id can share with the previous one.
const MOST_SHARED: usize = u8::MAX as usize;

/// Builds a list.
#[derive(Default)]
pub(super) struct IdListBuilder {
    bytes: Vec<u8>,
    /// The encoded last id, and the one that is being added.
    last: Vec<u8>,
    next: Vec<u8>,
}

impl IdListBuilder {
    /// Starts a new list.
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.last.clear();
    }

    /// Adds an id. Returns the length of its value.
    pub(super) fn push(&mut self, id: RawValue<'_>) -> usize {
        self.next.clear();
        self.next.extend_from_slice(&[id.type_byte(), 0]);
        id.encode(&mut self.next);
        let shared = shared_bytes(&self.last, &self.next);
        let rest = &self.next[shared..];
        self.bytes.push(shared as u8);
        put_varint(&mut self.bytes, rest.len() as u64);
        self.bytes.extend_from_slice(rest);
        std::mem::swap(&mut self.last, &mut self.next);
        self.last.len() - 2
    }

    /// The last id.
    pub(super) fn last(&self) -> RawValue<'_> {
        RawElement::at_front(&self.last).map_or(RawValue::Null, |(element, _)| element.value())
    }

    /// The value of `o`.
    pub(super) fn value(&self) -> RawValue<'_> {
        RawValue::Binary { subtype: IDS, bytes: &self.bytes }
    }

    /// The length of the list in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// How many bytes both begin with, at most [`MOST_SHARED`].
fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take(MOST_SHARED).take_while(|(a, b)| a == b).count()
}

/// Reads a list.
pub(super) struct IdList<'v> {
    rest: &'v [u8],
    /// The encoded last id.
    last: Vec<u8>,
}

/// A list of ids that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagedIds;

impl<'v> IdList<'v> {
    /// The ids of this value, if it is a list.
    pub(super) fn of(value: Option<RawValue<'v>>) -> Option<IdList<'v>> {
        let Some(RawValue::Binary { subtype: IDS, bytes }) = value else { return None };
        Some(IdList { rest: bytes, last: Vec::new() })
    }

    /// The next id; `None` after the last one.
    pub(super) fn next(&mut self) -> Option<Result<RawValue<'_>, DamagedIds>> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            self.rest = &[];
            return Some(Err(DamagedIds));
        }
        let whole = RawElement::at_front(&self.last).filter(|(_, after)| after.is_empty());
        Some(whole.map(|(element, _)| element.value()).ok_or(DamagedIds))
    }

    /// Makes the next id the last one.
    fn take(&mut self) -> Option<()> {
        let (shared, rest) = self.rest.split_first()?;
        self.rest = rest;
        let length = usize::try_from(take_varint(&mut self.rest)?).ok()?;
        let (own, rest) = self.rest.split_at_checked(length)?;
        if usize::from(*shared) > self.last.len() {
            return None;
        }
        self.last.truncate((*shared).into());
        self.last.extend_from_slice(own);
        self.rest = rest;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, doc, oid::ObjectId};

    use super::*;

    /// The list of these ids, and the ids that are read from it.
    fn round_trip(ids: &[Bson]) -> (Vec<u8>, Vec<Bson>) {
        let mut builder = IdListBuilder::default();
        builder.begin();
        for id in ids {
            let holder = DocBuf::from_bson(&doc! { "_id": id.clone() });
            let value = holder.as_doc().get("_id").unwrap();
            let mut encoded = Vec::new();
            value.encode(&mut encoded);
            assert_eq!(builder.push(value), encoded.len());
            assert_eq!(builder.last(), value);
        }
        let mut list = IdList::of(Some(builder.value())).unwrap();
        let mut found = Vec::new();
        while let Some(id) = list.next() {
            let mut holder = mayfly_value::DocBuilder::new();
            holder.append("_id", id.unwrap());
            let holder: mayfly_value::bson::Document =
                mayfly_value::bson::Document::from_reader(holder.finish().as_bytes()).unwrap();
            found.push(holder.get("_id").unwrap().clone());
        }
        (builder.bytes.clone(), found)
    }

    #[test]
    fn ids_come_back_in_their_order() {
        let object = |number: u32| {
            let mut bytes = [7; 12];
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            Bson::ObjectId(ObjectId::from_bytes(bytes))
        };
        let lists = [
            vec![],
            vec![Bson::Null, Bson::Null, Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0)],
            vec![
                "".into(),
                "a".into(),
                "ab".into(),
                "b".repeat(300).into(),
                "b".repeat(301).into(),
            ],
            vec![Bson::Document(doc! { "a": 1 }), Bson::Document(doc! { "a": 1, "b": 2 })],
            (0..300).map(object).collect(),
        ];
        for list in lists {
            let (bytes, found) = round_trip(&list);
            assert_eq!(found, list);
            if list.len() == 300 {
                // The whole first one; then the last byte, or the last two.
                assert_eq!(bytes.len(), 16 + 298 * 3 + 4);
            }
        }
    }

    #[test]
    fn damaged_lists_are_noticed() {
        for list in [
            &[1][..],
            &[1, 0],
            &[0, 1],
            &[0, 0],
            &[0, 2, 7, 0],
            &[0, 6, 16, 0, 1, 0, 0],
            &[0, 7, 16, 0, 1, 0, 0, 0, 9],
            &[0, 6, 16, 0, 1, 0, 0, 0, 9, 1],
            &[0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        ] {
            let mut read =
                IdList::of(Some(RawValue::Binary { subtype: IDS, bytes: list })).unwrap();
            let mut results = Vec::new();
            while let Some(id) = read.next() {
                results.push(id.is_err());
                assert!(results.len() < 9, "{list:?}");
            }
            assert_eq!(results.iter().filter(|failed| **failed).count(), 1, "{list:?}");
        }
    }
}
