//! Rewrites filters: comparisons with query payloads become conditions on `__safeContent__`.
//!
//! ```text
//!  {name: {$eq: BinData(6, find)}, n: 1}
//!  {$and: [{__safeContent__: {$elemMatch: {$in: [tag, ..]}}}, {n: 1}]}
//!
//!  {$and: [{age: {$gte: BinData(6, edges)}}, {age: {$lte: BinData(6, stub)}}]}
//!  {$and: [{__safeContent__: {$elemMatch: {$in: [tag, ..]}}}, {}]}
//! ```
//!
//! The edges of a range with two ends are in its first comparison and cover both ends, so the stub
//! in the other one becomes an empty filter. Payloads in `$expr` become expressions on the same
//! array. What has no payload is copied as it is.

mod expressions;
mod ranges;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue};

use self::ranges::{has_encrypted, query_bytes};
use super::predicate::ValuePredicate;
use super::tags::{TagSearch, find_tags};
use crate::payload::{ENCRYPTED, FindPayload, GENERAL, RangeOptions, StoredKind};
use crate::schema::EncryptedFields;
use crate::state::EscReader;
use crate::tokens::Tag;
use crate::write::SAFE_CONTENT;

/// The logical operators of filters, whose arguments are filters.
const LOGICAL: [&str; 3] = ["$and", "$or", "$nor"];

/// Writes the expression that decides for one document, for a payload with too many tags. It gets
/// the path of the field, the predicate, and the builder with an open document: it appends one
/// operator, such as `$_internalFleEq`, to it.
pub type FallbackField<'a> = &'a dyn Fn(&str, &ValuePredicate, &mut DocBuilder) -> Result<()>;

/// Rewrites the filters and expressions of one command.
pub struct FilterRewriter<'a> {
    /// The encrypted fields of the collection.
    pub fields: &'a EncryptedFields,
    /// Reads the collection of counts.
    pub reader: &'a mut dyn EscReader,
    /// The tags that the payloads of the command may still have together, see
    /// [`DEFAULT_MAX_TAGS`](crate::DEFAULT_MAX_TAGS). Rewriting lowers it.
    pub max_tags: usize,
    /// What replaces the comparison of a payload with more tags.
    pub fallback: FallbackField<'a>,
}

/// What a payload becomes.
enum Condition {
    Tags(Vec<Tag>),
    Fallback(ValuePredicate),
    /// The stub of a range.
    Always,
}

/// The operators of a field that compare with a payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Range,
}

impl Comparison {
    fn of(name: &str) -> Option<Comparison> {
        match name {
            "$eq" | "$in" => Some(Comparison::Equal),
            "$ne" | "$nin" => Some(Comparison::NotEqual),
            "$gt" | "$gte" | "$lt" | "$lte" => Some(Comparison::Range),
            _ => None,
        }
    }

    fn kind(self) -> StoredKind {
        match self {
            Comparison::Equal | Comparison::NotEqual => StoredKind::Equality,
            Comparison::Range => StoredKind::Range,
        }
    }
}

/// A condition of a filter.
#[derive(Clone, Copy)]
enum Conjunct<'a> {
    Element(RawElement<'a>),
    /// An operator of a field with several operators, of which some compare with payloads.
    Operator(&'a str, RawElement<'a>),
}

impl<'a> Conjunct<'a> {
    fn all_of(filter: RawDoc<'a>) -> Vec<Conjunct<'a>> {
        let mut conjuncts = Vec::new();
        for element in filter.iter() {
            match element.value() {
                RawValue::Document(operators)
                    if !element.name().starts_with('$') && has_encrypted(element.value()) =>
                {
                    let operator = |operator| Conjunct::Operator(element.name(), operator);
                    conjuncts.extend(operators.iter().map(operator));
                }
                _ => conjuncts.push(Conjunct::Element(element)),
            }
        }
        conjuncts
    }
}

impl FilterRewriter<'_> {
    /// Rewrites a filter. `None` if it contains no encrypted data.
    ///
    /// # Errors
    /// 2 BadValue for payloads at other places, for fields without such an index, and for stubs
    /// without the other half of their range; 9 FailedToParse and 22 InvalidBSON for malformed
    /// payloads; 238 NotImplemented for text search; 15 Overflow for filters that are nested too
    /// deeply; errors of the reader.
    pub fn filter(&mut self, filter: RawDoc<'_>) -> Result<Option<DocBuf>> {
        if !ranges::check(RawValue::Document(filter))? {
            return Ok(None);
        }
        let mut out = DocBuilder::new();
        self.write_filter(filter, &mut out)?;
        Ok(Some(out.finish()))
    }

    /// Rewrites an expression of an aggregation. `None` if it contains no encrypted data.
    ///
    /// # Errors
    /// As [`FilterRewriter::filter`].
    pub fn expression(&mut self, expression: RawDoc<'_>) -> Result<Option<DocBuf>> {
        if !ranges::check(RawValue::Document(expression))? {
            return Ok(None);
        }
        let mut out = DocBuilder::new();
        for element in expression.iter() {
            self.write_expression(element, &mut out)?;
        }
        Ok(Some(out.finish()))
    }

    /// Rewrites a pipeline: the filters of `$match` and `$geoNear`, and the expressions of other
    /// stages. `None` if it contains no encrypted data. Payloads in pipelines of other stages, as
    /// in `$facet`, are refused; clients do not encrypt there.
    ///
    /// A `$match` must reach the stored documents: the array of tags is not in the documents of a
    /// `$group` or a `$project`.
    ///
    /// # Errors
    /// As [`FilterRewriter::filter`].
    pub fn pipeline(&mut self, stages: RawDoc<'_>) -> Result<Option<DocBuf>> {
        if !ranges::check(RawValue::Array(stages))? {
            return Ok(None);
        }
        let mut out = DocBuilder::new_array();
        for stage in stages {
            let RawValue::Document(stage) = stage.value() else {
                out.push(stage.value());
                continue;
            };
            out.push_document();
            for element in stage.iter() {
                self.write_stage(element, &mut out)?;
            }
            out.end();
        }
        Ok(Some(out.finish()))
    }

    /// Appends a stage, or an argument of `$geoNear`.
    fn write_stage(&mut self, element: RawElement<'_>, out: &mut DocBuilder) -> Result<()> {
        match (element.name(), element.value()) {
            (name @ ("$match" | "query"), RawValue::Document(filter)) => {
                out.start_document(name);
                self.write_filter(filter, out)?;
                out.end();
            }
            (name @ "$geoNear", RawValue::Document(arguments)) => {
                out.start_document(name);
                for argument in arguments.iter() {
                    self.write_stage(argument, out)?;
                }
                out.end();
            }
            _ => self.write_expression(element, out)?,
        }
        Ok(())
    }

    /// Appends a rewritten filter to the open document.
    fn write_filter(&mut self, filter: RawDoc<'_>, out: &mut DocBuilder) -> Result<()> {
        if !has_encrypted(RawValue::Document(filter)) {
            out.append_all(filter);
            return Ok(());
        }
        // Conditions on several fields become conditions on the same array. An `$and` keeps them
        // apart.
        let conjuncts = Conjunct::all_of(filter);
        if let [only] = conjuncts[..] {
            return self.write_conjunct(only, out);
        }
        out.start_array("$and");
        for conjunct in conjuncts {
            out.push_document();
            self.write_conjunct(conjunct, out)?;
            out.end();
        }
        out.end();
        Ok(())
    }

    /// Appends one condition as a filter.
    fn write_conjunct(&mut self, conjunct: Conjunct<'_>, out: &mut DocBuilder) -> Result<()> {
        match conjunct {
            Conjunct::Element(element) => self.write_condition(element, out)?,
            Conjunct::Operator(field, operator) if has_encrypted(operator.value()) => {
                self.write_operator(field, operator, out)?;
            }
            Conjunct::Operator(field, operator) => {
                out.start_document(field).append_element(operator).end();
            }
        }
        Ok(())
    }

    /// Appends one element of a filter as a whole filter.
    fn write_condition(&mut self, element: RawElement<'_>, out: &mut DocBuilder) -> Result<()> {
        let (name, value) = (element.name(), element.value());
        match value {
            _ if !has_encrypted(value) => {
                out.append_element(element);
            }
            RawValue::Array(filters) if LOGICAL.contains(&name) => {
                out.start_array(name);
                for filter in filters {
                    let filter = filter.value().as_document();
                    let filter = filter.ok_or_else(|| misplaced(name))?;
                    out.push_document();
                    self.write_filter(filter, out)?;
                    out.end();
                }
                out.end();
            }
            RawValue::Document(expression) if name == "$expr" => {
                out.start_document("$expr");
                for element in expression.iter() {
                    self.write_expression(element, out)?;
                }
                out.end();
            }
            RawValue::Binary { subtype: ENCRYPTED, bytes } if !name.starts_with('$') => {
                let condition = self.condition(name, Comparison::Equal, bytes)?;
                self.write_match(name, condition, out)?;
            }
            _ => return Err(misplaced(name)),
        }
        Ok(())
    }

    /// Appends an operator of a field, whose argument contains encrypted data, as a filter.
    fn write_operator(
        &mut self,
        field: &str,
        operator: RawElement<'_>,
        out: &mut DocBuilder,
    ) -> Result<()> {
        let name = operator.name();
        if name == "$not" {
            let RawValue::Document(operators) = operator.value() else {
                return Err(misplaced(name));
            };
            let mut inner = DocBuilder::new();
            inner.start_document(field).append_all(operators).end();
            out.start_array("$nor").push_document();
            self.write_filter(inner.finish().as_doc(), out)?;
            out.end().end();
            return Ok(());
        }
        let Some(comparison) = Comparison::of(name) else {
            return Err(misplaced(name));
        };
        let is_negated = comparison == Comparison::NotEqual;
        if is_negated {
            out.start_array("$nor").push_document();
        }
        match operator.value() {
            RawValue::Binary { subtype: ENCRYPTED, bytes } if !matches!(name, "$in" | "$nin") => {
                let condition = self.condition(field, comparison, bytes)?;
                self.write_match(field, condition, out)?;
            }
            RawValue::Array(items) if matches!(name, "$in" | "$nin") => {
                self.write_list(field, comparison, items, out)?;
            }
            _ => return Err(misplaced(name)),
        }
        if is_negated {
            out.end().end();
        }
        Ok(())
    }

    /// Appends a list of payloads as a filter: the tags of all of them, or an `$or` if a payload
    /// has too many.
    fn write_list(
        &mut self,
        field: &str,
        comparison: Comparison,
        items: RawDoc<'_>,
        out: &mut DocBuilder,
    ) -> Result<()> {
        let (mut all, mut others) = (Vec::new(), Vec::new());
        for item in items {
            // The reference does not mix encrypted and other values, either.
            let bytes = query_bytes(item.value()).ok_or_else(|| misplaced("$in"))?;
            match self.condition(field, comparison, bytes)? {
                Condition::Tags(tags) => all.extend(tags),
                other => others.push(other),
            }
        }
        if others.is_empty() {
            return self.write_match(field, Condition::Tags(all), out);
        }
        out.start_array("$or");
        for condition in std::iter::once(Condition::Tags(all)).chain(others) {
            out.push_document();
            self.write_match(field, condition, out)?;
            out.end();
        }
        out.end();
        Ok(())
    }

    /// The condition for a payload.
    fn condition(&mut self, path: &str, comparison: Comparison, bytes: &[u8]) -> Result<Condition> {
        let Some(field) = self.fields.at(path) else {
            return Err(Error::bad_value(format!("'{path}' is not an encrypted field")));
        };
        let payload = FindPayload::parse(bytes)?;
        let kind = match &payload {
            FindPayload::Equality(_) => {
                field.check_index(StoredKind::Equality, &RangeOptions::default())?;
                StoredKind::Equality
            }
            FindPayload::Range(find) => {
                field.check_index(StoredKind::Range, &find.range)?;
                StoredKind::Range
            }
        };
        // The edges of a range say what it matches, whatever the operator.
        if kind != comparison.kind() && kind == StoredKind::Equality {
            return Err(misplaced("a comparison of ranges"));
        }
        let Some(predicate) = ValuePredicate::new(&payload) else { return Ok(Condition::Always) };
        Ok(match find_tags(&payload, self.reader, self.max_tags)? {
            TagSearch::Tags(tags) => {
                self.max_tags = self.max_tags.saturating_sub(tags.len());
                Condition::Tags(tags)
            }
            TagSearch::TooMany => Condition::Fallback(predicate),
        })
    }

    /// Appends a condition as a filter.
    fn write_match(&self, path: &str, condition: Condition, out: &mut DocBuilder) -> Result<()> {
        match condition {
            Condition::Always => {}
            Condition::Tags(tags) => {
                // An upsert would copy the tag of a plain `$in` with one item into the new
                // document.
                out.start_document(SAFE_CONTENT).start_document("$elemMatch").start_array("$in");
                push_tags(&tags, out);
                out.end().end().end();
            }
            Condition::Fallback(predicate) => {
                out.start_document("$expr");
                (self.fallback)(path, &predicate, out)?;
                out.end();
            }
        }
        Ok(())
    }
}

fn push_tags(tags: &[Tag], out: &mut DocBuilder) {
    for tag in tags {
        out.push(RawValue::Binary { subtype: GENERAL, bytes: tag });
    }
}

fn misplaced(place: &str) -> Error {
    Error::bad_value(format!("encrypted data is not allowed in the argument of '{place}'"))
}
