//! Documents in the order of their distance from a point.
//!
//! The index is searched region by region of the sphere or the plane, always in the region that may
//! be nearest. A region with many entries is divided, one with few is scanned. Found documents wait
//! with their distances, and are returned when no remaining region can contain a nearer one. A
//! document is returned as it was found, in whichever batch that is, so order and distances are
//! consistent. Waiting documents are kept in memory up to the limit of a sort, and beyond that in a
//! file.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_geo::{Geometry, Origin, RegionRange, SearchRegion};
use mayfly_mql::matcher::NearSearch;
use mayfly_runs::{Placed, Shelf};
use mayfly_storage::kinds::plane::PlaneIndex;
use mayfly_storage::{
    Direction, Entry, KeyRange, RecordKey, RecordKeys, ScanLimit, ScanResult, Snapshot,
};
use mayfly_value::paths::{Hit, LeafArrays, visit_path_with};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::{Batch, CHUNK_ENTRIES, Counters, Node, Progress, ReadPurpose, Row, Rows};
use crate::language::metadata::{GEO_NEAR_DISTANCE, GEO_NEAR_POINT, Metadata};
use crate::memory::{Budget, SeenRecords, Share, into_document, no_disk_use};
use crate::plan::{NearAccess, extend, key_range, of_cells, of_squares};

/// Approximate memory of a waiting document beyond its bytes.
const WAITING_BYTES: usize = 128;
/// A region with more entries is divided, one with fewer is scanned.
const FEW_ENTRIES: usize = 64;

/// A found document with its distance.
#[derive(Debug)]
struct FoundDocument {
    distance: f64,
    record: RecordKey,
    document: DocumentLocation,
}

/// Where a found document is kept.
#[derive(Debug)]
enum DocumentLocation {
    Memory(DocBuf),
    File(Placed),
    /// In the store: a write reads it again.
    Store,
}

impl PartialEq for FoundDocument {
    fn eq(&self, other: &FoundDocument) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for FoundDocument {}

impl PartialOrd for FoundDocument {
    fn partial_cmp(&self, other: &FoundDocument) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FoundDocument {
    fn cmp(&self, other: &FoundDocument) -> Ordering {
        let order = self.distance.total_cmp(&other.distance);
        order.then_with(|| self.record.cmp(&other.record))
    }
}

/// A region that was not searched yet.
#[derive(Clone, Copy, Debug)]
struct OpenRegion {
    /// Lower bound of the distances in it.
    nearest: f64,
    part: SearchRegion,
}

impl PartialEq for OpenRegion {
    fn eq(&self, other: &OpenRegion) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OpenRegion {}

impl PartialOrd for OpenRegion {
    fn partial_cmp(&self, other: &OpenRegion) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpenRegion {
    fn cmp(&self, other: &OpenRegion) -> Ordering {
        self.nearest.total_cmp(&other.nearest)
    }
}

/// The state of a search. Distances are angles, or distances of the plane.
#[derive(Default)]
struct NearState {
    begun: bool,
    /// Regions to be searched, the nearest first.
    open: BinaryHeap<Reverse<OpenRegion>>,
    /// Found documents that were not returned yet.
    waiting: BinaryHeap<Reverse<FoundDocument>>,
    /// Bytes of the documents that wait in memory.
    bytes: usize,
    /// Documents that wait in a file.
    shelf: Option<Shelf>,
    /// Records that were found.
    seen: Option<SeenRecords>,
    share: Option<Share>,
}

impl NearState {
    /// The distance up to which all documents have been found.
    fn complete(&self) -> f64 {
        self.open.peek().map_or(f64::INFINITY, |Reverse(open)| open.nearest)
    }

    /// Keeps a document until it is returned.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed, errors of files.
    fn keep(
        &mut self,
        document: RawDoc<'_>,
        budget: &Budget,
        op: &OpCtx,
    ) -> Result<DocumentLocation> {
        let size = document.as_bytes().len() + WAITING_BYTES;
        let share = self.share.get_or_insert_with(|| budget.share(Operator::Near));
        if !share.is_over(self.bytes + size) {
            self.bytes += size;
            return Ok(DocumentLocation::Memory(document.to_owned()));
        }
        let shelf = match self.shelf.take() {
            Some(shelf) => shelf,
            None => match share.folder()? {
                Some(folder) => Shelf::new(folder)?,
                None => return Err(share.failure(|_| no_disk_use("$geoNear"))),
            },
        };
        let shelf = self.shelf.insert(shelf);
        let before = shelf.spilled();
        let placed = shelf.put(document.as_bytes())?;
        share.count(op, shelf.spilled().since(before));
        Ok(DocumentLocation::File(placed))
    }

    /// Takes out a document that was kept; `None` if it is in the store.
    fn take(&mut self, waiting: DocumentLocation) -> Result<Option<DocBuf>> {
        match (waiting, &mut self.shelf) {
            (DocumentLocation::Memory(document), _) => {
                self.bytes -= document.as_bytes().len() + WAITING_BYTES;
                Ok(Some(document))
            }
            (DocumentLocation::File(placed), Some(shelf)) => {
                shelf.take(placed).and_then(into_document).map(Some)
            }
            (DocumentLocation::File(_), None) => {
                Err(Error::internal("a document in a file that is gone"))
            }
            (DocumentLocation::Store, _) => Ok(None),
        }
    }

    /// Adds the regions that intersect the range of distances.
    fn add(&mut self, access: &NearAccess, parts: Vec<SearchRegion>) {
        let near = &access.near;
        let from = match near.is_spherical() {
            true => Origin::on_earth(near.from),
            false => Origin::in_plane(near.from),
        };
        let (min, max) = (near.angle_of_distance(near.min), near.angle_of_distance(near.max));
        // Distances given in metres are not exact after conversion.
        let (min, max) = (min * (1.0 - 1e-12), max * (1.0 + 1e-12));
        for part in parts {
            let (nearest, farthest) = part.distances(&from);
            if nearest <= max && farthest >= min {
                self.open.push(Reverse(OpenRegion { nearest, part }));
            }
        }
    }
}

/// The regions that cover the whole index.
fn everything(access: &NearAccess) -> Vec<SearchRegion> {
    match access.index.spec.kind().get::<PlaneIndex>() {
        Some(plane) => SearchRegion::plane(plane.grid),
        None => SearchRegion::sphere(),
    }
}

/// The key ranges of a region, after the prefixes of the access path.
fn keys_of(access: &NearAccess, range: RegionRange) -> Vec<KeyRange> {
    let values = match range {
        RegionRange::Cells(range) => of_cells(&[range]),
        RegionRange::Squares(range) => of_squares(&[range]),
    };
    let keys: Vec<KeyRange> = values.into_iter().map(key_range).collect();
    extend(&access.prefixes, &keys)
}

/// Whether there are too many entries for one scan.
fn has_many(access: &NearAccess, ranges: &[KeyRange], snapshot: &Snapshot) -> Result<bool> {
    let mut left = FEW_ENTRIES as u64 + 1;
    for range in ranges {
        let (entries, _) = snapshot.count_entries(&access.index, range, left as usize)?;
        left = left.saturating_sub(entries);
        if left == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The metadata of a result: its distance and the nearest geometry.
pub(crate) fn near_metadata(distance: f64, place: RawValue<'_>) -> Metadata {
    let mut notes = DocBuilder::new();
    notes.append(GEO_NEAR_DISTANCE, distance).append(GEO_NEAR_POINT, place);
    Metadata::new(notes.finish())
}

/// The nearest geometry in a document: its distance in the unit of the query, and its value.
///
/// # Errors
/// Errors of an operation that must end.
pub(crate) fn nearest<'a>(
    near: &NearSearch,
    path: &str,
    document: RawDoc<'a>,
) -> Result<Option<(f64, RawValue<'a>)>> {
    let parts: Vec<&str> = path.split('.').collect();
    let mut best: Option<(f64, RawValue<'a>)> = None;
    let mut failure = None;
    let mut consider = |value: RawValue<'a>| {
        let geometry = Geometry::of_value(value).unwrap_or_else(|error| {
            failure = Some(error);
            None
        });
        let distance = geometry.and_then(|found| near.distance_to(&found));
        if let Some(distance) = distance
            && best.is_none_or(|(known, _)| distance < known)
        {
            best = Some((distance, value));
        }
        distance.is_some()
    };
    let _ = visit_path_with(document, &parts, LeafArrays::Keep, &mut |hit| {
        if let Hit::Value(value, _) = hit
            && !consider(value)
            && let RawValue::Array(items) | RawValue::Document(items) = value
        {
            // A field may contain several points.
            items.iter().for_each(|item| {
                consider(item.value());
            });
        }
        ControlFlow::Continue(())
    });
    failure.map_or(Ok(best), Err)
}

/// A running search.
pub(super) struct Search {
    access: Arc<NearAccess>,
    state: NearState,
    /// Documents are kept only for a result; a write reads them again.
    purpose: ReadPurpose,
    counters: Counters,
}

impl Search {
    pub(super) fn new(access: Arc<NearAccess>, purpose: ReadPurpose) -> Search {
        Search { access, state: NearState::default(), purpose, counters: Counters::default() }
    }
}

impl Node for Search {
    /// Returns documents that are complete, then searches the next region.
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        if !self.state.begun {
            self.state.begun = true;
            match self.access.by_place {
                true => self.state.add(&self.access, everything(&self.access)),
                false => self.scan_ranges(&self.access.prefixes.clone(), batch)?,
            }
        }
        loop {
            batch.session.op.check()?;
            if self.show_complete(batch, rows)?.is_break() {
                return Ok(Progress::Stopped);
            }
            let Some(Reverse(OpenRegion { part, .. })) = self.state.open.pop() else {
                self.counters.over = true;
                return Ok(Progress::Over);
            };
            self.search_region(part, batch)?;
        }
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn check_alive(&self) -> Result<()> {
        self.access.index.check_alive()
    }
}

impl Search {
    /// Scans a region, or divides it.
    fn search_region(&mut self, part: SearchRegion, batch: &Batch<'_>) -> Result<()> {
        let ranges = keys_of(&self.access, part.range());
        let parts = part.parts();
        if parts.is_empty() || !has_many(&self.access, &ranges, batch.snapshot()?)? {
            return self.scan_ranges(&ranges, batch);
        }
        self.state.add(&self.access, parts);
        match part.own() {
            Some(own) => self.scan_ranges(&keys_of(&self.access, own), batch),
            None => Ok(()),
        }
    }

    /// Returns the documents that no unfound document can precede.
    fn show_complete(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<ControlFlow<()>> {
        let (access, state, counters) = (&self.access, &mut self.state, &mut self.counters);
        while let Some(Reverse(next)) = state.waiting.peek() {
            if next.distance > state.complete() {
                break;
            }
            let Some(Reverse(found)) = state.waiting.pop() else { break };
            let (record, mut flow) = (&found.record, ControlFlow::Continue(()));
            let mut show = |document: RawDoc<'_>| {
                if let Some((distance, place)) = nearest(&access.near, &access.path, document)? {
                    counters.returned += 1;
                    flow = rows(&Row::read(record, document, &near_metadata(distance, place)))?;
                }
                Ok(())
            };
            match state.take(found.document)? {
                Some(document) => show(document.as_doc())?,
                None => {
                    batch.snapshot()?.record(
                        batch.collection,
                        record,
                        &mut |document| match batch.matches(document)? {
                            true => show(document),
                            false => Ok(()),
                        },
                    )?;
                }
            }
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Keeps the documents of the entries in these ranges.
    fn scan_ranges(&mut self, ranges: &[KeyRange], batch: &Batch<'_>) -> Result<()> {
        let (snapshot, access) = (batch.snapshot()?, &self.access);
        let (state, purpose) = (&mut self.state, self.purpose);
        let (mut examined, mut fetched) = (0u64, 0u64);
        let mut keys = RecordKeys::of(batch.collection);
        for range in ranges {
            let mut rest = range.clone();
            loop {
                let entry = &mut |entry: Entry<'_>| {
                    examined += 1;
                    if examined.is_multiple_of(CHUNK_ENTRIES as u64) {
                        batch.session.op.check()?;
                    }
                    let seen = state.seen.get_or_insert_with(|| SeenRecords::new(batch.budget));
                    if !seen.insert(entry.record_key, batch.session.op)? {
                        return Ok(ControlFlow::Continue(()));
                    }
                    keys.push(entry.record_key);
                    if keys.len() >= FEW_ENTRIES {
                        fetched += keys.len() as u64;
                        keep_matching(state, access, &keys, (batch, purpose))?;
                        keys.clear();
                    }
                    Ok(ControlFlow::Continue(()))
                };
                let limit = ScanLimit::NONE;
                match snapshot.scan_index(&access.index, &rest, Direction::Forward, limit, entry)? {
                    ScanResult::Exhausted => break,
                    ScanResult::Paused(last) => rest = rest.after(&last, Direction::Forward),
                }
            }
        }
        fetched += keys.len() as u64;
        keep_matching(state, access, &keys, (batch, purpose))?;
        batch.count(examined, fetched);
        self.counters.keys += examined;
        self.counters.examined += examined;
        self.counters.documents += fetched;
        Ok(())
    }
}

/// Keeps the documents of these records that satisfy the filter and the limits on the distance.
fn keep_matching(
    state: &mut NearState,
    access: &NearAccess,
    keys: &RecordKeys,
    (batch, purpose): (&Batch<'_>, ReadPurpose),
) -> Result<()> {
    let near = &access.near;
    batch.snapshot()?.records(batch.collection, keys, &mut |at, document| {
        if !batch.matches(document)? {
            return Ok(ControlFlow::Continue(()));
        }
        let distance = nearest(near, &access.path, document)?.map(|found| found.0);
        let counts = |distance: &f64| near.min <= *distance && *distance <= near.max;
        if let (Some(distance), Some(key)) = (distance.filter(counts), keys.get(at)) {
            let document = match purpose {
                ReadPurpose::Write => DocumentLocation::Store,
                ReadPurpose::Result => state.keep(document, batch.budget, batch.session.op)?,
            };
            let distance = near.angle_of_distance(distance);
            let record = key.to_vec();
            state.waiting.push(Reverse(FoundDocument { distance, record, document }));
        }
        Ok(ControlFlow::Continue(()))
    })
}
