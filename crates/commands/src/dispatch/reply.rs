//! The end of an error reply.

use mayfly_base::Error;
use mayfly_service::Service;
use mayfly_value::{DocBuilder, RawDoc};

use crate::rules::primacy;

/// Discards what was appended since the beginning of the reply.
pub(super) fn rewind(doc: DocBuilder, start: usize) -> DocBuilder {
    let mut buffer = doc.finish_buffer();
    buffer.truncate(start);
    DocBuilder::in_buffer(buffer)
}

/// Appends an error reply, including the cluster times.
pub fn append_failure(service: &Service, error: &Error, doc: &mut DocBuilder) {
    append_error(doc, error);
    primacy::append_gossip(service, Some(error), doc);
}

/// Appends an error: `ok`, `errmsg`, `code`, `codeName`, labels, and the error's own fields.
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
