//! Arbitrary and altered bytes end in an answer or an error.

use mayfly_value::arbitrary::any_document;
use mayfly_value::{DocBuilder, RawValue};
use proptest::prelude::*;

use super::client::ClientKey;
use super::{MemoryState, model, vectors};
use crate::{
    DEFAULT_MAX_TAGS, ENCRYPTED, EncryptedFields, EscRecord, FilterRewriter, FindPayload,
    InsertPayload, QueueEntry, StoredValue, ValuePredicate, find_tags, parse_tokens, plan_write,
    queued_tokens, stored_tags,
};

const KEY: ClientKey = ClientKey { root: [5; 32] };

/// Gives the bytes to everything that reads bytes of clients or of the store.
fn read_all(bytes: &[u8]) {
    let _ = InsertPayload::parse(bytes);
    if let Ok(stored) = StoredValue::parse(bytes) {
        assert_eq!(stored.tags().count(), stored.blocks().count());
    }
    let mut state = MemoryState::default();
    if let Ok(find) = FindPayload::parse(bytes) {
        let _ = find_tags(&find, &mut state, 1000);
        if let Some(predicate) = ValuePredicate::new(&find) {
            predicate.matches(RawValue::Binary { subtype: ENCRYPTED, bytes });
        }
    }
    let mut document = DocBuilder::new();
    document.append("f", RawValue::Binary { subtype: ENCRYPTED, bytes });
    let document = document.finish();
    let fields = model::fields();
    let _ = plan_write(None, document.as_doc(), &fields, &mut state, &mut vectors());
    let _ = stored_tags(document.as_doc());
    let _ = fields.check_stored(document.as_doc());
    let mut rewriter = FilterRewriter {
        fields: &fields,
        reader: &mut state,
        max_tags: DEFAULT_MAX_TAGS,
        fallback: &|_, _, _| Ok(()),
    };
    let _ = rewriter.filter(document.as_doc());
    let entry = QueueEntry { field: "f".to_owned(), encrypted_tokens: bytes.to_vec() };
    let _ = queued_tokens(&[entry], &[("f".to_owned(), KEY.ecoc())]);
}

fn samples() -> Vec<Vec<u8>> {
    let (mut state, fields) = (MemoryState::default(), model::fields());
    let mut given = DocBuilder::new();
    let payload = KEY.insert("a", 1, &[]);
    given.append("f", RawValue::Binary { subtype: ENCRYPTED, bytes: &payload });
    let given = given.finish();
    let plan = plan_write(None, given.as_doc(), &fields, &mut state, &mut vectors()).unwrap();
    let stored = crate::encrypted_bytes(plan.document.as_doc().get("f").unwrap()).unwrap();
    let mut range = stored.to_vec();
    range[0] = 15;
    range.insert(18, 1);
    vec![
        stored.to_vec(),
        range,
        KEY.insert("a", 0, &["x", "y"]),
        KEY.find("a", 3),
        KEY.find_range(1, &["x", "y"], 2),
        KEY.find_range(1, &[], 2),
        payload,
    ]
}

#[test]
fn every_flipped_bit_and_every_cut_is_survived() {
    for sample in samples() {
        for at in 0..sample.len() {
            let mut changed = sample.clone();
            // The lowest and the highest bit change lengths, types and names differently.
            for bit in [0, 7] {
                changed[at] = sample[at] ^ 1 << bit;
                read_all(&changed);
            }
            read_all(&sample[..at]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn noise_is_survived(kind in 0..20_u8, noise in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&noise);
        read_all(&[&[kind], &noise[..]].concat());
    }

    #[test]
    fn random_documents_are_refused(kind in 11..14_u8, document in any_document()) {
        read_all(&[&[kind], document.as_bytes()].concat());
        prop_assert!(InsertPayload::parse(&[&[11], document.as_bytes()].concat()).is_err());
        prop_assert!(EncryptedFields::parse(document.as_doc()).is_err());
        let _ = parse_tokens(document.as_doc());
        let _ = EscRecord::parse(document.as_doc());
        prop_assert!(QueueEntry::parse(document.as_doc()).is_err());
    }
}
