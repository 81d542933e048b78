//! Parses a JSON text to a small tree. Not `serde_json`: order, duplicate keys and the exact
//! spelling of numbers matter here, and tests read better with bare keys, single quotes and
//! trailing commas.

use super::ExtJsonError;

/// Deepest nesting of a text, including the wrappers of values.
const MAX_TEXT_DEPTH: usize = mayfly_base::limits::MAX_BSON_DEPTH + 8;

/// A parsed text.
pub(super) enum Json {
    Null,
    Bool(bool),
    /// The spelling of the number.
    Number(String),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Parses a text that is exactly one value.
pub(super) fn parse(text: &str) -> Result<Json, ExtJsonError> {
    let mut parser = Parser { rest: text };
    let value = parser.value(0)?;
    parser.blanks();
    if parser.rest.is_empty() { Ok(value) } else { Err(parser.unexpected("end of text")) }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn unexpected(&self, expected: &str) -> ExtJsonError {
        let near: String = self.rest.chars().take(20).collect();
        ExtJsonError(format!("expected {expected} at '{near}'"))
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn accept(&mut self, mark: char) -> bool {
        self.blanks();
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, ExtJsonError> {
        if depth > MAX_TEXT_DEPTH {
            return Err(ExtJsonError("text is nested too deeply".to_owned()));
        }
        self.blanks();
        match self.rest.chars().next() {
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            Some('"' | '\'') => self.string().map(Json::String),
            Some('-' | '0'..='9') => self.number(),
            _ => match self.word() {
                "null" => Ok(Json::Null),
                "true" => Ok(Json::Bool(true)),
                "false" => Ok(Json::Bool(false)),
                _ => Err(self.unexpected("a value")),
            },
        }
    }

    /// Reads a run of the characters allowed in bare keys and literals.
    fn word(&mut self) -> &'a str {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn object(&mut self, depth: usize) -> Result<Json, ExtJsonError> {
        let mut fields = Vec::new();
        self.accept('{');
        while !self.accept('}') {
            let name = match self.rest.chars().next() {
                Some('"' | '\'') => self.string()?,
                _ => self.word().to_owned(),
            };
            if !self.accept(':') {
                return Err(self.unexpected("':'"));
            }
            fields.push((name, self.value(depth + 1)?));
            if !self.accept(',') && !self.rest.starts_with('}') {
                return Err(self.unexpected("',' or '}'"));
            }
        }
        Ok(Json::Object(fields))
    }

    fn array(&mut self, depth: usize) -> Result<Json, ExtJsonError> {
        let mut items = Vec::new();
        self.accept('[');
        while !self.accept(']') {
            items.push(self.value(depth + 1)?);
            if !self.accept(',') && !self.rest.starts_with(']') {
                return Err(self.unexpected("',' or ']'"));
            }
        }
        Ok(Json::Array(items))
    }

    fn number(&mut self) -> Result<Json, ExtJsonError> {
        let is_part = |c: char| matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        if number.parse::<f64>().is_err() {
            return Err(self.unexpected("a number"));
        }
        self.rest = rest;
        Ok(Json::Number(number.to_owned()))
    }

    fn string(&mut self) -> Result<String, ExtJsonError> {
        let mut chars = self.rest.chars();
        let quote = chars.next();
        let mut text = String::new();
        loop {
            match chars.next() {
                None => return Err(self.unexpected("a closed string")),
                c if c == quote => break,
                Some('\\') => match chars.next() {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some('b') => text.push('\u{8}'),
                    Some('f') => text.push('\u{c}'),
                    Some('u') => {
                        let escaped = unicode_escape(&mut chars);
                        text.push(escaped.ok_or_else(|| self.unexpected("a \\u escape"))?);
                    }
                    Some(c) => text.push(c),
                    None => return Err(self.unexpected("a closed string")),
                },
                Some(c) => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }
}

/// Reads four hexadecimal digits, and the second half of a surrogate pair if they are the first.
fn unicode_escape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let mut unit = || -> Option<u32> {
        let digits = chars.as_str().get(..4)?;
        *chars = chars.as_str().get(4..)?.chars();
        u32::from_str_radix(digits, 16).ok()
    };
    let high = unit()?;
    if !(0xD800..0xDC00).contains(&high) {
        return char::from_u32(high);
    }
    *chars = chars.as_str().strip_prefix("\\u")?.chars();
    let mut unit = || -> Option<u32> {
        let digits = chars.as_str().get(..4)?;
        *chars = chars.as_str().get(4..)?.chars();
        u32::from_str_radix(digits, 16).ok()
    };
    let low = unit()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
    char::from_u32(0x10000 + ((high - 0xD800) << 10) + low)
}
