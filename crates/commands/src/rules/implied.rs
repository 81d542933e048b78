//! Defaults of options that a command does not give: read and write concern, and the time limit of
//! reads. On a single node, the levels that a default read concern can have only differ in
//! durability.

use mayfly_base::Result;
use mayfly_query::StageRow;
use mayfly_service::Service;
use mayfly_value::RawValue;

use crate::request::generic::meets;
use crate::request::row::Reads;
use crate::request::{Generic, ReadLevel, Request, WriteConcern};

/// Whether the reply must only contain durable data: by the command's own read concern, or the
/// default one of reads.
#[inline(always)]
pub(crate) fn only_durable(service: &Service, request: &Request<'_>) -> bool {
    let concern = &request.generic.read_concern;
    match concern.level {
        ReadLevel::Majority | ReadLevel::Linearizable | ReadLevel::Snapshot => true,
        ReadLevel::Available => false,
        ReadLevel::Local if concern.has_level || !service.defaults.has_concerns() => false,
        ReadLevel::Local => {
            request.row.reads.contains(Reads::DEFAULTS) && defaults_to_majority(service)
        }
    }
}

#[cold]
#[inline(never)]
fn defaults_to_majority(service: &Service) -> bool {
    let read = service.defaults.get().read;
    read.is_some_and(|read| read.as_doc().get("level") == Some(RawValue::String("majority")))
}

/// Sets the default write concern of a write command that has none.
///
/// # Errors
/// Not expected, because the concern was checked when it became the default.
#[inline]
pub(crate) fn set_write_concern(service: &Service, generic: &mut Generic<'_>) -> Result<()> {
    match generic.write_concern.given || !service.defaults.has_concerns() {
        true => Ok(()),
        false => set_default_write_concern(service, generic),
    }
}

// Not inlined into the path of every command, which the compiler would split up otherwise.
#[cold]
#[inline(never)]
fn set_default_write_concern(service: &Service, generic: &mut Generic<'_>) -> Result<()> {
    if let Some(write) = service.defaults.get().write {
        let concern = WriteConcern::parse(RawValue::Document(write.as_doc()))?;
        // A mode that the set's configuration no longer has does not make every write fail.
        let w = write.as_doc().get("w").unwrap_or(RawValue::Null);
        if concern.unmet.is_some() && meets(service, w) != Some(true) {
            return Ok(());
        }
        generic.write_concern = WriteConcern { given: false, ..concern };
    }
    Ok(())
}

/// The time limit of the command in milliseconds: its own, else the default one of reads; 0 for
/// none.
#[inline]
pub(crate) fn max_time_ms(service: &Service, request: &Request<'_>) -> i64 {
    match (request.generic.max_time_ms, service.cluster_parameters.max_time_ms()) {
        (0, default) if default > 0 && may_be_limited(request) => default,
        (own, _) => own,
    }
}

#[cold]
#[inline(never)]
fn may_be_limited(request: &Request<'_>) -> bool {
    request.row.reads.contains(Reads::DEFAULTS)
        && request.body.get_element("maxTimeMS").is_none()
        && !writes(request)
}

fn writes(request: &Request<'_>) -> bool {
    let stages = request.body.get("pipeline").and_then(RawValue::as_array);
    let last = stages.and_then(|stages| stages.iter().last()).and_then(|s| s.value().as_document());
    let name = last.and_then(|stage| stage.iter().next()).map_or("", |stage| stage.name());
    StageRow::find(name).is_some_and(StageRow::writes)
}
