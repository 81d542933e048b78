//! The payload of a value to insert (kind 11, FLE2InsertUpdatePayloadV2).

use mayfly_base::{Error, Result};

use super::fields::PayloadFields;
use super::stored::{MAX_BLOCKS, StoredKind};
use super::{PayloadKind, RangeOptions};
use crate::cipher::IV_BYTES;
use crate::tokens::{
    EdcContentionToken, EscContentionToken, ServerDataToken, ServerValueToken, TOKEN_BYTES,
};

const WHAT: &str = "payload of an encrypted value";
const KNOWN: &[&str] =
    &["d", "s", "p", "u", "t", "v", "e", "l", "k", "g", "sp", "pn", "tf", "mn", "mx", "b"];
const KNOWN_OF_EDGES: &[&str] = &["d", "s", "l", "p"];
/// Bytes of a UUID in front of the client's ciphertext.
const KEY_ID_BYTES: usize = 16;

/// A value to insert.
#[derive(Clone, Debug)]
pub struct InsertPayload<'a> {
    /// The data key of the index (`u`).
    pub key_id: [u8; 16],
    /// The BSON type byte of the value (`t`).
    pub value_type: u8,
    /// The id of the user's data key, and the value encrypted with it (`v`).
    pub value: &'a [u8],
    /// Encrypts `value` once more (`e`).
    pub server_value: ServerValueToken,
    /// The contention factor that the client has drawn (`k`).
    pub contention: u64,
    /// The kind of the stored value: a range if the payload has edges (`g`).
    pub kind: StoredKind,
    /// The tokens of the value, or those of each edge of a range. At least one, at most
    /// [`MAX_BLOCKS`].
    pub tokens: Vec<InsertTokens<'a>>,
    /// The parameters of the range, as far as the payload has them.
    pub range: RangeOptions,
}

/// The tokens of a value, or of an edge that covers it.
#[derive(Clone, Copy, Debug)]
pub struct InsertTokens<'a> {
    /// Makes the tag (`d`).
    pub edc: EdcContentionToken,
    /// Finds the state (`s`).
    pub esc: EscContentionToken,
    /// Recognizes the stored value (`l`).
    pub server_data: ServerDataToken,
    /// The state's token, encrypted with the field's [`EcocToken`](crate::EcocToken) (`p`): what
    /// the compaction queue stores.
    pub encrypted_tokens: &'a [u8],
}

impl<'a> InsertPayload<'a> {
    /// Parses the content of the binary data, its kind included.
    ///
    /// # Errors
    /// 9 FailedToParse for another kind or malformed fields, 22 InvalidBSON, 238 NotImplemented
    /// for text search.
    pub fn parse(bytes: &'a [u8]) -> Result<InsertPayload<'a>> {
        let Some((&kind, document)) = bytes.split_first() else {
            return Err(Error::failed_to_parse(format!("invalid {WHAT}: it is empty")));
        };
        if kind != PayloadKind::Insert as u8 {
            return Err(Error::failed_to_parse(format!("invalid {WHAT}: its kind is {kind}")));
        }
        let fields = PayloadFields::read(WHAT, document)?;
        fields.check_names(KNOWN)?;
        if fields.optional("b").is_some() {
            return Err(Error::not_implemented("text search of encrypted fields"));
        }
        let value = fields.binary("v")?;
        if value.len() <= KEY_ID_BYTES {
            return Err(fields.fault("field 'v' is too short"));
        }
        let value_type = u8::try_from(fields.int("t")?)
            .map_err(|_| fields.fault("field 't' must be a BSON type"))?;
        let own = InsertTokens::read(&fields)?;
        let (kind, tokens) = match fields.optional("g") {
            None => (StoredKind::Equality, vec![own]),
            Some(_) => (StoredKind::Range, edges(&fields)?),
        };
        Ok(InsertPayload {
            key_id: fields.key_id("u")?,
            value_type,
            value,
            server_value: ServerValueToken::new(fields.token("e")?),
            contention: fields.natural("k")?,
            kind,
            tokens,
            range: fields.range_options(),
        })
    }
}

fn edges<'a>(fields: &PayloadFields<'a>) -> Result<Vec<InsertTokens<'a>>> {
    let edges = fields.objects("g")?;
    if edges.len() > MAX_BLOCKS {
        return Err(fields.fault(format_args!("more than {MAX_BLOCKS} edges")));
    }
    let edge = |document| {
        let fields = PayloadFields::part("edge of an encrypted range", document);
        fields.check_names(KNOWN_OF_EDGES)?;
        InsertTokens::read(&fields)
    };
    edges.into_iter().map(edge).collect()
}

impl<'a> InsertTokens<'a> {
    fn read(fields: &PayloadFields<'a>) -> Result<InsertTokens<'a>> {
        let encrypted_tokens = fields.binary("p")?;
        // A token; edges of ranges add a byte that distinguishes leaves from inner nodes.
        let known = [IV_BYTES + TOKEN_BYTES, IV_BYTES + TOKEN_BYTES + 1];
        if !known.contains(&encrypted_tokens.len()) {
            let bytes = encrypted_tokens.len();
            return Err(fields.fault(format_args!("field 'p' has {bytes} bytes")));
        }
        Ok(InsertTokens {
            edc: EdcContentionToken::new(fields.token("d")?),
            esc: EscContentionToken::new(fields.token("s")?),
            server_data: ServerDataToken::new(fields.token("l")?),
            encrypted_tokens,
        })
    }
}
