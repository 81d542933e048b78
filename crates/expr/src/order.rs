//! Sort orders of `$sortArray`, `$top` and related operators: `1`, `-1`, or a pattern of fields.

use std::cmp::Ordering;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::keys::{TypeBits, append_value_in};
use mayfly_value::paths::{array_index, visit_index_values_of};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Collation, Number, RawDoc, RawValue, SortOrder, compare_values_in};

/// A parsed sort order.
#[derive(Clone, Debug)]
pub enum Order {
    /// By the whole value.
    Whole(SortOrder),
    /// By fields of documents.
    Fields(Vec<OrderField>),
}

/// One field of a sort pattern.
#[derive(Clone, Debug)]
pub struct OrderField {
    /// The path of the field.
    pub parts: Vec<String>,
    /// The order of its values.
    pub order: SortOrder,
}

impl Order {
    /// Parses the `sortBy` of `$sortArray`.
    ///
    /// # Errors
    /// 2942505 for a wrong pattern, 2942506 for a number other than 1 and -1, 2942507 unless it is
    /// a number or a document.
    pub(crate) fn parse(value: RawValue<'_>) -> Result<Order> {
        match value {
            RawValue::Document(pattern) => {
                Order::parse_items(pattern).map_err(|error| match error.code() {
                    ErrorCode::BadValue => {
                        let text = format!("BadValue: {}", error.message());
                        Error::new(ErrorCode(2_942_505), text)
                    }
                    _ => error,
                })
            }
            value if value.is_number() => match direction(value) {
                Some(order) => Ok(Order::Whole(order)),
                None => {
                    let text = "The $sort element value must be either 1 or -1";
                    Err(Error::new(ErrorCode(2_942_506), text))
                }
            },
            _ => {
                let text = "$sortArray requires 'sortBy' to be a number or an object";
                Err(Error::new(ErrorCode(2_942_507), text))
            }
        }
    }

    /// Parses a pattern that sorts the items of an array: for `$sortArray`, and for the clause
    /// `$sort` of `$push`. Unlike other patterns it may have names that begin with a dollar sign.
    ///
    /// # Errors
    /// 2 BadValue for a pattern without fields, an empty name, or another direction than 1 and -1;
    /// 7472500 for two fields with one name.
    pub fn parse_items(pattern: RawDoc<'_>) -> Result<Order> {
        let mut fields = Vec::new();
        for element in pattern {
            let name = element.name();
            let Some(order) = direction(element.value()) else {
                return Err(Error::bad_value("The sort element value must be either 1 or -1"));
            };
            if name.is_empty() {
                return Err(Error::bad_value("The sort field cannot be empty"));
            }
            let parts: Vec<String> = name.split('.').map(str::to_owned).collect();
            if parts.iter().any(String::is_empty) {
                return Err(Error::bad_value(format!(
                    "The sort field is a dotted field but has an empty part: {name}"
                )));
            }
            check_new(&fields, &parts, name)?;
            fields.push(OrderField { parts, order });
        }
        if fields.is_empty() {
            let text = "The sort pattern is empty when it should be a set of fields.";
            return Err(Error::bad_value(text));
        }
        Ok(Order::Fields(fields))
    }

    /// Parses a sort pattern such as `{ a: 1, 'b.c': -1 }`.
    ///
    /// # Errors
    /// 15974, 15975, 15976 as for sort patterns, errors of paths.
    pub fn parse_pattern(pattern: RawDoc<'_>) -> Result<Order> {
        let mut fields = Vec::new();
        for element in pattern {
            let name = element.name();
            if fields.len() == limits::MAX_INDEX_FIELDS {
                return Err(Error::bad_value("too many fields in sort pattern"));
            }
            if element.value().as_document().is_some_and(|inner| inner.get("$meta").is_some()) {
                return Err(Error::not_implemented("$meta in a sort pattern"));
            }
            if !element.value().is_number() {
                let shown = ShellValue(element.value());
                let text = format!("Illegal key in $sort specification: {name}: {shown}");
                return Err(Error::new(ErrorCode(15974), text));
            }
            let Some(order) = direction(element.value()) else {
                let text = "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
                return Err(Error::new(ErrorCode(15975), text));
            };
            let parts = crate::parse::path_parts(name)?;
            check_new(&fields, &parts, name)?;
            fields.push(OrderField { parts, order });
        }
        if fields.is_empty() {
            return Err(Error::new(
                ErrorCode(15976),
                "$sort stage must have at least one sort key",
            ));
        }
        Ok(Order::Fields(fields))
    }

    /// Compares two items of an array. An array in a field is one value, and has its items at
    /// their positions; a missing field counts as null.
    pub fn compare(
        &self,
        left: RawValue<'_>,
        right: RawValue<'_>,
        collation: Option<&Collation>,
    ) -> Ordering {
        match self {
            Order::Whole(order) => order.apply(compare_values_in(left, right, collation)),
            Order::Fields(fields) => {
                // Values other than documents have none of the fields; they keep their relative
                // order.
                let by = |field: &OrderField| {
                    let (left, right) = (inside(left, &field.parts), inside(right, &field.parts));
                    field.order.apply(compare_values_in(left, right, collation))
                };
                fields.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            }
        }
    }

    /// The sort key of a document: for an array field the least item in ascending order, the
    /// greatest in descending order.
    pub(crate) fn key<'v>(
        &self,
        document: RawDoc<'v>,
        collation: Option<&Collation>,
    ) -> Vec<RawValue<'v>> {
        let Order::Fields(fields) = self else { return vec![RawValue::Document(document)] };
        let value = |field: &OrderField| {
            let mut best: Option<RawValue<'v>> = None;
            let preferred = field.order.apply(Ordering::Less);
            let root = RawValue::Document(document);
            visit_index_values_of(root, &field.parts, &mut |value| {
                let better = |best| compare_values_in(value, best, collation) == preferred;
                if best.is_none_or(better) {
                    best = Some(value);
                }
            });
            best.unwrap_or(RawValue::Null)
        };
        fields.iter().map(value).collect()
    }

    /// The sort key of a document as bytes with the same order.
    pub(crate) fn encoded_key(
        &self,
        document: RawDoc<'_>,
        collation: Option<&Collation>,
    ) -> Vec<u8> {
        let fields = match self {
            Order::Whole(_) => &[][..],
            Order::Fields(fields) => fields,
        };
        let mut key = Vec::with_capacity(16 * fields.len());
        for (field, value) in fields.iter().zip(self.key(document, collation)) {
            let bits = &mut TypeBits::default();
            append_value_in(&mut key, bits, value, field.order, collation);
        }
        key
    }

    /// The order of each field.
    pub(crate) fn directions(&self) -> Vec<SortOrder> {
        match self {
            Order::Whole(order) => vec![*order],
            Order::Fields(fields) => fields.iter().map(|field| field.order).collect(),
        }
    }

    /// The dotted paths of its fields.
    pub fn paths(&self) -> Vec<String> {
        match self {
            Order::Whole(_) => Vec::new(),
            Order::Fields(fields) => fields.iter().map(|field| field.parts.join(".")).collect(),
        }
    }
}

/// Refuses a field that the pattern has already.
fn check_new(fields: &[OrderField], parts: &[String], name: &str) -> Result<()> {
    if fields.iter().any(|have| have.parts == parts) {
        let text = format!("$sort key must not contain duplicate keys (field: '{name}')");
        return Err(Error::new(ErrorCode(7_472_500), text));
    }
    Ok(())
}

/// Parses a direction; `None` unless it is 1 or -1.
fn direction(value: RawValue<'_>) -> Option<SortOrder> {
    SortOrder::from_sign(Number::from_value(value)?.to_i64_exact()?)
}

fn inside<'v>(value: RawValue<'v>, parts: &[String]) -> RawValue<'v> {
    let RawValue::Document(document) = value else { return RawValue::Null };
    value_at(document, parts).unwrap_or(RawValue::Null)
}

/// The value at a path: of a field with this name, dots included, or inside of its first part.
fn value_at<'v>(document: RawDoc<'v>, parts: &[String]) -> Option<RawValue<'v>> {
    let (first, rest) = parts.split_first()?;
    if rest.is_empty() {
        return document.get(first);
    }
    if let Some(value) = document.get(&parts.join(".")) {
        return Some(value);
    }
    match document.get(first)? {
        RawValue::Document(inner) => value_at(inner, rest),
        RawValue::Array(items) => value_in(items, rest),
        _ => None,
    }
}

/// The value at a path that begins with a position in an array.
fn value_in<'v>(items: RawDoc<'v>, parts: &[String]) -> Option<RawValue<'v>> {
    let (first, rest) = parts.split_first()?;
    let item = items.iter().nth(array_index(first)?)?.value();
    match item {
        _ if rest.is_empty() => Some(item),
        RawValue::Document(inner) => value_at(inner, rest),
        RawValue::Array(items) => value_in(items, rest),
        _ => None,
    }
}
