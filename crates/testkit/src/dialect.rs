//! The shell dialect of the scripts: `{a: 1, $x: 'y'}` with the shell's constructors.
//!
//! Numbers: `1` is an int32 (an int64 when it does not fit), `1.0` a double, `NumberLong(1)`, `NumberDecimal('1')`,
//! `NaN`, `Infinity`. Others: `Date(<ms>)`, `ISODate('...')`, `ObjectId('...')`, `Timestamp(t, i)`,
//! `BinData(subtype, 'base64')`, `/pattern/options`, `MinKey`, `MaxKey`, `undefined`, `Repeat('x', n)`.
//!
//! `Date` and `@(...)` take sums of whole numbers with `now` (the clock) and `i` (the row of a `fill`); `@i` is `@(i)`.
//! `CURSOR` is the id of the last cursor that stayed open. In expectations: `Any`, `Any('type')`, `Contains('text')`,
//! and `...` for further fields or elements.
//!
//! A text is rewritten to Extended JSON and read by `mayfly_value::extjson`.

use std::fmt::Write;

use mayfly_value::extjson::{parse_document, parse_value};
use mayfly_value::{DocBuf, RawDoc, RawValue, ValueBuf};

/// Name of the field that stands for `...`.
pub(crate) const MORE: &str = "...";
/// Name of the field that stands for `Any`.
pub(crate) const ANY: &str = "$any";
/// Name of the field that stands for `Contains`.
pub(crate) const CONTAINS: &str = "$contains";

/// What the dialect's names stand for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Env {
    /// `now`.
    pub now_ms: i64,
    /// `i`.
    pub row: i64,
    /// `CURSOR`.
    pub cursor: i64,
}

/// Reads a document.
///
/// # Errors
/// A line that says what is wrong.
pub fn document(text: &str, env: &Env) -> Result<DocBuf, String> {
    parse_document(&rewrite(text, env)?).map_err(|error| error.to_string())
}

/// Reads a value.
///
/// # Errors
/// A line that says what is wrong.
pub fn value(text: &str, env: &Env) -> Result<ValueBuf, String> {
    parse_value(&rewrite(text, env)?).map_err(|error| error.to_string())
}

fn rewrite(text: &str, env: &Env) -> Result<String, String> {
    let mut writer = Rewriter { rest: text, env, out: String::with_capacity(text.len() + 64) };
    let mut open = Vec::new();
    while let Some(c) = writer.rest.chars().next() {
        match c {
            '\'' | '"' => writer.string()?,
            '{' | '[' => {
                open.push(c);
                writer.copy(1);
            }
            '}' | ']' => {
                open.pop();
                writer.copy(1);
            }
            '.' if writer.rest.starts_with(MORE) => {
                writer.rest = &writer.rest[MORE.len()..];
                let more = if open.last() == Some(&'[') { "{'...': true}" } else { "'...': true" };
                writer.out.push_str(more);
            }
            '-' if writer.rest.starts_with("-Infinity") => {
                writer.rest = &writer.rest["-Infinity".len()..];
                writer.out.push_str("{$numberDouble: '-Infinity'}");
            }
            '0'..='9' | '-' | '+' => writer.number(),
            '@' => writer.computed()?,
            '/' => writer.regex()?,
            '#' => writer.comment(),
            c if c.is_alphanumeric() || matches!(c, '_' | '$') => writer.word()?,
            c => writer.copy(c.len_utf8()),
        }
    }
    Ok(writer.out)
}

struct Rewriter<'a> {
    rest: &'a str,
    env: &'a Env,
    out: String,
}

impl<'a> Rewriter<'a> {
    fn copy(&mut self, bytes: usize) {
        let (now, rest) = self.rest.split_at(bytes);
        self.out.push_str(now);
        self.rest = rest;
    }

    /// The end of the string literal at the front.
    fn string_end(&self) -> Result<usize, String> {
        let mut escaped = false;
        let quote = self.rest.chars().next();
        for (at, c) in self.rest.char_indices().skip(1) {
            if !escaped && Some(c) == quote {
                return Ok(at + c.len_utf8());
            }
            escaped = c == '\\' && !escaped;
        }
        Err(format!("a string without an end: {}", self.rest))
    }

    fn string(&mut self) -> Result<(), String> {
        let end = self.string_end()?;
        self.copy(end);
        Ok(())
    }

    fn comment(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn number(&mut self) {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        self.copy(end.max(1));
    }

    fn take_word(&mut self) -> &'a str {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// The text between the parentheses at the front.
    fn arguments(&mut self) -> Result<&'a str, String> {
        let (mut depth, mut quote) = (0, None);
        for (at, c) in self.rest.char_indices() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '(') => depth += 1,
                (None, ')') if depth == 1 => {
                    let inside = &self.rest[1..at];
                    self.rest = &self.rest[at + 1..];
                    return Ok(inside.trim());
                }
                (None, ')') => depth -= 1,
                (None, _) => {}
            }
        }
        Err(format!("parentheses without an end: {}", self.rest))
    }

    fn computed(&mut self) -> Result<(), String> {
        self.rest = &self.rest[1..];
        let expression =
            if self.rest.starts_with('(') { self.arguments()? } else { self.take_word() };
        let result = compute(expression, self.env)?;
        self.out.push_str(&result.to_string());
        Ok(())
    }

    fn regex(&mut self) -> Result<(), String> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let found = *c == '/' && !escaped;
            escaped = *c == '\\' && !escaped;
            found
        });
        let Some((end, _)) = end else {
            return Err(format!("a pattern without an end: {}", self.rest));
        };
        let pattern = self.rest[1..end].replace("\\/", "/");
        self.rest = &self.rest[end + 1..];
        let options = self.take_word();
        let pattern = quoted(&pattern);
        self.push(format_args!(
            "{{$regularExpression: {{pattern: {pattern}, options: '{options}'}}}}"
        ));
        Ok(())
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }

    fn word(&mut self) -> Result<(), String> {
        let word = self.take_word();
        if self.rest.trim_start().starts_with(':') {
            self.out.push_str(word);
            return Ok(());
        }
        if self.rest.starts_with('(') {
            let arguments = self.arguments()?;
            return self.constructor(word, arguments);
        }
        let cursor = self.env.cursor;
        match word {
            "MinKey" => self.out.push_str("{$minKey: 1}"),
            "MaxKey" => self.out.push_str("{$maxKey: 1}"),
            "NaN" | "Infinity" => self.push(format_args!("{{$numberDouble: '{word}'}}")),
            "undefined" => self.out.push_str("{$undefined: true}"),
            "Any" => self.out.push_str("{$any: ''}"),
            "CURSOR" => self.push(format_args!("{{$numberLong: '{cursor}'}}")),
            other => self.out.push_str(other),
        }
        Ok(())
    }

    fn constructor(&mut self, name: &str, arguments: &str) -> Result<(), String> {
        let plain = arguments.trim_matches(|c| c == '\'' || c == '"');
        let pair =
            || arguments.split_once(',').ok_or_else(|| format!("{name} takes two arguments"));
        match name {
            "NumberInt" => self.push(format_args!("{{$numberInt: '{plain}'}}")),
            "NumberLong" => self.push(format_args!("{{$numberLong: '{plain}'}}")),
            "NumberDecimal" => self.push(format_args!("{{$numberDecimal: '{plain}'}}")),
            "ObjectId" => self.push(format_args!("{{$oid: '{plain}'}}")),
            "ISODate" => self.push(format_args!("{{$date: '{plain}'}}")),
            "Date" => {
                let ms = compute(arguments, self.env)?;
                self.push(format_args!("{{$date: {{$numberLong: '{ms}'}}}}"));
            }
            "Any" => self.push(format_args!("{{$any: '{plain}'}}")),
            "Contains" => self.push(format_args!("{{$contains: {arguments}}}")),
            "Timestamp" => {
                let (t, i) = pair()?;
                self.push(format_args!("{{$timestamp: {{t: {t}, i: {i}}}}}"));
            }
            "BinData" => {
                let (subtype, data) = pair()?;
                let subtype: u8 = subtype.trim().parse().map_err(|_| "BinData takes a subtype")?;
                self.push(format_args!(
                    "{{$binary: {{base64: {data}, subType: '{subtype:02x}'}}}}"
                ));
            }
            "Repeat" => {
                let (text, times) = pair()?;
                let text = text.trim().trim_matches(|c| c == '\'' || c == '"');
                let times = compute(times, self.env)?;
                let text = quoted(&text.repeat(usize::try_from(times).unwrap_or(0)));
                self.out.push_str(&text);
            }
            other => return Err(format!("unknown constructor {other}")),
        }
        Ok(())
    }
}

/// Sums, differences, products and remainders of whole numbers, `now` and `i`; products first, no parentheses inside.
fn compute(expression: &str, env: &Env) -> Result<i64, String> {
    let wrong = || format!("not a sum of whole numbers: {expression}");
    let operand = |text: &str| -> Result<i64, String> {
        match text.trim() {
            "now" => Ok(env.now_ms),
            "i" => Ok(env.row),
            number => number.parse().map_err(|_| wrong()),
        }
    };
    let product = |text: &str| -> Result<i64, String> {
        let mut result: Option<i64> = None;
        let mut rest = text;
        let mut operator = '*';
        loop {
            let at = rest.find(['*', '%']).unwrap_or(rest.len());
            let right = operand(&rest[..at])?;
            result = match (result, operator) {
                (None, _) => Some(right),
                (Some(left), '*') => left.checked_mul(right),
                (Some(left), _) => left.checked_rem(right),
            };
            if result.is_none() {
                return Err(wrong());
            }
            let Some(next) = rest[at..].chars().next() else { break };
            operator = next;
            rest = &rest[at + 1..];
        }
        result.ok_or_else(wrong)
    };
    let text = expression.trim();
    let mut sum: i64 = 0;
    let mut start = 0;
    let mut negative = false;
    for (at, c) in text.char_indices().chain([(text.len(), '+')]) {
        let is_sign = matches!(c, '+' | '-') && at > start;
        if is_sign {
            let part = product(&text[start..at])?;
            let part = if negative { part.checked_neg() } else { Some(part) };
            sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(wrong)?;
            negative = c == '-';
            start = at + 1;
        }
    }
    Ok(sum)
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Writes a document so that [`document`] reads the same one.
pub fn show(document: RawDoc<'_>) -> String {
    let mut out = String::new();
    show_document(document, &mut out);
    out
}

/// Writes a value so that [`value`] reads the same one.
pub fn show_value(value: RawValue<'_>) -> String {
    let mut out = String::new();
    show_into(value, &mut out);
    out
}

fn show_document(document: RawDoc<'_>, out: &mut String) {
    out.push('{');
    for (at, element) in document.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        let name = element.name();
        let bare = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'));
        out.push_str(&if bare { name.to_owned() } else { quoted(name) });
        out.push_str(": ");
        show_into(element.value(), out);
    }
    out.push('}');
}

fn show_into(value: RawValue<'_>, out: &mut String) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = match value {
        RawValue::MinKey => "MinKey".to_owned(),
        RawValue::Undefined => "undefined".to_owned(),
        RawValue::Null => "null".to_owned(),
        RawValue::Double(v) if v.is_nan() => "NaN".to_owned(),
        RawValue::Double(v) if v.is_infinite() => {
            if v > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        RawValue::Double(v) => format!("{v:?}"),
        RawValue::Int32(v) => v.to_string(),
        RawValue::Int64(v) => format!("NumberLong({v})"),
        RawValue::Decimal128(v) => {
            format!("NumberDecimal('{}')", mayfly_value::bson::Decimal128::from_bytes(v))
        }
        RawValue::String(v) => quoted(v),
        RawValue::Document(v) => return show_document(v, out),
        RawValue::Array(v) => {
            out.push('[');
            for (at, element) in v.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                show_into(element.value(), out);
            }
            out.push(']');
            return;
        }
        RawValue::ObjectId(v) => format!("ObjectId('{}')", hex(&v)),
        RawValue::Bool(v) => v.to_string(),
        RawValue::Date(v) => format!("Date({v})"),
        RawValue::Timestamp(v) => format!("Timestamp({}, {})", v >> 32, v & 0xFFFF_FFFF),
        RawValue::Regex { pattern, options } => {
            format!("/{}/{options}", pattern.replace('/', "\\/"))
        }
        RawValue::MaxKey => "MaxKey".to_owned(),
        other => return show_as_json(other, out),
    };
    out.push_str(&text);
}

/// Types that scripts hardly ever have.
fn show_as_json(value: RawValue<'_>, out: &mut String) {
    use mayfly_value::extjson::{Style, value_to_string};
    out.push_str(&value_to_string(value, Style::Canonical));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let env = Env { now_ms: 5000, row: 3, cursor: 77 };
        let cases = [
            ("{a: 1, b: 1.0, c: NumberLong(1)}", "{a: 1, b: 1.0, c: NumberLong(1)}"),
            ("{$x: 'it\\'s', 'a.b': [NaN, -Infinity]}", "{$x: 'it\\'s', 'a.b': [NaN, -Infinity]}"),
            ("{d: Date(now - 1000 * 2), e: @i, f: @(i%2)}", "{d: Date(3000), e: 3, f: 1}"),
            (
                "{r: /^a\\/b'/i, m: MinKey, c: CURSOR}",
                "{r: /^a\\/b'/i, m: MinKey, c: NumberLong(77)}",
            ),
            ("{a: 1, ...}", "{a: 1, '...': true}"),
            ("{a: [1, ...]}", "{a: [1, {'...': true}]}"),
            ("{s: Repeat('ab', 3), t: Timestamp(1, 2)}", "{s: 'ababab', t: Timestamp(1, 2)}"),
            ("{a: Any('long'), b: Any}", "{a: {$any: 'long'}, b: {$any: ''}}"),
        ];
        for (text, shown) in cases {
            let read = document(text, &env).unwrap();
            assert_eq!(show(read.as_doc()), shown);
        }
        assert_eq!(compute("-5 + 2*3", &env), Ok(1));
        assert!(document("{a: Foo(1)}", &env).is_err());
        assert!(document("{a: 'x}", &env).is_err());
    }
}
