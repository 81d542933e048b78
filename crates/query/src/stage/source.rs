//! Sources: first stages that provide documents which come from no collection. Most of the
//! documents come from the host.

use mayfly_value::arguments::error::mistyped;
use mayfly_value::arguments::{
    Argument, Fields,
    error::{unknown, wrong_type},
};
use std::collections::VecDeque;
use std::fmt::Debug;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::StoreSession;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{PipelineContext, PipelineOwner};
use crate::change::ChangeOptions;
use crate::language::metadata::Metadata;
use crate::stage::Host;

/// A description of the command's collection that a first stage returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// Size and use.
    Figures,
    /// Use of the indexes.
    Indexes,
    /// Cached plans.
    Plans,
    /// Documents removed by TTL policies.
    Expiry,
    /// The entry in the catalog.
    Catalog,
    /// The search indexes.
    SearchIndexes,
}

/// The subject of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The collection of the command.
    Collection(Description),
    /// The server; allowed on any database.
    Server,
    /// The server; allowed on the database `admin`.
    Admin,
    /// The stored sessions; allowed on their collection.
    Sessions,
    /// The pipeline itself.
    Pipeline,
    /// Change events.
    Changes,
}

/// A first stage that provides documents.
pub(crate) trait Source: Debug + Send + Sync {
    /// The subject of the documents.
    fn about(&self) -> About;

    /// Starts the source.
    ///
    /// # Errors
    /// Errors of the host and of the store.
    fn start(&self, session: StoreSession<'_>, host: &dyn Host) -> Result<Box<dyn RunningSource>>;

    /// The documents, if they are known without a host.
    fn given(&self) -> Option<&[DocBuf]> {
        None
    }

    /// The options of a change stream, if this is one.
    fn changes(&self) -> Option<&ChangeOptions> {
        None
    }
}

/// A running source. A source with many documents reads them in pages, and keeps only its position
/// between batches.
pub(crate) trait RunningSource: Send {
    /// The next document with its metadata; `None` at the end.
    ///
    /// # Errors
    /// Errors of the store.
    fn next(&mut self, session: StoreSession<'_>) -> Result<Option<(DocBuf, Metadata)>>;

    /// Whether no document is known to follow.
    fn is_over(&self) -> bool;

    /// A description of the source for explain, and the number of its documents until now, if it
    /// has them.
    fn explain(&self) -> Option<(DocBuf, u64)> {
        None
    }

    /// Whether there is no document now, although the source is not over.
    fn is_idle(&self) -> bool {
        false
    }
}

/// A source over documents in memory.
pub(crate) struct MemorySource(VecDeque<DocBuf>);

impl MemorySource {
    /// A source over these documents, in their order.
    pub(crate) fn boxed(documents: impl Into<VecDeque<DocBuf>>) -> Box<dyn RunningSource> {
        Box::new(MemorySource(documents.into()))
    }
}

impl RunningSource for MemorySource {
    fn next(&mut self, _: StoreSession<'_>) -> Result<Option<(DocBuf, Metadata)>> {
        Ok(self.0.pop_front().map(|document| (document, Metadata::default())))
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

type Ask = fn(&dyn Host, RawDoc<'_>) -> Result<Vec<DocBuf>>;

/// A source over documents that the host provides.
struct HostSource {
    about: About,
    options: DocBuf,
    ask: Ask,
}

impl Debug for HostSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostSource")
            .field("about", &self.about)
            .field("options", &self.options)
            .finish()
    }
}

impl Source for HostSource {
    fn about(&self) -> About {
        self.about
    }

    fn start(&self, _: StoreSession<'_>, host: &dyn Host) -> Result<Box<dyn RunningSource>> {
        (self.ask)(host, self.options.as_doc()).map(MemorySource::boxed)
    }
}

pub(super) fn host_source(about: About, options: DocBuf, ask: Ask) -> Result<Box<dyn Source>> {
    Ok(Box::new(HostSource { about, options, ask }))
}

/// `$changeStream`.
#[derive(Debug)]
struct Changes(ChangeOptions);

impl Source for Changes {
    fn about(&self) -> About {
        About::Changes
    }

    fn start(&self, _: StoreSession<'_>, _: &dyn Host) -> Result<Box<dyn RunningSource>> {
        Err(Error::internal("a change stream starts over the log"))
    }

    fn changes(&self) -> Option<&ChangeOptions> {
        Some(&self.0)
    }
}

pub(crate) fn change_stream(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    if context.inside == PipelineOwner::View {
        let text = "$changeStream is not supported in a view definition";
        return Err(Error::new(ErrorCode::OptionNotSupportedOnView, text));
    }
    let options = ChangeOptions::parse(value);
    let all = options.as_ref().is_ok_and(|options| options.all);
    for action in [Action::ChangeStream, Action::Find] {
        match all {
            true => context.needs_on_all(action),
            false => context.needs_on_input(action),
        }
    }
    Ok(Box::new(Changes(options?)))
}

/// Clients may list their own operations without a right.
pub(crate) fn current_op(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let RawValue::Document(options) = value else {
        return Err(wrong_type("$currentOp", value, "object"));
    };
    if !matches!(options.get("allUsers"), None | Some(RawValue::Bool(false))) {
        context.needs_on_cluster(Action::Inprog);
    }
    let fields = Fields::read(options, "$currentOp", CURRENT_OP)?;
    if fields.bool("targetAllNodes")? == Some(true) {
        let text = "$currentOp supports targetAllNodes parameter only for sharded clusters";
        return Err(Error::failed_to_parse(text));
    }
    host_source(About::Admin, options.to_owned(), |host, options| host.current_ops(options))
}

/// The fields of `$querySettings`.
pub(crate) const QUERY_SETTINGS: &[Argument] = &[Argument::bool("showDebugQueryShape")];

/// The options of `$currentOp`.
pub(crate) const CURRENT_OP: &[Argument] = &[
    Argument::bool("allUsers").null_is_value(),
    Argument::bool("idleConnections").null_is_value(),
    Argument::bool("idleCursors").null_is_value(),
    Argument::bool("idleSessions").null_is_value(),
    Argument::bool("localOps").null_is_value(),
    Argument::bool("backtrace").null_is_value(),
    Argument::bool("truncateOps").null_is_value(),
    Argument::bool("targetAllNodes").null_is_value(),
];

pub(crate) fn local_cursors(
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    if !matches!(value, RawValue::Document(options) if options.is_empty()) {
        let text = "$listLocalCursors must be specified with an empty object";
        return Err(Error::failed_to_parse(text));
    }
    host_source(About::Server, DocBuf::empty(), |host, _| Ok(host.local_cursors()))
}

/// The options of a stage that lists sessions. Without any, clients list their own sessions, which
/// needs no right.
fn session_options(
    stage: &str,
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<DocBuf> {
    let RawValue::Document(options) = value else {
        let kind = value.type_name();
        let text = format!("{stage} options must be specified in an object, but found: {kind}");
        return Err(mistyped(text));
    };
    if !options.is_empty() {
        context.needs_on_cluster(Action::ListSessions);
    }
    Ok(options.to_owned())
}

pub(crate) fn local_sessions(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let options = session_options("$listLocalSessions", value, context)?;
    host_source(About::Server, options, |host, options| host.local_sessions(options))
}

pub(crate) fn sessions(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let options = session_options("$listSessions", value, context)?;
    host_source(About::Sessions, options, |host, options| host.sessions(options))
}

pub(crate) fn index_stats(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Source>> {
    match value {
        RawValue::Document(options) if options.is_empty() => {
            host_source(About::Collection(Description::Indexes), DocBuf::empty(), |host, _| {
                host.index_stats()
            })
        }
        _ => Err(Error::new(
            ErrorCode(28803),
            "The $indexStats stage specification must be an empty object",
        )),
    }
}

/// `$listCatalog`: without a collection it lists all databases.
pub(crate) fn list_catalog(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let is_empty = matches!(value, RawValue::Document(options) if options.is_empty());
    if !is_empty {
        let text = "The $listCatalog stage specification must be an empty object";
        return Err(Error::new(ErrorCode(6200600), text));
    }
    context.needs_on_input(Action::ListCollections);
    let is_alone = context.collection.is_none() && context.depth() == 0;
    let about = match is_alone {
        true => {
            context.needs_on_cluster(Action::ListDatabases);
            context.needs_on_all(Action::ListCollections);
            context.needs_on_all(Action::ListIndexes);
            About::Admin
        }
        false => About::Collection(Description::Catalog),
    };
    host_source(about, DocBuf::empty(), |host, _| host.catalog())
}

/// The options of `$listSearchIndexes`.
pub(crate) const LIST_SEARCH_INDEXES: &[Argument] =
    &[Argument::string("id"), Argument::string("name")];

pub(crate) fn list_search_indexes(
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let RawValue::Document(options) = value else {
        let kind = value.type_name();
        let text =
            format!("The $listSearchIndexes stage specification must be an object. Found: {kind}");
        return Err(Error::failed_to_parse(text));
    };
    let fields = Fields::read(options, "$listSearchIndexes", LIST_SEARCH_INDEXES)?;
    if fields.string("id")?.is_some() && fields.string("name")?.is_some() {
        let text = "Cannot set both 'name' and 'id' for $listSearchIndexes.";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let about = About::Collection(Description::SearchIndexes);
    host_source(about, options.to_owned(), |host, options| host.search_indexes(options))
}

pub(crate) fn ttl_stats(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Source>> {
    match value {
        RawValue::Document(options) if options.is_empty() => {
            host_source(About::Collection(Description::Expiry), DocBuf::empty(), |host, _| {
                host.ttl_stats()
            })
        }
        _ => Err(Error::failed_to_parse("$ttlStats takes an empty object")),
    }
}

pub(crate) fn coll_stats(value: RawValue<'_>, _: &PipelineContext<'_>) -> Result<Box<dyn Source>> {
    let RawValue::Document(options) = value else {
        let kind = value.type_name();
        let text = format!("$collStats must take a nested object but found: $collStats: {kind}");
        return Err(mistyped(text));
    };
    let mut options_doc = DocBuilder::new();
    for option in options {
        let name = option.name();
        match (name, option.value()) {
            ("count" | "queryExecStats", RawValue::Document(inner)) if !inner.is_empty() => {
                let text = format!("the argument of '{name}' in $collStats must be empty");
                return Err(Error::new(ErrorCode(31170), text));
            }
            (
                "latencyStats" | "storageStats" | "count" | "queryExecStats",
                RawValue::Document(_),
            ) => drop(options_doc.append_element(option)),
            ("latencyStats" | "storageStats" | "count" | "queryExecStats", RawValue::Null) => {}
            ("latencyStats" | "storageStats" | "count" | "queryExecStats", other) => {
                return Err(wrong_type(format_args!("$collStats.{name}"), other, "object"));
            }
            (other, _) => {
                return Err(unknown(format_args!("$collStats.{other}")));
            }
        }
    }
    let about = About::Collection(Description::Figures);
    host_source(about, options_doc.finish(), |host, options| host.coll_stats(options))
}

/// The server has no shards.
pub(crate) fn sharded_data_distribution(
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let (code, text) = match value {
        RawValue::Document(options) if options.is_empty() => {
            (6789101, "The $shardedDataDistribution stage can only be run on mongoS")
        }
        _ => (6789100, "The $shardedDataDistribution stage specification must be an empty object"),
    };
    Err(Error::new(ErrorCode(code), text))
}

pub(crate) fn query_settings(
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    let RawValue::Document(options) = value else {
        let text = "$querySettings stage expects a document as argument";
        return Err(Error::new(ErrorCode(7746800), text));
    };
    Fields::read(options, "$querySettings", QUERY_SETTINGS)?;
    host_source(About::Server, options.to_owned(), |host, options| {
        let shows = options.get("showDebugQueryShape") == Some(RawValue::Bool(true));
        host.query_settings(shows)
    })
}

pub(crate) fn plan_cache_stats(
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    match value {
        RawValue::Document(options) => {
            for option in options {
                match (option.name(), option.value()) {
                    ("allHosts", RawValue::Bool(false)) => {}
                    ("allHosts", RawValue::Bool(true)) => {
                        let text = "$planCacheStats stage supports allHosts parameter only for sharded clusters";
                        return Err(Error::new(ErrorCode(4_503_200), text));
                    }
                    ("allHosts", other) => {
                        let kind = other.type_name();
                        let text = format!(
                            "allHosts parameter to $planCacheStats must be a boolean. Found: {kind}"
                        );
                        return Err(Error::new(ErrorCode(13111), text));
                    }
                    (name, _) => {
                        let text = format!(
                            "$planCacheStats parameters object may contain only 'allHosts' field. Found: {name}"
                        );
                        return Err(Error::failed_to_parse(text));
                    }
                }
            }
            host_source(About::Collection(Description::Plans), DocBuf::empty(), |host, _| {
                host.cached_plans()
            })
        }
        other => Err(Error::failed_to_parse(format!(
            "$planCacheStats value must be an object. Found: {}",
            other.type_name()
        ))),
    }
}
