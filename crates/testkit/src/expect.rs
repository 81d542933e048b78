//! Comparison of answers with expectations.
//!
//! An answer must have exactly the expected fields, in this order, with the same BSON types and
//! values. With `...` as the last field, others are allowed. `ok: 1.0` is implied. `[..]` is the
//! batch of a cursor in order, `unordered [..]` in any order, `!code CodeName 'text'` an error
//! whose message contains the text.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

use crate::dialect::{self, ANY, CONTAINS, Env, MORE};

/// A parsed expectation.
#[derive(Debug)]
pub enum Expected {
    /// The reply.
    Reply(ValueBuf),
    /// The documents of its batch.
    Batch {
        /// An array.
        documents: ValueBuf,
        /// Whether their order matters.
        ordered: bool,
    },
    /// A failed command.
    Failure {
        /// `code`.
        code: i32,
        /// `codeName`.
        name: String,
        /// A part of `errmsg`.
        text: String,
    },
}

impl Expected {
    /// Parses an expectation.
    ///
    /// # Errors
    /// A description of the fault, in one line.
    pub fn parse(text: &str, env: &Env) -> Result<Expected, String> {
        let text = text.trim();
        if let Some(failure) = text.strip_prefix('!') {
            return parse_failure(failure);
        }
        let (ordered, array) = match text.strip_prefix("unordered") {
            Some(rest) => (false, rest.trim_start()),
            None => (true, text),
        };
        if array.starts_with('[') {
            return Ok(Expected::Batch { documents: dialect::value(array, env)?, ordered });
        }
        Ok(Expected::Reply(dialect::value(text, env)?))
    }

    /// Compares a reply.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, reply: RawDoc<'_>) -> Result<(), String> {
        match self {
            Expected::Failure { code, name, text } => check_failure(reply, *code, name, text),
            Expected::Batch { documents, ordered } => {
                let Some(RawValue::Array(found)) = batch(reply) else {
                    return Err("there is no batch".to_owned());
                };
                let RawValue::Array(expected) = documents.as_raw() else {
                    return Err("the expectation is no array".to_owned());
                };
                if *ordered { array(expected, found, "batch") } else { unordered(expected, found) }
            }
            Expected::Reply(expected) => {
                let RawValue::Document(expected) = expected.as_raw() else {
                    return Err("the expectation is no document".to_owned());
                };
                check_reply(expected, reply)
            }
        }
    }
}

fn parse_failure(text: &str) -> Result<Expected, String> {
    let mut words = text.splitn(3, ' ');
    let code = words.next().and_then(|code| code.parse().ok()).ok_or("an error needs a code")?;
    let name = words.next().ok_or("an error needs a code name")?.to_owned();
    let text = match words.next() {
        None => String::new(),
        Some(quoted) => match dialect::value(quoted, &Env::default())?.as_raw() {
            RawValue::String(text) => text.to_owned(),
            _ => return Err("the text of an error is quoted".to_owned()),
        },
    };
    Ok(Expected::Failure { code, name, text })
}

fn check_failure(reply: RawDoc<'_>, code: i32, name: &str, text: &str) -> Result<(), String> {
    let is = |field: &str, value: RawValue<'_>| match reply.get(field) {
        Some(found) if found == value => Ok(()),
        other => Err(format!("{field} is {other:?}")),
    };
    is("ok", RawValue::Double(0.0))?;
    is("code", RawValue::Int32(code))?;
    is("codeName", RawValue::String(name))?;
    match reply.get("errmsg") {
        Some(RawValue::String(message)) if message.contains(text) => Ok(()),
        other => Err(format!("errmsg is {other:?}")),
    }
}

/// A reply without the fields that every reply has: `$clusterTime` and `operationTime` unless the
/// expected answer names `operationTime`, and `recoveryToken` unless it names that.
pub fn without_implied(reply: RawDoc<'_>, expected: &str) -> DocBuf {
    let is_implied = |name: &str| match name {
        "$clusterTime" | "operationTime" => !expected.contains("operationTime"),
        "recoveryToken" => !expected.contains("recoveryToken"),
        _ => false,
    };
    let mut out = DocBuilder::new();
    for element in reply.iter().filter(|element| !is_implied(element.name())) {
        out.append_element(element);
    }
    out.finish()
}

/// The documents of a cursor reply.
pub fn batch(reply: RawDoc<'_>) -> Option<RawValue<'_>> {
    let cursor = reply.get("cursor")?.as_document()?;
    cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"))
}

fn check_reply(expected: RawDoc<'_>, found: RawDoc<'_>) -> Result<(), String> {
    if expected.get("ok").is_some() {
        return document(expected, found, "");
    }
    if found.get("ok") != Some(RawValue::Double(1.0)) {
        return Err("the command failed".to_owned());
    }
    let mut rest = DocBuilder::new();
    for element in found.iter().filter(|element| element.name() != "ok") {
        rest.append_element(element);
    }
    document(expected, rest.finish().as_doc(), "")
}

/// The one field of a pattern such as `Any`.
fn pattern(value: RawValue<'_>) -> Option<(&str, RawValue<'_>)> {
    let mut fields = value.as_document()?.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) if matches!(only.name(), ANY | CONTAINS | MORE) => {
            Some((only.name(), only.value()))
        }
        _ => None,
    }
}

fn same(expected: RawValue<'_>, found: RawValue<'_>, path: &str) -> Result<(), String> {
    let differs = || {
        let (expected, found) = (dialect::show_value(expected), dialect::show_value(found));
        Err(format!("{path} is {found}, not {expected}"))
    };
    match (pattern(expected), expected, found) {
        (Some((ANY, RawValue::String(kind))), _, found) => {
            if kind.is_empty() || found.type_name() == kind { Ok(()) } else { differs() }
        }
        (Some((CONTAINS, RawValue::String(text))), _, RawValue::String(found)) => {
            if found.contains(text) { Ok(()) } else { differs() }
        }
        (Some((CONTAINS, _)), _, _) => differs(),
        (_, RawValue::Document(expected), RawValue::Document(found)) => {
            document(expected, found, path)
        }
        (_, RawValue::Array(expected), RawValue::Array(found)) => array(expected, found, path),
        (_, expected, found) => {
            let bytes = |value: RawValue<'_>| {
                let mut out = vec![value.type_byte()];
                value.encode(&mut out);
                out
            };
            if bytes(expected) == bytes(found) { Ok(()) } else { differs() }
        }
    }
}

fn document(expected: RawDoc<'_>, found: RawDoc<'_>, path: &str) -> Result<(), String> {
    let mut rest = found.iter();
    for element in expected {
        let name = element.name();
        if name == MORE {
            return Ok(());
        }
        let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let lax = expected.get(MORE).is_some();
        let next = if lax { rest.find(|other| other.name() == name) } else { rest.next() };
        match next {
            Some(other) if other.name() == name => same(element.value(), other.value(), &below)?,
            Some(other) => return Err(format!("{below} is missing, or behind '{}'", other.name())),
            None => return Err(format!("{below} is missing, or too far in front")),
        }
    }
    match rest.next() {
        Some(extra) => Err(format!("'{}' is not expected in {path:?}", extra.name())),
        None => Ok(()),
    }
}

fn array(expected: RawDoc<'_>, found: RawDoc<'_>, path: &str) -> Result<(), String> {
    let mut rest = found.iter();
    for (at, element) in expected.iter().enumerate() {
        if matches!(pattern(element.value()), Some((MORE, _))) {
            return Ok(());
        }
        let path = format!("{path}[{at}]");
        match rest.next() {
            Some(other) => same(element.value(), other.value(), &path)?,
            None => return Err(format!("{path} is missing")),
        }
    }
    match rest.count() {
        0 => Ok(()),
        more => Err(format!("{path} has {more} elements too many")),
    }
}

fn unordered(expected: RawDoc<'_>, found: RawDoc<'_>) -> Result<(), String> {
    let mut left: Vec<RawValue<'_>> = found.iter().map(|element| element.value()).collect();
    for element in expected {
        let hit = left.iter().position(|other| same(element.value(), *other, "").is_ok());
        match hit {
            Some(at) => drop(left.swap_remove(at)),
            None => return Err(format!("{} is missing", dialect::show_value(element.value()))),
        }
    }
    match left.first() {
        Some(extra) => Err(format!("{} is not expected", dialect::show_value(*extra))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, reply: &str) -> Result<(), String> {
        let env = Env::default();
        Expected::parse(expected, &env)?.check(dialect::document(reply, &env)?.as_doc())
    }

    #[test]
    fn replies_are_compared() {
        let same = [
            ("{n: 1}", "{n: 1, ok: 1.0}"),
            ("{n: Any, ...}", "{x: 1, n: 'a', y: 2, ok: 1.0}"),
            ("{a: {b: Any('long')}}", "{a: {b: NumberLong(2)}, ok: 1.0}"),
            ("[{_id: 1}, ...]", "{cursor: {firstBatch: [{_id: 1}, {_id: 2}]}, ok: 1.0}"),
            (
                "unordered [{_id: 2}, {_id: 1}]",
                "{cursor: {nextBatch: [{_id: 1}, {_id: 2}]}, ok: 1.0}",
            ),
            ("!2 BadValue 'no'", "{ok: 0.0, errmsg: 'oh no', code: 2, codeName: 'BadValue'}"),
        ];
        for (expected, reply) in same {
            assert_eq!(check(expected, reply), Ok(()), "{expected} {reply}");
        }
        let different = [
            ("{n: 1}", "{n: 1.0, ok: 1.0}"),
            ("{n: 1}", "{n: 1, m: 2, ok: 1.0}"),
            ("{n: 1}", "{n: 1, ok: 0.0}"),
            ("{n: 1, m: 2, ...}", "{m: 2, n: 1, ok: 1.0}"),
            ("{a: [1]}", "{a: [1, 2], ok: 1.0}"),
            ("[{_id: 1}]", "{cursor: {firstBatch: []}, ok: 1.0}"),
            ("!2 BadValue 'yes'", "{ok: 0.0, errmsg: 'oh no', code: 2, codeName: 'BadValue'}"),
        ];
        for (expected, reply) in different {
            assert!(check(expected, reply).is_err(), "{expected} {reply}");
        }
    }
}
