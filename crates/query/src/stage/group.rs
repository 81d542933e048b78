//! `$group`: one result per distinct `_id`, in the order in which the groups came up.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_expr::accum::{AccumState, Accumulator};
use mayfly_expr::{Expression, Frame, Scope, check_size};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, DocBuilder, RawDoc, RawValue, ValueBuf};

use super::{Next, Running, Stage, StageContext};
use crate::Flow;

/// Memory of one group beside its key and `_id`, roughly.
const GROUP_BYTES: usize = 96;

#[derive(Clone, Debug)]
pub(crate) struct Group {
    id: Expression,
    fields: Vec<(String, Accumulator)>,
    /// Which strings are one group.
    collation: Option<Arc<Collation>>,
}

pub(super) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
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
            if id.replace(Expression::parse_in(element.value(), scope)?).is_some() {
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
            Ok(vec![Stage::Group(Group { id, fields, collation })])
        }
        None => Err(Error::new(ErrorCode(15955), "a group specification must include an _id")),
    }
}

pub(super) struct RunningGroup {
    group: Group,
    places: HashMap<Vec<u8>, usize>,
    groups: VecDeque<(Option<ValueBuf>, Vec<AccumState>)>,
    bytes: usize,
    key: Vec<u8>,
}

impl RunningGroup {
    pub(super) fn new(group: Group) -> RunningGroup {
        RunningGroup {
            group,
            places: HashMap::new(),
            groups: VecDeque::new(),
            bytes: 0,
            key: Vec::new(),
        }
    }

    fn place(&mut self, document: RawDoc<'_>) -> Result<usize> {
        let id = self.group.id.evaluate(Frame::new(document))?;
        self.key.clear();
        // Numbers of different types that are equal share a group; missing and null do, too.
        let value = id.as_raw().unwrap_or(RawValue::Null);
        let collation = self.group.collation.as_deref();
        keys::append_value_in(&mut self.key, &mut TypeBits::default(), value, false, collation);
        if let Some(place) = self.places.get(&self.key) {
            return Ok(*place);
        }
        let id = id.into_owned();
        let key_of_group = id.as_ref().map(ValueBuf::as_raw);
        let mut states = Vec::with_capacity(self.group.fields.len());
        for (_, accumulator) in &self.group.fields {
            states.push(accumulator.start(key_of_group)?);
        }
        self.bytes += self.key.len() + id.as_ref().map_or(0, ValueBuf::heap_bytes) + GROUP_BYTES;
        self.bytes += states.len() * size_of::<AccumState>();
        self.check()?;
        let place = self.groups.len();
        self.places.insert(self.key.clone(), place);
        self.groups.push_back((id, states));
        Ok(place)
    }
}

impl RunningGroup {
    fn check(&self) -> Result<()> {
        if self.bytes <= limits::MAX_BLOCKING_MEMORY_BYTES {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
            "Exceeded memory limit for $group, but didn't allow external sort.",
        ))
    }
}

impl Running for RunningGroup {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        _: &mut Next<'_>,
    ) -> Result<Flow> {
        let place = self.place(document)?;
        let states = &mut self.groups[place].1;
        for ((_, accumulator), state) in self.group.fields.iter().zip(states) {
            let before = state.bytes();
            accumulator.add(state, document)?;
            self.bytes = (self.bytes + state.bytes()).saturating_sub(before);
        }
        self.check()?;
        Ok(Flow::More)
    }

    fn finish(&mut self, _: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        self.places.clear();
        while let Some((id, states)) = self.groups.pop_front() {
            let mut out = DocBuilder::new();
            out.append("_id", id.as_ref().map_or(RawValue::Null, ValueBuf::as_raw));
            for ((name, accumulator), state) in self.group.fields.iter().zip(&states) {
                out.append(name, &accumulator.finish(state)?);
                check_size(out.len())?;
            }
            if next(out.finish().as_doc())? != Flow::More && !self.groups.is_empty() {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::More)
    }

    fn holds_back(&self) -> bool {
        true
    }
}
