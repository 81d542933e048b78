//! Writing: units over one collection, what follows from them at the commit, transactions of several statements.

mod pending;
mod transaction;
mod unit;
mod within;

pub(crate) use pending::{Effects, Pending};
pub(crate) use transaction::with_open;
pub use transaction::{
    COMMIT_STATEMENT, EnteredTransaction, OpenTransaction, TransactionOwner, TransactionSize,
    in_transaction,
};
pub use unit::WriteUnit;
pub use within::Together;
