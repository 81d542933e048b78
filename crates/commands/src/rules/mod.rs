//! Rules that apply to every command: rights, transactions, primacy, default concerns, redaction,
//! the audit log, fail points, and expected durations. Rules read a command's row and request; no
//! rule names a command.

pub(crate) mod audit;
pub(crate) mod faults;
pub(crate) mod implied;
pub(crate) mod length;
pub(crate) mod primacy;
pub(crate) mod raw_data;
pub(crate) mod redaction;
pub(crate) mod repeat;
pub(crate) mod rights;
pub(crate) mod transaction;
