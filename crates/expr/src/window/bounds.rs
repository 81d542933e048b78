//! Bounds of windows, and the documents within them.

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, Number, RawValue, SortOrder, ValueBuf, compare_values};

use super::WindowFunction;
use crate::op::{Unit, Zone, fault, moved};
use crate::{Expression, Order, Scope};

/// One end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The end of the partition.
    Unbounded,
    /// The current document; by range, too, without others of the same sort value.
    Current,
    /// An offset in documents, or in the sort value.
    Offset(Number),
}

/// The `window` of a window function: its two ends, and how they are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// By position.
    Documents(Bound, Bound),
    /// By the sort value.
    Range {
        /// The lower bound.
        lower: Bound,
        /// The upper bound.
        upper: Bound,
        /// The unit of offsets of dates.
        unit: Option<RangeUnit>,
    },
}

/// How the window changes from one document to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    /// Documents only enter it.
    Grows,
    /// Documents enter and leave it.
    Slides,
}

/// The unit of time of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeUnit(pub(super) Unit);

impl Bounds {
    /// The whole partition.
    pub(super) const ALL: Bounds = Bounds::Documents(Bound::Unbounded, Bound::Unbounded);

    /// The documents up to the current one.
    pub(super) const SO_FAR: Bounds = Bounds::Documents(Bound::Unbounded, Bound::Current);

    pub(super) fn motion(self) -> Motion {
        let (Bounds::Documents(lower, _) | Bounds::Range { lower, .. }) = self;
        if lower == Bound::Unbounded { Motion::Grows } else { Motion::Slides }
    }

    /// Whether a window may end before the partition.
    pub(super) fn has_upper_bound(self) -> bool {
        let (Bounds::Documents(_, upper) | Bounds::Range { upper, .. }) = self;
        upper != Bound::Unbounded
    }

    /// The document at a distance.
    pub(super) fn at(by: i64) -> Bounds {
        let bound = Bound::Offset(Number::Int64(by));
        Bounds::Documents(bound, bound)
    }

    /// Parses `{ documents: [l, u] }` or `{ range: [l, u], unit: ... }`.
    pub(super) fn parse(
        window: RawValue<'_>,
        order: Option<&Order>,
        scope: &Scope,
    ) -> Result<Bounds> {
        let RawValue::Document(window) = window else {
            return Err(Error::failed_to_parse("'window' field must be an object"));
        };
        let (mut documents, mut range, mut unit) = (None, None, None);
        for part in window {
            match part.name() {
                "documents" => documents = Some(part.value()),
                "range" => range = Some(part.value()),
                "unit" => unit = Some(part.value()),
                other => {
                    let text = format!(
                        "'window' field can only contain 'documents', 'range' and 'unit', not '{other}'"
                    );
                    return Err(Error::failed_to_parse(text));
                }
            }
        }
        match (documents, range) {
            (Some(_), Some(_)) => Err(Error::failed_to_parse(
                "Window bounds can specify either 'documents' or 'range', not both.",
            )),
            (Some(_), None) if unit.is_some() => Err(Error::failed_to_parse(
                "Window bounds can only specify 'unit' with range-based bounds.",
            )),
            (Some(documents), None) => by_documents(documents, order, scope),
            (None, Some(range)) => by_range(range, unit, order, scope),
            (None, None) if unit.is_some() => Err(Error::failed_to_parse(
                "Window bounds can only specify 'unit' with range-based bounds.",
            )),
            (None, None) => Ok(Bounds::ALL),
        }
    }
}

/// Parses both ends. An offset is a constant expression; `strange` is the error for one that is no
/// number.
fn pair(value: RawValue<'_>, scope: &Scope, strange: &str) -> Result<(Bound, Bound)> {
    let both = || Error::failed_to_parse("Window bounds must be a 2-element array");
    let items = value.as_array().ok_or_else(both)?;
    let mut items = items.iter().map(|item| item.value());
    let (Some(lower), Some(upper), None) = (items.next(), items.next(), items.next()) else {
        return Err(both());
    };
    Ok((bound(lower, scope, strange)?, bound(upper, scope, strange)?))
}

fn bound(value: RawValue<'_>, scope: &Scope, strange: &str) -> Result<Bound> {
    match value {
        RawValue::String("unbounded") => Ok(Bound::Unbounded),
        RawValue::String("current") => Ok(Bound::Current),
        RawValue::String(_) => Err(Error::failed_to_parse(
            "Window bounds must be 'unbounded', 'current', or a number.",
        )),
        value => {
            let parsed = Expression::parse_in(value, scope)?;
            let Some(constant) = parsed.as_constant() else {
                let text = "Window bounds expression must be a constant.";
                return Err(Error::failed_to_parse(text));
            };
            let number = Number::from_value(constant).map(Bound::Offset);
            number.ok_or_else(|| Error::failed_to_parse(strange))
        }
    }
}

/// Whether an offset is an integer of 32 bits.
fn is_integer(bound: Bound) -> bool {
    match bound {
        Bound::Offset(number) => {
            number.to_i64_exact().is_some_and(|number| i32::try_from(number).is_ok())
        }
        Bound::Unbounded | Bound::Current => true,
    }
}

/// Rejects a lower bound above the upper one, which would make all windows empty.
fn check_order(lower: Bound, upper: Bound) -> Result<()> {
    let at = |bound: Bound| match bound {
        Bound::Unbounded => None,
        Bound::Current => Some(Number::Int32(0)),
        Bound::Offset(number) => Some(number),
    };
    match (at(lower), at(upper)) {
        (Some(low), Some(high)) if low.compare(high).is_gt() => {
            let (low, high) = (low.to_value(), high.to_value());
            let text = format!("Lower bound must not exceed upper bound: [{low:?}, {high:?}]");
            Err(fault(5_339_900, text))
        }
        _ => Ok(()),
    }
}

fn by_documents(value: RawValue<'_>, order: Option<&Order>, scope: &Scope) -> Result<Bounds> {
    const STRANGE: &str = "Numeric document-based bounds must be an integer";
    let (lower, upper) = pair(value, scope, STRANGE)?;
    if !(is_integer(lower) && is_integer(upper)) {
        return Err(Error::failed_to_parse(STRANGE));
    }
    check_order(lower, upper)?;
    let unbounded = lower == Bound::Unbounded && upper == Bound::Unbounded;
    if order.is_none() && !unbounded {
        return Err(fault(5_339_901, "Document-based bounds require a sortBy"));
    }
    Ok(Bounds::Documents(lower, upper))
}

fn by_range(
    value: RawValue<'_>,
    unit: Option<RawValue<'_>>,
    order: Option<&Order>,
    scope: &Scope,
) -> Result<Bounds> {
    let strange = match unit {
        None => "Range-based bounds expression must be a number",
        Some(_) => "With 'unit', range-based bounds must be an integer",
    };
    let (lower, upper) = pair(value, scope, strange)?;
    let unit = match unit {
        None => None,
        Some(RawValue::String(name)) => Some(RangeUnit(Unit::parse(name)?)),
        Some(_) => return Err(Error::failed_to_parse("'unit' must be a string")),
    };
    if unit.is_some() && !(is_integer(lower) && is_integer(upper)) {
        return Err(Error::failed_to_parse(strange));
    }
    check_order(lower, upper)?;
    match order.map(Order::directions).as_deref() {
        Some([SortOrder::Ascending]) => Ok(Bounds::Range { lower, upper, unit }),
        Some([SortOrder::Descending]) => {
            Err(fault(8_947_401, "Range-based bounds require an ascending sortBy"))
        }
        _ => Err(fault(5_339_902, "Range-based bounds require sortBy a single field")),
    }
}

/// The window of each document, as start and end positions.
pub(super) fn reaches(
    function: &WindowFunction,
    partition: &[DocBuf],
) -> Result<Vec<(usize, usize)>> {
    let count = partition.len();
    match function.bounds {
        Bounds::Documents(lower, upper) => {
            let at = |bound: Bound, here: usize, after: i64, end: usize| match bound {
                Bound::Unbounded => end,
                Bound::Current => clamped(here as i64 + after, count),
                Bound::Offset(number) => {
                    let by = number.to_i64_exact().unwrap_or(0);
                    clamped(here as i64 + by + after, count)
                }
            };
            let reach = |here| {
                let (from, to) = (at(lower, here, 0, 0), at(upper, here, 1, count));
                (from.min(to), to)
            };
            Ok((0..count).map(reach).collect())
        }
        Bounds::Range { lower, upper, unit } => {
            let values = function.sort_values(partition);
            let end = |bound: Bound, value: RawValue<'_>| range_end(bound, value, unit);
            let mut found = Vec::with_capacity(count);
            for (here, value) in values.iter().enumerate() {
                check_kind(value.as_raw(), unit)?;
                let from = match end(lower, value.as_raw())? {
                    _ if lower == Bound::Current => here,
                    None => 0,
                    Some(low) => values
                        .partition_point(|it| compare_values(it.as_raw(), low.as_raw()).is_lt()),
                };
                let to = match end(upper, value.as_raw())? {
                    _ if upper == Bound::Current => here + 1,
                    None => count,
                    Some(high) => values
                        .partition_point(|it| compare_values(it.as_raw(), high.as_raw()).is_le()),
                };
                found.push((from.min(to), to));
            }
            Ok(found)
        }
    }
}

/// The sort value at a bound of the window of a document with this value; `None` if unbounded.
pub(super) fn range_end(
    bound: Bound,
    value: RawValue<'_>,
    unit: Option<RangeUnit>,
) -> Result<Option<ValueBuf>> {
    match bound {
        Bound::Unbounded => Ok(None),
        Bound::Current => Ok(Some(value.to_owned())),
        Bound::Offset(by) => Ok(Some(further(value, by, unit)?)),
    }
}

fn clamped(position: i64, count: usize) -> usize {
    usize::try_from(position).unwrap_or(0).min(count)
}

pub(super) fn check_kind(value: RawValue<'_>, unit: Option<RangeUnit>) -> Result<()> {
    let found = value.type_name();
    match (unit, value) {
        (Some(_), RawValue::Date(_)) => Ok(()),
        (Some(_), _) => Err(fault(
            5_429_513,
            format!("Invalid range: Expected the sortBy field to be a Date, but it was {found}"),
        )),
        (None, RawValue::Date(_)) => Err(fault(
            5_429_413,
            "Invalid range: For windows that involve date or time ranges, a unit must be provided.",
        )),
        (None, value) if value.is_number() => Ok(()),
        (None, _) => Err(fault(
            5_429_414,
            format!("Invalid range: Expected the sortBy field to be a number, but it was {found}"),
        )),
    }
}

fn further(value: RawValue<'_>, by: Number, unit: Option<RangeUnit>) -> Result<ValueBuf> {
    match (value, unit) {
        (RawValue::Date(ms), Some(RangeUnit(unit))) => {
            let by = by.to_i64_exact().unwrap_or(0);
            let moved = moved(ms, unit, by, &Zone::UTC)
                .ok_or_else(|| fault(5_166_406, "dateAdd overflowed"))?;
            Ok(RawValue::Date(moved).to_owned())
        }
        _ => {
            let number = Number::from_value(value).unwrap_or(Number::Int32(0));
            Ok(number.plus(by).to_value().to_owned())
        }
    }
}
