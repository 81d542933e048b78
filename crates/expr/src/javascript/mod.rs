//! Server-side JavaScript: what `$function` and `$where` run.
//!
//! A [`Script`] is a function's source. Each thread that runs it makes a sandbox for it: an interpreter with an empty heap of
//! its own, in which the function is compiled once and which goes with the script. So a script sees what it did to its
//! globals for the documents before, as long as the same thread goes on with the same statement, and nothing of it is
//! visible to another statement, not even to another script of the same one.
//!
//! What a call may take is in [`ScriptLimits`](mayfly_base::current::ScriptLimits): memory, time, and whether there are
//! scripts at all; the stack is bounded here. The interpreter asks the thread's current operation whether it may go on, so
//! `maxTimeMS` and `killOp` end a loop without an end. There is no file, no network, no module and no clock but `Date`.
//!
//! Values: 32-bit integers and doubles are numbers, and numbers come back as doubles; a field of a document keeps its
//! integer type as long as its value is one. Other types are objects (`NumberLong`, `ObjectId`, ...) made in `prelude.js`.

mod from_js;
mod sandbox;
mod to_js;
mod watch;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::current::current;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue, ValueBuf};

use sandbox::{Called, Sandbox};

/// Sandboxes that a thread keeps: more scripts than that in one statement take turns.
const MAX_SANDBOXES: usize = 4;

thread_local! {
    /// The most recently used last.
    static SANDBOXES: RefCell<Vec<(Arc<str>, u64, Sandbox)>> = const { RefCell::new(Vec::new()) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A function of a statement.
#[derive(Debug)]
pub struct Script {
    id: u64,
    source: Arc<str>,
}

impl Script {
    /// A function, as its own source, as an expression, or as the statements of its body. Nothing is compiled yet.
    pub fn new(source: &str) -> Script {
        Script { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), source: source.into() }
    }

    /// What it was made of.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Compiles it now.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure for what is no JavaScript.
    pub fn check(&self) -> Result<()> {
        self.with_sandbox(|_| Ok(()))
    }

    /// Calls it with these arguments.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure for what it throws, 50 and 11601 when it has to end, 17279 for a result without an end,
    /// 10334 for one that is too large.
    pub fn call(&self, arguments: RawDoc<'_>) -> Result<ValueBuf> {
        let call = Called { this: None, arguments };
        self.with_sandbox(|sandbox| sandbox.call(&call))
    }

    /// Calls it on a document, as `this` and `obj`, and asks whether the result counts as true.
    ///
    /// # Errors
    /// As [`Script::call`].
    pub fn holds(&self, document: RawDoc<'_>) -> Result<bool> {
        let call = Called { this: Some(document), arguments: RawDoc::EMPTY };
        self.with_sandbox(|sandbox| sandbox.holds(&call))
    }

    fn with_sandbox<T>(&self, run: impl FnOnce(&Sandbox) -> Result<T>) -> Result<T> {
        // The sandbox is out of the list while it runs: a panic or an interruption does not leave it there half-done.
        let kept = SANDBOXES.with_borrow_mut(|sandboxes| {
            let at = sandboxes.iter().position(|(_, id, _)| *id == self.id)?;
            Some(sandboxes.remove(at))
        });
        let sandbox = match kept {
            Some((_, _, sandbox)) => sandbox,
            None => Sandbox::new(&self.source, &current().scripts)?,
        };
        let result = run(&sandbox)?;
        SANDBOXES.with_borrow_mut(|sandboxes| {
            // Who holds the only reference to a source was left behind by a script that another thread dropped.
            sandboxes.retain(|(source, _, _)| Arc::strong_count(source) > 1);
            if sandboxes.len() >= MAX_SANDBOXES {
                sandboxes.remove(0);
            }
            sandboxes.push((self.source.clone(), self.id, sandbox));
        });
        Ok(result)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // A thread that ends has dropped its sandboxes, or does so now.
        let _ = SANDBOXES.try_with(|sandboxes| {
            if let Ok(mut sandboxes) = sandboxes.try_borrow_mut() {
                sandboxes.retain(|(_, id, _)| *id != self.id);
            }
        });
    }
}

/// The error of a statement with `$function` where there are no scripts.
///
/// # Errors
/// 31264.
pub(crate) fn check_enabled() -> Result<()> {
    if current().scripts.enabled {
        return Ok(());
    }
    let text = "Cannot run server-side javascript without the javascript engine enabled";
    Err(Error::new(ErrorCode(31264), text))
}

/// Whether the value can be the source of a function: a string, or code without a scope.
pub(crate) fn source_of(value: RawValue<'_>) -> Option<&str> {
    match value {
        RawValue::String(source) | RawValue::Code(source) => Some(source),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
