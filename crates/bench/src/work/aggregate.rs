//! A join over everything. It answers with a handful of documents, so that the pipeline is
//! measured; the table has the time and the largest memory of the server meanwhile.

use anyhow::{Context, Result, bail};
use mayfly_value::DocBuilder;
use mayfly_value::extjson::parse_document;

use super::bulk::fill;
use super::{DATABASE, Plan, create_indexes};
use crate::caller::{Turn, caller};
use crate::documents::{ITEMS_PER_KEY, Random};
use crate::figures::{Measured, PEAK};
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch};

const ITEMS: &str = "items";
/// Documents that look up others.
const LOOKUPS: u32 = 100_000;

/// Each finds the documents of a key.
pub(super) fn lookup(target: &Target, plan: &Plan) -> Result<Measured> {
    let (lookups, found) = (plan.documents.min(LOOKUPS), ITEMS_PER_KEY);
    let stages = format!(
        "{{$limit: {lookups}}}, \
         {{$lookup: {{from: '{ITEMS}', localField: 'k', foreignField: 'k', as: 'found'}}}}, \
         {{$match: {{found: {{$size: {found}}}}}}}, {{$count: 'n'}}"
    );
    run(target, plan, &stages, lookups, 1)
}

/// Runs a pipeline again and again with one client. It takes so many documents and answers with so
/// many.
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
