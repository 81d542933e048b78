//! The terms of a document's field as one string, from which tantivy reads them.
//!
//! ```text
//!  for each term: position less that of the term before | length of the text in bytes | text
//! ```
//! A number is written as characters of 14 bits each, the highest first; all but the last one have
//! 2^14 added. So the string takes little more memory than the texts, and it is valid UTF-8.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use super::analyze::Terms;

/// Encoded terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EncodedTerms(String);

/// The bits of a number in one character.
const BITS: u32 = 14;

impl EncodedTerms {
    pub(crate) fn new(terms: &Terms) -> EncodedTerms {
        let text: usize = terms.tokens.iter().map(|token| token.text.len() + 2).sum();
        let mut encoded = String::with_capacity(text);
        let mut last = 0;
        for token in &terms.tokens {
            push_number(&mut encoded, token.position.saturating_sub(last));
            push_number(&mut encoded, token.text.len());
            encoded.push_str(&token.text);
            last = token.position;
        }
        encoded.shrink_to_fit();
        EncodedTerms(encoded)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn push_number(encoded: &mut String, number: usize) {
    let low = number & ((1 << BITS) - 1);
    if number >> BITS != 0 {
        push_high(encoded, number >> BITS);
    }
    encoded.extend(char::from_u32(low as u32));
}

fn push_high(encoded: &mut String, number: usize) {
    if number >> BITS != 0 {
        push_high(encoded, number >> BITS);
    }
    let low = (number & ((1 << BITS) - 1)) | (1 << BITS);
    encoded.extend(char::from_u32(low as u32));
}

/// Takes a number from the beginning of a text; `None`: the text ends.
fn take_number(text: &mut &str) -> Option<usize> {
    let mut number = 0;
    loop {
        let mut letters = text.chars();
        let letter = letters.next()? as usize;
        *text = letters.as_str();
        number = (number << BITS) | (letter & ((1 << BITS) - 1));
        if letter >> BITS == 0 {
            return Some(number);
        }
    }
}

/// The tokenizer of encoded terms.
#[derive(Clone)]
pub(crate) struct EncodedTokenizer;

impl EncodedTokenizer {
    /// Its name in schemas.
    pub(crate) const NAME: &str = "encoded";
}

impl Tokenizer for EncodedTokenizer {
    type TokenStream<'a> = EncodedStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> EncodedStream<'a> {
        let token = Token { position: 0, ..Token::default() };
        EncodedStream { rest: text, token }
    }
}

/// Reads encoded terms.
pub(crate) struct EncodedStream<'a> {
    rest: &'a str,
    token: Token,
}

impl EncodedStream<'_> {
    fn read(&mut self) -> Option<()> {
        let step = take_number(&mut self.rest)?;
        let length = take_number(&mut self.rest)?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        self.token.position += step;
        self.token.text.clear();
        self.token.text.push_str(text);
        Some(())
    }
}

impl TokenStream for EncodedStream<'_> {
    fn advance(&mut self) -> bool {
        self.read().is_some()
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}
