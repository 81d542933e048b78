//! The records that a write means: found by a plan, and acted on, one or many at a time.

use mayfly_storage::StoreSession;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ErrorCode, Result};
use mayfly_storage::{Collection, IdKey, RecordKey};

use super::MAX_LOST_RACES;
use crate::exec::{Executor, Flow};
use crate::language::CanonicalQuery;
use crate::memory::Budget;
use crate::plan::Plan;

/// Records looked for at once before they are changed.
const BATCH_RECORDS: usize = 500;
/// Records that a sorted search for one keeps, in case that others take the first ones.
const SORTED_LOOK_AHEAD: u64 = 100;

/// Whether records may be looked for anew when the index that led to them is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Always,
    /// Until one was acted on: a second scan would change what the first has changed once more.
    UntilFirst,
}

/// The records that a write applies to.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w> {
    /// Those that it finds.
    pub(super) query: &'w CanonicalQuery,
    /// All of them, or one.
    pub(super) multi: bool,
    /// Memory and files for the search for all of them.
    pub(super) budget: &'w Budget,
    pub(super) again: Again,
}

/// How a search ended.
enum Searched {
    /// Everything was acted on, or the one that was wanted.
    Done,
    /// All that it found were taken by others, and there may be more behind its limit.
    AllTaken,
}

/// Acts on records: says whether it changed one.
pub(super) type Act<'a> = dyn FnMut(&[RecordKey]) -> Result<bool> + 'a;

/// Calls `act` with the records that the query finds: all of them, many at a time, or one after the other until it says that it
/// acted.
pub(super) fn for_each_record(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    wanted: Wanted<'_>,
    act: &mut Act<'_>,
) -> Result<()> {
    let namespace = collection.namespace();
    let mut acted = false;
    let mut searches_lost = 0;
    loop {
        let mut query = wanted.query.clone();
        if !wanted.multi && query.sort.is_some() {
            query.limit = Some(SORTED_LOOK_AHEAD);
        }
        let searched = search_and_act(session, collection, query, wanted, &mut |keys| {
            let now = act(keys);
            // Of many records some may have been changed before an error.
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
                    && (wanted.again == Again::Always || !acted) =>
            {
                session.op.check()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Acts on the record with this `_id`: on another one when the first is gone by then, and somebody put that in its place.
fn act_by_id(
    session: StoreSession<'_>,
    collection: &Collection,
    id_key: &IdKey,
    act: &mut Act<'_>,
) -> Result<()> {
    // The filter asks for the _id, too: of another record nothing becomes of it.
    let mut before = session.store.hinted(collection, id_key);
    if let Some(key) = &before
        && act(std::slice::from_ref(key))?
    {
        return Ok(());
    }
    while let Some(key) = session.store.locate_key(session.view, collection, id_key)? {
        if before.as_ref() == Some(&key) || act(std::slice::from_ref(&key))? {
            return Ok(());
        }
        before = Some(key);
    }
    Ok(())
}

fn search_and_act(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    query: CanonicalQuery,
    Wanted { multi, budget, .. }: Wanted<'_>,
    act: &mut Act<'_>,
) -> Result<Searched> {
    let limit = query.limit;
    let located = collection.clone();
    let mut executor = Executor::new(session.view, collection.clone(), query)?;
    session.op.update_info(|info| info.plan_summary = executor.plan().summary());
    if let (false, Plan::Id(key)) = (multi, executor.plan().source()) {
        // The write unit reads it and checks the filter; nothing else can match.
        session.op.check()?;
        session.op.keys_examined.fetch_add(1, Ordering::Relaxed);
        session.op.docs_examined.fetch_add(1, Ordering::Relaxed);
        return act_by_id(session, &located, key, act).map(|()| Searched::Done);
    }
    executor.find_for_write();
    if multi && executor.keeps_much() {
        executor.use_budget(budget.clone());
    }
    let most = if multi { BATCH_RECORDS } else { 1 };
    let mut lost_races = 0;
    loop {
        let mut found: Vec<RecordKey> = Vec::new();
        executor.expect(most);
        executor.run(session, &mut |key, document, _| {
            // A sorted result comes without its record's key.
            match (key.is_empty(), document.get("_id")) {
                (true, Some(id)) => {
                    found.extend(session.store.locate(session.view, &located, id)?)
                }
                _ => found.push(key.to_vec()),
            }
            Ok(if found.len() >= most { Flow::Pause } else { Flow::More })
        })?;
        if multi {
            act(&found)?;
        }
        for key in found.iter().filter(|_| !multi) {
            session.op.check()?;
            if act(std::slice::from_ref(key))? {
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
