//! `$densify`: adds documents where the values of a field have gaps, partition by partition.
//!
//! Values are numbers or dates. Steps of months and longer are taken by the calendar, with the expression `$dateAdd` from where
//! they begin, so that the end of a month stays one.

use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt};
use mayfly_base::spill::Operator;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Frame};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::paths::get_plain;
use mayfly_value::{
    Collation, DocBuf, DocBuilder, Number, RawDoc, RawValue, ValueBuf, compare_values,
};
use std::sync::Arc;

use super::unwind::{parts, replaced};
use super::{Around, Next, Reads, Running, Stage, StageContext};
use crate::Flow;
use crate::language::metadata::Metadata;
use crate::memory::{Share, Sorted, Sorter};

/// Most documents that one stage adds. Manual: "MongoDB Limits and Thresholds" has 500,000.
const MAX_ADDED: u64 = 500_000;

/// A parsed `$densify`.
#[derive(Clone, Debug)]
pub(crate) struct Densify {
    field: String,
    path: Vec<String>,
    partition: Vec<String>,
    step: Step,
    bounds: Bounds,
    collation: Option<Arc<Collation>>,
}

#[derive(Clone, Debug)]
enum Bounds {
    /// From the least to the greatest value of all partitions.
    Full,
    /// Those of each partition.
    Partition,
    /// From here, inclusive, to there, exclusive.
    Between(ValueBuf, ValueBuf),
}

/// How far it is from one document to the next.
#[derive(Clone, Debug)]
enum Step {
    Number(Number),
    /// The amount, and `$dateAdd` of the fields `d` and `n`.
    Time(i64, Box<Expression>),
}

fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

fn is_date(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Date(_))
}

pub(super) fn parse(value: RawValue<'_>, around: &Around<'_>) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let kind = value.type_name();
        let text = format!("The $densify stage specification must be an object, found {kind}");
        return Err(fault(5733201, text));
    };
    let (mut field, mut partition, mut range) = (None, Vec::new(), None);
    for option in spec {
        match (option.name(), option.value()) {
            ("field", RawValue::String(path)) => field = Some(path),
            ("partitionByFields", RawValue::Array(fields)) => {
                for field in fields {
                    match field.value() {
                        RawValue::String(path) => {
                            parts(path)?;
                            partition.push(path.to_owned());
                        }
                        other => return Err(wrong("partitionByFields", other)),
                    }
                }
            }
            ("range", RawValue::Document(spec)) => range = Some(spec),
            (name @ ("field" | "partitionByFields" | "range"), other) => {
                return Err(wrong(name, other));
            }
            (other, _) => {
                return Err(fault(
                    40415,
                    format!("BSON field '$densify.{other}' is an unknown field."),
                ));
            }
        }
    }
    let missing = |name: &str| {
        fault(40414, format!("BSON field '$densify.{name}' is missing but a required field"))
    };
    let field = field.ok_or_else(|| missing("field"))?.to_owned();
    let range = range.ok_or_else(|| missing("range"))?;
    if field.starts_with('$') {
        return Err(fault(16410, "Cannot densify field starting with '$'"));
    }
    let path = parts(&field)?;
    let inside = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('.'));
    if partition.iter().any(|by| *by == field || inside(by, &field) || inside(&field, by)) {
        let text = "BSON field '$densify.partitionByFields' contains a field that is, or lies in, the field to densify";
        return Err(fault(8993000, text));
    }
    let (step, bounds) = parse_range(range, !partition.is_empty())?;
    let collation = around.scope.collation().cloned();
    Ok(Box::new(Densify { field, path, partition, step, bounds, collation }))
}

impl Stage for Densify {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningDensify::new(*self))
    }

    fn reads(&self) -> Reads {
        Reads::some(self.partition.iter().chain([&self.field]).cloned())
    }
}

fn wrong(name: &str, other: RawValue<'_>) -> Error {
    Error::type_mismatch(format!(
        "BSON field '$densify.{name}' is the wrong type '{}'",
        other.type_name()
    ))
}

fn parse_range(range: RawDoc<'_>, partitioned: bool) -> Result<(Step, Bounds)> {
    let (mut step, mut unit, mut bounds) = (None, None, None);
    for option in range {
        match (option.name(), option.value()) {
            ("step", value) => {
                step = Some(Number::from_value(value).ok_or_else(|| wrong("range.step", value))?);
            }
            ("unit", RawValue::String(name)) => unit = Some(name),
            ("unit", other) => return Err(wrong("range.unit", other)),
            ("bounds", value) => bounds = Some(value),
            (other, _) => {
                let text = format!("BSON field '$densify.range.{other}' is an unknown field.");
                return Err(fault(40415, text));
            }
        }
    }
    let missing = |name: &str| {
        fault(40414, format!("BSON field '$densify.range.{name}' is missing but a required field"))
    };
    let step = step.ok_or_else(|| missing("step"))?;
    let bounds = bounds.ok_or_else(|| missing("bounds"))?;
    if step.is_nan() || step.compare(Number::Int32(0)).is_le() {
        return Err(fault(
            5733401,
            "The step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    let step = match unit {
        None => Step::Number(step),
        Some(unit) => {
            let Some(amount) = step.to_i64_exact() else {
                let text = "The step parameter in a range satement must be a whole number when densifying a date range";
                return Err(fault(6586400, text));
            };
            let mut add = DocBuilder::new();
            add.start_document("$dateAdd").append("startDate", "$d").append("unit", unit);
            add.append("amount", "$n").end();
            let add = add.finish();
            let expression = Expression::parse(RawValue::Document(add.as_doc()))?;
            let step = Step::Time(amount, Box::new(expression));
            // A unit that does not exist is told at once.
            step.after(RawValue::Date(0), 1)?;
            step
        }
    };
    let bounds = parse_bounds(bounds, partitioned, &step)?;
    Ok((step, bounds))
}

fn parse_bounds(bounds: RawValue<'_>, partitioned: bool, step: &Step) -> Result<Bounds> {
    match bounds {
        RawValue::String("full") => Ok(Bounds::Full),
        RawValue::String("partition") if partitioned => Ok(Bounds::Partition),
        RawValue::String("partition") => Err(fault(
            5733408,
            "One may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. You \
             may have meant to specify 'full' bounds.",
        )),
        RawValue::String(other) => Err(fault(
            5946802,
            format!("Bounds string must either be 'full' or 'partition', not '{other}'"),
        )),
        RawValue::Array(items) => {
            let items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
            let [low, high] = items[..] else {
                let text = "a bounding array in a range statement must have exactly two elements";
                return Err(fault(5733403, text));
            };
            if compare_values(low, high).is_gt() {
                let text = "the bounds in a range statement must be the string 'full', 'partition', or an ascending array";
                return Err(fault(5733402, text));
            }
            match step {
                Step::Time(..) if is_date(low) && is_date(high) => {}
                Step::Time(..) => {
                    let text =
                        "a bounding array must contain either both dates or both numeric types";
                    return Err(fault(5733402, text));
                }
                Step::Number(_) if low.is_number() && high.is_number() => {}
                Step::Number(_) if is_date(low) && is_date(high) => {
                    return Err(fault(6586401, "a bounding array of dates requires a unit"));
                }
                Step::Number(_) => {
                    let text =
                        "a bounding array must contain either both dates or both numeric types";
                    return Err(fault(5733402, text));
                }
            }
            Ok(Bounds::Between(low.to_owned(), high.to_owned()))
        }
        other => Err(fault(
            5946802,
            format!(
                "the bounds in a range statement must be the string 'full', 'partition', or an array, found {}",
                other.type_name()
            ),
        )),
    }
}

impl Step {
    /// The value so many steps behind another one.
    fn after(&self, base: RawValue<'_>, steps: i64) -> Result<ValueBuf> {
        let steps_number = Number::Int64(steps);
        match self {
            Step::Number(step) => {
                let base = Number::from_value(base).unwrap_or(Number::Int32(0));
                // Of the narrowest type that has room, as sums are.
                let way = match steps_number.to_i64_exact().and_then(|it| i32::try_from(it).ok()) {
                    Some(steps) => Number::Int32(steps).times(*step),
                    None => steps_number.times(*step),
                };
                Ok(base.plus(way).to_value().to_owned())
            }
            Step::Time(amount, add) => {
                let mut input = DocBuilder::new();
                input.append("d", base).append("n", amount.saturating_mul(steps));
                let input = input.finish();
                let value = add.evaluate(Frame::new(input.as_doc()))?;
                Ok(value.as_raw().unwrap_or(RawValue::Null).to_owned())
            }
        }
    }
}

/// Values that are added: from a base in steps up to an end, which is not among them.
#[derive(Clone, Debug)]
struct Gap {
    base: ValueBuf,
    steps: i64,
    end: ValueBuf,
    /// The fields that name the partition.
    partition: DocBuf,
}

/// Memory of a partition beside its bytes, roughly.
const PARTITION_BYTES: usize = 160;

/// What is known of a partition.
#[derive(Clone, Debug)]
struct Partition {
    base: ValueBuf,
    /// The next step that was not looked at.
    steps: i64,
    fields: DocBuf,
}

struct RunningDensify {
    stage: Densify,
    sorter: Option<Sorter>,
    sorted: Sorted,
    least: Option<ValueBuf>,
    greatest: Option<ValueBuf>,
    partitions: HashMap<Vec<u8>, Partition>,
    /// Memory of the partitions.
    bytes: usize,
    share: Option<Share>,
    gap: Option<Gap>,
    /// A document behind the gap.
    document: Option<DocBuf>,
    /// What is known about it.
    metadata: Metadata,
    /// Partitions whose end is still to be filled.
    ends: Option<Vec<Partition>>,
    added: u64,
}

impl RunningDensify {
    fn new(stage: Densify) -> RunningDensify {
        RunningDensify {
            stage,
            sorter: None,
            sorted: Sorted::default(),
            least: None,
            greatest: None,
            partitions: HashMap::new(),
            bytes: 0,
            share: None,
            gap: None,
            document: None,
            metadata: Metadata::NONE,
            ends: None,
            added: 0,
        }
    }

    fn partition_of(&self, document: RawDoc<'_>) -> (Vec<u8>, DocBuf) {
        let (mut key, mut fields) = (Vec::new(), DocBuf::empty());
        for field in &self.stage.partition {
            let value = get_plain(document, field);
            let bits = &mut TypeBits::default();
            let collation = self.stage.collation.as_deref();
            let known = value.unwrap_or(RawValue::Null);
            keys::append_value_in(&mut key, bits, known, false, collation);
            if let (Some(value), Ok(path)) = (value, parts(field)) {
                fields = replaced(fields.as_doc(), &path, Some(value));
            }
        }
        (key, fields)
    }

    /// The value of a document; nothing when it has none.
    fn value<'d>(&self, document: RawDoc<'d>) -> Result<Option<RawValue<'d>>> {
        let Some(value) = get_plain(document, &self.stage.field) else { return Ok(None) };
        match (&self.stage.step, value) {
            (_, RawValue::Null) => Ok(None),
            (Step::Number(_), RawValue::Date(_)) => Err(fault(
                6053600,
                "Encountered date densify value in collection when the step has no date unit",
            )),
            (Step::Number(_), value) if value.is_number() => Ok(Some(value)),
            (Step::Time(..), RawValue::Date(_)) => Ok(Some(value)),
            (Step::Time(..), value) if value.is_number() => Err(fault(
                6053600,
                "Encountered numeric densify value in collection when step has a date unit.",
            )),
            _ => Err(fault(5733201, "Densify field type must be numeric or a date")),
        }
    }

    /// Takes the next document; opens the gap before it.
    fn take(&mut self, context: &StageContext<'_>, document: DocBuf) -> Result<()> {
        let Some(value) = self.value(document.as_doc())?.map(RawValue::to_owned) else {
            self.document = Some(document);
            return Ok(());
        };
        let (key, fields) = self.partition_of(document.as_doc());
        let base = match &self.stage.bounds {
            Bounds::Full => self.least.clone().unwrap_or_else(|| value.clone()),
            Bounds::Partition => value.clone(),
            Bounds::Between(low, _) => low.clone(),
        };
        let partition = match self.partitions.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let values = base.heap_bytes() + fields.as_bytes().len();
                self.bytes += place.key().len() + values + PARTITION_BYTES;
                let share = || context.settings.budget.share(Operator::Densify);
                let share = self.share.get_or_insert_with(share);
                if share.is_over(self.bytes) {
                    return Err(share.failure(|limit| {
                        fault(6007200, format!("$densify exceeded memory limit of {limit}"))
                    }));
                }
                place.insert(Partition { base, steps: 0, fields })
            }
        };
        let mut end = value.clone();
        if let Bounds::Between(_, high) = &self.stage.bounds
            && compare_values(high.as_raw(), end.as_raw()).is_lt()
        {
            end = high.clone();
        }
        let gap = Gap {
            base: partition.base.clone(),
            steps: partition.steps,
            end,
            partition: partition.fields.clone(),
        };
        // The steps up to the value are behind us, one that falls on it included.
        let mut steps = partition.steps;
        loop {
            let at = self.stage.step.after(partition.base.as_raw(), steps)?;
            let order = compare_values(at.as_raw(), value.as_raw());
            let beyond = match &self.stage.bounds {
                Bounds::Between(_, high) => compare_values(at.as_raw(), high.as_raw()).is_ge(),
                Bounds::Full | Bounds::Partition => false,
            };
            if beyond || order.is_gt() || steps - partition.steps > MAX_ADDED as i64 {
                break;
            }
            steps += 1;
            if order.is_eq() {
                break;
            }
        }
        partition.steps = steps;
        self.gap = Some(gap);
        self.document = Some(document);
        Ok(())
    }

    /// Gives the documents of the gap; a pause keeps the rest.
    fn fill(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        while let Some(gap) = &mut self.gap {
            let value = self.stage.step.after(gap.base.as_raw(), gap.steps)?;
            if compare_values(value.as_raw(), gap.end.as_raw()).is_ge() {
                self.gap = None;
                break;
            }
            gap.steps += 1;
            self.added += 1;
            if self.added > MAX_ADDED {
                let text = format!(
                    "Generated {} documents in $densify, which is over the limit",
                    self.added
                );
                return Err(fault(5897900, text));
            }
            if self.added.is_multiple_of(256) {
                context.op.check()?;
            }
            let made = gap.partition.clone();
            let made = replaced(made.as_doc(), &self.stage.path, Some(value.as_raw()));
            if next(made.as_doc())? != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    /// What is still to be filled behind the last document of each partition.
    fn ends(&mut self) -> Vec<Partition> {
        let mut ends: Vec<Partition> = std::mem::take(&mut self.partitions).into_values().collect();
        if let Bounds::Between(low, _) = &self.stage.bounds
            && ends.is_empty()
            && self.stage.partition.is_empty()
        {
            ends.push(Partition { base: low.clone(), steps: 0, fields: DocBuf::empty() });
        }
        ends.sort_by(|a, b| a.fields.as_bytes().cmp(b.fields.as_bytes()));
        ends
    }

    fn end(&self) -> Option<ValueBuf> {
        match &self.stage.bounds {
            Bounds::Full => self.greatest.clone(),
            Bounds::Partition => None,
            Bounds::Between(_, high) => Some(high.clone()),
        }
    }
}

impl Running for RunningDensify {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let value = self.value(document)?;
        let mut key = Vec::new();
        let known = value.unwrap_or(RawValue::Null);
        keys::append_value(&mut key, &mut TypeBits::default(), known, false);
        if let Some(value) = value {
            let least = self.least.as_ref();
            if least.is_none_or(|least| compare_values(value, least.as_raw()).is_lt()) {
                self.least = Some(value.to_owned());
            }
            let greatest = self.greatest.as_ref();
            if greatest.is_none_or(|greatest| compare_values(value, greatest.as_raw()).is_gt()) {
                self.greatest = Some(value.to_owned());
            }
        }
        let begin = || Sorter::by_keys(None, &context.settings.budget, Operator::Sort);
        self.sorter.get_or_insert_with(begin).push_keyed(
            &key,
            document,
            &context.metadata.get(),
            context.op,
        )?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.sorted = sorter.finish(context.op)?;
        }
        loop {
            context.metadata.clear();
            if self.fill(context, next)? != Flow::More {
                return Ok(Flow::Pause);
            }
            if let Some(document) = self.document.take() {
                context.metadata.set(&self.metadata);
                if next(document.as_doc())? != Flow::More {
                    return Ok(Flow::Pause);
                }
            }
            if let Some((document, metadata)) = self.sorted.next()? {
                let document = document.to_owned();
                self.metadata = metadata;
                self.take(context, document)?;
                continue;
            }
            let mut ends = match self.ends.take() {
                Some(ends) => ends,
                None => self.ends(),
            };
            let partition = if ends.is_empty() { None } else { Some(ends.remove(0)) };
            self.ends = Some(ends);
            let (Some(partition), Some(end)) = (partition, self.end()) else {
                return Ok(Flow::More);
            };
            // The greatest value of all is an end that belongs to the range.
            let end = match &self.stage.bounds {
                Bounds::Full => self.inclusive(&partition, end)?,
                Bounds::Partition | Bounds::Between(..) => end,
            };
            let Partition { base, steps, fields } = partition;
            self.gap = Some(Gap { base, steps, end, partition: fields });
        }
    }

    fn holds_back(&self) -> bool {
        true
    }
}

impl RunningDensify {
    /// An end that takes in the step that falls on it.
    fn inclusive(&self, partition: &Partition, end: ValueBuf) -> Result<ValueBuf> {
        let mut steps = partition.steps;
        while steps - partition.steps <= MAX_ADDED as i64 {
            let at = self.stage.step.after(partition.base.as_raw(), steps)?;
            match compare_values(at.as_raw(), end.as_raw()) {
                std::cmp::Ordering::Less => steps += 1,
                std::cmp::Ordering::Equal => {
                    return self.stage.step.after(partition.base.as_raw(), steps + 1);
                }
                std::cmp::Ordering::Greater => break,
            }
        }
        Ok(end)
    }
}
