//! Predicates on single bits of whole numbers and binary values.

use mayfly_value::{Number, RawValue};

/// The required state of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// All are 1.
    AllSet,
    /// All are 0.
    AllClear,
    /// At least one is 1.
    AnySet,
    /// At least one is 0.
    AnyClear,
}

/// A predicate on bits.
#[derive(Clone, Debug)]
pub struct BitTest {
    asked: Bits,
    positions: Positions,
}

/// The positions of bits.
#[derive(Clone, Debug)]
pub enum Positions {
    /// A list of positions, 0 for the lowest bit.
    List(Vec<u32>),
    /// The positions of the ones in these bytes, lowest byte first.
    Mask(Vec<u8>),
}

impl Positions {
    /// Whether the test is true for all positions.
    fn all(&self, mut test: impl FnMut(u32) -> bool) -> bool {
        match self {
            Positions::List(list) => list.iter().all(|position| test(*position)),
            Positions::Mask(bytes) => {
                bytes.iter().zip((0_u32..).step_by(8)).all(|(byte, first)| {
                    (0..8).filter(|bit| byte >> bit & 1 == 1).all(|bit| test(first + bit))
                })
            }
        }
    }
}

impl BitTest {
    /// A predicate on these bits.
    pub fn new(asked: Bits, positions: Positions) -> BitTest {
        BitTest { asked, positions }
    }

    /// Whether a value satisfies the predicate. Only whole numbers within a long and binary values
    /// have bits.
    pub fn holds(&self, value: RawValue<'_>) -> bool {
        match value {
            RawValue::Binary { bytes: data, .. } => self.holds_for(|position| {
                let byte = data.get(position as usize / 8).copied().unwrap_or(0);
                byte & (1 << (position % 8)) != 0
            }),
            value => match Number::from_value(value).and_then(Number::to_i64_exact) {
                // Numbers are sign-extended beyond the highest bit.
                Some(number) => self.holds_for(|position| number >> position.min(63) & 1 == 1),
                None => false,
            },
        }
    }

    fn holds_for(&self, is_set: impl Fn(u32) -> bool) -> bool {
        match self.asked {
            Bits::AllSet => self.positions.all(is_set),
            Bits::AllClear => self.positions.all(|position| !is_set(position)),
            Bits::AnySet => !self.positions.all(|position| !is_set(position)),
            Bits::AnyClear => !self.positions.all(is_set),
        }
    }
}
