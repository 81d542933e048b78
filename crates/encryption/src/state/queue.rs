//! Documents of the queue of compaction: each insert of an encrypted value appends one for each of
//! its token sets.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::cipher::decrypt;
use crate::payload::GENERAL;
use crate::tokens::{EcocToken, EscContentionToken, TOKEN_BYTES};

/// A document of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The path of the field.
    pub field: String,
    /// The state's token, encrypted with the field's [`EcocToken`].
    pub encrypted_tokens: Vec<u8>,
}

impl QueueEntry {
    /// `{_id: ObjectId, fieldName: "path", value: BinData(0, ..)}`.
    pub fn document(&self, id: [u8; 12]) -> DocBuf {
        let mut document = DocBuilder::new();
        document.append("_id", RawValue::ObjectId(id)).append("fieldName", self.field.as_str());
        let bytes = &self.encrypted_tokens;
        document.append("value", RawValue::Binary { subtype: GENERAL, bytes });
        document.finish()
    }

    /// Reads a stored document.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn parse(document: RawDoc<'_>) -> Result<QueueEntry> {
        match (document.get("fieldName"), document.get("value")) {
            (Some(RawValue::String(field)), Some(RawValue::Binary { subtype: GENERAL, bytes })) => {
                Ok(QueueEntry { field: field.to_owned(), encrypted_tokens: bytes.to_vec() })
            }
            _ => Err(Error::failed_to_parse(
                "a document in the compaction queue of encrypted fields is malformed",
            )),
        }
    }

    /// The token in the entry.
    ///
    /// # Errors
    /// 9 FailedToParse for an entry of another length, and for one that another key encrypted, if
    /// its last byte shows it. The encryption is not authenticated: otherwise a wrong key yields a
    /// token without state, for which a compaction does nothing.
    fn decrypt(&self, token: &EcocToken) -> Result<(EscContentionToken, bool)> {
        let plain = decrypt(token.as_bytes(), &self.encrypted_tokens).unwrap_or_default();
        let fault = || {
            let field = &self.field;
            Error::failed_to_parse(format!(
                "an entry for '{field}' in the compaction queue cannot be decrypted"
            ))
        };
        let (token, rest) = plain.split_first_chunk::<TOKEN_BYTES>().ok_or_else(fault)?;
        match rest {
            [] | [0] => Ok((EscContentionToken::new(*token), false)),
            [1] => Ok((EscContentionToken::new(*token), true)),
            _ => Err(fault()),
        }
    }
}

/// A value, or an edge of a range, that was inserted since the last compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedToken {
    /// The path of the field.
    pub field: String,
    /// The token of its state.
    pub token: EscContentionToken,
    /// Whether it is the leaf of a range: an edge that covers one value.
    pub is_leaf: bool,
    /// The entries with this token, as positions in the list that was decrypted.
    pub entries: Vec<usize>,
}

/// Decrypts entries and groups those with the same field and token, in the order of their first
/// entry. `tokens` has the token of each field.
///
/// # Errors
/// 2 BadValue for an entry of a field without a token; 9 FailedToParse for malformed entries.
pub fn queued_tokens(
    entries: &[QueueEntry],
    tokens: &[(String, EcocToken)],
) -> Result<Vec<QueuedToken>> {
    let mut found: Vec<QueuedToken> = Vec::new();
    let mut places: HashMap<(&str, EscContentionToken), usize, RandomState> = HashMap::default();
    for (at, entry) in entries.iter().enumerate() {
        let Some((_, key)) = tokens.iter().find(|(field, _)| *field == entry.field) else {
            let field = &entry.field;
            return Err(Error::bad_value(format!("no compaction token for field '{field}'")));
        };
        let (token, is_leaf) = entry.decrypt(key)?;
        let place = *places.entry((&entry.field, token)).or_insert(found.len());
        match found.get_mut(place) {
            Some(known) => known.entries.push(at),
            None => found.push(QueuedToken {
                field: entry.field.clone(),
                token,
                is_leaf,
                entries: vec![at],
            }),
        }
    }
    Ok(found)
}
