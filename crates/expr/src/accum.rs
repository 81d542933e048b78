//! Accumulators of `$group`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Number, RawDoc, RawElement, RawValue, ValueBuf};

use crate::{Expression, Frame, Scope};

/// A row of the table of accumulators.
pub struct AccumRow {
    /// With its dollar.
    pub name: &'static str,
    kind: Kind,
}

/// Accumulators that work.
pub const ROWS: &[AccumRow] =
    &[AccumRow { name: "$sum", kind: Kind::Sum }, AccumRow { name: "$count", kind: Kind::Count }];

/// Accumulators of the reference that do not exist here yet.
pub const MISSING: &[&str] = &[
    "$accumulator",
    "$addToSet",
    "$avg",
    "$bottom",
    "$bottomN",
    "$concatArrays",
    "$first",
    "$firstN",
    "$last",
    "$lastN",
    "$max",
    "$maxN",
    "$median",
    "$mergeObjects",
    "$min",
    "$minN",
    "$percentile",
    "$push",
    "$setUnion",
    "$stdDevPop",
    "$stdDevSamp",
    "$top",
    "$topN",
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sum,
    Count,
}

/// A parsed accumulator.
#[derive(Clone, Debug)]
pub struct Accumulator {
    kind: Kind,
    argument: Expression,
}

/// The running state of an accumulator in one group.
#[derive(Clone, Debug)]
pub struct AccumState {
    sum: Number,
}

impl Default for AccumState {
    fn default() -> AccumState {
        AccumState { sum: Number::Int32(0) }
    }
}

impl Accumulator {
    /// Parses `{ $sum: ... }`, the value of a field of `$group`.
    ///
    /// # Errors
    /// 40234, 40237, 40238, 15952 as the reference has them; 238 for accumulators that are missing here.
    pub fn parse(field: RawElement<'_>, scope: &Scope) -> Result<Accumulator> {
        let name = field.name();
        let RawValue::Document(spec) = field.value() else {
            return Err(Error::new(
                ErrorCode(40234),
                format!("The field '{name}' must be an accumulator object"),
            ));
        };
        let mut operators = spec.iter();
        let (Some(operator), None) = (operators.next(), operators.next()) else {
            return Err(Error::new(
                ErrorCode(40238),
                format!("The field '{name}' must specify one accumulator"),
            ));
        };
        let Some(row) = ROWS.iter().find(|row| row.name == operator.name()) else {
            if MISSING.contains(&operator.name()) {
                return Err(Error::not_implemented(format!("accumulator '{}'", operator.name())));
            }
            return Err(Error::new(
                ErrorCode(15952),
                format!("unknown group operator '{}'", operator.name()),
            ));
        };
        let no_arguments = operator.value().as_document().is_some_and(RawDoc::is_empty);
        if matches!(row.kind, Kind::Count) && !no_arguments {
            return Err(Error::type_mismatch("$count takes no arguments, i.e. $count:{}"));
        }
        Ok(Accumulator { kind: row.kind, argument: Expression::parse_in(operator.value(), scope)? })
    }

    /// Takes one document into the state. Values that are no numbers count as nothing.
    ///
    /// # Errors
    /// Those of the argument.
    pub fn add(&self, state: &mut AccumState, document: RawDoc<'_>) -> Result<()> {
        let number = match self.kind {
            Kind::Count => Some(Number::Int32(1)),
            Kind::Sum => {
                let value = self.argument.evaluate(Frame::new(document))?;
                value.as_raw().and_then(Number::from_value)
            }
        };
        if let Some(number) = number {
            state.sum = state.sum.plus(number);
        }
        Ok(())
    }

    /// The result of a group.
    pub fn finish(&self, state: &AccumState) -> ValueBuf {
        state.sum.to_value().to_owned()
    }
}
