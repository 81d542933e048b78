//! Bounds on a geo field: the cells of the sphere, or squares of the plane, that intersect the
//! requested area.

use mayfly_geo::{Area, CellRange, GridRange};
use mayfly_mql::matcher::Predicate;
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::plane::{PlaneIndex, square_value};
use mayfly_storage::kinds::sphere::SphereIndex;
use mayfly_storage::{Index, KeyRange};
use mayfly_value::{RawValue, SortOrder};

use crate::plan::types::bounds::{Bounds, FieldBounds};
use crate::plan::types::interval::{End, Interval, encoded};

/// Whether a geo index, which lacks documents without geometries, contains all documents that can
/// match.
pub(crate) fn serves(index: &Index, bounds: &[FieldBounds<'_>]) -> bool {
    index.spec.fields().iter().any(|field| {
        let place = matches!(field.kind, FieldKind::Sphere | FieldKind::Plane);
        let asks = |known: &FieldBounds<'_>| known.predicates.iter().any(|p| can_bound(index, p));
        place && bounds.iter().any(|known| known.path == field.path && asks(known))
    })
}

/// Whether this kind of index supports the area of a condition.
fn can_bound(index: &Index, predicate: &Predicate) -> bool {
    let kind = index.spec.kind();
    match area_of(predicate) {
        Some(Area::Cap(_)) => is_geo(index),
        Some(Area::Shape(_)) => kind.is::<SphereIndex>(),
        Some(Area::Flat(_)) => kind.is::<PlaneIndex>(),
        None => false,
    }
}

/// Whether this is a geo index.
pub(crate) fn is_geo(index: &Index) -> bool {
    index.spec.kind().is::<SphereIndex>() || index.spec.kind().is::<PlaneIndex>()
}

/// The area that a condition asks for.
fn area_of(predicate: &Predicate) -> Option<&Area> {
    match predicate {
        Predicate::Geo(test, _) => test.area(),
        Predicate::All(parts) => parts.iter().find_map(area_of),
        _ => None,
    }
}

/// Bounds from the first condition on a field that the index supports.
pub(crate) fn bounds(index: &Index, known: &FieldBounds<'_>) -> Option<Bounds> {
    let predicate = known.predicates.iter().find(|predicate| can_bound(index, predicate))?;
    let mut values = value_ranges(index, area_of(predicate)?)?;
    values.sort_unstable();
    let end = |value| End::included(RawValue::Int64(value));
    let interval = |(first, last): (i64, i64)| Interval::new(end(first), end(last));
    Some(Bounds::new(values.into_iter().map(interval).collect()))
}

/// Ranges of entry values, both ends inclusive, under which the index stores geometries that may
/// intersect an area.
pub(crate) fn value_ranges(index: &Index, area: &Area) -> Option<Vec<(i64, i64)>> {
    if let Some(plane) = index.spec.kind().get::<PlaneIndex>() {
        return area.grid_ranges(&plane.grid).map(|squares| of_squares(&squares));
    }
    index.spec.kind().get::<SphereIndex>()?;
    area.cell_ranges().map(|cells| of_cells(&cells))
}

/// Cells as values of index entries.
pub(crate) fn of_cells(cells: &[CellRange]) -> Vec<(i64, i64)> {
    cells.iter().map(|range| (range.first, range.last)).collect()
}

/// Squares as values of index entries.
pub(crate) fn of_squares(squares: &[GridRange]) -> Vec<(i64, i64)> {
    let value = |number| match square_value(number) {
        RawValue::Int64(value) => value,
        _ => 0,
    };
    squares.iter().map(|range| (value(range.first), value(range.last))).collect()
}

/// A range of values as a key range.
pub(crate) fn key_range((first, last): (i64, i64)) -> KeyRange {
    let of = |value| KeyRange::prefix(&encoded(RawValue::Int64(value), SortOrder::Ascending, None));
    KeyRange { start: of(first).start, end: of(last).end }
}
