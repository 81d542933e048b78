//! Rows of parameters about clients, their connections, and the commands for them.

use std::sync::atomic::Ordering;

use super::row::{NOT_NEGATIVE, POSITIVE, flag, number, read_only};
use super::{Parameter, ParameterKind, SetAt, Value};
use crate::counters::metrics::LOGIN_MECHANISMS;

pub(super) const AUTH_SCHEMA_VERSION: Parameter =
    read_only("authSchemaVersion", "The format of users and roles.", NOT_NEGATIVE, |_| {
        Value::Number(5)
    });

pub(super) const AUTHENTICATION_MECHANISMS: Parameter = read_only(
    "authenticationMechanisms",
    "The mechanisms with which clients may log in.",
    ParameterKind::List,
    |_| Value::List(&LOGIN_MECHANISMS),
);

pub(super) const AUTOMATION_SERVICE_DESCRIPTOR: Parameter = Parameter {
    name: "automationServiceDescriptor",
    help: "Text that hello returns as automationServiceDescriptor, for tools that manage servers. Default: empty.",
    set_at: SetAt::Both,
    kind: ParameterKind::Text { most: 64 },
    get: |s| Value::Text(s.settings.automation_descriptor()),
    set: |s, value| {
        if let Value::Text(text) = value {
            s.settings.automation_descriptor.lock().clone_from(text);
        }
    },
};

pub(super) const ENABLE_TEST_COMMANDS: Parameter = Parameter {
    name: "enableTestCommands",
    help: "Whether commands for tests, such as configureFailPoint, are available. Default: false.",
    set_at: SetAt::Startup,
    kind: ParameterKind::Bool,
    get: |s| Value::Bool(s.fail_points.are_enabled()),
    set: |s, value| {
        // Only set at startup, so fail points are never disabled again.
        if *value == Value::Bool(true) {
            s.fail_points.enable();
        }
    },
};

pub(super) const INGRESS_RATE_LIMITER: Parameter = flag!(
    "ingressConnectionEstablishmentRateLimiterEnabled",
    "Whether the rate of new connections is limited. It has no effect, because the limit is infinite. Default: false.",
    |s| s.settings.limits_new_connections
);

pub(super) const KEYS_ROTATION: Parameter = Parameter {
    set_at: SetAt::Startup,
    ..number!(
        "KeysRotationIntervalSec",
        "Seconds after which keys of cluster times are replaced. It has no effect, because cluster times are not signed. Default: 7776000.",
        POSITIVE,
        |s| s.settings.keys_rotation_secs
    )
};

/// The values of `ShardingTaskExecutorPoolReplicaSetMatching`.
const MATCHING: &[&str] = &["automatic", "disabled", "matchBusiestNode", "matchPrimaryNode"];

pub(super) const POOL_MATCHING: Parameter = Parameter {
    name: "ShardingTaskExecutorPoolReplicaSetMatching",
    help: "The least size of a router's pools of connections to secondaries of its shards. It has no effect, because the only shard is the server itself. Default: automatic.",
    set_at: SetAt::Both,
    kind: ParameterKind::Word(MATCHING),
    get: |s| Value::Word(*s.settings.pool_matching.lock()),
    set: |s, value| {
        if let Value::Word(word) = value {
            *s.settings.pool_matching.lock() = word;
        }
    },
};

pub(super) const QUIET: Parameter = Parameter {
    name: "quiet",
    help: "Whether the log leaves out lines about single connections; systemLog.quiet sets it at startup. Default: false.",
    set_at: SetAt::Both,
    kind: ParameterKind::Truth,
    get: |s| Value::Bool(s.settings.is_quiet()),
    set: |s, value| {
        if let Value::Bool(quiet) = value {
            s.settings.quiet.store(*quiet, Ordering::Relaxed);
        }
    },
};
