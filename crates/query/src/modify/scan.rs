//! Finds the records that a write applies to, and acts on them one by one or many at a time.

use mayfly_storage::StoreSession;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ErrorCode, Result};
use mayfly_storage::{Collection, IdKey, RecordKey};
use mayfly_work::PlanSummary;

use super::MAX_LOST_RACES;
use crate::exec::{Executor, Flow};
use crate::language::CanonicalQuery;
use crate::memory::Budget;
use crate::plan::single_id;

/// Records that are found before they are changed together.
const BATCH_RECORDS: usize = 500;
/// Look-ahead of a sorted search for one record, in case other writers take the first ones.
const SORTED_LOOK_AHEAD: u64 = 100;

/// Whether the search may start again when its index is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchAgain {
    Always,
    /// Until a record was changed: a second search would change that record again.
    UntilFirst,
}

/// The records that a write applies to.
#[derive(Clone, Copy)]
pub(super) struct WriteTarget<'w> {
    /// The query that finds them.
    pub(super) query: &'w CanonicalQuery,
    /// Whether the write applies to all of them, or to one.
    pub(super) multi: bool,
    /// Memory and files for the search of a multi-document write.
    pub(super) budget: &'w Budget,
    pub(super) again: SearchAgain,
}

/// How a search ended.
enum Searched {
    /// All records, or the one record, were processed.
    Done,
    /// Other writers took all records that were found; more may follow after the limit of the
    /// search.
    AllTaken,
}

/// The records that a write applies to.
#[derive(Clone, Copy)]
pub(super) enum Found<'f> {
    /// Those with these keys.
    Keys(&'f [RecordKey]),
    /// The one with this `_id`, if there is one: the write unit looks it up.
    Id(&'f IdKey),
}

/// Acts on records. Returns whether it changed one.
pub(super) type Act<'a> = dyn FnMut(Found<'_>) -> Result<bool> + 'a;

/// Calls `act` with the records that the query finds: with all of them, many at a time, or with one
/// after the other until `act` returns true.
pub(super) fn for_each_record(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    target: WriteTarget<'_>,
    act: &mut Act<'_>,
) -> Result<()> {
    let namespace = collection.namespace();
    let mut acted = false;
    let mut searches_lost = 0;
    loop {
        let searched = search_and_act(session, collection, target, &mut |found| {
            let now = act(found);
            // Some of many records may have been changed before the error.
            acted |= !matches!(now, Ok(false));
            now
        });
        match searched {
            Ok(Searched::AllTaken) if searches_lost < MAX_LOST_RACES => {
                searches_lost += 1;
                session.op.check()?;
            }
            Ok(_) => return Ok(()),
            Err(error)
                if error.code() == ErrorCode::QueryPlanKilled
                    && collection.check_still(&namespace).is_ok()
                    && (target.again == SearchAgain::Always || !acted) =>
            {
                session.op.check()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Acts on the record with this `_id`; if it was replaced by another record with that `_id`
/// meanwhile, on that one.
fn act_by_id(
    session: StoreSession<'_>,
    collection: &Collection,
    id_key: &IdKey,
    act: &mut Act<'_>,
) -> Result<()> {
    // The hint may be outdated; the filter contains the `_id`, so no other record is changed.
    let mut before = session.store.hinted(collection, id_key);
    if let Some(key) = &before
        && act(Found::Keys(std::slice::from_ref(key)))?
    {
        return Ok(());
    }
    if session.store.is_remote() {
        return act(Found::Id(id_key)).map(|_| ());
    }
    while let Some(key) = session.store.locate_key(session.view, collection, id_key)? {
        if before.as_ref() == Some(&key) || act(Found::Keys(std::slice::from_ref(&key)))? {
            return Ok(());
        }
        before = Some(key);
    }
    Ok(())
}

fn search_and_act(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    WriteTarget { query, multi, budget, .. }: WriteTarget<'_>,
    act: &mut Act<'_>,
) -> Result<Searched> {
    if !multi && let Some(key) = single_id(collection, query) {
        // The write unit reads the record and checks the filter. No other record can match.
        collection.id_uses.add();
        session.op.update_info(|info| info.plan_summary = PlanSummary::BY_ID);
        session.op.check()?;
        session.op.keys_examined.fetch_add(1, Ordering::Relaxed);
        session.op.docs_examined.fetch_add(1, Ordering::Relaxed);
        return act_by_id(session, collection, &key, act).map(|()| Searched::Done);
    }
    let mut query = query.clone();
    if !multi && query.sort.is_some() {
        query.limit = Some(SORTED_LOOK_AHEAD);
    }
    let limit = query.limit;
    let mut executor = Executor::new(session.view, collection.clone(), query)?;
    session.op.update_info(|info| info.plan_summary = executor.plan().summary());
    executor.find_keys_for_write();
    if multi && executor.buffers_between_batches() {
        executor.use_budget(budget.clone());
    }
    let most = if multi { BATCH_RECORDS } else { 1 };
    let mut lost_races = 0;
    loop {
        let mut found: Vec<RecordKey> = Vec::new();
        executor.expect(most);
        executor.run(session, &mut |key, document, _| {
            // Sorted results have no record key.
            match (key.is_empty(), document.get("_id")) {
                (true, Some(id)) => {
                    found.extend(session.store.locate(session.view, collection, id)?)
                }
                (_, id) => {
                    // The write unit reads the document.
                    let unread = u64::from(id.is_none());
                    session.op.docs_examined.fetch_add(unread, Ordering::Relaxed);
                    found.push(key.to_vec());
                }
            }
            Ok(if found.len() >= most { Flow::Pause } else { Flow::More })
        })?;
        if multi {
            act(Found::Keys(&found))?;
        }
        for key in found.iter().filter(|_| !multi) {
            session.op.check()?;
            if act(Found::Keys(std::slice::from_ref(key)))? {
                return Ok(Searched::Done);
            }
            lost_races += 1;
        }
        if executor.is_done() || (!multi && lost_races > MAX_LOST_RACES) {
            let all_taken = !multi && limit.is_some_and(|limit| lost_races as u64 >= limit);
            return Ok(if all_taken { Searched::AllTaken } else { Searched::Done });
        }
    }
}
