//! A set of the documents of one segment.

/// A set of numbers below a length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BitSet {
    words: Vec<u64>,
    len: usize,
}

impl BitSet {
    /// The empty set of numbers below `len`.
    pub(crate) fn new(len: usize) -> BitSet {
        BitSet { words: vec![0; len.div_ceil(64)], len }
    }

    /// The set in these bytes; `None` if they are not a set of numbers below `len`.
    pub(crate) fn from_bytes(bytes: &[u8], len: usize) -> Option<BitSet> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        if words.len() != len.div_ceil(64) {
            return None;
        }
        let mut set =
            BitSet { words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(), len };
        set.trim();
        Some(set)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Adds a number. A number that is not below the length is ignored.
    #[inline]
    pub(crate) fn insert(&mut self, number: usize) {
        if number < self.len {
            self.words[number / 64] |= 1 << (number % 64);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        number < self.len && self.words[number / 64] & (1 << (number % 64)) != 0
    }

    /// The least number of the set that is not less.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        for (at, word) in self.words.iter().enumerate().skip(first) {
            let word = if at == first { word & (u64::MAX << (from % 64)) } else { *word };
            if word != 0 {
                return Some(at * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn fill(&mut self) {
        self.words.fill(u64::MAX);
        self.trim();
    }

    pub(crate) fn invert(&mut self) {
        self.words.iter_mut().for_each(|word| *word = !*word);
        self.trim();
    }

    pub(crate) fn intersect(&mut self, other: &BitSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    pub(crate) fn unite(&mut self, other: &BitSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    pub(crate) fn subtract(&mut self, other: &BitSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// Clears the bits of the last word that are not below the length.
    fn trim(&mut self) {
        if let (Some(last), rest) = (self.words.last_mut(), self.len % 64)
            && rest != 0
        {
            *last &= (1 << rest) - 1;
        }
    }
}
