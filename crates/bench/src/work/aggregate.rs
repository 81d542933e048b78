//! Pipelines over whole collections: few and many groups, sorts, joins, windows. Each returns a few
//! documents, so that the pipeline is measured and not the reply. The table has the time and the
//! peak memory of the server.
//!
//! They run only when named: over a million documents some take many seconds.

use anyhow::{Context, Result, bail};
use mayfly_value::DocBuilder;
use mayfly_value::extjson::parse_document;

use super::bulk::fill;
use super::{DATABASE, Plan, create_indexes};
use crate::caller::{Turn, caller};
use crate::documents::{GROUPS, ITEMS_PER_KEY, Random};
use crate::figures::{Measured, PEAK};
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch};

const ITEMS: &str = "items";
/// Number of documents whose `$lookup` is run.
const LOOKUPS: u32 = 100_000;
/// Items of the unwound array.
const UNWOUND: u32 = 5;

pub(super) fn group(target: &Target, plan: &Plan) -> Result<Measured> {
    let stages = "{$match: {x: {$gte: 0}}}, {$group: {_id: '$g', total: {$sum: '$x'}}}";
    run(target, plan, stages, plan.documents, GROUPS)
}

/// About two documents per group.
pub(super) fn group_many(target: &Target, plan: &Plan) -> Result<Measured> {
    let keys = (plan.documents / 2).max(1);
    let stages = format!(
        "{{$group: {{_id: {{$mod: ['$y', {keys}]}}, total: {{$sum: '$x'}}}}}}, {{$count: 'n'}}"
    );
    run(target, plan, &stages, plan.documents, 1)
}

pub(super) fn unwind(target: &Target, plan: &Plan) -> Result<Measured> {
    let stages = format!(
        "{{$project: {{x: 1, l: {{$range: [0, {UNWOUND}]}}}}}}, {{$unwind: '$l'}}, \
         {{$group: {{_id: '$l', total: {{$sum: '$x'}}}}}}"
    );
    run(target, plan, &stages, plan.documents, UNWOUND)
}

pub(super) fn sort(target: &Target, plan: &Plan) -> Result<Measured> {
    let skipped = plan.documents.saturating_sub(1).max(1);
    let stages = format!("{{$sort: {{y: 1}}}}, {{$skip: {skipped}}}");
    run(target, plan, &stages, plan.documents, 1)
}

/// Each document finds those with a key.
pub(super) fn lookup(target: &Target, plan: &Plan) -> Result<Measured> {
    let (lookups, found) = (plan.documents.min(LOOKUPS), ITEMS_PER_KEY);
    let stages = format!(
        "{{$limit: {lookups}}}, \
         {{$lookup: {{from: '{ITEMS}', localField: 'k', foreignField: 'k', as: 'found'}}}}, \
         {{$match: {{found: {{$size: {found}}}}}}}, {{$count: 'n'}}"
    );
    run(target, plan, &stages, lookups, 1)
}

pub(super) fn windows(target: &Target, plan: &Plan) -> Result<Measured> {
    let stages = "{$setWindowFields: {partitionBy: '$g', sortBy: {y: 1}, \
         output: {mean: {$avg: '$x', window: {documents: [-9, 0]}}}}}, \
         {$group: {_id: null, greatest: {$max: '$mean'}}}";
    run(target, plan, stages, plan.documents, 1)
}

pub(super) fn facet(target: &Target, plan: &Plan) -> Result<Measured> {
    let stages = "{$facet: {groups: [{$group: {_id: '$g', total: {$sum: '$x'}}}], \
         top: [{$sort: {x: -1}}, {$limit: 10}], all: [{$count: 'n'}]}}";
    run(target, plan, stages, plan.documents, 1)
}

/// Runs a pipeline repeatedly with one client. It reads and returns these numbers of documents.
fn run(
    target: &Target,
    plan: &Plan,
    stages: &str,
    documents: u32,
    answers: u32,
) -> Result<Measured> {
    let pipeline = parse_document(&format!("{{pipeline: [{stages}]}}"));
    let pipeline = pipeline.ok().context("a pipeline of the load cannot be read")?;
    fill(target, ITEMS, plan.documents)?;
    create_indexes(&mut target.client()?, ITEMS, &["k"], None)?;
    target.settle();
    if let Some(process) = target.process {
        process.forget_peak();
    }
    let load = Load::new(plan, 1, |number| {
        let pipeline = pipeline.clone();
        let ask = move |_: &mut Random, request: &mut Request| {
            request.command(|doc: &mut DocBuilder| {
                doc.append("aggregate", ITEMS);
                if let Some(stages) = pipeline.as_doc().get("pipeline") {
                    doc.append("pipeline", stages);
                }
                doc.append("allowDiskUse", true);
                doc.start_document("cursor").append("batchSize", 10_000).end();
                doc.append("$db", DATABASE);
            });
        };
        let random = Random::new(900 + number as u64);
        caller(random, ask, move |_, reply| match first_batch(reply) {
            found if found == answers as usize => Ok(Turn::done(u64::from(documents))),
            found => bail!("{found} documents instead of {answers}"),
        })
    });
    let mut measured = load::run(target, plan, &load)?;
    let peak = target.process.and_then(|process| process.peak_bytes());
    measured.set_known(PEAK, peak.map(|bytes| bytes / 1e6), "MB");
    Ok(measured)
}
