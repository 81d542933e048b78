//! An ordered map with field names as its keys.

use std::collections::HashMap;

/// Up to this many names are searched linearly; more are indexed.
const FEW: usize = 16;

/// A list of names, each with a value, that keeps their order and finds them fast.
#[derive(Clone, Debug)]
pub struct Names<T> {
    fields: Vec<(Box<str>, T)>,
    /// The index of each name, when there are many.
    places: HashMap<Box<str>, usize>,
}

impl<T> Default for Names<T> {
    fn default() -> Names<T> {
        Names { fields: Vec::new(), places: HashMap::new() }
    }
}

impl<T> Names<T> {
    /// The index of the first entry with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        match self.fields.len() {
            ..=FEW => self.fields.iter().position(|(have, _)| &**have == name),
            _ => self.places.get(name).copied(),
        }
    }

    /// The value of a name, given as bytes.
    pub fn find(&self, name: &[u8]) -> Option<&T> {
        if self.fields.len() > FEW {
            let at = self.places.get(std::str::from_utf8(name).ok()?)?;
            return self.fields.get(*at).map(|(_, said)| said);
        }
        self.fields.iter().find(|(have, _)| have.as_bytes() == name).map(|(_, said)| said)
    }

    /// Appends a name and returns its index.
    pub fn push(&mut self, name: &str, said: T) -> usize {
        let at = self.fields.len();
        self.fields.push((name.into(), said));
        if at == FEW {
            for (at, (name, _)) in self.fields.iter().enumerate() {
                self.places.entry(name.clone()).or_insert(at);
            }
        } else if at > FEW {
            self.places.entry(name.into()).or_insert(at);
        }
        at
    }

    /// The value at an index returned by [`position`](Names::position) or [`push`](Names::push).
    pub fn value_mut(&mut self, at: usize) -> &mut T {
        &mut self.fields[at].1
    }

    /// All values in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.fields.iter_mut().map(|(_, said)| said)
    }

    /// All names and values in order.
    pub fn as_slice(&self) -> &[(Box<str>, T)] {
        &self.fields
    }
}

impl<T> IntoIterator for Names<T> {
    type Item = (Box<str>, T);
    type IntoIter = std::vec::IntoIter<(Box<str>, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.into_iter()
    }
}

impl<T, N: AsRef<str>> FromIterator<(N, T)> for Names<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(fields: I) -> Names<T> {
        let mut names = Names::default();
        for (name, said) in fields {
            names.push(name.as_ref(), said);
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_many_there_are() {
        let mut names = Names::default();
        for at in 0..5 * FEW {
            let name = format!("f{at}");
            assert_eq!((names.position(&name), names.find(name.as_bytes())), (None, None));
            assert_eq!(names.push(&name, at), at);
            for have in 0..=at {
                let name = format!("f{have}");
                assert_eq!(names.position(&name), Some(have));
                assert_eq!(names.find(name.as_bytes()), Some(&have));
            }
        }
    }
}
