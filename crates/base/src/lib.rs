//! What every other crate stands on: error codes and [`Error`], [`Namespace`]s, [`limits`], the [`Clock`],
//! and the [`OpCtx`] that accompanies every operation.
//!
//! Nothing here does IO, knows BSON or spawns anything. The system clock is read in [`clock`] and nowhere else.

mod client_data;
pub mod clock;
mod codes;
pub mod current;
mod error;
pub mod limits;
pub mod memory;
mod namespace;
pub mod op;
pub mod scratch;
pub mod spill;
mod threads;
mod turns;

pub use client_data::{ClientData, HIDDEN, is_client_data_redacted, redact_client_data};
pub use clock::{Clock, ManualClock, SystemClock};
pub use codes::ErrorCode;
pub use error::{Error, ErrorLabel, Result};
pub use namespace::Namespace;
pub use op::{OpCtx, OpGuard, OpInfo, OpRegistry, Planning};
pub use threads::{Keeps, LONG, queued_operations, watch};
pub use turns::{FirstTurn, first_turn};
