//! Every expression operator: a family per file, a row per operator.

mod arithmetic;
mod array;
mod bitwise;
mod boolean;
mod comparison;
mod conditional;
mod constant;
mod convert;
mod custom;
mod date;
mod growing;
mod iterate;
mod newer;
mod object;
mod operand;
pub(crate) mod regex;
mod set;
mod size;
mod statistics;
mod string;
mod trigonometry;
mod types;
mod variable;

use std::fmt;

use mayfly_base::Result;
use mayfly_value::RawValue;

use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(crate) use array::ends::{check_n, n_and_input};
pub use array::slice_range;
pub(crate) use custom::call_script;
pub(crate) use date::unit::{Unit, moved};
pub(crate) use date::zone::Zone;
pub use iterate::Each;
pub use newer::NEWER;
pub(crate) use object::merge_fault;
pub(crate) use operand::{array, document, fault};
pub use set::ConstantItems;
pub use size::check_metadata;

/// Evaluates an operator over its arguments; it evaluates as many of them as it needs.
pub type Run = for<'a> fn(&'a [Expression], Frame<'a>) -> Result<Value<'a>>;

/// The same with what parsing made ready.
pub type RunPrepared = for<'a> fn(&'a Prepared, &'a [Expression], Frame<'a>) -> Result<Value<'a>>;

/// What parsing makes ready for some operators.
#[derive(Debug)]
pub enum Prepared {
    /// A compiled pattern; nothing when the pattern depends on the document.
    Regex(Option<mayfly_pattern::Pattern>),
    /// An order of values.
    Sort(crate::order::Order),
    /// A name.
    Name(Box<str>),
    /// The shares of a percentile, and whether it is the median.
    Shares(std::sync::Arc<[f64]>, bool),
    /// Which member of a family.
    Which(&'static str),
    /// The items of a constant array.
    Items(ConstantItems),
}

/// Parses an operator that has a form of its own.
pub type Parse = fn(&mut Parser<'_>, &'static OpRow, RawValue<'_>) -> Result<Expression>;

/// How an operator takes its operand.
pub enum Operands {
    /// A list of expressions, or one expression that stands for a list of one.
    List {
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
        /// What is done with them.
        run: Run,
    },
    /// Two arguments, of which the second is an array that is searched.
    Searched {
        /// What is done with them.
        run: Run,
        /// What is done with them where the array is a constant.
        run_constant: RunPrepared,
    },
    /// In a form of its own.
    Own(Parse),
}

/// What is known of an operator.
pub struct OpRow {
    /// With its dollar.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The reference's version that first had it.
    pub since: &'static str,
    /// How it is parsed.
    pub operands: Operands,
}

impl fmt::Debug for OpRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An operator with a fixed number of arguments, or a range of it.
const fn list(
    name: &'static str,
    since: &'static str,
    help: &'static str,
    arity: (usize, usize),
    run: Run,
) -> OpRow {
    let operands = Operands::List { least: arity.0, most: arity.1, run };
    OpRow { name, help, since, operands }
}

/// An operator with a form of its own.
const fn own(name: &'static str, since: &'static str, help: &'static str, parse: Parse) -> OpRow {
    OpRow { name, help, since, operands: Operands::Own(parse) }
}

/// An operator that searches its second argument.
const fn searched(
    name: &'static str,
    since: &'static str,
    help: &'static str,
    run: Run,
    run_constant: RunPrepared,
) -> OpRow {
    OpRow { name, help, since, operands: Operands::Searched { run, run_constant } }
}

/// Any number of arguments.
const ANY: (usize, usize) = (0, usize::MAX);

const FAMILIES: &[&[OpRow]] = &[
    arithmetic::ROWS,
    arithmetic::power::ROWS,
    arithmetic::rounding::ROWS,
    array::ROWS,
    array::ends::ROWS,
    array::sequence::ROWS,
    array::sort::ROWS,
    array::zip::ROWS,
    bitwise::ROWS,
    boolean::ROWS,
    comparison::ROWS,
    conditional::ROWS,
    constant::ROWS,
    custom::ROWS,
    convert::ROWS,
    date::diff::ROWS,
    date::format::ROWS,
    date::part::ROWS,
    date::parts::ROWS,
    date::read::ROWS,
    date::shift::ROWS,
    date::trunc::ROWS,
    iterate::ROWS,
    object::ROWS,
    regex::ROWS,
    set::ROWS,
    size::ROWS,
    statistics::ROWS,
    string::ROWS,
    string::part::ROWS,
    string::replace::ROWS,
    string::search::ROWS,
    string::trim::ROWS,
    trigonometry::ROWS,
    types::ROWS,
    variable::ROWS,
];

/// All operators that work.
pub fn rows() -> impl Iterator<Item = &'static OpRow> {
    FAMILIES.iter().copied().flatten()
}

/// The row of an operator.
pub fn find(name: &str) -> Option<&'static OpRow> {
    rows().find(|row| row.name == name)
}
