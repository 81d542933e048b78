//! The stage `$search`: its options, and the tree of its operators.

mod compound;
mod fields;
mod operators;
mod options;
mod values;
mod words;

use mayfly_base::Result;
use mayfly_value::RawDoc;

pub(crate) use options::Score;

use super::{Kind, Query};
use crate::fault::{FieldPath, refused};
use crate::filter::Test;
use crate::limits::MAX_CLAUSES;
use crate::read::{Fields, UNBOUNDED};
use crate::{Definition, IndexKind};

/// The fields that an operator searches for words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WordPath {
    /// A path, and the name of its `multi` or nothing.
    Path(String, String),
    /// All paths that a pattern with `*` matches.
    Wildcard(String),
}

/// Which terms of a query must be in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Criteria {
    Any,
    All,
    /// All, one after another.
    Sequence,
}

/// A tree of operators.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// `text`.
    Words { paths: Vec<WordPath>, queries: Vec<String>, criteria: Criteria },
    /// `phrase`, with the greatest distance that words may be moved.
    Phrase { paths: Vec<WordPath>, queries: Vec<String>, slop: u32 },
    /// `autocomplete`.
    Parts { path: String, queries: Vec<String>, criteria: Criteria },
    /// `wildcard`: terms that one of the patterns matches.
    Pattern { paths: Vec<WordPath>, patterns: Vec<String> },
    /// `equals`, `in`, `range`, `exists`: one of the paths has such a value.
    Values { paths: Vec<String>, test: Test },
    /// `near`: values of the origin's type, scored by their distance.
    Near { paths: Vec<String>, origin: f64, pivot: f64, is_date: bool },
    /// `compound`.
    Compound(Compound),
    /// An operator with another score.
    Scored(Box<Node>, Score),
}

/// The clauses of `compound`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Compound {
    pub(crate) must: Vec<Node>,
    pub(crate) must_not: Vec<Node>,
    pub(crate) should: Vec<Node>,
    pub(crate) filter: Vec<Node>,
    pub(crate) minimum: Option<usize>,
}

/// Reads operators, and bounds their number.
pub(super) struct Reader<'d> {
    definition: &'d Definition,
    count: usize,
}

impl Reader<'_> {
    /// Counts a clause.
    fn count(&mut self, path: &FieldPath) -> Result<()> {
        self.count += 1;
        if self.count > MAX_CLAUSES {
            return Err(path.refuse(format_args!("is one of more than {MAX_CLAUSES} clauses")));
        }
        Ok(())
    }
}

/// Options that this server does not have yet, with what their errors say.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("facet", "a facet"),
    ("highlight", "highlighting"),
    ("returnScope", "a scope of returned documents"),
    ("scoreDetails", "the explanation of scores"),
    ("searchAfter", "pagination by a token"),
    ("searchBefore", "pagination by a token"),
    ("sort", "sorting"),
    ("sortBetaV1", "sorting"),
    ("tracking", "the tracking of search terms"),
];

pub(super) fn parse(stage: RawDoc<'_>, definition: &Definition) -> Result<Query> {
    if definition.kind != IndexKind::Search {
        let text = "$search needs an index of type search, not one of type vectorSearch";
        return Err(refused(text));
    }
    let mut fields = Fields::new(stage, FieldPath::root())?;
    fields.text("index")?;
    for (name, what) in UNSUPPORTED {
        let is_off = matches!(fields.value(name), None | Some(mayfly_value::RawValue::Bool(false)));
        if !is_off {
            return Err(fields.path_of(name).not_supported(what));
        }
    }
    fields.boolean("concurrent")?;
    fields.string("searchNodePreference")?;
    if let Some(count) = fields.document("count")? {
        let mut members = Fields::new(count, fields.path_of("count"))?;
        members.choice("type", &[("lowerBound", ()), ("total", ())])?;
        members.whole("threshold", 1..=UNBOUNDED)?;
        members.finish()?;
    }
    let returns_stored_source = fields.boolean("returnStoredSource")?.unwrap_or(false);
    let mut reader = Reader { definition, count: 0 };
    let node = reader.operator(&mut fields, 0)?;
    fields.finish()?;
    Ok(Query { kind: Kind::Search(node), limit: None, returns_stored_source })
}
