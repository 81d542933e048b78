//! Whether a command may run, and what commands demand whose rights depend on their arguments.

pub(crate) mod check;
pub(crate) mod demands;

pub(crate) use demands::is_set;
