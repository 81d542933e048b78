//! `$linearFill` over a stream: the documents of a gap are pending until the next value is known.

use mayfly_value::arguments::error::mistyped;
use std::collections::VecDeque;

use mayfly_base::{Error, Result};
use mayfly_value::{Number, ValueBuf};

use super::super::fill::{Place, between, is_nullish};
use super::super::{Function, WindowFunction, null};
use super::{DocumentReader, StreamMemory};

pub(super) struct Line {
    input: Box<dyn DocumentReader>,
    /// Computed results.
    ready: VecDeque<Option<ValueBuf>>,
    /// The last document with a value.
    left: Option<(Number, Number)>,
    before: Option<Place>,
    over: bool,
}

impl Line {
    pub(super) fn new(input: Box<dyn DocumentReader>) -> Line {
        Line { input, ready: VecDeque::new(), left: None, before: None, over: false }
    }

    pub(super) fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        if self.ready.is_empty() && !self.over {
            self.read_to_value(function, memory)?;
        }
        Ok(self.ready.pop_front().flatten())
    }

    /// Reads up to the next document with a value.
    fn read_to_value(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<()> {
        let Function::LinearFill(input) = &function.function else {
            return Err(Error::internal("a line for another function"));
        };
        let mut gap: Vec<Number> = Vec::new();
        while let Some(document) = self.input.next()? {
            let place = Place::of(function.sort_value(&document).as_raw())?;
            if let Some(before) = self.before.replace(place) {
                place.check_after(before)?;
            }
            let place = place.at;
            let value = input.evaluate(function.frame(&document))?.into_owned();
            let Some(value) = value.filter(|value| !is_nullish(value)) else {
                gap.push(place);
                if !memory
                    .holds(gap.capacity() * (size_of::<Number>() + size_of::<Option<ValueBuf>>()))
                {
                    return Err(memory.failure());
                }
                continue;
            };
            let Some(number) = Number::from_value(value.as_raw()) else {
                return Err(mistyped("Value to be filled must be numeric or nullish"));
            };
            let left = self.left.replace((place, number));
            let filled = |at: &Number| match left {
                Some(left) => between(left, (place, number), *at).to_value().to_owned(),
                None => null(),
            };
            self.ready.extend(gap.iter().map(|at| Some(filled(at))));
            self.ready.push_back(Some(value));
            return Ok(());
        }
        self.over = true;
        self.ready.extend(gap.iter().map(|_| Some(null())));
        Ok(())
    }
}
