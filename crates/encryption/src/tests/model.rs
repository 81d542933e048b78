//! The state against a model that only counts: random inserts, compactions and cleanups, each of
//! them with a part of the queue.

use std::collections::HashMap;

use proptest::prelude::*;

use super::client::ClientKey;
use super::{MemoryState, vectors};
use crate::{
    DEFAULT_MAX_TAGS, ENCRYPTED, EncryptedFields, FindPayload, QueueEntry, Tag, TagSearch,
    find_tags, plan_cleanup, plan_compaction, plan_padding, plan_padding_cleanup, plan_write,
    queued_tokens,
};
use mayfly_value::{DocBuilder, RawValue, extjson};

const KEY: ClientKey = ClientKey { root: [3; 32] };
const VALUES: [&str; 3] = ["a", "b", "c"];
const MAX_CONTENTION: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    Insert { value: usize, contention: u64, times: usize },
    Compact(usize),
    Cleanup(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let insert = (0..VALUES.len(), 0..=MAX_CONTENTION, 1..20_usize)
        .prop_map(|(value, contention, times)| Step::Insert { value, contention, times });
    prop_oneof![
        4 => insert,
        2 => (1..60_usize).prop_map(Step::Compact),
        1 => (1..60_usize).prop_map(Step::Cleanup),
    ]
}

pub(super) fn fields() -> EncryptedFields {
    let text = r#"{fields: [{path: "f", keyId: {$binary: {base64: "BwcHBwcHBwcHBwcHBwcHBw==", subType: "04"}},
        bsonType: "string", queries: {queryType: "equality"}}]}"#;
    EncryptedFields::parse(extjson::parse_document(text).unwrap().as_doc()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn counts_agree_with_a_model(steps in prop::collection::vec(step(), 1..24)) {
        let (mut state, mut iv, fields) = (MemoryState::default(), vectors(), fields());
        let mut queue: Vec<QueueEntry> = Vec::new();
        let mut model: HashMap<&str, Vec<Tag>> = HashMap::new();
        for step in steps {
            match step {
                Step::Insert { value, contention, times } => {
                    for _ in 0..times {
                        let payload = KEY.insert(VALUES[value], contention, &[]);
                        let mut given = DocBuilder::new();
                        given.append("f", RawValue::Binary { subtype: ENCRYPTED, bytes: &payload });
                        let given = given.finish();
                        let plan =
                            plan_write(None, given.as_doc(), &fields, &mut state, &mut iv).unwrap();
                        state.apply_write(&plan);
                        queue.extend(plan.queue);
                        model.entry(VALUES[value]).or_default().extend(plan.added);
                    }
                }
                Step::Compact(entries) | Step::Cleanup(entries) => {
                    let batch: Vec<QueueEntry> =
                        queue.drain(..entries.min(queue.len())).collect();
                    let tokens = queued_tokens(&batch, &[("f".to_owned(), KEY.ecoc())]).unwrap();
                    let tokens: Vec<_> = tokens.iter().map(|token| token.token).collect();
                    let plan = match step {
                        Step::Compact(_) => plan_compaction,
                        _ => plan_cleanup,
                    };
                    let change = plan(&tokens, &mut state, &mut iv).unwrap();
                    state.apply_change(&change);
                    // A second run finds nothing new.
                    let again = plan(&tokens, &mut state, &mut iv).unwrap();
                    prop_assert!(again.inserted.is_empty() && again.replaced.is_empty());
                    prop_assert_eq!(again.deleted_count(), 0);
                }
            }
            for value in VALUES {
                let payload = KEY.find(value, MAX_CONTENTION);
                let payload = FindPayload::parse(&payload).unwrap();
                let found = find_tags(&payload, &mut state, DEFAULT_MAX_TAGS).unwrap();
                let TagSearch::Tags(mut found) = found else { panic!("too many tags") };
                let mut expected = model.get(value).cloned().unwrap_or_default();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
        // A cleanup of everything leaves one document for each value and factor in the queue.
        let tokens = queued_tokens(&queue, &[("f".to_owned(), KEY.ecoc())]).unwrap();
        let tokens: Vec<_> = tokens.iter().map(|token| token.token).collect();
        let change = plan_cleanup(&tokens, &mut state, &mut iv).unwrap();
        state.apply_change(&change);
    }
}

#[test]
fn a_search_takes_few_rounds_for_all_values_together() {
    let (mut state, mut iv, fields) = (MemoryState::default(), vectors(), fields());
    for _ in 0..1000 {
        let payload = KEY.insert("a", 0, &[]);
        let mut given = DocBuilder::new();
        given.append("f", RawValue::Binary { subtype: ENCRYPTED, bytes: &payload });
        let given = given.finish();
        let plan = plan_write(None, given.as_doc(), &fields, &mut state, &mut iv).unwrap();
        state.apply_write(&plan);
    }
    state.rounds = 0;
    let payload = FindPayload::parse(&KEY.find("a", 9)).unwrap();
    let found = find_tags(&payload, &mut state, DEFAULT_MAX_TAGS).unwrap();
    assert!(matches!(found, TagSearch::Tags(tags) if tags.len() == 1000));
    // The null anchor, the first anchor, and about twice the logarithm of the count.
    assert!(state.rounds <= 2 + 11 + 10, "{}", state.rounds);
    assert_eq!(find_tags(&payload, &mut state, 999).unwrap(), TagSearch::TooMany);
    // Every contention factor costs look-ups, even without tags.
    let payload = FindPayload::parse(&KEY.find("a", i64::MAX as u64)).unwrap();
    assert_eq!(find_tags(&payload, &mut state, 999).unwrap(), TagSearch::TooMany);
}

#[test]
fn padding_counts_on_and_is_cleaned() {
    let (mut state, mut iv) = (MemoryState::default(), vectors());
    let token = KEY.padding();
    for anchors in [3, 0, 2] {
        let change = plan_padding(&token, anchors, &mut state, &mut iv).unwrap();
        state.apply_change(&change);
    }
    assert_eq!(state.documents.len(), 5);
    for _ in 0..2 {
        let change = plan_padding_cleanup(&token, &mut state, &mut iv).unwrap();
        state.apply_change(&change);
        assert_eq!(state.documents.len(), 1);
    }
    let change = plan_padding(&token, 1, &mut state, &mut iv).unwrap();
    state.apply_change(&change);
    let change = plan_padding_cleanup(&token, &mut state, &mut iv).unwrap();
    assert_eq!((change.inserted.len(), change.replaced.len()), (0, 1));
    state.apply_change(&change);
    assert_eq!(state.documents.len(), 1);
}
