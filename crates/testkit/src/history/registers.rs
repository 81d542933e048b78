//! Converts registers to lists.
//!
//! A transaction reads a register before it writes it, so the value that it read precedes the one
//! that it wrote. All values therefore form a tree, and a read of a value stands for the list of
//! values on the path to it. Under snapshot isolation the tree is a chain, except for values of
//! failed transactions: two committed values after the same one are a lost update.

use std::collections::HashMap;

use super::{Anomaly, Outcome, Step, Transaction};

/// The first list number that stands for a register.
const REGISTERS: u32 = 1 << 31;

/// The history with registers as lists, and the anomalies that the conversion finds.
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
    /// The value before each value.
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

    /// The values of a register up to this one. A value without a writer begins the chain. If two
    /// transactions have read each other's values, a value occurs twice. The check of lists reports
    /// both.
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
