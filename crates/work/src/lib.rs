//! What runs in the server: operations, and what they take of the machine. Processor time is given in turns, memory is counted where it
//! is allocated, temporary files claim their bytes before they are written.
//!
//! * [`OpCtx`] is one operation from its first byte to its reply: deadline, kill flag, counters. [`OpRegistry`] has all of them.
//!   Long loops ask [`OpCtx::check`]; code that is handed no operation counts its work with [`current::spend`].
//! * A watcher thread ([`watch`]) notices operations that keep a thread of the runtime for long, and asks for a turn for them.
//!   Long operations take turns, so that short ones find a processor ([`first_turn`] for those that are expected to be long).
//! * [`memory`] counts the allocations of each thread against the limits of an operation and of the process.
//! * [`scratch`] counts the bytes of temporary files; [`spill`] lists the operators that may write some.
//!
//! The crate decides when an operation has to wait, to leave its thread, or to end. It does not know what operations do, and does
//! no IO: files are written by `runs`, allocators are set by the binary. It is no part of [`mayfly_base`] because most of what stands on
//! errors and names does not run anything.

pub mod current;
pub mod memory;
pub mod op;
mod plan_summary;
pub mod scratch;
pub mod spill;
mod threads;
mod turns;

pub use op::{OpCtx, OpGuard, OpInfo, OpRegistry, Planning};
pub use plan_summary::PlanSummary;
pub use threads::{Keeps, LONG, LONG_BYTES, queued_operations, watch};
pub use turns::{FirstTurn, first_turn};
