//! The open transactions, and the names that they have looked up.
//!
//! A change of a definition that would invalidate what a transaction has read or written waits for
//! the transactions that have looked the name up ([`OpenTransactions::await_end`]):
//!
//! 1. It collects their numbers, with no lock of the catalog held, so that their statements and
//!    commits can continue.
//! 2. It waits until each of them has ended, at most until the operation's deadline. A transaction
//!    ends by itself when its lifetime is over.
//! 3. It takes its locks. It does not wait for a transaction that has looked the name up since step
//!    1; otherwise a stream of transactions would delay the change for ever. Such a transaction
//!    ends with 246.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Namespace, Result};
use mayfly_work::current;
use parking_lot::{Condvar, Mutex};

/// All open transactions.
#[derive(Default)]
pub(crate) struct OpenTransactions {
    list: Mutex<List>,
    ended: Condvar,
}

#[derive(Default)]
struct List {
    last_number: u64,
    open: Vec<OpenTransactionEntry>,
}

struct OpenTransactionEntry {
    number: u64,
    names: Vec<Namespace>,
}

/// An entry of the list; dropping it removes the transaction.
pub(crate) struct OpenTransactionGuard {
    transactions: Arc<OpenTransactions>,
    number: u64,
}

impl OpenTransactions {
    /// Adds a transaction that begins.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenTransactionGuard {
        let mut list = self.list.lock();
        list.last_number += 1;
        let number = list.last_number;
        list.open.push(OpenTransactionEntry { number, names: Vec::new() });
        OpenTransactionGuard { transactions: self.clone(), number }
    }

    /// Waits for the end of the transactions that have looked one of the names up so far.
    ///
    /// # Errors
    /// Errors of the operation's deadline.
    pub(crate) fn await_end(&self, names: &[Namespace]) -> Result<()> {
        let before = self.transactions_that_use(names);
        match before.is_empty() {
            true => Ok(()),
            false => current::acquire(|longest| self.have_ended(&before, longest).then_some(())),
        }
    }

    /// Whether a transaction has looked one of the names up.
    pub(crate) fn concern(&self, names: &[Namespace]) -> bool {
        !self.transactions_that_use(names).is_empty()
    }

    fn transactions_that_use(&self, names: &[Namespace]) -> Vec<u64> {
        let list = self.list.lock();
        let concerned =
            |open: &&OpenTransactionEntry| open.names.iter().any(|name| names.contains(name));
        list.open.iter().filter(concerned).map(|open| open.number).collect()
    }

    /// Waits for these transactions; returns whether all of them ended in time.
    fn have_ended(&self, numbers: &[u64], longest: Duration) -> bool {
        let mut list = self.list.lock();
        let waits = |list: &mut List| list.open.iter().any(|open| numbers.contains(&open.number));
        !self.ended.wait_while_for(&mut list, waits, longest).timed_out() || !waits(&mut list)
    }
}

impl OpenTransactionGuard {
    /// Notes that the transaction has looked the name up.
    pub(crate) fn looks_up(&self, name: &Namespace) {
        let mut list = self.transactions.list.lock();
        if let Some(open) = list.open.iter_mut().find(|open| open.number == self.number) {
            open.names.push(name.clone());
        }
    }
}

impl Drop for OpenTransactionGuard {
    fn drop(&mut self) {
        let mut list = self.transactions.list.lock();
        list.open.retain(|open| open.number != self.number);
        self.transactions.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> Namespace {
        Namespace::new("test", of).unwrap()
    }

    #[test]
    fn a_change_waits_for_operations_that_use_the_name() {
        let all: Arc<OpenTransactions> = Arc::default();
        let (first, other, late) = (all.begin(), all.begin(), all.begin());
        first.looks_up(&name("a"));
        other.looks_up(&name("b"));
        assert!(all.concern(&[name("a")]) && !all.concern(&[name("c")]) && !all.concern(&[]));
        let before = all.transactions_that_use(&[name("a"), name("c")]);
        late.looks_up(&name("a"));
        assert!(!all.have_ended(&before, Duration::ZERO));
        let waiting = std::thread::spawn({
            let all = all.clone();
            move || all.have_ended(&before, Duration::from_secs(30))
        });
        drop(first);
        assert!(waiting.join().unwrap());
        drop(late);
        all.await_end(&[name("a")]).unwrap();
        drop(other);
        assert!(all.list.lock().open.is_empty());
    }
}
