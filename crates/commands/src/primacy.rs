//! What a node that is not the primary refuses, and what a member of a replica set adds to every reply.
//!
//! Specification "Server Discovery and Monitoring": 10107 for writes, 13435 for reads that ask for the primary; the error says
//! which `topologyVersion` it belongs to, so that a client does not forget the new primary over an old error.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Service;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::{Request, RowFlags};

/// Reads that the client's read preference sends to the primary or elsewhere.
const READS: &[&str] = &[
    "aggregate",
    "collStats",
    "count",
    "dataSize",
    "dbStats",
    "distinct",
    "explain",
    "find",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "validate",
];

/// Errors that say who is not the primary.
const STATE_CHANGES: &[ErrorCode] = &[
    ErrorCode::InterruptedDueToReplStateChange,
    ErrorCode::NotWritablePrimary,
    ErrorCode::NotPrimaryNoSecondaryOk,
    ErrorCode::NotPrimaryOrSecondary,
    ErrorCode::PrimarySteppedDown,
];

/// Lets a command in that this node may answer now.
///
/// # Errors
/// 10107 NotWritablePrimary, 13435 NotPrimaryNoSecondaryOk.
#[inline]
pub(crate) fn check(service: &Service, request: &Request<'_>) -> Result<()> {
    if service.is_primary() {
        return Ok(());
    }
    if request.row.flags.has(RowFlags::WRITE_CONCERN) {
        return Err(not_writable());
    }
    match READS.contains(&request.row.name) && !reads_anywhere(request.body) {
        true => {
            Err(Error::new(ErrorCode::NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"))
        }
        false => Ok(()),
    }
}

/// 10107.
pub(crate) fn not_writable() -> Error {
    Error::new(ErrorCode::NotWritablePrimary, "not primary")
}

/// Whether the read preference is another than the primary.
fn reads_anywhere(body: RawDoc<'_>) -> bool {
    let preference = body.get("$readPreference").and_then(RawValue::as_document);
    let mode = preference.and_then(|preference| preference.get("mode"));
    mode.and_then(RawValue::as_str).is_some_and(|mode| mode != "primary")
}

/// What a member of a replica set adds behind `ok` and the fields of an error.
pub(crate) fn append_gossip(service: &Service, error: Option<&Error>, doc: &mut DocBuilder) {
    if service.replica_set.get().is_none() {
        return;
    }
    if error.is_some_and(|error| STATE_CHANGES.contains(&error.code())) {
        doc.start_document("topologyVersion");
        doc.append("processId", RawValue::ObjectId(service.topology.process_id()));
        doc.append("counter", service.topology.counter()).end();
    }
    let time = RawValue::Timestamp(service.store.last_timestamp());
    doc.start_document("$clusterTime").append("clusterTime", time).start_document("signature");
    // Without keys a cluster time is not signed.
    doc.append("hash", RawValue::Binary { subtype: 0, bytes: &[0; 20] }).append("keyId", 0_i64);
    doc.end().end().append("operationTime", time);
}
