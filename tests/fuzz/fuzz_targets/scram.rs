//! Any two messages of a client that logs in: nothing panics, and nobody is let in without the
//! right proof in the right conversation. Some inputs get the proof that belongs to what they say:
//! they are let in only if they also say the right thing.
#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use libfuzzer_sys::fuzz_target;
use mayfly_auth::Mechanism;
use mayfly_auth::scram::{ClientFirst, Conversation, Credential, Decoys, Iterations};
use sha2::{Digest, Sha256};

const SALT: [u8; 28] = [3; 28];
const OWN_NONCE: [u8; 24] = [1; 24];

static CREDENTIAL: LazyLock<Credential> = LazyLock::new(|| {
    let few = Iterations::new(4096).unwrap();
    Credential::derive(Mechanism::ScramSha256, "u", "p", &SALT, few).unwrap()
});
static CLIENT_KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(b"p", &SALT, 4096, &mut salted);
    keyed(&salted, b"Client Key")
});

fn keyed(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(data);
    mac.finalize().into_bytes().into()
}

/// The proof of somebody who knows the password, for these messages.
fn proof(signed: &str) -> [u8; 32] {
    let signature = keyed(&Sha256::digest(*CLIENT_KEY), signed.as_bytes());
    std::array::from_fn(|at| CLIENT_KEY[at] ^ signature[at])
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, messages)) = data.split_first() else { return };
    let mut messages = messages.splitn(2, |byte| *byte == b'\n');
    let (first, last) = (messages.next().unwrap_or_default(), messages.next().unwrap_or_default());
    let mechanism = Mechanism::ALL[usize::from(mode & 1)];
    let (proved, known) = (mode & 2 != 0, mode & 4 == 0);
    let Ok(client) = ClientFirst::parse(mechanism, first) else { return };
    let stored = known.then_some(&*CREDENTIAL);
    let few = Iterations::new(4096).unwrap();
    let decoys = Decoys::new([1; 32]);
    let (open, reply) =
        Conversation::begin(&client, "db.u", stored, &decoys, few, &OWN_NONCE);

    let first = std::str::from_utf8(first).expect("what was read is text");
    let (header, bare) = first.split_at(3);
    let mut last = last.to_vec();
    if proved && let Ok(text) = std::str::from_utf8(&last) {
        let proof = STANDARD.encode(proof(&format!("{bare},{reply},{text}")));
        last.extend_from_slice(format!(",p={proof}").as_bytes());
    }
    if open.finish(&last).is_err() {
        return;
    }
    assert!(known && mechanism == Mechanism::ScramSha256, "let in without credentials");
    let last = std::str::from_utf8(&last).expect("what was read is text");
    let (said, sent) = last.rsplit_once(",p=").expect("let in without a proof");
    assert_eq!(STANDARD.decode(sent).unwrap(), proof(&format!("{bare},{reply},{said}")));
    let binding = format!("c={}", STANDARD.encode(header));
    let nonce = reply.split(',').next().unwrap();
    let parts: Vec<&str> = said.split(',').collect();
    assert_eq!(parts[..2], [binding.as_str(), nonce], "let in with what belongs to another conversation");
});
