//! Builds a graph, one vector after another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Scored;

/// Options of a field's graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphOptions {
    /// The most links of a vector on the upper levels; on level 0 twice as many.
    pub(crate) edges: usize,
    /// The number of candidates for the links of a new vector.
    pub(crate) candidates: usize,
}

/// Most levels above level 0.
const MAX_LEVELS: usize = 12;

/// A graph in memory.
pub(crate) struct GraphBuilder<S> {
    options: GraphOptions,
    /// The score of two vectors, by their places.
    score: S,
    /// The links of each vector on each of its levels.
    links: Vec<Vec<Vec<u32>>>,
    entry: Option<u32>,
    visited: Vec<u32>,
    /// The mark of the vectors that the running search has seen.
    mark: u32,
}

impl<S: Fn(u32, u32) -> f32> GraphBuilder<S> {
    /// A graph without vectors, with room for `len`.
    pub(crate) fn new(options: GraphOptions, len: usize, score: S) -> GraphBuilder<S> {
        let links = Vec::with_capacity(len);
        GraphBuilder { options, score, links, entry: None, visited: vec![0; len], mark: 0 }
    }

    /// Adds the vector with the next place.
    pub(crate) fn add(&mut self) {
        let place = self.links.len() as u32;
        let level = self.random_level(place);
        self.links.push(vec![Vec::new(); level + 1]);
        let Some(mut nearest) = self.entry else {
            self.entry = Some(place);
            return;
        };
        let top = self.links[nearest as usize].len() - 1;
        for upper in (level + 1..=top).rev() {
            nearest = self.descend(place, nearest, upper);
        }
        let mut entries = vec![nearest];
        for level in (0..=level.min(top)).rev() {
            let found = self.search(place, &entries, level);
            let chosen = self.choose(&found, self.options.edges);
            for other in &chosen {
                self.link(*other, place, level);
            }
            self.links[place as usize][level] = chosen;
            entries = found.iter().map(|scored| scored.place).collect();
        }
        if level > top {
            self.entry = Some(place);
        }
    }

    /// The level of a vector: the same place has the same level in each build.
    fn random_level(&self, place: u32) -> usize {
        let mut bits = u64::from(place).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let unit = (((bits ^ (bits >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        let level = -unit.ln() / (self.options.edges as f64).ln();
        (level as usize).min(MAX_LEVELS)
    }

    /// The nearest vector that links of a level lead to, always to a nearer one.
    fn descend(&self, place: u32, from: u32, level: usize) -> u32 {
        let (mut nearest, mut best) = (from, (self.score)(place, from));
        loop {
            let before = nearest;
            for other in &self.links[before as usize][level] {
                let score = (self.score)(place, *other);
                if score > best {
                    (nearest, best) = (*other, score);
                }
            }
            if nearest == before {
                return nearest;
            }
        }
    }

    /// The candidates for the links of a vector on a level, the nearest first.
    fn search(&mut self, place: u32, entries: &[u32], level: usize) -> Vec<Scored> {
        self.mark += 1;
        let size = self.options.candidates;
        let mut best: BinaryHeap<Reverse<Scored>> = BinaryHeap::with_capacity(size + 1);
        let mut open: BinaryHeap<Scored> = BinaryHeap::new();
        for entry in entries {
            self.visited[*entry as usize] = self.mark;
            let scored = Scored::new((self.score)(place, *entry), *entry);
            open.push(scored);
            best.push(Reverse(scored));
        }
        while best.len() > size {
            best.pop();
        }
        while let Some(next) = open.pop() {
            if best.len() >= size && best.peek().is_some_and(|worst| next.bits < worst.0.bits) {
                break;
            }
            for other in &self.links[next.place as usize][level] {
                if std::mem::replace(&mut self.visited[*other as usize], self.mark) == self.mark {
                    continue;
                }
                let scored = Scored::new((self.score)(place, *other), *other);
                if best.len() < size || best.peek().is_some_and(|worst| scored.bits > worst.0.bits)
                {
                    open.push(scored);
                    best.push(Reverse(scored));
                    if best.len() > size {
                        best.pop();
                    }
                }
            }
        }
        best.into_sorted_vec().into_iter().map(|scored| scored.0).collect()
    }

    /// Chooses links: a candidate that is nearer to a chosen one than to the vector itself is left
    /// out, since a search reaches it through that one. So is a candidate that is equal to a chosen
    /// one, since many equal vectors would take all links. Free places are filled with those left
    /// out.
    fn choose(&self, candidates: &[Scored], most: usize) -> Vec<u32> {
        let (mut chosen, mut others): (Vec<Scored>, Vec<u32>) = (Vec::new(), Vec::new());
        for candidate in candidates {
            if chosen.len() == most {
                break;
            }
            let is_reached = |other: &Scored| {
                let bits = Scored::new((self.score)(candidate.place, other.place), 0).bits;
                bits > candidate.bits || (bits == candidate.bits && bits == other.bits)
            };
            match chosen.iter().any(is_reached) {
                true => others.push(candidate.place),
                false => chosen.push(*candidate),
            }
        }
        let mut chosen: Vec<u32> = chosen.into_iter().map(|scored| scored.place).collect();
        let free = most - chosen.len();
        chosen.extend(others.into_iter().take(free));
        chosen
    }

    /// Links a vector with a new one. Of too many links the best are kept.
    fn link(&mut self, from: u32, to: u32, level: usize) {
        let most = if level == 0 { 2 * self.options.edges } else { self.options.edges };
        let list = &mut self.links[from as usize][level];
        list.push(to);
        if list.len() <= most {
            return;
        }
        let list = std::mem::take(list);
        let mut scored: Vec<Scored> =
            list.iter().map(|other| Scored::new((self.score)(from, *other), *other)).collect();
        scored.sort_unstable_by(|left, right| right.cmp(left));
        self.links[from as usize][level] = self.choose(&scored, most);
    }

    /// The bytes of the two sections.
    pub(crate) fn finish(self) -> (Vec<u8>, Vec<u8>) {
        let edges = self.options.edges;
        let (mut links, mut upper) = (Vec::new(), Vec::new());
        let put = |bytes: &mut Vec<u8>, number: usize| {
            bytes.extend_from_slice(&(number as u32).to_le_bytes());
        };
        let put_list = |bytes: &mut Vec<u8>, list: &[u32], most: usize| {
            put(bytes, list.len());
            for at in 0..most {
                put(bytes, list.get(at).copied().unwrap_or(0) as usize);
            }
        };
        for levels in &self.links {
            put_list(&mut links, &levels[0], 2 * edges);
        }
        let high = || self.links.iter().enumerate().filter(|(_, levels)| levels.len() > 1);
        let entry = self.entry.unwrap_or(0) as usize;
        let top = self.links.get(entry).map_or(0, |levels| levels.len() - 1);
        for number in [edges, entry, top, high().count()] {
            put(&mut upper, number);
        }
        high().for_each(|(place, _)| put(&mut upper, place));
        let mut offset = 0;
        put(&mut upper, offset);
        for (_, levels) in high() {
            offset += levels.len() - 1;
            put(&mut upper, offset);
        }
        for (_, levels) in high() {
            levels[1..].iter().for_each(|list| put_list(&mut upper, list, edges));
        }
        (links, upper)
    }
}
