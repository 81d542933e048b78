//! Random values of every type for property tests. Many of them compare as equal or are close
//! together.

use proptest::prelude::*;

use crate::DocBuilder;
use crate::decimal::{Decimal, MAX_COEFFICIENT, MAX_EXPONENT, MIN_EXPONENT};
use crate::raw::{DocBuf, RawValue, ValueBuf};

/// A value of any type, documents and arrays up to four levels deep.
pub fn any_value() -> BoxedStrategy<ValueBuf> {
    let leaf = prop_oneof![4 => any_number(), 3 => any_text(), 3 => any_plain()];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let names = prop::sample::select(vec!["", "a", "b", "ab", "\u{1}", "é"]);
        prop_oneof![
            prop::collection::vec((names.clone(), inner.clone()), 0..4)
                .prop_map(|fields| RawValue::Document(document(&fields).as_doc()).to_owned()),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| {
                let mut builder = DocBuilder::new_array();
                items.iter().for_each(|item| {
                    builder.push(item);
                });
                RawValue::Array(builder.finish().as_doc()).to_owned()
            }),
            ("[ab]{0,2}", prop::collection::vec((names, inner), 0..2)).prop_map(
                |(code, fields)| {
                    let scope = document(&fields);
                    RawValue::CodeWithScope { code: &code, scope: scope.as_doc() }.to_owned()
                }
            ),
        ]
    })
    .boxed()
}

/// A document with up to six fields of any type.
pub fn any_document() -> BoxedStrategy<DocBuf> {
    prop::collection::vec(("[a-d]{1,2}", any_value()), 0..6)
        .prop_map(|fields| {
            let mut builder = DocBuilder::new();
            fields.iter().for_each(|(name, value)| {
                builder.append(name, value);
            });
            builder.finish()
        })
        .boxed()
}

fn document(fields: &[(&str, ValueBuf)]) -> DocBuf {
    let mut builder = DocBuilder::new();
    fields.iter().for_each(|(name, value)| {
        builder.append(name, value);
    });
    builder.finish()
}

/// A number of any type.
pub fn any_number() -> BoxedStrategy<ValueBuf> {
    let near = prop::sample::select(vec![
        0i64,
        1,
        -1,
        5,
        i64::from(i32::MAX),
        i64::from(i32::MAX) + 1,
        i64::from(i32::MIN),
        1 << 53,
        (1 << 53) + 1,
        -(1 << 53) - 1,
        i64::MAX,
        i64::MAX - 1,
        i64::MIN,
    ]);
    let special = prop::sample::select(vec![
        0.0,
        -0.0,
        0.1,
        0.5,
        -1.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
    ]);
    prop_oneof![
        near.clone().prop_map(|v| RawValue::Int64(v).to_owned()),
        near.clone().prop_map(|v| RawValue::Double(v as f64).to_owned()),
        near.prop_map(|v| decimal(Decimal::from_i64(v))),
        special.clone().prop_map(|v| RawValue::Double(v).to_owned()),
        special.prop_map(|v| decimal(Decimal::parse(&format!("{v:e}")).unwrap_or(Decimal::NAN))),
        any::<i32>().prop_map(|v| RawValue::Int32(v).to_owned()),
        (-3i32..3).prop_map(|v| RawValue::Int32(v).to_owned()),
        any::<i64>().prop_map(|v| RawValue::Int64(v).to_owned()),
        any::<u64>().prop_map(|v| RawValue::Double(f64::from_bits(v)).to_owned()),
        any::<[u8; 16]>().prop_map(|v| RawValue::Decimal128(v).to_owned()),
        (any::<bool>(), 0..=MAX_COEFFICIENT, MIN_EXPONENT..=MAX_EXPONENT).prop_map(finite),
        (any::<bool>(), 0u128..200, -3i32..3).prop_map(finite),
    ]
    .boxed()
}

fn finite((negative, coefficient, exponent): (bool, u128, i32)) -> ValueBuf {
    decimal(Decimal::Finite { negative, coefficient, exponent })
}

fn decimal(value: Decimal) -> ValueBuf {
    RawValue::Decimal128(value.to_bytes()).to_owned()
}

fn any_text() -> BoxedStrategy<ValueBuf> {
    let text = prop_oneof!["[\u{0}-\u{2}ab]{0,4}", "[a-cé€😀]{0,6}"];
    prop_oneof![
        3 => text.clone().prop_map(|v| RawValue::String(&v).to_owned()),
        1 => text.clone().prop_map(|v| RawValue::Symbol(&v).to_owned()),
        1 => text.prop_map(|v| RawValue::Code(&v).to_owned()),
    ]
    .boxed()
}

fn any_plain() -> BoxedStrategy<ValueBuf> {
    prop_oneof![
        Just(RawValue::MinKey.to_owned()),
        Just(RawValue::Undefined.to_owned()),
        Just(RawValue::Null.to_owned()),
        Just(RawValue::MaxKey.to_owned()),
        any::<bool>().prop_map(|v| RawValue::Bool(v).to_owned()),
        any::<[u8; 12]>().prop_map(|v| RawValue::ObjectId(v).to_owned()),
        any::<i64>().prop_map(|v| RawValue::Date(v).to_owned()),
        any::<u64>().prop_map(|v| RawValue::Timestamp(v).to_owned()),
        (0u8..3, prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(subtype, bytes)| RawValue::Binary { subtype, bytes: &bytes }.to_owned()),
        ("[ab\u{1}]{0,3}", "[im]{0,2}").prop_map(|(pattern, options)| {
            RawValue::Regex { pattern: &pattern, options: &options }.to_owned()
        }),
        ("[ab]{0,3}", any::<[u8; 12]>())
            .prop_map(|(ns, id)| RawValue::DbPointer { ns: &ns, id }.to_owned()),
    ]
    .boxed()
}
