//! The core workloads A to F of YCSB, over records of ten fields of 100 bytes.
//!
//! The frequency of keys follows Zipf's law, and frequent keys are spread over the key space; D
//! prefers the newest records. D and E insert, so each run of them has a new collection. F reads a
//! record and then changes a field of it: one operation of two requests.

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
const CONNECTIONS: usize = 4;
/// Longest scan of E.
const MAX_SCAN: u32 = 100;
/// The number of newest records whose inserts may be under way.
const NEWEST: u32 = 1000;

/// The numbers of inserts, updates and so on in 100 operations; the others are reads.
#[derive(Clone, Copy, Default)]
struct Mix {
    updates: u32,
    inserts: u32,
    scans: u32,
    modifies: u32,
    /// Whether reads prefer the newest records.
    latest: bool,
}

const READS: Mix = Mix { updates: 0, inserts: 0, scans: 0, modifies: 0, latest: false };

pub(super) fn a(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, RECORDS, Mix { updates: 50, ..READS })
}

pub(super) fn b(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, RECORDS, Mix { updates: 5, ..READS })
}

pub(super) fn c(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, RECORDS, READS)
}

pub(super) fn d(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, GROWING, Mix { inserts: 5, latest: true, ..READS })
}

pub(super) fn e(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, GROWING, Mix { inserts: 5, scans: 95, ..READS })
}

/// The same over more records, so that a cache for a sixth of them is possible (`--server-arg
/// --cacheSizeGB=0.4`).
pub(super) fn e_large(target: &Target, plan: &Plan) -> Result<Measured> {
    e(target, &Plan { records: plan.start_documents, ..plan.clone() })
}

pub(super) fn f(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, RECORDS, Mix { modifies: 50, ..READS })
}

fn run(target: &Target, plan: &Plan, collection: &'static str, mix: Mix) -> Result<Measured> {
    load_records(target, collection, plan.records)?;
    let (zipf, newest) = (Zipf::new(plan.records)?, Arc::new(AtomicU32::new(plan.records)));
    let load = Load::new(plan, CONNECTIONS, |number| {
        Box::new(Asker {
            collection,
            mix,
            zipf,
            newest: Arc::clone(&newest),
            random: Random::new(800 + number as u64),
            record: Record::new(),
            asked: Asked::Read(0),
        })
    });
    let measured = load::run(target, plan, &load)?;
    if collection == GROWING {
        drop_collection(&mut target.client()?, GROWING)?;
    }
    Ok(measured)
}

/// The caller of a connection.
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

/// The request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Read(u32),
    /// A write of this many bytes.
    Write(usize),
    Update(usize),
    /// A scan of at most this many records.
    Scan(u32),
    /// The read of this record before its write.
    ReadToModify(u32),
    /// The record was read; the write is next.
    Modify(u32),
}

impl Caller for Asker {
    fn ask(&mut self, request: &mut Request) {
        if let Asked::Modify(number) = self.asked {
            self.asked = self.update(request, number);
            return;
        }
        let number = self.choose();
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
            if falls(mix.modifies) { Asked::ReadToModify(number) } else { Asked::Read(number) }
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
            Asked::Read(number) | Asked::ReadToModify(number) | Asked::Modify(number) => {
                let newest = self.newest.load(Ordering::Relaxed);
                if first_batch(reply) != 1 && number < newest.saturating_sub(NEWEST) {
                    bail!("record {number} was not found");
                }
                if matches!(self.asked, Asked::ReadToModify(_)) {
                    self.asked = Asked::Modify(number);
                    return Ok(Turn::Again);
                }
                Ok(Turn::done(1))
            }
        }
    }
}

impl Asker {
    fn choose(&mut self) -> u32 {
        if self.mix.latest {
            let newest = self.newest.load(Ordering::Relaxed);
            newest.saturating_sub(1 + self.zipf.rank(&mut self.random))
        } else {
            self.zipf.scrambled(&mut self.random)
        }
    }

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
        let updates = asked(Mix { updates: 50, ..READS });
        let updates = updates.iter().filter(|asked| matches!(asked, Asked::Update(_))).count();
        assert!((1900..2100).contains(&updates), "{updates}");
    }

    #[test]
    fn a_modify_reads_before_it_writes() {
        let mut asker = Asker {
            collection: "c",
            mix: Mix { modifies: 100, ..READS },
            zipf: Zipf::new(100).unwrap(),
            newest: Arc::new(AtomicU32::new(100)),
            random: Random::new(1),
            record: Record::new(),
            asked: Asked::Read(0),
        };
        let mut request = Request::default();
        asker.ask(&mut request);
        let Asked::ReadToModify(number) = asker.asked else { panic!("{:?}", asker.asked) };
        asker.newest.store(0, Ordering::Relaxed);
        assert_eq!(asker.answer(RawDoc::EMPTY).unwrap(), Turn::Again);
        assert_eq!(asker.asked, Asked::Modify(number));
        asker.ask(&mut request);
        assert!(matches!(asker.asked, Asked::Update(100)));
    }
}
