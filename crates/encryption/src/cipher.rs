//! The two primitives of the protocol: HMAC-SHA-256, and AES-256 in counter mode with the
//! initialization vector in front of the ciphertext.
//!
//! The encryption is not authenticated. What the server encrypts is either a client's ciphertext,
//! which is authenticated on its own, or state that only the server reads.

use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt, KeyIvInit, StreamCipher};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of an initialization vector.
pub(crate) const IV_BYTES: usize = 16;

/// Random bytes for the next encryption. They must come from a cryptographic generator: with a
/// repeated vector, counter mode reveals the difference of two plaintexts.
pub type RandomIv<'a> = &'a mut dyn FnMut() -> [u8; IV_BYTES];

/// HMAC-SHA-256 of the parts, one after the other.
pub(crate) fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC accepts keys of any length"),
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// The vector, followed by the encrypted bytes.
pub(crate) fn encrypt(key: &[u8; 32], iv: [u8; IV_BYTES], plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(IV_BYTES + plain.len());
    out.extend_from_slice(&iv);
    out.extend_from_slice(plain);
    apply(key, iv, &mut out[IV_BYTES..]);
    out
}

/// The plaintext of what [`encrypt`] returned; `None` for fewer bytes than a vector has.
pub(crate) fn decrypt(key: &[u8; 32], encrypted: &[u8]) -> Option<Vec<u8>> {
    let (iv, encrypted) = encrypted.split_first_chunk::<IV_BYTES>()?;
    let mut plain = encrypted.to_vec();
    apply(key, *iv, &mut plain);
    Some(plain)
}

fn apply(key: &[u8; 32], iv: [u8; IV_BYTES], bytes: &mut [u8]) {
    ctr::Ctr128BE::<Aes256>::new(&(*key).into(), &iv.into()).apply_keystream(bytes);
}

/// Recognizes sixteen zeros that were encrypted with a key. Its key schedule is computed once, for
/// scans over many values.
#[derive(Clone, Debug)]
pub(crate) struct ZerosCipher(Aes256);

impl ZerosCipher {
    pub(crate) fn new(key: &[u8; 32]) -> ZerosCipher {
        ZerosCipher(Aes256::new(&(*key).into()))
    }

    /// Whether the bytes are a vector and encrypted zeros: the ciphertext of zeros is the key
    /// stream, and its first block is the encrypted vector.
    pub(crate) fn recognizes(&self, [iv, encrypted]: [[u8; IV_BYTES]; 2]) -> bool {
        let mut block = iv.into();
        self.0.encrypt_block(&mut block);
        block[..] == encrypted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        let digits: Vec<u8> = text.bytes().collect();
        let byte = |at: usize| std::str::from_utf8(&digits[2 * at..2 * at + 2]).unwrap();
        std::array::from_fn(|at| u8::from_str_radix(byte(at), 16).unwrap())
    }

    /// NIST SP 800-38A, F.5.5.
    #[test]
    fn counter_mode_is_that_of_the_standard() {
        let key = bytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let iv = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        let plain: [u8; 32] =
            bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let expected: [u8; 32] =
            bytes("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5");
        let encrypted = encrypt(&key, iv, &plain);
        assert_eq!(encrypted[IV_BYTES..], expected);
        assert_eq!(decrypt(&key, &encrypted).as_deref(), Some(&plain[..]));
        assert_eq!(decrypt(&key, &[0; 15]), None);
        for (plain, is_zeros) in [([0; 16], true), ([1; 16], false)] {
            let encrypted: [u8; 32] = encrypt(&key, iv, &plain).try_into().unwrap();
            let parts = [0, 1].map(|part| encrypted.as_chunks().0[part]);
            assert_eq!(ZerosCipher::new(&key).recognizes(parts), is_zeros);
            assert!(!ZerosCipher::new(&[0; 32]).recognizes(parts));
        }
    }

    #[test]
    fn parts_are_one_message() {
        let key = [7; 32];
        assert_eq!(hmac(&key, &[b"ab", b"c"]), hmac(&key, &[b"abc"]));
        assert_ne!(hmac(&key, &[b"abc"]), hmac(&[8; 32], &[b"abc"]));
    }
}
