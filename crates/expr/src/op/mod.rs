//! The table of expression operators: a file per family, a row per operator.

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
mod encrypted;
mod encrypted_value;
mod growing;
mod iterate;
mod newer;
mod object;
mod operand;
pub(crate) mod regex;
mod set;
mod similarity;
pub(crate) mod size;
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
pub(crate) use array::positions::Positions;
pub use array::slice_range;
pub(crate) use custom::call_script;
pub(crate) use date::unit::{Unit, moved};
pub(crate) use date::zone::Zone;
pub use iterate::Each;
pub use newer::NEWER;
pub(crate) use object::merge_fault;
pub(crate) use operand::{array, check_text, document, fault};
pub use set::ConstantItems;
pub use size::check_metadata;

/// Evaluates an operator, with as many of its arguments as necessary.
pub type Run = for<'a> fn(&'a [Expression], Frame<'a>) -> Result<Value<'a>>;

/// The same with data prepared by the parser.
pub type RunPrepared = for<'a> fn(&'a Prepared, &'a [Expression], Frame<'a>) -> Result<Value<'a>>;

/// Data that the parser prepares for some operators.
#[derive(Debug)]
pub enum Prepared {
    /// A compiled pattern; `None` when the pattern depends on the document.
    Regex(Option<mayfly_pattern::Pattern>),
    /// A sort order.
    Sort(crate::order::Order),
    /// The name of the metadata that `$meta` reads.
    Name(Box<str>),
    /// The quantiles of a percentile, and whether it is the median.
    Shares(std::sync::Arc<[f64]>, bool),
    /// The operator of a family that shares a function.
    Which(&'static str),
    /// The name of a similarity, and whether its score is asked for.
    Similarity(&'static str, bool),
    /// The items of a constant array.
    Items(ConstantItems),
    /// Recognizes encrypted values.
    Encrypted(Box<mayfly_encryption::ValuePredicate>),
}

/// Parses an operator with a syntax of its own.
pub type Parse = fn(&mut Parser<'_>, &'static OpRow, RawValue<'_>) -> Result<Expression>;

/// The syntax of an operator's operand.
pub enum Operands {
    /// A list of expressions; a single expression is a list of one.
    List {
        /// Minimum number.
        least: usize,
        /// Maximum number.
        most: usize,
        /// The function that evaluates it.
        run: Run,
    },
    /// Two arguments, the second being an array to search.
    Searched {
        /// The function that evaluates it.
        run: Run,
        /// The function for a constant array.
        run_constant: RunPrepared,
    },
    /// A syntax of its own.
    Own(Parse),
}

/// A row of the table of operators.
pub struct OpRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The first version of the reference with the operator.
    pub since: &'static str,
    /// The syntax of its operand.
    pub operands: Operands,
}

impl fmt::Debug for OpRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A row of an operator with a list of arguments.
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

/// A row of an operator with a syntax of its own.
const fn own(name: &'static str, since: &'static str, help: &'static str, parse: Parse) -> OpRow {
    OpRow { name, help, since, operands: Operands::Own(parse) }
}

/// A row of an operator that searches its second argument.
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
    array::ranked::ROWS,
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
    encrypted::ROWS,
    encrypted_value::ROWS,
    iterate::ROWS,
    object::ROWS,
    regex::ROWS,
    set::ROWS,
    similarity::ROWS,
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

/// All implemented operators.
pub fn rows() -> impl Iterator<Item = &'static OpRow> {
    FAMILIES.iter().copied().flatten()
}

/// The row of an operator.
pub fn find(name: &str) -> Option<&'static OpRow> {
    rows().find(|row| row.name == name)
}
