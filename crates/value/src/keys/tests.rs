//! Properties of keys, of the order, and of validation, over random values.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{any_document, any_value};
use crate::raw::{RawValue, ValueBuf};
use crate::{DocBuilder, SortOrder, canonical_type, compare_values, validate};

fn key_of(value: &ValueBuf, order: SortOrder) -> (Vec<u8>, TypeBits) {
    let (mut key, mut bits) = (Vec::new(), TypeBits::new());
    append_value(&mut key, &mut bits, value.as_raw(), order);
    (key, bits)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn key_order_is_value_order(a in any_value(), b in any_value()) {
        let order = compare_values(a.as_raw(), b.as_raw());
        prop_assert_eq!(key_of(&a, SortOrder::Ascending).0.cmp(&key_of(&b, SortOrder::Ascending).0), order);
        prop_assert_eq!(key_of(&a, SortOrder::Descending).0.cmp(&key_of(&b, SortOrder::Descending).0), order.reverse());
    }

    #[test]
    fn the_order_is_total(a in any_value(), b in any_value(), c in any_value()) {
        let (a, b, c) = (a.as_raw(), b.as_raw(), c.as_raw());
        prop_assert_eq!(compare_values(a, b), compare_values(b, a).reverse());
        if compare_values(a, b).is_le() && compare_values(b, c).is_le() {
            prop_assert!(compare_values(a, c).is_le());
        }
    }

    #[test]
    fn decoding_gives_the_value_back(values in prop::collection::vec(any_value(), 1..4), mask: u8) {
        let (mut key, mut bits) = (Vec::new(), TypeBits::new());
        let order = |at: usize| match mask >> at & 1 {
            0 => SortOrder::Ascending,
            _ => SortOrder::Descending,
        };
        for (at, value) in values.iter().enumerate() {
            append_value(&mut key, &mut bits, value.as_raw(), order(at));
        }
        let mut reader = TypeBitsReader::new(bits.as_bytes());
        let mut rest = &key[..];
        for (at, value) in values.iter().enumerate() {
            let (decoded, len) = decode_value(rest, order(at), &mut reader).unwrap();
            prop_assert_eq!(&decoded, value);
            prop_assert_eq!(skip_value(rest, order(at)), Some(len));
            rest = &rest[len..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn brackets_bound_their_type(value in any_value()) {
        let canonical = canonical_type(value.type_byte());
        let (key, _) = key_of(&value, SortOrder::Ascending);
        let (mut start, mut end) = (Vec::new(), Vec::new());
        bracket_start(canonical, &mut start);
        bracket_end(canonical, &mut end);
        prop_assert!(start <= key && key < end);
        prop_assert!(key_of(&value, SortOrder::Descending).0[0] > MIN && key_of(&value, SortOrder::Descending).0[0] < MAX);
    }

    #[test]
    fn malformed_keys_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), value in any_value(), cut: usize) {
        let _ = decode_value(&bytes, SortOrder::Ascending, &mut TypeBitsReader::new(&bytes));
        let _ = skip_value(&bytes, SortOrder::Descending);
        let (key, bits) = key_of(&value, SortOrder::Ascending);
        let key = &key[..cut % key.len()];
        prop_assert_eq!(skip_value(key, SortOrder::Ascending), None);
        prop_assert!(decode_value(key, SortOrder::Ascending, &mut TypeBitsReader::new(bits.as_bytes())).is_none());
    }

    #[test]
    fn built_documents_are_valid(doc in any_document(), at: usize, bit in 0u8..8) {
        prop_assert!(validate(doc.as_bytes(), 200).is_ok());
        let mut bytes = doc.into_bytes();
        prop_assert!(validate(&bytes[..at % bytes.len()], 200).is_err());
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(doc) = validate(&bytes, 200) {
            let mut builder = DocBuilder::new();
            doc.iter().for_each(|element| { builder.append(element.name(), element.value()); });
            let _ = format!("{:?}", builder.finish());
        }
    }

    #[test]
    fn access_to_unchecked_bytes_never_panics(type_byte: u8, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let value = RawValue::decode(type_byte, &bytes);
        let _ = format!("{value:?}");
        let _ = key_of(&value.to_owned(), SortOrder::Ascending);
    }
}

#[test]
fn ordinary_keys_have_no_type_bits() {
    for value in
        [RawValue::Int32(7), RawValue::Double(0.5), RawValue::String("x"), RawValue::Int64(1 << 40)]
    {
        assert!(
            key_of(&value.to_owned(), SortOrder::Ascending).1.as_bytes().is_empty(),
            "{value:?}"
        );
    }
    assert_eq!(key_of(&RawValue::Int64(7).to_owned(), SortOrder::Ascending).1.as_bytes(), [1]);
}

#[test]
fn type_bits_far_apart() {
    let mut bits = TypeBits::new();
    let mut key = Vec::new();
    let values: Vec<RawValue<'_>> = (0..6000)
        .map(|at| if at % 1999 == 1998 { RawValue::Symbol("s") } else { RawValue::Int32(at) })
        .collect();
    values.iter().for_each(|value| append_value(&mut key, &mut bits, *value, SortOrder::Ascending));
    let mut reader = TypeBitsReader::new(bits.as_bytes());
    let mut rest = &key[..];
    for value in values {
        let (decoded, len) = decode_value(rest, SortOrder::Ascending, &mut reader).unwrap();
        assert_eq!(decoded.as_raw(), value);
        rest = &rest[len..];
    }
}
