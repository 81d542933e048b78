//! Searches a graph in a file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mayfly_base::Result;

use super::{Scored, Visited};
use crate::filter::column::number_at;
use crate::vector::kernel::prefetch;

/// A graph in the sections of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Graph<'a> {
    /// The number of vectors.
    len: usize,
    edges: usize,
    entry: u32,
    top: usize,
    links: &'a [u8],
    places: &'a [u8],
    offsets: &'a [u8],
    lists: &'a [u8],
}

/// Most levels that are read.
const MAX_LEVELS: usize = 64;

/// Vectors between two calls of the check.
const BLOCK: usize = 1_024;

impl<'a> Graph<'a> {
    /// A graph over `len` vectors; `None` if the sections do not fit together.
    pub(crate) fn read(links: &'a [u8], upper: &'a [u8], len: usize) -> Option<Graph<'a>> {
        let number = |at: usize| number_at(upper, at).map(|number| number as usize);
        let (edges, entry, top, count) = (number(0)?, number(1)?, number(2)?, number(3)?);
        if edges == 0 || edges > 4_096 || entry >= len || count > len || top > MAX_LEVELS {
            return None;
        }
        let places = upper.get(16..16 + count * 4)?;
        let offsets = upper.get(16 + count * 4..16 + count * 4 + (count + 1) * 4)?;
        let lists = upper.get(16 + count * 4 + (count + 1) * 4..)?;
        let total = number_at(offsets, count)? as usize;
        let fits = links.len() == len * (1 + 2 * edges) * 4
            && Some(lists.len()) == total.checked_mul((1 + edges) * 4);
        let entry = entry as u32;
        fits.then_some(Graph { len, edges, entry, top, links, places, offsets, lists })
    }

    /// The most links of a vector on the upper levels.
    pub(super) fn edges(&self) -> usize {
        self.edges
    }

    /// The highest level of a vector.
    pub(super) fn levels(&self, place: u32) -> usize {
        let places = self.places.as_chunks::<4>().0;
        let found = places.binary_search_by_key(&place, |bytes| u32::from_le_bytes(*bytes));
        let Ok(at) = found else { return 0 };
        let offset = |at| number_at(self.offsets, at).unwrap_or(0) as usize;
        offset(at + 1).saturating_sub(offset(at)).min(MAX_LEVELS)
    }

    /// The links of a vector on a level. Places that do not exist are left out.
    pub(super) fn links(&self, place: u32, level: usize) -> impl Iterator<Item = u32> + use<'a> {
        let (list, stride) = match level {
            0 => (Some(place as usize), 1 + 2 * self.edges),
            level => (self.upper_list(place, level), 1 + self.edges),
        };
        let source = if level == 0 { self.links } else { self.lists };
        let list = list.and_then(|list| source.get(list * stride * 4..(list + 1) * stride * 4));
        let numbers = list.unwrap_or(&[]).as_chunks::<4>().0;
        let count = numbers.first().map_or(0, |count| u32::from_le_bytes(*count) as usize);
        let len = self.len;
        numbers
            .iter()
            .skip(1)
            .take(count)
            .map(|bytes| u32::from_le_bytes(*bytes))
            .filter(move |place| (*place as usize) < len)
    }

    /// Loads the links of a vector that is probably the next one.
    #[inline]
    fn prefetch_links(&self, place: u32) {
        let stride = (1 + 2 * self.edges) * 4;
        let at = place as usize * stride;
        prefetch(self.links.get(at..at + stride).unwrap_or(&[]));
    }

    /// The number of a vector's list on an upper level.
    fn upper_list(&self, place: u32, level: usize) -> Option<usize> {
        let places = self.places.as_chunks::<4>().0;
        let at = places.binary_search_by_key(&place, |bytes| u32::from_le_bytes(*bytes)).ok()?;
        let first = number_at(self.offsets, at)? as usize;
        let end = number_at(self.offsets, at + 1)? as usize;
        let list = first.checked_add(level - 1)?;
        (list < end).then_some(list)
    }

    /// The places of the `size` best vectors that are accepted, as far as the links lead to them.
    pub(crate) fn search(
        &self,
        size: usize,
        score: impl Fn(usize) -> f32,
        load: impl Fn(usize),
        accepts: impl Fn(usize) -> bool,
        check: impl Fn() -> Result<()>,
    ) -> Result<Vec<usize>> {
        let mut nearest = Scored::new(score(self.entry as usize), self.entry);
        for level in (1..=self.top).rev() {
            nearest = self.descend(nearest, level, &score);
        }
        let mut visited = Visited::new(self.len);
        visited.insert(nearest.place());
        let mut open = BinaryHeap::from([nearest]);
        let mut best: BinaryHeap<Reverse<Scored>> = BinaryHeap::new();
        if accepts(nearest.place() as usize) {
            best.push(Reverse(nearest));
        }
        let (mut count, mut near): (usize, Vec<u32>) = (0, Vec::new());
        while let Some(next) = open.pop() {
            if best.len() >= size && best.peek().is_some_and(|worst| next.bits() < worst.0.bits()) {
                break;
            }
            near.resize(2 * self.edges, 0);
            // Without a branch, since the processor cannot predict which vectors were seen.
            let mut new = 0;
            // A list has at most `2 * edges` links.
            for place in self.links(next.place(), 0) {
                near[new] = place;
                new += usize::from(visited.insert(place));
            }
            near.truncate(new);
            near.iter().for_each(|place| load(*place as usize));
            if let Some(next) = open.peek() {
                self.prefetch_links(next.place());
            }
            for place in near.iter().copied() {
                count += 1;
                if count % BLOCK == 0 {
                    check()?;
                }
                let scored = Scored::new(score(place as usize), place);
                // Equal vectors are followed, since other vectors may only be linked with them.
                if best.len() >= size
                    && best.peek().is_some_and(|worst| scored.bits() < worst.0.bits())
                {
                    continue;
                }
                open.push(scored);
                if accepts(place as usize) {
                    best.push(Reverse(scored));
                    if best.len() > size {
                        best.pop();
                    }
                }
            }
        }
        Ok(best.into_iter().map(|scored| scored.0.place() as usize).collect())
    }

    fn descend(&self, from: Scored, level: usize, score: &impl Fn(usize) -> f32) -> Scored {
        let mut nearest = from;
        loop {
            let before = nearest;
            for place in self.links(before.place(), level) {
                nearest = nearest.max(Scored::new(score(place as usize), place));
            }
            // The scores grow with each step, so this ends.
            if nearest.bits() <= before.bits() {
                return nearest;
            }
        }
    }
}
