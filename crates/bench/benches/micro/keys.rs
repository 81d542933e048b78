//! Encodes values as ordered keys, and decodes them.

use divan::{Bencher, black_box};
use mayfly_value::keys::{TypeBits, TypeBitsReader, append_value, decode_value, skip_value};
use mayfly_value::{RawValue, SortOrder};

const OBJECT_ID: RawValue<'_> = RawValue::ObjectId([0x65; 12]);
const TEXT: RawValue<'_> = RawValue::String("a text of 28 bytes, with end");
const DATE: RawValue<'_> = RawValue::Date(1_800_000_000_000);

/// The fields of a compound key.
const COMPOUND: &[RawValue<'_>] = &[RawValue::Int32(1234), TEXT, DATE, OBJECT_ID];

#[divan::bench]
fn encode_int(bencher: Bencher<'_, '_>) {
    encode(bencher, &[RawValue::Int32(1234)]);
}

#[divan::bench]
fn encode_long(bencher: Bencher<'_, '_>) {
    encode(bencher, &[RawValue::Int64(1 << 60)]);
}

#[divan::bench]
fn encode_double(bencher: Bencher<'_, '_>) {
    encode(bencher, &[RawValue::Double(12.34)]);
}

#[divan::bench]
fn encode_string(bencher: Bencher<'_, '_>) {
    encode(bencher, &[TEXT]);
}

#[divan::bench]
fn encode_object_id(bencher: Bencher<'_, '_>) {
    encode(bencher, &[OBJECT_ID]);
}

#[divan::bench]
fn encode_compound(bencher: Bencher<'_, '_>) {
    encode(bencher, COMPOUND);
}

#[divan::bench]
fn decode_int(bencher: Bencher<'_, '_>) {
    decode(bencher, &[RawValue::Int32(1234)]);
}

#[divan::bench]
fn decode_string(bencher: Bencher<'_, '_>) {
    decode(bencher, &[TEXT]);
}

#[divan::bench]
fn decode_object_id(bencher: Bencher<'_, '_>) {
    decode(bencher, &[OBJECT_ID]);
}

#[divan::bench]
fn decode_compound(bencher: Bencher<'_, '_>) {
    decode(bencher, COMPOUND);
}

/// The work for each scanned index entry.
#[divan::bench]
fn skip_compound(bencher: Bencher<'_, '_>) {
    let (key, _) = encoded(COMPOUND);
    bencher.bench(|| {
        let mut at = 0;
        for _ in COMPOUND {
            at += skip_value(black_box(&key[at..]), SortOrder::Ascending).expect("a value");
        }
        at
    });
}

fn encode(bencher: Bencher<'_, '_>, values: &[RawValue<'_>]) {
    let (mut key, mut bits) = (Vec::with_capacity(128), TypeBits::new());
    bencher.bench_local(|| {
        key.clear();
        bits.clear();
        for value in values {
            append_value(&mut key, &mut bits, black_box(*value), SortOrder::Ascending);
        }
        black_box(&key);
    });
}

fn decode(bencher: Bencher<'_, '_>, values: &[RawValue<'_>]) {
    let (key, bits) = encoded(values);
    bencher.bench(|| {
        let mut bits = TypeBitsReader::new(black_box(bits.as_bytes()));
        let mut at = 0;
        for _ in values {
            let (value, length) =
                decode_value(black_box(&key[at..]), SortOrder::Ascending, &mut bits)
                    .expect("a value");
            black_box(value);
            at += length;
        }
    });
}

fn encoded(values: &[RawValue<'_>]) -> (Vec<u8>, TypeBits) {
    let (mut key, mut bits) = (Vec::new(), TypeBits::new());
    for value in values {
        append_value(&mut key, &mut bits, *value, SortOrder::Ascending);
    }
    (key, bits)
}
