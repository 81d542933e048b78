//! Simple-8b: small numbers in words of 64 bits.
//!
//! ```text
//! selector       1  2  3  4  5  6  7  8  9 10 11 12 13 14      | selector, 4 bits | slots |
//! bits of a slot 1  2  3  4  5  6  7  8 10 12 15 20 30 60
//!
//! selector 7 or 8 with further bits e      | selector | e, 4 bits | slots of | zeros | value | |
//! 7: e           1  2  3  4  5  6  7  8  9
//!    value       2  3  4  5  7 10 14 24 52       zeros: 4 bits, the number of zero bits after the value
//! 8: e           1  2  3  4  5  6  7             8  9 10 11 12 13
//!    value       4  5  7 10 14 24 52             4  6  9 13 23 51
//!    zeros       4 bits, times four              5 bits, times four
//!
//! selector 15    | 15 | n, 4 bits |: the previous slot, 120 times (n + 1)
//! ```

use super::WHOLE;

/// Bits of a slot, by selector.
const BITS: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60];
/// Bits of a value, by the extension of selector 7.
const BITS_OF_SEVEN: [u32; 10] = [0, 2, 3, 4, 5, 7, 10, 14, 24, 52];
/// Bits of a value, by the extension of selector 8.
const BITS_OF_EIGHT: [u32; 14] = [0, 4, 5, 7, 10, 14, 24, 52, 4, 6, 9, 13, 23, 51];
/// From this value on, the extension of selector 8 has longer counts of zeros.
const LONG_ZEROS: usize = 8;
const SEVEN: u64 = 7;
const EIGHT: u64 = 8;
const REPEATED: u64 = 15;
/// Slots of each unit of a repetition.
const REPEATED_SLOTS: u32 = 120;
/// Most blocks after one control byte.
const MAX_BLOCKS: usize = 16;

/// The slots of a block: a number, or `None` for a row without a value.
pub(super) struct Slots {
    word: u64,
    left: u32,
    /// Bits of a slot, and how many of them count the zeros after the value.
    bits: u32,
    zero_bits: u32,
    /// Zero bits per unit of that count.
    zeros_each: u32,
    /// The value of all slots of a repetition.
    repeated: Option<Option<u128>>,
}

impl Slots {
    /// The slots of a word; `before` is the previous slot. `None` for a malformed word.
    pub(super) fn new(word: u64, before: Option<u128>) -> Option<Slots> {
        let selector = word & 0x0F;
        let further = (word >> 4 & 0x0F) as usize;
        let plain = |shift: u32, bits: u32, room: u32| Slots {
            word: word >> shift,
            left: room / bits,
            bits,
            zero_bits: 0,
            zeros_each: 0,
            repeated: None,
        };
        let with_zeros = |value: u32, zero_bits: u32, zeros_each: u32| {
            let bits = value + zero_bits;
            Slots { zero_bits, zeros_each, ..plain(8, bits, 56) }
        };
        match selector {
            0 => None,
            REPEATED => {
                let left = (further as u32 + 1) * REPEATED_SLOTS;
                let none = Slots { zero_bits: 0, ..plain(4, 1, 0) };
                Some(Slots { left, repeated: Some(before), ..none })
            }
            SEVEN if further > 0 => {
                BITS_OF_SEVEN.get(further).map(|value| with_zeros(*value, 4, 1))
            }
            EIGHT if further > 0 => BITS_OF_EIGHT
                .get(further)
                .map(|value| with_zeros(*value, if further < LONG_ZEROS { 4 } else { 5 }, 4)),
            SEVEN | EIGHT => Some(plain(8, BITS[selector as usize], 56)),
            _ => Some(plain(4, BITS[selector as usize], 60)),
        }
    }
}

impl Iterator for Slots {
    type Item = Option<u128>;

    fn next(&mut self) -> Option<Option<u128>> {
        self.left = self.left.checked_sub(1)?;
        if let Some(repeated) = self.repeated {
            return Some(repeated);
        }
        let mask = (1 << self.bits) - 1;
        let slot = self.word & mask;
        self.word >>= self.bits;
        if slot == mask {
            return Some(None);
        }
        let zeros = (slot & ((1 << self.zero_bits) - 1)) as u32 * self.zeros_each;
        let value = u128::from(slot >> self.zero_bits);
        Some(Some(value.checked_shl(zeros).unwrap_or(0)))
    }
}

/// A row that needs no value of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunRow {
    /// The row has no value.
    Absent,
    /// The row has the previous row's value.
    Repeated,
}

/// Writes a run of `count` such rows.
pub(super) fn put_run(out: &mut Vec<u8>, mut count: usize, row: RunRow) {
    let mut blocks = Vec::new();
    while count > 0 {
        // The selector with the most slots that fit; selectors with unused bits are not used.
        let fits =
            |selector: &usize| !(7..=8).contains(selector) && 60 / BITS[*selector] <= count as u32;
        let Some(selector) = (1..BITS.len()).find(fits) else { break };
        let slots = match row {
            RunRow::Absent => u64::MAX << 4,
            RunRow::Repeated => 0,
        };
        blocks.push(slots | selector as u64);
        count -= (60 / BITS[selector]) as usize;
    }
    for blocks in blocks.chunks(MAX_BLOCKS) {
        out.push(WHOLE | (blocks.len() - 1) as u8);
        blocks.iter().for_each(|block| out.extend_from_slice(&block.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_from_the_low_end() {
        let slots = |word| Slots::new(word, Some(9)).map(|slots| slots.collect::<Vec<_>>());
        assert_eq!(slots(0), None);
        assert_eq!(slots(13 | 5 << 4 | 0x3FFF_FFFF << 34), Some(vec![Some(5), None]));
        assert_eq!(slots(7 | 3 << 8).unwrap().len(), 8);
        // 52 bits of value, 3 zero bits; then in nibbles.
        assert_eq!(slots(7 | 9 << 4 | 3 << 8 | 5 << 12), Some(vec![Some(40)]));
        assert_eq!(slots(8 | 7 << 4 | 1 << 8 | 5 << 12), Some(vec![Some(80)]));
        assert_eq!(slots(8 | 13 << 4 | 20 << 8 | 1 << 13), Some(vec![Some(1 << 80)]));
        assert_eq!(slots(15), Some(vec![Some(9); 120]));
    }
}
