//! The collector `facet`: buckets in which the documents of an operator are counted.

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue, ValueBuf, compare_values};

use super::{Node, Reader};
use crate::definition::FieldType;
use crate::fault::{FieldPath, refused};
use crate::read::Fields;

/// Most facets of one query.
const MAX_FACETS: usize = 100;

/// The fewest and the most boundaries of a facet.
const BOUNDARIES: std::ops::RangeInclusive<usize> = 2..=1_000;

/// A facet: the path of the values, and their buckets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facet {
    pub(crate) path: String,
    pub(crate) buckets: Buckets,
}

/// The buckets of a facet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Buckets {
    /// A bucket for each string, at most this many: those with the most documents.
    Strings(usize),
    /// A bucket from each boundary to the next one, and the name of the bucket of other documents.
    Ranges(Vec<ValueBuf>, Option<String>),
}

#[derive(Clone, Copy)]
enum FacetType {
    String,
    Number,
    Date,
}

const TYPES: &[(&str, FacetType)] =
    &[("date", FacetType::Date), ("number", FacetType::Number), ("string", FacetType::String)];

impl Reader<'_> {
    /// The operator and the facets of the collector.
    pub(super) fn collector(
        &mut self,
        fields: &mut Fields<'_>,
    ) -> Result<(Node, Vec<(String, Facet)>)> {
        if self.has_operator(fields) {
            let text = "Top-level operator is not allowed to be used with collector";
            return Err(fields.path().refuse(text));
        }
        let document = fields.document("facet")?;
        let mut members =
            Fields::new(fields.required("facet", document)?, fields.path_of("facet"))?;
        let node = match members.document("operator")? {
            None => Node::All,
            Some(document) => {
                let mut inner = Fields::new(document, members.path_of("operator"))?;
                let node = self.operator(&mut inner, 1)?;
                inner.finish()?;
                node
            }
        };
        let facets = members.document("facets")?;
        let facets =
            self.facets(members.required("facets", facets)?, &members.path_of("facets"))?;
        members.finish()?;
        Ok((node, facets))
    }

    fn facets(&self, document: RawDoc<'_>, path: &FieldPath) -> Result<Vec<(String, Facet)>> {
        if document.is_empty() {
            return Err(path.refuse("cannot be empty"));
        }
        let mut facets: Vec<(String, Facet)> = Vec::new();
        for element in document {
            let path = path.field(element.name());
            if facets.len() == MAX_FACETS {
                return Err(path.refuse(format_args!("is one of more than {MAX_FACETS} facets")));
            }
            if facets.iter().any(|facet| facet.0 == element.name()) {
                return Err(path.refuse("is repeated"));
            }
            let RawValue::Document(document) = element.value() else {
                return Err(path.wrong_type("document", element.value()));
            };
            let mut members = Fields::new(document, path)?;
            let facet = self.facet(&mut members)?;
            members.finish()?;
            facets.push((element.name().to_owned(), facet));
        }
        Ok(facets)
    }

    fn facet(&self, fields: &mut Fields<'_>) -> Result<Facet> {
        let kind = fields.choice("type", TYPES)?;
        let kind = fields.required("type", kind)?;
        let path = fields.text("path")?;
        let path = fields.required("path", path)?.to_owned();
        let (name, accepts): (&str, fn(&FieldType) -> bool) = match kind {
            FacetType::String => ("token", |field| matches!(field, FieldType::Token(_))),
            FacetType::Number => ("number", |field| matches!(field, FieldType::Number(_))),
            FacetType::Date => ("date", |field| matches!(field, FieldType::Date)),
        };
        let buckets = match kind {
            FacetType::String => {
                Buckets::Strings(fields.whole("numBuckets", 1..=1_000)?.unwrap_or(10) as usize)
            }
            FacetType::Number => ranges(fields, "number", "numbers", |value| {
                value.is_number() && !matches!(value, RawValue::Decimal128(_))
            })?,
            FacetType::Date => {
                ranges(fields, "date", "dates", |value| matches!(value, RawValue::Date(_)))?
            }
        };
        if !self.definition.types_at(&path).iter().any(accepts) {
            return Err(refused(format!(
                "Cannot facet on field \"{path}\" because it was not indexed as a \"{name}\" field."
            )));
        }
        Ok(Facet { path, buckets })
    }
}

fn ranges(
    fields: &mut Fields<'_>,
    one: &str,
    several: &str,
    accepts: fn(RawValue<'_>) -> bool,
) -> Result<Buckets> {
    let items = fields.array("boundaries")?;
    let path = fields.path_of("boundaries");
    let mut boundaries: Vec<ValueBuf> = Vec::new();
    for (at, item) in fields.required("boundaries", items)?.iter().enumerate() {
        let value = item.value();
        if !accepts(value) {
            return Err(path.item(at).wrong_type(one, value));
        }
        if matches!(value, RawValue::Double(number) if number.is_nan()) {
            return Err(path.item(at).refuse("must be a number"));
        }
        let is_ascending =
            |last: &ValueBuf| compare_values(last.as_raw(), value) == std::cmp::Ordering::Less;
        if !boundaries.last().is_none_or(is_ascending) {
            return Err(path.refuse(format_args!("must be distinct {several} in ascending order")));
        }
        if boundaries.len() == *BOUNDARIES.end() {
            break;
        }
        boundaries.push(value.to_owned());
    }
    if !BOUNDARIES.contains(&boundaries.len())
        || items.is_some_and(|items| items.iter().count() > *BOUNDARIES.end())
    {
        let (least, most) = (BOUNDARIES.start(), BOUNDARIES.end());
        return Err(path.refuse(format_args!("size must be within bounds [{least}..{most}]")));
    }
    let default = fields.text("default")?.map(str::to_owned);
    Ok(Buckets::Ranges(boundaries, default))
}
