//! Stages that give documents of their own: what they are asked, checked. Their documents come from the host.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use super::{Around, Stage};

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
