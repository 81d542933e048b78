//! Brings a parsed pipeline into one that gives the same and does less: filters go to the front, where indexes serve them, and so do
//! limits; stages are told what those behind them want.
//!
//! A rule looks at stages by their types and by what they say about fields ([`crate::stage::Effect`], [`crate::stage::Reads`]). A
//! new one is a file and a row of a table here. Stages that no rule names are left where they are, and nothing goes past them.

#![allow(clippy::ptr_arg, reason = "all rules have one shape")]

mod counts;
mod filters;
mod joins;
mod needs;
mod redactions;
mod sorts;
mod time_series;
mod unions;

#[cfg(test)]
mod tests;

pub(crate) use needs::kept_by_front_sort;

use crate::stage::{Around, Step};

/// Rewritings of one pipeline. Each brings a stage nearer to the front or removes one, so the end comes by itself.
const MAX_REWRITINGS: usize = 10_000;

/// Looks at two neighbours, the second of which stands there, and may put others into their place; whether it did.
type Pair = fn(&mut Vec<Step>, usize) -> bool;

/// The rules for neighbours; the first that fits is applied, until none does.
const PAIRS: &[Pair] = &[
    filters::merge,
    counts::merge_limits,
    counts::merge_skips,
    counts::pass_one_for_one,
    sorts::pass_joins,
    unions::filter_both_sides,
    filters::push,
];

/// Looks at all stages once; whether it changed their order.
type Whole = fn(&mut Vec<Step>) -> bool;

/// The rules for whole pipelines, in this order.
const WHOLE: &[Whole] = &[
    redactions::filter_before,
    time_series::ask_buckets,
    time_series::ask_stored_buckets,
    sorts::limit,
    joins::fold,
    needs::narrow,
];

/// The pipeline that runs.
pub(crate) fn optimised(mut steps: Vec<Step>, around: &Around<'_>) -> Vec<Step> {
    if !around.optimises() {
        return steps;
    }
    rewrite(&mut steps);
    for rule in WHOLE {
        if rule(&mut steps) {
            rewrite(&mut steps);
        }
    }
    steps
}

/// Applies the rules for neighbours.
fn rewrite(steps: &mut Vec<Step>) {
    let (mut at, mut left) = (1, MAX_REWRITINGS);
    while at < steps.len() {
        if left > 0 && PAIRS.iter().any(|rule| rule(steps, at)) {
            left -= 1;
            // What stands there now may fit what stands before it.
            at = at.saturating_sub(1).max(1);
        } else {
            at += 1;
        }
    }
}
