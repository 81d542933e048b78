//! Refusals of a node that is not the primary, and the cluster times in every reply.
//!
//! Specification "Server Discovery and Monitoring": 10107 for writes, 13435 for reads with read
//! preference primary. The error has the `topologyVersion`, so that a client does not discard a new
//! primary because of an old error.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Service;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::request::Request;
use crate::request::row::Reads;

/// Errors that report a change of the primary.
const STATE_CHANGES: &[ErrorCode] = &[
    ErrorCode::InterruptedDueToReplStateChange,
    ErrorCode::NotWritablePrimary,
    ErrorCode::NotPrimaryNoSecondaryOk,
    ErrorCode::NotPrimaryOrSecondary,
    ErrorCode::PrimarySteppedDown,
];

/// Checks that this node may answer a command now.
///
/// # Errors
/// 10107 NotWritablePrimary, 13435 NotPrimaryNoSecondaryOk, 13436 NotPrimaryOrSecondary when the
/// store cannot be reached.
#[inline(always)]
pub(crate) fn check(service: &Service, request: &Request<'_>) -> Result<()> {
    if service.is_primary() {
        return Ok(());
    }
    if request.generic.transaction.is_some() {
        let text = "Not primary so we cannot begin or continue a transaction";
        return Err(Error::new(ErrorCode::NotWritablePrimary, text));
    }
    if request.row.writes.is_certain() {
        return Err(not_writable());
    }
    if !request.row.reads.contains(Reads::PREFERENCE) {
        return Ok(());
    }
    if service.is_cut_off() {
        let text = "node is not in primary or recovering state";
        return Err(Error::new(ErrorCode::NotPrimaryOrSecondary, text));
    }
    match request.generic.reads_anywhere {
        true => Ok(()),
        false => {
            Err(Error::new(ErrorCode::NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"))
        }
    }
}

/// 10107 NotWritablePrimary.
pub(crate) fn not_writable() -> Error {
    Error::new(ErrorCode::NotWritablePrimary, "not primary")
}

/// The error of a command whose server has lost the store that it shares with others, so that
/// clients look for another primary: 11602 InterruptedDueToReplStateChange.
#[cold]
pub(crate) fn of_lost_store(service: &Service, error: Error) -> Error {
    match error.code() {
        ErrorCode::HostUnreachable if service.is_cut_off() => {
            Error::new(ErrorCode::InterruptedDueToReplStateChange, error.message().to_owned())
        }
        _ => error,
    }
}

/// The length of the fields that [`append_gossip`] appends, as a document.
const GOSSIP_BYTES: usize = 130;
/// The offsets of the cluster time and of the operation time in it.
const CLUSTER_TIME_AT: usize = 35;
const OPERATION_TIME_AT: usize = 121;

/// The document with both times at 0. Without keys, cluster times are not signed.
static GOSSIP: [u8; GOSSIP_BYTES] = {
    let mut bytes = [0; GOSSIP_BYTES];
    let parts: &[(usize, &[u8])] = &[
        (0, &[GOSSIP_BYTES as u8]),
        (4, b"\x03$clusterTime\0\x58"),
        (22, b"\x11clusterTime\0"),
        (43, b"\x03signature\0\x33"),
        (58, b"\x05hash\0\x14"),
        (89, b"\x12keyId\0"),
        (106, b"\x11operationTime\0"),
    ];
    let mut part = 0;
    while part < parts.len() {
        let (at, text) = parts[part];
        let mut byte = 0;
        while byte < text.len() {
            bytes[at + byte] = text[byte];
            byte += 1;
        }
        part += 1;
    }
    bytes
};

/// Appends the last fields of every reply, after `ok` or an error: `$clusterTime` and
/// `operationTime`. They are copied from a template, because every command pays for them. Members
/// of a replica set add `topologyVersion` to errors that report a change of the primary.
///
/// `operationTime` is the time up to which the log is complete, so a change stream that begins
/// there misses no change that an earlier read did not see.
pub(crate) fn append_gossip(service: &Service, error: Option<&Error>, doc: &mut DocBuilder) {
    if error.is_some_and(|error| STATE_CHANGES.contains(&error.code()))
        && service.replica_set.get().is_some()
    {
        doc.start_document("topologyVersion");
        doc.append("processId", RawValue::ObjectId(service.topology.process_id()));
        doc.append("counter", service.topology.counter()).end();
    }
    let cluster = service.store.last_timestamp().max(service.gossiped());
    let operation = service.store.oplog().settled();
    if let Some(gossip) = RawDoc::new(&GOSSIP) {
        doc.append_all(gossip);
        // `append_all` omits the last byte of the document.
        doc.overwrite(GOSSIP_BYTES - 1 - CLUSTER_TIME_AT, cluster.to_le_bytes());
        doc.overwrite(GOSSIP_BYTES - 1 - OPERATION_TIME_AT, operation.to_le_bytes());
    }
}

/// How far a client's cluster time may be ahead of the clock, in seconds: a year, as
/// `maxAcceptableLogicalClockDriftSecs`.
const MAX_DRIFT_SECS: u64 = 31_536_000;

/// Records a client's cluster time; the times of replies are not lower from then on.
///
/// # Errors
/// 205 ClusterTimeFailsRateLimiter for a time too far ahead.
pub(crate) fn note_gossip(service: &Service, time: u64) -> Result<()> {
    if time <= service.store.last_timestamp() {
        return Ok(());
    }
    let now_secs = u64::try_from(service.clock.now_ms() / 1000).unwrap_or(0);
    if time >> 32 > now_secs.saturating_add(MAX_DRIFT_SECS) {
        return Err(Error::new(
            ErrorCode::ClusterTimeFailsRateLimiter,
            format!(
                "New cluster time, {}, is too far from this node's wall clock time, {now_secs}.",
                time >> 32
            ),
        ));
    }
    service.note_gossiped(time);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_what_the_builder_makes() {
        let mut doc = DocBuilder::new();
        let time = RawValue::Timestamp(0);
        doc.start_document("$clusterTime").append("clusterTime", time).start_document("signature");
        doc.append("hash", RawValue::Binary { subtype: 0, bytes: &[0; 20] });
        doc.append("keyId", 0_i64).end().end().append("operationTime", time);
        assert_eq!(doc.finish().as_bytes(), GOSSIP);
        assert!(GOSSIP[..CLUSTER_TIME_AT].ends_with(b"\x11clusterTime\0"));
        assert!(GOSSIP[..OPERATION_TIME_AT].ends_with(b"\x11operationTime\0"));
    }
}
