//! The core workloads A and E of YCSB, over records of ten fields of 100 bytes.
//!
//! Requests follow Zipf's law, scattered over the keys. E inserts, so it has a collection of its
//! own that begins anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};
use mayfly_value::RawDoc;

use super::point::{RECORDS, ask_record, ask_update, load_records, one_updated, set_some_field};
use super::{DATABASE, Plan, drop_collection, logged};
use crate::caller::{Caller, Turn};
use crate::documents::{Random, Record, record_id};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch};
use crate::zipf::Zipf;

const GROWING: &str = "records_growing";
pub(super) const CONNECTIONS: usize = 4;
/// Longest scan of E.
const MAX_SCAN: u32 = 100;
/// So many of the newest records may still be on their way.
const NEWEST: u32 = 1000;

/// How many of 100 operations are what; the others are reads.
#[derive(Clone, Copy, Default)]
struct Mix {
    updates: u32,
    inserts: u32,
    scans: u32,
}

const READS: Mix = Mix { updates: 0, inserts: 0, scans: 0 };
const MIX_OF_A: Mix = Mix { updates: 50, ..READS };

pub(super) fn a(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, RECORDS, MIX_OF_A)
}

/// The records that A asks for.
pub(super) fn load(target: &Target, plan: &Plan) -> Result<()> {
    load_records(target, RECORDS, plan.records)
}

/// Makes the connections of A, by their number, for a load that does more than A.
pub(super) fn askers_of_a(plan: &Plan) -> Result<impl Fn(usize) -> Box<dyn Caller> + use<>> {
    askers(plan, RECORDS, MIX_OF_A)
}

pub(super) fn e(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, GROWING, Mix { inserts: 5, scans: 95, ..READS })
}

/// The same over so many records that a cache of a sixth of them can be had (`--server-arg
/// --cacheSizeGB=0.4`).
pub(super) fn e_large(target: &Target, plan: &Plan) -> Result<Measured> {
    e(target, &Plan { records: plan.start_documents, ..plan.clone() })
}

fn run(target: &Target, plan: &Plan, collection: &'static str, mix: Mix) -> Result<Measured> {
    load_records(target, collection, plan.records)?;
    let load = Load::new(plan, CONNECTIONS, askers(plan, collection, mix)?);
    let measured = load::run(target, plan, &load)?;
    if collection == GROWING {
        drop_collection(&mut target.client()?, GROWING)?;
    }
    Ok(measured)
}

fn askers(
    plan: &Plan,
    collection: &'static str,
    mix: Mix,
) -> Result<impl Fn(usize) -> Box<dyn Caller> + use<>> {
    let (zipf, newest) = (Zipf::new(plan.records)?, Arc::new(AtomicU32::new(plan.records)));
    Ok(move |number| -> Box<dyn Caller> {
        Box::new(Asker {
            collection,
            mix,
            zipf,
            newest: Arc::clone(&newest),
            random: Random::new(800 + number as u64),
            record: Record::new(),
            asked: Asked::Read(0),
        })
    })
}

/// One of the connections.
struct Asker {
    collection: &'static str,
    mix: Mix,
    zipf: Zipf,
    /// The number after the newest record's.
    newest: Arc<AtomicU32>,
    random: Random,
    record: Record,
    asked: Asked,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Read(u32),
    /// So many bytes.
    Write(usize),
    Update(usize),
    /// At most so many.
    Scan(u32),
}

impl Caller for Asker {
    fn ask(&mut self, request: &mut Request) {
        let number = self.zipf.scrambled(&mut self.random);
        let mut dice = self.random.below(100);
        let mut falls = |share: u32| {
            let hit = dice < share;
            dice = dice.wrapping_sub(share);
            hit
        };
        let mix = self.mix;
        self.asked = if falls(mix.updates) {
            self.update(request, number)
        } else if falls(mix.inserts) {
            self.insert(request)
        } else if falls(mix.scans) {
            self.scan(request, number)
        } else {
            ask_record(request, self.collection, number);
            Asked::Read(number)
        };
    }

    fn answer(&mut self, reply: RawDoc<'_>) -> Result<Turn> {
        match self.asked {
            Asked::Write(bytes) => Ok(Turn::wrote(1, bytes as u64)),
            Asked::Update(bytes) => {
                one_updated(reply)?;
                Ok(Turn::wrote(1, bytes as u64))
            }
            Asked::Scan(limit) => match first_batch(reply) as u32 {
                found if (1..=limit).contains(&found) => Ok(Turn::done(1)),
                found => bail!("{found} documents instead of {limit}"),
            },
            Asked::Read(number) => {
                let newest = self.newest.load(Ordering::Relaxed);
                if first_batch(reply) != 1 && number < newest.saturating_sub(NEWEST) {
                    bail!("record {number} was not found");
                }
                Ok(Turn::done(1))
            }
        }
    }
}

impl Asker {
    fn update(&mut self, request: &mut Request, number: u32) -> Asked {
        let random = &mut self.random;
        let change = |doc: &mut mayfly_value::DocBuilder| set_some_field(doc, random);
        Asked::Update(ask_update(request, self.collection, number, change))
    }

    fn insert(&mut self, request: &mut Request) -> Asked {
        let number = self.newest.fetch_add(1, Ordering::Relaxed);
        let document = self.record.renew(number, &mut self.random);
        request.command(|doc| {
            doc.append("insert", self.collection);
            logged(doc);
        });
        request.sequence("documents", document);
        Asked::Write(document.len())
    }

    fn scan(&mut self, request: &mut Request, number: u32) -> Asked {
        let limit = 1 + self.random.below(MAX_SCAN);
        request.command(|doc| {
            doc.append("find", self.collection).start_document("filter").start_document("_id");
            doc.append("$gte", record_id(number).as_str()).end().end();
            doc.append("limit", limit as i32).append("$db", DATABASE);
        });
        Asked::Scan(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mix: Mix) -> Vec<Asked> {
        let mut asker = Asker {
            collection: "c",
            mix,
            zipf: Zipf::new(100).unwrap(),
            newest: Arc::new(AtomicU32::new(100)),
            random: Random::new(1),
            record: Record::new(),
            asked: Asked::Read(0),
        };
        let mut request = Request::default();
        let ask = |_| {
            request.clear();
            asker.ask(&mut request);
            asker.asked
        };
        (0..4000).map(ask).collect()
    }

    #[test]
    fn the_mix_is_what_it_says() {
        let all = asked(Mix { inserts: 5, scans: 95, ..READS });
        let inserts = all.iter().filter(|asked| matches!(asked, Asked::Write(_))).count();
        let lengths: Vec<u32> = all
            .iter()
            .filter_map(|asked| match asked {
                Asked::Scan(limit) => Some(*limit),
                _ => None,
            })
            .collect();
        assert!((140..260).contains(&inserts), "{inserts}");
        assert_eq!(lengths.len() + inserts, all.len());
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
        let updates = asked(MIX_OF_A);
        let updates = updates.iter().filter(|asked| matches!(asked, Asked::Update(_))).count();
        assert!((1900..2100).contains(&updates), "{updates}");
    }
}
