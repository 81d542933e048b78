//! Documents in the order of their distance from a point.
//!
//! Rings around the point are looked through one after the other, each as wide as the last ones promise enough documents. What a ring
//! shows is kept with its distance; all that is nearer than the ring's outer edge is complete then and goes out, nearest first.
//! Documents are read again as they go out, so that the state between two batches is keys and numbers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::f64::consts::PI;
use std::ops::ControlFlow;

use mayfly_base::{OpCtx, Result};
use mayfly_mql::matcher::Near;
use mayfly_storage::kinds::Kind;
use mayfly_storage::{Direction, KeyRange, RecordKey, ScanLimit, Scanned, Snapshot, Store};
use mayfly_value::geo::{Area, Cap, FlatShape, Geometry, Pair, Ring, covering, ranges};
use mayfly_value::paths::{Hit, LeafArrays, visit_path_with};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::{CHUNK_ENTRIES, Executor, Flow, Sink, count};
use crate::metadata::{GEO_NEAR_DISTANCE, GEO_NEAR_POINT, Metadata};
use crate::plan::{Access, NearAccess, extend, key_range, of_cells, of_squares};

/// Most cells of one ring's covering.
const MAX_RING_CELLS: usize = 40;

/// The first ring on the earth: about fifty metres.
const FIRST_RING: f64 = 8e-6;

/// The first ring in the plane, as a part of the plane's width.
const FIRST_SQUARE: f64 = 1e-6;

/// A ring that shows fewer documents makes the next one much wider.
const FEW: usize = 20;

/// A ring that shows more makes the next one no wider.
const MANY: usize = 500;

/// A ring with more entries is made narrower before documents are read, so many times at most.
const MOST_ENTRIES: u64 = 2000;
const MOST_NARROWED: usize = 8;

/// A document and its distance.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    distance: f64,
    record: RecordKey,
}

impl Eq for Found {}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Found) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Found) -> std::cmp::Ordering {
        let order = self.distance.total_cmp(&other.distance);
        order.then_with(|| self.record.cmp(&other.record))
    }
}

/// How far a search by distance has come. Distances in here are angles, or those of the plane.
#[derive(Default)]
pub(super) struct NearState {
    /// Everything nearer has been looked through.
    complete: f64,
    /// How wide the next ring is.
    width: f64,
    /// Nothing lies farther away.
    farthest: f64,
    begun: bool,
    /// Found and not yet shown.
    waiting: BinaryHeap<Reverse<Found>>,
    /// Records that an entry has led to.
    seen: HashSet<RecordKey>,
    /// Values of entries that have been gone through: ascending ranges with both ends.
    scanned: Vec<(i64, i64)>,
}

impl NearState {
    fn begin(&mut self, access: &NearAccess) {
        self.begun = true;
        let near = &access.near;
        self.complete = near.angle_of_distance(near.min);
        let (first, all) = match access.index.spec.kind() {
            Kind::Plane(plane) if !near.is_spherical() => {
                let (min, max) = (plane.grid.min, plane.grid.max);
                let across = |from: f64| (from - min).abs().max((from - max).abs());
                let all = across(near.from.x).hypot(across(near.from.y));
                ((max - min) * FIRST_SQUARE, all * (1.0 + 1e-9))
            }
            _ => (FIRST_RING, PI),
        };
        self.farthest = near.angle_of_distance(near.max).min(all);
        self.width = first;
    }

    /// Where the next ring begins and ends; nothing when all has been looked through.
    fn edges(&self, access: &NearAccess) -> Option<(f64, f64)> {
        if self.complete.is_nan() || self.complete > self.farthest {
            return None;
        }
        let inner = self.complete;
        let outer = match access.by_place {
            true => (inner + self.width).min(self.farthest),
            false => self.farthest,
        };
        Some((inner, outer))
    }

    fn ring_done(&mut self, outer: f64, found: usize) {
        // Behind the last ring everything is complete, what is exactly as far included.
        self.complete = if outer >= self.farthest { f64::INFINITY } else { outer };
        self.width *= match found {
            ..FEW => 4.0,
            FEW..MANY => 1.5,
            _ => 0.75,
        };
    }
}

/// A ring that is looked through next.
struct NextRing {
    outer: f64,
    /// The values of entries that are new in it.
    values: Vec<(i64, i64)>,
    /// The same as keys, behind what stands before the place.
    ranges: Vec<KeyRange>,
}

/// The next ring, narrow enough not to show too many documents at once; nothing when all has been looked through.
fn next_ring(
    state: &mut NearState,
    access: &NearAccess,
    snapshot: &Snapshot,
) -> Result<Option<NextRing>> {
    for narrowed in 0.. {
        let Some((inner, outer)) = state.edges(access) else { break };
        if !access.by_place {
            let (values, ranges) = (Vec::new(), access.prefixes.clone());
            return Ok(Some(NextRing { outer, values, ranges }));
        }
        let values = without(&ring_values(access, inner, outer), &state.scanned);
        let keys: Vec<KeyRange> = values.iter().map(|range| key_range(*range)).collect();
        let ranges = extend(&access.prefixes, &keys);
        if narrowed >= MOST_NARROWED || !has_many(access, &ranges, snapshot)? {
            return Ok(Some(NextRing { outer, values, ranges }));
        }
        state.width = (outer - inner) / 4.0;
    }
    Ok(None)
}

/// Whether there are more entries than should be looked at in one go.
fn has_many(access: &NearAccess, ranges: &[KeyRange], snapshot: &Snapshot) -> Result<bool> {
    let mut left = MOST_ENTRIES;
    for range in ranges {
        let limit = ScanLimit::rows(usize::try_from(left).unwrap_or(usize::MAX));
        let (entries, _) = snapshot.count_entries(&access.index, range, limit)?;
        left = left.saturating_sub(entries);
        if left == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The values of entries in a ring.
fn ring_values(access: &NearAccess, inner: f64, outer: f64) -> Vec<(i64, i64)> {
    let from = access.near.from;
    match access.index.spec.kind() {
        Kind::Plane(plane) if access.near.is_spherical() => {
            let area = Area::Cap(Cap { centre: from, radius: outer });
            of_squares(&area.grid_ranges(&plane.grid).unwrap_or_default())
        }
        Kind::Plane(plane) => {
            let disc = FlatShape::Disc { centre: from, radius: outer };
            let beyond = |low: Pair, high: Pair| {
                let (x, y) = (
                    (from.x - low.x).abs().max((from.x - high.x).abs()),
                    (from.y - low.y).abs().max((from.y - high.y).abs()),
                );
                x.hypot(y) * (1.0 + 1e-12) >= inner
            };
            let meets = |low, high| disc.may_meet(low, high) && beyond(low, high);
            of_squares(&plane.grid.covering_where(&meets))
        }
        _ => {
            let ring = Ring { centre: from.to_point(), inner, outer };
            of_cells(&ranges(&covering(&ring, MAX_RING_CELLS)))
        }
    }
}

/// What of these ranges is not in those, which are ascending and disjoint.
fn without(wanted: &[(i64, i64)], scanned: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut left = Vec::new();
    for (first, last) in wanted {
        let mut next = Some(*first);
        let from = scanned.partition_point(|(_, end)| end < first);
        for (start, end) in scanned[from..].iter().take_while(|(start, _)| start <= last) {
            if let Some(begin) = next
                && begin < *start
            {
                left.push((begin, start - 1));
            }
            next = end.checked_add(1).filter(|next| next <= last);
            if next.is_none() {
                break;
            }
        }
        if let Some(begin) = next {
            left.push((begin, *last));
        }
    }
    left
}

/// Both together, ascending and disjoint.
fn merged(mut all: Vec<(i64, i64)>, more: &[(i64, i64)]) -> Vec<(i64, i64)> {
    all.extend_from_slice(more);
    all.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::with_capacity(all.len());
    for (first, last) in all {
        match out.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

/// What is told beside a document.
pub(crate) fn told(distance: f64, place: RawValue<'_>) -> Metadata {
    let mut notes = DocBuilder::new();
    notes.append(GEO_NEAR_DISTANCE, distance).append(GEO_NEAR_POINT, place);
    Metadata::new(notes.finish())
}

/// The nearest of a document's places: its distance in the unit of the question, and the value.
pub(crate) fn nearest<'a>(
    near: &Near,
    path: &str,
    document: RawDoc<'a>,
) -> Option<(f64, RawValue<'a>)> {
    let parts: Vec<&str> = path.split('.').collect();
    let mut best: Option<(f64, RawValue<'a>)> = None;
    let mut consider = |value: RawValue<'a>| {
        let distance = Geometry::of_value(value).and_then(|found| near.distance_to(&found));
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
            // Several pairs in one field.
            items.iter().for_each(|item| {
                consider(item.value());
            });
        }
        ControlFlow::Continue(())
    });
    best
}

impl Executor {
    /// Shows what is complete, then looks through the next ring; true when nothing is left.
    pub(super) fn scan_near(
        &mut self,
        store: &Store,
        op: &OpCtx,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let mut state = std::mem::take(&mut self.near);
        let result = self.go_on_near(&mut state, store, op, sink);
        self.near = state;
        result
    }

    fn go_on_near(
        &self,
        state: &mut NearState,
        store: &Store,
        op: &OpCtx,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let Access::Near(access) = &self.plan.access else { return Ok(true) };
        access.index.check_alive()?;
        let snapshot = store.snapshot()?;
        if !state.begun {
            state.begin(access);
        }
        loop {
            op.check()?;
            if self.show_complete(state, &snapshot, sink)? == Flow::Pause {
                return Ok(false);
            }
            let Some(ring) = next_ring(state, access, &snapshot)? else { return Ok(true) };
            let found = self.look_through(state, access, &ring, &snapshot, op)?;
            state.ring_done(ring.outer, found);
        }
    }

    /// Gives documents that nothing nearer can come before to the sink.
    fn show_complete(
        &self,
        state: &mut NearState,
        snapshot: &Snapshot,
        sink: &mut Sink<'_>,
    ) -> Result<Flow> {
        let failures = self.failures();
        let Access::Near(access) = &self.plan.access else { return Ok(Flow::More) };
        while let Some(Reverse(next)) = state.waiting.peek() {
            if next.distance >= state.complete {
                return Ok(Flow::More);
            }
            let Some(Reverse(found)) = state.waiting.pop() else { break };
            let mut flow = Flow::More;
            let record = &found.record;
            snapshot.record(&self.collection, record, &mut |document| {
                let matches = self.query.matcher.try_matches(document);
                if matches.map_err(|error| failures.named(error))? {
                    // A document that moved meanwhile tells where it is now; one without a place is gone.
                    if let Some((distance, place)) = nearest(&access.near, &access.path, document) {
                        flow = sink(record, document, &told(distance, place))?;
                    }
                }
                Ok(())
            })?;
            if flow != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    /// Keeps what entries in a ring lead to; gives the number of documents that count.
    fn look_through(
        &self,
        state: &mut NearState,
        access: &NearAccess,
        ring: &NextRing,
        snapshot: &Snapshot,
        op: &OpCtx,
    ) -> Result<usize> {
        state.scanned = merged(std::mem::take(&mut state.scanned), &ring.values);
        let near = &access.near;
        let (mut looked, mut fetched, mut kept) = (0u64, 0u64, 0usize);
        for range in &ring.ranges {
            let entry = &mut |record_key: &[u8]| {
                looked += 1;
                if looked.is_multiple_of(CHUNK_ENTRIES as u64) {
                    op.check()?;
                }
                if state.seen.contains(record_key) {
                    return Ok(());
                }
                state.seen.insert(record_key.to_vec());
                fetched += 1;
                let found = self.distance_of(snapshot, access, record_key)?;
                if let Some(distance) = found
                    && near.min <= distance
                    && distance <= near.max
                {
                    kept += 1;
                    let distance = near.angle_of_distance(distance);
                    let record = record_key.to_vec();
                    state.waiting.push(Reverse(Found { distance, record }));
                }
                Ok(())
            };
            let mut rest = range.clone();
            loop {
                let scanned = snapshot.scan_index(
                    &access.index,
                    &rest,
                    Direction::Forward,
                    ScanLimit::NONE,
                    &mut |found| entry(found.record_key).map(|()| ControlFlow::Continue(())),
                )?;
                match scanned {
                    Scanned::Exhausted => break,
                    Scanned::Paused(last) => rest = rest.after(&last, Direction::Forward),
                }
            }
        }
        count(op, looked, fetched);
        Ok(kept)
    }

    /// The distance of a document that satisfies the filter.
    fn distance_of(
        &self,
        snapshot: &Snapshot,
        access: &NearAccess,
        record_key: &[u8],
    ) -> Result<Option<f64>> {
        let failures = self.failures();
        let mut distance = None;
        snapshot.record(&self.collection, record_key, &mut |document| {
            let matches = self.query.matcher.try_matches(document);
            if matches.map_err(|error| failures.named(error))? {
                distance = nearest(&access.near, &access.path, document).map(|found| found.0);
            }
            Ok(())
        })?;
        Ok(distance)
    }
}
