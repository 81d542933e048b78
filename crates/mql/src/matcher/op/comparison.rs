//! `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in`, `$nin`.

use mayfly_base::{Error, Result};
use mayfly_value::RawValue;

use super::Operand;
use crate::matcher::{CmpOp, InList, Predicate, Regex, is_operator_document};

fn compare(op: CmpOp, operand: &Operand<'_>) -> Result<Predicate> {
    match operand.value {
        RawValue::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        RawValue::Regex { .. } if op != CmpOp::Eq => Err(Error::bad_value(format!(
            "Can't have RegEx as arg to predicate over field '{}'.",
            operand.path
        ))),
        value => Ok(Predicate::cmp(op, value, operand.context.scope.collation())),
    }
}

pub(super) fn eq(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    compare(CmpOp::Eq, operand).map(Some)
}

pub(super) fn ne(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    if matches!(operand.value, RawValue::Regex { .. }) {
        return Err(Error::bad_value("Can't have regex as arg to $ne."));
    }
    compare(CmpOp::Eq, operand).map(|equal| Some(equal.negated()))
}

pub(super) fn gt(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    compare(CmpOp::Gt, operand).map(Some)
}

pub(super) fn gte(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    compare(CmpOp::Gte, operand).map(Some)
}

pub(super) fn lt(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    compare(CmpOp::Lt, operand).map(Some)
}

pub(super) fn lte(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    compare(CmpOp::Lte, operand).map(Some)
}

fn list(operand: &Operand<'_>) -> Result<InList> {
    let RawValue::Array(items) = operand.value else {
        return Err(Error::bad_value(format!("{} needs an array", operand.name)));
    };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for item in items.iter() {
        match item.value() {
            RawValue::Regex { pattern, options } => regexes.push(Regex::new(pattern, options)?),
            RawValue::Undefined => return Err(Error::bad_value("cannot compare to undefined")),
            RawValue::Document(inner) if is_operator_document(inner) => {
                return Err(Error::bad_value(format!("cannot nest $ under {}", operand.name)));
            }
            value => values.push(value.to_owned()),
        }
    }
    Ok(InList::new(values, regexes, operand.context.scope.collation()))
}

pub(super) fn in_list(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    list(operand).map(|list| Some(Predicate::In(list)))
}

pub(super) fn not_in_list(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    list(operand).map(|list| Some(Predicate::In(list).negated()))
}
