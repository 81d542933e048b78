//! Commands with `encryptionInformation`: the definition of encrypted fields, with which clients
//! send encrypted values. Manual: "Queryable Encryption".
//!
//! Query payloads in filters and pipelines become conditions on tags before the handler runs; the
//! row of a command says where its filters are ([`Encrypted`]). Payloads in documents and updates
//! are planned by the write unit ([`EncryptedWrites`]).
//!
//! A payload that would exceed [`DEFAULT_MAX_TAGS`] tags becomes an expression, which recognizes
//! stored values one by one.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_encryption::{DEFAULT_MAX_TAGS, EncryptedFields, FilterRewriter, ValuePredicate};
use mayfly_query::{EncryptedWrites, SnapshotCounts, StateCollections};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::CommandContext;
use crate::request::arguments::INFORMATION;
use crate::request::row::Encrypted;
use crate::request::{Fields, Request};

/// A command whose filters compare tags.
pub(crate) struct Rewritten {
    body: DocBuf,
    /// The field that was rewritten; the body contains it, also if it was in a sequence before.
    field: &'static str,
}

impl Rewritten {
    /// Calls `act` with the request that has the rewritten body.
    pub(crate) fn with_request<T>(
        &self,
        request: &Request<'_>,
        act: impl FnOnce(&Request<'_>) -> T,
    ) -> T {
        let others = request.sequences.iter().filter(|sequence| sequence.name != self.field);
        let others: Vec<_> = others.copied().collect();
        act(&request.with_body(self.body.as_doc(), &others))
    }
}

/// The command with filters that compare tags. `None` if it contains no query payloads.
///
/// # Errors
/// Errors of [`EncryptedFields::of_command`] and of
/// [`FilterRewriter::filter`].
pub(crate) fn rewritten(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
) -> Result<Option<Rewritten>> {
    let (encrypted, body) = (request.row.encrypted, request.body);
    let name = match encrypted {
        Encrypted::Nothing => return Ok(None),
        Encrypted::Filter(name) | Encrypted::Pipeline(name) => name,
        Encrypted::Statements { list, .. } => list,
    };
    let Some((ns, information)) = definition(request)? else { return Ok(None) };
    let fields = EncryptedFields::of_command(information, ns.as_str())?;
    let collection = ctx.store.collection(&ns);
    let (counts, _) = state_names(&ns, collection.as_deref())?;
    let mut reader = SnapshotCounts::of(ctx.store, ctx.store.collection(&counts))?;
    let mut rewriter = FilterRewriter {
        fields: &fields,
        reader: &mut reader,
        max_tags: DEFAULT_MAX_TAGS,
        fallback: &recognize,
    };
    let field = match (encrypted, body.get(name)) {
        (Encrypted::Filter(_), Some(RawValue::Document(filter))) => rewriter.filter(filter)?,
        (Encrypted::Pipeline(_), Some(RawValue::Array(stages))) => rewriter.pipeline(stages)?,
        (Encrypted::Statements { filter, .. }, _) => {
            let statements = request.documents(name)?;
            statements.map(|it| in_statements(&mut rewriter, it, filter)).transpose()?.flatten()
        }
        // The handler refuses other types.
        _ => None,
    };
    let Some(field) = field else { return Ok(None) };
    let value = match encrypted {
        Encrypted::Filter(_) => RawValue::Document(field.as_doc()),
        _ => RawValue::Array(field.as_doc()),
    };
    let mut out = DocBuilder::new();
    // Statements can be in a document sequence, outside of the body.
    let mut is_missing = true;
    for element in body {
        match element.name() == name {
            true => {
                out.append(name, value);
                is_missing = false;
            }
            false => drop(out.append_element(element)),
        }
    }
    if is_missing {
        out.append(name, value);
    }
    Ok(Some(Rewritten { body: out.finish(), field: name }))
}

/// The statements of a write command as an array, with rewritten filters. `None` if none of them
/// contains a query payload.
fn in_statements<'d>(
    rewriter: &mut FilterRewriter<'_>,
    statements: impl Iterator<Item = RawDoc<'d>>,
    filter: &str,
) -> Result<Option<DocBuf>> {
    let mut out = DocBuilder::new_array();
    let mut is_changed = false;
    for statement in statements {
        out.push_document();
        for element in statement {
            let rewritten = match element.value() {
                RawValue::Document(inner) if element.name() == filter => rewriter.filter(inner)?,
                _ => None,
            };
            is_changed |= rewritten.is_some();
            match &rewritten {
                Some(rewritten) => out.append(filter, rewritten),
                None => out.append_element(element),
            };
        }
        out.end();
    }
    Ok(is_changed.then(|| out.finish()))
}

/// The namespace of the documents, and the definition for it. `None` without a definition, and for
/// arguments that the handler refuses.
///
/// # Errors
/// Those of the command's arguments, which are checked before the definition is.
fn definition<'a>(request: &Request<'a>) -> Result<Option<(Namespace, RawDoc<'a>)>> {
    let found = match request.row.encrypted {
        Encrypted::Statements { in_namespaces: true, .. } => {
            let infos = request.documents("nsInfo").ok().flatten();
            let given = |info: RawDoc<'a>| Some((info, info.get(INFORMATION.name)?.as_document()?));
            infos.and_then(|mut infos| infos.find_map(given)).and_then(|(info, information)| {
                let full = info.get("ns").and_then(RawValue::as_str)?;
                Some((Namespace::parse(full).ok()?, information))
            })
        }
        _ => {
            let information = request.body.get(INFORMATION.name).and_then(RawValue::as_document);
            let named = matches!(request.target(), RawValue::String(_));
            information.filter(|_| named).and_then(|it| Some((request.namespace().ok()?, it)))
        }
    };
    if found.is_some() {
        request.arguments()?;
    }
    Ok(found)
}

/// Appends the expression that recognizes the values of a payload with too many tags.
fn recognize(path: &str, predicate: &ValuePredicate, out: &mut DocBuilder) -> Result<()> {
    out.start_document("$_internalFleBetween").append("field", format!("${path}").as_str());
    out.start_array("server");
    for token in predicate.tokens() {
        out.push(RawValue::Binary { subtype: 0, bytes: token.as_bytes() });
    }
    out.end().end();
    Ok(())
}

/// What a write command needs for its encrypted values. `None` without `encryptionInformation`.
///
/// # Errors
/// 6346807 for a collection without encrypted fields; errors of [`EncryptedFields::of_command`].
pub(super) fn writes(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    arguments: &Fields<'_>,
) -> Result<Option<Arc<EncryptedWrites>>> {
    let Some(information) = arguments.document(INFORMATION.name)? else { return Ok(None) };
    let fields = EncryptedFields::of_command(information, ns.as_str())?;
    let collection = ctx.store.collection(ns);
    let collection = collection.filter(|it| encrypted_fields(it).is_some());
    let collection = collection.ok_or_else(not_encrypted)?;
    let state = state_of(ctx, &collection)?;
    Ok(Some(Arc::new(EncryptedWrites::new(fields, state, ctx.op.now_ms()))))
}

/// The error for a collection without encrypted fields.
pub(crate) fn not_encrypted() -> Error {
    Error::new(ErrorCode(6346807), "Target namespace is not an encrypted collection")
}

/// The definition in the options of a collection.
pub(crate) fn encrypted_fields(collection: &Collection) -> Option<DocBuf> {
    let options = collection.options();
    let fields = options.as_doc().get("encryptedFields").and_then(RawValue::as_document);
    fields.map(RawDoc::to_owned)
}

/// The state collections of an encrypted collection, created if they are missing.
///
/// # Errors
/// Errors of the engine; 166 CommandNotSupportedOnView for a view of that name.
pub(crate) fn state_of(
    ctx: &CommandContext<'_>,
    collection: &Collection,
) -> Result<StateCollections> {
    let (counts, queue) = state_names(&collection.namespace(), Some(collection))?;
    let (of_counts, of_queue) = (state_collection(ctx, &counts)?, state_collection(ctx, &queue)?);
    Ok(StateCollections { counts: (counts, of_counts), queue: (queue, of_queue) })
}

/// The names of the collection of counts and of the queue: those in the definition, or the default
/// ones.
fn state_names(ns: &Namespace, collection: Option<&Collection>) -> Result<(Namespace, Namespace)> {
    let fields = collection.and_then(encrypted_fields);
    let name = |part: &str, suffix: &str| {
        let given = fields.as_ref().and_then(|fields| fields.as_doc().get(part)?.as_str());
        let default = || format!("enxcol_.{}.{suffix}", ns.collection());
        Namespace::new(ns.db(), &given.map_or_else(default, str::to_owned))
    };
    Ok((name("escCollection", "esc")?, name("ecocCollection", "ecoc")?))
}

/// A state collection. Drivers create it clustered by `_id`.
fn state_collection(ctx: &CommandContext<'_>, ns: &Namespace) -> Result<Arc<Collection>> {
    if let Some(found) = ctx.store.collection(ns) {
        return Ok(found);
    }
    let mut options = DocBuilder::new();
    options.start_document("clusteredIndex").append("v", 2);
    options.start_document("key").append("_id", 1).end();
    options.append("name", "_id_").append("unique", true).end();
    let store = &ctx.service.store;
    store.check_no_view(ctx.store.view, ns)?;
    match store.create_collection(ctx.store.view, ns, options.finish()) {
        Err(error) if error.code() == ErrorCode::NamespaceExists => {
            ctx.store.collection(ns).ok_or(error)
        }
        created => created,
    }
}
