//! `searchAfter` and `searchBefore`: tokens that name the place of a hit in the order of a search.
//!
//! ```text
//!  base64 of: format u8 | checksum of the sort u32 | length of the rank u32 | rank | record key
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mayfly_base::Result;

use super::sort::{SortField, SortKey};
use crate::read::Fields;

const FORMAT: u8 = 1;

/// Longest token, in characters.
const MAX_TOKEN: usize = 1 << 20;

/// The place of a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rank: Vec<u8>,
    pub(crate) record_key: Vec<u8>,
}

/// The hits that a search returns, seen from a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pagination {
    After(Place),
    /// The hits before the place, the nearest one first.
    Before(Place),
}

/// A checksum of a sort, by which a search recognises the tokens of other ones.
pub(crate) fn checksum(sort: &[SortField]) -> u32 {
    let mut bytes = Vec::new();
    for field in sort {
        bytes.push(u8::from(field.is_descending));
        if let SortKey::Path(path, choice) = &field.by {
            bytes.push(2 + u8::from(choice.takes_greatest) + 2 * u8::from(choice.null_is_highest));
            bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
            bytes.extend_from_slice(path.as_bytes());
        }
    }
    crc32c::crc32c(&bytes)
}

/// The token of a place.
pub(crate) fn token(checksum: u32, rank: &[u8], record_key: &[u8]) -> String {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&(rank.len() as u32).to_le_bytes());
    bytes.extend_from_slice(rank);
    bytes.extend_from_slice(record_key);
    STANDARD.encode(bytes)
}

fn place(token: &str, checksum: u32) -> Option<Place> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    let bytes = STANDARD.decode(token).ok()?;
    let bytes = bytes.strip_prefix(&[FORMAT])?;
    let (found, bytes) = bytes.split_first_chunk::<4>()?;
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*found) != checksum {
        return None;
    }
    let (rank, record_key) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some(Place { rank: rank.to_vec(), record_key: record_key.to_vec() })
}

/// Parses `searchAfter` and `searchBefore` of a search with this sort.
pub(super) fn parse(fields: &mut Fields<'_>, sort: &[SortField]) -> Result<Option<Pagination>> {
    let checksum = checksum(sort);
    let is_rank =
        |place: &Place| !sort.is_empty() || SortField::greatest_score(&place.rank).is_some();
    let mut read = |name: &str| match fields.string(name)? {
        None => Ok(None),
        Some(token) => match place(token, checksum).filter(is_rank) {
            Some(place) => Ok(Some(place)),
            None => {
                let text = "must be a token that a search with the same sort returned";
                Err(fields.path_of(name).refuse(text))
            }
        },
    };
    match (read("searchAfter")?, read("searchBefore")?) {
        (None, None) => Ok(None),
        (Some(after), None) => Ok(Some(Pagination::After(after))),
        (None, Some(before)) => Ok(Some(Pagination::Before(before))),
        (Some(_), Some(_)) => {
            let text = "at most one of [searchAfter, searchBefore] may be present";
            Err(fields.path().refuse(text))
        }
    }
}
