//! Sources that describe a cluster: the catalog, sampled queries, and statistics of queries.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::arguments::{Argument, Fields, error::wrong_type};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::PipelineContext;
use super::source::{About, Source, host_source};

/// The options of `$listClusterCatalog`.
pub(crate) const CATALOG: &[Argument] =
    &[Argument::bool("shards"), Argument::bool("balancingConfiguration")];

/// `$listClusterCatalog`: on `admin` it lists all databases, elsewhere that of the command.
pub(crate) fn list_catalog(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    const NAME: &str = "$listClusterCatalog";
    let RawValue::Document(given) = value else { return Err(wrong_type(NAME, value, "object")) };
    let fields = Fields::read(given, NAME, CATALOG)?;
    let mut options = DocBuilder::new();
    if context.db != "admin" {
        options.append("db", context.db);
    }
    for option in CATALOG {
        options.append(option.name, fields.bool(option.name)?.unwrap_or(false));
    }
    host_source(About::Server, options.finish(), |host, options| host.cluster_catalog(options))
}

/// The options of `$listSampledQueries`.
pub(crate) const SAMPLED: &[Argument] = &[Argument::string("namespace")];

/// `$listSampledQueries`: there are none, because no collection has a query analyzer.
pub(crate) fn sampled_queries(
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    const NAME: &str = "$listSampledQueries";
    let RawValue::Document(given) = value else {
        let kind = value.type_name();
        let text = format!("{NAME} must take a nested object but found: {kind}");
        return Err(Error::new(ErrorCode(6876001), text));
    };
    let fields = Fields::read(given, NAME, SAMPLED)?;
    if let Some(name) = fields.string("namespace")? {
        let (db, collection) = name.split_once('.').unwrap_or((name, ""));
        Namespace::new(db, collection)?;
    }
    host_source(About::Admin, DocBuf::empty(), |_, _| Ok(Vec::new()))
}

/// The fields of `$queryStats`.
pub(crate) const QUERY_STATS: &[Argument] = &[Argument::fields("transformIdentifiers", TRANSFORM)];

const TRANSFORM: &[Argument] = &[
    Argument::choice("algorithm", &["hmac-sha-256"]).required(),
    Argument::any("hmacKey").required(),
];

/// `$queryStats`: operations by query shape. Names of fields are not transformed.
pub(crate) fn query_stats(
    value: RawValue<'_>,
    context: &PipelineContext<'_>,
) -> Result<Box<dyn Source>> {
    const NAME: &str = "$queryStats";
    let RawValue::Document(given) = value else { return Err(wrong_type(NAME, value, "object")) };
    if given.get("transformIdentifiers").is_some() {
        context.needs_on_cluster(Action::QueryStatsReadTransformed);
    }
    let fields = Fields::read(given, NAME, QUERY_STATS)?;
    if fields.document("transformIdentifiers")?.is_some() {
        let text = "$queryStats does not support transformIdentifiers yet";
        return Err(Error::new(ErrorCode::NotImplemented, text));
    }
    host_source(About::Admin, DocBuf::empty(), |host, _| host.query_stats())
}
