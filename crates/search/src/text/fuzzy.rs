//! The distance between two terms: the number of characters that are changed, inserted, removed, or
//! swapped with the next one.

/// A term of a query, prepared for comparisons with many terms of an index.
pub(crate) struct FuzzyTerm {
    text: String,
    letters: Vec<char>,
    max_edits: usize,
    prefix: usize,
}

impl FuzzyTerm {
    /// A term. The first `prefix` characters must be the same.
    pub(crate) fn new(term: &str, max_edits: usize, prefix: usize) -> FuzzyTerm {
        FuzzyTerm { text: term.to_owned(), letters: term.chars().collect(), max_edits, prefix }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn max_edits(&self) -> usize {
        self.max_edits
    }

    /// The characters with which every near term begins.
    pub(crate) fn prefix(&self) -> String {
        self.letters.iter().take(self.prefix).collect()
    }

    /// The distance of a term, if it is near enough. A term that is no longer than the prefix is
    /// only near itself.
    pub(crate) fn distance(&self, term: &str) -> Option<usize> {
        let other: Vec<char> = term.chars().collect();
        let prefix = self.prefix.min(self.letters.len());
        if other.len() < prefix || other[..prefix] != self.letters[..prefix] {
            return None;
        }
        distance(&self.letters[prefix..], &other[prefix..], self.max_edits)
    }

    /// The share of the score of a term with this distance: Lucene's, which compares the distance
    /// with the length of the shorter term. A negative share orders terms, and counts as 0.
    pub(crate) fn boost(&self, term: &str, distance: usize) -> f32 {
        if distance == 0 {
            return 1.0;
        }
        let shorter = self.letters.len().min(term.chars().count());
        1.0 - distance as f32 / shorter as f32
    }
}

/// The distance between two texts, if it is at most `most`.
fn distance(left: &[char], right: &[char], most: usize) -> Option<usize> {
    if left.len().abs_diff(right.len()) > most {
        return None;
    }
    let width = right.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    let mut row = vec![0; width];
    for (i, letter) in left.iter().enumerate() {
        row[0] = i + 1;
        for (j, other) in right.iter().enumerate() {
            let mut best = last[j] + usize::from(letter != other);
            best = best.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == right[j - 1] && left[i - 1] == *other {
                best = best.min(before[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        if row.iter().min().is_some_and(|best| *best > most)
            && last.iter().min().is_some_and(|best| *best > most)
        {
            return None;
        }
        std::mem::swap(&mut before, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    (last[width - 1] <= most).then_some(last[width - 1])
}
