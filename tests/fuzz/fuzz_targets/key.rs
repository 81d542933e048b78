//! Any bytes as an ordered key: reading it never panics, and what reads well is written again as it
//! was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_value::SortOrder;
use mayfly_value::keys::{TypeBits, TypeBitsReader, append_value, decode_value, skip_value};

fuzz_target!(|data: &[u8]| {
    let Some((&first, key)) = data.split_first() else { return };
    let order = if first & 1 == 1 { SortOrder::Descending } else { SortOrder::Ascending };
    let split = usize::from(first >> 1).min(key.len());
    let (bits, key) = key.split_at(split);
    let skipped = skip_value(key, order);
    if let Some((value, used)) = decode_value(key, order, &mut TypeBitsReader::new(bits)) {
        assert_eq!(skipped, Some(used), "skipping and decoding agree");
        let (mut again, mut bits) = (Vec::new(), TypeBits::default());
        append_value(&mut again, &mut bits, value.as_raw(), order);
        let read = decode_value(&again, order, &mut TypeBitsReader::new(bits.as_bytes()));
        assert_eq!(read, Some((value, again.len())), "what is written is read again");
    }
});
