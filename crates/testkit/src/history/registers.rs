//! Registers as lists.
//!
//! A register is only written by who has read it before, in the same transaction: the value that it
//! read is the one before. All values that may ever have been there are thus a tree, and what a
//! read saw is the list of values on the way to it. Under snapshot isolation the tree is a chain,
//! but for values whose transactions failed: two committed values after the same one are a lost
//! update.

use std::collections::HashMap;

use super::{Anomaly, Outcome, Step, Transaction};

/// Names of registers among those of lists.
const REGISTERS: u32 = 1 << 31;

/// The history without registers, and what of them is wrong already.
pub(super) fn as_lists(history: &[Transaction]) -> (Vec<Transaction>, Vec<Anomaly>) {
    let mut registers = Registers::default();
    for (at, transaction) in history.iter().enumerate() {
        registers.note(at, transaction);
    }
    let convert = |transaction: &Transaction| {
        let mut steps = Vec::with_capacity(transaction.steps.len());
        for step in &transaction.steps {
            steps.push(match step {
                Step::Append { .. } | Step::Read { .. } => step.clone(),
                Step::Write { key, value } => Step::Append { key: key | REGISTERS, value: *value },
                Step::Get { key, value } => {
                    Step::Read { key: key | REGISTERS, values: registers.way_to(*value) }
                }
            });
        }
        Transaction { steps, ..*transaction }
    };
    let lists = history.iter().map(convert).collect();
    (lists, registers.anomalies)
}

#[derive(Default)]
struct Registers {
    /// What was there before a value.
    before: HashMap<u64, Option<u64>>,
    /// The transaction that committed a value after this one, and its value.
    behind: HashMap<(u32, Option<u64>), (usize, u64)>,
    anomalies: Vec<Anomaly>,
}

impl Registers {
    fn note(&mut self, at: usize, transaction: &Transaction) {
        let mut seen: HashMap<u32, Option<u64>> = HashMap::new();
        for step in &transaction.steps {
            match *step {
                Step::Get { key, value } => {
                    seen.insert(key, value);
                }
                Step::Write { key, value } => {
                    let before = seen.insert(key, Some(value)).flatten();
                    self.before.insert(value, before);
                    if transaction.outcome == Outcome::Ok
                        && let Some((other, written)) =
                            self.behind.insert((key, before), (at, value))
                    {
                        let text = format!(
                            "transactions {other} and {at} wrote {written} and {value} to register {key} behind {before:?}"
                        );
                        self.anomalies.push(Anomaly { kind: "lost update", text });
                    }
                }
                Step::Append { .. } | Step::Read { .. } => {}
            }
        }
    }

    /// The values of a register up to this one. A value without a writer begins the chain; where
    /// two transactions read each other's, a value stands there twice. The check of lists reports
    /// either.
    fn way_to(&self, value: Option<u64>) -> Vec<u64> {
        let mut way: Vec<u64> = Vec::new();
        let mut next = value;
        while let Some(value) = next {
            let circle = way.contains(&value);
            way.push(value);
            next = self.before.get(&value).copied().flatten().filter(|_| !circle);
        }
        way.reverse();
        way
    }
}
