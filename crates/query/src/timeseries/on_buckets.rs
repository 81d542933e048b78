//! Conditions on measurements as conditions on their buckets.
//!
//! ```text
//! measurement                        bucket
//! meta.x: anything                   meta.x: the same
//! time >= a                          control.max.time >= a, control.min.time > a - span
//! time <= b                          control.min.time <= b
//! value <= v                         control.min.value not > v
//! value >= v                         control.max.value not < v
//! ```
//!
//! The smallest and largest values are chosen across types, while comparisons match one type only.
//! Therefore the conditions are negations, which also hold for other types. [`BoundTest`] then
//! tests the bounds of each bucket more precisely.
//!
//! Conditions on buckets may accept buckets without matching measurements, but never reject one
//! with such. The whole filter is evaluated on every measurement.

use mayfly_buckets::{BucketView, MeasurementFields};
use mayfly_mql::FieldPath;
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_value::{RawValue, ValueBuf, canonical_type, compare_values};

/// A comparison that measurements must satisfy, for a test of a bucket's bounds.
#[derive(Clone, Debug)]
pub(crate) struct BoundTest {
    field: String,
    comparison: CmpOp,
    value: ValueBuf,
}

impl BoundTest {
    /// Whether a measurement of the bucket may satisfy the comparison.
    pub(crate) fn may_hold(&self, bucket: BucketView<'_>) -> bool {
        let Some((min, max)) = bucket.bounds(&self.field) else { return false };
        let value = self.value.as_raw();
        let alike = |bound: RawValue<'_>| {
            canonical_type(bound.type_byte()) == canonical_type(value.type_byte())
        };
        // Values of other types may lie between the bounds: arrays match by their items, and NaN
        // compares differently.
        if !alike(min) || !alike(max) {
            return true;
        }
        let (low, high) = (compare_values(min, value), compare_values(max, value));
        match self.comparison {
            CmpOp::Eq => low.is_le() && high.is_ge(),
            CmpOp::Lt => low.is_lt(),
            CmpOp::Lte => low.is_le(),
            CmpOp::Gt => high.is_gt(),
            CmpOp::Gte => high.is_ge(),
        }
    }
}

/// The conditions on buckets that follow from a filter on measurements.
#[derive(Default)]
pub(crate) struct OnBuckets {
    /// Conditions on buckets, all of which must hold.
    clauses: Vec<Expr>,
    /// Tests of the bounds of buckets.
    pub(crate) tests: Vec<BoundTest>,
}

impl OnBuckets {
    /// Derives the conditions from a filter.
    pub(crate) fn of(filter: &Expr, fields: &MeasurementFields, span_ms: i64) -> OnBuckets {
        let mut found = OnBuckets::default();
        found.read(filter, fields, span_ms);
        found
    }

    /// The filter on buckets; `None` if every bucket may match.
    pub(crate) fn filter(self) -> Option<Expr> {
        (!self.clauses.is_empty()).then(|| Expr::And(self.clauses))
    }

    fn read(&mut self, filter: &Expr, fields: &MeasurementFields, span_ms: i64) {
        match filter {
            Expr::And(parts) => parts.iter().for_each(|part| self.read(part, fields, span_ms)),
            Expr::Or(parts) => self.read_or(parts, fields, span_ms),
            Expr::Nor(_) => self.clauses.extend(on_meta(filter, fields)),
            Expr::Path { path, predicate } => match path.as_str() {
                name if name == fields.time => self.read_time(predicate, fields, span_ms),
                name if fields.on_bucket_meta(name).is_some() => {
                    self.clauses.extend(on_meta(filter, fields));
                }
                _ => {
                    if let Some(name) = path.as_single() {
                        self.read_value(name, predicate);
                    }
                }
            },
            Expr::Document(_) | Expr::Always(_) => {}
        }
    }

    /// A disjunction restricts buckets only if each alternative does.
    fn read_or(&mut self, parts: &[Expr], fields: &MeasurementFields, span_ms: i64) {
        let of_part = |part| OnBuckets::of(part, fields, span_ms).filter();
        if let Some(parts) = parts.iter().map(of_part).collect() {
            self.clauses.push(Expr::Or(parts));
        }
    }

    fn read_time(&mut self, predicate: &Predicate, fields: &MeasurementFields, span_ms: i64) {
        let (op, date) = match predicate {
            Predicate::Cmp { op, value, .. } => match value.as_raw() {
                RawValue::Date(date) => (*op, date),
                _ => return,
            },
            Predicate::All(parts) => {
                return parts.iter().for_each(|part| self.read_time(part, fields, span_ms));
            }
            _ => return,
        };
        let mut add =
            |side: &str, predicate| self.clauses.extend(bound(side, &fields.time, predicate));
        let compare = |op, date| Predicate::cmp(op, RawValue::Date(date), None);
        if matches!(op, CmpOp::Gt | CmpOp::Gte | CmpOp::Eq) {
            let greater = if op == CmpOp::Gt { CmpOp::Gt } else { CmpOp::Gte };
            add("max", compare(greater, date));
            match date.checked_sub(span_ms) {
                Some(first) => add("min", compare(CmpOp::Gt, first)),
                None => add("min", Predicate::Exists),
            }
        }
        if matches!(op, CmpOp::Lt | CmpOp::Lte | CmpOp::Eq) {
            let less = if op == CmpOp::Lt { CmpOp::Lt } else { CmpOp::Lte };
            add("min", compare(less, date));
        }
    }

    fn read_value(&mut self, field: &str, predicate: &Predicate) {
        match predicate {
            Predicate::Cmp { op, value, .. } if is_plain(value.as_raw()) => {
                self.clauses.extend(clauses_on_bounds(field, *op, value.as_raw()));
                let (field, value) = (field.to_owned(), value.clone());
                self.tests.push(BoundTest { field, comparison: *op, value });
            }
            Predicate::All(parts) => parts.iter().for_each(|part| self.read_value(field, part)),
            _ => {}
        }
    }
}

/// A condition on a bound of buckets.
fn bound(side: &str, field: &str, predicate: Predicate) -> Option<Expr> {
    let path = FieldPath::new(&format!("control.{side}.{field}")).ok()?;
    Some(Expr::Path { path, predicate })
}

/// Translates a condition on the meta field only.
fn on_meta(filter: &Expr, fields: &MeasurementFields) -> Option<Expr> {
    let meta = fields.meta.as_deref()?;
    let reads = filter.reads()?;
    let only_meta = reads.paths.iter().all(|path| fields.on_bucket_meta(path).is_some());
    if only_meta { filter.renamed(meta, "meta") } else { None }
}

/// A comparison as conditions on the bounds of buckets.
fn clauses_on_bounds(field: &str, comparison: CmpOp, value: RawValue<'_>) -> Vec<Expr> {
    if field.is_empty() {
        return Vec::new();
    }
    // The comparisons of the smallest and the largest value that exclude a bucket.
    let (smallest, largest) = match comparison {
        CmpOp::Eq => (Some(CmpOp::Gt), Some(CmpOp::Lt)),
        CmpOp::Lt => (Some(CmpOp::Gte), None),
        CmpOp::Lte => (Some(CmpOp::Gt), None),
        CmpOp::Gt => (None, Some(CmpOp::Lte)),
        CmpOp::Gte => (None, Some(CmpOp::Lt)),
    };
    let clause = |side, outside: Option<CmpOp>| {
        bound(side, field, Predicate::cmp(outside?, value, None).negated())
    };
    clause("min", smallest).into_iter().chain(clause("max", largest)).collect()
}

/// Whether a value compares by order only, without collation, array items and NaN.
fn is_plain(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(number) => !number.is_nan(),
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Date(_) | RawValue::ObjectId(_) => true,
        _ => false,
    }
}
