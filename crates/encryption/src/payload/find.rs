//! The payloads of queries: for a value (kind 12, FLE2FindEqualityPayloadV2) and for a range (kind
//! 13, FLE2FindRangePayloadV2).

use mayfly_base::{Error, Result};
use mayfly_value::RawDoc;

use super::fields::PayloadFields;
use super::{PayloadKind, RangeOptions};
use crate::tokens::{EdcDataToken, EscDataToken, ServerDataToken};

const WHAT_EQUALITY: &str = "payload of an encrypted equality";
const WHAT_RANGE: &str = "payload of an encrypted range";
const KNOWN_OF_RANGES: &[&str] =
    &["payload", "payloadId", "firstOperator", "secondOperator", "sp", "pn", "tf", "mn", "mx"];

/// A query for encrypted values.
#[derive(Clone, Debug)]
pub enum FindPayload {
    /// For one value.
    Equality(EqualityFind),
    /// For a range of values.
    Range(RangeFind),
}

/// The tokens of a value, or of an edge of a range, for all contention factors.
#[derive(Clone, Copy, Debug)]
pub struct FindTokens {
    /// Makes the tags (`d`).
    pub edc: EdcDataToken,
    /// Finds the state (`s`).
    pub esc: EscDataToken,
    /// Recognizes stored values (`l`).
    pub server_data: ServerDataToken,
}

/// A query for one value.
#[derive(Clone, Debug)]
pub struct EqualityFind {
    /// The tokens of the value.
    pub tokens: FindTokens,
    /// The greatest contention factor of the field (`cm`).
    pub max_contention: u64,
}

/// A query for a range. A range with two ends is two comparisons in a filter: the first has the
/// edges of the whole range, the second is a stub with the same id and without edges.
#[derive(Clone, Debug)]
pub struct RangeFind {
    /// The edges that cover the range, and the greatest contention factor. `None` in a stub.
    pub edges: Option<(Vec<FindTokens>, u64)>,
    /// Connects the two payloads of a range with two ends.
    pub payload_id: i32,
    /// The operator of the first end.
    pub first: RangeOperator,
    /// The operator of the other end.
    pub second: Option<RangeOperator>,
    /// The parameters of the range, as far as the payload has them.
    pub range: RangeOptions,
}

/// A comparison in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the comparisons")]
pub enum RangeOperator {
    Gt,
    Gte,
    Lt,
    Lte,
}

impl RangeOperator {
    /// The name in filters.
    pub fn as_str(self) -> &'static str {
        match self {
            RangeOperator::Gt => "$gt",
            RangeOperator::Gte => "$gte",
            RangeOperator::Lt => "$lt",
            RangeOperator::Lte => "$lte",
        }
    }

    fn parse(fields: &PayloadFields<'_>, name: &str) -> Result<RangeOperator> {
        match fields.int(name)? {
            1 => Ok(RangeOperator::Gt),
            2 => Ok(RangeOperator::Gte),
            3 => Ok(RangeOperator::Lt),
            4 => Ok(RangeOperator::Lte),
            other => Err(fields.fault(format_args!("field '{name}' has the value {other}"))),
        }
    }
}

impl FindPayload {
    /// Parses the content of the binary data, its kind included.
    ///
    /// # Errors
    /// 9 FailedToParse for another kind or malformed fields, 22 InvalidBSON, 238 NotImplemented
    /// for text search.
    pub fn parse(bytes: &[u8]) -> Result<FindPayload> {
        match (PayloadKind::of(bytes), bytes.get(1..)) {
            (Some(PayloadKind::FindEquality), Some(document)) => {
                Ok(FindPayload::Equality(EqualityFind::parse(document)?))
            }
            (Some(PayloadKind::FindRange), Some(document)) => {
                Ok(FindPayload::Range(RangeFind::parse(document)?))
            }
            (Some(PayloadKind::FindText), _) => {
                Err(Error::not_implemented("text search of encrypted fields"))
            }
            _ => Err(Error::failed_to_parse("encrypted data in a query is not a query payload")),
        }
    }
}

impl FindTokens {
    fn read(fields: &PayloadFields<'_>) -> Result<FindTokens> {
        Ok(FindTokens {
            edc: EdcDataToken::new(fields.token("d")?),
            esc: EscDataToken::new(fields.token("s")?),
            server_data: ServerDataToken::new(fields.token("l")?),
        })
    }
}

impl EqualityFind {
    fn parse(bytes: &[u8]) -> Result<EqualityFind> {
        let fields = PayloadFields::read(WHAT_EQUALITY, bytes)?;
        fields.check_names(&["d", "s", "l", "cm"])?;
        let tokens = FindTokens::read(&fields)?;
        Ok(EqualityFind { tokens, max_contention: fields.natural("cm")? })
    }
}

impl RangeFind {
    fn parse(bytes: &[u8]) -> Result<RangeFind> {
        let fields = PayloadFields::read(WHAT_RANGE, bytes)?;
        fields.check_names(KNOWN_OF_RANGES)?;
        let edges = match fields.optional("payload") {
            None => None,
            Some(_) => Some(edges(fields.object("payload")?)?),
        };
        let second = match fields.optional("secondOperator") {
            None => None,
            Some(_) => Some(RangeOperator::parse(&fields, "secondOperator")?),
        };
        Ok(RangeFind {
            edges,
            payload_id: fields.int("payloadId")?,
            first: RangeOperator::parse(&fields, "firstOperator")?,
            second,
            range: fields.range_options(),
        })
    }
}

/// The edges of a range, and the greatest contention factor.
fn edges(payload: RawDoc<'_>) -> Result<(Vec<FindTokens>, u64)> {
    let fields = PayloadFields::part(WHAT_RANGE, payload);
    fields.check_names(&["g", "cm"])?;
    let edge = |document| {
        let fields = PayloadFields::part("edge of an encrypted range", document);
        fields.check_names(&["d", "s", "l"])?;
        FindTokens::read(&fields)
    };
    let edges = fields.objects("g")?.into_iter().map(edge).collect::<Result<Vec<_>>>()?;
    Ok((edges, fields.natural("cm")?))
}
