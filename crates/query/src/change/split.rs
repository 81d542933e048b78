//! Splits events that exceed the size of a document into fragments (manual,
//! "$changeStreamSplitLargeEvent").
//!
//! ```text
//! { _id: <token of fragment>, splitEvent: { fragment: 1.., of }, <some fields of the event> }
//! ```
//!
//! Fields are never split. Small fields come first, so that the first fragment contains as many as
//! possible.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue};

use super::token::{Token, TokenKind};
use super::{MAX_EVENT_BYTES, too_large};

/// The field that numbers a fragment.
const SPLIT: &str = "splitEvent";

/// The fragment after which a stream resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumed {
    pub(super) token: Token,
}

impl Resumed {
    /// The number of fragments that the client has received.
    fn seen(self) -> usize {
        self.token.fragment.map_or(0, |fragment| fragment as usize + 1)
    }

    /// Removes the received fragments, if the stream resumes inside of this event.
    ///
    /// # Errors
    /// 280 ChangeStreamFatalError if the event has fewer fragments now.
    pub(crate) fn rest(self, event: RawDoc<'_>, fragments: &mut Vec<DocBuf>) -> Result<()> {
        if token_of(event)? != (Token { fragment: None, ..self.token }) {
            return Ok(());
        }
        if self.seen() > fragments.len() {
            return Err(Error::new(
                ErrorCode::ChangeStreamFatalError,
                "Attempted to resume from a split event fragment, but the event in the resumed stream was not split \
                 into as many",
            ));
        }
        fragments.drain(..self.seen());
        Ok(())
    }
}

/// The fragments of an event; empty if it fits a document.
///
/// # Errors
/// 280 for an event without a token, 10334 for a field that does not fit a document.
pub(crate) fn fragments(event: RawDoc<'_>) -> Result<Vec<DocBuf>> {
    if event.as_bytes().len() <= MAX_EVENT_BYTES {
        return Ok(Vec::new());
    }
    let token = token_of(event)?;
    let size = |field: &RawElement<'_>| field.encoded_len();
    let mut fields: Vec<RawElement<'_>> =
        event.iter().filter(|field| !matches!(field.name(), "_id" | SPLIT)).collect();
    fields.sort_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.name().cmp(b.name())));
    let room = MAX_EVENT_BYTES - begin(token, 0, 0).finish().as_bytes().len();
    // The index of the first field of each fragment.
    let (mut starts, mut bytes) = (vec![0], 0);
    for (at, field) in fields.iter().enumerate() {
        if size(field) > room {
            return Err(too_large(size(field)));
        }
        if bytes + size(field) > room {
            starts.push(at);
            bytes = 0;
        }
        bytes += size(field);
    }
    let of = starts.len();
    let ends = starts.iter().skip(1).copied().chain([fields.len()]);
    let ranges = starts.iter().copied().zip(ends).enumerate();
    Ok(ranges
        .map(|(number, (start, end))| {
            let mut out = begin(token, number as u32, of as u32);
            for field in &fields[start..end] {
                out.append_element(*field);
            }
            out.finish()
        })
        .collect())
}

/// Starts a fragment with its token and number.
fn begin(token: Token, number: u32, of: u32) -> DocBuilder {
    let mut out = DocBuilder::new();
    out.append("_id", &Token { fragment: Some(number), ..token }.document());
    out.start_document(SPLIT);
    out.append("fragment", number as i32 + 1).append("of", of as i32).end();
    out
}

fn token_of(event: RawDoc<'_>) -> Result<Token> {
    let id = event.get("_id").and_then(RawValue::as_document);
    match id.map(Token::parse) {
        Some(Ok(token)) if token.kind != TokenKind::Position => Ok(token),
        _ => Err(super::lost_token()),
    }
}
