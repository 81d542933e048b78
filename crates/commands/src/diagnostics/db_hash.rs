//! `dbHash`: a hash of the documents of each collection, in the order of `_id`. Two databases with
//! equal documents have equal hashes.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, Result};
use mayfly_storage::{Collection, Direction, ScanLimit, ScanResult, whole_range};
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use md5::{Digest, Md5};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads, RowFlags};
use crate::request::{Needs, Request};

pub(super) const ROW: Command = Command::new("dbHash", "Hashes the documents of a database", run)
    .needs(Needs::Database(&[Action::DbHash]))
    .aliases(&["dbhash"])
    .flags(RowFlags::LENIENT)
    .reads(Reads::DEFAULTS.union(Reads::COMMITTED))
    .expected(Expected::Long);

/// Collections that only concern this server.
const SKIPPED: &[&str] = &["system.profile"];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let began = ctx.service.clock.monotonic_micros();
    let selected = selected_names(request.body)?;
    let mut collections: Vec<(String, Arc<Collection>)> = ctx
        .service
        .store
        .collections(Some(request.db))
        .into_iter()
        .map(|collection| (collection.namespace().collection().to_owned(), collection))
        .filter(|(name, _)| !SKIPPED.contains(&name.as_str()))
        .filter(|(name, _)| selected.is_empty() || selected.contains(&name.as_str()))
        .collect();
    collections.sort_by(|a, b| a.0.cmp(&b.0));
    let mut all = Md5::new();
    reply.append("host", ctx.service.host.as_str()).start_document("collections");
    for (name, collection) in &collections {
        let hash = hash(ctx, collection)?;
        all.update(hash.as_bytes());
        reply.append(name, hash.as_str());
    }
    reply.end().start_array("capped");
    for (name, _) in collections.iter().filter(|(_, collection)| collection.capped().is_some()) {
        reply.push(name.as_str());
    }
    reply.end().start_document("uuids");
    for (name, collection) in &collections {
        reply.append(name, RawValue::uuid(&collection.uuid()));
    }
    reply.end().append("md5", hex::encode(all.finalize()).as_str());
    let millis = (ctx.service.clock.monotonic_micros() - began) / 1000;
    reply.append("timeMillis", i32::try_from(millis).unwrap_or(i32::MAX));
    Ok(())
}

/// The names in `collections`; an empty list selects all.
fn selected_names(body: RawDoc<'_>) -> Result<Vec<&str>> {
    let Some(RawValue::Array(names)) = body.get("collections") else { return Ok(Vec::new()) };
    let mut selected = Vec::new();
    for name in names {
        match name.value() {
            RawValue::String(name) => selected.push(name),
            _ => return Err(Error::bad_value("collections entries have to be strings")),
        }
    }
    Ok(selected)
}

/// The hash of the documents in one snapshot, in the order of `_id`, or of insertion in a capped
/// collection.
fn hash(ctx: &CommandContext<'_>, collection: &Collection) -> Result<String> {
    let snapshot = ctx.store.snapshot()?;
    let (mut digest, mut range) = (Md5::new(), whole_range());
    let by_id = collection.id_index().filter(|_| collection.capped().is_none());
    let mut documents = 0u64;
    loop {
        let (direction, all) = (Direction::Forward, ScanLimit::NONE);
        let mut take = |document: RawDoc<'_>| {
            digest.update(document.as_bytes());
            documents += 1;
            if documents.is_multiple_of(1024) { ctx.op.check() } else { Ok(()) }
        };
        let scanned = match &by_id {
            None => {
                snapshot.scan_records(collection, &range, direction, all, &mut |_, document| {
                    take(document).map(ControlFlow::Continue)
                })
            }
            Some(index) => snapshot.scan_index(index, &range, direction, all, &mut |entry| {
                snapshot.record(collection, entry.record_key, &mut take)?;
                Ok(ControlFlow::Continue(()))
            }),
        };
        match scanned? {
            ScanResult::Exhausted => return Ok(hex::encode(digest.finalize())),
            ScanResult::Paused(last) => range = range.after(&last, direction),
        }
    }
}
