//! Searches: the best ten of two words, the nearest ten vectors, a search after each insert.

use std::time::Duration;

use anyhow::{Result, bail};
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::query::ask_again;
use super::{DATABASE, Plan, document_count, fresh_collection};
use crate::caller::{Turn, caller};
use crate::client::Client;
use crate::documents::Random;
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch};
use crate::zipf::Zipf;

const TEXTS: &str = "search_texts";
const VECTORS: &str = "search_vectors";
/// Documents in one insert.
const BATCH: u32 = 1_000;
/// Different words, and words of a document, which make it 370 bytes long.
const WORDS: u32 = 50_000;
const WORDS_EACH: usize = 50;
/// The searched words are among those that many documents have.
const SEARCHED: u32 = 2_000;
const DIMENSIONS: usize = 128;
/// Independent directions of the vectors, as embeddings have few.
const DIRECTIONS: usize = 24;
const NEAREST: u32 = 10;
const CANDIDATES: i32 = 100;
/// Searches whose results are compared with exact ones.
const COMPARED: u32 = 50;
/// How often the state of an index is asked for while it is built.
const PAUSE: Duration = Duration::from_millis(20);

/// Fills a collection by this function, and builds its search index.
fn prepare(
    target: &Target,
    plan: &Plan,
    (name, kind): (&str, &str),
    define: impl Fn(&mut DocBuilder),
    mut document: impl FnMut(&mut DocBuilder, &mut Random),
) -> Result<()> {
    let mut client = target.client()?;
    if document_count(&mut client, name)? < plan.documents {
        fresh_collection(&mut client, name)?;
        let mut random = Random::new(77);
        for first in (0..plan.documents).step_by(BATCH as usize) {
            client.run(|doc| {
                doc.append("insert", name).start_array("documents");
                for id in first..(first + BATCH).min(plan.documents) {
                    doc.push_document().append("_id", id as i32);
                    document(doc, &mut random);
                    doc.end();
                }
                doc.end().append("$db", DATABASE);
            })?;
        }
    }
    client.run(|doc| {
        doc.append("createSearchIndexes", name).start_array("indexes").push_document();
        doc.append("name", "default").append("type", kind).start_document("definition");
        define(doc);
        doc.end().end().end().append("$db", DATABASE);
    })?;
    await_ready(&mut client, name)?;
    target.settle();
    Ok(())
}

fn await_ready(client: &mut Client, name: &str) -> Result<()> {
    loop {
        let reply = client.run(|doc| {
            doc.append("listSearchIndexes", name).append("$db", DATABASE);
        })?;
        let cursor = reply.get("cursor").and_then(RawValue::as_document);
        let list = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
        let is_ready = |index: RawDoc<'_>| index.get("status") == Some(RawValue::String("READY"));
        let mut indexes = list.iter().flat_map(|list| list.iter());
        if indexes.all(|index| index.value().as_document().is_some_and(is_ready)) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

fn prepare_texts(target: &Target, plan: &Plan) -> Result<()> {
    let words = Zipf::new(WORDS)?;
    let define = |doc: &mut DocBuilder| {
        doc.start_document("mappings").start_document("fields");
        doc.start_document("t").append("type", "string").end().end().end();
    };
    prepare(target, plan, (TEXTS, "search"), define, |doc, random| {
        let text: Vec<String> =
            (0..WORDS_EACH).map(|_| format!("w{:05}", words.rank(random))).collect();
        doc.append("t", text.join(" ").as_str());
    })
}

fn search_words(random: &mut Random, doc: &mut DocBuilder, criteria: &str) {
    let word = |random: &mut Random| format!("w{:05}", random.below(SEARCHED));
    let query = format!("{} {}", word(random), word(random));
    doc.append("aggregate", TEXTS).start_array("pipeline");
    doc.push_document().start_document("$search").start_document("text");
    doc.append("path", "t").append("query", query.as_str()).append("matchCriteria", criteria);
    doc.end().end().end();
    doc.push_document().append("$limit", NEAREST as i32).end();
    doc.push_document().start_document("$project").append("_id", 1).end().end().end();
    doc.start_document("cursor").end();
}

pub(super) fn any_word(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare_texts(target, plan)?;
    ask_again(target, plan, |random, doc| search_words(random, doc, "any"), |_| Ok(1))
}

pub(super) fn all_words(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare_texts(target, plan)?;
    ask_again(target, plan, |random, doc| search_words(random, doc, "all"), |_| Ok(1))
}

/// Vectors near to a plane of a few directions.
struct Embeddings(Vec<[f32; DIMENSIONS]>);

impl Embeddings {
    fn new() -> Embeddings {
        let mut random = Random::new(5);
        let direction = |random: &mut Random| std::array::from_fn(|_| normal(random));
        Embeddings((0..DIRECTIONS).map(|_| direction(&mut random)).collect())
    }

    /// The bytes of a BinData vector of floats.
    fn next(&self, random: &mut Random) -> Vec<u8> {
        let mut vector: [f32; DIMENSIONS] = std::array::from_fn(|_| 0.3 * normal(random));
        for direction in &self.0 {
            let weight = normal(random);
            vector.iter_mut().zip(direction).for_each(|(sum, part)| *sum += weight * part);
        }
        let mut bytes = vec![0x27, 0];
        vector.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes
    }
}

/// About normally distributed.
fn normal(random: &mut Random) -> f32 {
    (0..6).map(|_| random.below(1 << 16) as f32 / f32::from(u16::MAX) - 0.5).sum::<f32>() * 1.4
}

fn binary(bytes: &[u8]) -> RawValue<'_> {
    RawValue::Binary { subtype: BinarySubtype::Vector.into(), bytes }
}

fn nearest(doc: &mut DocBuilder, vector: &[u8], is_exact: bool) {
    doc.append("aggregate", VECTORS).start_array("pipeline");
    doc.push_document().start_document("$vectorSearch");
    doc.append("index", "default").append("path", "v").append("queryVector", binary(vector));
    doc.append("limit", NEAREST as i32);
    match is_exact {
        true => doc.append("exact", true),
        false => doc.append("numCandidates", CANDIDATES),
    };
    doc.end().end();
    doc.push_document().start_document("$project").append("_id", 1).end().end().end();
    doc.start_document("cursor").end();
}

pub(super) fn vectors(target: &Target, plan: &Plan) -> Result<Measured> {
    let embeddings = Embeddings::new();
    let define = |doc: &mut DocBuilder| {
        doc.start_array("fields").push_document().append("type", "vector").append("path", "v");
        doc.append("numDimensions", DIMENSIONS as i32).append("similarity", "cosine");
        doc.append("quantization", "none").end().end();
    };
    prepare(target, plan, (VECTORS, "vectorSearch"), define, |doc, random| {
        doc.append("v", binary(&embeddings.next(random)));
    })?;
    let mut client = target.client()?;
    let (mut found, mut random) = (0, Random::new(9));
    for _ in 0..COMPARED {
        let vector = embeddings.next(&mut random);
        let exact = ids(&mut client, &vector, true)?;
        let near = ids(&mut client, &vector, false)?;
        found += near.iter().filter(|id| exact.contains(id)).count();
    }
    let load = Load::new(plan, 1, |number| {
        let embeddings = Embeddings::new();
        let ask = move |random: &mut Random, request: &mut Request| {
            let vector = embeddings.next(random);
            request.command(|doc| {
                nearest(doc, &vector, false);
                doc.append("$db", DATABASE);
            });
        };
        caller(Random::new(500 + number as u64), ask, move |_, reply| match first_batch(reply) {
            0 => bail!("no vectors were found"),
            _ => Ok(Turn::done(1)),
        })
    });
    let mut measured = load::run(target, plan, &load)?;
    let recall = found as f64 / f64::from(COMPARED * NEAREST);
    measured.set("recall", recall, "");
    Ok(measured)
}

fn ids(client: &mut Client, vector: &[u8], is_exact: bool) -> Result<Vec<i32>> {
    let reply = client.run(|doc| {
        nearest(doc, vector, is_exact);
        doc.append("$db", DATABASE);
    })?;
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let list = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    let id = |document: RawValue<'_>| match document.as_document()?.get("_id") {
        Some(RawValue::Int32(id)) => Some(id),
        _ => None,
    };
    Ok(list.iter().flat_map(|list| list.iter()).filter_map(|item| id(item.value())).collect())
}

/// An insert, and a search that must find it; by turns.
pub(super) fn insert_and_search(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare_texts(target, plan)?;
    // The collection may have the words of an earlier run.
    let run: u32 = rand::random();
    let load = Load::new(plan, 1, |_| {
        let ask = move |next: &mut u32, request: &mut Request| {
            let word = format!("fresh{run}x{}", *next / 2);
            let is_search = *next % 2 == 1;
            *next += 1;
            request.command(|doc| {
                if is_search {
                    doc.append("aggregate", TEXTS).start_array("pipeline").push_document();
                    doc.start_document("$search").start_document("text").append("path", "t");
                    doc.append("query", word.as_str()).end().end().end().end();
                    doc.start_document("cursor").end();
                } else {
                    doc.append("insert", TEXTS).start_array("documents").push_document();
                    doc.append("t", word.as_str()).end().end();
                }
                doc.append("$db", DATABASE);
            });
        };
        caller(0_u32, ask, move |next, reply| match (*next % 2, first_batch(reply)) {
            (0, 1) => Ok(Turn::done(1)),
            (0, found) => bail!("{found} documents instead of the one that was inserted"),
            _ => Ok(Turn::done(0)),
        })
    });
    load::run(target, plan, &load)
}
