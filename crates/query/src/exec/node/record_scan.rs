//! `COLLSCAN`, and range scans of clustered collections.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_storage::{Direction, KeyRange, RecordKey, ScanLimit, ScanResult};

use super::text::scored;
use super::{Batch, CHUNK_ENTRIES, Counters, LARGE_BYTES, Node, Progress, Row, Rows};
use crate::exec::tail::{Tail, check_position};
use crate::language::metadata::Metadata;
use crate::plan::RecordScan;

pub(super) struct Scan {
    /// The ranges left to scan, the current one first.
    ranges: VecDeque<KeyRange>,
    direction: Direction,
    /// The position of a tailable scan.
    tail: Option<Tail>,
    /// Whether the collection is capped, so that the last returned record may be gone in the next
    /// batch.
    capped: bool,
    /// For a capped collection, the last record of a batch; the next batch continues after it.
    position: Option<RecordKey>,
    counters: Counters,
}

impl Scan {
    pub(super) fn new(scan: &RecordScan, tail: Option<Tail>, capped: bool) -> Scan {
        let ranges = scan.ranges.iter().cloned().collect();
        let (direction, counters) = (scan.direction, Counters::default());
        Scan { ranges, direction, tail, capped, position: None, counters }
    }
}

impl Node for Scan {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (snapshot, op) = (batch.snapshot()?, batch.session.op);
        if let Some(tail) = &self.tail
            && let Some(rest) = tail.rest(snapshot, batch.collection)?
        {
            self.ranges = VecDeque::from([rest]);
        }
        if let Some(last) = self.position.take() {
            check_position(snapshot, batch.collection, &last)?;
        }
        let search = batch.query.matcher.text().map(|text| text.bound()).transpose()?;
        let (tail, counters, direction) = (&mut self.tail, &mut self.counters, self.direction);
        while let Some(range) = self.ranges.front_mut() {
            op.check()?;
            let mut examined = 0u64;
            let mut stopped = false;
            let see = &mut |key: &[u8], document: mayfly_value::RawDoc<'_>| {
                examined += 1;
                if let Some(tail) = tail.as_mut() {
                    tail.examined(key);
                }
                if examined.is_multiple_of(CHUNK_ENTRIES as u64)
                    || document.as_bytes().len() > LARGE_BYTES
                {
                    op.check()?;
                }
                stopped = !batch.spend(1);
                if !batch.matches(document)? {
                    return Ok(match stopped {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    });
                }
                counters.returned += 1;
                let flow = match &search {
                    None => rows(&Row::read(key, document, &Metadata::NONE))?,
                    Some(search) => rows(&Row::read(key, document, &scored(search, document)?))?,
                };
                stopped |= flow.is_break();
                Ok(if stopped { ControlFlow::Break(()) } else { flow })
            };
            let limit = ScanLimit::page(batch.page());
            let scanned = snapshot.scan_records(batch.collection, range, direction, limit, see)?;
            batch.count(0, examined);
            counters.documents += examined;
            counters.examined += examined;
            match scanned {
                ScanResult::Exhausted => {
                    self.ranges.pop_front();
                }
                ScanResult::Paused(last) => {
                    *range = range.after(&last, direction);
                    if stopped && self.capped {
                        self.position = Some(last);
                    }
                }
            }
            if stopped {
                return Ok(Progress::Stopped);
            }
        }
        if self.tail.as_ref().is_some_and(Tail::is_alive) {
            return Ok(Progress::Waiting);
        }
        self.counters.over = true;
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }
}
