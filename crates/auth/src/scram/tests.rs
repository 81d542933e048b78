//! SCRAM against a client written from the RFC, and against malformed messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mayfly_value::DocBuilder;

use super::digest::{Digest, hash, hmac, stretch};
use super::*;

fn nonce(text: &str) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce[..text.len()].copy_from_slice(text.as_bytes());
    nonce
}

fn decoys() -> Decoys {
    Decoys::new([7; 32])
}

/// The client's side, written from the RFC: the proof, and the signature expected from the server.
pub(crate) struct Client {
    mechanism: Mechanism,
    bare: String,
}

impl Client {
    pub(crate) fn new(mechanism: Mechanism, user: &str, nonce: &str) -> Client {
        let name = user.replace('=', "=3D").replace(',', "=2C");
        Client { mechanism, bare: format!("n={name},r={nonce}") }
    }

    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    pub(crate) fn last(&self, server_first: &str, prepared: &str) -> (String, String) {
        let part = |name: &str| {
            server_first.split(',').find_map(|part| part.strip_prefix(name)).unwrap().to_owned()
        };
        let salt = STANDARD.decode(part("s=")).unwrap();
        let count = part("i=").parse().unwrap();
        let mechanism = self.mechanism;
        let salted = stretch(mechanism, prepared.as_bytes(), &salt, count);
        let client_key = hmac(mechanism, salted.as_bytes(), b"Client Key");
        let stored_key = hash(mechanism, client_key.as_bytes());
        let without_proof = format!("c=biws,r={}", part("r="));
        let signed = format!("{},{server_first},{without_proof}", self.bare);
        let signature = hmac(mechanism, stored_key.as_bytes(), signed.as_bytes());
        let proof: Digest = client_key.xor(&signature);
        let server_key = hmac(mechanism, salted.as_bytes(), b"Server Key");
        let server = hmac(mechanism, server_key.as_bytes(), signed.as_bytes());
        let last = format!("{without_proof},p={}", STANDARD.encode(proof.as_bytes()));
        (last, format!("v={}", STANDARD.encode(server.as_bytes())))
    }
}

fn few() -> Iterations {
    Iterations::new(4096).unwrap()
}

fn credential(mechanism: Mechanism, user: &str, password: &str) -> Credential {
    let salt = vec![9; mechanism.salt_bytes()];
    Credential::derive(mechanism, user, password, &salt, few()).unwrap()
}

#[test]
fn examples_of_the_rfcs() {
    // Source: RFC 5802, section 5, and RFC 7677, section 3. Their servers' nonces have another form
    // than ours, so the messages are assembled here; keys, proofs and signatures are theirs.
    let check = |mechanism, salt: &str, signed: &str, proof: &str, signature: &str| {
        let salt = STANDARD.decode(salt).unwrap();
        let credential = Credential::derive_prepared(mechanism, "pencil", &salt, few());
        let client = STANDARD.decode(proof).unwrap();
        let client = Digest::from_bytes(mechanism, &client).unwrap();
        let key = hmac(mechanism, credential.stored_key.as_bytes(), signed.as_bytes());
        let key = client.xor(&key);
        assert!(hash(mechanism, key.as_bytes()).equals(&credential.stored_key));
        let server = hmac(mechanism, credential.server_key.as_bytes(), signed.as_bytes());
        assert_eq!(STANDARD.encode(server.as_bytes()), signature);
    };
    check(
        Mechanism::ScramSha1,
        "QSXCR+Q6sek8bf92",
        "n=user,r=fyko+d2lbbFgONRv9qkxdawL,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,\
         i=4096,c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    );
    check(
        Mechanism::ScramSha256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    );
}

#[test]
fn a_client_with_the_password_gets_in_and_no_other() {
    for mechanism in Mechanism::ALL {
        let user = "a,b=c é";
        let stored = credential(mechanism, user, "pässword");
        let try_with = |password: &str, stored: Option<&Credential>| {
            let client = Client::new(mechanism, user, "rOprNGfwEbeRWgbN");
            let first = ClientFirst::parse(mechanism, client.first().as_bytes()).unwrap();
            assert_eq!(first.user, user);
            let (open, reply) =
                Conversation::begin(&first, "db.x", stored, &decoys(), few(), &nonce("1"));
            let prepared = password::for_mechanism(mechanism, user, password).unwrap();
            let (last, expected) = client.last(&reply, &prepared);
            open.finish(last.as_bytes()).map(|proof| assert_eq!(proof, expected))
        };
        assert_eq!(try_with("pässword", Some(&stored)), Ok(()));
        assert_eq!(try_with("password", Some(&stored)), Err(Refusal::WrongProof));
        assert_eq!(try_with("pässword", None), Err(Refusal::WrongProof));
    }
}

#[test]
fn sasl_preparation_makes_one_password_of_several_spellings() {
    // Source: RFC 4013, section 3; and the composed and the decomposed form of one character.
    let prepared = |text: &str| {
        password::for_mechanism(Mechanism::ScramSha256, "u", text).map(|it| it.to_string())
    };
    assert_eq!(prepared("I\u{AD}X").unwrap(), "IX");
    assert_eq!(prepared("\u{2168}").unwrap(), "IX");
    assert_eq!(prepared("e\u{301}").unwrap(), prepared("\u{E9}").unwrap());
    let error = prepared("secret\u{7}").unwrap_err();
    assert!(!error.message().contains("secret"));
    // Source: MD5 of "user:mongo:pencil".
    assert_eq!(*password::digested("user", "pencil"), "1c33006ec1ffd90f9cadcbcc0e118200");
}

#[test]
fn unknown_users_are_indistinguishable() {
    for mechanism in Mechanism::ALL {
        let stored = credential(mechanism, "u", "p");
        let client = Client::new(mechanism, "u", "rOprNGfwEbeRWgbN");
        let first = ClientFirst::parse(mechanism, client.first().as_bytes()).unwrap();
        let ask = |name: &str, stored: Option<&Credential>, own: &str| {
            Conversation::begin(&first, name, stored, &decoys(), few(), &nonce(own)).1
        };
        let salt = |reply: &str| {
            reply.split(',').find_map(|part| part.strip_prefix("s=")).unwrap().to_owned()
        };
        let (known, unknown) = (ask("db.u", Some(&stored), "1"), ask("db.v", None, "1"));
        assert_eq!(known.len(), unknown.len());
        assert_eq!(salt(&unknown), salt(&ask("db.v", None, "2")), "asked twice, the same salt");
        assert_ne!(salt(&unknown), salt(&ask("db.w", None, "1")));
    }
}

#[test]
fn unsupported_and_malformed_messages_are_refused() {
    use Refusal::{ChannelBinding, Malformed};
    let parse = |text: &str| ClientFirst::parse(Mechanism::ScramSha256, text.as_bytes());
    assert_eq!(parse("n,,n=a=2Cb=3Dc,r=12345678").unwrap().user, "a,b=c");
    assert_eq!(parse("y,,n=u,r=12345678,x=1").unwrap().header, "y,,");
    for (text, why) in [
        ("p=tls-unique,,n=u,r=12345678", ChannelBinding),
        ("n,a=other,n=u,r=12345678", ChannelBinding),
        ("n,,m=ext,n=u,r=12345678", ChannelBinding),
        ("n,,n=u,r=1234567", Malformed),
        ("n,,n=u=2X,r=12345678", Malformed),
        ("n,,n=u=,r=12345678", Malformed),
        ("n,,n=,r=12345678", Malformed),
        ("n,,r=12345678,n=u", Malformed),
        ("n,,n=u,r=1234 5678", Malformed),
        ("n=u,r=12345678", Malformed),
        ("n,,n=u\0,r=12345678", Malformed),
        ("", Malformed),
    ] {
        assert_eq!(parse(text), Err(why), "{text}");
    }
    let long = format!("n,,n={},r=12345678", "u".repeat(5000));
    assert_eq!(parse(&long), Err(Malformed));
}

#[test]
fn credentials_are_read_as_they_are_written_and_damaged_ones_are_not() {
    for mechanism in Mechanism::ALL {
        let written = credential(mechanism, "u", "p");
        let mut out = DocBuilder::new();
        written.append_to(&mut out);
        let document = out.finish();
        let document = document.as_doc();
        let read = Credential::parse(mechanism, document).unwrap();
        assert!(read.stored_key.equals(&written.stored_key));
        assert!(read.server_key.equals(&written.server_key));
        assert_eq!((read.salt, read.iterations), (written.salt, written.iterations));
        let other = Mechanism::ALL.into_iter().find(|one| *one != mechanism).unwrap();
        assert!(Credential::parse(other, document).is_err());
        for field in document {
            let mut without = DocBuilder::new();
            let mut changed = DocBuilder::new();
            for kept in document {
                match kept.name() == field.name() {
                    true => drop(changed.append(kept.name(), 1)),
                    false => {
                        without.append_element(kept);
                        changed.append_element(kept);
                    }
                }
            }
            assert!(Credential::parse(mechanism, without.finish().as_doc()).is_err());
            assert!(Credential::parse(mechanism, changed.finish().as_doc()).is_err());
        }
    }
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", credential(Mechanism::ScramSha256, "u", "p"));
    assert!(shown.contains("Digest of 32 bytes"), "{shown}");
}
