//! Runs a `$densify`: sorts documents by the field, with the bounds `full` over all partitions and
//! otherwise within each, then returns them with the documents that fill the gaps.

use foldhash::{HashMap, HashMapExt};
use mayfly_base::Result;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::paths::get_plain;
use mayfly_value::{DocBuf, RawDoc, RawValue, SortOrder, ValueBuf, compare_values};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::range::{Bounds, Step};
use super::{Densify, fault};
use crate::exec::Flow;
use crate::language::metadata::Metadata;
use crate::memory::{Share, Sorted, Sorter};
use crate::stage::unwind::{parts, replaced};
use crate::stage::{Next, Running, StageContext};

/// Limit on the documents that one stage adds: 500,000 by the manual, "MongoDB Limits and
/// Thresholds".
const MAX_ADDED: u64 = 500_000;

/// Values to be added: from one to an end in steps.
#[derive(Clone, Debug)]
struct Gap {
    next: ValueBuf,
    end: ValueBuf,
    /// The end itself may be added, too.
    inclusive: bool,
    /// The value added last.
    last: Option<ValueBuf>,
    /// The fields that identify the partition.
    partition: DocBuf,
    /// The key of the partition, and the value of the document after the gap.
    before: Option<(Vec<u8>, ValueBuf)>,
}

/// Approximate memory of a partition beyond its bytes.
const PARTITION_BYTES: usize = 160;

/// The state of a partition.
#[derive(Clone, Debug)]
struct Partition {
    /// The value from which the next step is taken.
    last: ValueBuf,
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
    /// The document after the gap.
    document: Option<DocBuf>,
    /// Its metadata.
    metadata: Metadata,
    /// Partitions whose end has to be filled.
    ends: Option<Vec<Partition>>,
    added: u64,
    /// The state before the first document has been set.
    begun: bool,
}

/// Creates the running stage.
pub(super) fn start(stage: Densify) -> Box<dyn Running> {
    Box::new(RunningDensify {
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
        begun: false,
    })
}

impl RunningDensify {
    /// The key of a document's partition, and the fields that identify it. A missing field is not a
    /// null one.
    fn partition_of(&self, document: RawDoc<'_>) -> (Vec<u8>, DocBuf) {
        let (mut key, mut fields) = (Vec::new(), DocBuf::empty());
        for field in &self.stage.partition {
            let value = get_plain(document, field);
            key.push(u8::from(value.is_some()));
            let Some(value) = value else { continue };
            let collation = self.stage.collation.as_deref();
            let bits = &mut TypeBits::default();
            keys::append_value_in(&mut key, bits, value, SortOrder::Ascending, collation);
            if let Ok(path) = parts(field) {
                fields = replaced(fields.as_doc(), &path, Some(value));
            }
        }
        (key, fields)
    }

    /// The order of the documents: with the bounds `full` by the value alone.
    fn sort_key(&self, document: RawDoc<'_>, value: Option<RawValue<'_>>) -> Vec<u8> {
        let (mut key, bits) = (Vec::new(), &mut TypeBits::default());
        if !matches!(self.stage.range.bounds, Bounds::Full) {
            let collation = self.stage.collation.as_deref();
            for field in &self.stage.partition {
                let value = get_plain(document, field).unwrap_or(RawValue::Null);
                keys::append_value_in(&mut key, bits, value, SortOrder::Ascending, collation);
            }
        }
        let value = value.unwrap_or(RawValue::Null);
        keys::append_value(&mut key, bits, value, SortOrder::Ascending);
        key
    }

    /// The value of a document; `None` if it has none.
    fn value<'d>(&self, document: RawDoc<'d>) -> Result<Option<RawValue<'d>>> {
        let Some(value) = get_plain(document, &self.stage.field) else { return Ok(None) };
        match (&self.stage.range.step, value) {
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

    /// Sets the value from which the next step of a partition is taken.
    fn set_last(
        &mut self,
        context: &StageContext<'_>,
        key: &[u8],
        last: ValueBuf,
        fields: &DocBuf,
    ) -> Result<()> {
        if let Some(partition) = self.partitions.get_mut(key) {
            partition.last = last;
            return Ok(());
        }
        self.bytes += key.len() + last.heap_bytes() + fields.as_bytes().len() + PARTITION_BYTES;
        let share = || context.settings.budget.share(Operator::Densify);
        let share = self.share.get_or_insert_with(share);
        if share.is_over(self.bytes) {
            return Err(share.failure(|limit| {
                fault(6007200, format!("$densify exceeded memory limit of {limit}"))
            }));
        }
        let partition = Partition { last, fields: fields.clone() };
        self.partitions.insert(key.to_vec(), partition);
        Ok(())
    }

    /// Without partitions, a range with bounds is filled even if there are no documents.
    fn begin(&mut self, context: &StageContext<'_>) -> Result<()> {
        if let Bounds::Between(low, _) = &self.stage.range.bounds
            && self.stage.partition.is_empty()
            && !self.begun
        {
            let before = self.stage.range.step.before(low.as_raw())?;
            self.set_last(context, &[], before, &DocBuf::empty())?;
        }
        self.begun = true;
        Ok(())
    }

    /// Takes the next document, and opens the gap before it.
    fn take(&mut self, context: &StageContext<'_>, document: DocBuf) -> Result<()> {
        let value = self.value(document.as_doc())?.map(RawValue::to_owned);
        if let Some(value) = value {
            let (key, fields) = self.partition_of(document.as_doc());
            if let Some(last) = self.last_before(context, &key, &value, &fields)? {
                self.open(context, key, &last, value, fields)?;
            }
        }
        self.document = Some(document);
        Ok(())
    }

    /// The value from which the steps up to a document are taken; `None` if nothing is added before
    /// the document.
    fn last_before(
        &mut self,
        context: &StageContext<'_>,
        key: &[u8],
        value: &ValueBuf,
        fields: &DocBuf,
    ) -> Result<Option<ValueBuf>> {
        let after = |a: &ValueBuf, b: &ValueBuf| compare_values(a.as_raw(), b.as_raw()).is_gt();
        let step = &self.stage.range.step;
        let known = self.partitions.get(key).map(|partition| partition.last.clone());
        let (last, first) = match (known, &self.stage.range.bounds, &self.least) {
            (Some(last), Bounds::Between(_, high), _) if !after(high, &last) => return Ok(None),
            (Some(last), Bounds::Between(low, _), _) if after(low, &last) => {
                (step.before(low.as_raw())?, None)
            }
            (Some(last), ..) => (last, None),
            (None, Bounds::Between(low, _), _) if after(value, low) => {
                (step.before(low.as_raw())?, Some(low.clone()))
            }
            (None, Bounds::Full, Some(least)) if after(value, least) => {
                let before = step.before(least.as_raw())?;
                if !after(value, &step.after(least.as_raw())?) {
                    // The steps begin at the least value, but only after this document.
                    self.set_last(context, key, before, fields)?;
                    return Ok(None);
                }
                (before, None)
            }
            (None, ..) => {
                self.set_last(context, key, value.clone(), fields)?;
                return Ok(None);
            }
        };
        if after(&last, value) {
            return Ok(None);
        }
        if let Some(first) = first {
            self.set_last(context, key, first, fields)?;
        }
        Ok(Some(last))
    }

    /// Opens the gap between a value and that of a document.
    fn open(
        &mut self,
        context: &StageContext<'_>,
        key: Vec<u8>,
        last: &ValueBuf,
        value: ValueBuf,
        fields: DocBuf,
    ) -> Result<()> {
        let mut next = self.stage.range.step.after(last.as_raw())?;
        let mut end = value.clone();
        if let Bounds::Between(low, high) = &self.stage.range.bounds {
            if compare_values(next.as_raw(), low.as_raw()).is_lt() {
                next = low.clone();
            }
            if compare_values(high.as_raw(), end.as_raw()).is_le() {
                end = high.clone();
            }
        }
        if compare_values(next.as_raw(), end.as_raw()).is_ge() {
            if compare_values(next.as_raw(), value.as_raw()).is_eq() {
                self.set_last(context, &key, value, &fields)?;
            }
            return Ok(());
        }
        self.set_last(context, &key, next.clone(), &fields)?;
        let before = Some((key, value));
        self.gap = Some(Gap { next, end, inclusive: false, last: None, partition: fields, before });
        Ok(())
    }

    /// Returns the documents of the gap. After a pause the rest is kept.
    fn fill(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        while let Some(gap) = &mut self.gap {
            let order = compare_values(gap.next.as_raw(), gap.end.as_raw());
            if order.is_gt() || (order.is_eq() && !gap.inclusive) {
                self.close();
                break;
            }
            self.added += 1;
            if self.added > MAX_ADDED {
                let text = format!(
                    "Generated {} documents in $densify, which is over the limit of {MAX_ADDED}",
                    self.added
                );
                return Err(fault(5897900, text));
            }
            if self.added.is_multiple_of(256) {
                context.session.op.check()?;
            }
            let after = self.stage.range.step.after(gap.next.as_raw())?;
            let value = std::mem::replace(&mut gap.next, after);
            let made = gap.partition.as_doc();
            let made = replaced(made, &self.stage.path, Some(value.as_raw()));
            gap.last = Some(value);
            if next(made.as_doc())? != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    /// Closes the gap: the next step is taken from the document if a step reached it, otherwise
    /// from the value added last.
    fn close(&mut self) {
        let Some(Gap { next, last, before: Some((key, value)), .. }) = self.gap.take() else {
            return;
        };
        let reached = compare_values(next.as_raw(), value.as_raw()).is_eq();
        let last = if reached { Some(value) } else { last };
        if let (Some(last), Some(partition)) = (last, self.partitions.get_mut(&key)) {
            partition.last = last;
        }
    }

    /// The partitions that have to be filled after their last document.
    fn ends(&mut self) -> Vec<Partition> {
        let mut ends: Vec<Partition> = std::mem::take(&mut self.partitions).into_values().collect();
        ends.sort_by(|a, b| a.fields.as_bytes().cmp(b.fields.as_bytes()));
        ends
    }

    /// Opens the gap after the last document of a partition; false if there is none with these
    /// bounds.
    fn open_end(&mut self, partition: Partition) -> Result<bool> {
        let (first, end, inclusive) = match &self.stage.range.bounds {
            Bounds::Full => (self.least.clone(), self.greatest.clone(), true),
            Bounds::Partition => (None, None, false),
            Bounds::Between(low, high) => (Some(low.clone()), Some(high.clone()), false),
        };
        let (Some(first), Some(end)) = (first, end) else { return Ok(false) };
        let next = match compare_values(first.as_raw(), partition.last.as_raw()).is_gt() {
            true => first,
            false => self.stage.range.step.after(partition.last.as_raw())?,
        };
        let partition = partition.fields;
        self.gap = Some(Gap { next, end, inclusive, last: None, partition, before: None });
        Ok(true)
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
        let key = self.sort_key(document, value);
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
        context.sort(&mut self.sorter, (None, Operator::Sort), &key, document)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if let Some(sorter) = self.sorter.take() {
            self.sorted = sorter.finish(context.session.op)?;
        }
        self.begin(context)?;
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
            let Some(partition) = partition else { return Ok(Flow::More) };
            if !self.open_end(partition)? {
                return Ok(Flow::More);
            }
        }
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.sorted.spill(op)
    }

    fn holds_back(&self) -> bool {
        true
    }
}
