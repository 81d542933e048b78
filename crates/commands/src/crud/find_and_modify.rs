//! `findAndModify`: changes or removes one document, and returns it as it was or is.

use crate::request::arguments::{HINT, INFORMATION};
use mayfly_value::arguments::{Argument, Form};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{
    Budget, CanonicalQuery, DeleteSpec, EncryptedWrites, FindAndModifySpec, FindOptions,
    FoundAndModified, Image, ModifyOutcome, Repeatable, check_absent, find_and_modify, metadata_of,
    plan,
};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::read::{Collating, hint};
use super::update::{UpdateStatement, only_operators, update_value};
use super::write::{DocumentRules, array_filters, ends_command, on_collection, was_dropped};
use super::{encrypted, explain, measurements};
use crate::context::retry::Attempt;
use crate::context::{Command, CommandContext, DocumentChanges};
use crate::request::row::{Audited, Encrypted, Expected, InTransaction, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command =
    Command::new("findAndModify", "Changes or removes one document", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(demands::find_and_modify))
        .audited(Audited::Documents)
        .aliases(&["findandmodify"])
        .flags(RowFlags::STABLE)
        .writes(Writes::Repeatable)
        .in_transaction(InTransaction::Statement)
        .expected(Expected::Long)
        .encrypted(Encrypted::Filter("query"))
        .explained(explain::find_and_modify);

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::document("query"),
    Argument::document("sort"),
    Argument::flag("remove"),
    Argument::any("update"),
    Argument::flag("new"),
    Argument::document("fields"),
    Argument::flag("upsert"),
    Argument::flag("bypassDocumentValidation"),
    Argument::bool("bypassEmptyTsReplacement").null_is_value().since("8.0"),
    Argument::any("collation").since("3.4"),
    Argument::array("arrayFilters").since("3.6"),
    HINT.since("4.4"),
    Argument::document("let").since("5.0"),
    Argument::new("stmtId", Form::Int32),
    Argument::new("batchSize", Form::Int32),
    Argument::bool("singleBatch"),
    Argument::uuid("sampleId").since("7.0").unstable(),
    Argument::array("stmtIds"),
    INFORMATION,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    measurements::check_changeable(ctx, &ns)?;
    let arguments = Arguments::parse(&fields)?;
    let attempt = ctx.attempt(0)?;
    let statement = match &attempt {
        Attempt::Again(_) => None,
        Attempt::First(statement) => *statement,
    };
    let image = if arguments.new { Image::After } else { Image::Before };
    let repeatable = statement.map(|statement| Repeatable { statement, image });
    let spec = arguments.spec(ctx, &ns, &fields, repeatable)?;
    let (outcome, shown) = match attempt {
        Attempt::Again(record) => ModifyOutcome::recall(record.as_doc()),
        Attempt::First(_) => {
            let (outcome, shown) = first_attempt(ctx, &ns, &arguments, &spec, image)?;
            let removed = if arguments.update.is_none() { outcome.matched } else { 0 };
            ctx.count_modified(&DocumentChanges {
                inserted: i64::from(outcome.upserted.is_some()),
                updated: outcome.modified,
                deleted: removed,
            });
            ctx.service.metrics.documents.returned.add(u64::from(shown.is_some()));
            if outcome.had_effect() || arguments.update.is_none() && outcome.matched > 0 {
                let shown = shown.as_ref().map(DocBuf::as_doc);
                ctx.committed(statement, || outcome.record(shown));
            }
            (outcome, shown)
        }
    };
    write_reply(&arguments, &outcome, shown, query(&spec), reply)?;
    ctx.append_retried_one(reply);
    Ok(())
}

/// Executes it; returns the outcome and the document for the reply.
fn first_attempt(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    arguments: &Arguments<'_>,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<(ModifyOutcome, Option<DocBuf>)> {
    let found = match (measurements::series_named(ctx, ns), measurements::buckets_named(ctx, ns)) {
        (Some(series), _) => measurements::find_and_modify(ctx, &series, spec)?,
        (None, Some(buckets)) => measurements::find_and_modify_bucket(ctx, &buckets, spec, image)?,
        (None, None) => execute(ctx, ns, spec, image)?,
    };
    let FoundAndModified { before, after, upserted } = found;
    let existed = before.is_some();
    let outcome = ModifyOutcome {
        matched: i64::from(existed),
        modified: i64::from(existed && after.is_some()),
        upserted,
    };
    let shown = match (arguments.new, after) {
        (true, Some(after)) => Some(after),
        _ => before,
    };
    Ok((outcome, shown))
}

/// Checks the arguments for `explain`; returns whether the new document is returned.
///
/// # Errors
/// 9 FailedToParse, 14 TypeMismatch; errors of the query and of the update.
pub(super) fn returns_new(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    fields: &Fields<'_>,
) -> Result<bool> {
    let arguments = Arguments::parse(fields)?;
    arguments.spec(ctx, ns, fields, None)?;
    Ok(arguments.new)
}

/// The arguments, after the check of their combinations.
struct Arguments<'a> {
    filter: RawDoc<'a>,
    update: Option<RawValue<'a>>,
    new: bool,
    upsert: bool,
    rules: DocumentRules,
}

impl<'a> Arguments<'a> {
    fn parse(fields: &Fields<'a>) -> Result<Arguments<'a>> {
        let rules = DocumentRules::parse(fields)?;
        let remove = fields.bool("remove")?.unwrap_or(false);
        let update = fields.get("update").map(update_value).transpose()?;
        let new = fields.bool("new")?.unwrap_or(false);
        let upsert = fields.bool("upsert")?.unwrap_or(false);
        let filters = fields.array("arrayFilters")?.is_some();
        let fault = |text: &str| Err(Error::failed_to_parse(text));
        match update {
            None if !remove => return fault("Either an update or remove=true must be specified"),
            Some(_) if remove => return fault("Cannot specify both an update and remove=true"),
            Some(RawValue::Array(_)) if filters => {
                return fault("Cannot specify arrayFilters and a pipeline update");
            }
            _ => {}
        }
        if remove && upsert {
            return fault("Cannot specify both upsert=true and remove=true ");
        }
        if remove && new {
            return fault(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            );
        }
        if remove && filters {
            return fault("Cannot specify arrayFilters and remove=true");
        }
        let filter = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
        Ok(Arguments { filter, update, new, upsert, rules })
    }

    fn spec(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        fields: &Fields<'a>,
        repeatable: Option<Repeatable>,
    ) -> Result<FindAndModifySpec> {
        let filter = self.filter;
        let sort = fields.document("sort")?.filter(|sort| !has_text_direction(*sort));
        let projection = fields.document("fields")?;
        let (hint, variables) = (hint(fields)?, fields.document("let")?);
        let collation = Collating::parse(fields)?;
        if projection.is_some_and(asks_for_sort_key) {
            let text = "Cannot use a $meta sortKey projection in findAndModify commands.";
            return Err(Error::bad_value(text));
        }
        if self.new && projection.is_some_and(is_positional) {
            let text = "cannot use a positional projection and return the new document";
            return Err(Error::bad_value(text));
        }
        let encrypted = self.encrypted(ctx, ns, fields)?;
        let Some(update) = self.update else {
            let buckets = || measurements::series_named(ctx, ns).map(|(buckets, _)| buckets);
            let collection = ctx.store.collection(ns).or_else(buckets);
            let options = FindOptions {
                sort,
                projection,
                hint,
                variables,
                time: Some(ctx.time()),
                collation: collation.over(collection.as_deref()),
                scripts: Some(ctx.service.settings.script_limits()),
                ..FindOptions::default()
            };
            let query = CanonicalQuery::parse(filter, options)?;
            let (multi, budget) = (false, Budget::default());
            let spec = DeleteSpec { query, multi, repeatable, budget };
            return Ok(FindAndModifySpec::Remove(spec));
        };
        let statement = UpdateStatement {
            filter,
            update,
            array_filters: array_filters(fields)?,
            sort,
            fields: projection,
            variables,
            constants: None,
            supplied: false,
            hint,
            collation,
            multi: false,
            upsert: self.upsert,
            rules: self.rules,
            encrypted,
        };
        statement.spec(ctx, ns, repeatable).map(FindAndModifySpec::Update)
    }
}

impl Arguments<'_> {
    /// What it needs for encrypted values.
    ///
    /// # Errors
    /// 6371402, 6371408, 6439901; errors of [`encrypted::writes`].
    fn encrypted(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        fields: &Fields<'_>,
    ) -> Result<Option<Arc<EncryptedWrites>>> {
        let encrypted = encrypted::writes(ctx, ns, fields)?;
        let refused = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
        if encrypted.is_none() {
            return Ok(None);
        }
        if self.new {
            return refused(6371402, "findAndModify with encryption only supports new: false");
        }
        if fields.document("fields")?.is_some_and(|projection| !projection.is_empty()) {
            return refused(6371408, "findAndModify fields must be empty");
        }
        match self.update {
            Some(RawValue::Array(_)) => Err(only_operators(6439901)),
            _ => Ok(encrypted),
        }
    }
}

/// Whether a projection has a field `{$meta: "sortKey"}`.
fn asks_for_sort_key(projection: RawDoc<'_>) -> bool {
    projection.iter().any(|field| {
        let meta = field.value().as_document().and_then(|inner| inner.get("$meta"));
        meta == Some(RawValue::String("sortKey"))
    })
}

/// Whether a direction is a string. The reference accepts such an order here, and it has no effect.
fn has_text_direction(sort: RawDoc<'_>) -> bool {
    sort.iter().any(|field| matches!(field.value(), RawValue::String(_)))
}

fn execute(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<FoundAndModified> {
    if matches!(spec, FindAndModifySpec::Update(spec) if spec.upsert) {
        return on_collection(ctx, ns, |collection| modify(ctx, collection, spec, image));
    }
    let store = &ctx.service.store;
    let Some(collection) = store.collection(ctx.store.view, ns) else {
        check_absent(query(spec), ns)?;
        return store.check_no_view(ctx.store.view, ns).map(|()| FoundAndModified::default());
    };
    match modify(ctx, &collection, spec, image) {
        // The collection was dropped concurrently: there is nothing to find.
        Err(error) if was_dropped(ctx.store, &error, &collection) => {
            Ok(FoundAndModified::default())
        }
        other => other,
    }
}

/// Adds the reference's prefix to errors that occur after planning.
fn modify(
    ctx: &CommandContext<'_>,
    collection: &Arc<Collection>,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<FoundAndModified> {
    let query = query(spec);
    if query.hint.is_some() {
        plan(collection, query)?;
    }
    let found = find_and_modify(ctx.store, collection, spec, image);
    found.map_err(|error| match ends_command(ctx, &error) {
        true => error,
        false => error.in_context("Plan executor error during findAndModify"),
    })
}

fn query(spec: &FindAndModifySpec) -> &CanonicalQuery {
    match spec {
        FindAndModifySpec::Remove(spec) => &spec.query,
        FindAndModifySpec::Update(spec) => &spec.query,
    }
}

fn write_reply(
    arguments: &Arguments<'_>,
    outcome: &ModifyOutcome,
    shown: Option<DocBuf>,
    query: &CanonicalQuery,
    reply: &mut DocBuilder,
) -> Result<()> {
    let existed = outcome.matched > 0;
    reply.start_document("lastErrorObject");
    reply.append("n", i32::from(existed || outcome.upserted.is_some()));
    if arguments.update.is_some() {
        reply.append("updatedExisting", existed);
    }
    if let Some(id) = &outcome.upserted {
        reply.append("upserted", id);
    }
    reply.end();
    let value = shown.map(|document| shaped(document, query)).transpose()?;
    match &value {
        Some(document) => reply.append("value", document),
        None => reply.append("value", RawValue::Null),
    };
    Ok(())
}

/// Whether a projection has the positional `$`, which depends on the document as it was found.
fn is_positional(projection: RawDoc<'_>) -> bool {
    projection.iter().any(|field| field.name().ends_with(".$"))
}

fn shaped(document: DocBuf, query: &CanonicalQuery) -> Result<DocBuf> {
    match &query.projection {
        Some(projection) => {
            let metadata = metadata_of(query, document.as_doc())?;
            projection.project_found(metadata.frame(document.as_doc()), &query.matcher)
        }
        None => Ok(document),
    }
}
