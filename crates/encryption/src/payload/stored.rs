//! Values as they are stored (kinds 14 and 15, FLE2IndexedEqualityEncryptedValueV2 and
//! FLE2IndexedRangeEncryptedValueV2).
//!
//! ```text
//!  1     16       1      [1]      16 + n           96 each
//! +----+--------+------+--------+----------------+--------------------------+
//! |kind| key id | type | blocks | IV, ciphertext | metadata blocks          |
//! +----+--------+------+--------+----------------+--------------------------+
//!                        15 only  key id and value, one (14), or one for each
//!                                 encrypted by the  edge (15)
//!                                 client, again by
//!                                 the server
//! ```
//!
//! A metadata block has three parts of 32 bytes: the count and the contention factor, encrypted
//! with the value's [`CountToken`]; the tag, in the clear; sixteen zeros, encrypted with the
//! value's [`ZerosToken`]. A reader with the right token recognizes the zeros.

use mayfly_base::{Error, Result};

use super::{InsertPayload, PayloadKind};
use crate::cipher::{IV_BYTES, RandomIv, ZerosCipher, decrypt, encrypt};
use crate::tokens::{CountToken, ServerDataToken, Tag, ZerosToken};

/// Bytes of a metadata block.
const BLOCK_BYTES: usize = 96;
/// The most metadata blocks of a value: their number has one byte.
pub const MAX_BLOCKS: usize = u8::MAX as usize;
/// What the last part of a block contains.
const ZEROS: [u8; 16] = [0; 16];

/// Bytes in front of the ciphertext of an equality.
const HEADER_BYTES: usize = 1 + 16 + 1;
const WHAT: &str = "stored encrypted value";

/// How a stored value is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the queries")]
pub enum StoredKind {
    Equality,
    Range,
}

/// A stored value that is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue<'a> {
    /// How it is indexed.
    pub kind: StoredKind,
    /// The data key of the index.
    pub key_id: [u8; 16],
    /// The BSON type byte of the value.
    pub value_type: u8,
    /// Its ciphertext, encrypted by the client and by the server.
    pub ciphertext: &'a [u8],
    blocks: &'a [[u8; BLOCK_BYTES]],
}

impl<'a> StoredValue<'a> {
    /// Parses the content of the binary data, its kind included.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn parse(bytes: &'a [u8]) -> Result<StoredValue<'a>> {
        let fault = |text: &str| Error::failed_to_parse(format!("invalid {WHAT}: {text}"));
        let kind = match PayloadKind::of(bytes) {
            Some(PayloadKind::StoredEquality) => StoredKind::Equality,
            Some(PayloadKind::StoredRange) => StoredKind::Range,
            _ => return Err(fault("it has another kind")),
        };
        let short = || fault("it is too short");
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(short)?;
        let (count, rest) = match kind {
            StoredKind::Equality => (1, rest),
            StoredKind::Range => {
                let (&count, rest) = rest.split_first().ok_or_else(short)?;
                (usize::from(count), rest)
            }
        };
        if count == 0 {
            return Err(fault("it has no metadata"));
        }
        let at = rest.len().checked_sub(count * BLOCK_BYTES).ok_or_else(short)?;
        let (ciphertext, blocks) = rest.split_at(at);
        if ciphertext.len() <= IV_BYTES {
            return Err(short());
        }
        let [_, key_id @ .., value_type] = *header;
        Ok(StoredValue { kind, key_id, value_type, ciphertext, blocks: blocks.as_chunks().0 })
    }

    /// Its metadata: one block for an equality, one for each edge of a range.
    pub fn blocks(&self) -> impl Iterator<Item = MetadataBlock<'a>> + use<'a> {
        self.blocks.iter().map(MetadataBlock)
    }

    /// Its tags, which `__safeContent__` of its document contains.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + use<'a> {
        self.blocks().map(MetadataBlock::tag)
    }
}

/// The metadata of a stored value or of one of its edges.
#[derive(Clone, Copy, Debug)]
pub struct MetadataBlock<'a>(&'a [u8; BLOCK_BYTES]);

impl MetadataBlock<'_> {
    /// The tag of this value or edge.
    pub fn tag(self) -> Tag {
        std::array::from_fn(|at| self.0[32 + at])
    }

    /// Whether the token is that of the value. A wrong token is accepted with a chance of 2^-128.
    pub fn is_of(self, token: &ZerosToken) -> bool {
        self.is_recognized(&ZerosCipher::new(token.as_bytes()))
    }

    pub(crate) fn is_recognized(self, cipher: &ZerosCipher) -> bool {
        let part = |from: usize| std::array::from_fn(|at| self.0[from + at]);
        cipher.recognizes([part(64), part(64 + IV_BYTES)])
    }

    /// The count and the contention factor; meaningless numbers if the token is that of another
    /// value.
    pub fn count_and_contention(self, token: &CountToken) -> (u64, u64) {
        let plain = decrypt(token.as_bytes(), &self.0[..32]).unwrap_or_default();
        let number = |at: usize| {
            plain
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        (number(0), number(8))
    }

    /// Appends a block.
    fn write(
        out: &mut Vec<u8>,
        token: &ServerDataToken,
        (count, contention): (u64, u64),
        tag: &Tag,
        iv: RandomIv<'_>,
    ) {
        let mut numbers = [0; 16];
        numbers[..8].copy_from_slice(&count.to_le_bytes());
        numbers[8..].copy_from_slice(&contention.to_le_bytes());
        out.extend_from_slice(&encrypt(token.count_token().as_bytes(), iv(), &numbers));
        out.extend_from_slice(tag);
        out.extend_from_slice(&encrypt(token.zeros_token().as_bytes(), iv(), &ZEROS));
    }
}

/// The stored form of a payload. `counts` has the count and the tag of each of its token sets, in
/// their order.
pub(crate) fn store(
    payload: &InsertPayload<'_>,
    counts: &[(u64, Tag)],
    iv: RandomIv<'_>,
) -> Vec<u8> {
    debug_assert_eq!(payload.tokens.len(), counts.len());
    let blocks = payload.tokens.len() * BLOCK_BYTES;
    let mut out = Vec::with_capacity(HEADER_BYTES + 1 + IV_BYTES + payload.value.len() + blocks);
    out.push(match payload.kind {
        StoredKind::Equality => PayloadKind::StoredEquality as u8,
        StoredKind::Range => PayloadKind::StoredRange as u8,
    });
    out.extend_from_slice(&payload.key_id);
    out.push(payload.value_type);
    if payload.kind == StoredKind::Range {
        // The parser of payloads refuses more than `MAX_BLOCKS`.
        out.push(payload.tokens.len() as u8);
    }
    out.extend_from_slice(&encrypt(payload.server_value.as_bytes(), iv(), payload.value));
    for (tokens, (count, tag)) in payload.tokens.iter().zip(counts) {
        MetadataBlock::write(&mut out, &tokens.server_data, (*count, payload.contention), tag, iv);
    }
    out
}
