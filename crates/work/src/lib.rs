//! Scheduling and resource accounting: operations, and the processor time, memory and disk space
//! they use. Long operations share the processors through scheduler slots (turns), memory is
//! counted where it is allocated, and temporary files claim their bytes before they are written.
//! The README of the crate describes the rules with an example.
//!
//! * [`OpCtx`] is one operation from its first byte to its reply: deadline, kill flag, counters.
//!   [`OpRegistry`] lists all of them. Long loops call [`OpCtx::check`]; code that receives no
//!   operation counts its work with [`current::spend`].
//! * A watcher thread ([`watch`]) finds operations that occupy a thread of the runtime for long,
//!   and makes them wait for a turn. Operations that are expected to be long wait for a
//!   [`first_turn`] before they start.
//! * [`memory`] counts the allocations of each thread against the limits of an operation and of the
//!   process.
//! * [`scratch`] counts the bytes of temporary files; [`spill`] lists the operators that may spill.
//!
//! The crate decides when an operation waits, leaves its thread, or fails. It does not know
//! commands and does no IO: files are written by `runs`, allocators are set by the binary. It is
//! separate from [`mayfly_base`] because most users of errors and names do not run operations.

pub mod current;
mod library;
pub mod memory;
pub mod op;
mod op_info;
mod plan_summary;
mod planning;
mod priority;
mod registry;
pub mod scratch;
pub mod spill;
mod threads;
mod turns;
mod waker;

pub use library::ScriptLibrary;
pub use op::{OpCtx, OpInfo};
pub use plan_summary::PlanSummary;
pub use planning::{PlanTime, PlanTimer, Planning, time_plans};
pub use priority::give_way;
pub use registry::{OpGuard, OpRegistry, WaitingOp};
pub use threads::{LONG, LONG_BYTES, ThreadOccupancy, queued_operations, slots, watch};
pub use turns::{FirstTurn, SlotCounts, first_turn};
pub use waker::thread_waker;
