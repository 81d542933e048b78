//! Kernels against plain sums, scores against the manual's formulas, and vectors in BSON.

use mayfly_value::DocBuf;
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, doc};
use proptest::prelude::*;

use super::codes::Codes;
use super::kernel::*;
use super::read::NotAVector;
use super::score::Probe;
use super::{ElementType, Vector};
use crate::definition::Similarity;

fn read(value: impl Into<Bson>) -> Result<Vector, NotAVector> {
    let document = DocBuf::from_bson(&doc! {"v": value.into()});
    Vector::read(document.as_doc().get("v").unwrap())
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Vector, bytes: bytes.to_vec() }
}

#[test]
fn vectors_are_arrays_of_numbers_or_binary_data() {
    let numbers = vec![Bson::Int32(1), Bson::Int64(-2), Bson::Double(0.5)];
    assert_eq!(read(numbers), Ok(Vector::floats(&[1.0, -2.0, 0.5])));
    assert_eq!(read(vec![Bson::Int32(1), Bson::Null]), Err(NotAVector::Item(1)));
    assert_eq!(read(vec![Bson::Double(1e300)]), Err(NotAVector::Item(0)));
    assert_eq!(read(vec![Bson::Double(f64::NAN)]), Err(NotAVector::Item(0)));
    assert_eq!(read("text"), Err(NotAVector::OtherType));
    let floats = read(binary(&[0x27, 0, 0, 0, 128, 63])).unwrap();
    assert_eq!(floats, Vector::floats(&[1.0]));
    let bytes = read(binary(&[3, 0, 255, 127])).unwrap();
    assert_eq!((bytes.element, bytes.dimensions()), (ElementType::Byte, 2));
    let bits = read(binary(&[0x10, 0, 255, 127])).unwrap();
    assert_eq!((bits.element, bits.dimensions()), (ElementType::Bit, 16));
    for malformed in [&[][..], &[3], &[4, 0, 1], &[0x27, 0, 1, 2, 3], &[0x10, 3, 248]] {
        assert_eq!(read(binary(malformed)), Err(NotAVector::Malformed), "{malformed:?}");
    }
    assert_eq!(read(binary(&[0x27, 0, 0, 0, 128, 127])), Err(NotAVector::Item(0)));
}

#[test]
fn scores_are_those_of_the_manual() {
    let score = |similarity, left: Vector, right: Vector| {
        let length = super::score::length(&right);
        Probe::new(similarity, left).score(&right.bytes, length)
    };
    let floats = Vector::floats;
    assert_eq!(score(Similarity::Cosine, floats(&[1.0, 0.0]), floats(&[0.0, 2.0])), 0.5);
    assert_eq!(score(Similarity::Cosine, floats(&[1.0, 0.0]), floats(&[3.0, 0.0])), 1.0);
    assert_eq!(score(Similarity::DotProduct, floats(&[1.0, 0.0]), floats(&[0.6, 0.8])), 0.8);
    assert_eq!(score(Similarity::DotProduct, floats(&[1.0, 0.0]), floats(&[-9.0, 0.8])), 0.0);
    assert_eq!(score(Similarity::Euclidean, floats(&[1.0, 0.0]), floats(&[0.0, 1.0])), 1.0 / 3.0);
    let bytes = |bytes: &[u8]| Vector { element: ElementType::Byte, bytes: bytes.to_vec() };
    let product = score(Similarity::DotProduct, bytes(&[2, 255]), bytes(&[3, 4]));
    assert_eq!(product, 0.5 + 2.0 / (2.0 * 32768.0));
    assert_eq!(score(Similarity::Euclidean, bytes(&[2, 255]), bytes(&[3, 1])), 1.0 / 6.0);
    let bits = |bytes: &[u8]| Vector { element: ElementType::Bit, bytes: bytes.to_vec() };
    assert_eq!(score(Similarity::Euclidean, bits(&[0b1111_0000]), bits(&[0b1100_0000])), 0.75);
}

proptest! {
    #[test]
    fn kernels_are_plain_sums(
        pairs in prop::collection::vec((-9.0_f32..9.0, -9.0_f32..9.0, any::<u8>(), any::<u8>()), 0..200),
    ) {
        let left: Vec<f32> = pairs.iter().map(|pair| pair.0).collect();
        let right = Vector::floats(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>()).bytes;
        let sum = |of: fn(f64, f64) -> f64| -> f64 {
            pairs.iter().map(|pair| of(f64::from(pair.0), f64::from(pair.1))).sum()
        };
        prop_assert!((f64::from(dot_floats(&left, &right)) - sum(|l, r| l * r)).abs() < 0.05);
        let stored = Vector::floats(&left).bytes;
        prop_assert_eq!(dot_stored(&stored, &right), dot_floats(&left, &right));
        prop_assert_eq!(distance_stored(&stored, &right), distance_floats(&left, &right));
        let square = sum(|l, r| (l - r) * (l - r));
        prop_assert!((f64::from(distance_floats(&left, &right)) - square).abs() < 0.05);
        let left: Vec<u8> = pairs.iter().map(|pair| pair.2).collect();
        let right: Vec<u8> = pairs.iter().map(|pair| pair.3).collect();
        let sum = |of: fn(i64, i64) -> i64| -> i64 {
            pairs.iter().map(|pair| of(i64::from(pair.2 as i8), i64::from(pair.3 as i8))).sum()
        };
        prop_assert_eq!(dot_bytes(&left, &right), sum(|l, r| l * r));
        prop_assert_eq!(distance_bytes(&left, &right), sum(|l, r| (l - r) * (l - r)));
        let bits: u32 = pairs.iter().map(|pair| (pair.2 ^ pair.3).count_ones()).sum();
        prop_assert_eq!(differing_bits(&left, &right), bits);
    }

    #[test]
    fn codes_are_close(numbers in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 8..100)) {
        let left: Vec<f32> = numbers.iter().map(|pair| pair.0).collect();
        let right: Vec<f32> = numbers.iter().map(|pair| pair.1).collect();
        for similarity in [Similarity::Cosine, Similarity::DotProduct, Similarity::Euclidean] {
            let other = Vector::floats(&right);
            let length = super::score::length(&other);
            prop_assume!(length > 0.1);
            let probe = Probe::new(similarity, Vector::floats(&left));
            prop_assume!(probe.length > 0.1);
            let codes = Codes::of(&right);
            let close = Codes::of(&left).score(&probe, &codes.codes, codes.step, length);
            prop_assert!((close - probe.score(&other.bytes, length)).abs() < 0.2);
        }
    }
}

#[test]
fn greatest_bytes_do_not_overflow() {
    let left = vec![128_u8; crate::limits::MAX_DIMENSIONS];
    let right = vec![127_u8; crate::limits::MAX_DIMENSIONS];
    assert_eq!(distance_bytes(&left, &right), 255 * 255 * 8192);
    assert_eq!(dot_bytes(&left, &left), 128 * 128 * 8192);
}
