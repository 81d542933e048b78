//! Evaluation of schemas.

use std::collections::HashSet;

use mayfly_base::Result;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{DocBuilder, Finder, Number, RawDoc, RawElement, RawValue, SortOrder};
use mayfly_work::current::spend;

use super::super::evaluate::{all, any};
use super::{
    AdditionalRule, ArrayRules, Dependency, Items, NumberRules, ObjectRules, Schema, StringRules,
};

impl Schema {
    /// Whether a value satisfies the schema.
    pub(super) fn fits(&self, value: RawValue<'_>) -> Result<bool> {
        let bytes = match value {
            RawValue::Document(inner) | RawValue::Array(inner) => inner.as_bytes().len(),
            RawValue::String(text) => text.len(),
            _ => 0,
        };
        spend(1 + (bytes >> 10))?;
        let listed = self.types.is_none_or(|types| types.contains(value.type_byte()))
            && self.one_of_values.as_ref().is_none_or(|all| all.contains(&unordered_key(value)));
        if !listed {
            return Ok(false);
        }
        let of_type = match value {
            RawValue::Document(document) => self.objects.fit(document)?,
            RawValue::Array(items) => self.arrays.fit(items)?,
            RawValue::String(text) => self.texts.fit(text)?,
            other => Number::from_value(other).is_none_or(|number| self.numbers.fit(number)),
        };
        Ok(of_type && self.combinations_fit(value)?)
    }

    /// Evaluates `allOf`, `anyOf`, `oneOf` and `not`.
    fn combinations_fit(&self, value: RawValue<'_>) -> Result<bool> {
        if !all(&self.all_of, |schema| schema.fits(value))? {
            return Ok(false);
        }
        if let Some(list) = &self.any_of
            && !any(list, |schema| schema.fits(value))?
        {
            return Ok(false);
        }
        if let Some(list) = &self.one_of {
            let mut fitting = 0;
            for schema in list {
                fitting += usize::from(schema.fits(value)?);
                if fitting > 1 {
                    return Ok(false);
                }
            }
            if fitting == 0 {
                return Ok(false);
            }
        }
        match &self.not {
            Some(schema) => Ok(!schema.fits(value)?),
            None => Ok(true),
        }
    }
}

impl NumberRules {
    fn fit(&self, number: Number) -> bool {
        let comparable = |bound: Number| number.is_nan() == bound.is_nan();
        self.minimum.is_none_or(|bound| {
            let order = number.compare(bound);
            comparable(bound) && (order.is_gt() || order.is_eq() && !self.exclusive_minimum)
        }) && self.maximum.is_none_or(|bound| {
            let order = number.compare(bound);
            comparable(bound) && (order.is_lt() || order.is_eq() && !self.exclusive_maximum)
        }) && self.multiple_of.is_none_or(|unit| is_multiple(number, unit))
    }
}

fn is_multiple(number: Number, unit: Number) -> bool {
    match (number.to_i64_exact(), unit.to_i64_exact()) {
        (Some(number), Some(unit)) if unit != 0 => number.wrapping_rem(unit) == 0,
        _ => {
            let rest = number.to_decimal().remainder_of(unit.to_decimal());
            Number::Decimal(rest).compare(Number::Int32(0)).is_eq()
        }
    }
}

fn within(count: usize, least: Option<i64>, most: Option<i64>) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    least.is_none_or(|least| count >= least) && most.is_none_or(|most| count <= most)
}

impl StringRules {
    fn fit(&self, text: &str) -> Result<bool> {
        let counted = self.least.is_some() || self.most.is_some();
        if counted && !within(text.chars().count(), self.least, self.most) {
            return Ok(false);
        }
        self.pattern.as_ref().map_or(Ok(true), |pattern| pattern.matches_text(text))
    }
}

impl AdditionalRule {
    fn fits(&self, value: RawValue<'_>) -> Result<bool> {
        match self {
            AdditionalRule::Allowed(allowed) => Ok(*allowed),
            AdditionalRule::Fit(schema) => schema.fits(value),
        }
    }
}

/// Up to this many names are looked up without a [`Finder`].
const FEW_NAMES: usize = 16;

impl ObjectRules {
    fn fit(&self, document: RawDoc<'_>) -> Result<bool> {
        let counted = self.least.is_some() || self.most.is_some();
        let finder = (self.named > FEW_NAMES).then(|| Finder::new(document));
        let has = |name: &str| match &finder {
            None => document.get_element(name).is_some(),
            Some(finder) => finder.get_element(document, name).is_some(),
        };
        if counted && !within(document.iter().count(), self.least, self.most)
            || !self.required.iter().all(|name| has(name))
            || !self.fields_fit(document)?
        {
            return Ok(false);
        }
        let asked = self.dependencies.iter().filter(|(name, _)| has(name));
        all(asked, |(_, dependency)| match dependency {
            Dependency::Fields(names) => Ok(names.iter().all(|name| has(name))),
            Dependency::Fit(schema) => schema.fits(RawValue::Document(document)),
        })
    }

    fn fields_fit(&self, document: RawDoc<'_>) -> Result<bool> {
        let nothing = self.properties.as_slice().is_empty()
            && self.pattern_properties.is_empty()
            && self.additional.is_none();
        Ok(nothing || all(document, |element| self.field_fits(element))?)
    }

    fn field_fits(&self, element: RawElement<'_>) -> Result<bool> {
        let (name, value) = (element.name(), element.value());
        let mut known = false;
        for schema in self.properties.find(name.as_bytes()).into_iter().flatten() {
            known = true;
            if !schema.fits(value)? {
                return Ok(false);
            }
        }
        for (pattern, schema) in &self.pattern_properties {
            if pattern.matches_text(name)? {
                known = true;
                if !schema.fits(value)? {
                    return Ok(false);
                }
            }
        }
        match &self.additional {
            Some(additional) if !known => additional.fits(value),
            _ => Ok(true),
        }
    }
}

impl ArrayRules {
    fn fit(&self, items: RawDoc<'_>) -> Result<bool> {
        let counted = self.least.is_some() || self.most.is_some();
        Ok((!counted || within(items.iter().count(), self.least, self.most))
            && self.items_fit(items)?
            && (!self.unique || all_different(items)))
    }

    fn items_fit(&self, items: RawDoc<'_>) -> Result<bool> {
        match &self.items {
            None => Ok(true),
            Some(Items::Each(schema)) => all(items, |item| schema.fits(item.value())),
            Some(Items::InTurn(schemas)) => all(items.iter().enumerate(), |(at, item)| {
                match (schemas.get(at), &self.additional) {
                    (Some(schema), _) => schema.fits(item.value()),
                    (None, Some(rest)) => rest.fits(item.value()),
                    (None, None) => Ok(true),
                }
            }),
        }
    }
}

fn all_different(items: RawDoc<'_>) -> bool {
    let mut seen = HashSet::new();
    items.iter().all(|item| seen.insert(unordered_key(item.value())))
}

/// A key that is equal for values that differ only in the order of fields.
pub(super) fn unordered_key(value: RawValue<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    let sorted;
    let value = match value {
        RawValue::Document(_) | RawValue::Array(_) => {
            let mut out = DocBuilder::new_array();
            push_sorted(&mut out, value);
            sorted = out.finish();
            sorted.as_doc().get("0").unwrap_or(value)
        }
        plain => plain,
    };
    keys::append_value(&mut key, &mut TypeBits::default(), value, SortOrder::Ascending);
    key
}

fn push_sorted(out: &mut DocBuilder, value: RawValue<'_>) {
    match value {
        RawValue::Document(document) => {
            out.push_document();
            append_sorted(out, document);
            out.end();
        }
        RawValue::Array(items) => {
            out.push_array();
            items.iter().for_each(|item| push_sorted(out, item.value()));
            out.end();
        }
        plain => {
            out.push(plain);
        }
    }
}

fn append_sorted(out: &mut DocBuilder, document: RawDoc<'_>) {
    let mut fields: Vec<RawElement<'_>> = document.iter().collect();
    fields.sort_by_key(|field| field.name_bytes());
    for field in fields {
        match field.value() {
            RawValue::Document(inner) => {
                out.start_document(field.name());
                append_sorted(out, inner);
                out.end();
            }
            RawValue::Array(items) => {
                out.start_array(field.name());
                items.iter().for_each(|item| push_sorted(out, item.value()));
                out.end();
            }
            _ => {
                out.append_element(field);
            }
        }
    }
}
