//! Blocks clients' writes to their databases: `setUserWriteBlockMode`.
//!
//! The check is made at the commit of a unit or of a catalog change, because the log entry has the
//! namespaces whatever the command is. The server's own work continues: expiry, the databases
//! `admin`, `config` and `local`, and index builds that had begun.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue};
use mayfly_work::current;
use parking_lot::Mutex;

use super::Writer;

/// Whether clients' writes are blocked, and why.
#[derive(Default)]
pub(crate) struct UserWriteBlock {
    on: AtomicBool,
    reason: Mutex<String>,
}

/// The reason of a block without a reason.
const UNSPECIFIED: &str = "Unspecified";

impl Writer {
    /// Blocks clients' writes, or allows them again. When this returns, no write that began before
    /// is under way.
    ///
    /// # Errors
    /// Errors of the operation's deadline while writes are under way; the block is in force anyway.
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

    /// Waits for the end of writes under way: each commit holds one of these locks.
    fn wait_for_writes(&self) -> Result<()> {
        drop(self.catalog.lock()?);
        let all = self.collections(None);
        all.iter().try_for_each(|collection| collection.change_state().map(drop))
    }

    /// The reason of the block; `None` without a block.
    pub fn user_writes_blocked(&self) -> Option<String> {
        let on = self.user_block.on.load(Ordering::SeqCst);
        on.then(|| self.user_block.reason.lock().clone())
    }

    /// Checks the log entry of a commit before it.
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

    /// Checks a namespace before a longer operation that will write to it.
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
        // The server's own record of operations, created or dropped.
        None if target == Some("system.profile") => false,
        // A renamed collection may come from another database.
        None => text(entry, "ns") || text(command, "to"),
    }
}

fn is_of_users(ns: &str) -> bool {
    let (db, collection) = ns.split_once('.').unwrap_or((ns, ""));
    !matches!(db, "" | "admin" | "config" | "local") && collection != "system.profile"
}
