//! The state of an accumulator in one group.

use mayfly_base::{Error, Result};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{
    Collation, DocBuilder, Number, RawDoc, RawValue, SortOrder, ValueBuf, check_depth, check_size,
    compare_values_in, ty,
};

use super::AccumulatorKind;
use super::deviation::{Deviation, Population};
use super::limits::StateLimit;
use super::list::{Distinct, List, Merged, encoded};
use super::percentile::{median, percentiles, sorted_numbers};
use super::ranked::Ranked;
use super::scripted::Scripted;
use crate::op::merge_fault;
use crate::{Sum, Value};

/// The state of an accumulator in one group.
#[derive(Clone, Debug)]
pub struct AccumState {
    kind: AccumulatorKind,
    n: usize,
    held: StateValue,
}

#[derive(Clone, Debug)]
enum StateValue {
    Sum(Sum),
    Mean {
        sum: Sum,
        count: i64,
    },
    /// `None` before the first document, then the value, which may be missing.
    One(Option<Option<ValueBuf>>),
    List(List),
    Distinct(Box<Distinct>),
    Merged(Box<Merged>),
    Ranked(Ranked),
    Numbers(Vec<f64>),
    Deviation(Deviation),
    /// The state of `$accumulator`.
    Scripted(Box<Scripted>),
}

/// The order of the keys by which an accumulator ranks values.
pub(super) fn key_order(kind: AccumulatorKind) -> SortOrder {
    match kind {
        AccumulatorKind::MaxN => SortOrder::Descending,
        _ => SortOrder::Ascending,
    }
}

impl AccumState {
    pub(crate) fn new(kind: AccumulatorKind, n: usize) -> AccumState {
        use AccumulatorKind as Kind;
        let held = match kind {
            Kind::Sum | Kind::Count => StateValue::Sum(Sum::default()),
            Kind::Avg => StateValue::Mean { sum: Sum::default(), count: 0 },
            Kind::First | Kind::Last | Kind::Min | Kind::Max => StateValue::One(None),
            Kind::Push | Kind::ConcatArrays | Kind::FirstN | Kind::LastN => {
                StateValue::List(List::default())
            }
            Kind::AddToSet | Kind::SetUnion => StateValue::Distinct(Box::default()),
            Kind::MergeObjects => StateValue::Merged(Box::default()),
            Kind::Top | Kind::TopN => StateValue::Ranked(Ranked::first(n)),
            Kind::Bottom | Kind::BottomN => StateValue::Ranked(Ranked::last(n)),
            Kind::MinN | Kind::MaxN => StateValue::Ranked(Ranked::first(n)),
            Kind::Median | Kind::Percentile => StateValue::Numbers(Vec::new()),
            Kind::StdDevPop | Kind::StdDevSamp => StateValue::Deviation(Deviation::default()),
            // Replaced by the state that a script creates.
            Kind::Scripted => StateValue::One(None),
        };
        AccumState { kind, n, held }
    }

    /// A state created by a script.
    pub(super) fn scripted(scripted: Scripted) -> AccumState {
        AccumState {
            kind: AccumulatorKind::Scripted,
            n: 1,
            held: StateValue::Scripted(Box::new(scripted)),
        }
    }

    /// Heap memory of the state, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        if self.is_flat() { 0 } else { self.held_bytes() }
    }

    /// Whether the state never has heap memory.
    #[inline]
    fn is_flat(&self) -> bool {
        matches!(self.held, StateValue::Sum(_) | StateValue::Mean { .. } | StateValue::Deviation(_))
    }

    fn held_bytes(&self) -> usize {
        match &self.held {
            StateValue::Sum(_) | StateValue::Mean { .. } | StateValue::Deviation(_) => 0,
            StateValue::One(value) => value.iter().flatten().map(ValueBuf::heap_bytes).sum(),
            StateValue::List(list) => list.bytes,
            StateValue::Distinct(set) => set.bytes(),
            StateValue::Merged(merged) => merged.bytes,
            StateValue::Ranked(ranked) => ranked.bytes(),
            StateValue::Numbers(numbers) => numbers.capacity() * 8,
            StateValue::Scripted(scripted) => scripted.bytes(),
        }
    }

    /// Checks the memory limit of a single state.
    #[inline]
    pub(super) fn check(&self, most: usize) -> Result<()> {
        if self.is_flat() { Ok(()) } else { self.check_bytes(most) }
    }

    fn check_bytes(&self, most: usize) -> Result<()> {
        StateLimit { kind: self.kind, most }.check(self.held_bytes())
    }

    /// Adds the value of one document.
    pub(crate) fn put(
        &mut self,
        value: Option<RawValue<'_>>,
        collation: Option<&Collation>,
    ) -> Result<()> {
        let number = value.and_then(Number::from_value);
        let present = value.filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined));
        match (&mut self.held, self.kind) {
            (StateValue::Sum(sum), AccumulatorKind::Count) => sum.add(Number::Int32(1)),
            (StateValue::Sum(sum), _) => number.into_iter().for_each(|number| sum.add(number)),
            (StateValue::Mean { sum, count }, _) => {
                if let Some(number) = number {
                    sum.add(number);
                    *count += 1;
                }
            }
            (StateValue::One(held), AccumulatorKind::First) => {
                held.get_or_insert_with(|| value.map(RawValue::to_owned));
            }
            (StateValue::One(held), AccumulatorKind::Last) => {
                *held = Some(value.map(RawValue::to_owned))
            }
            (StateValue::One(held), kind) => {
                if let Some(value) = present {
                    let preferred = if kind == AccumulatorKind::Min {
                        std::cmp::Ordering::Less
                    } else {
                        std::cmp::Ordering::Greater
                    };
                    let better = held.as_ref().and_then(Option::as_ref).is_none_or(|have| {
                        compare_values_in(value, have.as_raw(), collation) == preferred
                    });
                    if better {
                        *held = Some(Some(value.to_owned()));
                    }
                }
            }
            (StateValue::List(list), kind) => put_in_list(list, kind, self.n, value)?,
            (StateValue::Distinct(set), AccumulatorKind::AddToSet) => {
                value.into_iter().for_each(|value| set.put(value, collation));
            }
            (StateValue::Distinct(set), _) => match value {
                None => {}
                Some(RawValue::Array(items)) => {
                    items.iter().for_each(|item| set.put(item.value(), collation));
                }
                Some(other) => return Err(not_an_array("$setUnion", other)),
            },
            (StateValue::Merged(merged), _) => match value {
                None | Some(RawValue::Null | RawValue::Undefined) => {}
                Some(RawValue::Document(document)) => merged.set_all(document),
                Some(other) => return Err(merge_fault(5_911_200, other)),
            },
            (StateValue::Ranked(ranked), kind) => {
                if let Some(value) = present {
                    let key = encoded(value, key_order(kind), collation);
                    ranked.put(key, value);
                }
            }
            (StateValue::Numbers(numbers), _) => {
                numbers.extend(number.map(Number::to_f64).filter(|number| !number.is_nan()));
            }
            (StateValue::Deviation(deviation), _) => {
                number.into_iter().for_each(|number| deviation.put(number.to_f64()));
            }
            (StateValue::Scripted(scripted), _) => scripted.put(&Value::from(value))?,
        }
        Ok(())
    }

    /// Adds the value of one document with this sort key.
    pub(super) fn put_ranked(&mut self, key: Vec<u8>, value: RawValue<'_>) -> Result<()> {
        if let StateValue::Ranked(ranked) = &mut self.held {
            ranked.put(key, value);
        }
        Ok(())
    }

    /// Adds the script arguments of one document.
    pub(super) fn put_scripted(&mut self, arguments: &Value<'_>) -> Result<()> {
        if let StateValue::Scripted(scripted) = &mut self.held {
            scripted.put(arguments)?;
        }
        Ok(())
    }

    /// The result; `None` when it is missing.
    pub(crate) fn finish(&self, shares: &[f64]) -> Result<Option<ValueBuf>> {
        let value = |value: RawValue<'_>| Ok(Some(value.to_owned()));
        match (&self.held, self.kind) {
            (StateValue::Sum(sum), _) => value(sum.finish().to_value()),
            (StateValue::Mean { count: 0, .. }, _) => value(RawValue::Null),
            (StateValue::Mean { sum, count }, _) => value(sum.mean(*count).to_value()),
            (StateValue::One(None), _) => value(RawValue::Null),
            (StateValue::One(Some(held)), _) => Ok(held.clone()),
            (StateValue::List(list), _) => array(list.values.iter()).map(Some),
            (StateValue::Distinct(set), _) => array(set.list.values.iter()).map(Some),
            (StateValue::Merged(merged), _) => {
                let out = merged.build();
                check_size(out.len())?;
                Ok(Some(ValueBuf::from_parts(ty::DOCUMENT, out.finish().into_bytes())))
            }
            (StateValue::Ranked(ranked), AccumulatorKind::Top | AccumulatorKind::Bottom) => {
                Ok(ranked.values().next().cloned())
            }
            (StateValue::Ranked(ranked), _) => array(ranked.values()).map(Some),
            (StateValue::Numbers(numbers), kind) => {
                let mut numbers = numbers.clone();
                numbers.sort_by(f64::total_cmp);
                Ok(Some(match kind {
                    AccumulatorKind::Median => median(&numbers),
                    _ => percentiles(&numbers, shares),
                }))
            }
            (StateValue::Deviation(deviation), kind) => value(deviation.finish(match kind {
                AccumulatorKind::StdDevSamp => Population::Sample,
                _ => Population::Whole,
            })),
            (StateValue::Scripted(scripted), _) => scripted.finish().map(Some),
        }
    }

    /// Saves the state as a value for [`Accumulator::merge`](super::Accumulator::merge).
    pub fn save(&self) -> ValueBuf {
        let mut out = DocBuilder::new();
        match &self.held {
            StateValue::Sum(sum) => put_parts(sum, &mut out),
            StateValue::Mean { sum, count } => {
                put_parts(sum, &mut out);
                out.append("n", *count);
            }
            StateValue::One(held) => {
                if let Some(held) = held {
                    out.append("seen", true);
                    held.iter().for_each(|value| {
                        out.append("v", value);
                    });
                }
            }
            StateValue::List(list) => put_array(list.values.iter(), &mut out),
            StateValue::Distinct(set) => put_array(set.list.values.iter(), &mut out),
            StateValue::Merged(merged) => {
                out.append("v", &merged.build().finish());
            }
            StateValue::Ranked(ranked) => {
                out.start_array("v");
                for (key, value) in ranked.entries() {
                    out.push_document();
                    out.append("k", RawValue::Binary { subtype: 0, bytes: key });
                    out.append("v", value);
                    out.end();
                }
                out.end();
            }
            StateValue::Numbers(numbers) => {
                out.start_array("v");
                numbers.iter().for_each(|number| {
                    out.push(*number);
                });
                out.end();
            }
            StateValue::Deviation(deviation) => {
                out.append("n", deviation.count);
                out.append("mean", deviation.mean);
                out.append("squares", deviation.squares);
                out.append("notFinite", deviation.not_finite);
            }
            StateValue::Scripted(scripted) => scripted.save(&mut out),
        }
        ValueBuf::from_parts(ty::DOCUMENT, out.finish().into_bytes())
    }

    /// Merges the saved state of later documents.
    pub(super) fn merge(
        &mut self,
        saved: RawValue<'_>,
        collation: Option<&Collation>,
    ) -> Result<()> {
        let saved = saved.as_document().unwrap_or(RawDoc::EMPTY);
        let items = saved.get("v").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
        let double =
            |name: &str| saved.get(name).and_then(Number::from_value).map_or(0.0, Number::to_f64);
        let long = |name: &str| {
            let number = saved.get(name).and_then(Number::from_value);
            number.and_then(Number::to_i64_exact).unwrap_or(0)
        };
        match (&mut self.held, self.kind) {
            (StateValue::Sum(sum), _) => take_parts(sum, items),
            (StateValue::Mean { sum, count }, _) => {
                take_parts(sum, items);
                *count += long("n");
            }
            (StateValue::One(_), kind) => {
                let nothing_yet = matches!(&self.held, StateValue::One(None));
                if saved.get("seen").is_some() && (kind != AccumulatorKind::First || nothing_yet) {
                    self.put(saved.get("v"), collation)?;
                }
            }
            (StateValue::List(list), kind) => {
                for item in items {
                    match kind {
                        AccumulatorKind::Push | AccumulatorKind::ConcatArrays => {
                            list.push(item.value())
                        }
                        kind => put_in_list(list, kind, self.n, Some(item.value()))?,
                    }
                }
            }
            (StateValue::Distinct(set), _) => {
                items.iter().for_each(|item| set.put(item.value(), collation));
            }
            (StateValue::Merged(merged), _) => {
                if let Some(RawValue::Document(document)) = saved.get("v") {
                    merged.set_all(document);
                }
            }
            (StateValue::Ranked(ranked), _) => {
                for item in items {
                    let entry = item.value().as_document().unwrap_or(RawDoc::EMPTY);
                    if let (Some(RawValue::Binary { bytes, .. }), Some(value)) =
                        (entry.get("k"), entry.get("v"))
                    {
                        ranked.put(bytes.to_vec(), value);
                    }
                }
            }
            (StateValue::Numbers(numbers), _) => {
                numbers.extend(sorted_numbers(items.iter().map(|item| item.value())));
            }
            (StateValue::Deviation(deviation), _) => deviation.merge(Deviation {
                count: double("n"),
                mean: double("mean"),
                squares: double("squares"),
                not_finite: long("notFinite"),
            }),
            (StateValue::Scripted(scripted), _) => scripted.merge(saved)?,
        }
        Ok(())
    }
}

fn put_in_list(
    list: &mut List,
    kind: AccumulatorKind,
    n: usize,
    value: Option<RawValue<'_>>,
) -> Result<()> {
    match (kind, value) {
        (AccumulatorKind::FirstN, value) => {
            if list.values.len() < n {
                list.push(value.unwrap_or(RawValue::Null));
            }
        }
        (AccumulatorKind::LastN, value) => {
            if list.values.len() == n {
                list.pop_front();
            }
            list.push(value.unwrap_or(RawValue::Null));
        }
        (_, None) => {}
        (AccumulatorKind::ConcatArrays, Some(RawValue::Array(items))) => {
            items.iter().for_each(|item| list.push(item.value()));
        }
        (AccumulatorKind::ConcatArrays, Some(other)) => {
            return Err(not_an_array("$concatArrays", other));
        }
        (_, Some(value)) => list.push(value),
    }
    Ok(())
}

pub(crate) fn not_an_array(name: &str, found: RawValue<'_>) -> Error {
    let kind = found.type_name();
    mistyped(format!("{name} requires array inputs, but input {found:?} is of type {kind}"))
}

pub(crate) fn array<'v>(values: impl Iterator<Item = &'v ValueBuf>) -> Result<ValueBuf> {
    let mut out = DocBuilder::new_array();
    for value in values {
        out.push(value);
        check_size(out.len())?;
    }
    let made = out.finish();
    check_depth(made.as_doc())?;
    Ok(ValueBuf::from_parts(ty::ARRAY, made.into_bytes()))
}

fn put_array<'v>(values: impl Iterator<Item = &'v ValueBuf>, out: &mut DocBuilder) {
    out.start_array("v");
    for value in values {
        out.push(value);
    }
    out.end();
}

fn put_parts(sum: &Sum, out: &mut DocBuilder) {
    out.start_array("v");
    for part in sum.parts() {
        out.push(part.to_value());
    }
    out.end();
}

fn take_parts(sum: &mut Sum, parts: RawDoc<'_>) {
    for part in parts {
        if let Some(number) = Number::from_value(part.value()) {
            sum.add(number);
        }
    }
}
