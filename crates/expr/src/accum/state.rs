//! The running state of an accumulator in one group.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{
    Collation, DocBuilder, Number, RawDoc, RawValue, ValueBuf, check_depth, check_size,
    compare_values_in, ty,
};

use super::Kind;
use super::list::{Distinct, List, Merged, encoded};
use super::percentile::{percentile, sorted_numbers};
use super::ranked::Ranked;
use super::scripted::Scripted;
use crate::op::merge_fault;
use crate::{Sum, Value};

/// The running state of an accumulator in one group.
#[derive(Clone, Debug)]
pub struct AccumState {
    kind: Kind,
    n: usize,
    held: Held,
}

#[derive(Clone, Debug)]
enum Held {
    Sum(Sum),
    Mean {
        sum: Sum,
        count: i64,
    },
    /// Nothing yet, or the value, which may be missing.
    One(Option<Option<ValueBuf>>),
    List(List),
    Distinct(Box<Distinct>),
    Merged(Box<Merged>),
    Ranked(Ranked),
    Numbers(Vec<f64>),
    Deviation(Deviation),
    /// Of `$accumulator`.
    Scripted(Box<Scripted>),
}

/// Count, mean and sum of squared distances, kept up number by number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deviation {
    count: f64,
    mean: f64,
    squares: f64,
    /// Infinities and NaN; while there are some there is no deviation.
    not_finite: i64,
}

impl Deviation {
    pub(crate) fn put(&mut self, value: f64) {
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    pub(crate) fn remove(&mut self, value: f64) {
        if !value.is_finite() {
            self.not_finite -= 1;
            return;
        }
        self.count -= 1.0;
        if self.count <= 0.0 {
            *self = Deviation { not_finite: self.not_finite, ..Deviation::default() };
            return;
        }
        let before = value - self.mean;
        self.mean -= before / self.count;
        self.squares = (self.squares - before * (value - self.mean)).max(0.0);
    }

    fn merge(&mut self, other: Deviation) {
        self.not_finite += other.not_finite;
        if other.count == 0.0 {
            return;
        }
        let total = self.count + other.count;
        let distance = other.mean - self.mean;
        self.squares += other.squares + distance * distance * self.count * other.count / total;
        self.mean += distance * other.count / total;
        self.count = total;
    }

    /// Nothing where there are too few numbers.
    pub(crate) fn finish(&self, sample: bool) -> RawValue<'static> {
        let least = if sample { 2.0 } else { 1.0 };
        if self.count + (self.not_finite as f64) < least {
            return RawValue::Null;
        }
        if self.not_finite > 0 {
            return RawValue::Double(f64::NAN);
        }
        let by = if sample { self.count - 1.0 } else { self.count };
        RawValue::Double((self.squares / by).sqrt())
    }
}

impl AccumState {
    pub(crate) fn new(kind: Kind, n: usize) -> AccumState {
        let held = match kind {
            Kind::Sum | Kind::Count => Held::Sum(Sum::default()),
            Kind::Avg => Held::Mean { sum: Sum::default(), count: 0 },
            Kind::First | Kind::Last | Kind::Min | Kind::Max => Held::One(None),
            Kind::Push | Kind::ConcatArrays | Kind::FirstN | Kind::LastN => {
                Held::List(List::default())
            }
            Kind::AddToSet | Kind::SetUnion => Held::Distinct(Box::default()),
            Kind::MergeObjects => Held::Merged(Box::default()),
            Kind::Top | Kind::TopN => Held::Ranked(Ranked::new(n, false)),
            Kind::Bottom | Kind::BottomN => Held::Ranked(Ranked::new(n, true)),
            Kind::MinN | Kind::MaxN => Held::Ranked(Ranked::new(n, false)),
            Kind::Median | Kind::Percentile => Held::Numbers(Vec::new()),
            Kind::StdDevPop | Kind::StdDevSamp => Held::Deviation(Deviation::default()),
            // Made of a state that a script began.
            Kind::Scripted => Held::One(None),
        };
        AccumState { kind, n, held }
    }

    /// A state that a script began.
    pub(super) fn scripted(scripted: Scripted) -> AccumState {
        AccumState { kind: Kind::Scripted, n: 1, held: Held::Scripted(Box::new(scripted)) }
    }

    /// Memory that it holds beside its own size, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        if self.is_flat() { 0 } else { self.held_bytes() }
    }

    /// Whether it holds no memory beside its own size, whatever comes.
    #[inline]
    fn is_flat(&self) -> bool {
        matches!(self.held, Held::Sum(_) | Held::Mean { .. } | Held::Deviation(_))
    }

    fn held_bytes(&self) -> usize {
        match &self.held {
            Held::Sum(_) | Held::Mean { .. } | Held::Deviation(_) => 0,
            Held::One(value) => value.iter().flatten().map(ValueBuf::heap_bytes).sum(),
            Held::List(list) => list.bytes,
            Held::Distinct(set) => set.bytes(),
            Held::Merged(merged) => merged.bytes,
            Held::Ranked(ranked) => ranked.bytes(),
            Held::Numbers(numbers) => numbers.capacity() * 8,
            Held::Scripted(scripted) => scripted.bytes(),
        }
    }

    /// One value must fit memory, whatever is done with groups.
    #[inline]
    pub(super) fn check(&self, most: usize) -> Result<()> {
        if self.is_flat() { Ok(()) } else { self.check_bytes(most) }
    }

    fn check_bytes(&self, most: usize) -> Result<()> {
        if self.held_bytes() <= most {
            return Ok(());
        }
        let name = super::ROWS.iter().find(|row| row.kind == self.kind).map_or("", |row| row.name);
        let text = format!(
            "{name} used too much memory and cannot spill to disk. Memory limit: {most} bytes"
        );
        Err(Error::new(ErrorCode(146), text))
    }

    /// Takes the value of one document.
    pub(crate) fn put(
        &mut self,
        value: Option<RawValue<'_>>,
        collation: Option<&Collation>,
    ) -> Result<()> {
        let number = value.and_then(Number::from_value);
        let present = value.filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined));
        match (&mut self.held, self.kind) {
            (Held::Sum(sum), Kind::Count) => sum.add(Number::Int32(1)),
            (Held::Sum(sum), _) => number.into_iter().for_each(|number| sum.add(number)),
            (Held::Mean { sum, count }, _) => {
                if let Some(number) = number {
                    sum.add(number);
                    *count += 1;
                }
            }
            (Held::One(held), Kind::First) => {
                held.get_or_insert_with(|| value.map(RawValue::to_owned));
            }
            (Held::One(held), Kind::Last) => *held = Some(value.map(RawValue::to_owned)),
            (Held::One(held), kind) => {
                if let Some(value) = present {
                    let wanted = if kind == Kind::Min {
                        std::cmp::Ordering::Less
                    } else {
                        std::cmp::Ordering::Greater
                    };
                    let better = held.as_ref().and_then(Option::as_ref).is_none_or(|have| {
                        compare_values_in(value, have.as_raw(), collation) == wanted
                    });
                    if better {
                        *held = Some(Some(value.to_owned()));
                    }
                }
            }
            (Held::List(list), kind) => put_in_list(list, kind, self.n, value)?,
            (Held::Distinct(set), Kind::AddToSet) => {
                value.into_iter().for_each(|value| set.put(value, collation));
            }
            (Held::Distinct(set), _) => match value {
                None => {}
                Some(RawValue::Array(items)) => {
                    items.iter().for_each(|item| set.put(item.value(), collation));
                }
                Some(other) => return Err(not_an_array("$setUnion", other)),
            },
            (Held::Merged(merged), _) => match value {
                None | Some(RawValue::Null | RawValue::Undefined) => {}
                Some(RawValue::Document(document)) => merged.set_all(document),
                Some(other) => return Err(merge_fault(other)),
            },
            (Held::Ranked(ranked), kind) => {
                if let Some(value) = present {
                    let key = encoded(value, kind == Kind::MaxN, collation);
                    ranked.put(key, value);
                }
            }
            (Held::Numbers(numbers), _) => {
                numbers.extend(number.map(Number::to_f64).filter(|number| !number.is_nan()));
            }
            (Held::Deviation(deviation), _) => {
                number.into_iter().for_each(|number| deviation.put(number.to_f64()));
            }
            (Held::Scripted(scripted), _) => scripted.put(&Value::from(value))?,
        }
        Ok(())
    }

    /// Takes the value of one document that has this place in the order.
    pub(super) fn put_ranked(&mut self, key: Vec<u8>, value: RawValue<'_>) -> Result<()> {
        if let Held::Ranked(ranked) = &mut self.held {
            ranked.put(key, value);
        }
        Ok(())
    }

    /// Takes the arguments that one document gives to a script.
    pub(super) fn put_scripted(&mut self, arguments: &Value<'_>) -> Result<()> {
        if let Held::Scripted(scripted) = &mut self.held {
            scripted.put(arguments)?;
        }
        Ok(())
    }

    /// The result; nothing when it is missing.
    pub(crate) fn finish(&self, shares: &[f64]) -> Result<Option<ValueBuf>> {
        let value = |value: RawValue<'_>| Ok(Some(value.to_owned()));
        match (&self.held, self.kind) {
            (Held::Sum(sum), _) => value(sum.finish().to_value()),
            (Held::Mean { count: 0, .. }, _) => value(RawValue::Null),
            (Held::Mean { sum, count }, _) => value(sum.mean(*count).to_value()),
            (Held::One(None), _) => value(RawValue::Null),
            (Held::One(Some(held)), _) => Ok(held.clone()),
            (Held::List(list), _) => array(list.values.iter()),
            (Held::Distinct(set), _) => array(set.list.values.iter()),
            (Held::Merged(merged), _) => {
                let out = merged.build();
                check_size(out.len())?;
                Ok(Some(ValueBuf::from_parts(ty::DOCUMENT, out.finish().into_bytes())))
            }
            (Held::Ranked(ranked), Kind::Top | Kind::Bottom) => Ok(ranked.values().next().cloned()),
            (Held::Ranked(ranked), _) => array(ranked.values()),
            (Held::Numbers(numbers), kind) => {
                let mut numbers = numbers.clone();
                numbers.sort_by(f64::total_cmp);
                Ok(Some(percentile(&numbers, shares, kind == Kind::Median)))
            }
            (Held::Deviation(deviation), kind) => value(deviation.finish(kind == Kind::StdDevSamp)),
            (Held::Scripted(scripted), _) => scripted.finish().map(Some),
        }
    }

    /// Everything it knows, as a value that [`Accumulator::merge`](super::Accumulator::merge) understands.
    pub fn save(&self) -> ValueBuf {
        let mut out = DocBuilder::new();
        match &self.held {
            Held::Sum(sum) => put_parts(sum, &mut out),
            Held::Mean { sum, count } => {
                put_parts(sum, &mut out);
                out.append("n", *count);
            }
            Held::One(held) => {
                if let Some(held) = held {
                    out.append("seen", true);
                    held.iter().for_each(|value| {
                        out.append("v", value);
                    });
                }
            }
            Held::List(list) => put_array(list.values.iter(), &mut out),
            Held::Distinct(set) => put_array(set.list.values.iter(), &mut out),
            Held::Merged(merged) => {
                out.append("v", &merged.build().finish());
            }
            Held::Ranked(ranked) => {
                out.start_array("v");
                for (key, value) in ranked.entries() {
                    out.push_document();
                    out.append("k", RawValue::Binary { subtype: 0, bytes: key });
                    out.append("v", value);
                    out.end();
                }
                out.end();
            }
            Held::Numbers(numbers) => {
                out.start_array("v");
                numbers.iter().for_each(|number| {
                    out.push(*number);
                });
                out.end();
            }
            Held::Deviation(deviation) => {
                out.append("n", deviation.count);
                out.append("mean", deviation.mean);
                out.append("squares", deviation.squares);
                out.append("notFinite", deviation.not_finite);
            }
            Held::Scripted(scripted) => scripted.save(&mut out),
        }
        ValueBuf::from_parts(ty::DOCUMENT, out.finish().into_bytes())
    }

    /// Takes in what another state saved, which saw later documents.
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
            (Held::Sum(sum), _) => take_parts(sum, items),
            (Held::Mean { sum, count }, _) => {
                take_parts(sum, items);
                *count += long("n");
            }
            (Held::One(_), kind) => {
                let nothing_yet = matches!(&self.held, Held::One(None));
                if saved.get("seen").is_some() && (kind != Kind::First || nothing_yet) {
                    self.put(saved.get("v"), collation)?;
                }
            }
            (Held::List(list), kind) => {
                for item in items {
                    match kind {
                        Kind::Push | Kind::ConcatArrays => list.push(item.value()),
                        kind => put_in_list(list, kind, self.n, Some(item.value()))?,
                    }
                }
            }
            (Held::Distinct(set), _) => {
                items.iter().for_each(|item| set.put(item.value(), collation));
            }
            (Held::Merged(merged), _) => {
                if let Some(RawValue::Document(document)) = saved.get("v") {
                    merged.set_all(document);
                }
            }
            (Held::Ranked(ranked), _) => {
                for item in items {
                    let entry = item.value().as_document().unwrap_or(RawDoc::EMPTY);
                    if let (Some(RawValue::Binary { bytes, .. }), Some(value)) =
                        (entry.get("k"), entry.get("v"))
                    {
                        ranked.put(bytes.to_vec(), value);
                    }
                }
            }
            (Held::Numbers(numbers), _) => {
                numbers.extend(sorted_numbers(items.iter().map(|item| item.value())));
            }
            (Held::Deviation(deviation), _) => deviation.merge(Deviation {
                count: double("n"),
                mean: double("mean"),
                squares: double("squares"),
                not_finite: long("notFinite"),
            }),
            (Held::Scripted(scripted), _) => scripted.merge(saved)?,
        }
        Ok(())
    }
}

fn put_in_list(list: &mut List, kind: Kind, n: usize, value: Option<RawValue<'_>>) -> Result<()> {
    match (kind, value) {
        (Kind::FirstN, value) => {
            if list.values.len() < n {
                list.push(value.unwrap_or(RawValue::Null));
            }
        }
        (Kind::LastN, value) => {
            if list.values.len() == n {
                list.pop_front();
            }
            list.push(value.unwrap_or(RawValue::Null));
        }
        (_, None) => {}
        (Kind::ConcatArrays, Some(RawValue::Array(items))) => {
            items.iter().for_each(|item| list.push(item.value()));
        }
        (Kind::ConcatArrays, Some(other)) => return Err(not_an_array("$concatArrays", other)),
        (_, Some(value)) => list.push(value),
    }
    Ok(())
}

fn not_an_array(name: &str, found: RawValue<'_>) -> Error {
    let kind = found.type_name();
    Error::type_mismatch(format!(
        "{name} requires array inputs, but input {found:?} is of type {kind}"
    ))
}

fn array<'v>(values: impl Iterator<Item = &'v ValueBuf>) -> Result<Option<ValueBuf>> {
    let mut out = DocBuilder::new_array();
    for value in values {
        out.push(value);
        check_size(out.len())?;
    }
    let made = out.finish();
    check_depth(made.as_doc())?;
    Ok(Some(ValueBuf::from_parts(ty::ARRAY, made.into_bytes())))
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
