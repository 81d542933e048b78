//! `update`.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_mql::{ParseContext, Update};
use mayfly_query::{
    CanonicalQuery, EncryptedWrites, FindOptions, Hint, ModifyOutcome, Repeatable, UpdateSpec,
    check_absent, is_stage, plan,
};
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, new_object_id};

use super::read::{Collating, hint};
use super::together::{PreparedWrite, Proceed, WriteStatement, repeatable, run_all};
use super::view::write_budget;
use super::write::{
    DocumentRules, WriteOptions, WriteResults, array_filters, check_count, ends_command,
    on_collection,
};
use super::{encrypted, explain, measurements};
use crate::context::retry::Attempt;
use crate::context::{COLLECTION_UUID, Command, CommandContext, DocumentChanges};
use crate::request::arguments::{HINT, INFORMATION};
use crate::request::row::{Audited, Encrypted, Expected, InTransaction, RowFlags, Writes};
use crate::request::{Fields, Needs, OpKind, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("update", "Changes documents", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::update))
    .audited(Audited::Documents)
    .flags(RowFlags::STABLE)
    .writes(Writes::Repeatable)
    .in_transaction(InTransaction::Statement)
    .expected(Expected::Statements("updates"))
    .encrypted(Encrypted::Statements { list: "updates", filter: "q", in_namespaces: false })
    .kind(OpKind::Update)
    .explained(explain::update);

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::array("updates").required().parts(STATEMENT),
    Argument::bool("ordered"),
    Argument::flag("bypassDocumentValidation"),
    Argument::bool("bypassEmptyTsReplacement").null_is_value().since("8.0"),
    Argument::document("let").since("5.0"),
    Argument::new("stmtId", Form::Int32),
    Argument::array("stmtIds"),
    INFORMATION,
    COLLECTION_UUID,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    measurements::check_changeable(ctx, &ns)?;
    let options = WriteOptions::parse(&fields)?;
    let variables = fields.document("let")?;
    let Some(updates) = request.documents("updates")? else {
        return Err(fields.missing("updates"));
    };
    check_count(updates.len())?;
    // An invalid statement fails the whole command before anything is written.
    let statements = updates
        .map(|update| {
            let rules = options.rules;
            parse(update, variables).map(|statement| UpdateStatement { rules, ..statement })
        })
        .collect::<Result<Vec<_>>>()?;
    let statements = match encrypted::writes(ctx, &ns, &fields)? {
        None => statements,
        Some(encrypted) => encrypted_update(statements, encrypted)?,
    };
    ctx.check_repeatable(
        statements.iter().any(|statement| statement.multi).then_some("multi=true"),
    )?;
    let mut results = WriteResults::default();
    let mut modified = 0;
    run_all(ctx, &ns, 0, &statements, &mut |index, result| {
        let mut proceed = Proceed::Continue;
        match result {
            Ok(outcome) => {
                results.n += outcome.matched;
                modified += outcome.modified;
                ctx.count_modified(&DocumentChanges {
                    updated: outcome.modified,
                    inserted: i64::from(outcome.upserted.is_some()),
                    deleted: 0,
                });
                if let Some(id) = outcome.upserted {
                    results.n += 1;
                    results.upserted.push((index, id));
                }
            }
            Err(error) if ends_command(ctx, &error) => return Err(error),
            Err(error) => {
                if results.fail(ctx, index, error, options) {
                    proceed = Proceed::Stop;
                }
            }
        }
        ctx.count(OpKind::Update, 1);
        Ok(proceed)
    })?;
    results.write(request, reply, Some(modified));
    ctx.append_retried(reply);
    Ok(())
}

/// An update with encrypted values: one statement that updates one document.
///
/// # Errors
/// 6371502, 6371503, 6371517.
fn encrypted_update(
    statements: Vec<UpdateStatement<'_>>,
    encrypted: Arc<EncryptedWrites>,
) -> Result<Vec<UpdateStatement<'_>>> {
    let count = statements.len();
    let mut statements = statements.into_iter();
    let (Some(only), 1) = (statements.next(), count) else {
        let text = "Only single document updates are permitted";
        return Err(Error::new(ErrorCode(6371502), text));
    };
    only.check_encrypted()?;
    Ok(vec![UpdateStatement { encrypted: Some(encrypted), ..only }])
}

/// The error for a pipeline that would set encrypted values.
pub(super) fn only_operators(code: i32) -> Error {
    let text = "FLE only supports modifier and replacement style updates";
    Error::new(ErrorCode(code), text)
}

/// The fields of an element of `updates`.
pub(super) const STATEMENT: &[Argument] = &[
    Argument::document("q").required(),
    Argument::any("u").required(),
    Argument::bool("upsert"),
    Argument::bool("multi"),
    HINT.since("4.2"),
    Argument::document("collation").since("3.4"),
    Argument::array("arrayFilters").since("3.6"),
    Argument::document("c").since("4.2"),
    Argument::document("sort").since("8.0"),
    Argument::bool("upsertSupplied").null_is_value(),
    Argument::uuid("sampleId").since("7.0").unstable(),
];

/// Parses an element of `updates`.
pub(super) fn parse<'a>(
    statement: RawDoc<'a>,
    variables: Option<RawDoc<'a>>,
) -> Result<UpdateStatement<'a>> {
    let fields = Fields::read(statement, "update.updates", STATEMENT)?;
    let names = Names { filter: "q", update: "u", constants: "c" };
    let statement = UpdateStatement::parse(&fields, &names, variables)?;
    Update::check_stage_names(statement.update, is_stage)?;
    Ok(statement)
}

/// The names of an update statement's fields in a command.
pub(super) struct Names {
    pub(super) filter: &'static str,
    pub(super) update: &'static str,
    pub(super) constants: &'static str,
}

/// An update statement of any command, with filter and update not yet parsed.
pub(super) struct UpdateStatement<'a> {
    pub(super) filter: RawDoc<'a>,
    pub(super) update: RawValue<'a>,
    pub(super) array_filters: Vec<RawDoc<'a>>,
    pub(super) sort: Option<RawDoc<'a>>,
    pub(super) fields: Option<RawDoc<'a>>,
    /// `let` of the command.
    pub(super) variables: Option<RawDoc<'a>>,
    /// Values that a pipeline can use as variables.
    pub(super) constants: Option<RawDoc<'a>>,
    /// Whether an upsert inserts the constant `new`.
    pub(super) supplied: bool,
    pub(super) hint: Option<Hint>,
    pub(super) collation: Collating,
    pub(super) multi: bool,
    pub(super) upsert: bool,
    /// The rules for written documents.
    pub(super) rules: DocumentRules,
    /// What the command needs for encrypted values.
    pub(super) encrypted: Option<Arc<EncryptedWrites>>,
}

impl<'a> UpdateStatement<'a> {
    /// Reads the fields; unknown ones were refused before.
    ///
    /// # Errors
    /// 40414, 14, 9 as in the reference; 51198 for constants without a pipeline; 238 for
    /// unsupported options.
    pub(super) fn parse(
        fields: &Fields<'a>,
        names: &Names,
        variables: Option<RawDoc<'a>>,
    ) -> Result<UpdateStatement<'a>> {
        let filter = fields.document(names.filter)?.ok_or_else(|| fields.missing(names.filter))?;
        let update = fields.doc().get(names.update).ok_or_else(|| fields.missing(names.update))?;
        let update = update_value(update)?;
        let constants = fields.document(names.constants)?;
        if constants.is_some() && matches!(update, RawValue::Document(_)) {
            let text = "Constant values may only be specified for pipeline updates";
            return Err(Error::new(ErrorCode(51198), text));
        }
        let multi = fields.bool("multi")?.unwrap_or(false);
        let sort = fields.document("sort")?;
        if multi && sort.is_some() {
            return Err(Error::failed_to_parse("Cannot specify sort with multi=true"));
        }
        Ok(UpdateStatement {
            filter,
            update,
            array_filters: array_filters(fields)?,
            sort,
            fields: None,
            variables,
            constants,
            supplied: fields.bool("upsertSupplied")?.unwrap_or(false),
            hint: hint(fields)?,
            collation: Collating::parse(fields)?,
            multi,
            upsert: fields.bool("upsert")?.unwrap_or(false),
            rules: DocumentRules::default(),
            encrypted: None,
        })
    }

    /// Checks that it may contain encrypted values.
    ///
    /// # Errors
    /// 6371503 for an update of several documents, 6371517 for a pipeline.
    pub(super) fn check_encrypted(&self) -> Result<()> {
        if self.multi {
            let text = "FLE only supports single document updates";
            return Err(Error::new(ErrorCode(6371503), text));
        }
        match self.update {
            RawValue::Array(_) => Err(only_operators(6371517)),
            _ => Ok(()),
        }
    }

    /// Parses filter and update.
    ///
    /// # Errors
    /// Errors of the filter and of the update.
    pub(super) fn spec(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        repeatable: Option<Repeatable>,
    ) -> Result<UpdateSpec> {
        let time = ctx.time();
        let collection = ctx.store.collection(ns);
        let collation = self.collation.over(collection.as_deref());
        let context = ParseContext {
            time: Some(time),
            collation: collation.clone(),
            is_stage: Some(is_stage),
            ..ParseContext::default()
        };
        let scripts = ctx.service.settings.script_limits();
        let scope = Scope::at(time).with_script_limits(scripts).collated(collation.clone());
        let scope = self.scope(scope)?;
        let parse = |update| Update::parse_in(update, &self.array_filters, &scope, &context);
        let mut update = parse(self.update)?;
        if update.is_replacement()
            && let (RawValue::Document(new), false) =
                (self.update, self.rules.keep_empty_timestamps)
            && let Some(filled) = ctx.service.store.fill_empty_timestamps(new)
        {
            update = parse(RawValue::Document(filled.as_doc()))?;
        }
        if self.multi && update.is_replacement() {
            let text = "multi update is not supported for replacement-style update";
            return Err(Error::failed_to_parse(text));
        }
        let options = FindOptions {
            sort: self.sort,
            projection: self.fields,
            hint: self.hint.clone(),
            variables: self.variables,
            time: Some(time),
            collation,
            scripts: Some(scripts),
            ..FindOptions::default()
        };
        Ok(UpdateSpec {
            query: self.query(options)?,
            update,
            supplied: self.supplied_document()?,
            multi: self.multi,
            upsert: self.upsert,
            new_id: new_object_id(time.now_ms),
            bypass_validation: self.rules.bypass_validation,
            repeatable,
            budget: write_budget(ctx, self.multi),
            encrypted: self.encrypted.clone(),
        })
    }

    /// Parses the filter. It is unclear which fields of a new document an expression determines.
    fn query(&self, options: FindOptions<'_>) -> Result<CanonicalQuery> {
        let query = CanonicalQuery::parse(self.filter, options)?;
        if self.upsert && query.matcher.has_expression() {
            let text = "$expr is not allowed in the query predicate for an upsert";
            return Err(Error::new(ErrorCode::QueryFeatureNotAllowed, text));
        }
        Ok(query)
    }

    /// The variables of the update's expressions. Constants are literals, even if they look like
    /// expressions.
    fn scope(&self, mut scope: Scope) -> Result<Scope> {
        if let Some(variables) = self.variables {
            scope.declare(variables)?;
        }
        if let Some(constants) = self.constants {
            let mut literals = DocBuilder::new();
            for constant in constants {
                literals.start_document(constant.name());
                literals.append_renamed(b"$literal", constant).end();
            }
            scope.declare(literals.finish().as_doc())?;
        }
        Ok(scope)
    }

    fn supplied_document(&self) -> Result<Option<DocBuf>> {
        if !self.supplied || !self.upsert {
            return Ok(None);
        }
        match self.constants.and_then(|constants| constants.get("new")) {
            Some(RawValue::Document(new)) => Ok(Some(new.to_owned())),
            _ => Err(Error::failed_to_parse(
                "'upsertSupplied' needs a document in the constant 'new'",
            )),
        }
    }
}

impl WriteStatement for UpdateStatement<'_> {
    fn filter(&self) -> RawDoc<'_> {
        self.filter
    }

    fn is_multi(&self) -> bool {
        self.multi
    }

    fn prepare(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        repeatable: Option<Repeatable>,
    ) -> Result<PreparedWrite> {
        self.spec(ctx, ns, repeatable).map(|spec| PreparedWrite::Update(Box::new(spec)))
    }

    fn run(&self, ctx: &CommandContext<'_>, ns: &Namespace, index: usize) -> Result<ModifyOutcome> {
        let statement = match ctx.attempt(index)? {
            Attempt::Again(record) => return Ok(ModifyOutcome::recall(record.as_doc()).0),
            Attempt::First(statement) => statement,
        };
        if let Some(series) = measurements::series_named(ctx, ns) {
            return measurements::update(ctx, &series, self);
        }
        let spec = self.spec(ctx, ns, repeatable(statement))?;
        if let Some(buckets) = measurements::buckets_named(ctx, ns) {
            let outcome = measurements::on_raw_buckets(ctx, &buckets, || {
                mayfly_query::update_raw_buckets(ctx.store, &buckets, &spec)
            })?;
            if outcome.had_effect() {
                ctx.committed(statement, || outcome.record(None));
            }
            return Ok(outcome);
        }
        if !self.upsert && ctx.store.collection(ns).is_none() {
            check_absent(&spec.query, ns)?;
            return ctx
                .service
                .store
                .check_no_view(ctx.store.view, ns)
                .map(|()| ModifyOutcome::default());
        }
        let outcome = on_collection(ctx, ns, |collection| {
            // Errors of the planner have no prefix.
            if spec.query.hint.is_some() {
                plan(collection, &spec.query)?;
            }
            let updated = mayfly_query::update(ctx.store, collection, &spec);
            let is_bare = |error: &Error| {
                error.code() == ErrorCode::UserWritesBlocked || ends_command(ctx, error)
            };
            updated.map_err(|error| match is_bare(&error) {
                true => error,
                false => error.in_context("Plan executor error during update"),
            })
        })?;
        if outcome.had_effect() {
            ctx.committed(statement, || outcome.record(None));
        }
        Ok(outcome)
    }
}

/// Checks that a value can be an update.
///
/// # Errors
/// 9 FailedToParse.
pub(super) fn update_value(value: RawValue<'_>) -> Result<RawValue<'_>> {
    match value {
        RawValue::Document(_) | RawValue::Array(_) => Ok(value),
        _ => Err(Error::failed_to_parse("Update argument must be either an object or an array")),
    }
}
