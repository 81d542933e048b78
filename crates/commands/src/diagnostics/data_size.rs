//! `dataSize`: the size of the documents of a collection, or of those between two keys.

use mayfly_storage::VisibleIndexes;
use mayfly_value::arguments::Argument;
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::{
    Collection, CountLimit, CountResult, Index, KeyRange, position_of, whole_range,
};
use mayfly_value::{DocBuilder, RawDoc};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Names, Reads};
use crate::request::{Fields, Needs, Request};

pub(crate) const ROW: Command =
    Command::new("dataSize", "Measures the documents of a collection", run)
        .arguments(ARGUMENTS)
        .needs(Needs::FullName(&[Action::Find]))
        .aliases(&["datasize"])
        .reads(Reads::PREFERENCE.union(Reads::COMMITTED))
        .names(Names::FullName)
        .expected(Expected::Long);

const ARGUMENTS: &[Argument] = &[
    Argument::document("keyPattern"),
    Argument::document("min"),
    Argument::document("max"),
    Argument::whole("maxSize"),
    Argument::whole("maxObjects"),
    Argument::flag("estimate"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let Some(name) = request.target().as_str() else {
        return Err(fields.wrong_or_missing("dataSize", request.target(), "string"));
    };
    let ns = Namespace::parse(name)?;
    let estimate = fields.bool("estimate")?.unwrap_or(false);
    let bounds = Bounds::parse(&fields)?;
    let limit = CountLimit {
        bytes: fields.long("maxSize")?.filter(|most| *most > 0),
        documents: fields.long("maxObjects")?.filter(|most| *most > 0),
    };
    let Some(collection) = ctx.store.collection(&ns) else {
        let store = &ctx.service.store;
        if store.time_series_named(ctx.store.view, &ns).is_some() {
            let text = format!("Namespace {ns} is a timeseries collection");
            return Err(Error::new(ErrorCode::CommandNotSupportedOnView, text));
        }
        store.check_no_view(ctx.store.view, &ns)?;
        doc.append("size", 0i64).append("numObjects", 0i64).append("millis", 0i64);
        return Ok(());
    };
    let counted = count(ctx, &collection, bounds.as_ref(), limit, estimate)?;
    doc.append("estimate", estimate);
    doc.append("size", counted.bytes).append("numObjects", counted.documents);
    doc.append("millis", ctx.op.elapsed_micros() / 1000);
    if counted.cut_off {
        doc.append("maxReached", true);
    }
    Ok(())
}

/// The range of keys.
struct Bounds<'a> {
    key_pattern: Option<RawDoc<'a>>,
    min: RawDoc<'a>,
    max: RawDoc<'a>,
}

impl<'a> Bounds<'a> {
    fn parse(fields: &Fields<'a>) -> Result<Option<Bounds<'a>>> {
        let given = |name| Ok(fields.document(name)?.filter(|doc| !doc.is_empty()));
        let key_pattern = given("keyPattern")?;
        match (given("min")?, given("max")?) {
            (None, None) => Ok(None),
            (Some(min), Some(max)) => Ok(Some(Bounds { key_pattern, min, max })),
            _ => Err(Error::bad_value("only one of min or max specified")),
        }
    }

    /// The index on `_id` (`None` if records are clustered by it), or the index whose key begins
    /// with the pattern, or with the fields of `min`.
    fn index(&self, collection: &Collection) -> Result<Option<Arc<Index>>> {
        let pattern = self.key_pattern.unwrap_or(self.min);
        let names: Vec<&str> = pattern.iter().map(|field| field.name()).collect();
        if names == ["_id"] {
            return Ok(collection.id_index());
        }
        let fits = |index: &Arc<Index>| {
            let fields = index.spec.fields();
            let begins = fields.len() >= names.len()
                && fields.iter().zip(&names).all(|(field, name)| field.path == *name);
            begins
                && index.spec.kind().is_ordered()
                && !index.is_multikey()
                && !index.is_partial()
                && !index.spec.sparse()
        };
        match collection.plannable_indexes(VisibleIndexes::PUBLISHED).into_iter().find(fits) {
            Some(index) => Ok(Some(index)),
            None => Err(Error::new(
                ErrorCode::OperationFailed,
                "couldn't find valid index containing key pattern",
            )),
        }
    }
}

fn count(
    ctx: &CommandContext<'_>,
    collection: &Collection,
    bounds: Option<&Bounds<'_>>,
    limit: CountLimit,
    estimate: bool,
) -> Result<CountResult> {
    let store = &ctx.service.store;
    let kept = || -> Result<CountResult> {
        let (documents, bytes) = store.recent_size(ctx.op, collection)?;
        Ok(CountResult { documents, bytes, cut_off: false })
    };
    let Some(bounds) = bounds else {
        if estimate {
            return kept();
        }
        return store.count_range(ctx.op, collection, None, &whole_range(), limit);
    };
    let index = bounds.index(collection)?;
    let position = |values| position_of(index.as_deref(), values);
    let range = KeyRange { start: position(bounds.min), end: position(bounds.max) };
    let limit = if estimate { CountLimit { bytes: None, ..limit } } else { limit };
    let mut counted = store.count_range(ctx.op, collection, index.as_deref(), &range, limit)?;
    if estimate {
        // As in the reference: the number of documents times their average size.
        let all = kept()?;
        counted.bytes = all.bytes / all.documents.max(1) * counted.documents;
    }
    Ok(counted)
}
