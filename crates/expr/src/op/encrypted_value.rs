//! `$_internalFleEq` and `$_internalFleBetween`: whether a stored encrypted value is the one that a
//! query looks for, or in its range.
//!
//! ```text
//!  {$_internalFleEq: {field: "$name", server: BinData(0, token)}}
//!  {$_internalFleBetween: {field: "$age", server: [BinData(0, token), ..]}}
//! ```
//!
//! Tokens are not of the subtype of encrypted values: `explain` shows them, and drivers decrypt
//! every value of that subtype in a reply.
//!
//! A filter with encrypted values becomes such an expression if it has too many tags. Other values
//! than encrypted ones do not match. As in the reference the operators are internal: no client
//! sends them.

use mayfly_base::{Error, Result};
use mayfly_encryption::{TOKEN_BYTES, ValuePredicate, ZerosToken};
use mayfly_value::RawValue;
use mayfly_value::arguments::error::{missing, unknown, wrong_type};

use super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$_internalFleBetween", "6.2", "Whether an encrypted value is in a range.", parse),
    own("$_internalFleEq", "6.0", "Whether an encrypted value equals another.", parse),
];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let RawValue::Document(fields) = operand else {
        return Err(wrong_type(name, operand, "object"));
    };
    let (mut field, mut tokens) = (None, None);
    for element in fields {
        match (element.name(), element.value()) {
            ("field", value) => field = Some(parser.parse(value)?),
            ("server", RawValue::Array(items)) => {
                let parsed = items.iter().map(|item| token(name, item.value()));
                tokens = Some(parsed.collect::<Result<Vec<_>>>()?);
            }
            ("server", value) => tokens = Some(vec![token(name, value)?]),
            (other, _) => return Err(unknown(format!("{name}.{other}"))),
        }
    }
    let field = field.ok_or_else(|| missing(format!("{name}.field")))?;
    let tokens = tokens.ok_or_else(|| missing(format!("{name}.server")))?;
    let predicate = Box::new(ValuePredicate::of_tokens(tokens));
    parser.ready(row, run, Prepared::Encrypted(predicate), vec![field])
}

/// The token of a value.
fn token(name: &str, value: RawValue<'_>) -> Result<ZerosToken> {
    let RawValue::Binary { bytes, .. } = value else {
        return Err(wrong_type(format!("{name}.server"), value, "binData"));
    };
    let bytes = <[u8; TOKEN_BYTES]>::try_from(bytes);
    bytes
        .map(ZerosToken::new)
        .map_err(|_| Error::bad_value(format!("a token of '{name}' has {TOKEN_BYTES} bytes")))
}

fn run<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Encrypted(predicate) = prepared else { return Ok(Value::NULL) };
    let field = arguments[0].evaluate(frame)?;
    Ok(Value::from(predicate.matches(field.or_undefined())))
}
