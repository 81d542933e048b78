//! What the kind of a collection's ids costs: ascending ObjectIds, UUIDs as strings. Loads of a
//! fixed number of documents of 1.15 KB, look-ups, expiry, and the memory that the server holds
//! after all of it.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, bail};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::bulk::LONG_AGO_MS;
use super::ttl::{await_fewer, monitor};
use super::{DATABASE, Plan, create_indexes, fresh_collection, logged};
use crate::caller::{Caller, Done, Turn, caller};
use crate::client::Client;
use crate::documents::{Random, pooled};
use crate::figures::{Measured, PEAK, RATE, SERVER, Stopwatch};
use crate::latency::Recorder;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch};

const COLLECTION: &str = "ids";
/// Documents per command.
const BATCH: u32 = 1000;
/// Text that makes a document 1,150 bytes long.
const TEXT_BYTES: usize = 1055;
const DOCUMENT_BYTES: u64 = 1150;

/// What documents have as their `_id`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// As drivers make them: ascending.
    Object,
    /// A random UUID as text.
    Uuid,
}

impl Ids {
    fn append(self, number: u32, doc: &mut DocBuilder) {
        match self {
            Ids::Object => {
                let mut bytes = [7; 12];
                bytes[..4].copy_from_slice(&(1_700_000_000 + number / 1000).to_be_bytes());
                bytes[8..].copy_from_slice(&number.to_be_bytes());
                doc.append("_id", RawValue::ObjectId(bytes));
            }
            Ids::Uuid => {
                doc.append("_id", uuid(number).as_str());
            }
        }
    }
}

/// The same UUID for a number each time.
fn uuid(number: u32) -> String {
    let mut random = Random::new(u64::from(number).wrapping_mul(0xD129_0AD7_53F4_2B4D));
    let (a, b) = (random.next(), random.next());
    let (time, rest) = (a >> 32, a as u32);
    format!(
        "{time:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        rest >> 16,
        rest & 0xFFF,
        b >> 48,
        b << 16 >> 16
    )
}

/// Inserts documents of these numbers; what the commands took.
fn fill(client: &mut Client, ids: Ids, numbers: Range<u32>) -> Result<Recorder> {
    let mut recorder = Recorder::new()?;
    let (mut random, mut batch) = (Random::new(17), Vec::new());
    for first in numbers.clone().step_by(BATCH as usize) {
        let end = (first + BATCH).min(numbers.end);
        batch.clear();
        for number in first..end {
            let mut doc = DocBuilder::new();
            ids.append(number, &mut doc);
            doc.append("at", RawValue::Date(LONG_AGO_MS + i64::from(number)));
            doc.append("g", random.below(1000) as i32);
            doc.append("text", pooled(TEXT_BYTES, &mut random));
            batch.extend_from_slice(doc.finish().as_bytes());
        }
        client.prepare(|request| {
            request.command(|doc| {
                doc.append("insert", COLLECTION);
                logged(doc);
            });
            request.sequence("documents", &batch);
        });
        let asked = Instant::now();
        client.send()?;
        client.receive()?;
        let done = Done { count: u64::from(end - first), bytes: batch.len() as u64 };
        recorder.record(asked, Instant::now(), done);
    }
    Ok(recorder)
}

/// Looks documents up by their ids, all equally often.
fn reader(ids: Ids, documents: u32, seed: u64) -> Box<dyn Caller> {
    let ask = move |random: &mut Random, request: &mut Request| {
        request.command(|doc| {
            doc.append("find", COLLECTION).start_document("filter");
            ids.append(random.below(documents), doc);
            doc.end().append("limit", 1).append("singleBatch", true).append("$db", DATABASE);
        });
    };
    let answer = |_: &mut Random, reply: RawDoc<'_>| match first_batch(reply) {
        1 => Ok(Turn::done(1)),
        _ => bail!("a document is missing"),
    };
    caller(Random::new(seed), ask, answer)
}

/// A load of so many documents, and look-ups by their ids.
fn measure(target: &Target, plan: &Plan, ids: Ids, documents: u32) -> Result<Measured> {
    let mut client = target.client()?;
    fresh_collection(&mut client, COLLECTION)?;
    target.settle();
    let watch = Stopwatch::start(target);
    let recorder = fill(&mut client, ids, 0..documents)?;
    let (count, bytes) = (recorder.done.count, recorder.done.bytes);
    let (seconds, mut measured) = watch.stop(count);
    measured.set_load(seconds, recorder);
    watch.settle(&mut measured, count, bytes);
    let find = load::run(target, plan, &Load::new(plan, 4, |n| reader(ids, documents, n as u64)))?;
    measured.set_known("find", find.get(SERVER), "us");
    Ok(measured)
}

pub(super) fn object(target: &Target, plan: &Plan) -> Result<Measured> {
    measure(target, plan, Ids::Object, plan.start_documents)
}

pub(super) fn uuid_text(target: &Target, plan: &Plan) -> Result<Measured> {
    measure(target, plan, Ids::Uuid, plan.start_documents)
}

/// Deletion of half as many documents that are due, with two indexes. The oplog still has the
/// inserts of the last of them.
fn expire(target: &Target, plan: &Plan, ids: Ids) -> Result<Measured> {
    let documents = plan.start_documents / 2;
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    fresh_collection(&mut client, COLLECTION)?;
    create_indexes(&mut client, COLLECTION, &["at", "g"], Some(("at", 0)))?;
    fill(&mut client, ids, 0..documents)?;
    target.settle();
    monitor(&mut client, true)?;
    // The sleep before the pass does not count.
    await_fewer(&mut client, COLLECTION, documents - 1)?;
    let watch = Stopwatch::start(target);
    let left = await_fewer(&mut client, COLLECTION, documents)?;
    await_fewer(&mut client, COLLECTION, 0)?;
    let (seconds, mut measured) = watch.stop(u64::from(left));
    monitor(&mut client, false)?;
    measured.set(RATE, f64::from(left) / seconds, "/s");
    watch.settle(&mut measured, u64::from(left), u64::from(left) * DOCUMENT_BYTES);
    Ok(measured)
}

pub(super) fn expire_object(target: &Target, plan: &Plan) -> Result<Measured> {
    expire(target, plan, Ids::Object)
}

pub(super) fn expire_uuid(target: &Target, plan: &Plan) -> Result<Measured> {
    expire(target, plan, Ids::Uuid)
}

/// A load by random ids, two scans, two builds of an index: the memory that the server holds, and
/// what the builds cost.
pub(super) fn memory(target: &Target, plan: &Plan) -> Result<Measured> {
    let documents = plan.start_documents / 2 * 5;
    let mut client = target.client()?;
    if let Some(process) = target.process {
        process.forget_peak();
    }
    fresh_collection(&mut client, COLLECTION)?;
    fill(&mut client, Ids::Uuid, 0..documents)?;
    for _ in 0..2 {
        client.run(|doc| {
            doc.append("count", COLLECTION).start_document("query").append("text", "absent").end();
            doc.append("$db", DATABASE);
        })?;
    }
    target.settle();
    let mut measured = Measured::default();
    for (field, figure) in [("g", "build of g"), ("at", "build of at")] {
        let watch = Stopwatch::start(target);
        create_indexes(&mut client, COLLECTION, &[field], None)?;
        let (seconds, cost) = watch.stop(u64::from(documents));
        measured.set_known(figure, cost.get(SERVER), "us");
        if field == "g" {
            measured.set("seconds of a build", seconds, "s");
        }
        watch.settle(&mut measured, u64::from(documents), 0);
    }
    let peak = target.process.and_then(|process| process.peak_bytes());
    measured.set_known(PEAK, peak.map(|bytes| bytes / 1e6), "MB");
    Ok(measured)
}
