//! The check whether a command may run, and the rights of commands that depend on their arguments.

pub(crate) mod check;
pub(crate) mod demands;

pub(crate) use demands::is_set;
