//! Text search without an index: the terms of a string, the scores of a document's terms, and parsed searches.
//!
//! 1. [`words()`] cuts a string at delimiters: white space, dashes, quotation marks, punctuation.
//! 2. [`Analyzer`] makes terms out of words: case folded, stop words left out, stemmed, without diacritics.
//! 3. [`TextSpec`] says which strings of a document count, in which language and with which weight, and adds up the scores
//!    of its terms.
//! 4. [`TextSearch`] is a parsed search: terms to look for, terms and phrases to have or not to have; it looks at
//!    documents.
//!
//! Index entries and searches go through the same analysis. Terms are stored: a change of the analysis needs a new version of
//! the index.
//!
//! The crate is pure. It does no IO and knows neither index keys nor plans: `storage` makes entries out of terms, `query` looks
//! them up, and `mql` reads `$text`.

mod analyze;
mod fields;
mod fold;
mod language;
mod score;
mod search;
mod spec;
mod stop_words;
#[cfg(test)]
mod tests;
mod words;

pub use analyze::Analyzer;
pub use fields::TextField;
pub use fold::Sensitivity;
pub use language::Language;
pub use score::{TermScores, stored_term};
pub use search::{Found, SearchOptions, TextSearch};
pub use spec::TextSpec;
pub use words::words;
