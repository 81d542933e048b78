//! Builds a graph, one vector after another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Graph, Scored};

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
pub(crate) struct GraphBuilder<S, P> {
    options: GraphOptions,
    /// The score of two vectors, by their places.
    score: S,
    /// Loads a vector that is compared soon.
    prefetch: P,
    /// The links of level 0, as the file has them: for each vector the number of links, and places.
    links: Vec<u32>,
    /// How many links of each full list of level 0 were chosen: they are its first ones, the
    /// nearest first. 0: not known, since the list was not full or is that of another graph.
    pub(super) chosen: Vec<u16>,
    /// The links of each vector on its upper levels, if it has some.
    upper: BTreeMap<u32, Vec<Vec<u32>>>,
    entry: Option<u32>,
    /// The mark of the last search that has seen each vector: one byte, so that the marks of many
    /// vectors stay in the processor's cache.
    visited: Vec<u8>,
    /// The mark of the running search. 0 is that of no search.
    mark: u8,
}

impl<S: Fn(u32, u32) -> f32, P: Fn(u32)> GraphBuilder<S, P> {
    /// A graph without vectors, with room for `len`.
    pub(crate) fn new(
        options: GraphOptions,
        len: usize,
        score: S,
        prefetch: P,
    ) -> GraphBuilder<S, P> {
        GraphBuilder {
            links: Vec::with_capacity(len * (1 + 2 * options.edges)),
            options,
            score,
            prefetch,
            chosen: Vec::with_capacity(len),
            upper: BTreeMap::new(),
            entry: None,
            visited: vec![0; len],
            mark: 0,
        }
    }

    /// Begins with the vectors of another graph. `places` gives the new place of each of its
    /// vectors: the kept ones are numbered from 0 on, in their order. Returns whether it did: the
    /// other graph must have the same options.
    pub(crate) fn start(&mut self, graph: &Graph<'_>, places: &[Option<u32>]) -> bool {
        if graph.edges() != self.options.edges || !self.links.is_empty() {
            return false;
        }
        let new = |place: u32| places.get(place as usize).copied().flatten();
        for (old, place) in places.iter().enumerate() {
            let Some(place) = *place else { continue };
            let list: Vec<u32> = graph.links(old as u32, 0).filter_map(new).collect();
            self.push(&list);
            let levels = graph.levels(old as u32);
            if levels > 0 {
                let list = |level| graph.links(old as u32, level).filter_map(new).collect();
                self.upper.insert(place, (1..=levels).map(list).collect());
            }
        }
        let highest = self.upper.iter().max_by_key(|(_, levels)| levels.len());
        self.entry = highest.map(|(place, _)| *place).or((!self.links.is_empty()).then_some(0));
        true
    }

    /// The number of vectors that were added.
    pub(crate) fn len(&self) -> usize {
        self.links.len() / self.stride()
    }

    fn stride(&self) -> usize {
        1 + 2 * self.options.edges
    }

    /// Adds a vector to level 0, with these links.
    fn push(&mut self, list: &[u32]) {
        let end = self.links.len() + self.stride();
        self.links.push(list.len() as u32);
        self.links.extend_from_slice(list);
        self.links.resize(end, 0);
        self.chosen.push(0);
    }

    /// The links of a vector on a level.
    #[inline]
    pub(super) fn list(&self, place: u32, level: usize) -> &[u32] {
        if level == 0 {
            let row = &self.links[place as usize * self.stride()..];
            return &row[1..=row[0] as usize];
        }
        let lists = self.upper.get(&place);
        lists.and_then(|lists| lists.get(level - 1)).map_or(&[], Vec::as_slice)
    }

    /// Adds a link to a list that is not full.
    fn append(&mut self, place: u32, to: u32, level: usize) {
        if level == 0 {
            let at = place as usize * self.stride();
            self.links[at] += 1;
            let end = at + self.links[at] as usize;
            self.links[end] = to;
        } else if let Some(known) =
            self.upper.get_mut(&place).and_then(|lists| lists.get_mut(level - 1))
        {
            known.push(to);
        }
    }

    fn set_list(&mut self, place: u32, level: usize, list: &[u32]) {
        if level == 0 {
            let at = place as usize * self.stride();
            self.links[at] = list.len() as u32;
            self.links[at + 1..=at + list.len()].copy_from_slice(list);
        } else if let Some(known) =
            self.upper.get_mut(&place).and_then(|lists| lists.get_mut(level - 1))
        {
            known.clear();
            known.extend_from_slice(list);
        }
    }

    /// The highest level of a vector.
    fn levels(&self, place: u32) -> usize {
        self.upper.get(&place).map_or(0, Vec::len)
    }

    /// Adds the vector with the next place.
    pub(crate) fn add(&mut self) {
        let place = self.len() as u32;
        let level = self.random_level(place);
        self.push(&[]);
        if level > 0 {
            self.upper.insert(place, vec![Vec::new(); level]);
        }
        let Some(mut nearest) = self.entry else {
            self.entry = Some(place);
            return;
        };
        let top = self.levels(nearest);
        for upper in (level + 1..=top).rev() {
            nearest = self.descend(place, nearest, upper);
        }
        let mut entries = vec![nearest];
        for level in (0..=level.min(top)).rev() {
            let found = self.search(place, &entries, level);
            let (chosen, _) = self.choose(&found, self.options.edges);
            for other in &chosen {
                self.link(*other, place, level);
            }
            self.set_list(place, level, &chosen);
            entries = found.iter().map(|scored| scored.place()).collect();
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
            for other in self.list(before, level) {
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
        self.mark = self.mark.wrapping_add(1);
        if self.mark == 0 {
            self.visited.fill(0);
            self.mark = 1;
        }
        let mut visited = std::mem::take(&mut self.visited);
        let size = self.options.candidates;
        let mut best: BinaryHeap<Reverse<Scored>> = BinaryHeap::with_capacity(size + 1);
        let mut open: BinaryHeap<Scored> = BinaryHeap::new();
        for entry in entries {
            visited[*entry as usize] = self.mark;
            let scored = Scored::new((self.score)(place, *entry), *entry);
            open.push(scored);
            best.push(Reverse(scored));
        }
        while best.len() > size {
            best.pop();
        }
        let mut near: Vec<u32> = Vec::new();
        while let Some(next) = open.pop() {
            if best.len() >= size && best.peek().is_some_and(|worst| next.bits() < worst.0.bits()) {
                break;
            }
            let list = self.list(next.place(), level);
            near.resize(list.len(), 0);
            // Without a branch, since the processor cannot predict which vectors were seen.
            let mut count = 0;
            for other in list {
                near[count] = *other;
                let seen = std::mem::replace(&mut visited[*other as usize], self.mark);
                count += usize::from(seen != self.mark);
            }
            near.truncate(count);
            near.iter().for_each(|other| (self.prefetch)(*other));
            for other in &near {
                let scored = Scored::new((self.score)(place, *other), *other);
                if best.len() < size
                    || best.peek().is_some_and(|worst| scored.bits() > worst.0.bits())
                {
                    open.push(scored);
                    best.push(Reverse(scored));
                    if best.len() > size {
                        best.pop();
                    }
                }
            }
        }
        self.visited = visited;
        best.into_sorted_vec().into_iter().map(|scored| scored.0).collect()
    }

    /// Whether a candidate for the links of a vector is left out because of a chosen one that is at
    /// least as near: a candidate that is nearer to the chosen one than to the vector itself, since
    /// a search reaches it through that one, and a candidate that is equal to it, since many equal
    /// vectors would take all links.
    #[inline]
    pub(super) fn is_reached(&self, candidate: Scored, chosen: Scored) -> bool {
        let bits = Scored::new((self.score)(candidate.place(), chosen.place()), 0).bits();
        bits > candidate.bits() || (bits == candidate.bits() && bits == chosen.bits())
    }

    /// Chooses links from candidates, the nearest first. Free places are filled with those left
    /// out, which follow the chosen ones. Returns the number of the latter, too.
    fn choose(&self, candidates: &[Scored], most: usize) -> (Vec<u32>, usize) {
        let (mut chosen, mut others): (Vec<Scored>, Vec<u32>) = (Vec::new(), Vec::new());
        for candidate in candidates {
            if chosen.len() == most {
                break;
            }
            match chosen.iter().any(|other| self.is_reached(*candidate, *other)) {
                true => others.push(candidate.place()),
                false => chosen.push(*candidate),
            }
        }
        let count = chosen.len();
        let mut list: Vec<u32> = chosen.into_iter().map(Scored::place).collect();
        list.extend(others.into_iter().take(most - count));
        (list, count)
    }

    /// Links a vector with a new one. Of too many links the best are kept.
    fn link(&mut self, from: u32, to: u32, level: usize) {
        let most = if level == 0 { 2 * self.options.edges } else { self.options.edges };
        let list = self.list(from, level);
        if list.len() < most {
            self.append(from, to, level);
            return;
        }
        list.iter().for_each(|other| (self.prefetch)(*other));
        let of = |other: u32| Scored::new((self.score)(from, other), other);
        let first = match level {
            0 => self.chosen[from as usize] as usize,
            _ => 0,
        };
        if first > 0 {
            self.replace(from, first, of(to));
            return;
        }
        let mut scored: Vec<Scored> = list.iter().chain([&to]).map(|other| of(*other)).collect();
        scored.sort_unstable_by(|left, right| right.cmp(left));
        let (list, count) = self.choose(&scored, most);
        self.set_list(from, level, &list);
        if level == 0 {
            self.chosen[from as usize] = count as u16;
        }
    }

    /// Adds a link to a full list of level 0, of which the first `count` were chosen and the others
    /// filled it. Only pairs with the new vector are compared: the chosen ones before it decide
    /// whether it is chosen, and it decides about those after it. A chosen one that is left out
    /// becomes one of the others, and the worst of these gives way.
    fn replace(&mut self, from: u32, count: usize, new: Scored) {
        let of = |other: &u32| Scored::new((self.score)(from, *other), *other);
        let (at, most) = (from as usize * self.stride() + 1, 2 * self.options.edges);
        let row = &self.links[at..at + most];
        let chosen: Vec<Scored> = row[..count].iter().map(of).collect();
        let mut others: Vec<Scored> = Vec::with_capacity(most - count + 1);
        let before = chosen.partition_point(|other| *other > new);
        let mut kept = chosen[..before].to_vec();
        if kept.iter().any(|other| self.is_reached(new, *other)) {
            if row[count..].last().is_none_or(|worst| of(worst) > new) {
                return;
            }
            kept.extend_from_slice(&chosen[before..]);
            others.push(new);
        } else {
            kept.push(new);
            for other in &chosen[before..] {
                match self.is_reached(*other, new) {
                    true => others.push(*other),
                    false => kept.push(*other),
                }
            }
        }
        others.extend(row[count..].iter().map(of));
        others.sort_unstable_by(|left, right| right.cmp(left));
        let count = kept.len().min(most);
        let list = kept.into_iter().chain(others).map(Scored::place);
        for (link, place) in self.links[at..at + most].iter_mut().zip(list) {
            *link = place;
        }
        self.chosen[from as usize] = count as u16;
    }

    /// The bytes of the two sections.
    pub(crate) fn finish(self) -> (Vec<u8>, Vec<u8>) {
        let edges = self.options.edges;
        let links = self.links.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut upper = Vec::new();
        let mut put = |number: usize| upper.extend_from_slice(&(number as u32).to_le_bytes());
        let entry = self.entry.unwrap_or(0);
        for number in [edges, entry as usize, self.levels(entry), self.upper.len()] {
            put(number);
        }
        self.upper.keys().for_each(|place| put(*place as usize));
        let mut offset = 0;
        put(offset);
        for levels in self.upper.values() {
            offset += levels.len();
            put(offset);
        }
        for list in self.upper.values().flatten() {
            put(list.len());
            for at in 0..edges {
                put(list.get(at).copied().unwrap_or(0) as usize);
            }
        }
        (links, upper)
    }
}
