//! `sort`: the order of hits by values and scores, and the keys by which hits are compared.
//!
//! The rank of a hit is a string of bytes: the key of each sort field, one after another. No key is
//! the beginning of another one, so ranks are compared byte by byte. The bytes of a descending
//! field are inverted.
//!
//! ```text
//!  value       its order-preserving key
//!  no value    the key of null (`noData: "lowest"`), or ff (`noData: "highest"`)
//!  score       4 bytes with the order of the numbers
//! ```

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

use crate::fault::FieldPath;
use crate::filter::value::key_of;
use crate::read::{Fields, whole_number};

/// Most fields of a sort.
const MAX_FIELDS: usize = 32;

/// One of the fields by which hits are sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SortField {
    pub(crate) by: SortKey,
    /// Whether the greatest keys are first.
    pub(crate) is_descending: bool,
}

/// What a sort compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SortKey {
    /// The score.
    Score,
    /// The values at a path.
    Path(String, ValueChoice),
}

/// The value of several that counts, and the place of documents without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueChoice {
    /// Whether the greatest value counts, otherwise the least one.
    pub(crate) takes_greatest: bool,
    /// Whether null and missing values are greater than all others, otherwise less.
    pub(crate) null_is_highest: bool,
}

/// The key of documents without a value that are greater than all others.
const HIGHEST: &[u8] = &[0xFF];

impl SortField {
    /// Scores, the least one first.
    pub(crate) const LEAST_SCORE: SortField =
        SortField { by: SortKey::Score, is_descending: false };

    /// Adds the key of a score to a rank.
    pub(crate) fn append_score(&self, rank: &mut Vec<u8>, score: f32) {
        let bits = score.to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | (1 << 31) };
        self.append(rank, &ordered.to_be_bytes());
    }

    /// The score in the rank of a search by score, the greatest first.
    pub(crate) fn greatest_score(rank: &[u8]) -> Option<f32> {
        let ordered = !u32::from_be_bytes(rank.try_into().ok()?);
        let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
        Some(f32::from_bits(bits)).filter(|score| !score.is_nan())
    }

    /// Adds the key of a value to a rank; `None`: the document has no value.
    pub(crate) fn append_value(&self, rank: &mut Vec<u8>, key: Option<&[u8]>) {
        match (key, &self.by) {
            (Some(key), _) => self.append(rank, key),
            (None, SortKey::Path(_, choice)) if choice.null_is_highest => {
                self.append(rank, HIGHEST);
            }
            (None, _) => self.append(rank, &key_of(RawValue::Null)),
        }
    }

    /// Whether documents without a value are before all others.
    pub(crate) fn missing_is_first(&self) -> bool {
        match &self.by {
            SortKey::Score => false,
            SortKey::Path(_, choice) => choice.null_is_highest == self.is_descending,
        }
    }

    fn append(&self, rank: &mut Vec<u8>, key: &[u8]) {
        match self.is_descending {
            true => rank.extend(key.iter().map(|byte| !byte)),
            false => rank.extend_from_slice(key),
        }
    }
}

/// The opposite order.
pub(crate) fn invert(sort: &[SortField]) -> Vec<SortField> {
    let invert =
        |field: &SortField| SortField { is_descending: !field.is_descending, ..field.clone() };
    sort.iter().map(invert).collect()
}

/// Parses `sort`. Empty: hits are sorted by their scores, the greatest first.
pub(super) fn parse(fields: &mut Fields<'_>) -> Result<Vec<SortField>> {
    let Some(document) = fields.document("sort")? else { return Ok(Vec::new()) };
    let path = fields.path_of("sort");
    if document.is_empty() {
        return Err(path.refuse("must have at least one sort field defined"));
    }
    let mut sort = Vec::new();
    for element in document {
        let path = path.field(element.name());
        if sort.len() == MAX_FIELDS {
            return Err(path.refuse(format_args!("is one of more than {MAX_FIELDS} sort fields")));
        }
        sort.push(match element.value() {
            RawValue::Document(options) => parse_options(element.name(), options, path)?,
            value if value.is_number() => {
                by_path(element.name(), is_descending(&path, value)?, false)
            }
            value => return Err(path.wrong_type("number or document", value)),
        });
    }
    let is_default = |field: &SortField| field.by == SortKey::Score && field.is_descending;
    Ok(if sort.len() == 1 && is_default(&sort[0]) { Vec::new() } else { sort })
}

fn by_path(path: &str, is_descending: bool, null_is_highest: bool) -> SortField {
    let choice = ValueChoice { takes_greatest: is_descending, null_is_highest };
    SortField { by: SortKey::Path(path.to_owned(), choice), is_descending }
}

fn parse_options(name: &str, options: RawDoc<'_>, path: FieldPath) -> Result<SortField> {
    let mut members = Fields::new(options, path.clone())?;
    let order = match members.value("order") {
        Some(value) => Some(is_descending(&path.field("order"), value)?),
        None => None,
    };
    let meta = members.choice("$meta", &[("searchScore", ())])?;
    let positions = [("highest", true), ("lowest", false)];
    let null_is_highest = members.choice("noData", &positions)?;
    members.finish()?;
    match (meta, order, null_is_highest) {
        (Some(()), _, Some(_)) => Err(path.refuse("at most one of [$meta, noData] may be present")),
        (Some(()), order, None) => {
            Ok(SortField { by: SortKey::Score, is_descending: order.unwrap_or(true) })
        }
        (None, None, _) => Err(path.field("order").refuse("is required")),
        (None, Some(order), highest) => Ok(by_path(name, order, highest.unwrap_or(false))),
    }
}

fn is_descending(path: &FieldPath, value: RawValue<'_>) -> Result<bool> {
    match whole_number(path, value)? {
        1 => Ok(false),
        -1 => Ok(true),
        _ => Err(path.refuse("must be 1 or -1")),
    }
}
