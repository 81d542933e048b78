//! `distinct`: the distinct values of a field. Arrays are unwound, and values that compare as equal
//! count once.

use crate::request::arguments::HINT;
use mayfly_value::arguments::Argument;
use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_query::{
    CanonicalQuery, Executor, FindOptions, Flow, RunSettings, allowed_on, check_absent,
};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::paths::array_index;
use mayfly_value::{Collation, DocBuilder, RawDoc, RawValue, SortOrder, ValueBuf};

use super::explain;
use super::read::{Collating, hint};
use super::settings::settings_to_run;
use super::view::{Source, Stages, budget, decide_collation, for_each, run_settings, source};
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, InTransaction, Reads, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("distinct", "Returns the distinct values of a field", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Collection(&[Action::Find]))
        .flags(RowFlags::SHAPED)
        .reads(
            Reads::PREFERENCE
                .union(Reads::DEFAULTS)
                .union(Reads::COUNTED)
                .union(Reads::COMMITTED)
                .union(Reads::LINEARIZABLE)
                .union(Reads::SNAPSHOT),
        )
        .in_transaction(InTransaction::Statement)
        .expected(Expected::Long)
        .explained(explain::distinct);

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::string("key").required(),
    Argument::document("query"),
    HINT,
    Argument::any("collation").since("3.4"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let collating = Collating::parse(&fields)?;
    let ns = request.namespace()?;
    let key = fields.string("key")?.ok_or_else(|| fields.missing("key"))?;
    if key.contains('\0') {
        let text = "Key field cannot contain an embedded null byte";
        return Err(Error::new(ErrorCode(31032), text));
    }
    let filter = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
    let collection = ctx.store.collection(&ns);
    let collation = collating.over(collection.as_deref());
    let options = FindOptions {
        hint: hint(&fields)?,
        time: Some(ctx.time()),
        collation: collation.clone(),
        scripts: Some(ctx.service.settings.script_limits()),
        ..FindOptions::default()
    };
    let mut query = CanonicalQuery::parse(filter, options)?.for_values_of(key);
    let setting = settings_to_run(ctx, request.row.name, &ns, request.body)?;
    let hints = setting.and_then(|setting| setting.hints.clone());
    let mut values = Values { found: BTreeMap::new(), bytes: 0, key: Vec::new(), collation };
    match source(ctx, &ns)? {
        Source::Nothing => check_absent(&query, &ns)?,
        Source::Collection(collection) => {
            query.allowed = hints.and_then(|hints| allowed_on(&hints, &collection));
            let mut executor = Executor::new(ctx.store.view, collection, query)?;
            executor.name_failures(request.row.name);
            if executor.buffers_between_batches() {
                executor.use_budget(budget(ctx, None));
            }
            from_collection(ctx, executor, key, &mut values)?;
        }
        Source::View(mut view) => {
            decide_collation(&mut view, &collating)?;
            values.collation = view.collation.clone();
            let mut stages = Stages::new(&view);
            stages.push_document("$match", Some(filter));
            let settings = RunSettings { hints, ..run_settings(ctx, None) };
            let stages = stages.parse((ctx, request), &view, None)?;
            let run = stages.start(ctx, query.hint, settings)?;
            for_each(ctx, run, &mut |document| values.of_path(document, key))?;
        }
    }
    reply.start_array("values");
    for value in values.found.values() {
        reply.push(value.as_raw());
    }
    reply.end();
    if let Some(time) = ctx.store.view.cluster_time() {
        reply.append("atClusterTime", RawValue::Timestamp(time));
    }
    Ok(())
}

fn from_collection(
    ctx: &CommandContext<'_>,
    mut executor: Executor,
    key: &str,
    values: &mut Values,
) -> Result<()> {
    ctx.op.update_info(|info| info.plan_summary = executor.plan().summary());
    while !executor.is_done() {
        executor.run(ctx.store, &mut |_, document, _| {
            values.of_path(document, key)?;
            Ok(Flow::More)
        })?;
    }
    Ok(())
}

/// The distinct values so far, by their order-preserving keys, which is the order of the reply. Of
/// values that compare as equal, which have the same key, the first one is returned.
struct Values {
    found: BTreeMap<Vec<u8>, ValueBuf>,
    bytes: usize,
    key: Vec<u8>,
    collation: Option<Arc<Collation>>,
}

impl Values {
    /// Adds the values of a path: a field with the whole path as its name if there is one, else
    /// component by component, through the documents of arrays or to the array index that a
    /// component names.
    fn of_path(&mut self, document: RawDoc<'_>, path: &str) -> Result<()> {
        match document.get(path) {
            Some(RawValue::Array(items)) => {
                return items.iter().try_for_each(|item| self.add(item.value()));
            }
            Some(value) => return self.add(value),
            None => {}
        }
        let Some((name, rest)) = path.split_once('.') else { return Ok(()) };
        match document.get(name) {
            Some(RawValue::Document(inner)) => self.of_path(inner, rest),
            Some(RawValue::Array(items)) if begins_with_position(rest) => self.of_path(items, rest),
            Some(RawValue::Array(items)) => items
                .iter()
                .filter_map(|item| item.value().as_document())
                .try_for_each(|inner| self.of_path(inner, rest)),
            _ => Ok(()),
        }
    }

    fn add(&mut self, value: RawValue<'_>) -> Result<()> {
        self.key.clear();
        let collation = self.collation.as_deref();
        keys::append_value_in(
            &mut self.key,
            &mut TypeBits::default(),
            value,
            SortOrder::Ascending,
            collation,
        );
        if self.found.contains_key(&self.key) {
            return Ok(());
        }
        let owned = value.to_owned();
        // A type byte, and the position as the name of an array's element.
        self.bytes += owned.data().len() + 2 + self.found.len().max(1).ilog10() as usize + 1;
        if self.bytes > limits::MAX_USER_DOCUMENT_BYTES {
            return Err(Error::new(ErrorCode(17217), "distinct too big, 16mb cap"));
        }
        self.found.insert(self.key.clone(), owned);
        Ok(())
    }
}

fn begins_with_position(path: &str) -> bool {
    array_index(path.split('.').next().unwrap_or(path)).is_some()
}
