//! The tokens in a command: `compactionTokens` and `cleanupTokens`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue};

use crate::payload::GENERAL;
use crate::schema::EncryptedFields;
use crate::tokens::{AnchorPaddingToken, EcocToken, TOKEN_BYTES};

/// The tokens of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldToken {
    /// The path of the field.
    pub field: String,
    /// Decrypts the entries of the queue.
    pub ecoc: EcocToken,
    /// Makes padding anchors. Clients send it for fields with several tokens for each value.
    pub padding: Option<AnchorPaddingToken>,
}

/// Parses `{path: BinData(0, ecoc)}`, and `{path: {ecoc: BinData(0, ..), anchorPaddingToken:
/// BinData(0, ..)}}`, which newer clients send for ranges.
///
/// # Errors
/// 9 FailedToParse.
pub fn parse_tokens(tokens: RawDoc<'_>) -> Result<Vec<FieldToken>> {
    let mut parsed = Vec::new();
    for element in tokens.iter() {
        let field = element.name();
        let (ecoc, padding) = match element.value() {
            RawValue::Document(both) => {
                let ecoc = both.get("ecoc").and_then(token);
                (ecoc, both.get("anchorPaddingToken").map(token))
            }
            value => (token(value), None),
        };
        let (Some(ecoc), None | Some(Some(_))) = (ecoc, padding) else {
            return Err(Error::failed_to_parse(format!(
                "the compaction token of '{field}' must be {TOKEN_BYTES} bytes of binData"
            )));
        };
        parsed.push(FieldToken {
            field: field.to_owned(),
            ecoc: EcocToken::new(ecoc),
            padding: padding.flatten().map(AnchorPaddingToken::new),
        });
    }
    Ok(parsed)
}

fn token(value: RawValue<'_>) -> Option<[u8; TOKEN_BYTES]> {
    match value {
        RawValue::Binary { subtype: GENERAL, bytes } => bytes.try_into().ok(),
        _ => None,
    }
}

/// Checks that there is a token for each field that can be queried.
///
/// # Errors
/// 6346806.
pub fn check_tokens(fields: &EncryptedFields, tokens: &[FieldToken]) -> Result<()> {
    match fields.indexed().find(|field| !tokens.iter().any(|token| token.field == field.path)) {
        None => Ok(()),
        Some(field) => {
            let text = format!(
                "Compaction tokens object is missing compaction token for the encrypted path '{}'",
                field.path
            );
            Err(Error::new(ErrorCode(6346806), text))
        }
    }
}
