//! Updates, replacements and refused writes; filters in all their forms.

use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, extjson};

use super::client::ClientKey;
use super::{MemoryState, safe_content, vectors};
use crate::{
    ENCRYPTED, EncryptedFields, FilterRewriter, ValuePredicate, WritePlan, plan_write, stored_tags,
};

const NAME: ClientKey = ClientKey { root: [3; 32] };
const AGE: ClientKey = ClientKey { root: [4; 32] };

fn fields() -> EncryptedFields {
    let text = r#"{fields: [
        {path: "name", keyId: {$binary: {base64: "BwcHBwcHBwcHBwcHBwcHBw==", subType: "04"}},
         bsonType: "string", queries: {queryType: "equality"}},
        {path: "inner.age", keyId: {$binary: {base64: "CAgICAgICAgICAgICAgICA==", subType: "04"}},
         bsonType: "string", queries: {queryType: "range"}},
        {path: "plain", keyId: {$binary: {base64: "CQkJCQkJCQkJCQkJCQkJCQ==", subType: "04"}}},
    ]}"#;
    EncryptedFields::parse(extjson::parse_document(text).unwrap().as_doc()).unwrap()
}

fn encrypted(bytes: &[u8]) -> RawValue<'_> {
    RawValue::Binary { subtype: ENCRYPTED, bytes }
}

/// `{_id: 1, name: .., inner: {age: .., n: 2}}`
fn person(name: &str, edges: &[&str]) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("_id", 1).append("name", encrypted(&NAME.insert(name, 0, &[])));
    out.start_document("inner").append("age", encrypted(&AGE.insert("", 0, edges)));
    out.append("n", 2).end();
    out.finish()
}

fn write(state: &mut MemoryState, before: Option<RawDoc<'_>>, after: RawDoc<'_>) -> WritePlan {
    let plan = plan_write(before, after, &fields(), state, &mut vectors()).unwrap();
    state.apply_write(&plan);
    let mut tags = safe_content(plan.document.as_doc());
    let mut stored = stored_tags(plan.document.as_doc()).unwrap();
    tags.sort_unstable();
    stored.sort_unstable();
    assert_eq!(tags, stored);
    plan
}

/// The document with one element replaced, added or removed.
fn changed(document: &DocBuf, name: &str, value: Option<RawValue<'_>>) -> DocBuf {
    let mut out = DocBuilder::new();
    let mut value = Some(value);
    for element in document.as_doc().iter() {
        match element.name() == name {
            true => {
                if let Some(value) = value.take().flatten() {
                    out.append(name, value);
                }
            }
            false => {
                out.append_element(element);
            }
        }
    }
    if let Some(value) = value.flatten() {
        out.append(name, value);
    }
    out.finish()
}

#[test]
fn a_document_keeps_its_other_fields() {
    let mut state = MemoryState::default();
    let plan = write(&mut state, None, person("a", &["x", "y"]).as_doc());
    assert_eq!((plan.added.len(), plan.counts.len(), plan.queue.len()), (3, 3, 3));
    let paths: Vec<&str> = plan.queue.iter().map(|entry| &entry.field[..]).collect();
    assert_eq!(paths, ["name", "inner.age", "inner.age"]);
    let names: Vec<&str> = plan.document.as_doc().iter().map(|element| element.name()).collect();
    assert_eq!(names, ["_id", "name", "inner", "__safeContent__"]);
    let inner = plan.document.as_doc().get("inner").unwrap().as_document().unwrap();
    assert_eq!(inner.get("n"), Some(RawValue::Int32(2)));
    fields().check_stored(plan.document.as_doc()).unwrap();

    let plain = extjson::parse_document("{_id: 1, a: [1, {b: 2}]}").unwrap();
    let plan = write(&mut state, None, plain.as_doc());
    assert_eq!(plan.document, plain);
}

#[test]
fn updates_replace_the_tags_of_changed_values() {
    let mut state = MemoryState::default();
    let first = write(&mut state, None, person("a", &["x", "y"]).as_doc()).document;
    let other = NAME.insert("b", 0, &[]);
    let after = changed(&first, "name", Some(encrypted(&other)));
    let plan = write(&mut state, Some(first.as_doc()), after.as_doc());
    assert_eq!((plan.added.len(), plan.removed.len()), (1, 1));
    assert_eq!(plan.removed[0], stored_tags(first.as_doc()).unwrap()[0]);
    let second = plan.document;

    // An update of another field changes no tags and reads no state.
    state.rounds = 0;
    let after = changed(&second, "z", Some(RawValue::Int32(1)));
    let plan = write(&mut state, Some(second.as_doc()), after.as_doc());
    assert_eq!((plan.document, state.rounds), (after, 0));

    let after = changed(&second, "inner", None);
    let plan = write(&mut state, Some(second.as_doc()), after.as_doc());
    assert_eq!((plan.added.len(), plan.removed.len()), (0, 2));

    // A replacement comes without the array, and with all values encrypted again.
    let plan = write(&mut state, Some(second.as_doc()), person("a", &["x", "z"]).as_doc());
    assert_eq!((plan.added.len(), plan.removed.len()), (3, 3));
    assert_eq!(plan.document.as_doc().iter().last().unwrap().name(), "__safeContent__");
}

#[test]
fn a_payload_that_is_used_twice_counts_twice() {
    let text = r#"{fields: [
        {path: "a", keyId: {$binary: {base64: "BwcHBwcHBwcHBwcHBwcHBw==", subType: "04"}},
         queries: {queryType: "equality"}},
        {path: "b", keyId: {$binary: {base64: "CAgICAgICAgICAgICAgICA==", subType: "04"}},
         queries: {queryType: "equality"}}]}"#;
    let fields = EncryptedFields::parse(extjson::parse_document(text).unwrap().as_doc()).unwrap();
    let payload = NAME.insert("a", 0, &[]);
    let mut given = DocBuilder::new();
    given.append("a", encrypted(&payload)).append("b", encrypted(&payload));
    let mut state = MemoryState::default();
    let plan =
        plan_write(None, given.finish().as_doc(), &fields, &mut state, &mut vectors()).unwrap();
    state.apply_write(&plan);
    assert_ne!(plan.added[0], plan.added[1]);
}

#[test]
fn misplaced_values_are_refused() {
    let mut state = MemoryState::default();
    let stored = write(&mut state, None, person("a", &["x"]).as_doc()).document;
    let mut refuse = |document: DocBuf, code: i32| {
        let result = plan_write(None, document.as_doc(), &fields(), &mut state, &mut vectors());
        assert_eq!(result.unwrap_err().code().0, code);
    };
    let with = |name: &str, value: RawValue<'_>| {
        let mut out = DocBuilder::new();
        out.append(name, value);
        out.finish()
    };
    let (equality, range) = (NAME.insert("a", 0, &[]), AGE.insert("", 0, &["x"]));
    refuse(with("other", encrypted(&equality)), 2);
    refuse(with("plain", encrypted(&equality)), 2);
    refuse(with("name", encrypted(&range)), 2);
    refuse(with("name", encrypted(&NAME.find("a", 0))), 2);
    refuse(with("name", encrypted(&[])), 2);
    refuse(with("name", encrypted(&[11])), 22);
    refuse(with("name", encrypted(&[11, 5, 0, 0, 0, 0])), 9);
    refuse(stored.clone(), 6666200);
    refuse(changed(&stored, "__safeContent__", None), 2);
    let mut list = DocBuilder::new();
    list.start_array("name").push_document().append("x", encrypted(&equality)).end().end();
    refuse(list.finish(), 2);

    let fields = fields();
    assert!(fields.check_stored(with("name", RawValue::Int32(1)).as_doc()).is_err());
    assert!(fields.check_stored(with("name", encrypted(&equality)).as_doc()).is_err());
    assert!(fields.check_stored(with("plain", encrypted(&[16; 40])).as_doc()).is_ok());
}

/// Rewrites a filter, or the pipeline in a field of this name, in which `"E"` and `"F"` stand for
/// payloads of the name, `"R"` and `"S"` for the two of a range.
fn rewritten(filter: &str, max_tags: usize) -> Result<String> {
    fn substitute(value: RawValue<'_>, out: &mut DocBuilder, name: Option<&str>) {
        let bytes = match value {
            RawValue::String("E") => NAME.find("a", 0),
            RawValue::String("F") => NAME.find("b", 0),
            RawValue::String("R") => AGE.find_range(1, &["x", "y"], 0),
            RawValue::String("S") => AGE.find_range(1, &[], 0),
            _ => Vec::new(),
        };
        match (value, name) {
            (RawValue::Document(_), Some(name)) => out.start_document(name),
            (RawValue::Document(_), None) => out.push_document(),
            (RawValue::Array(_), Some(name)) => out.start_array(name),
            (RawValue::Array(_), None) => out.push_array(),
            (_, Some(name)) if !bytes.is_empty() => out.append(name, encrypted(&bytes)),
            (_, None) if !bytes.is_empty() => out.push(encrypted(&bytes)),
            (value, Some(name)) => out.append(name, value),
            (value, None) => out.push(value),
        };
        match value {
            RawValue::Document(inner) => {
                inner.iter().for_each(|item| substitute(item.value(), out, Some(item.name())));
                out.end();
            }
            RawValue::Array(inner) => {
                inner.iter().for_each(|item| substitute(item.value(), out, None));
                out.end();
            }
            _ => {}
        }
    }
    let template = extjson::parse_document(filter).unwrap();
    let mut filter = DocBuilder::new();
    for element in template.as_doc().iter() {
        substitute(element.value(), &mut filter, Some(element.name()));
    }
    let mut state = MemoryState::default();
    let document = write(&mut state, None, person("a", &["x", "z"]).as_doc()).document;
    let tags = safe_content(document.as_doc());
    let fields = fields();
    let fallback = |path: &str, predicate: &ValuePredicate, out: &mut DocBuilder| {
        out.start_document("$scan").append("field", path);
        out.append("tokens", predicate.tokens().len() as i32).end();
        Ok(())
    };
    let mut rewriter =
        FilterRewriter { fields: &fields, reader: &mut state, max_tags, fallback: &fallback };
    let filter = filter.finish();
    let filter = match filter.as_doc().get("pipeline") {
        Some(RawValue::Array(stages)) => rewriter.pipeline(stages)?,
        _ => rewriter.filter(filter.as_doc())?,
    };
    let Some(filter) = filter else { return Ok("unchanged".to_owned()) };
    let mut text = extjson::to_string(filter.as_doc(), extjson::Style::Relaxed).replace('"', "");
    for (at, tag) in tags.iter().enumerate() {
        let mut one = DocBuilder::new();
        one.append("t", RawValue::Binary { subtype: 0, bytes: tag });
        let one = extjson::to_string(one.finish().as_doc(), extjson::Style::Relaxed);
        let one = one.replace('"', "");
        text = text
            .replace(one.trim_start_matches("{t:").strip_suffix('}').unwrap(), &format!("T{at}"));
    }
    Ok(text)
}

#[test]
fn comparisons_become_conditions_on_tags() {
    // The document has the tags T0 (name "a"), T1 (edge "x") and T2 (edge "z").
    let cases = [
        ("{a: 1, name: {$exists: true}}", "unchanged"),
        (
            "{$nor: [{$and: [{'inner.age': {$gt: 'R'}}, {'inner.age': {$lt: 'S'}}]}]}",
            "{$nor:[{$and:[{__safeContent__:{$elemMatch:{$in:[T1]}}},{}]}]}",
        ),
        ("{name: 'E'}", "{__safeContent__:{$elemMatch:{$in:[T0]}}}"),
        ("{name: {$eq: 'E'}, n: 1}", "{$and:[{__safeContent__:{$elemMatch:{$in:[T0]}}},{n:1}]}"),
        ("{name: 'F'}", "{__safeContent__:{$elemMatch:{$in:[]}}}"),
        ("{name: {$ne: 'E'}}", "{$nor:[{__safeContent__:{$elemMatch:{$in:[T0]}}}]}"),
        (
            "{name: {$in: ['E', 'F'], $exists: true}}",
            "{$and:[{__safeContent__:{$elemMatch:{$in:[T0]}}},{name:{$exists:true}}]}",
        ),
        ("{name: {$not: {$eq: 'E'}}}", "{$nor:[{__safeContent__:{$elemMatch:{$in:[T0]}}}]}"),
        (
            "{$or: [{name: 'E'}, {n: {$gt: 1}}]}",
            "{$or:[{__safeContent__:{$elemMatch:{$in:[T0]}}},{n:{$gt:1}}]}",
        ),
        (
            "{'inner.age': {$gte: 'R', $lte: 'S'}}",
            "{$and:[{__safeContent__:{$elemMatch:{$in:[T1]}}},{}]}",
        ),
        (
            "{$expr: {$and: [{$eq: ['$name', 'E']}, true]}}",
            "{$expr:{$and:[{$or:[{$gt:[{$size:{$setIntersection:[{$ifNull:[$__safeContent__,[]]},{$literal:[T0]}]}},0]}]},true]}}",
        ),
        (
            "{$expr: {$ne: ['E', '$name']}}",
            "{$expr:{$not:[{$or:[{$gt:[{$size:{$setIntersection:[{$ifNull:[$__safeContent__,[]]},{$literal:[T0]}]}},0]}]}]}}",
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(rewritten(filter, 10).unwrap(), expected, "{filter}");
    }
    // The first payload uses the only tag that is allowed.
    let few = rewritten("{name: {$in: ['E', 'E']}}", 1).unwrap();
    let scan = "{$expr:{$scan:{field:name,tokens:1}}}";
    assert_eq!(few, format!("{{$or:[{{__safeContent__:{{$elemMatch:{{$in:[T0]}}}}}},{scan}]}}"));
    let stages = "{pipeline: [{$match: {name: 'E'}}, {$project: {a: {$in: ['$name', ['F']]}}}]}";
    let text = rewritten(stages, 10).unwrap();
    assert!(text.starts_with("{0:{$match:{__safeContent__:{$elemMatch:{$in:[T0]}}}},1:{$project:"));
    assert_eq!(rewritten("{pipeline: [{$match: {n: 1}}]}", 10).unwrap(), "unchanged");
    assert!(rewritten("{pipeline: [{$facet: {a: [{$match: {name: 'E'}}]}}]}", 10).is_err());
    let many = rewritten("{'inner.age': {$gte: 'R', $lte: 'S'}}", 1).unwrap();
    assert_eq!(many, "{$and:[{$expr:{$scan:{field:inner.age,tokens:2}}},{}]}");
    let many = rewritten("{$expr: {$gte: ['$inner.age', 'R']}}", 1).unwrap();
    assert_eq!(many, "{$expr:{$or:[{$scan:{field:inner.age,tokens:2}}]}}");
}

#[test]
fn misplaced_queries_are_refused() {
    for filter in [
        "{other: 'E'}",
        "{plain: 'E'}",
        "{'inner.age': 'E'}",
        "{name: {$gt: 'E'}}",
        "{name: {$in: ['E', 1]}}",
        "{name: {$elemMatch: {$eq: 'E'}}}",
        "{name: {x: 'E'}}",
        "{$and: ['E']}",
        "{'inner.age': {$lte: 'S'}}",
        "{$or: [{'inner.age': {$gte: 'R'}}, {'inner.age': {$lte: 'S'}}]}",
        "{$and: [{'inner.age': {$gte: 'R'}}, {'inner.age': {$not: {$lte: 'S'}}}]}",
        "{$and: [{$nor: [{'inner.age': {$gte: 'R'}}]}, {'inner.age': {$lte: 'S'}}]}",
        "{$expr: {$or: [{$gte: ['$inner.age', 'R']}, {$lte: ['$inner.age', 'S']}]}}",
        "{$expr: {$eq: ['$name', 'E', 1]}}",
        "{$expr: {$cmp: ['$name', 'E']}}",
        "{$expr: {$eq: ['$$ROOT.name', 'E']}}",
    ] {
        assert!(rewritten(filter, 10).is_err(), "{filter}");
    }
}
