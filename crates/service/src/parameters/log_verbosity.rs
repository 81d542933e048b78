//! `logComponentVerbosity`: how much the log tells. The server's verbosity is that of `logLevel`; its components have no
//! verbosity of their own, so they inherit it (-1).

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue};

/// The components and theirs. Manual: "Log Messages", "Components".
const COMPONENTS: &[(&str, &[&str])] = &[
    ("accessControl", &[]),
    ("assert", &[]),
    ("command", &[]),
    ("control", &[]),
    ("executor", &[]),
    ("ftdc", &[]),
    ("geo", &[]),
    ("index", &[]),
    ("network", &["asio", "bridge", "connectionPool"]),
    ("query", &["optimizer", "rejected"]),
    ("replication", &["election", "heartbeats", "initialSync", "rollback"]),
    ("sharding", &["shardingRefresh", "rangeDeleter", "migration"]),
    ("storage", &["journal", "recovery"]),
    ("transaction", &[]),
    ("write", &[]),
];

const NAME: &str = "logComponentVerbosity";
/// What a component has that takes over the verbosity above it.
const INHERITED: i32 = -1;

/// The whole document.
pub(super) fn document(level: i64) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("verbosity", i32::try_from(level).unwrap_or(i32::MAX));
    for (component, parts) in COMPONENTS {
        out.start_document(component).append("verbosity", INHERITED);
        for part in *parts {
            out.start_document(part).append("verbosity", INHERITED).end();
        }
        out.end();
    }
    out.finish()
}

/// What a client wants to change: `{ verbosity }` with an int32, or nothing.
///
/// # Errors
/// 14 TypeMismatch for what is no document, 2 BadValue for unknown components and bad numbers, 238 for a component's own
/// verbosity.
pub(super) fn parse(value: RawValue<'_>) -> Result<DocBuf> {
    let RawValue::Document(wanted) = value else {
        return Err(Error::type_mismatch(format!(
            "Invalid type for parameter {NAME}: {}",
            value.type_name()
        )));
    };
    let mut out = DocBuilder::new();
    for element in wanted {
        if element.name() == "verbosity" {
            let level = number(element)?;
            if level < 0 {
                return Err(invalid("the verbosity of all components cannot be negative"));
            }
            out.append("verbosity", level);
            continue;
        }
        let Some((_, parts)) = COMPONENTS.iter().find(|(name, _)| *name == element.name()) else {
            return Err(unknown(element.name()));
        };
        check_component(element, parts)?;
    }
    Ok(out.finish())
}

fn check_component(element: RawElement<'_>, parts: &[&str]) -> Result<()> {
    let RawValue::Document(wanted) = element.value() else { return check_inherited(element) };
    for inner in wanted {
        match inner.value() {
            _ if inner.name() == "verbosity" => check_inherited(inner)?,
            _ if !parts.contains(&inner.name()) => return Err(unknown(inner.name())),
            RawValue::Document(part) => check_part(part)?,
            _ => check_inherited(inner)?,
        }
    }
    Ok(())
}

fn check_part(part: RawDoc<'_>) -> Result<()> {
    part.iter().try_for_each(|element| match element.name() {
        "verbosity" => check_inherited(element),
        other => Err(unknown(other)),
    })
}

fn check_inherited(element: RawElement<'_>) -> Result<()> {
    match number(element)? {
        INHERITED => Ok(()),
        _ => Err(Error::not_implemented("the verbosity of a single component of the log")),
    }
}

fn number(element: RawElement<'_>) -> Result<i32> {
    let number = Number::from_value(element.value()).map(|number| number.to_f64());
    match number {
        Some(number) if number.trunc() >= -1.0 && number <= f64::from(i32::MAX) => {
            Ok(number as i32)
        }
        _ => Err(invalid(&format!("the verbosity '{}' is no number of 32 bits", element.name()))),
    }
}

fn unknown(name: &str) -> Error {
    invalid(&format!("there is no component '{name}'"))
}

fn invalid(why: &str) -> Error {
    Error::bad_value(format!("Invalid value for parameter {NAME}: {why}"))
}
