//! The terms of a document's field as one string, from which tantivy reads them.
//!
//! ```text
//!  for each term: position less that of the term before | length of the text in bytes | text
//! ```
//! A number is written as characters of 14 bits each, the highest first; all but the last one have
//! 2^14 added. So the string takes little more memory than the texts, and it is valid UTF-8.

use std::collections::HashSet;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use super::analyze::{each_part, each_term};
use crate::definition::{AnalyzerName, AutocompleteField, PostingsDetail};

/// Encoded terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EncodedTerms(String);

/// The bits of a number in one character.
const BITS: u32 = 14;

/// Encodes the terms of strings that stand in the same field, those of
/// [`Terms`](super::analyze::Terms).
#[derive(Default)]
pub(crate) struct TermEncoder {
    encoded: String,
    /// The position of the last term.
    last: usize,
    /// The position of the next string's first word.
    next: usize,
    /// The terms so far, if each is kept once.
    known: Option<HashSet<String>>,
}

impl TermEncoder {
    /// An encoder for a field. Without frequencies, its length is the number of different terms.
    pub(crate) fn new(detail: PostingsDetail) -> TermEncoder {
        let known = (detail == PostingsDetail::Documents).then(HashSet::new);
        TermEncoder { known, ..TermEncoder::default() }
    }

    /// Adds the terms of a string. Each is written to the buffer first.
    pub(crate) fn add(&mut self, analyzer: AnalyzerName, text: &str, term: &mut String) {
        let first = self.next;
        // Most terms are as long as their words, and have two numbers instead of a space.
        self.encoded.reserve(text.len() + text.len() / 4);
        self.next +=
            each_term(analyzer, text, term, |count, _, term| self.push(first + count, term));
    }

    /// Adds the parts of a string's words that `autocomplete` indexes.
    pub(crate) fn add_parts(&mut self, field: &AutocompleteField, text: &str) {
        let first = self.next;
        self.next += each_part(field, text, |count, _, part| self.push(first + count, &part));
    }

    /// Adds a term.
    pub(super) fn push(&mut self, position: usize, term: &str) {
        if let Some(known) = &mut self.known
            && !known.insert(term.to_owned())
        {
            return;
        }
        push_number(&mut self.encoded, position.saturating_sub(self.last));
        push_number(&mut self.encoded, term.len());
        self.encoded.push_str(term);
        self.last = position;
    }

    pub(crate) fn finish(mut self) -> EncodedTerms {
        self.encoded.shrink_to_fit();
        EncodedTerms(self.encoded)
    }
}

impl EncodedTerms {
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
