//! The stage `$vectorSearch`.

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

use super::{Kind, Query};
use crate::Definition;
use crate::definition::{Similarity, VectorField};
use crate::fault::{FieldPath, kind_of, refused};
use crate::filter::{self, Condition};
use crate::limits::{MAX_CANDIDATES, MAX_DIMENSIONS};
use crate::read::{Fields, UNBOUNDED};
use crate::vector::read::NotAVector;
use crate::vector::score::{Probe, is_comparable};
use crate::vector::{ElementType, Vector};

/// A search for the vectors that are most similar to one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VectorQuery {
    pub(crate) path: String,
    pub(crate) probe: Probe,
    pub(crate) filter: Option<Condition>,
    /// The number of candidates of an approximate search; `None`: an exact one.
    pub(crate) candidates: Option<usize>,
}

pub(super) fn parse(stage: RawDoc<'_>, definition: &Definition) -> Result<Query> {
    let mut fields = Fields::new(stage, FieldPath::root())?;
    check_unsupported(&mut fields)?;
    let index = fields.text("index")?.map(str::to_owned);
    let path = fields.text("path")?;
    let path = fields.required("path", path)?;
    let candidates = parse_candidates(&mut fields)?;
    let limit = parse_limit(&mut fields, candidates)?;
    let vector = parse_vector(&mut fields, "queryVector")?;
    check_options(&mut fields)?;
    let returns_stored_source = super::returns_stored_source(&mut fields, definition)?;
    let filter = match fields.document("filter")? {
        Some(document) if !document.is_empty() => {
            Some(filter::parse(document, &fields.path_of("filter"), &definition.filters)?)
        }
        _ => None,
    };
    let Some(field) = definition.vector(path) else {
        return Err(refused(format!("{path} is not indexed as vector")));
    };
    check_vector(field, &vector)?;
    let vector = VectorQuery {
        path: path.to_owned(),
        probe: Probe::new(field.similarity, vector),
        filter,
        candidates: candidates.map(|number| number as usize),
    };
    let limit = Some(limit);
    Ok(Query { kind: Kind::Vector(vector), index, limit, returns_stored_source })
}

/// Refuses options that this server does not have.
pub(super) fn check_unsupported(fields: &mut Fields<'_>) -> Result<()> {
    for (name, what) in [
        ("query", "a query that is embedded automatically"),
        ("parentFilter", "a filter of parent documents"),
        ("nestedOptions", "a search in nested documents"),
    ] {
        if fields.value(name).is_some() {
            return Err(fields.path_of(name).not_supported(what));
        }
    }
    Ok(())
}

pub(super) fn parse_limit(fields: &mut Fields<'_>, candidates: Option<i64>) -> Result<usize> {
    let limit = fields.whole("limit", 1..=UNBOUNDED)?;
    let limit = fields.required("limit", limit)?;
    if candidates.is_some_and(|candidates| limit > candidates) {
        let text = "limit should be less than or equal to numCandidates";
        return Err(fields.path().refuse(text));
    }
    Ok(limit as usize)
}

pub(super) fn parse_candidates(fields: &mut Fields<'_>) -> Result<Option<i64>> {
    let is_exact = fields.boolean("exact")?.unwrap_or(false);
    let candidates = fields.whole("numCandidates", 1..=MAX_CANDIDATES)?;
    match (is_exact, candidates) {
        (false, None) => {
            let text = "numCandidates is required for approximate vector search";
            Err(fields.path().refuse(text))
        }
        (true, Some(_)) => {
            let text = "numCandidates must be omitted for exact vector search";
            Err(fields.path().refuse(text))
        }
        (_, candidates) => Ok(candidates),
    }
}

/// The vector in a field with this name.
pub(super) fn parse_vector(fields: &mut Fields<'_>, name: &str) -> Result<Vector> {
    let path = fields.path_of(name);
    let Some(value) = fields.value(name) else {
        let text = "Exactly one and only one of query and queryVector can be present";
        return Err(fields.path().refuse(text));
    };
    if let RawValue::Array(items) = value
        && items.iter().take(MAX_DIMENSIONS + 1).count() > MAX_DIMENSIONS
    {
        return Err(path.refuse(format_args!("has more than {MAX_DIMENSIONS} dimensions")));
    }
    let vector = Vector::read(value).map_err(|reason| match (reason, value) {
        (NotAVector::Item(at), RawValue::Array(items)) => {
            let item = items.iter().nth(at).map_or(RawValue::Null, |item| item.value());
            match item {
                item if matches!(item, RawValue::Decimal128(_)) || !item.is_number() => {
                    path.item(at).refuse(format_args!("must be a number, not {}", kind_of(item)))
                }
                _ => path.item(at).refuse("non-finite value"),
            }
        }
        (NotAVector::Item(at), _) => path.item(at).refuse("non-finite value"),
        (NotAVector::OtherType, _) => {
            path.refuse("must be an array of numbers or a BinData vector")
        }
        (NotAVector::Malformed, _) => {
            path.refuse("must be a BinData vector of float32, int8 or packed bit without padding")
        }
    })?;
    if vector.bytes.is_empty() {
        return Err(path.refuse("cannot be empty"));
    }
    Ok(vector)
}

/// Checks the options that have no effect here.
fn check_options(fields: &mut Fields<'_>) -> Result<()> {
    fields.string("searchNodePreference")?;
    if let Some(document) = fields.document("explainOptions")? {
        let mut options = Fields::new(document, fields.path_of("explainOptions"))?;
        options.array("traceDocumentIds")?;
        options.finish()?;
    }
    Ok(())
}

pub(super) fn check_vector(field: &VectorField, vector: &Vector) -> Result<()> {
    if vector.dimensions() != field.dimensions {
        return Err(refused(format!(
            "vector field is indexed with {} dimensions but queried with {}",
            field.dimensions,
            vector.dimensions(),
        )));
    }
    if !is_comparable(field.similarity, vector.element) {
        let text = "packed bit vectors can only be compared with the similarity euclidean";
        return Err(refused(text));
    }
    let is_zero = match vector.element {
        ElementType::Float => {
            vector.bytes.as_chunks::<4>().0.iter().all(|b| f32::from_le_bytes(*b) == 0.0)
        }
        ElementType::Byte | ElementType::Bit => vector.bytes.iter().all(|byte| *byte == 0),
    };
    if field.similarity == Similarity::Cosine && is_zero {
        let text = "Cosine similarity cannot be calculated against a zero vector.";
        return Err(refused(text));
    }
    Ok(())
}
