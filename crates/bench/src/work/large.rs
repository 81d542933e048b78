//! Large documents: each is inserted and then read back; one operation of two requests.

use anyhow::{Result, bail};
use mayfly_value::{DocBuilder, RawDoc};

use super::{DATABASE, Plan, drop_collection, fresh_collection, logged};
use crate::caller::{Caller, Turn};
use crate::documents::Random;
use crate::figures::{Measured, RATE};
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch};

const LARGE: &str = "large";

pub(super) fn hundred_kilobytes(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, 100_000)
}

pub(super) fn ten_megabytes(target: &Target, plan: &Plan) -> Result<Measured> {
    run(target, plan, 10_000_000)
}

fn run(target: &Target, plan: &Plan, size: usize) -> Result<Measured> {
    fresh_collection(&mut target.client()?, LARGE)?;
    let load = Load::new(plan, 1, |number| Box::new(Large::new(number as i32, size)));
    let mut measured = load::run(target, plan, &load)?;
    drop_collection(&mut target.client()?, LARGE)?;
    let rate = measured.get(RATE).unwrap_or(0.0);
    // Each document is sent twice: by the insert and by the find.
    measured.set("throughput", rate * 2.0 * size as f64 / 1e6, "MB/s");
    Ok(measured)
}

/// A caller that inserts and reads alternately.
struct Large {
    document: Vec<u8>,
    number: i32,
    id: i32,
    inserted: bool,
}

impl Large {
    fn new(number: i32, size: usize) -> Large {
        let mut random = Random::new(1100 + number as u64);
        let mut doc = DocBuilder::new();
        doc.append("_id", 0).append("text", random.text(size - 100).as_str());
        let document = doc.finish().into_bytes();
        Large { document, number, id: 0, inserted: false }
    }
}

impl Caller for Large {
    fn ask(&mut self, request: &mut Request) {
        if self.inserted {
            request.command(|doc| {
                doc.append("find", LARGE).start_document("filter").append("_id", self.id).end();
                doc.append("limit", 1).append("singleBatch", true).append("$db", DATABASE);
            });
            return;
        }
        // Connections use different numbers.
        self.id = (self.number << 20) + (self.id & 0xF_FFFF) + 1;
        // Length, type, name with its end.
        let place = 4 + 1 + 4;
        self.document[place..place + 4].copy_from_slice(&self.id.to_le_bytes());
        request.command(|doc| {
            doc.append("insert", LARGE);
            logged(doc);
        });
        request.sequence("documents", &self.document);
    }

    fn answer(&mut self, reply: RawDoc<'_>) -> Result<Turn> {
        self.inserted = !self.inserted;
        if self.inserted {
            return Ok(Turn::Again);
        }
        match (first_batch(reply), reply.as_bytes().len() >= self.document.len()) {
            (1, true) => Ok(Turn::wrote(1, self.document.len() as u64)),
            _ => bail!("a large document was not found"),
        }
    }
}
