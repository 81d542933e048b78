//! Streams of numbers inside a column: variable-length integers, differences with runs, doubles.
//!
//! ```text
//! varint    | 7 bits and a continuation bit, low end first, at most 10 bytes |
//! integers  | 1: differences, 2: differences of differences | tokens |
//! token     | zigzag varint; after 0 a varint: the number of further zeros |
//! doubles   | 0 | XOR tokens |
//!           | 1 + n, n up to 9 | integers: the values times ten to the n |
//! XOR token | 0: equal to the previous value | 0x80 + zero bytes at the high end * 8 + at the low end | the bytes between |
//! ```
//!
//! Decoders accept any bytes: they return `None` for malformed ones, and never more values than
//! requested.

/// Most decimal places tried for doubles.
const MAX_PLACES: u8 = 9;
/// Doubles represent whole numbers exactly up to here.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A cursor over encoded bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for at in 0..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Approximate bytes of a token; zeros form runs and cost almost nothing.
fn cost(value: i64) -> usize {
    if value == 0 { 0 } else { (70 - zigzag(value).leading_zeros() as usize) / 7 }
}

/// Writes integers in the shorter of the two encodings.
pub(crate) fn put_integers(out: &mut Vec<u8>, values: impl Iterator<Item = i64> + Clone) {
    let (mut first_cost, mut second_cost) = (0, 0);
    let (mut before, mut step) = (0i64, 0i64);
    for value in values.clone() {
        let difference = value.wrapping_sub(before);
        first_cost += cost(difference);
        second_cost += cost(difference.wrapping_sub(step));
        (before, step) = (value, difference);
    }
    let second = second_cost < first_cost;
    out.push(if second { 2 } else { 1 });
    let (mut before, mut step, mut zeros) = (0i64, 0i64, 0u64);
    for value in values {
        let difference = value.wrapping_sub(before);
        let token = if second { difference.wrapping_sub(step) } else { difference };
        (before, step) = (value, difference);
        if token == 0 {
            zeros += 1;
            continue;
        }
        end_run(out, &mut zeros);
        put_varint(out, zigzag(token));
    }
    end_run(out, &mut zeros);
}

fn end_run(out: &mut Vec<u8>, zeros: &mut u64) {
    if *zeros > 0 {
        out.push(0);
        put_varint(out, *zeros - 1);
        *zeros = 0;
    }
}

/// Reads `count` integers.
pub(crate) fn read_integers(
    input: &mut Reader<'_>,
    count: usize,
    see: &mut dyn FnMut(i64),
) -> Option<()> {
    let second = match input.byte()? {
        1 => false,
        2 => true,
        _ => return None,
    };
    let (mut before, mut step, mut left) = (0i64, 0i64, count as u64);
    while left > 0 {
        let token = unzigzag(input.varint()?);
        let repeated = if token == 0 { input.varint()?.checked_add(1)? } else { 1 };
        left = left.checked_sub(repeated)?;
        for _ in 0..repeated {
            let difference = if second { step.wrapping_add(token) } else { token };
            before = before.wrapping_add(difference);
            step = difference;
            see(before);
        }
    }
    Some(())
}

fn power(places: u8) -> f64 {
    10f64.powi(i32::from(places))
}

/// The value as a whole number of units in the last decimal place; `None` unless that is exact.
fn scaled(value: f64, power: f64) -> Option<i64> {
    let rounded = (value * power).round();
    // The conversion loses a negative zero.
    let whole = rounded as i64;
    let exact = rounded.abs() < MAX_EXACT && (whole as f64 / power).to_bits() == value.to_bits();
    exact.then_some(whole)
}

/// The number of decimal places with which all values are whole.
fn places(values: impl Iterator<Item = f64> + Clone) -> Option<u8> {
    let mut places = 0;
    for value in values.clone() {
        while scaled(value, power(places)).is_none() {
            places += 1;
            if places > MAX_PLACES {
                return None;
            }
        }
    }
    let power = power(places);
    values.into_iter().all(|value| scaled(value, power).is_some()).then_some(places)
}

/// Writes doubles, bit-exact.
pub(crate) fn put_doubles(out: &mut Vec<u8>, values: impl Iterator<Item = f64> + Clone) {
    if let Some(places) = places(values.clone()) {
        let power = power(places);
        out.push(1 + places);
        put_integers(out, values.map(move |value| scaled(value, power).unwrap_or_default()));
        return;
    }
    out.push(0);
    let mut before = 0u64;
    for value in values {
        let bits = value.to_bits();
        let changed = bits ^ before;
        before = bits;
        if changed == 0 {
            out.push(0);
            continue;
        }
        let (high, low) = (changed.leading_zeros() / 8, changed.trailing_zeros() / 8);
        out.push(0x80 | (high * 8 + low) as u8);
        out.extend_from_slice(&changed.to_le_bytes()[low as usize..8 - high as usize]);
    }
}

/// Reads `count` doubles.
pub(crate) fn read_doubles(
    input: &mut Reader<'_>,
    count: usize,
    see: &mut dyn FnMut(f64),
) -> Option<()> {
    let way = input.byte()?;
    if way > 0 {
        let power = power(way - 1);
        return (way <= 1 + MAX_PLACES)
            .then(|| read_integers(input, count, &mut |whole| see(whole as f64 / power)))?;
    }
    let mut before = 0u64;
    for _ in 0..count {
        let token = input.byte()?;
        if token != 0 {
            let (high, low) = (usize::from(token >> 3 & 7), usize::from(token & 7));
            if token & 0x80 == 0 || token & 0x40 != 0 || high + low > 7 {
                return None;
            }
            let mut changed = [0; 8];
            changed[low..8 - high].copy_from_slice(input.bytes(8 - high - low)?);
            before ^= u64::from_le_bytes(changed);
        }
        see(f64::from_bits(before));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn doubles_round_trip(values: &[f64]) -> usize {
        let mut out = Vec::new();
        put_doubles(&mut out, values.iter().copied());
        let mut read = Vec::new();
        let mut input = Reader(&out);
        read_doubles(&mut input, values.len(), &mut |value| read.push(value.to_bits())).unwrap();
        assert!(input.0.is_empty());
        assert_eq!(read, values.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        out.len()
    }

    #[test]
    fn decimals_are_short_and_oddities_are_exact() {
        let sensor: Vec<f64> = (0..1000).map(|i| 20.0 + f64::from(i % 50) / 100.0).collect();
        assert!(doubles_round_trip(&sensor) < 1100);
        doubles_round_trip(&[f64::NAN, -0.0, f64::INFINITY, f64::MIN_POSITIVE, 0.1 + 0.2, 1e300]);
        doubles_round_trip(&[]);
        doubles_round_trip(&[-0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn numbers_round_trip(
            integers in prop::collection::vec(prop_oneof![any::<i64>(), -3i64..3], 0..200),
            doubles in prop::collection::vec(prop_oneof![any::<f64>(), (-999i32..999).prop_map(|n| f64::from(n) / 100.0)], 0..200),
        ) {
            let mut out = Vec::new();
            put_integers(&mut out, integers.iter().copied());
            let mut read = Vec::new();
            read_integers(&mut Reader(&out), integers.len(), &mut |value| read.push(value)).unwrap();
            prop_assert_eq!(read, integers);
            doubles_round_trip(&doubles);
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..64), count in 0usize..500) {
            let mut seen = 0;
            let _ = read_integers(&mut Reader(&bytes), count, &mut |_| seen += 1);
            let _ = read_doubles(&mut Reader(&bytes), count, &mut |_| seen += 1);
            prop_assert!(seen <= 2 * count);
        }
    }
}
