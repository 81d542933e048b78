//! Text search without an index: the terms of a string, the scores of a document's terms, and
//! parsed searches.
//!
//! 1. [`words()`] splits a string at delimiters: white space, dashes, quotation marks, punctuation.
//! 2. [`Analyzer`] converts words to terms: case folded, stop words omitted, stemmed, without
//!    diacritics.
//! 3. [`TextSpec`] determines the indexed strings of a document, their languages and weights, and
//!    computes the scores of its terms.
//! 4. [`TextSearch`] is a parsed search: alternative terms, required and excluded terms and
//!    phrases; it matches documents.
//!
//! Index entries and searches use the same analysis. Terms are stored: a change of the analysis
//! needs a new version of the index.
//!
//! The crate is pure. It does no IO and does not know index keys or plans: `storage` makes entries
//! of terms, `query` looks them up, and `mql` parses `$text`.

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
pub use search::{FoundBy, SearchOptions, TextSearch};
pub use spec::TextSpec;
pub use words::words;
