//! Writing: units over one collection, what follows from them at the commit, transactions of several statements.

mod pending;
mod unit;
mod within;

pub(crate) use pending::{Effects, Pending};
pub(crate) use unit::Expiring;
pub use unit::WriteUnit;
pub use within::Together;
