//! Stages that give documents of their own: what they are asked, checked. Their documents come from the host.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, RawValue};

use super::{Around, Inside, Stage};
use crate::change::ChangeOptions;

pub(super) fn change_stream(value: RawValue<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    if around.inside == Inside::View {
        let text = "$changeStream is not supported in a view definition";
        return Err(Error::new(ErrorCode::OptionNotSupportedOnView, text));
    }
    ChangeOptions::parse(value).map(|options| vec![Stage::ChangeStream(options)])
}

pub(super) fn current_op(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) => Ok(vec![Stage::CurrentOp(options.to_owned())]),
        other => Err(Error::failed_to_parse(format!(
            "$currentOp options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}

pub(super) fn local_sessions(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) => Ok(vec![Stage::LocalSessions(options.to_owned())]),
        other => Err(Error::type_mismatch(format!(
            "$listLocalSessions options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}

pub(super) fn sessions(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) => Ok(vec![Stage::Sessions(options.to_owned())]),
        other => Err(Error::type_mismatch(format!(
            "$listSessions options must be specified in an object, but found: {}",
            other.type_name()
        ))),
    }
}

pub(super) fn index_stats(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) if options.is_empty() => Ok(vec![Stage::IndexStats]),
        _ => Err(Error::new(
            ErrorCode(28803),
            "The $indexStats stage specification must be an empty object",
        )),
    }
}

pub(super) fn ttl_stats(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) if options.is_empty() => Ok(vec![Stage::TtlStats]),
        _ => Err(Error::failed_to_parse("$ttlStats takes an empty object")),
    }
}

pub(super) fn coll_stats(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    let RawValue::Document(options) = value else {
        let kind = value.type_name();
        let text = format!("$collStats must take a nested object but found: $collStats: {kind}");
        return Err(Error::type_mismatch(text));
    };
    let mut wanted = DocBuilder::new();
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
            ) => drop(wanted.append_element(option)),
            ("latencyStats" | "storageStats" | "count" | "queryExecStats", RawValue::Null) => {}
            ("latencyStats" | "storageStats" | "count" | "queryExecStats", other) => {
                return Err(Error::type_mismatch(format!(
                    "BSON field '$collStats.{name}' is the wrong type '{}', expected type 'object'",
                    other.type_name()
                )));
            }
            (other, _) => {
                let text = format!("BSON field '$collStats.{other}' is an unknown field.");
                return Err(Error::new(ErrorCode(40415), text));
            }
        }
    }
    Ok(vec![Stage::CollStats(wanted.finish())])
}

/// There are no shards whose data could be anywhere.
pub(super) fn sharded_data_distribution(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    let (code, text) = match value {
        RawValue::Document(options) if options.is_empty() => {
            (6789101, "The $shardedDataDistribution stage can only be run on mongoS")
        }
        _ => (6789100, "The $shardedDataDistribution stage specification must be an empty object"),
    };
    Err(Error::new(ErrorCode(code), text))
}

pub(super) fn plan_cache_stats(value: RawValue<'_>, _: &Around<'_>) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(options) if options.is_empty() => Ok(vec![Stage::PlanCacheStats]),
        RawValue::Document(options) => {
            let name = options.iter().next().map_or("", |option| option.name());
            let text = format!(
                "$planCacheStats parameters object may contain only 'allHosts' field. Found: {name}"
            );
            Err(Error::failed_to_parse(text))
        }
        other => Err(Error::failed_to_parse(format!(
            "$planCacheStats value must be an object. Found: {}",
            other.type_name()
        ))),
    }
}
