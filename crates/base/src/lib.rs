//! The foundation of all other crates: error codes and [`Error`], [`Namespace`]s, [`limits`], the
//! [`Clock`], and the redaction of client data in the log.
//!
//! Nothing here does IO, depends on BSON, or spawns threads. The system clock is read in [`clock`]
//! and nowhere else.

mod client_data;
pub mod clock;
mod codes;
mod error;
pub mod limits;
mod namespace;
pub mod testing;

pub use client_data::{ClientData, HIDDEN, is_client_data_redacted, redact_client_data};
pub use clock::{Clock, ManualClock, SystemClock};
pub use codes::ErrorCode;
pub use error::{Error, ErrorLabel, Result};
pub use namespace::Namespace;
