//! Whether clients may write to their databases: `setUserWriteBlockMode`.
//!
//! The check stands where a unit or a change of the catalog commits: there the entry of the log says what is written, whoever
//! the command is. The server's own work goes on: expiry, the databases `admin`, `config` and `local`, and builds of indexes
//! that had begun.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue};
use mayfly_work::current;
use parking_lot::Mutex;

use super::Writer;

/// Why clients may not write; nothing while they may.
#[derive(Default)]
pub(crate) struct UserWriteBlock {
    on: AtomicBool,
    reason: Mutex<String>,
}

/// The reason of who gives none.
const UNSPECIFIED: &str = "Unspecified";

impl Writer {
    /// Keeps clients from writing, or lets them again. When this returns, no write is under way that was let in before.
    ///
    /// # Errors
    /// Those of the operation's deadline, while writes are under way: no more begin all the same.
    pub fn block_user_writes(&self, reason: Option<&str>) -> Result<()> {
        if let Some(reason) = reason {
            reason.clone_into(&mut self.user_block.reason.lock());
        }
        self.user_block.on.store(reason.is_some(), Ordering::SeqCst);
        match reason {
            Some(_) => self.wait_for_writes(),
            None => Ok(()),
        }
    }

    /// Waits until what is under way now is over: whoever commits holds one of these locks.
    fn wait_for_writes(&self) -> Result<()> {
        drop(self.catalog.lock()?);
        let all = self.collections(None);
        all.iter().try_for_each(|collection| collection.change_state().map(drop))
    }

    /// Why clients may not write; nothing while they may.
    pub fn user_writes_blocked(&self) -> Option<String> {
        let on = self.user_block.on.load(Ordering::SeqCst);
        on.then(|| self.user_block.reason.lock().clone())
    }

    /// To be called with the entry of each commit, before it.
    ///
    /// # Errors
    /// 371 UserWritesBlocked.
    #[inline]
    pub(crate) fn check_user_write(&self, entry: RawDoc<'_>) -> Result<()> {
        match self.user_block.on.load(Ordering::SeqCst) {
            false => Ok(()),
            true => self.check_blocked(entry),
        }
    }

    /// To be called before something longer begins that will write to this namespace.
    ///
    /// # Errors
    /// 371 UserWritesBlocked.
    pub(crate) fn check_user_namespace(&self, ns: &str) -> Result<()> {
        match self.user_block.on.load(Ordering::SeqCst) && is_of_users(ns) {
            false => Ok(()),
            true => self.check_client(),
        }
    }

    #[cold]
    fn check_blocked(&self, entry: RawDoc<'_>) -> Result<()> {
        match writes_to_users(entry) {
            false => Ok(()),
            true => self.check_client(),
        }
    }

    fn check_client(&self) -> Result<()> {
        let by_client = current::current().op.is_some_and(|op| op.info().connection_id != 0);
        if !by_client {
            return Ok(());
        }
        let reason = self.user_block.reason.lock();
        let text = match reason.as_str() {
            UNSPECIFIED => "User writes blocked".to_owned(),
            reason => format!("User writes blocked, reason: {reason}"),
        };
        Err(Error::new(ErrorCode::UserWritesBlocked, text))
    }
}

/// Whether an entry of the log writes to a database of users.
fn writes_to_users(entry: RawDoc<'_>) -> bool {
    let text = |document: RawDoc<'_>, name: &str| {
        document.get(name).and_then(RawValue::as_str).is_some_and(is_of_users)
    };
    let is_command = entry.get("op") == Some(RawValue::String("c"));
    let command = entry.get("o").and_then(RawValue::as_document).filter(|_| is_command);
    let Some(command) = command else { return text(entry, "ns") };
    let several = command.get("applyOps").and_then(RawValue::as_array);
    let target = command.iter().next().and_then(|target| target.value().as_str());
    match several {
        Some(entries) => {
            entries.iter().any(|entry| entry.value().as_document().is_some_and(writes_to_users))
        }
        // The server's own record of operations, made or removed.
        None if target == Some("system.profile") => false,
        // A renamed collection may come from another database.
        None => text(entry, "ns") || text(command, "to"),
    }
}

fn is_of_users(ns: &str) -> bool {
    let (db, collection) = ns.split_once('.').unwrap_or((ns, ""));
    !matches!(db, "" | "admin" | "config" | "local") && collection != "system.profile"
}
