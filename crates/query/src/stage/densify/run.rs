//! Runs a `$densify`: sorts documents by the field, within each partition if that has bounds of its
//! own, then returns them with the documents that fill the gaps.

use std::collections::hash_map::Entry;

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

/// Values to be added: from a base in steps up to an end, which is excluded.
#[derive(Clone, Debug)]
struct Gap {
    base: ValueBuf,
    steps: i64,
    end: ValueBuf,
    /// The fields that identify the partition.
    partition: DocBuf,
}

/// Approximate memory of a partition beyond its bytes.
const PARTITION_BYTES: usize = 160;

/// The state of a partition.
#[derive(Clone, Debug)]
struct Partition {
    base: ValueBuf,
    /// The next step that was not reached.
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
    /// The document after the gap.
    document: Option<DocBuf>,
    /// Its metadata.
    metadata: Metadata,
    /// Partitions whose end has to be filled.
    ends: Option<Vec<Partition>>,
    added: u64,
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
    })
}

impl RunningDensify {
    fn partition_of(&self, document: RawDoc<'_>) -> (Vec<u8>, DocBuf) {
        let (mut key, mut fields) = (Vec::new(), DocBuf::empty());
        for field in &self.stage.partition {
            let value = get_plain(document, field);
            let bits = &mut TypeBits::default();
            let collation = self.stage.collation.as_deref();
            let known = value.unwrap_or(RawValue::Null);
            keys::append_value_in(&mut key, bits, known, SortOrder::Ascending, collation);
            if let (Some(value), Ok(path)) = (value, parts(field)) {
                fields = replaced(fields.as_doc(), &path, Some(value));
            }
        }
        (key, fields)
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

    /// Takes the next document, and opens the gap before it.
    fn take(&mut self, context: &StageContext<'_>, document: DocBuf) -> Result<()> {
        let Some(value) = self.value(document.as_doc())?.map(RawValue::to_owned) else {
            self.document = Some(document);
            return Ok(());
        };
        let (key, fields) = self.partition_of(document.as_doc());
        let base = match &self.stage.range.bounds {
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
                place.insert(Partition { base, steps: 0, fields: fields.clone() })
            }
        };
        let mut end = value.clone();
        if let Bounds::Between(_, high) = &self.stage.range.bounds
            && compare_values(high.as_raw(), end.as_raw()).is_lt()
        {
            end = high.clone();
        }
        let gap = Gap {
            base: partition.base.clone(),
            steps: partition.steps,
            end,
            // Values that the collation takes for equal are those of the document after the gap.
            partition: fields,
        };
        // Continue after the steps up to the value, including a step equal to it.
        let mut steps = partition.steps;
        loop {
            let at = self.stage.range.step.after(partition.base.as_raw(), steps)?;
            let order = compare_values(at.as_raw(), value.as_raw());
            let beyond = match &self.stage.range.bounds {
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

    /// Returns the documents of the gap. After a pause the rest is kept.
    fn fill(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        while let Some(gap) = &mut self.gap {
            let value = self.stage.range.step.after(gap.base.as_raw(), gap.steps)?;
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
                context.session.op.check()?;
            }
            let made = gap.partition.clone();
            let made = replaced(made.as_doc(), &self.stage.path, Some(value.as_raw()));
            if next(made.as_doc())? != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    /// The partitions that have to be filled after their last document.
    fn ends(&mut self) -> Vec<Partition> {
        let mut ends: Vec<Partition> = std::mem::take(&mut self.partitions).into_values().collect();
        if let Bounds::Between(low, _) = &self.stage.range.bounds
            && ends.is_empty()
            && self.stage.partition.is_empty()
        {
            ends.push(Partition { base: low.clone(), steps: 0, fields: DocBuf::empty() });
        }
        ends.sort_by(|a, b| a.fields.as_bytes().cmp(b.fields.as_bytes()));
        ends
    }

    fn end(&self) -> Option<ValueBuf> {
        match &self.stage.range.bounds {
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
        // Partitions with bounds of their own follow one another.
        let mut key = match &self.stage.range.bounds {
            Bounds::Partition => self.partition_of(document).0,
            Bounds::Full | Bounds::Between(..) => Vec::new(),
        };
        let known = value.unwrap_or(RawValue::Null);
        keys::append_value(&mut key, &mut TypeBits::default(), known, SortOrder::Ascending);
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
            // With the bounds `full`, the greatest value itself belongs to the range.
            let end = match &self.stage.range.bounds {
                Bounds::Full => self.inclusive(&partition, end)?,
                Bounds::Partition | Bounds::Between(..) => end,
            };
            let Partition { base, steps, fields } = partition;
            self.gap = Some(Gap { base, steps, end, partition: fields });
        }
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.sorted.spill(op)
    }

    fn holds_back(&self) -> bool {
        true
    }
}

impl RunningDensify {
    /// Moves an end that a step is equal to after that step.
    fn inclusive(&self, partition: &Partition, end: ValueBuf) -> Result<ValueBuf> {
        let mut steps = partition.steps;
        while steps - partition.steps <= MAX_ADDED as i64 {
            let at = self.stage.range.step.after(partition.base.as_raw(), steps)?;
            match compare_values(at.as_raw(), end.as_raw()) {
                std::cmp::Ordering::Less => steps += 1,
                std::cmp::Ordering::Equal => {
                    return self.stage.range.step.after(partition.base.as_raw(), steps + 1);
                }
                std::cmp::Ordering::Greater => break,
            }
        }
        Ok(end)
    }
}
