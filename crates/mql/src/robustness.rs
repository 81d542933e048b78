//! Properties of the language over random operators, operands and documents: nothing panics,
//! updates write valid documents, and updates such as `$set` are idempotent.

use mayfly_expr::Scope;
use mayfly_value::arbitrary::{any_document, any_value};
use mayfly_value::{DocBuf, DocBuilder, RawValue, ValueBuf, validate};
use proptest::prelude::*;

use crate::matcher::op::ROWS as MATCH_ROWS;
use crate::update::op::ROWS as UPDATE_ROWS;
use crate::{
    Matcher, ParseContext, Projection, ProjectionKind, SortPattern, Update, UpdateContext,
};

fn match_operators() -> impl Strategy<Value = &'static str> {
    prop::sample::select(MATCH_ROWS.iter().map(|row| row.name).collect::<Vec<_>>())
}

fn update_operators() -> impl Strategy<Value = &'static str> {
    prop::sample::select(UPDATE_ROWS.iter().map(|row| row.name).collect::<Vec<_>>())
}

/// Paths to fields of random documents, including arrays.
fn any_path() -> impl Strategy<Value = String> {
    "[a-d]{1,2}(\\.([ab]|[0-3])){0,3}"
}

fn single(name: &str, value: &ValueBuf) -> DocBuf {
    let mut builder = DocBuilder::new();
    builder.append(name, value);
    builder.finish()
}

fn as_value(doc: &DocBuf) -> ValueBuf {
    RawValue::Document(doc.as_doc()).to_owned()
}

/// Operands that are often valid: lists, small numbers, documents of operators.
fn any_operand() -> BoxedStrategy<ValueBuf> {
    let list = prop::collection::vec(any_value(), 0..3).prop_map(|items| {
        let mut builder = DocBuilder::new_array();
        items.iter().for_each(|item| {
            builder.push(item);
        });
        RawValue::Array(builder.finish().as_doc()).to_owned()
    });
    let number = (-2i32..4).prop_map(|number| RawValue::Int32(number).to_owned());
    let nested =
        (match_operators(), any_value()).prop_map(|(name, value)| as_value(&single(name, &value)));
    prop_oneof![3 => any_value(), 2 => list, 2 => number, 1 => nested].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn filters(
        name in match_operators(),
        operand in any_operand(),
        path in any_path(),
        doc in any_document(),
    ) {
        let operator = single(name, &operand);
        let on_field = single(&path, &as_value(&operator));
        // It selects documents by chance, and so does its negation.
        prop_assume!(name != "$sampleRate");
        for filter in [&operator, &on_field] {
            if let Ok(matcher) = Matcher::parse(filter.as_doc(), &ParseContext::default()) {
                let negated = Matcher::parse(nor(filter).as_doc(), &ParseContext::default());
                let negated = negated.unwrap().matches(doc.as_doc());
                match (matcher.matches(doc.as_doc()), negated) {
                    (Ok(matched), Ok(negated)) => prop_assert_ne!(matched, negated),
                    (Err(error), Err(negated)) => prop_assert_eq!(error.code(), negated.code()),
                    (matched, negated) => prop_assert!(false, "{:?}, {:?}", matched, negated),
                }
            }
        }
    }

    #[test]
    fn conditions_on_many_fields(
        fields in prop::collection::vec((any_path(), any_value()), 2..4),
        doc in any_document(),
    ) {
        let filter = |fields: &[(String, ValueBuf)]| {
            let mut builder = DocBuilder::new();
            for (path, value) in fields {
                builder.append(path, &as_value(&single("$gte", value)));
            }
            Matcher::parse(builder.finish().as_doc(), &ParseContext::default())
        };
        if let Ok(all) = filter(&fields) {
            let alone = |field| filter(std::slice::from_ref(field)).unwrap().matches(doc.as_doc()).unwrap();
            prop_assert_eq!(all.matches(doc.as_doc()).unwrap(), fields.iter().all(alone));
        }
    }

    #[test]
    fn updates(
        name in update_operators(),
        operand in any_operand(),
        paths in prop::collection::vec(any_path(), 1..3),
        doc in any_document(),
    ) {
        let mut builder = DocBuilder::new();
        builder.start_document(name);
        paths.iter().for_each(|path| { builder.append(path, &operand); });
        let update = builder.finish();
        let Ok(update) = Update::parse(update.as_doc(), &ParseContext::default()) else {
            return Ok(());
        };
        if let Ok(Some(updated)) = update.apply(doc.as_doc(), &UpdateContext::default()) {
            prop_assert!(validate(updated.as_bytes(), 200).is_ok());
            // Not `$unset`: it uncovers a duplicate field.
            if matches!(name, "$set" | "$min" | "$max" | "$addToSet" | "$pull") {
                let again = update.apply(updated.as_doc(), &UpdateContext::default());
                prop_assert!(again.unwrap().is_none());
            }
        }
    }

    #[test]
    fn updates_of_array_items(
        name in update_operators(),
        operand in any_operand(),
        paths in prop::collection::vec("[a-d](\\.(\\$|\\$\\[\\]|\\$\\[i\\]|[ab]|[0-2])){1,4}", 1..3),
        position in prop::option::of(0_usize..3),
        doc in any_document(),
    ) {
        let mut builder = DocBuilder::new();
        builder.start_document(name);
        paths.iter().for_each(|path| { builder.append(path, &operand); });
        let (update, filter) = (builder.finish(), single("i", &RawValue::Int32(1).to_owned()));
        let filters = [filter.as_doc()];
        let filters = if paths.iter().any(|path| path.contains("[i]")) { &filters[..] } else { &[] };
        let (update, parse) = (RawValue::Document(update.as_doc()), ParseContext::default());
        let Ok(update) = Update::parse_in(update, filters, &Scope::default(), &parse) else {
            return Ok(());
        };
        let context = UpdateContext { position, ..UpdateContext::default() };
        if let Ok(Some(updated)) = update.apply(doc.as_doc(), &context) {
            prop_assert!(validate(updated.as_bytes(), 200).is_ok());
        }
    }

    #[test]
    fn updates_by_pipelines(spec in any_document(), path in any_path(), doc in any_document()) {
        for stage in ["$set", "$unset", "$project", "$replaceWith"] {
            for operand in [as_value(&spec), RawValue::String(&path).to_owned()] {
                let mut builder = DocBuilder::new_array();
                builder.push(&single(stage, &operand));
                let stages = builder.finish();
                let update = RawValue::Array(stages.as_doc());
                let Ok(update) = Update::parse_value(update, &ParseContext::default()) else {
                    continue;
                };
                if let Ok(Some(updated)) = update.apply(doc.as_doc(), &UpdateContext::default()) {
                    prop_assert!(validate(updated.as_bytes(), 200).is_ok());
                }
            }
        }
    }

    #[test]
    fn positions_lie_in_an_array(
        name in match_operators(),
        operand in any_operand(),
        path in any_path(),
        doc in any_document(),
    ) {
        let filter = single(&path, &as_value(&single(name, &operand)));
        let update = single("$set", &as_value(&single("a.$", &operand)));
        let update = Update::parse(update.as_doc(), &ParseContext::default()).unwrap();
        if let Ok(filter) = Matcher::parse(filter.as_doc(), &ParseContext::default())
            && filter.matches(doc.as_doc()).is_ok_and(|matched| matched)
            && let Ok(Some(position)) = update.position(&filter, doc.as_doc())
        {
            prop_assert!(position < doc.as_bytes().len());
        }
    }

    #[test]
    fn projections_and_sorts(spec in any_document(), path in any_path(), doc in any_document()) {
        let projection = Projection::parse(spec.as_doc(), ProjectionKind::Stage);
        if let Ok(projected) = projection.and_then(|projection| projection.project(doc.as_doc())) {
            prop_assert!(validate(projected.as_bytes(), 200).is_ok());
        }
        for (number, kind) in [(1, ProjectionKind::Find), (0, ProjectionKind::Find)] {
            let spec = single(&path, &RawValue::Int32(number).to_owned());
            let projection = Projection::parse(spec.as_doc(), kind).unwrap();
            let once = projection.project(doc.as_doc()).unwrap();
            prop_assert_eq!(projection.project(once.as_doc()).unwrap(), once.clone());
        }
        let ascending = single(&path, &RawValue::Int32(1).to_owned());
        let pattern = SortPattern::parse(ascending.as_doc()).unwrap();
        prop_assert!(!pattern.sort_key(doc.as_doc()).is_empty());
    }
}

fn nor(filter: &DocBuf) -> DocBuf {
    let mut builder = DocBuilder::new();
    builder.start_array("$nor");
    builder.push(filter);
    builder.finish()
}
