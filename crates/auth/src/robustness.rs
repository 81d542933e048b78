//! Arbitrary and altered messages and documents end in an answer or an error.

use mayfly_value::arbitrary::any_document;
use proptest::prelude::*;

use crate::scram::{ClientFirst, Conversation, Credential, Decoys, Iterations};
use crate::{Mechanism, Privilege, Resource, Restriction, Role, User};

fn credential(mechanism: Mechanism) -> Credential {
    let salt = vec![3; mechanism.salt_bytes()];
    let few = Iterations::new(4096).unwrap();
    Credential::derive(mechanism, "u", "p", &salt, few).unwrap()
}

fn conversation(mechanism: Mechanism, own: u8) -> (Conversation, String) {
    let first = ClientFirst::parse(mechanism, b"n,,n=u,r=rOprNGfwEbeRWgbN").unwrap();
    let decoys = Decoys::new([1; 32]);
    let (stored, few) = (credential(mechanism), Iterations::new(4096).unwrap());
    Conversation::begin(&first, "db.u", Some(&stored), &decoys, few, &[own; 24])
}

fn last(mechanism: Mechanism, server_first: &str) -> String {
    let client = crate::scram::tests::Client::new(mechanism, "u", "rOprNGfwEbeRWgbN");
    let prepared = crate::scram::password::for_mechanism(mechanism, "u", "p").unwrap();
    client.last(server_first, &prepared).0
}

#[test]
fn proofs_belong_to_one_conversation() {
    for mechanism in Mechanism::ALL {
        let (open, reply) = conversation(mechanism, 1);
        let proof = last(mechanism, &reply);
        assert!(open.finish(proof.as_bytes()).is_ok());
        // The same proof again, in a conversation with another nonce of the server.
        let (open, _) = conversation(mechanism, 2);
        assert!(open.finish(proof.as_bytes()).is_err());
        // A client that received another number of iterations.
        let (open, reply) = conversation(mechanism, 1);
        let changed = reply.replace("i=4096", "i=4097");
        assert!(open.finish(last(mechanism, &changed).as_bytes()).is_err());
        // The nonces in the other order.
        let (open, reply) = conversation(mechanism, 1);
        let nonce = reply.split(',').next().unwrap().trim_start_matches("r=");
        let (client, server) = nonce.split_at(16);
        let swapped = proof.replace(nonce, &format!("{server}{client}"));
        assert_ne!(swapped, proof);
        assert!(open.finish(swapped.as_bytes()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_messages_are_refused(at in any::<prop::sample::Index>(), bit in 0..7u8) {
        for mechanism in Mechanism::ALL {
            let (open, reply) = conversation(mechanism, 1);
            let mut message = last(mechanism, &reply).into_bytes();
            let at = at.index(message.len());
            message[at] ^= 1 << bit;
            prop_assert!(open.finish(&message).is_err());
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[npcr=,a-z0-9+/]{0,60}") {
        for mechanism in Mechanism::ALL {
            let _ = ClientFirst::parse(mechanism, &bytes);
            let _ = ClientFirst::parse(mechanism, format!("n,,{text}").as_bytes());
            let (open, _) = conversation(mechanism, 1);
            prop_assert!(open.finish(&bytes).is_err());
            let (open, _) = conversation(mechanism, 1);
            prop_assert!(open.finish(text.as_bytes()).is_err());
        }
    }

    #[test]
    fn random_documents_are_not_users(document in any_document()) {
        let document = document.as_doc();
        prop_assert!(User::parse(document).is_err());
        prop_assert!(Role::parse(document).is_err());
        prop_assert!(Privilege::parse(document).is_err());
        prop_assert!(Resource::parse(document).is_err());
        let _ = Restriction::parse_all(document);
    }
}
