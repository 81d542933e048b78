//! Server-side JavaScript: what `$function`, `$accumulator` and `$where` run.
//!
//! A [`Script`] is the source of a function, or of several that work together. Each thread that runs it makes a sandbox for it:
//! an interpreter with an empty heap of its own, in which each function is compiled once. The sandbox is dropped with the script.
//! A script therefore sees what it did to its globals for earlier documents, as long as the same thread continues the same statement.
//! No other statement sees that, and no other script of the same statement.
//!
//! [`ScriptLimits`] bound the memory and the time of a call, and say whether there are scripts at all. A script keeps the limits of the
//! moment when it was parsed; the stack is bounded here. The interpreter asks the thread's current operation whether it may go on, so
//! `maxTimeMS` and `killOp` end a loop without an end. It asks once in ten thousand calls and turns; meanwhile a script that has to
//! end gets no more memory (`allocator`), and built-in functions that need none are counted (`prelude.js`). What neither reaches:
//! operators on texts of tens of megabytes (`===`, unary `+`), and turning a `BigInt` of a million bits into a text (four seconds).
//! There is no file, no network, no module and no clock but `Date`. The crate knows no operators: they read their arguments and call
//! [`Script`]. Its unsafe code is in [`allocator`] and [`prelude`].
//!
//! Values: 32-bit integers and doubles are numbers, and numbers come back as doubles; a field of a document keeps its
//! integer type as long as its value is one. Other types are objects (`NumberLong`, `ObjectId`, ...) made in `prelude.js`.

mod allocator;
mod from_js;
mod limits;
mod prelude;
mod sandbox;
mod to_js;
mod watch;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawValue, ValueBuf};

pub use limits::ScriptLimits;

use sandbox::{Called, Sandbox, Source};

/// Sandboxes that a thread keeps: more scripts than that in one statement take turns.
const MAX_SANDBOXES: usize = 16;

thread_local! {
    /// The most recently used last.
    static SANDBOXES: RefCell<Vec<(Sources, u64, Sandbox)>> = const { RefCell::new(Vec::new()) };
}

type Sources = Arc<[String]>;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A function of a statement, or several that share their globals.
#[derive(Debug)]
pub struct Script {
    id: u64,
    sources: Sources,
    limits: ScriptLimits,
}

impl Script {
    /// A function, as its own source, as an expression, or as the statements of its body. Nothing is compiled yet.
    pub fn new(source: &str, limits: ScriptLimits) -> Script {
        Script::of(vec![source.to_owned()], limits)
    }

    /// Functions that work together; each is compiled when it is first called.
    pub fn of(sources: Vec<String>, limits: ScriptLimits) -> Script {
        Script { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), sources: sources.into(), limits }
    }

    /// Compiles it now.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure for what is no JavaScript.
    pub fn check(&self) -> Result<()> {
        self.with_sandbox(|sandbox| sandbox.compile(self.source(0)))
    }

    /// Calls it with these arguments.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure for what it throws, 50 and 11601 when it has to end, 17279 for a result without an end,
    /// 10334 for one that is too large.
    pub fn call(&self, arguments: RawDoc<'_>) -> Result<ValueBuf> {
        self.call_at(0, arguments)
    }

    /// Calls the function at this place.
    ///
    /// # Errors
    /// As [`Script::call`].
    pub fn call_at(&self, place: usize, arguments: RawDoc<'_>) -> Result<ValueBuf> {
        let call = Called { this: None, arguments };
        self.with_sandbox(|sandbox| sandbox.call(self.source(place), &call))
    }

    /// Calls the function at this place once for each of `calls`, which are arrays of arguments. Each call gets the result of the
    /// previous one in front of its arguments, the first call `state`. Only the last result is converted to a value.
    ///
    /// # Errors
    /// As [`Script::call`].
    pub fn fold(&self, place: usize, state: RawValue<'_>, calls: RawDoc<'_>) -> Result<ValueBuf> {
        self.with_sandbox(|sandbox| sandbox.fold(self.source(place), state, calls))
    }

    /// Calls it on a document, as `this` and `obj`, and asks whether the result counts as true.
    ///
    /// # Errors
    /// As [`Script::call`].
    pub fn holds(&self, document: RawDoc<'_>) -> Result<bool> {
        let call = Called { this: Some(document), arguments: RawDoc::EMPTY };
        self.with_sandbox(|sandbox| sandbox.holds(self.source(0), &call))
    }

    /// The error of a statement with `$function` where there are no scripts.
    ///
    /// # Errors
    /// 31264.
    pub fn check_enabled(&self) -> Result<()> {
        if self.limits.enabled {
            return Ok(());
        }
        let text = "Cannot run server-side javascript without the javascript engine enabled";
        Err(Error::new(ErrorCode(31264), text))
    }

    fn source(&self, place: usize) -> Source<'_> {
        Source { place, text: self.sources.get(place).map_or("", String::as_str) }
    }

    fn with_sandbox<T>(&self, run: impl FnOnce(&Sandbox) -> Result<T>) -> Result<T> {
        // The sandbox is out of the list while it runs: a panic or an interruption does not leave it there half-done.
        let kept = SANDBOXES.with_borrow_mut(|sandboxes| {
            let at = sandboxes.iter().position(|(_, id, _)| *id == self.id)?;
            Some(sandboxes.remove(at))
        });
        let sandbox = match kept {
            Some((_, _, sandbox)) => sandbox,
            None => Sandbox::new(self.limits)?,
        };
        let result = run(&sandbox)?;
        SANDBOXES.with_borrow_mut(|sandboxes| {
            // A sandbox that holds the last reference to its sources belongs to a script that another thread has dropped.
            sandboxes.retain(|(sources, _, _)| Arc::strong_count(sources) > 1);
            if sandboxes.len() >= MAX_SANDBOXES {
                sandboxes.remove(0);
            }
            sandboxes.push((self.sources.clone(), self.id, sandbox));
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

/// Whether the value can be the source of a function: a string, or code without a scope.
pub fn source_of(value: RawValue<'_>) -> Option<&str> {
    match value {
        RawValue::String(source) | RawValue::Code(source) => Some(source),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
