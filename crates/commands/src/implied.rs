//! What a command gets that says nothing itself: the default write concern and the default time of reads. The levels that a
//! default read concern can have read alike on a single node, so that there is nothing to apply.

use mayfly_base::Result;
use mayfly_service::Service;
use mayfly_value::RawValue;

use crate::{Generic, Request, WriteConcern};

/// Commands that only read, for `defaultMaxTimeMS.readOperations`; an aggregation does so that does not end in a stage that
/// writes.
const READS: &[&str] = &["aggregate", "count", "dbHash", "distinct", "find"];

/// Gives a command that writes the default write concern when it has none.
///
/// # Errors
/// None of a concern that was checked when it became the default.
pub(crate) fn set_write_concern(service: &Service, generic: &mut Generic<'_>) -> Result<()> {
    if generic.write_concern.given {
        return Ok(());
    }
    if let Some(write) = service.defaults.concerns_set().and_then(|defaults| defaults.write) {
        let concern = WriteConcern::parse(RawValue::Document(write.as_doc()))?;
        generic.write_concern = WriteConcern { given: false, ..concern };
    }
    Ok(())
}

/// Milliseconds that the command may run: its own limit, else the default one of reads; 0 without limit.
pub(crate) fn max_time_ms(service: &Service, request: &Request<'_>) -> i64 {
    let own = request.generic.max_time_ms;
    let default = service.defaults.max_time_ms();
    if own > 0 || default == 0 || !READS.contains(&request.row.name) {
        return own;
    }
    match request.body.get_element("maxTimeMS").is_some() || writes(request) {
        true => own,
        false => default,
    }
}

fn writes(request: &Request<'_>) -> bool {
    let stages = request.body.get("pipeline").and_then(RawValue::as_array);
    let last = stages.and_then(|stages| stages.iter().last()).and_then(|s| s.value().as_document());
    let name = last.and_then(|stage| stage.iter().next()).map_or("", |stage| stage.name());
    matches!(name, "$out" | "$merge")
}
