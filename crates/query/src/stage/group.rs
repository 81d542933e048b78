//! `$group`: one result for each distinct `_id`, in the order of first occurrence. Groups that
//! exceed the memory are spilled and merged at the end, in the order of their keys.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::accum::{AccumState, Accumulator};
use mayfly_expr::{Expression, FEW_EXPRESSIONS, Frame, Scope};
use mayfly_runs::{Merge, Run, Sorter};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{
    Collation, DocBuf, DocBuilder, Finder, RawDoc, RawValue, SortOrder, ValueBuf, check_depth,
    check_size,
};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::fields::plain_field;
use super::sort::Sort;
use super::{Effect, Next, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
use crate::language::FirstOf;
use crate::memory::{Share, as_document, no_disk_use};

/// Approximate memory of one group beyond its key and `_id`.
const GROUP_BYTES: usize = 96;
/// Results between two checks of the deadline.
const CHUNK_GROUPS: u64 = 256;

/// A parsed `$group`.
#[derive(Debug)]
pub(crate) struct Group {
    id: Expression,
    fields: Vec<(String, Accumulator)>,
    /// The collation by which string keys are equal.
    collation: Option<Arc<Collation>>,
}

pub(crate) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        return Err(Error::new(
            ErrorCode(15947),
            "a group's fields must be specified in an object",
        ));
    };
    let mut id = None;
    let mut fields = Vec::new();
    for element in spec {
        let name = element.name();
        if name == "_id" {
            if id.replace(parse_id(element.value(), scope)?).is_some() {
                return Err(Error::new(
                    ErrorCode(15948),
                    "a group's _id may only be specified once",
                ));
            }
        } else if name.starts_with('$') {
            let text = format!("The field name '{name}' cannot be an operator name");
            return Err(Error::new(ErrorCode(40236), text));
        } else if name.contains('.') {
            let text = format!("The field name '{name}' cannot contain '.'");
            return Err(Error::new(ErrorCode(40235), text));
        } else {
            fields.push((name.to_owned(), Accumulator::parse(element, scope)?));
        }
    }
    match id {
        Some(id) => {
            let collation = scope.collation().cloned();
            Ok(Box::new(Group { id, fields, collation }))
        }
        None => Err(Error::new(ErrorCode(15955), "a group specification must include an _id")),
    }
}

/// Parses the key of the groups. In a document of one field, a missing value counts as null, as in
/// the reference.
fn parse_id(value: RawValue<'_>, scope: &Scope) -> Result<Expression> {
    if let RawValue::Document(document) = value {
        let mut fields = document.iter();
        if let (Some(only), None) = (fields.next(), fields.next())
            && !only.name().starts_with('$')
        {
            let mut id = DocBuilder::new();
            id.start_document(only.name()).start_array("$ifNull");
            id.push(only.value()).push(RawValue::Null).end().end();
            return Expression::parse_in(RawValue::Document(id.finish().as_doc()), scope);
        }
    }
    Expression::parse_in(value, scope)
}

impl Stage for Group {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningGroup::new(*self))
    }

    fn reads(&self) -> Reads {
        Reads::grouped(self.id.dependencies(), &self.fields)
    }

    fn effect(&self) -> Effect {
        plain_field(&self.id).map_or(Effect::Unknown, |field| Effect::GroupsBy(field.to_owned()))
    }
}

/// The `_id` of a group, and the states of its accumulators.
type OneGroup = (Option<ValueBuf>, Vec<AccumState>);

struct RunningGroup {
    group: Group,
    places: HashMap<Vec<u8>, usize>,
    groups: VecDeque<OneGroup>,
    bytes: usize,
    share: Option<Share>,
    /// Spilled groups.
    parts: Option<Sorter>,
    merge: Option<Merge>,
    /// The group whose spilled parts are being merged.
    open: Option<(Vec<u8>, OneGroup)>,
    key: Vec<u8>,
}

impl RunningGroup {
    fn new(group: Group) -> RunningGroup {
        RunningGroup {
            group,
            places: HashMap::new(),
            groups: VecDeque::new(),
            bytes: 0,
            share: None,
            parts: None,
            merge: None,
            open: None,
            key: Vec::new(),
        }
    }

    fn place(&mut self, frame: Frame<'_>) -> Result<usize> {
        let id = self.group.id.evaluate(frame)?;
        self.key.clear();
        // Equal numbers of different types share a group, and so do missing values and null.
        let value = id.as_raw().unwrap_or(RawValue::Null);
        let collation = self.group.collation.as_deref();
        keys::append_value_in(
            &mut self.key,
            &mut TypeBits::default(),
            value,
            SortOrder::Ascending,
            collation,
        );
        if let Some(place) = self.places.get(&self.key) {
            return Ok(*place);
        }
        let id = id.into_owned();
        let states = self.group.start(id.as_ref())?;
        self.bytes += self.key.len() + id.as_ref().map_or(0, ValueBuf::heap_bytes) + GROUP_BYTES;
        self.bytes += states.len() * size_of::<AccumState>();
        let place = self.groups.len();
        self.places.insert(self.key.clone(), place);
        self.groups.push_back((id, states));
        Ok(place)
    }
}

impl RunningGroup {
    /// Spills if the memory is exceeded.
    fn check(&mut self, context: &StageContext<'_>) -> Result<()> {
        let share = || context.settings.budget.share(Operator::Group);
        let share = self.share.get_or_insert_with(share);
        match share.is_over(self.bytes) {
            true => self.spill(context.session.op),
            false => Ok(()),
        }
    }

    /// Spills the groups, if files are allowed.
    fn spill(&mut self, op: &OpCtx) -> Result<()> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let Some(folder) = share.folder()? else {
            return Err(share.failure(|_| no_disk_use("$group")));
        };
        let parts = self.parts.get_or_insert_default();
        let mut places: Vec<(Vec<u8>, usize)> = self.places.drain().collect();
        places.sort_unstable();
        let (mut run, check) = (Run::new(folder)?, || op.check());
        for (key, place) in places {
            run.push(&key, saved(&self.groups[place]).as_bytes(), &check)?;
        }
        let before = parts.spilled();
        parts.push_run(run, folder, &check)?;
        share.count(op, parts.spilled().since(before));
        self.groups = VecDeque::new();
        self.bytes = 0;
        share.set(0);
        Ok(())
    }

    /// Spills the groups that are left after the input is over, in their order.
    fn spill_finished(&mut self, op: &OpCtx) -> Result<()> {
        let Some(share) = self.share.as_mut().filter(|_| !self.groups.is_empty()) else {
            return Ok(());
        };
        share.set(self.bytes);
        let Some(folder) = share.folder()? else { return Err(no_disk_use("$group")) };
        let (mut run, check) = (Run::new(folder)?, || op.check());
        for (place, group) in (0u64..).zip(&self.groups) {
            run.push(&place.to_be_bytes(), saved(group).as_bytes(), &check)?;
        }
        let mut parts = Sorter::new();
        parts.push_run(run, folder, &check)?;
        share.count(op, parts.spilled());
        self.merge = Some(parts.merge(&check)?);
        self.groups = VecDeque::new();
        self.bytes = 0;
        share.set(0);
        Ok(())
    }

    /// Returns the spilled groups, each merged from its parts.
    fn finish_merged(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        let Some(merge) = &mut self.merge else { return Ok(Flow::More) };
        let mut given = 0u64;
        while let Some((key, bytes)) = merge.next()? {
            let part = as_document(bytes)?;
            if let Some((open, (_, states))) = &mut self.open
                && open == key
            {
                self.group.merge(states, part)?;
                continue;
            }
            let id = part.get("_id").map(RawValue::to_owned);
            let mut states = self.group.start(id.as_ref())?;
            self.group.merge(&mut states, part)?;
            let Some((_, (id, states))) = self.open.replace((key.to_vec(), (id, states))) else {
                continue;
            };
            given += 1;
            if given.is_multiple_of(CHUNK_GROUPS) {
                context.session.op.check()?;
            }
            if next(self.group.result(id.as_ref(), &states)?.as_doc())? != Flow::More {
                return Ok(Flow::Pause);
            }
        }
        if let Some((_, (id, states))) = self.open.take() {
            next(self.group.result(id.as_ref(), &states)?.as_doc())?;
        }
        self.merge = Some(Merge::default());
        Ok(Flow::More)
    }
}

/// A spilled group: `{ _id: ..., s: [ state of each accumulator ] }`.
fn saved((id, states): &OneGroup) -> DocBuf {
    let mut out = DocBuilder::new();
    if let Some(id) = id {
        out.append("_id", id);
    }
    out.start_array("s");
    for state in states {
        out.push(&state.save());
    }
    out.end();
    out.finish()
}

impl Group {
    /// Returns the grouping field and the needed document, if one document of each group suffices.
    /// `sort` is the stage that orders the input.
    pub(crate) fn first_of(&self, sort: Option<&Sort>) -> Option<FirstOf> {
        let mut id = &self.id;
        while let Expression::Collated(_, inner) = id {
            id = inner;
        }
        let Expression::Path(parts) = id else { return None };
        let accumulators = || self.fields.iter().map(|(_, accumulator)| accumulator);
        let whole = !self.fields.is_empty();
        let last = whole && accumulators().all(Accumulator::is_last);
        let enough =
            !whole || sort.is_some() && (last || accumulators().all(Accumulator::is_first));
        let path = || parts.join(".");
        (enough && !parts.is_empty()).then(|| FirstOf {
            path: path(),
            last,
            whole,
            missing_is_distinct: false,
        })
    }

    /// The result over a number of documents, if the stage only counts them: `{ _id: null, n: {
    /// $sum: 1 } }`.
    pub(crate) fn counted(&self, documents: u64) -> Option<DocBuf> {
        let id = self.id.as_constant()?;
        let count = i64::try_from(documents).unwrap_or(i64::MAX);
        let count = i32::try_from(count).map_or(RawValue::Int64(count), RawValue::Int32);
        let mut out = DocBuilder::new();
        out.append("_id", id);
        for (name, accumulator) in &self.fields {
            if !accumulator.is_count() {
                return None;
            }
            out.append(name, count);
        }
        Some(out.finish())
    }

    fn start(&self, id: Option<&ValueBuf>) -> Result<Vec<AccumState>> {
        let id = id.map(ValueBuf::as_raw);
        self.fields.iter().map(|(_, accumulator)| accumulator.start(id)).collect()
    }

    fn merge(&self, states: &mut [AccumState], part: RawDoc<'_>) -> Result<()> {
        let parts = part.get("s").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
        for (((_, accumulator), state), saved) in self.fields.iter().zip(states).zip(parts) {
            accumulator.merge(state, saved.value())?;
        }
        Ok(())
    }

    fn result(&self, id: Option<&ValueBuf>, states: &[AccumState]) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        out.append("_id", id.map_or(RawValue::Null, ValueBuf::as_raw));
        for ((name, accumulator), state) in self.fields.iter().zip(states) {
            out.append(name, &accumulator.finish(state)?);
            check_size(out.len())?;
        }
        let out = out.finish();
        // The `_id` may be a nested document.
        check_depth(out.as_doc())?;
        Ok(out)
    }
}

impl Running for RunningGroup {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let metadata = context.metadata.get();
        let many = self.group.fields.len() > FEW_EXPRESSIONS;
        let finder = many.then(|| Finder::new(document));
        let frame = metadata.frame(document).finding_by(finder.as_ref());
        let place = self.place(frame)?;
        let states = &mut self.groups[place].1;
        for ((_, accumulator), state) in self.group.fields.iter().zip(states) {
            let before = state.bytes();
            accumulator.add(state, frame)?;
            self.bytes = (self.bytes + state.bytes()).saturating_sub(before);
        }
        self.check(context)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        if self.parts.is_some() {
            // The groups left in memory become the last run.
            if !self.groups.is_empty() {
                self.spill(context.session.op)?;
            }
            let parts = self.parts.take();
            let check = || context.session.op.check();
            self.merge = parts.map(|parts| parts.merge(&check)).transpose()?;
        }
        if self.merge.is_some() {
            return self.finish_merged(context, next);
        }
        self.places = HashMap::new();
        while let Some((id, states)) = self.groups.pop_front() {
            let result = self.group.result(id.as_ref(), &states)?;
            if next(result.as_doc())? != Flow::More && !self.groups.is_empty() {
                return Ok(Flow::Pause);
            }
        }
        // Later stages may run for long, so the memory is released.
        self.share = None;
        Ok(Flow::More)
    }

    fn release(&mut self, op: &OpCtx) -> Result<()> {
        match self.places.is_empty() {
            true => self.spill_finished(op),
            // The input is not over.
            false => self.spill(op),
        }
    }

    fn holds_back(&self) -> bool {
        true
    }
}
