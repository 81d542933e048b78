//! Server-side JavaScript, for `$function`, `$accumulator`, `$where` and `mapReduce`.
//!
//! A [`Script`] is the source of one function, or of several that share their globals. Each thread
//! that runs it creates a sandbox for it: an interpreter with an empty heap, in which each function
//! is compiled once. The sandbox is dropped with the script. A script therefore sees its changes of
//! globals for earlier documents, while the same thread continues the same statement. Other
//! statements, and other scripts of the same statement, do not see them.
//!
//! [`ScriptLimits`] limit the memory and the time of a call, and can disable scripts. A script
//! keeps the limits in effect when it was parsed; the stack size is fixed here. The interpreter
//! checks the thread's current operation, so that `maxTimeMS` and `killOp` end an endless loop. It
//! checks once in ten thousand calls and loop iterations; in between, a script that must end gets
//! no more memory (`allocator`), and built-in functions that need none are counted (`prelude.js`).
//! Not interruptible are operators on strings of tens of megabytes (`===`, unary `+`), and
//! converting a `BigInt` of a million bits to a string (four seconds). Scripts have no files,
//! network, modules, or clock except `Date`. The crate does not know operators: they parse their
//! arguments and call [`Script`]. Its unsafe code is in [`allocator`] and [`prelude`].
//!
//! A [`Program`] is another use of the interpreter: a script of an operator, in a shell (`shell`).
//!
//! Values: 32-bit integers and doubles are numbers, and numbers are returned as doubles; a field of
//! a document keeps its integer type while its value is an integer. Other types are objects
//! (`NumberLong`, `ObjectId`, ...) created in `prelude.js`.

mod allocator;
mod from_js;
mod limits;
mod prelude;
mod sandbox;
mod shell;
mod to_js;
mod watch;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, RawDoc, RawValue, ValueBuf};
use mayfly_work::current::current;

pub use limits::ScriptLimits;
pub use shell::{Program, ProgramFailure, ShellHost};

use sandbox::{CallInputs, Sandbox, Source};

/// Sandboxes kept per thread. A statement with more scripts recreates them.
const MAX_SANDBOXES: usize = 16;

thread_local! {
    /// Ordered by last use, the most recent last.
    static SANDBOXES: RefCell<Vec<(Sources, u64, Sandbox)>> = const { RefCell::new(Vec::new()) };
}

type Sources = Arc<[String]>;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A function of a statement, or several that share their globals.
#[derive(Debug)]
pub struct Script {
    id: u64,
    sources: Sources,
    /// The global variables, as a document.
    globals: DocBuf,
    limits: ScriptLimits,
}

impl Script {
    /// A function, given as its source, as an expression, or as the statements of its body.
    /// Compilation is deferred.
    pub fn new(source: &str, limits: ScriptLimits) -> Script {
        Script::of(vec![source.to_owned()], limits)
    }

    /// Functions that share their globals; each is compiled at its first call.
    pub fn of(sources: Vec<String>, limits: ScriptLimits) -> Script {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Script { id, sources: sources.into(), globals: DocBuf::empty(), limits }
    }

    /// Adds global variables. The value of one that contains code is a function.
    #[must_use]
    pub fn with_globals(mut self, globals: DocBuf) -> Script {
        self.globals = globals;
        self
    }

    /// Compiles the function.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure for invalid source.
    pub fn check(&self) -> Result<()> {
        self.with_sandbox(|sandbox| sandbox.compile(self.source(0)))
    }

    /// Calls the function with these arguments.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure for an exception, 50 and 11601 when it must end, 17279 for a result
    /// that is nested too deeply, 10334 for one that is too large.
    pub fn call(&self, arguments: RawDoc<'_>) -> Result<ValueBuf> {
        self.call_at(0, arguments)
    }

    /// Calls the function with this index.
    ///
    /// # Errors
    /// Errors of [`Script::call`].
    pub fn call_at(&self, place: usize, arguments: RawDoc<'_>) -> Result<ValueBuf> {
        let call = CallInputs { this: None, arguments };
        self.with_sandbox(|sandbox| sandbox.call(self.source(place), &call))
    }

    /// Calls the function with this index once for each of `calls`, which are arrays of arguments.
    /// The first argument is the result of the previous call, for the first call `state`. Only the
    /// last result is converted to BSON.
    ///
    /// # Errors
    /// Errors of [`Script::call`].
    pub fn fold(&self, place: usize, state: RawValue<'_>, calls: RawDoc<'_>) -> Result<ValueBuf> {
        self.with_sandbox(|sandbox| sandbox.fold(self.source(place), state, calls))
    }

    /// Calls the function with this index, with a document as `this`. Visits the keys and values
    /// that it passes to `emit`.
    ///
    /// # Errors
    /// Errors of [`Script::call`] and of `visit`.
    pub fn emitted(
        &self,
        place: usize,
        document: RawDoc<'_>,
        visit: &mut dyn FnMut(ValueBuf, ValueBuf) -> Result<()>,
    ) -> Result<()> {
        self.with_sandbox(|sandbox| sandbox.emitted(self.source(place), document, visit))
    }

    /// Calls the function with a document as `this` and `obj`; returns whether the result is
    /// truthy.
    ///
    /// # Errors
    /// Errors of [`Script::call`].
    pub fn holds(&self, document: RawDoc<'_>) -> Result<bool> {
        let call = CallInputs { this: Some(document), arguments: RawDoc::EMPTY };
        self.with_sandbox(|sandbox| sandbox.holds(self.source(0), &call))
    }

    /// Checks that scripts are enabled, for a statement with `$function` or a `mapReduce`.
    ///
    /// # Errors
    /// 31264 when they are disabled.
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
        // The sandbox is not in the list while it runs, so that a panic does not leave an
        // inconsistent one there.
        let kept = SANDBOXES.with_borrow_mut(|sandboxes| {
            let at = sandboxes.iter().position(|(_, id, _)| *id == self.id)?;
            Some(sandboxes.remove(at))
        });
        let sandbox = match kept {
            Some((_, _, sandbox)) => sandbox,
            None => {
                let stored = stored_functions()?;
                Sandbox::new(self.limits, [stored.as_doc(), self.globals.as_doc()])?
            }
        };
        let result = run(&sandbox)?;
        SANDBOXES.with_borrow_mut(|sandboxes| {
            // A sandbox that holds the last reference to its sources belongs to a script that
            // another thread has dropped.
            sandboxes.retain(|(sources, _, _)| Arc::strong_count(sources) > 1);
            if sandboxes.len() >= MAX_SANDBOXES {
                sandboxes.remove(0);
            }
            sandboxes.push((self.sources.clone(), self.id, sandbox));
        });
        Ok(result)
    }
}

/// The functions that the database of the thread's operation stores for scripts.
fn stored_functions() -> Result<DocBuf> {
    let stored = current().op.map(|op| op.stored_functions()).transpose()?.flatten();
    match stored {
        Some(bytes) => Ok(DocBuf::from_bytes(bytes).unwrap_or_else(DocBuf::empty)),
        None => Ok(DocBuf::empty()),
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // A thread that is terminating has dropped its sandboxes, or does so now.
        let _ = SANDBOXES.try_with(|sandboxes| {
            if let Ok(mut sandboxes) = sandboxes.try_borrow_mut() {
                sandboxes.retain(|(_, id, _)| *id != self.id);
            }
        });
    }
}

/// The source of a function in a string, or in code without a scope; `None` for other values.
pub fn source_of(value: RawValue<'_>) -> Option<&str> {
    match value {
        RawValue::String(source) | RawValue::Code(source) => Some(source),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
