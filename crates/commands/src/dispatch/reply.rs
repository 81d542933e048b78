//! The end of a reply that is an error.

use mayfly_base::Error;
use mayfly_service::Service;
use mayfly_value::{DocBuilder, RawDoc};

use crate::rules::primacy;

/// Throws away what was written since the reply began.
pub(super) fn rewind(doc: DocBuilder, start: usize) -> DocBuilder {
    let mut buffer = doc.finish_buffer();
    buffer.truncate(start);
    DocBuilder::in_buffer(buffer)
}

/// Writes a whole error reply, with the times that every reply carries.
pub fn append_failure(service: &Service, error: &Error, doc: &mut DocBuilder) {
    append_error(doc, error);
    primacy::append_gossip(service, Some(error), doc);
}

/// Writes an error reply: `ok`, `errmsg`, `code`, `codeName`, labels, and the error's further fields.
fn append_error(doc: &mut DocBuilder, error: &Error) {
    let labels = error.label_names();
    if !labels.is_empty() {
        doc.start_array("errorLabels");
        for label in labels {
            doc.push(label);
        }
        doc.end();
    }
    doc.append("ok", 0.0);
    doc.append("errmsg", error.message());
    doc.append("code", error.code().0);
    doc.append("codeName", error.code().name().as_ref());
    if let Some(extra) = error.extra().and_then(RawDoc::new) {
        doc.append_all(extra);
    }
}
