//! The optimiser rewrites a parsed pipeline to one with the same results and less work: filters
//! move to the front, where indexes serve them, and so do limits; stages get information about the
//! needs of later ones.
//!
//! A rule inspects stages by type, and by the fields that they read and change
//! ([`crate::stage::Effect`], [`crate::stage::Reads`]). A new rule is a file and a row of a table
//! here. Stages that no rule mentions stay in place, and no other stage moves past them.

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

use crate::stage::{PipelineContext, Step};

/// Limit on the rewrites of one pipeline. Each rewrite moves a stage to the front or removes one,
/// so the limit is never reached in practice.
const MAX_REWRITINGS: usize = 10_000;

/// A rule for a stage at an index and the one before it. Returns whether it rewrote them.
type Pair = fn(&mut Vec<Step>, usize) -> bool;

/// The rules for adjacent stages. The first that applies is used, until none does.
const PAIRS: &[Pair] = &[
    filters::merge,
    counts::merge_limits,
    counts::merge_skips,
    counts::pass_one_for_one,
    sorts::pass_joins,
    unions::filter_both_sides,
    filters::push,
];

/// A rule for a whole pipeline. Returns whether it changed the order of stages.
type Whole = fn(&mut Vec<Step>) -> bool;

/// The rules for whole pipelines, in the order of execution.
const WHOLE: &[Whole] = &[
    redactions::filter_before,
    time_series::ask_buckets,
    time_series::ask_stored_buckets,
    sorts::limit,
    joins::fold,
    needs::narrow,
];

/// Returns the optimised pipeline.
pub(crate) fn optimised(mut steps: Vec<Step>, context: &PipelineContext<'_>) -> Vec<Step> {
    if !context.optimises() {
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

/// Applies the rules for adjacent stages.
fn rewrite(steps: &mut Vec<Step>) {
    let (mut at, mut left) = (1, MAX_REWRITINGS);
    while at < steps.len() {
        if left > 0 && PAIRS.iter().any(|rule| rule(steps, at)) {
            left -= 1;
            // The new stage may match a rule with the stage before it.
            at = at.saturating_sub(1).max(1);
        } else {
            at += 1;
        }
    }
}
