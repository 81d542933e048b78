//! The shell dialect of the scripts: `{a: 1, $x: 'y'}` with the shell's constructors.
//!
//! Numbers: `1` is an int32 (an int64 when it does not fit), `1.0` a double, `NumberLong(1)`,
//! `NumberDecimal('1')`, `NaN`, `Infinity`. Others: `Date(<ms>)`, `ISODate('...')`,
//! `ObjectId('...')`, `Timestamp(t, i)`, `BinData(subtype, 'base64')`, `/pattern/options`,
//! `MinKey`, `MaxKey`, `undefined`, `Repeat('x', n)`.
//!
//! `Date` and `@(...)` contain calculations with `now` (the clock) and `i` (the row of a `fill`);
//! `@i` is `@(i)`. `CURSOR` is the id of the last cursor that stayed open, `SNAPSHOT` the time of
//! the last snapshot read. In expectations: `Any`, `Any('type')`, `Contains('text')`, and `...` for
//! further fields or elements.
//!
//! A text is rewritten to Extended JSON and read by `mayfly_value::extjson`.

use std::fmt::Write;

use mayfly_value::extjson::{parse_document, parse_value};
use mayfly_value::{DocBuf, ValueBuf};

mod compute;
mod show;

use compute::compute;
use show::quoted;
pub use show::{show, show_value};

/// Name of the field that stands for `...`.
pub(crate) const MORE: &str = "...";
/// Name of the field that stands for `Any`.
pub(crate) const ANY: &str = "$any";
/// Name of the field that stands for `Contains`.
pub(crate) const CONTAINS: &str = "$contains";

/// The values of the dialect's names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Env {
    /// The value of `now`: the test clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// The value of `i`: the index of the document that `fill` generates.
    pub row: i64,
    /// The value of `CURSOR`: the id of the cursor in the last reply that has one.
    pub cursor: i64,
    /// The value of `SNAPSHOT`: the timestamp of the last snapshot read.
    pub snapshot: u64,
}

/// Parses a command without variables.
///
/// # Panics
/// The text is not a document.
pub fn parsed(command: &str) -> DocBuf {
    match document(command, &Env::default()) {
        Ok(command) => command,
        Err(why) => panic!("{why}: {command}"),
    }
}

/// Parses a document.
///
/// # Errors
/// A description of the fault, in one line.
pub fn document(text: &str, env: &Env) -> Result<DocBuf, String> {
    parse_document(&rewrite(text, env)?).map_err(|error| error.to_string())
}

/// Parses a value.
///
/// # Errors
/// A description of the fault, in one line.
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
        let (secs, increment) = (self.env.snapshot >> 32, self.env.snapshot & 0xFFFF_FFFF);
        match word {
            "MinKey" => self.out.push_str("{$minKey: 1}"),
            "MaxKey" => self.out.push_str("{$maxKey: 1}"),
            "NaN" | "Infinity" => self.push(format_args!("{{$numberDouble: '{word}'}}")),
            "undefined" => self.out.push_str("{$undefined: true}"),
            "Any" => self.out.push_str("{$any: ''}"),
            "CURSOR" => self.push(format_args!("{{$numberLong: '{cursor}'}}")),
            "SNAPSHOT" => {
                self.push(format_args!("{{$timestamp: {{t: {secs}, i: {increment}}}}}"));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let env = Env { now_ms: 5000, row: 3, cursor: 77, snapshot: 5 << 32 | 2 };
        let cases = [
            ("{a: 1, b: 1.0, c: NumberLong(1)}", "{a: 1, b: 1.0, c: NumberLong(1)}"),
            ("{$x: 'it\\'s', 'a.b': [NaN, -Infinity]}", "{$x: 'it\\'s', 'a.b': [NaN, -Infinity]}"),
            ("{d: Date(now - 1000 * 2), e: @i, f: @(i%2)}", "{d: Date(3000), e: 3, f: 1}"),
            (
                "{r: /^a\\/b'/i, m: MinKey, c: CURSOR, s: SNAPSHOT}",
                "{r: /^a\\/b'/i, m: MinKey, c: NumberLong(77), s: Timestamp(5, 2)}",
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
