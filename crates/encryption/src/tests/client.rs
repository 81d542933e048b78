//! The client's side of the protocol, as far as tests need it: payloads with real tokens, made from
//! a root key. Source: "FLE 2 Token Reference" of libmongocrypt.

use mayfly_value::{DocBuilder, RawValue, ty};

use crate::cipher::{encrypt, hmac};
use crate::{AnchorPaddingToken, EcocToken};

/// The client's key of one field.
#[derive(Clone, Copy)]
pub(super) struct ClientKey {
    pub(super) root: [u8; 32],
}

fn number(key: &[u8; 32], number: u64) -> [u8; 32] {
    hmac(key, &[&number.to_le_bytes()])
}

fn binary(bytes: &[u8]) -> RawValue<'_> {
    RawValue::Binary { subtype: 0, bytes }
}

impl ClientKey {
    fn edc(&self) -> [u8; 32] {
        number(&number(&self.root, 1), 1)
    }

    pub(super) fn esc(&self) -> [u8; 32] {
        number(&number(&self.root, 1), 2)
    }

    pub(super) fn ecoc(&self) -> EcocToken {
        EcocToken::new(number(&number(&self.root, 1), 4))
    }

    pub(super) fn padding(&self) -> AnchorPaddingToken {
        AnchorPaddingToken::new(hmac(&self.esc(), &[&[0; 17]]))
    }

    fn server(&self) -> [u8; 32] {
        number(&self.root, 2)
    }

    fn append_tokens(&self, value: &str, contention: Option<u64>, out: &mut DocBuilder) {
        let derive = |key: [u8; 32]| {
            let token = hmac(&key, &[value.as_bytes()]);
            contention.map_or(token, |factor| number(&token, factor))
        };
        out.append("d", binary(&derive(self.edc()))).append("s", binary(&derive(self.esc())));
        out.append("l", binary(&hmac(&self.server(), &[value.as_bytes()])));
        if contention.is_some() {
            let encrypted = encrypt(self.ecoc().as_bytes(), [9; 16], &derive(self.esc()));
            out.append("p", binary(&encrypted));
        }
    }

    /// A payload to insert; with edges it is a range.
    pub(super) fn insert(&self, value: &str, contention: u64, edges: &[&str]) -> Vec<u8> {
        let mut out = DocBuilder::new();
        self.append_tokens(value, Some(contention), &mut out);
        out.append("u", RawValue::uuid(&[7; 16]));
        out.append("t", i32::from(ty::STRING)).append("v", binary(&[5; 96]));
        out.append("e", binary(&number(&self.root, 3))).append("k", contention as i64);
        if !edges.is_empty() {
            out.start_array("g");
            for edge in edges {
                out.push_document();
                self.append_tokens(edge, Some(contention), &mut out);
                out.end();
            }
            out.end();
        }
        [&[11], out.finish().as_bytes()].concat()
    }

    /// A payload that finds a value.
    pub(super) fn find(&self, value: &str, max_contention: u64) -> Vec<u8> {
        let mut out = DocBuilder::new();
        self.append_tokens(value, None, &mut out);
        out.append("cm", max_contention as i64);
        [&[12], out.finish().as_bytes()].concat()
    }

    /// A payload that finds a range; without edges it is a stub.
    pub(super) fn find_range(&self, id: i32, edges: &[&str], max_contention: u64) -> Vec<u8> {
        let mut out = DocBuilder::new();
        if !edges.is_empty() {
            out.start_document("payload").start_array("g");
            for edge in edges {
                out.push_document();
                self.append_tokens(edge, None, &mut out);
                out.end();
            }
            out.end().append("cm", max_contention as i64).end();
        }
        out.append("payloadId", id).append("firstOperator", 2).append("secondOperator", 4);
        [&[13], out.finish().as_bytes()].concat()
    }
}
