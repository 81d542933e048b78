//! How a TTL policy is, from its part of the reply of `ttlStatus`.
//!
//! The first line of the status page, of `mayflydb status` and of systemd counts these states, and
//! the page's table shows them.

use std::sync::atomic::Ordering;

use mayfly_service::Service;
use mayfly_value::{RawDoc, RawValue};

/// Passes begin at most this many seconds after they are due.
const GRACE_SECS: f64 = 5.0;

/// What the state of expiry depends on besides the reply of `ttlStatus`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// The seconds between two passes of the TTL monitor (`ttlMonitorSleepSecs`).
    pub(crate) sleep_secs: f64,
    /// The parameter `ttlMonitorEnabled`.
    pub(crate) is_monitor_enabled: bool,
    /// Whether only deletions are accepted.
    pub(crate) is_disk_nearly_full: bool,
}

impl Circumstances {
    /// Those of a server in this process, as if its disk had room.
    pub(crate) fn of(service: &Service) -> Circumstances {
        let parameters = service.store.ttl_params();
        Circumstances {
            sleep_secs: parameters.sleep_secs() as f64,
            is_monitor_enabled: parameters.enabled.load(Ordering::Relaxed),
            is_disk_nearly_full: false,
        }
    }
}

/// How a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyState {
    /// The server does not trust its clock, or the data was restored.
    Suspended,
    /// `ttl.paused` is set.
    Paused,
    MonitorOff,
    /// The last visit failed.
    Failing,
    /// The oldest due document waits for longer than until the next pass.
    Behind,
    /// The only documents that would be due are held by `ttl.holdField`.
    Held,
    /// Nothing is due, will be, or ever was.
    Never,
    KeepsUp,
}

impl PolicyState {
    /// The state of a policy of this reply.
    pub(crate) fn of(
        status: RawDoc<'_>,
        policy: RawDoc<'_>,
        around: &Circumstances,
    ) -> PolicyState {
        let is_set = |name: &str| !matches!(policy.get(name), None | Some(RawValue::Null));
        let late_secs = number(policy, "oldestOverdueSecs").unwrap_or(0.0);
        // Documents become due between two passes of the monitor; a pass later they are gone.
        let is_late = late_secs > around.sleep_secs + GRACE_SECS;
        let has_due = whole(policy, "due") > 0;
        let skipped = policy.get("skipped").and_then(RawValue::as_document);
        match () {
            () if status.get("suspended").is_some() => Self::Suspended,
            () if policy.get("paused") == Some(RawValue::Bool(true)) => Self::Paused,
            () if !around.is_monitor_enabled => Self::MonitorOff,
            () if is_set("lastError") => Self::Failing,
            () if has_due && is_late => Self::Behind,
            () if !has_due && skipped.is_some_and(|it| whole(it, "held") > 0) => Self::Held,
            () if !has_due && whole(policy, "deleted") == 0 && !is_set("nextDue") => Self::Never,
            () => Self::KeepsUp,
        }
    }

    /// The word in the table of the status page, which gives it a colour and a shape.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Paused => "paused",
            Self::MonitorOff => "monitor off",
            Self::Failing => "failing",
            Self::Behind => "behind",
            Self::Held => "held",
            Self::Never => "never",
            Self::KeepsUp => "keeps up",
        }
    }
}

/// A field as a number; `None` for null and for other types.
pub(crate) fn number(document: RawDoc<'_>, name: &str) -> Option<f64> {
    match document.get(name)? {
        RawValue::Double(number) => Some(number),
        RawValue::Int32(number) => Some(f64::from(number)),
        RawValue::Int64(number) => Some(number as f64),
        _ => None,
    }
}

/// A field as a whole number; 0 without one.
pub(crate) fn whole(document: RawDoc<'_>, name: &str) -> i64 {
    number(document, name).unwrap_or(0.0) as i64
}

/// A field as text; empty without one.
pub(crate) fn text<'d>(document: RawDoc<'d>, name: &str) -> &'d str {
    document.get(name).and_then(RawValue::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, DateTime, Document, doc};

    use super::*;

    #[test]
    fn a_state_follows_from_the_status() {
        let state = |status: Document, policy: Document, is_monitor_enabled: bool| {
            let around =
                Circumstances { sleep_secs: 60.0, is_monitor_enabled, is_disk_nearly_full: false };
            let (status, policy) = (DocBuf::from_bson(&status), DocBuf::from_bson(&policy));
            PolicyState::of(status.as_doc(), policy.as_doc(), &around).word()
        };
        let late = doc! { "due": 5_i64, "oldestOverdueSecs": 66.0, "lastError": Bson::Null };
        let with = |more: Document| {
            let mut all = late.clone();
            all.extend(more);
            all
        };
        let idle = doc! { "due": 0_i64, "oldestOverdueSecs": Bson::Null, "deleted": 0_i64 };
        let suspended = doc! { "suspended": { "reason": "restored" } };
        let next = DateTime::from_millis(7);
        for (policy, expected) in [
            (late.clone(), "behind"),
            (with(doc! { "oldestOverdueSecs": 64.0 }), "keeps up"),
            (with(doc! { "paused": true }), "paused"),
            (with(doc! { "lastError": "no" }), "failing"),
            (idle, "never"),
            (doc! { "due": 0_i64, "deleted": 1_i64, "nextDue": Bson::Null }, "keeps up"),
            (doc! { "due": 0_i64, "deleted": 0_i64, "nextDue": next }, "keeps up"),
            (doc! { "due": 0_i64, "skipped": { "held": 3_i64 } }, "held"),
        ] {
            assert_eq!(state(doc! {}, policy.clone(), true), expected, "{policy}");
            assert_eq!(state(suspended.clone(), policy, true), "suspended");
        }
        assert_eq!(state(doc! {}, late, false), "monitor off");
    }
}
