//! Writes: the encrypted values of a document that a command is about to store.
//!
//! A client sends `{name: BinData(6, payload)}`. The server stores
//!
//! ```text
//!  the document   {name: BinData(6, stored value), __safeContent__: [BinData(0, tag)]}
//!  its counts     {_id: BinData(0, HMAC(.., count))}                        in enxcol_.NAME.esc
//!  the queue      {_id: ObjectId, fieldName: "name", value: BinData(0, ..)} in enxcol_.NAME.ecoc
//! ```
//!
//! in one transaction. A range has a tag, a count and an entry of the queue for each of its edges.
//!
//! One function plans inserts, updates and replacements, because it compares the document before
//! the write with the one after. An update operator that sets a payload leaves it in the document
//! after; the plan replaces it. Values that are in the document before and no longer in the one
//! after lose their tags. Stored values contain their tags in the clear, so that needs no token;
//! the reference compares the two documents for the same reason. A deleted document needs nothing:
//! its tags disappear with it, and counts never decrease.
//!
//! Two transactions that insert the same value at the same time insert a document with the same
//! `_id` into the collection of counts. The store must let one of them fail, with a duplicate key
//! or a conflict. That is no error of the client: the transaction must plan again with a newer
//! view. The store must detect it even if a compaction has deleted the document of the first
//! transaction in between; otherwise two documents have the same tag.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue};

use crate::cipher::RandomIv;
use crate::payload::{
    ENCRYPTED, GENERAL, InsertPayload, PayloadKind, StoredValue, encrypted_bytes, store,
};
use crate::schema::EncryptedFields;
use crate::state::{EscId, EscReader, QueueEntry, StateTokens, find_positions};
use crate::tokens::{EscContentionToken, Tag};

/// The array with the tags of a document, whose index answers queries.
pub const SAFE_CONTENT: &str = "__safeContent__";

/// What a write stores.
#[derive(Debug)]
pub struct WritePlan {
    /// The document to store.
    pub document: DocBuf,
    /// The tags that its `__safeContent__` gains.
    pub added: Vec<Tag>,
    /// The tags that its `__safeContent__` loses.
    pub removed: Vec<Tag>,
    /// The documents to insert into the collection of counts, see
    /// [`esc_document`](crate::esc_document).
    pub counts: Vec<EscId>,
    /// The documents to insert into the queue of compaction.
    pub queue: Vec<QueueEntry>,
}

/// Plans a write. `before` is the stored document that is updated or replaced, and `after` the
/// document as the command makes it, with payloads where encrypted values are set. The reader must
/// see the writes of the same transaction, so that the documents of one command count on.
///
/// `__safeContent__` stays where it is in the document, and is appended to one that has none.
///
/// # Errors
/// 2 BadValue for payloads at paths that are not indexed for them, in arrays, or of
/// queries, for stored values that are not in the document before, and for malformed tags; 9
/// FailedToParse and 22 InvalidBSON for malformed payloads; 238 NotImplemented for text search;
/// 6666200 if the command sets `__safeContent__`; errors of the reader.
pub fn plan_write(
    before: Option<RawDoc<'_>>,
    after: RawDoc<'_>,
    fields: &EncryptedFields,
    reader: &mut dyn EscReader,
    iv: RandomIv<'_>,
) -> Result<WritePlan> {
    let old = before.and_then(|document| document.get(SAFE_CONTENT));
    let given = after.get(SAFE_CONTENT);
    if given.is_some() && given != old {
        let text = format!("Cannot modify {SAFE_CONTENT} field in document.");
        return Err(Error::new(ErrorCode(6666200), text));
    }
    let mut payloads = Vec::new();
    collect(after, "", fields, &mut payloads)?;
    let counted = count(&payloads, reader)?;

    let added: Vec<Tag> = counted.tags.iter().flatten().map(|(_, tag)| *tag).collect();
    let kept: HashSet<Tag, RandomState> = stored_tags(after)?.into_iter().collect();
    let mut removed = before.map_or(Ok(Vec::new()), stored_tags)?;
    if kept.iter().any(|tag| !removed.contains(tag)) {
        // Its tags would be missing in `__safeContent__`, and no query would find the value.
        let text = "stored encrypted values cannot be inserted: encrypt the value again";
        return Err(Error::bad_value(text));
    }
    removed.retain(|tag| !kept.contains(tag));

    let values = payloads.iter().zip(&counted.tags);
    let mut values = values.map(|((_, payload), tags)| store(payload, tags, &mut *iv));
    let tags = match (old, &added[..], &removed[..]) {
        (None, [], _) => None,
        _ => Some(safe_content(old, &removed, &added)?),
    };
    let mut document = DocBuilder::new();
    let mut content = tags.as_ref().map(DocBuf::as_doc);
    for element in after.iter() {
        if element.name() == SAFE_CONTENT
            && let Some(tags) = content.take()
        {
            document.append(SAFE_CONTENT, RawValue::Array(tags));
        } else {
            rewrite(element, &mut values, &mut document);
        }
    }
    if let Some(tags) = content {
        document.append(SAFE_CONTENT, RawValue::Array(tags));
    }
    drop(values);
    let queue = payloads.iter().flat_map(|(path, payload)| {
        payload.tokens.iter().map(|tokens| QueueEntry {
            field: path.clone(),
            encrypted_tokens: tokens.encrypted_tokens.to_vec(),
        })
    });
    Ok(WritePlan {
        document: document.finish(),
        added,
        removed,
        counts: counted.ids,
        queue: queue.collect(),
    })
}

/// The tags of the stored values in a document, in their order.
///
/// # Errors
/// 9 FailedToParse for malformed values.
pub fn stored_tags(document: RawDoc<'_>) -> Result<Vec<Tag>> {
    let mut tags = Vec::new();
    collect_tags(document, &mut tags)?;
    Ok(tags)
}

fn collect_tags(document: RawDoc<'_>, tags: &mut Vec<Tag>) -> Result<()> {
    for element in document.iter() {
        match element.value() {
            RawValue::Document(inner) => collect_tags(inner, tags)?,
            value => {
                let bytes = encrypted_bytes(value).unwrap_or_default();
                if is_indexed(bytes) {
                    tags.extend(StoredValue::parse(bytes)?.tags());
                }
            }
        }
    }
    Ok(())
}

fn is_indexed(bytes: &[u8]) -> bool {
    matches!(PayloadKind::of(bytes), Some(PayloadKind::StoredEquality | PayloadKind::StoredRange))
}

/// Whether a value is a payload to insert.
fn is_payload(value: RawValue<'_>) -> bool {
    encrypted_bytes(value).and_then(PayloadKind::of) == Some(PayloadKind::Insert)
}

/// Collects the payloads with their paths, in the order of the document.
fn collect<'a>(
    document: RawDoc<'a>,
    prefix: &str,
    fields: &EncryptedFields,
    payloads: &mut Vec<(String, InsertPayload<'a>)>,
) -> Result<()> {
    for element in document.iter() {
        let value = element.value();
        let path = || format!("{prefix}{}", element.name());
        match value {
            RawValue::Document(inner) => {
                collect(inner, &format!("{}.", path()), fields, payloads)?;
            }
            RawValue::Array(items) => refuse_payloads(items, &path())?,
            RawValue::Binary { subtype: ENCRYPTED, bytes } => match PayloadKind::of(bytes) {
                Some(PayloadKind::Insert) => {
                    let payload = InsertPayload::parse(bytes)?;
                    check_payload(&path(), &payload, fields)?;
                    payloads.push((path(), payload));
                }
                Some(
                    PayloadKind::Deterministic
                    | PayloadKind::Random
                    | PayloadKind::StoredEquality
                    | PayloadKind::StoredRange
                    | PayloadKind::StoredText
                    | PayloadKind::Unindexed,
                ) => {}
                Some(
                    PayloadKind::FindEquality | PayloadKind::FindRange | PayloadKind::FindText,
                )
                | None => {
                    let path = path();
                    return Err(Error::bad_value(format!(
                        "encrypted data at '{path}' has a kind that cannot be stored"
                    )));
                }
            },
            _ => {}
        }
    }
    Ok(())
}

/// Refuses payloads in an array, where no field can be indexed.
fn refuse_payloads(array: RawDoc<'_>, path: &str) -> Result<()> {
    for item in array.iter() {
        match item.value() {
            RawValue::Document(inner) | RawValue::Array(inner) => refuse_payloads(inner, path)?,
            value if is_payload(value) => {
                return Err(Error::bad_value(format!(
                    "encrypted values cannot be inserted into the array '{path}'"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_payload(path: &str, payload: &InsertPayload<'_>, fields: &EncryptedFields) -> Result<()> {
    let Some(field) = fields.at(path) else {
        return Err(Error::bad_value(format!("'{path}' is not an encrypted field")));
    };
    field.check_index(payload.kind, &payload.range)?;
    if field.value_type.is_some_and(|declared| declared != payload.value_type) {
        return Err(Error::bad_value(format!(
            "the type of the encrypted value at '{path}' is not the declared one"
        )));
    }
    Ok(())
}

struct Counted {
    /// The count and the tag of each token set of each payload.
    tags: Vec<Vec<(u64, Tag)>>,
    ids: Vec<EscId>,
}

/// Gives each token set of each payload its next count.
fn count(payloads: &[(String, InsertPayload<'_>)], reader: &mut dyn EscReader) -> Result<Counted> {
    let all = payloads.iter().flat_map(|(_, payload)| &payload.tokens);
    let states: Vec<StateTokens> = all.map(|tokens| StateTokens::of_value(&tokens.esc)).collect();
    let mut found = find_positions(&states, reader)?.into_iter().zip(&states);
    // The same payload can be in a document twice. Its counts must differ.
    let mut last: HashMap<EscContentionToken, u64, RandomState> = HashMap::default();
    let mut ids = Vec::with_capacity(states.len());
    let mut tags = Vec::with_capacity(payloads.len());
    for (_, payload) in payloads {
        let sets = payload.tokens.iter().zip(&mut found).map(|(tokens, (positions, state))| {
            let count = last.entry(tokens.esc).or_insert(positions.count);
            *count += 1;
            ids.push(state.non_anchor(*count));
            (*count, tokens.edc.tag_token().tag(*count))
        });
        tags.push(sets.collect());
    }
    Ok(Counted { tags, ids })
}

/// Copies an element, with the stored values in place of payloads.
fn rewrite(
    element: RawElement<'_>,
    values: &mut dyn Iterator<Item = Vec<u8>>,
    document: &mut DocBuilder,
) {
    let value = element.value();
    match value {
        RawValue::Document(inner) => {
            document.start_document(element.name());
            for element in inner.iter() {
                rewrite(element, values, document);
            }
            document.end();
        }
        value if is_payload(value) => {
            let bytes = values.next().unwrap_or_default();
            let stored = RawValue::Binary { subtype: ENCRYPTED, bytes: &bytes };
            document.append(element.name(), stored);
        }
        _ => {
            document.append_element(element);
        }
    }
}

/// The array of tags: those so far without the removed ones, then the added ones.
fn safe_content(old: Option<RawValue<'_>>, removed: &[Tag], added: &[Tag]) -> Result<DocBuf> {
    let malformed = || Error::bad_value(format!("{SAFE_CONTENT} must be an array"));
    let mut tags = DocBuilder::new_array();
    if let Some(old) = old {
        for item in old.as_array().ok_or_else(malformed)? {
            let is_removed = match item.value() {
                RawValue::Binary { bytes, .. } => removed.iter().any(|tag| tag[..] == *bytes),
                _ => false,
            };
            if !is_removed {
                tags.push(item.value());
            }
        }
    }
    for tag in added {
        tags.push(RawValue::Binary { subtype: GENERAL, bytes: tag });
    }
    Ok(tags.finish())
}
