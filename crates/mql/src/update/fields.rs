//! The fields of an opened document, with fast look-up by name in their order.

use std::borrow::Cow;
use std::collections::HashMap;

use super::tree::Node;

/// Initial capacity.
const EXPECTED_FIELDS: usize = 16;

/// Up to this many look-ups, and in documents with at most this many fields, a linear search is
/// used.
const FEW: usize = 16;

/// Fields in their order. A removed field leaves an empty slot.
#[derive(Default)]
pub(super) struct Fields<'a> {
    fields: Vec<Option<(Cow<'a, [u8]>, Node<'a>)>>,
    lookups: usize,
    places: FieldIndex<'a>,
}

/// The index of fields.
#[derive(Default)]
enum FieldIndex<'a> {
    /// Not built.
    #[default]
    NotBuilt,
    /// The slot of the first field with each name, and for duplicates the slot of the next one.
    Built { first: HashMap<Cow<'a, [u8]>, usize>, next: HashMap<usize, usize> },
}

impl<'a> FromIterator<(Cow<'a, [u8]>, Node<'a>)> for Fields<'a> {
    fn from_iter<I: IntoIterator<Item = (Cow<'a, [u8]>, Node<'a>)>>(given: I) -> Fields<'a> {
        let mut fields = Vec::with_capacity(EXPECTED_FIELDS);
        fields.extend(given.into_iter().map(Some));
        Fields { fields, ..Fields::default() }
    }
}

impl<'a> Fields<'a> {
    /// The first field with this name.
    pub(super) fn find(&mut self, name: &str) -> Option<&mut Node<'a>> {
        let at = self.position(name.as_bytes())?;
        self.fields[at].as_mut().map(|(_, node)| node)
    }

    /// The first field with this name, or a new one at the end.
    pub(super) fn find_or_push(
        &mut self,
        name: &str,
        new: impl FnOnce() -> Node<'a>,
    ) -> &mut Node<'a> {
        let at = self.position(name.as_bytes()).unwrap_or_else(|| {
            let at = self.fields.len();
            if let FieldIndex::Built { first, .. } = &mut self.places {
                first.insert(Cow::Owned(name.as_bytes().to_owned()), at);
            }
            self.fields.push(None);
            at
        });
        &mut self.fields[at]
            .get_or_insert_with(|| (Cow::Owned(name.as_bytes().to_owned()), new()))
            .1
    }

    /// Removes the first field with this name.
    pub(super) fn remove(&mut self, name: &str) -> Option<Node<'a>> {
        let at = self.position(name.as_bytes())?;
        let (name, node) = self.fields[at].take()?;
        if let FieldIndex::Built { first, next } = &mut self.places {
            match next.remove(&at) {
                Some(later) => first.insert(name, later),
                None => first.remove(&*name),
            };
        }
        Some(node)
    }

    /// Moves the first field with this name to the front.
    pub(super) fn put_in_front(&mut self, name: &str) {
        if let Some(at) = self.position(name.as_bytes()).filter(|at| *at > 0) {
            self.fields[..=at].rotate_right(1);
            self.places = FieldIndex::NotBuilt;
        }
    }

    /// The fields in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Cow<'a, [u8]>, Node<'a>)> {
        self.fields.iter().flatten()
    }

    fn position(&mut self, name: &[u8]) -> Option<usize> {
        if let FieldIndex::Built { first, .. } = &self.places {
            return first.get(name).copied();
        }
        self.lookups += 1;
        if self.lookups > FEW
            && self.fields.len() > FEW
            && matches!(self.places, FieldIndex::NotBuilt)
        {
            self.places = self.count();
        }
        self.fields.iter().position(|field| field.as_ref().is_some_and(|(have, _)| **have == *name))
    }

    fn count(&self) -> FieldIndex<'a> {
        let mut first = HashMap::with_capacity(self.fields.len());
        let mut next = HashMap::new();
        for (at, field) in self.fields.iter().enumerate().rev() {
            if let Some((name, _)) = field
                && let Some(later) = first.insert(name.clone(), at)
            {
                next.insert(at, later);
            }
        }
        FieldIndex::Built { first, next }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::RawValue;

    use super::*;

    fn node(value: i32) -> Node<'static> {
        Node::Owned(RawValue::Int32(value).to_owned())
    }

    fn shown(fields: &Fields<'_>) -> Vec<(String, i32)> {
        let value = |node: &Node<'_>| match node.as_raw() {
            Some(RawValue::Int32(value)) => value,
            _ => -1,
        };
        fields
            .iter()
            .map(|(name, node)| (String::from_utf8(name.to_vec()).unwrap(), value(node)))
            .collect()
    }

    /// Results with and without an index, compared with a list of pairs.
    #[test]
    fn many_fields_behave_like_few() {
        for count in [4, 200] {
            // Every name of the first third occurs twice.
            let name = |at: i32| format!("f{}", if at > 2 * count / 3 { at / 3 } else { at });
            let mut model: Vec<(String, i32)> = (0..count).map(|at| (name(at), at)).collect();
            let mut fields: Fields<'_> = model
                .iter()
                .map(|(name, at)| (Cow::Owned(name.clone().into_bytes()), node(*at)))
                .collect();
            for round in 0..4 * count {
                let name = format!("f{}", round * 7 % (count + 3));
                let at = model.iter().position(|(have, _)| *have == name);
                assert_eq!(fields.find(&name).is_some(), at.is_some());
                if round % 3 == 0 {
                    assert_eq!(fields.remove(&name).is_some(), at.is_some());
                    at.map(|at| model.remove(at));
                } else {
                    *fields.find_or_push(&name, || node(0)) = node(round);
                    match at {
                        Some(at) => model[at].1 = round,
                        None => model.push((name, round)),
                    }
                }
                assert_eq!(shown(&fields), model);
            }
            let last = model.last().cloned().unwrap();
            let at = model.iter().position(|(have, _)| *have == last.0).unwrap();
            fields.put_in_front(&last.0);
            model[..=at].rotate_right(1);
            assert_eq!(shown(&fields), model);
        }
    }
}
