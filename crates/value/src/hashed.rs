//! The keys of hashed indexes.

use md5::{Digest, Md5};

use crate::{Number, RawDoc, RawElement, RawValue, canonical_type};

/// The first eight bytes of an MD5 of the value, as hashed indexes store it. Numbers are hashed by
/// their integer part, so that equal numbers of different types have the same key.
pub fn hashed_key(value: RawValue<'_>) -> i64 {
    let mut digest = Md5::new();
    // The seed.
    digest.update(0_i32.to_le_bytes());
    put(&mut digest, value, None);
    let sum = digest.finalize();
    sum.first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn put(digest: &mut Md5, value: RawValue<'_>, name: Option<&str>) {
    let kind = i32::from(canonical_type(value.type_byte()));
    digest.update(kind.to_le_bytes());
    if let Some(name) = name {
        digest.update(name.as_bytes());
        digest.update([0]);
    }
    match value {
        RawValue::Document(inner) | RawValue::Array(inner) => put_fields(digest, inner),
        RawValue::CodeWithScope { code, scope } => {
            digest.update(code.as_bytes());
            digest.update([0]);
            put_fields(digest, scope);
        }
        number if number.is_number() => {
            let number = Number::from_value(number).unwrap_or(Number::Int32(0));
            digest.update(integer_part(number).to_le_bytes());
        }
        other => {
            let mut bytes = Vec::new();
            other.encode(&mut bytes);
            digest.update(&bytes);
        }
    }
}

/// The recursion is bounded by the 200 levels of a document.
fn put_fields(digest: &mut Md5, inner: RawDoc<'_>) {
    for element in inner {
        let element: RawElement<'_> = element;
        put(digest, element.value(), Some(element.name()));
    }
    // The end of a document counts as an element without name and value.
    digest.update(0_i32.to_le_bytes());
    digest.update([0]);
}

/// Truncates a number; NaN is zero, and values beyond a long are clamped to its range.
fn integer_part(number: Number) -> i64 {
    match number.to_i64_truncated() {
        Some(value) => value,
        None if number.is_nan() => 0,
        None if number.compare(Number::Int32(0)).is_lt() => i64::MIN,
        None => i64::MAX,
    }
}
