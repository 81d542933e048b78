//! Documents of the collection of counts: their ids and contents.

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::cipher::{RandomIv, decrypt, encrypt, hmac};
use crate::payload::GENERAL;
use crate::tokens::{AnchorPaddingToken, EscContentionToken, EscTagToken, EscValueToken};

/// The `_id` of a document in the collection of counts: general binary data of these bytes.
pub type EscId = [u8; 32];

/// A document of the collection of counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EscRecord {
    /// A document without content.
    NonAnchor,
    /// The encrypted content of an anchor.
    Anchor(Vec<u8>),
}

impl EscRecord {
    /// Reads a stored document.
    ///
    /// # Errors
    /// 9 FailedToParse for a content that is not general binary data.
    pub fn parse(document: RawDoc<'_>) -> Result<EscRecord> {
        match document.get("value") {
            None => Ok(EscRecord::NonAnchor),
            Some(RawValue::Binary { subtype: GENERAL, bytes }) => {
                Ok(EscRecord::Anchor(bytes.to_vec()))
            }
            Some(_) => Err(Error::failed_to_parse(
                "the value of a document in the state of encrypted fields is not binData",
            )),
        }
    }
}

/// The document of a non-anchor: `{_id: BinData(0, id)}`.
pub fn esc_document(id: &EscId) -> DocBuf {
    let mut document = DocBuilder::new();
    document.append("_id", RawValue::Binary { subtype: GENERAL, bytes: id });
    document.finish()
}

/// The document of an anchor: `{_id: BinData(0, id), value: BinData(0, content)}`.
pub(crate) fn anchor_document(
    tokens: &StateTokens,
    id: &EscId,
    (position, count): (u64, u64),
    iv: RandomIv<'_>,
) -> DocBuf {
    let content = tokens.encrypt_anchor((position, count), iv);
    let mut document = DocBuilder::new();
    document.append("_id", RawValue::Binary { subtype: GENERAL, bytes: id });
    document.append("value", RawValue::Binary { subtype: GENERAL, bytes: &content });
    document.finish()
}

/// The keys of the state of one value with one contention factor, or of a field's padding.
#[derive(Clone, Copy)]
pub(crate) struct StateTokens {
    tag: EscTagToken,
    value: EscValueToken,
}

impl StateTokens {
    pub(crate) fn of_value(token: &EscContentionToken) -> StateTokens {
        StateTokens { tag: token.tag_token(), value: token.value_token() }
    }

    pub(crate) fn of_padding(token: &AnchorPaddingToken) -> StateTokens {
        StateTokens { tag: token.tag_token(), value: token.value_token() }
    }

    /// The id of the non-anchor of a count.
    pub(crate) fn non_anchor(&self, count: u64) -> EscId {
        hmac(self.tag.as_bytes(), &[&count.to_le_bytes()])
    }

    /// The id of the anchor at a position; 0 is the null anchor.
    pub(crate) fn anchor(&self, position: u64) -> EscId {
        hmac(self.tag.as_bytes(), &[&0_u64.to_le_bytes(), &position.to_le_bytes()])
    }

    /// The content of an anchor.
    fn encrypt_anchor(&self, (position, count): (u64, u64), iv: RandomIv<'_>) -> Vec<u8> {
        let mut plain = [0; 16];
        plain[..8].copy_from_slice(&position.to_le_bytes());
        plain[8..].copy_from_slice(&count.to_le_bytes());
        encrypt(self.value.as_bytes(), iv(), &plain)
    }

    /// The position and the count in an anchor.
    ///
    /// # Errors
    /// 1 InternalError for a record that is not an anchor.
    pub(crate) fn decrypt_anchor(&self, record: &EscRecord) -> Result<(u64, u64)> {
        let content = match record {
            EscRecord::NonAnchor => None,
            EscRecord::Anchor(content) => decrypt(self.value.as_bytes(), content),
        };
        let content = content.and_then(|plain| <[u8; 16]>::try_from(plain).ok());
        let Some([position @ .., _, _, _, _, _, _, _, _]) = content else {
            return Err(Error::internal("an anchor of encrypted fields has no valid content"));
        };
        let count: [u8; 8] = std::array::from_fn(|at| content.map_or(0, |bytes| bytes[8 + at]));
        Ok((u64::from_le_bytes(position), u64::from_le_bytes(count)))
    }
}
