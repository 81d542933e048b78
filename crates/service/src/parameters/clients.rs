//! Rows of parameters about clients, their connections, and the commands for them.

use std::sync::atomic::Ordering;

use super::row::{NOT_NEGATIVE, read_only};
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
