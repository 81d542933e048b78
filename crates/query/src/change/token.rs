//! Resume tokens: `{ _data: "<hex>" }`. Their order is that of the operations that they identify.
//!
//! ```text
//! format (1) | timestamp (8) | operation in its entry (4) | kind (1) | [fragment (4)]  big-endian
//! ```

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

const FORMAT: u8 = 0x82;
const BYTES: usize = 14;
const FRAGMENT_BYTES: usize = 18;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TokenKind {
    /// The token of an event.
    Event,
    /// The token of the `invalidate` event after the event that caused it.
    Invalidate,
    /// A position without an event, up to which the log was examined.
    Position,
}

/// An operation of the log, or the position after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token {
    pub(super) timestamp: u64,
    /// The index of the operation in its entry.
    pub(super) at: u32,
    pub(super) kind: TokenKind,
    /// The index of a fragment, for an event that was split.
    pub(super) fragment: Option<u32>,
}

impl Token {
    /// The position after all operations of this timestamp.
    pub(super) fn after_timestamp(timestamp: u64) -> Token {
        Token { timestamp, at: u32::MAX, kind: TokenKind::Position, fragment: None }
    }

    /// The position before this operation, or before this fragment.
    pub(super) fn before(self) -> Token {
        match self.fragment {
            Some(0) => return Token { fragment: None, ..self }.before(),
            Some(fragment) => return Token { fragment: Some(fragment - 1), ..self },
            None => {}
        }
        if self.kind == TokenKind::Invalidate {
            return Token { kind: TokenKind::Event, ..self };
        }
        match self.at.checked_sub(1) {
            Some(at) => Token { at, kind: TokenKind::Position, ..self },
            None => Token::after_timestamp(self.timestamp.saturating_sub(1)),
        }
    }

    /// The timestamp up to which all entries are before the token.
    pub(super) fn complete_up_to(self) -> u64 {
        match self.at {
            u32::MAX => self.timestamp,
            _ => self.timestamp.saturating_sub(1),
        }
    }

    /// The token as a document.
    pub(super) fn document(self) -> DocBuf {
        let mut bytes = Vec::with_capacity(FRAGMENT_BYTES);
        bytes.push(FORMAT);
        bytes.extend_from_slice(&self.timestamp.to_be_bytes());
        bytes.extend_from_slice(&self.at.to_be_bytes());
        bytes.push(match self.kind {
            TokenKind::Event => 0,
            TokenKind::Invalidate => 1,
            TokenKind::Position => 2,
        });
        if let Some(fragment) = self.fragment {
            bytes.extend_from_slice(&fragment.to_be_bytes());
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let mut out = DocBuilder::new();
        out.append("_data", hex.as_str());
        out.finish()
    }

    /// Parses a token that a client sends.
    ///
    /// # Errors
    /// 40647 for documents that are not tokens, 9 FailedToParse for tokens of other servers.
    pub(super) fn parse(document: RawDoc<'_>) -> Result<Token> {
        let Some(RawValue::String(text)) = document.get("_data") else {
            let text =
                format!("Bad resume token: _data of missing or of wrong type{}", Shell(document));
            return Err(Error::new(ErrorCode(40647), text));
        };
        if !matches!(document.get("_typeBits"), None | Some(RawValue::Binary { .. })) {
            let text = "Bad resume token: _typeBits of wrong type";
            return Err(Error::new(ErrorCode(40648), text));
        }
        if text.is_empty() {
            return Err(Error::new(ErrorCode(40649), "Bad resume token: _data is empty"));
        }
        let invalid = |why: &str| Error::failed_to_parse(format!("resume token string {why}"));
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(invalid("was not a valid hex string"));
        }
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        if bytes.first() == Some(&0) {
            return Err(Error::new(ErrorCode(50811), "Invalid type in the resume token"));
        }
        let foreign = || invalid("was not made by this server");
        let (Some(&FORMAT), BYTES | FRAGMENT_BYTES) = (bytes.first(), bytes.len()) else {
            return Err(foreign());
        };
        let (timestamp, rest) = bytes[1..].split_first_chunk().ok_or_else(foreign)?;
        let (at, kind) = rest.split_first_chunk().ok_or_else(foreign)?;
        let (kind, fragment) = match kind {
            [0] => (TokenKind::Event, None),
            [0, fragment @ ..] => {
                let fragment = fragment.try_into().map_err(|_| foreign())?;
                (TokenKind::Event, Some(u32::from_be_bytes(fragment)))
            }
            [1] => (TokenKind::Invalidate, None),
            [2] => (TokenKind::Position, None),
            _ => return Err(foreign()),
        };
        let (timestamp, at) = (u64::from_be_bytes(*timestamp), u32::from_be_bytes(*at));
        Ok(Token { timestamp, at, kind, fragment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_are_in_the_order_of_the_log() {
        let token = |timestamp, at, kind| Token { timestamp, at, kind, fragment: None };
        let fragment =
            |fragment| Token { fragment: Some(fragment), ..token(1, 1, TokenKind::Event) };
        let tokens = [
            token(1, 0, TokenKind::Event),
            token(1, 1, TokenKind::Event),
            fragment(0),
            fragment(1),
            token(1, 1, TokenKind::Invalidate),
            Token::after_timestamp(1),
            token(256, 0, TokenKind::Event),
        ];
        for pair in tokens.windows(2) {
            assert!(pair[0] < pair[1]);
            let text =
                |token: Token| token.document().as_doc().get("_data").map(|t| format!("{t:?}"));
            assert!(text(pair[0]) < text(pair[1]));
            assert_eq!(Token::parse(pair[0].document().as_doc()).unwrap(), pair[0]);
        }
        assert_eq!(tokens[1].before().complete_up_to(), 0);
        assert!(tokens[1].before() > tokens[0] && tokens[1].before() < tokens[1]);
        assert_eq!(tokens[0].before(), Token::after_timestamp(0));
        assert_eq!(tokens[2].before(), tokens[1].before());
        assert_eq!(tokens[3].before(), tokens[2]);
        assert_eq!(tokens[4].before(), tokens[1]);
    }

    #[test]
    fn other_tokens_are_refused() {
        for (data, code) in [
            ("", 40649),
            ("00", 50811),
            ("zz", 9),
            ("8", 9),
            ("82", 9),
            ("8265", 9),
            ("820000000000000001000000000200000000", 9),
        ] {
            let mut document = DocBuilder::new();
            document.append("_data", data);
            let error = Token::parse(document.finish().as_doc()).unwrap_err();
            assert_eq!(error.code().0, code, "{data}");
        }
        assert_eq!(Token::parse(RawDoc::EMPTY).unwrap_err().code().0, 40647);
    }
}
