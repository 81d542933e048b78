//! The documents of `$indexStats`: how often plans have used each index. Manual, "$indexStats".

use mayfly_service::Service;
use mayfly_storage::{Collection, UseCounter};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

/// One document per index, `_id_` first. Uses are counted from the start of the server, the
/// creation of the index, or the last change of its `hidden` option.
///
/// `specs` are the definitions in the listing of the collection, or of its measurements, in order.
pub(crate) fn index_stats(
    service: &Service,
    collection: &Collection,
    specs: &[DocBuf],
) -> Vec<DocBuf> {
    let indexes = collection.indexes();
    let mut documents = Vec::with_capacity(specs.len());
    // A collection that is clustered by `_id` also lists that index first; buckets do not.
    let own = usize::from(collection.time_series().is_none());
    for (at, spec) in specs.iter().enumerate() {
        let index = at.checked_sub(own).and_then(|at| indexes.get(at));
        let uses = index.map_or(&collection.id_uses, |index| &index.runtime.uses);
        let built = index.is_none_or(|index| index.is_ready());
        documents.push(document(service, spec.as_doc(), uses, built));
    }
    documents
}

fn document(service: &Service, spec: RawDoc<'_>, uses: &UseCounter, built: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    for name in ["name", "key"] {
        if let Some(value) = spec.get(name) {
            out.append(name, value);
        }
    }
    out.append("host", service.host.as_str());
    out.start_document("accesses").append("ops", uses.get());
    out.append("since", RawValue::Date(service.started_wall_ms())).end();
    if !built {
        out.append("building", true);
    }
    out.append("spec", spec);
    out.finish()
}
