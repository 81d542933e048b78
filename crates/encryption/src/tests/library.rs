//! With payloads and commands that libmongocrypt made: `client.json`, which says how.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, extjson};

use super::client::ClientKey;
use super::{MemoryState, safe_content, vectors};
use crate::{
    DEFAULT_MAX_TAGS, ENCRYPTED, EncryptedFields, FilterRewriter, FindPayload, InsertPayload,
    PayloadKind, QueueEntry, StoredValue, Tag, TagSearch, ValuePredicate, WritePlan, check_tokens,
    find_tags, parse_tokens, plan_cleanup, plan_compaction, plan_write, queued_tokens,
};

pub(super) fn fixture(text: &str) -> DocBuf {
    extjson::parse_document(text).unwrap()
}

fn client() -> DocBuf {
    fixture(include_str!("client.json"))
}

pub(super) fn bytes(value: RawValue<'_>) -> Vec<u8> {
    let text = value.as_str().unwrap().as_bytes();
    let digit = |at: usize| char::from(text[at]).to_digit(16).unwrap() as u8;
    (0..text.len() / 2).map(|at| digit(2 * at) << 4 | digit(2 * at + 1)).collect()
}

fn document(value: RawValue<'_>) -> DocBuf {
    DocBuf::from_bytes(bytes(value)).unwrap()
}

fn items<'a>(fixture: &'a DocBuf, name: &str) -> Vec<RawDoc<'a>> {
    let items = fixture.as_doc().get(name).unwrap().as_array().unwrap();
    items.iter().map(|item| item.value().as_document().unwrap()).collect()
}

fn named<'a>(fixture: &'a DocBuf, list: &str, name: &str) -> RawDoc<'a> {
    let has_name = |item: &RawDoc<'_>| item.get("name").unwrap().as_str() == Some(name);
    items(fixture, list).into_iter().find(has_name).unwrap()
}

/// The fields of the fixture's payloads.
fn fields() -> EncryptedFields {
    let text = r#"{fields: [
        {path: "name", keyId: {$binary: {base64: "AQEBAQEBAQEBAQEBAQEBAQ==", subType: "04"}}, bsonType: "string",
         queries: [{queryType: "equality", contention: 4}]},
        {path: "number", keyId: {$binary: {base64: "AgICAgICAgICAgICAgICAg==", subType: "04"}}, bsonType: "int",
         queries: {queryType: "equality"}},
        {path: "age", keyId: {$binary: {base64: "AwMDAwMDAwMDAwMDAwMDAw==", subType: "04"}}, bsonType: "int",
         queries: {queryType: "range", min: 0, max: 200}},
        {path: "score", keyId: {$binary: {base64: "BAQEBAQEBAQEBAQEBAQEBA==", subType: "04"}}, bsonType: "double",
         queries: {queryType: "range", min: 0.0, max: 10.0, precision: 1}},
        {path: "secret", keyId: {$binary: {base64: "BQUFBQUFBQUFBQUFBQUFBQ==", subType: "04"}}, bsonType: "string"},
    ]}"#;
    EncryptedFields::parse(fixture(text).as_doc()).unwrap()
}

fn insert(state: &mut MemoryState, path: &str, payload: &[u8]) -> WritePlan {
    let mut given = DocBuilder::new();
    given.append("_id", 1).append(path, RawValue::Binary { subtype: ENCRYPTED, bytes: payload });
    let given = given.finish();
    let plan = plan_write(None, given.as_doc(), &fields(), state, &mut vectors()).unwrap();
    state.apply_write(&plan);
    assert_eq!(safe_content(plan.document.as_doc()), plan.added);
    assert_eq!(plan.document.as_doc().iter().last().unwrap().name(), "__safeContent__");
    fields().check_stored(plan.document.as_doc()).unwrap();
    plan
}

fn tags(state: &mut MemoryState, payload: &[u8]) -> Vec<Tag> {
    let payload = FindPayload::parse(payload).unwrap();
    match find_tags(&payload, state, DEFAULT_MAX_TAGS).unwrap() {
        TagSearch::Tags(tags) => tags,
        TagSearch::TooMany => panic!("too many tags"),
    }
}

/// Whether a query finds a document; the tags and the predicate must agree.
fn finds(state: &mut MemoryState, payload: &[u8], path: &str, document: &DocBuf) -> bool {
    let wanted = tags(state, payload);
    let by_tag = safe_content(document.as_doc()).iter().any(|tag| wanted.contains(tag));
    let predicate = ValuePredicate::new(&FindPayload::parse(payload).unwrap()).unwrap();
    assert_eq!(predicate.matches(document.as_doc().get(path).unwrap()), by_tag);
    by_tag
}

/// The query payload with edges in a filter.
fn edges_of(filter: RawDoc<'_>) -> Vec<u8> {
    fn search(value: RawValue<'_>) -> Option<Vec<u8>> {
        match value {
            RawValue::Document(inner) | RawValue::Array(inner) => {
                inner.iter().find_map(|element| search(element.value()))
            }
            RawValue::Binary { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        }
    }
    search(RawValue::Document(filter)).unwrap()
}

#[test]
fn values_are_found_by_their_payloads_and_no_others() {
    let (fixture, mut state) = (client(), MemoryState::default());
    let mut documents = Vec::new();
    for case in items(&fixture, "equality") {
        let path = if case.get("key") == Some(RawValue::Int32(1)) { "name" } else { "number" };
        // Whether the field's contention factor is 0 or 4, "Smith" is the same value.
        let value = bytes(case.get("value").unwrap());
        for payload in case.get("inserts").unwrap().as_array().unwrap() {
            let plan = insert(&mut state, path, &bytes(payload.value()));
            documents.push((path, value.clone(), plan.document));
        }
    }
    assert_eq!(documents.len(), 9);
    for case in items(&fixture, "equality") {
        let find = bytes(case.get("find").unwrap());
        let value = bytes(case.get("value").unwrap());
        let factors = case.get("contention").unwrap();
        let mut found = 0;
        for (path, inserted, document) in &documents {
            let matches = {
                let payload = FindPayload::parse(&find).unwrap();
                let stored = document.as_doc().get(path).unwrap();
                ValuePredicate::new(&payload).unwrap().matches(stored)
            };
            assert_eq!(matches, *inserted == value);
            found += usize::from(matches);
        }
        let tags = tags(&mut state, &find);
        // With the greatest factor 0, the query looks only for inserts with the factor 0.
        match factors {
            RawValue::Int32(0) => assert!(tags.len() <= found && !tags.is_empty()),
            _ => assert_eq!(tags.len(), found),
        }
    }
}

#[test]
fn contention_factors_count_separately() {
    let (fixture, mut state) = (client(), MemoryState::default());
    let case = named(&fixture, "equality", "smith, contention 4");
    let find = bytes(case.get("find").unwrap());
    let mut inserted = Vec::new();
    let mut counts = [0; 5];
    for payload in case.get("inserts").unwrap().as_array().unwrap() {
        let payload = bytes(payload.value());
        let parsed = InsertPayload::parse(&payload).unwrap();
        counts[parsed.contention as usize] += 1;
        let plan = insert(&mut state, "name", &payload);
        let stored = plan.document.as_doc().get("name").unwrap();
        let stored = StoredValue::parse(crate::encrypted_bytes(stored).unwrap()).unwrap();
        let token = parsed.tokens[0].server_data.count_token();
        let numbers = stored.blocks().next().unwrap().count_and_contention(&token);
        assert_eq!(numbers, (counts[parsed.contention as usize], parsed.contention));
        assert!(finds(&mut state, &find, "name", &plan.document));
        inserted.extend(plan.added);
    }
    let mut found = tags(&mut state, &find);
    found.sort_unstable();
    inserted.sort_unstable();
    assert_eq!(found, inserted);
}

#[test]
fn ranges_find_the_values_inside() {
    let (fixture, mut state) = (client(), MemoryState::default());
    let mut stored = |name: &str, path: &'static str| {
        let case = named(&fixture, "range", name);
        let plan = insert(&mut state, path, &bytes(case.get("insert").unwrap()));
        assert!(plan.added.len() > 1 && plan.added.len() == plan.queue.len());
        plan.document
    };
    let ages = [15, 30, 31, 199].map(|age| (age, stored(&format!("age {age}"), "age")));
    let contended = stored("age 30, contention 4", "age");
    let score = stored("score 2.5", "score");
    let cases: [(&str, &dyn Fn(i32) -> bool); 4] = [
        ("age 20..30", &|age| (20..=30).contains(&age)),
        ("age 31..200", &|age| (31..=200).contains(&age)),
        ("age > 30", &|age| age > 30),
        ("age < 31, contention 4", &|age| age < 31),
    ];
    for (name, expected) in cases {
        let filter = document(named(&fixture, "range_find", name).get("filter").unwrap());
        let find = edges_of(filter.as_doc());
        for (age, document) in &ages {
            assert_eq!(finds(&mut state, &find, "age", document), expected(*age), "{name} {age}");
        }
    }
    let find = |name: &str| {
        edges_of(document(named(&fixture, "range_find", name).get("filter").unwrap()).as_doc())
    };
    assert!(finds(&mut state, &find("age < 31, contention 4"), "age", &contended));
    assert!(finds(&mut state, &find("score 2.0..3.0"), "score", &score));
    assert!(!finds(&mut state, &find("score 3..4, expression"), "score", &score));
}

#[test]
fn filters_of_the_library_are_rewritten() {
    let (fixture, mut state) = (client(), MemoryState::default());
    let age = named(&fixture, "range", "age 30");
    let plan = insert(&mut state, "age", &bytes(age.get("insert").unwrap()));
    let fields = fields();
    for case in items(&fixture, "range_find") {
        let filter = document(case.get("filter").unwrap());
        let mut rewriter = FilterRewriter {
            fields: &fields,
            reader: &mut state,
            max_tags: DEFAULT_MAX_TAGS,
            fallback: &|_, _, _| panic!("few tags"),
        };
        let is_expression = case.get("name").unwrap().as_str() == Some("score 3..4, expression");
        let rewritten = match is_expression {
            false => rewriter.filter(filter.as_doc()),
            true => rewriter.expression(filter.as_doc()),
        };
        let text = format!("{:?}", rewritten.unwrap().unwrap());
        assert!(text.contains("__safeContent__") && !text.contains("BinData(6"), "{text}");
    }
    let filter = document(named(&fixture, "range_find", "age 20..30").get("filter").unwrap());
    let mut rewriter = FilterRewriter {
        fields: &fields,
        reader: &mut state,
        max_tags: DEFAULT_MAX_TAGS,
        fallback: &|_, _, _| panic!("few tags"),
    };
    let rewritten = rewriter.filter(filter.as_doc()).unwrap().unwrap();
    let both = rewritten.as_doc().get("$and").unwrap().as_array().unwrap();
    let [first, second] = [0, 1].map(|at| both.iter().nth(at).unwrap().value());
    assert_eq!(second, RawValue::Document(RawDoc::EMPTY));
    let tags = first.as_document().unwrap().get("__safeContent__").unwrap();
    let tags = tags.as_document().unwrap().get("$elemMatch").unwrap();
    let tags = tags.as_document().unwrap().get("$in").unwrap().as_array().unwrap();
    let is_added = |value| {
        matches!(value, RawValue::Binary { subtype: 0, bytes }
        if plan.added.iter().any(|tag| tag[..] == *bytes))
    };
    assert_eq!(tags.iter().filter(|tag| is_added(tag.value())).count(), 1);
}

#[test]
fn ranges_with_other_parameters_are_refused() {
    let fixture = client();
    let age = bytes(named(&fixture, "range", "age 30").get("insert").unwrap());
    let payload = InsertPayload::parse(&age).unwrap();
    assert_eq!((payload.range.sparsity, payload.range.trim_factor), (Some(1), Some(1)));
    let mut given = DocBuilder::new();
    given.append("age", RawValue::Binary { subtype: ENCRYPTED, bytes: &age });
    let given = given.finish();
    let filter = document(named(&fixture, "range_find", "age > 30").get("filter").unwrap());
    for (options, is_allowed) in [
        ("sparsity: 1, trimFactor: 1, min: 0, max: 200", true),
        ("min: null", true),
        ("sparsity: 2", false),
        ("trimFactor: 0", false),
        ("min: 1", false),
        ("max: 100", false),
    ] {
        let text = format!(
            r#"{{fields: [{{path: "age", bsonType: "int", queries: {{queryType: "range", {options}}},
                keyId: {{$binary: {{base64: "AwMDAwMDAwMDAwMDAwMDAw==", subType: "04"}}}}}}]}}"#
        );
        let fields = EncryptedFields::parse(self::fixture(&text).as_doc()).unwrap();
        let mut state = MemoryState::default();
        let plan = plan_write(None, given.as_doc(), &fields, &mut state, &mut vectors());
        assert_eq!(plan.is_ok(), is_allowed, "{options}");
        let mut rewriter = FilterRewriter {
            fields: &fields,
            reader: &mut state,
            max_tags: DEFAULT_MAX_TAGS,
            fallback: &|_, _, _| Ok(()),
        };
        assert_eq!(rewriter.filter(filter.as_doc()).is_ok(), is_allowed, "{options}");
    }
}

#[test]
fn the_commands_of_the_library_are_read() {
    let fixture = client();
    let commands = fixture.as_doc().get("commands").unwrap().as_document().unwrap();
    let command = |name: &str| document(commands.get(name).unwrap());
    for name in ["insert", "find", "compact"] {
        let command = command(name);
        let information = command.as_doc().get("encryptionInformation").unwrap();
        let information = information.as_document().unwrap();
        let fields = EncryptedFields::of_command(information, "test.people").unwrap();
        let paths: Vec<&str> = fields.indexed().map(|field| &field.path[..]).collect();
        assert_eq!(paths, ["name", "inner.number", "age"]);
        assert!(EncryptedFields::of_command(information, "test.others").is_err());
    }
    let insert = command("insert");
    let information = insert.as_doc().get("encryptionInformation").unwrap();
    let fields =
        EncryptedFields::of_command(information.as_document().unwrap(), "test.people").unwrap();
    let documents = insert.as_doc().get("documents").unwrap().as_array().unwrap();
    let given = documents.iter().next().unwrap().value().as_document().unwrap();
    let mut state = MemoryState::default();
    let plan = plan_write(None, given, &fields, &mut state, &mut vectors()).unwrap();
    state.apply_write(&plan);
    let find = command("find");
    let filter = find.as_doc().get("filter").unwrap().as_document().unwrap();
    assert!(finds(&mut state, &edges_of(filter), "name", &plan.document));

    for (name, argument) in [("compact", "compactionTokens"), ("cleanup", "cleanupTokens")] {
        let command = command(name);
        let tokens = command.as_doc().get(argument).unwrap().as_document().unwrap();
        let tokens = parse_tokens(tokens).unwrap();
        check_tokens(&fields, &tokens).unwrap();
        assert!(check_tokens(&fields, &tokens[1..]).is_err());
        for (path, number) in [("name", 1), ("inner.number", 2), ("age", 3)] {
            let token = tokens.iter().find(|token| token.field == path).unwrap();
            // The last third of the key material is the root of all tokens.
            let key = ClientKey { root: [number + 16; 32] };
            assert_eq!(token.ecoc, key.ecoc());
            assert_eq!(token.padding, (path == "age").then(|| key.padding()));
        }
    }
}

#[test]
fn the_queue_of_the_library_s_values_is_compacted() {
    let (fixture, mut state) = (client(), MemoryState::default());
    let smith = named(&fixture, "equality", "smith");
    let age = named(&fixture, "range", "age 30");
    let mut queue: Vec<QueueEntry> = Vec::new();
    let mut inserted = Vec::new();
    for payload in smith.get("inserts").unwrap().as_array().unwrap() {
        let plan = insert(&mut state, "name", &bytes(payload.value()));
        queue.extend(plan.queue);
        inserted.extend(plan.added);
    }
    let age = bytes(age.get("insert").unwrap());
    let plan = insert(&mut state, "age", &age);
    queue.extend(plan.queue);
    let stored: Vec<QueueEntry> = queue
        .iter()
        .map(|entry| QueueEntry::parse(entry.document([1; 12]).as_doc()).unwrap())
        .collect();
    assert_eq!(stored, queue);

    let key = |number: u8| ClientKey { root: [number + 16; 32] };
    let keys = [("name".to_owned(), key(1).ecoc()), ("age".to_owned(), key(3).ecoc())];
    let tokens = queued_tokens(&queue, &keys).unwrap();
    let edges = InsertPayload::parse(&age).unwrap().tokens.len();
    assert_eq!(tokens.len(), 1 + edges);
    assert_eq!(tokens[0].entries, [0, 1]);
    assert_eq!(tokens.iter().filter(|token| token.is_leaf).count(), 1);
    assert!(queued_tokens(&queue, &keys[..1]).is_err());

    let tokens: Vec<_> = tokens.iter().map(|token| token.token).collect();
    let twice = [&tokens[..], &tokens[..]].concat();
    let change = plan_compaction(&twice, &mut state, &mut vectors()).unwrap();
    assert_eq!(change.deleted_count(), 2 + edges as u64);
    state.apply_change(&change);
    let find = bytes(smith.get("find").unwrap());
    assert_eq!(tags(&mut state, &find), inserted);
    let change = plan_cleanup(&tokens, &mut state, &mut vectors()).unwrap();
    state.apply_change(&change);
    assert_eq!(tags(&mut state, &find), inserted);
    assert_eq!(state.documents.len(), 1 + edges);
}

#[test]
fn text_search_is_refused() {
    let fixture = client();
    let text = bytes(fixture.as_doc().get("text").unwrap());
    assert_eq!(InsertPayload::parse(&text).unwrap_err().code().0, 238);
    let unindexed = bytes(fixture.as_doc().get("unindexed").unwrap());
    assert_eq!(PayloadKind::of(&unindexed), Some(PayloadKind::Unindexed));
    let mut given = DocBuilder::new();
    given.append("secret", RawValue::Binary { subtype: ENCRYPTED, bytes: &unindexed });
    let given = given.finish();
    let mut state = MemoryState::default();
    let plan = plan_write(None, given.as_doc(), &fields(), &mut state, &mut vectors()).unwrap();
    assert_eq!(plan.document, given);
    assert!(plan.counts.is_empty() && plan.queue.is_empty());
    fields().check_stored(given.as_doc()).unwrap();
}

/// The library has decrypted these stored values, see `stored.json`. They are still made.
#[test]
fn the_library_decrypts_stored_values() {
    let (given, stored) = (client(), fixture(include_str!("stored.json")));
    for case in items(&stored, "values") {
        let text = |name: &str| case.get(name).unwrap().as_str().unwrap();
        let path = text("path");
        let source = named(&given, text("list"), text("name"));
        let payload = match source.get("inserts") {
            Some(RawValue::Array(inserts)) => inserts.iter().next().unwrap().value(),
            _ => source.get("insert").unwrap(),
        };
        let plan = insert(&mut MemoryState::default(), path, &bytes(payload));
        let value = plan.document.as_doc().get(path).unwrap();
        assert_eq!(crate::encrypted_bytes(value), Some(&bytes(case.get("stored").unwrap())[..]));
        assert_eq!(case.get("decrypted"), source.get("value"));
    }
}
