//! A query in its checked form: filter, sort, projection, skip, limit, hint.

use mayfly_storage::VisibleIndexes;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Scope, Scripts};
use mayfly_mql::projection::ProjectionKind;
use mayfly_mql::{Matcher, Projection, SortPattern};
use mayfly_scripts::ScriptLimits;
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};

use super::AllowedIndexes;
use super::metadata::{self, INDEX_KEY, RECORD_ID};

/// Which index the client wants.
#[derive(Clone, Debug)]
pub enum Hint {
    /// By name.
    Name(String),
    /// By key pattern.
    Key(DocBuf),
    /// A collection scan, forward or backward.
    Natural {
        /// Whether it goes from the last record to the first.
        backward: bool,
    },
    /// An index, and where in it to begin and to end.
    Between {
        /// Which index.
        index: Box<Hint>,
        /// `min`: a value for each field of the key, inclusive.
        min: Option<DocBuf>,
        /// `max`: a value for each field of the key, exclusive.
        max: Option<DocBuf>,
    },
}

impl Hint {
    /// Adds the arguments `min` and `max` to a hint, without which they mean nothing.
    ///
    /// # Errors
    /// 51173 without the hint of an index, 51176 when the two name different fields.
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
            _ => {
                let text = "When using min()/max() a hint of which index to use must be provided";
                Err(Error::new(ErrorCode(51173), text))
            }
        }
    }

    /// Reads the `hint` argument: a name, a key pattern, or `{$natural: 1 | -1}`. An empty document is no hint.
    ///
    /// # Errors
    /// 9 FailedToParse for other types, 2 BadValue for a bad `$natural`.
    pub fn parse(value: RawValue<'_>) -> Result<Option<Hint>> {
        match value {
            RawValue::String(name) => Ok(Some(Hint::Name(name.to_owned()))),
            RawValue::Document(key) if key.is_empty() => Ok(None),
            RawValue::Document(key) => match key.get("$natural") {
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

/// What a client may ask of a find beside the filter.
#[derive(Default)]
pub struct FindOptions<'a> {
    /// `sort`.
    pub sort: Option<RawDoc<'a>>,
    /// `projection`.
    pub projection: Option<RawDoc<'a>>,
    /// `skip`.
    pub skip: u64,
    /// `limit`; 0 is none.
    pub limit: u64,
    /// `hint`.
    pub hint: Option<Hint>,
    /// `let`.
    pub variables: Option<RawDoc<'a>>,
    /// The time that `$$NOW` stands for, in milliseconds.
    pub now_ms: Option<i64>,
    /// How strings compare: the operation's collation, else the collection's.
    pub collation: Option<Arc<Collation>>,
    /// The projection may ask which key of an index and which record led to a document.
    pub tells_keys: bool,
    /// What scripts may take; without it there are none.
    pub scripts: Option<ScriptLimits>,
}

/// What a query is asked for of whose results one for each value of a field is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstOf {
    /// The field, dotted.
    pub path: String,
    /// The last document of each value instead.
    pub last: bool,
    /// The document itself is looked at, not only the field.
    pub whole: bool,
    /// A field that is missing has no value; else that is null.
    pub apart: bool,
}

/// A checked query.
#[derive(Clone)]
pub struct CanonicalQuery {
    /// The filter.
    pub matcher: Arc<Matcher>,
    /// The order, when one is asked for.
    pub sort: Option<SortPattern>,
    /// A `$natural` order: the scan's direction.
    pub natural_backward: Option<bool>,
    /// The shape of results, when it is not the whole document.
    pub projection: Option<Projection>,
    /// Results left out at the beginning.
    pub skip: u64,
    /// Most results after `skip`.
    pub limit: Option<u64>,
    /// Which index the client wants.
    pub hint: Option<Hint>,
    /// The indexes that it may use where query settings say so; then the hint does not count.
    pub allowed: Option<Arc<AllowedIndexes>>,
    /// The indexes that the reader sees; the executor sets it before it plans.
    pub indexes: VisibleIndexes,
    /// How strings compare.
    pub collation: Option<Arc<Collation>>,
    /// The paths that whoever takes the documents looks at, where those are all and no projection says so.
    pub shows: Option<Vec<String>>,
    /// When one document for each value of a field is enough: results may lack others, but need not.
    pub first_of: Option<FirstOf>,
}

/// The order of the records and that of distances exclude each other.
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
    /// The same for somebody who looks at the values of one field only, at each of them once.
    #[must_use]
    pub fn for_values_of(mut self, path: &str) -> CanonicalQuery {
        let first_of = FirstOf { path: path.to_owned(), last: false, whole: false, apart: true };
        // Which of several strings that are one value is shown depends on where they stand.
        self.first_of = self.collation.is_none().then_some(first_of);
        self.shows = Some(vec![path.to_owned()]);
        self
    }

    /// Parses all parts.
    ///
    /// # Errors
    /// Those of the filter, sort and projection languages.
    pub fn parse(filter: RawDoc<'_>, options: FindOptions<'_>) -> Result<CanonicalQuery> {
        let mut scope = options.now_ms.map_or_else(Scope::default, Scope::at);
        scope = scope.collated(options.collation.clone());
        if let Some(limits) = options.scripts {
            scope = scope.with_script_limits(limits);
        }
        if let Some(variables) = options.variables {
            scope.declare(variables)?;
        }
        let scope = scope.with_scripts(Scripts::InFilters).with_text_index();
        let matcher = Arc::new(Matcher::parse_query(filter, &scope)?);
        let scope = metadata::scope_behind(scope, &matcher);
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
        let scope = match options.tells_keys {
            true => scope.with_metadata(INDEX_KEY).with_metadata(RECORD_ID),
            false => scope,
        };
        let projection = match options.projection {
            Some(projection) if !projection.is_empty() => {
                Some(Projection::parse_in(projection, ProjectionKind::Find, &scope)?)
            }
            _ => None,
        };
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
            shows: None,
        })
    }
}
