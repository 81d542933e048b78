//! Tokens: keys of 32 bytes that a client derives from its data key, and that let the server do one
//! thing each, such as recognizing one value of one field. The server derives further tokens.
//!
//! Every derivation is an HMAC-SHA-256 with the token as its key. Numbers in it are little-endian
//! and have 64 bits. Source: libmongocrypt, "FLE 2 Token Reference" in `mc-tokens-private.h`.
//!
//! ```text
//!  client                                                            server
//!  EdcDataToken  --contention factor-->  EdcContentionToken  --1-->  EdcTagToken    --count--> tag
//!  EscDataToken  --contention factor-->  EscContentionToken  --1-->  EscTagToken    ids of state
//!                                                            --2-->  EscValueToken  its values
//!  ServerDataToken                                           --1-->  CountToken
//!                                                            --2-->  ZerosToken
//!  AnchorPaddingToken                                        --1-->  EscTagToken    of padding
//!                                                            --2-->  EscValueToken
//! ```
//!
//! A payload of an insert has tokens with its contention factor. A payload of a find has tokens
//! without one, from which the server derives those of every factor.

use std::fmt;

use crate::cipher::hmac;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;

/// The tag of one encrypted value in one document: an item of `__safeContent__`.
pub type Tag = [u8; 32];

// The types differ only in their meaning; without the macro each would repeat three functions.
macro_rules! tokens {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name([u8; TOKEN_BYTES]);

            impl $name {
                /// The token with these bytes.
                pub fn new(bytes: [u8; TOKEN_BYTES]) -> $name {
                    $name(bytes)
                }

                /// The bytes of the token.
                pub fn as_bytes(&self) -> &[u8; TOKEN_BYTES] {
                    &self.0
                }
            }

            /// Hides the bytes: a token in a log would let a reader of the log recognize values.
            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(concat!(stringify!($name), "(..)"))
                }
            }
        )*
    };
}

tokens! {
    /// EDCDerivedFromDataToken: belongs to a value of a field (`d` of a find).
    EdcDataToken,
    /// EDCDerivedFromDataTokenAndContentionFactor (`d` of an insert).
    EdcContentionToken,
    /// EDCTwiceDerivedToken: the key of tags.
    EdcTagToken,
    /// ESCDerivedFromDataToken (`s` of a find).
    EscDataToken,
    /// ESCDerivedFromDataTokenAndContentionFactor (`s` of an insert).
    EscContentionToken,
    /// ESCTwiceDerivedTagToken: the key of the ids of state documents.
    EscTagToken,
    /// ESCTwiceDerivedValueToken: encrypts the content of anchors.
    EscValueToken,
    /// ServerDataEncryptionLevel1Token of a field: encrypts stored values once more (`e`).
    ServerValueToken,
    /// ServerDerivedFromDataToken: belongs to a value of a field (`l`).
    ServerDataToken,
    /// ServerCountAndContentionFactorEncryptionToken.
    CountToken,
    /// ServerZerosEncryptionToken: recognizes stored values.
    ZerosToken,
    /// ECOCToken of a field: decrypts the entries of its compaction queue.
    EcocToken,
    /// AnchorPaddingTokenRoot of a field.
    AnchorPaddingToken,
}

fn derive(key: &[u8; TOKEN_BYTES], number: u64) -> [u8; TOKEN_BYTES] {
    hmac(key, &[&number.to_le_bytes()])
}

impl EdcDataToken {
    /// The token with a contention factor.
    pub fn with_contention(&self, factor: u64) -> EdcContentionToken {
        EdcContentionToken(derive(&self.0, factor))
    }
}

impl EdcContentionToken {
    /// The key of the tags.
    pub fn tag_token(&self) -> EdcTagToken {
        EdcTagToken(derive(&self.0, 1))
    }
}

impl EdcTagToken {
    /// The tag of the value that was inserted as the `count`-th with its contention factor.
    pub fn tag(&self, count: u64) -> Tag {
        derive(&self.0, count)
    }
}

impl EscDataToken {
    /// The token with a contention factor.
    pub fn with_contention(&self, factor: u64) -> EscContentionToken {
        EscContentionToken(derive(&self.0, factor))
    }
}

impl EscContentionToken {
    /// The key of the ids of state documents.
    pub fn tag_token(&self) -> EscTagToken {
        EscTagToken(derive(&self.0, 1))
    }

    /// The key of the content of anchors.
    pub fn value_token(&self) -> EscValueToken {
        EscValueToken(derive(&self.0, 2))
    }
}

impl ServerDataToken {
    /// Encrypts the count and the contention factor in the metadata of a stored value.
    pub fn count_token(&self) -> CountToken {
        CountToken(derive(&self.0, 1))
    }

    /// Encrypts the zeros in the metadata of a stored value.
    pub fn zeros_token(&self) -> ZerosToken {
        ZerosToken(derive(&self.0, 2))
    }
}

impl AnchorPaddingToken {
    /// AnchorPaddingKeyToken: the key of the ids of padding anchors.
    pub fn tag_token(&self) -> EscTagToken {
        EscTagToken(derive(&self.0, 1))
    }

    /// AnchorPaddingValueToken: the key of the content of padding anchors.
    pub fn value_token(&self) -> EscValueToken {
        EscValueToken(derive(&self.0, 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> [u8; 32] {
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    }

    /// libmongocrypt, `test/data/tokens/server.json`.
    #[test]
    fn tokens_are_those_of_the_library() {
        let edc = "CEA098AA664E578D4E9CE05B50ADD15DF2F0316CD5CCB08E720C61D8C7580E2A";
        let edc = EdcDataToken::new(bytes(edc)).with_contention(1_234_567_890);
        let expected = "D8CC38AE6A64BD1BF195A2D35734C13AF2B1729AD1052A81BE00BF29C67A696E";
        assert_eq!(*edc.as_bytes(), bytes(expected));
        let expected = "B39A7EC33FD976EFB8EEBBBF3A265A933E2128D709BB88C77E3D42AA735F697C";
        assert_eq!(*edc.tag_token().as_bytes(), bytes(expected));

        let esc = "DE6A1AC292BC62094C33E94647B044B9B10514317B75F4128DDA2E0FB686704F";
        let esc = EscDataToken::new(bytes(esc)).with_contention(1_234_567_890);
        let expected = "8AAF04CBA6DC16BFB37CADBA43DCA66C183634CB3DA278DE174556AE6E17CEBB";
        assert_eq!(*esc.as_bytes(), bytes(expected));
        let expected = "D6F76A9D4767E0889B709517C8CF0412D81874AEB6E6CEBFBDDFF7B013EB7154";
        assert_eq!(*esc.tag_token().as_bytes(), bytes(expected));
        let expected = "53F0A51A43447B9881D5E79BA4C5F78E80BC2BC6AA42B00C81079EBF4C9D5A7C";
        assert_eq!(*esc.value_token().as_bytes(), bytes(expected));

        let server = "EDBC92F3BFE4CCB3F088FED8D42379A83F26DC37F2B6D513D4F568A6F32C8C80";
        let server = ServerDataToken::new(bytes(server));
        let expected = "2F30DBCC06B722B60BC1FF018FC28D5FAEE2F222496BE34A264EF3267E811DA0";
        assert_eq!(*server.count_token().as_bytes(), bytes(expected));
        let expected = "986F23F132FF7F14F748AC69373CFC982AD0AD4BAD25BE92008B83AB43E96029";
        assert_eq!(*server.zeros_token().as_bytes(), bytes(expected));
    }
}
