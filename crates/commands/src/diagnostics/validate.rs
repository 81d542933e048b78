//! `validate`: checks the records and indexes of a collection while it stays in use.

use mayfly_auth::Action;
use mayfly_base::{ClientData, Error, ErrorCode, Namespace, Result};
use mayfly_service::search::{CheckedSearch, SearchCheck};
use mayfly_storage::{EntryFinding, ValidateOptions, ValidationResult, record_id};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::scale::small;
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads, RowFlags};
use crate::request::{Needs, Request};
use mayfly_value::arguments::convert::whole_number;

pub(crate) const ROW: Command =
    Command::new("validate", "Checks a collection and its indexes", run)
        .needs(Needs::Collection(&[Action::Validate]))
        .flags(RowFlags::LENIENT)
        .reads(Reads::PREFERENCE.union(Reads::COMMITTED))
        .expected(Expected::Long);

/// The largest number of findings in a list of the reply.
const MAX_SHOWN: usize = 1000;
const CUT_OFF: &str = "Not all index entry inconsistencies are listed due to size limitations.";

/// The options of the command.
struct Options {
    background: bool,
    enforce_count: bool,
    conformance: bool,
}

impl Options {
    fn parse(body: RawDoc<'_>) -> Result<Options> {
        let is = |name: &str| match body.get(name) {
            Some(RawValue::Bool(flag)) => flag,
            Some(value) => whole_number(value).is_some_and(|number| number != 0),
            None => false,
        };
        let background = is("background");
        for other in ["full", "enforceFastCount", "repair"] {
            if background && is(other) {
                return Err(both("background", other));
            }
        }
        for other in ["background", "full", "enforceFastCount", "repair", "checkBSONConformance"] {
            if is("metadata") && is(other) {
                return Err(both("metadata", other));
            }
        }
        if is("repair") && is("checkBSONConformance") {
            return Err(both("checkBSONConformance", "repair"));
        }
        if is("repair") {
            return Err(Error::not_implemented("the option 'repair' of 'validate'"));
        }
        Ok(Options {
            background,
            enforce_count: is("enforceFastCount"),
            conformance: is("full") || is("checkBSONConformance"),
        })
    }
}

fn both(one: &str, other: &str) -> Error {
    let text = format!(
        "Running the validate command with both {{ {one}: true }} and {{ {other}: true }} is not supported."
    );
    Error::new(ErrorCode::InvalidOptions, text)
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let ns = request.namespace()?;
    let options = Options::parse(request.body)?;
    let store = &ctx.service.store;
    let buckets = || store.time_series_named(ctx.store.view, &ns).map(|(buckets, _)| buckets);
    let Some(collection) = store.collection(ctx.store.view, &ns).or_else(buckets) else {
        return Err(match store.view(ctx.store.view, &ns)? {
            Some(_) => Error::new(ErrorCode::CommandNotSupportedOnView, "Cannot validate a view"),
            None => {
                let text = format!("Collection '{ns}' does not exist to validate.");
                Error::new(ErrorCode::NamespaceNotFound, text)
            }
        });
    };
    // The buckets of a time series are checked.
    let ns = collection.namespace();
    let check = ValidateOptions { bson_conformance: options.conformance };
    let mut searches = SearchCheck::new(&collection);
    let found = ctx.service.store.validate_with(ctx.op, &collection, check, &mut searches)?;
    let searches = searches.finish();
    let (warnings, mut errors) = judge(&ns, &options, &found);
    for search in searches.iter().filter(|search| !search.is_valid()) {
        errors.push(format!("search index with name '{}' has inconsistencies.", search.name));
    }
    if !errors.is_empty() {
        let errors = ClientData(format!("{errors:?}"));
        tracing::error!(namespace = %ns, %errors, "a collection is not valid");
    }
    let shown = ValidatedCollection { ns: &ns, buckets: collection.time_series().is_some() };
    append_findings(&shown, &found, errors.is_empty(), doc);
    append_searches(&searches, doc);
    append_texts("warnings", &warnings, doc);
    append_texts("errors", &errors, doc);
    append_entries("extraIndexEntries", &found, &found.extra, doc);
    append_entries("missingIndexEntries", &found, &found.missing, doc);
    doc.start_array("corruptRecords");
    for key in found.corrupt.iter().take(MAX_SHOWN) {
        doc.push(record_id(key, found.numbered));
    }
    doc.end();
    doc.append("uuid", RawValue::uuid(&collection.uuid()));
    Ok(())
}

/// The warnings, and the errors that make the collection invalid.
fn judge(
    ns: &Namespace,
    options: &Options,
    found: &ValidationResult,
) -> (Vec<String>, Vec<String>) {
    let (mut warnings, mut errors) = (Vec::new(), Vec::new());
    if !found.corrupt.is_empty() {
        errors.push(format!("Detected {} corrupt records.", found.corrupt.len()));
    }
    if found.unsound_buckets > 0 {
        errors.push(
            "Detected one or more documents in this collection incompatible with time-series specifications. For more \
             info, see logs with log id 6698300."
                .to_owned(),
        );
    }
    if found.not_conformant > 0 {
        warnings.push(
            "Detected one or more documents in this collection not conformant to BSON specifications."
                .to_owned(),
        );
    }
    for of in &found.indexes {
        errors.extend(of.errors.iter().cloned());
        if of.missing > 0 || of.extra > 0 {
            let name = of.index.spec.name();
            errors.push(format!("index with name '{name}' has inconsistencies."));
        }
    }
    let missing: u64 = found.indexes.iter().map(|of| of.missing).sum();
    let extra: u64 = found.indexes.iter().map(|of| of.extra).sum();
    if missing > 0 {
        warnings.push(format!("Detected {missing} missing index entries."));
    }
    if extra > 0 {
        warnings.push(format!("Detected {extra} extra index entries."));
    }
    if missing > found.missing.len() as u64 || extra > found.extra.len() as u64 {
        errors.push(CUT_OFF.to_owned());
    }
    if options.enforce_count && found.records != found.kept_records {
        errors.push(format!(
            "fast count ({}) does not match number of records ({}) for collection '{ns}'",
            found.kept_records, found.records
        ));
    }
    if options.background && found.records != found.kept_records {
        warnings.push("The number of documents was wrong and has been set right.".to_owned());
    }
    (warnings, errors)
}

/// The validated collection.
struct ValidatedCollection<'a> {
    ns: &'a Namespace,
    /// Whether these are buckets, whose index on `_id` is not visible to clients.
    buckets: bool,
}

fn append_findings(
    shown: &ValidatedCollection<'_>,
    found: &ValidationResult,
    valid: bool,
    doc: &mut DocBuilder,
) {
    doc.append("ns", shown.ns.as_str());
    doc.append("nInvalidDocuments", small(found.corrupt.len() as i64));
    doc.append("nNonCompliantDocuments", small(found.not_conformant + found.unsound_buckets));
    doc.append("nrecords", small(found.records));
    // The index on `_id` is among them, unless records are clustered by it.
    let listed = || {
        let hidden = |name: &str| shown.buckets && name == "_id_";
        found.indexes.iter().filter(move |of| !hidden(of.index.spec.name()))
    };
    let own = usize::from(!shown.buckets && listed().all(|of| of.index.spec.name() != "_id_"));
    doc.append("nIndexes", small((listed().count() + own) as i64));
    doc.start_document("keysPerIndex");
    if own == 1 {
        doc.append("_id_", small(found.records));
    }
    for of in listed() {
        let entries = i64::try_from(of.entries).unwrap_or(i64::MAX);
        doc.append(of.index.spec.name(), small(entries));
    }
    doc.end();
    doc.start_document("indexDetails");
    if own == 1 {
        doc.start_document("_id_").append("valid", found.corrupt.is_empty()).end();
    }
    for of in listed() {
        doc.start_document(of.index.spec.name()).append("valid", of.is_valid()).end();
    }
    doc.end();
    doc.append("valid", valid).append("repaired", false);
}

/// The findings in search indexes, which the reference server does not check. An index that is
/// being built, or cannot follow the writes, is not listed.
fn append_searches(searches: &[CheckedSearch], doc: &mut DocBuilder) {
    if searches.is_empty() {
        return;
    }
    let number = |count: u64| small(i64::try_from(count).unwrap_or(i64::MAX));
    doc.start_document("searchIndexes");
    for search in searches {
        doc.start_document(search.name.as_str());
        doc.append("valid", search.is_valid());
        doc.append("documents", number(search.documents));
        doc.append("missing", number(search.missing));
        doc.append("extra", number(search.extra));
        doc.append("outdated", number(search.outdated)).end();
    }
    doc.end();
}

fn append_texts(name: &str, texts: &[String], doc: &mut DocBuilder) {
    doc.start_array(name);
    for text in texts.iter().take(MAX_SHOWN) {
        doc.push(text.as_str());
    }
    doc.end();
}

fn append_entries(
    name: &str,
    found: &ValidationResult,
    list: &[EntryFinding],
    doc: &mut DocBuilder,
) {
    doc.start_array(name);
    for finding in list {
        doc.push_document();
        doc.append("indexName", found.indexes[finding.index].index.spec.name());
        doc.append("recordId", record_id(&finding.record_key, found.numbered));
        if let Some(id) = &finding.id {
            doc.append("idKey", id);
        }
        doc.append("indexKey", &finding.key).end();
    }
    doc.end();
}
