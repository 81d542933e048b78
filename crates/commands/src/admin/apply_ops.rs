//! `applyOps`: applies entries of an operation log. Tools use it to replay a log, and to create a
//! collection with a given UUID.
//!
//! 1. All entries are checked before the first one is applied.
//! 2. Entries that write documents form one write unit over all of their collections, which is
//!    atomic. With `allowAtomic: false`, or with definitions among them, each entry is applied on
//!    its own, and the first that fails ends the command.
//! 3. An insert of an existing `_id` replaces the document, and a delete of a missing one does
//!    nothing, so that a log can be replayed over data that already contains part of it.
//! 4. Buckets of a time series are accepted as this server logs them, or in the reference's format,
//!    and are checked like restored ones.
//!
//! The reference's deltas of buckets are not supported.

mod definition;
mod document;
mod entry;

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::UnitCollections;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::crud::check_writable;
use crate::request::Demands;
use crate::request::row::{Audited, Expected, Hides, Names, RowFlags, Writes};
use crate::request::{Fields, Needs, OpKind, Request};
use crate::rules::rights::is_set;
use document::DocumentChange;
use entry::{Entry, EntryKind};
use mayfly_value::arguments::convert::whole_number;

pub(super) const ROW: Command =
    Command::new("applyOps", "Applies entries of an operation log", run)
        .needs(Needs::Demands(demand))
        .audited(Audited::Documents)
        .flags(RowFlags::LENIENT)
        .writes(Writes::Documents)
        .names(Names::Entries)
        .hides(Hides::Users)
        .expected(Expected::Long);

/// The deepest nesting of `applyOps` commands.
const MAX_NESTED: usize = 10;

/// The right to apply entries, and the rights that each entry needs. An insert may replace a
/// document without the right to update: a client that restores a collection could as well drop it.
/// Manual: "Privilege Actions", `applyOps` and `forceUUID`.
fn demand(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(Target::Cluster, Action::ApplyOps);
    let Some(RawValue::Array(entries)) = request.body.get("applyOps") else {
        return demands.need(Target::Everything, Action::AnyAction);
    };
    let bypasses = is_set(request.body, "bypassDocumentValidation");
    for entry in entries {
        match Entry::parse(entry) {
            Ok(entry) => demand_one(demands, &entry, bypasses),
            Err(_) => demands.need(Target::Everything, Action::AnyAction),
        }
    }
}

fn demand_one(demands: &mut Demands<'_>, entry: &Entry<'_>, bypasses: bool) {
    let target = Target::Collection(entry.ns.db(), entry.ns.collection());
    match (entry.kind, entry.uuid) {
        (EntryKind::Note, _) => return demands.need(Target::Cluster, Action::AppendOplogNote),
        (EntryKind::Command, _) => return definition::demand(demands, entry),
        // The UUID may select another collection than the name that rights apply to.
        (_, Some(_)) => return demands.need(Target::Everything, Action::AnyAction),
        (EntryKind::Insert, None) => demands.need(target, Action::Insert),
        (EntryKind::Update, None) if entry.upsert => {
            demands.need_all(target, &[Action::Insert, Action::Update]);
        }
        (EntryKind::Update, None) => demands.need(target, Action::Update),
        (EntryKind::Delete, None) => demands.need(target, Action::Remove),
    }
    if bypasses {
        demands.need(target, Action::BypassDocumentValidation);
    }
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    apply(ctx, request, request.body, MAX_NESTED, reply)
}

/// Applies the entries of a command or of a nested one.
fn apply(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    command: RawDoc<'_>,
    levels: usize,
    reply: &mut DocBuilder,
) -> Result<()> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(Error::failed_to_parse("too many nested applyOps"));
    };
    let fields = Fields::new(command, "applyOps");
    check_removed(&fields)?;
    let bypasses = fields.bool("bypassDocumentValidation")?.unwrap_or(false);
    let Some(RawValue::Array(given)) = command.get("applyOps") else {
        let value = command.get("applyOps").unwrap_or(RawValue::Null);
        return Err(fields.wrong("applyOps", value, "array"));
    };
    let parse = |element| Entry::parse(element).map(|entry| Entry { bypasses, ..entry });
    let entries = given.iter().map(parse).collect::<Result<Vec<_>>>()?;
    let atomic = match fields.get("allowAtomic") {
        Some(RawValue::Bool(atomic)) => atomic,
        Some(value) => whole_number(value) != Some(0),
        None => true,
    };
    let only_documents = entries.iter().all(|entry| entry.kind != EntryKind::Command);
    let mut applied = Applied::default();
    let result = match atomic && only_documents && entries.len() > 1 {
        true => together(ctx, &entries, &mut applied),
        false => one_by_one(ctx, request, &entries, levels, &mut applied),
    };
    match result {
        Ok(()) if applied.results.contains(&false) => {
            let text = "applyOps had one or more errors applying ops";
            Err(applied.explain(Error::new(ErrorCode::UnknownError, text)))
        }
        Ok(()) => {
            applied.append(reply);
            Ok(())
        }
        Err(error) => Err(applied.explain(error)),
    }
}

/// Refuses options that were removed.
fn check_removed(fields: &Fields<'_>) -> Result<()> {
    for (name, code) in [("preCondition", 6711600), ("alwaysUpsert", 6711601)] {
        match fields.get(name) {
            None | Some(RawValue::Bool(false)) => {}
            Some(_) => {
                let text = format!("applyOps no longer supports the '{name}' option");
                return Err(Error::new(ErrorCode(code), text));
            }
        }
    }
    Ok(())
}

/// The results of the entries so far.
#[derive(Default)]
struct Applied {
    results: Vec<bool>,
}

impl Applied {
    fn append(&self, reply: &mut DocBuilder) {
        reply.append("applied", i32::try_from(self.results.len()).unwrap_or(i32::MAX));
        reply.start_array("results");
        for result in &self.results {
            reply.push(*result);
        }
        reply.end();
    }

    /// The error, with the results before it.
    fn explain(&self, error: Error) -> Error {
        let mut extra = DocBuilder::new();
        self.append(&mut extra);
        if let Some(own) = error.extra().and_then(RawDoc::new) {
            extra.append_all(own);
        }
        error.with_extra(extra.finish().into_bytes())
    }
}

/// Applies entries that write documents in one write unit.
fn together(ctx: &CommandContext<'_>, entries: &[Entry<'_>], applied: &mut Applied) -> Result<()> {
    let entries: Vec<&Entry<'_>> =
        entries.iter().filter(|entry| entry.kind != EntryKind::Note).collect();
    let mut changes = Vec::with_capacity(entries.len());
    for entry in &entries {
        let change = check_target(ctx, entry).and_then(|()| DocumentChange::of(ctx, entry));
        match change {
            Ok(change) => changes.push(change),
            Err(error) => return Err(rolled_back(applied, changes.len() + 1, error)),
        }
    }
    let mut others = Vec::new();
    for change in changes.iter().flatten() {
        let ns = change.collection.namespace();
        if !others.iter().any(|(other, _)| *other == ns) {
            others.push((ns, change.collection.clone()));
        }
    }
    if !others.is_empty() {
        let (_, first) = others.remove(0);
        if others.iter().any(|(_, other)| other.capped().is_some()) {
            let text = "entries for a capped collection in one unit with others; allowAtomic: false applies them";
            return Err(Error::not_implemented(text));
        }
        let mut reached = 0;
        let written = ctx.service.store.write_together(
            (ctx.op, ctx.store.view),
            &UnitCollections { first, others },
            |unit| {
                for (at, change) in changes.iter().enumerate() {
                    reached = at + 1;
                    let Some(change) = change else { continue };
                    let ns = change.collection.namespace();
                    if !unit.within(&ns, |unit| change.apply(ctx, unit))? {
                        let text = "applyOps could not find the document of an update";
                        return Err(Error::new(ErrorCode::UnknownError, text));
                    }
                }
                Ok(())
            },
        );
        if let Err(error) = written {
            return Err(rolled_back(applied, reached, error));
        }
    }
    for entry in &entries {
        entry.count(ctx);
        applied.results.push(true);
    }
    Ok(())
}

/// Records that nothing was applied because an entry failed.
fn rolled_back(applied: &mut Applied, reached: usize, error: Error) -> Error {
    applied.results = vec![false; reached];
    error
}

/// Applies each entry on its own; a missing document does not end the command.
fn one_by_one(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    entries: &[Entry<'_>],
    levels: usize,
    applied: &mut Applied,
) -> Result<()> {
    for entry in entries {
        ctx.op.check()?;
        let done = match entry.kind {
            EntryKind::Note => continue,
            EntryKind::Command => definition::apply(ctx, request, entry, levels).map(|()| true),
            EntryKind::Insert | EntryKind::Update | EntryKind::Delete => alone(ctx, entry),
        };
        match done {
            Ok(done) => applied.results.push(done),
            Err(error) => {
                applied.results.push(false);
                return Err(error);
            }
        }
        entry.count(ctx);
    }
    Ok(())
}

fn alone(ctx: &CommandContext<'_>, entry: &Entry<'_>) -> Result<bool> {
    check_target(ctx, entry)?;
    let Some(change) = DocumentChange::of(ctx, entry)? else { return Ok(true) };
    ctx.store.write(&change.collection, |unit| change.apply(ctx, unit))
}

/// Refuses collections that clients must not write to. Buckets of time series are allowed, because
/// a log contains them.
fn check_target(ctx: &CommandContext<'_>, entry: &Entry<'_>) -> Result<()> {
    let found = ctx.store.collection(&entry.ns);
    match found.is_some_and(|collection| collection.time_series().is_some()) {
        true => Ok(()),
        false => check_writable(&entry.ns),
    }
}

impl Entry<'_> {
    /// Counts it as an operation of the server.
    fn count(&self, ctx: &CommandContext<'_>) {
        match self.kind {
            EntryKind::Insert => ctx.count(OpKind::Insert, 1),
            EntryKind::Update => ctx.count(OpKind::Update, 1),
            EntryKind::Delete => ctx.count(OpKind::Delete, 1),
            EntryKind::Command => ctx.count(OpKind::Command, 1),
            EntryKind::Note => {}
        }
    }
}
