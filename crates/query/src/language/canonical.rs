//! The canonical query: a query whose filter, sort, projection, skip, limit and hint were parsed
//! and checked.

use mayfly_storage::VisibleIndexes;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{OperationTime, Scope, Scripts};
use mayfly_mql::projection::ProjectionKind;
use mayfly_mql::{Matcher, Projection, SortPattern};
use mayfly_scripts::ScriptLimits;
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};

use super::AllowedIndexes;
use super::metadata::{self, INDEX_KEY, RECORD_ID, SORT_KEY};

/// The index that the client requests.
#[derive(Clone, Debug)]
pub enum Hint {
    /// An index by name.
    Name(String),
    /// An index by key pattern.
    Key(DocBuf),
    /// A collection scan, forward or backward.
    Natural {
        /// Whether the scan runs from the last record to the first.
        backward: bool,
    },
    /// An index, with the keys between which the scan runs.
    Between {
        /// The index.
        index: Box<Hint>,
        /// `min`: a value for each field of the key, inclusive.
        min: Option<DocBuf>,
        /// `max`: a value for each field of the key, exclusive.
        max: Option<DocBuf>,
    },
}

impl Hint {
    /// Adds the arguments `min` and `max` to a hint, which they require.
    ///
    /// # Errors
    /// 51173 without a hint, 291 NoQueryExecutionPlans with the hint `$natural`, 51176 if the two
    /// name different fields.
    pub fn between(
        hint: Option<Hint>,
        min: Option<RawDoc<'_>>,
        max: Option<RawDoc<'_>>,
    ) -> Result<Option<Hint>> {
        let (min, max) = (min.filter(|min| !min.is_empty()), max.filter(|max| !max.is_empty()));
        if min.is_none() && max.is_none() {
            return Ok(hint);
        }
        if let (Some(min), Some(max)) = (min, max)
            && !min.iter().map(|field| field.name()).eq(max.iter().map(|field| field.name()))
        {
            let text = "min and max must have the same field names";
            return Err(Error::new(ErrorCode(51176), text));
        }
        match hint {
            Some(index @ (Hint::Name(_) | Hint::Key(_))) => Ok(Some(Hint::Between {
                index: Box::new(index),
                min: min.map(RawDoc::to_owned),
                max: max.map(RawDoc::to_owned),
            })),
            Some(Hint::Natural { .. }) => {
                let text = "min and max are incompatible with $natural";
                Err(Error::new(ErrorCode::NoQueryExecutionPlans, text))
            }
            _ => {
                let text = "When using min()/max() a hint of which index to use must be provided";
                Err(Error::new(ErrorCode(51173), text))
            }
        }
    }

    /// Parses the `hint` argument: a name, which may also stand in the field `$hint` of a document,
    /// a key pattern, or `{$natural: 1 | -1}`. An empty document is no hint.
    ///
    /// # Errors
    /// 9 FailedToParse for other types, 2 BadValue for an invalid `$natural`.
    pub fn parse(value: RawValue<'_>) -> Result<Option<Hint>> {
        match value {
            RawValue::String(name) => Ok(Some(Hint::Name(name.to_owned()))),
            RawValue::Document(key) if key.is_empty() => Ok(None),
            RawValue::Document(key) if key.get("$natural").is_some() && key.iter().count() > 1 => {
                Err(Error::bad_value("$natural hint must have no other fields"))
            }
            RawValue::Document(key) => match key.get("$natural") {
                None if let Some(name) = named(key) => Ok(Some(Hint::Name(name.to_owned()))),
                None => Ok(Some(Hint::Key(key.to_owned()))),
                Some(RawValue::Int32(1) | RawValue::Int64(1) | RawValue::Double(1.0)) => {
                    Ok(Some(Hint::Natural { backward: false }))
                }
                Some(RawValue::Int32(-1) | RawValue::Int64(-1) | RawValue::Double(-1.0)) => {
                    Ok(Some(Hint::Natural { backward: true }))
                }
                Some(_) => Err(Error::bad_value("$natural hint must be 1 or -1")),
            },
            other => Err(Error::failed_to_parse(format!(
                "Hint must be a string or an object, not {}",
                other.type_name()
            ))),
        }
    }
}

/// The name of an index in a hint of the form `{$hint: name}`.
fn named(hint: RawDoc<'_>) -> Option<&str> {
    let first = hint.iter().next().filter(|first| first.name() == "$hint")?;
    first.value().as_str()
}

/// The arguments of a `find` besides the filter.
#[derive(Default)]
pub struct FindOptions<'a> {
    /// The document `sort`, not yet checked.
    pub sort: Option<RawDoc<'a>>,
    /// The document `projection`, not yet checked.
    pub projection: Option<RawDoc<'a>>,
    /// The number of matching documents to skip; 0 is none.
    pub skip: u64,
    /// `limit`; 0 is none.
    pub limit: u64,
    /// The index, or the natural order, that the plan has to use.
    pub hint: Option<Hint>,
    /// The document `let`, whose values expressions see as variables.
    pub variables: Option<RawDoc<'a>>,
    /// The time of the operation, for `$$NOW` and `$$CLUSTER_TIME`.
    pub time: Option<OperationTime>,
    /// The collation of the operation, else of the collection.
    pub collation: Option<Arc<Collation>>,
    /// Whether the projection may request the index key and the record key that led to a document.
    pub allows_key_metadata: bool,
    /// Limits on scripts; `None` forbids scripts.
    pub scripts: Option<ScriptLimits>,
}

/// Declares that one document for each value of a field suffices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstOf {
    /// The path of the field.
    pub path: String,
    /// Whether the last document of each value is needed instead of the first.
    pub last: bool,
    /// Whether the whole document is needed, not only the field.
    pub whole: bool,
    /// Whether a missing field is different from null.
    pub missing_is_distinct: bool,
}

/// A checked query.
#[derive(Clone)]
pub struct CanonicalQuery {
    /// The whole filter, compiled with the collation.
    pub matcher: Arc<Matcher>,
    /// The requested order.
    pub sort: Option<SortPattern>,
    /// The direction of a `$natural` order: true for backward.
    pub natural_backward: Option<bool>,
    /// The projection; `None` for whole documents.
    pub projection: Option<Projection>,
    /// Number of results to skip.
    pub skip: u64,
    /// Limit on the results after `skip`.
    pub limit: Option<u64>,
    /// The index that the client requests.
    pub hint: Option<Hint>,
    /// The indexes that an index filter or query settings allow; they override the hint.
    pub allowed: Option<Arc<AllowedIndexes>>,
    /// The indexes that are visible to the reader; the executor sets this before planning.
    pub indexes: VisibleIndexes,
    /// The collation for string comparisons.
    pub collation: Option<Arc<Collation>>,
    /// The paths that the caller reads, if it reads no others and there is no projection.
    pub needed_paths: Option<Vec<String>>,
    /// Set if one document for each value of a field suffices. Results may still contain the
    /// others.
    pub first_of: Option<FirstOf>,
    /// Whether the score of a text search is used.
    pub uses_score: bool,
}

/// Whether documents are sorted by the score of a text search.
pub(crate) fn sorts_by_score(sort: &SortPattern) -> bool {
    sort.fields().iter().any(|field| field.metadata == Some(metadata::TEXT_SCORE))
}

/// Rejects a hint that contradicts a natural order.
fn check_natural_order(backward: bool, hint: Option<&Hint>) -> Result<()> {
    match hint {
        None => Ok(()),
        Some(Hint::Natural { backward: hinted }) if *hinted == backward => Ok(()),
        Some(Hint::Natural { .. }) => Err(Error::bad_value(
            "$natural hint must be in the same direction as $natural sort order",
        )),
        Some(_) => Err(Error::bad_value("index hint not allowed with $natural sort order")),
    }
}

/// Rejects a natural order or hint in a search by distance.
fn check_natural(sort: Option<bool>, hint: Option<&Hint>) -> Result<()> {
    let fail = |what| {
        Err(Error::bad_value(format!("geoNear expression not allowed with $natural {what}")))
    };
    match (sort, hint) {
        (Some(_), _) => fail("sort order"),
        (None, Some(Hint::Natural { .. })) => fail("hint"),
        (None, _) => Ok(()),
    }
}

impl CanonicalQuery {
    /// Restricts the query to the distinct values of one field.
    #[must_use]
    pub fn for_values_of(mut self, path: &str) -> CanonicalQuery {
        let first_of =
            FirstOf { path: path.to_owned(), last: false, whole: false, missing_is_distinct: true };
        // Under a collation, which of several equal strings is returned depends on the order of
        // documents.
        self.first_of = self.collation.is_none().then_some(first_of);
        self.needed_paths = Some(vec![path.to_owned()]);
        self
    }

    /// Parses all parts of a query.
    ///
    /// # Errors
    /// Errors of the filter, sort and projection languages.
    pub fn parse(filter: RawDoc<'_>, options: FindOptions<'_>) -> Result<CanonicalQuery> {
        let mut scope = options.time.map_or_else(Scope::default, Scope::at);
        scope = scope.collated(options.collation.clone());
        if let Some(limits) = options.scripts {
            scope = scope.with_script_limits(limits);
        }
        if let Some(variables) = options.variables {
            scope.declare(variables)?;
        }
        let scope = scope.with_scripts(Scripts::InFilters).with_text_index();
        let matcher = Arc::new(Matcher::parse_query(filter, &scope)?);
        let scope = metadata::scope_after(scope, &matcher);
        let mut natural_backward = None;
        let sort = match options.sort {
            Some(sort) if sort.get("$natural").is_some() => {
                if let Some(Hint::Natural { backward }) = Hint::parse(RawValue::Document(sort))? {
                    natural_backward = Some(backward);
                }
                None
            }
            Some(sort) if !sort.is_empty() => {
                Some(SortPattern::parse_in(sort, &scope)?.collated(options.collation.clone()))
            }
            _ => None,
        };
        if matcher.seeks_by_distance() {
            check_natural(natural_backward, options.hint.as_ref())?;
        }
        if let (Some(backward), false) = (natural_backward, matcher.text().is_some()) {
            check_natural_order(backward, options.hint.as_ref())?;
        }
        let projection = match options.projection {
            Some(projection) if !projection.is_empty() => {
                let scope = match (options.allows_key_metadata, &sort) {
                    (true, Some(_)) => {
                        let scope = scope.with_metadata(INDEX_KEY).with_metadata(RECORD_ID);
                        scope.with_metadata(SORT_KEY)
                    }
                    (true, None) => scope.with_metadata(INDEX_KEY).with_metadata(RECORD_ID),
                    (false, _) => scope,
                };
                Some(Projection::parse_in(projection, ProjectionKind::Find, &scope)?)
            }
            _ => None,
        };
        if projection.as_ref().is_some_and(Projection::is_positional) {
            matcher.check_positions()?;
        }
        let uses_score = projection.as_ref().is_some_and(|it| it.asks_for(metadata::TEXT_SCORE))
            || sort.as_ref().is_some_and(sorts_by_score);
        Ok(CanonicalQuery {
            indexes: VisibleIndexes::PUBLISHED,
            matcher,
            sort,
            natural_backward,
            projection,
            skip: options.skip,
            limit: (options.limit > 0).then_some(options.limit),
            hint: options.hint,
            allowed: None,
            collation: options.collation,
            first_of: None,
            uses_score,
            needed_paths: None,
        })
    }
}
