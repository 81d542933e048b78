//! Building blocks of the table's rows: shared kinds, and macros for rows whose value is in an
//! atomic.

use mayfly_base::limits::MAX_WIRE_DOCUMENT_BYTES;

use super::{Parameter, ParameterKind, SetAt, Value};
use crate::server::Service;

pub(super) const NOT_NEGATIVE: ParameterKind = ParameterKind::Int { least: 0, exclusive: false };
pub(super) const FROM_MINUS_ONE: ParameterKind = ParameterKind::Int { least: -1, exclusive: false };
pub(super) const FROM_ONE: ParameterKind = ParameterKind::Int { least: 1, exclusive: false };
pub(super) const POSITIVE: ParameterKind = ParameterKind::Int { least: 0, exclusive: true };
pub(super) const SOME_BYTES: ParameterKind = ParameterKind::Long { least: 0, exclusive: true };
pub(super) const ANY_BYTES: ParameterKind = ParameterKind::Long { least: 0, exclusive: false };
pub(super) const RATIO: ParameterKind =
    ParameterKind::Double { least: 0.0, exclusive: false, most: f64::MAX };
pub(super) const GROWTH: ParameterKind =
    ParameterKind::Double { least: 1.0, exclusive: true, most: f64::MAX };
pub(super) const SHARE: ParameterKind =
    ParameterKind::Double { least: 0.0, exclusive: false, most: 1.0 };
/// A document that is stored may have this size.
pub(super) const DOCUMENT_BYTES: ParameterKind =
    ParameterKind::Long { least: MAX_WIRE_DOCUMENT_BYTES as i64, exclusive: false };

/// With less memory each document would be spilled to a file of its own.
pub(super) const OPERATION_BYTES: ParameterKind =
    ParameterKind::Long { least: 64 << 10, exclusive: false };

/// A row whose value is a number in an atomic.
macro_rules! number {
    ($name:literal, $help:literal, $kind:expr, |$service:ident| $place:expr) => {
        Parameter {
            name: $name,
            help: $help,
            set_at: SetAt::Both,
            kind: $kind,
            get: |$service| Value::Number($place.load(Ordering::Relaxed)),
            set: |$service, value| {
                if let Value::Number(value) = value {
                    $place.store(*value, Ordering::Relaxed);
                }
            },
        }
    };
}

/// A row whose value is a flag in an atomic.
macro_rules! flag {
    ($name:literal, $help:literal, |$service:ident| $place:expr) => {
        Parameter {
            name: $name,
            help: $help,
            set_at: SetAt::Both,
            kind: ParameterKind::Bool,
            get: |$service| Value::Bool($place.load(Ordering::Relaxed)),
            set: |$service, value| {
                if let Value::Bool(value) = value {
                    $place.store(*value, Ordering::Relaxed);
                }
            },
        }
    };
}

/// A row whose value is a floating-point number in an atomic.
macro_rules! fraction {
    ($name:literal, $help:literal, $kind:expr, |$service:ident| $place:expr) => {
        Parameter {
            name: $name,
            help: $help,
            set_at: SetAt::Both,
            kind: $kind,
            get: |$service| Value::Double($place.get()),
            set: |$service, value| {
                if let Value::Double(value) = value {
                    $place.set(*value);
                }
            },
        }
    };
}

/// A read-only row.
pub(super) const fn read_only(
    name: &'static str,
    help: &'static str,
    kind: ParameterKind,
    get: fn(&Service) -> Value,
) -> Parameter {
    Parameter { name, help, set_at: SetAt::Never, kind, get, set: |_, _| {} }
}

pub(super) use {flag, fraction, number};
