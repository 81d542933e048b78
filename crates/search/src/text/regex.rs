//! Patterns of `regex`, in the syntax of Lucene. A pattern matches a whole term.
//!
//! ```text
//!  union    inter ("|" inter)*            inter     concat ("&" concat)*
//!  concat   repeat*                       repeat    complement ("?" | "*" | "+" | "{n}" | "{n,}" | "{n,m}")*
//!  complement  "~" complement | simple
//!  simple   character | "." | "#" nothing | "@" any text | "text" in quotes | "(" union ")"
//!           | "[" classes "]" | "[^" classes "]" | "\" character | \d \D \s \S \w \W
//!           | "<" number "-" number ">"
//! ```
//!
//! A pattern is matched by derivatives: the derivative of a pattern by a character matches the rest
//! of the texts that begin with the character. Derivatives are kept, so a [`Matcher`] becomes an
//! automaton while it runs. The number of its states is bounded, and the work for a text by its
//! length.

use std::collections::HashMap;

mod parse;

/// Most nodes of a pattern, and of all derivatives of one.
const MAX_NODES: usize = 4_000;
const MAX_STATES: usize = 10_000;

/// Most parts of all unions and intersections together.
const MAX_PARTS: usize = 1 << 17;

/// A parsed pattern.
#[derive(Clone, Debug)]
pub(crate) struct Regex {
    source: String,
    nodes: Nodes,
    root: u32,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.source == other.source
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    /// No text.
    Nothing,
    /// The empty text.
    Empty,
    /// One character in one of these ranges.
    Class(Vec<(char, char)>),
    Concat(u32, u32),
    Star(u32),
    Union(Vec<u32>),
    Intersection(Vec<u32>),
    Not(u32),
}

/// The nodes of patterns. Equal nodes have the same number.
#[derive(Clone, Debug, Default)]
struct Nodes {
    nodes: Vec<Node>,
    /// Whether each node matches the empty text.
    nullable: Vec<bool>,
    numbers: HashMap<Node, u32>,
    /// The number of the parts of all nodes.
    parts: usize,
}

impl Nodes {
    fn add(&mut self, node: Node) -> u32 {
        if let Some(number) = self.numbers.get(&node) {
            return *number;
        }
        let of = |number: &u32| self.nullable[*number as usize];
        let nullable = match &node {
            Node::Nothing | Node::Class(_) => false,
            Node::Empty | Node::Star(_) => true,
            Node::Concat(left, right) => of(left) && of(right),
            Node::Union(parts) => parts.iter().any(of),
            Node::Intersection(parts) => parts.iter().all(of),
            Node::Not(inner) => !of(inner),
        };
        if let Node::Union(parts) | Node::Intersection(parts) = &node {
            self.parts += parts.len();
        }
        let number = self.nodes.len() as u32;
        self.nodes.push(node.clone());
        self.nullable.push(nullable);
        self.numbers.insert(node, number);
        number
    }

    fn get(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    fn concat(&mut self, left: u32, right: u32) -> u32 {
        match (self.get(left), self.get(right)) {
            (Node::Nothing, _) | (_, Node::Nothing) => self.add(Node::Nothing),
            (Node::Empty, _) => right,
            (_, Node::Empty) => left,
            // The left part of a sequence is never a sequence, so that equal ones are the same.
            (Node::Concat(first, rest), _) => {
                let (first, rest) = (*first, *rest);
                let rest = self.concat(rest, right);
                self.add(Node::Concat(first, rest))
            }
            _ => self.add(Node::Concat(left, right)),
        }
    }

    fn star(&mut self, inner: u32) -> u32 {
        match self.get(inner) {
            Node::Nothing | Node::Empty => self.add(Node::Empty),
            Node::Star(_) => inner,
            _ => self.add(Node::Star(inner)),
        }
    }

    fn not(&mut self, inner: u32) -> u32 {
        match self.get(inner) {
            Node::Not(inner) => *inner,
            _ => self.add(Node::Not(inner)),
        }
    }

    fn union(&mut self, parts: impl IntoIterator<Item = u32>) -> u32 {
        let mut flat: Vec<u32> = Vec::new();
        for part in parts {
            match self.get(part) {
                Node::Nothing => {}
                Node::Union(inner) => flat.extend_from_slice(inner),
                _ => flat.push(part),
            }
        }
        flat.sort_unstable();
        flat.dedup();
        match flat.as_slice() {
            [] => self.add(Node::Nothing),
            [part] => *part,
            _ => self.add(Node::Union(flat)),
        }
    }

    fn intersection(&mut self, parts: impl IntoIterator<Item = u32>) -> u32 {
        let mut flat: Vec<u32> = parts.into_iter().collect();
        flat.sort_unstable();
        flat.dedup();
        if flat.iter().any(|part| *self.get(*part) == Node::Nothing) {
            return self.add(Node::Nothing);
        }
        match flat.as_slice() {
            [part] => *part,
            _ => self.add(Node::Intersection(flat)),
        }
    }

    /// The pattern of the rests of the texts that begin with a character.
    fn derive(&mut self, number: u32, letter: char) -> u32 {
        match self.get(number).clone() {
            Node::Nothing | Node::Empty => self.add(Node::Nothing),
            Node::Class(ranges) => {
                let is_inside = ranges.iter().any(|range| range.0 <= letter && letter <= range.1);
                self.add(if is_inside { Node::Empty } else { Node::Nothing })
            }
            Node::Concat(_, _) => self.derive_sequence(number, letter),
            Node::Star(inner) => {
                let inner = self.derive(inner, letter);
                self.concat(inner, number)
            }
            Node::Union(parts) => {
                let parts: Vec<u32> =
                    parts.into_iter().map(|part| self.derive(part, letter)).collect();
                self.union(parts)
            }
            Node::Intersection(parts) => {
                let parts: Vec<u32> =
                    parts.into_iter().map(|part| self.derive(part, letter)).collect();
                self.intersection(parts)
            }
            Node::Not(inner) => {
                let inner = self.derive(inner, letter);
                self.not(inner)
            }
        }
    }

    /// The derivative of a sequence: of its first part, and of the next one if the first part may
    /// be empty. Sequences are long, so this does not call itself.
    fn derive_sequence(&mut self, number: u32, letter: char) -> u32 {
        let (mut parts, mut rest) = (Vec::new(), number);
        while let Node::Concat(first, next) = *self.get(rest) {
            let derived = self.derive(first, letter);
            parts.push(self.concat(derived, next));
            rest = next;
            if !self.nullable[first as usize] {
                return self.union(parts);
            }
        }
        parts.push(self.derive(rest, letter));
        self.union(parts)
    }
}

impl Regex {
    /// Parses a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(source: &str) -> Result<Regex, String> {
        let (nodes, root) = parse::parse(source)?;
        Ok(Regex { source: source.to_owned(), nodes, root })
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The letters with which every match begins.
    pub(crate) fn prefix(&self) -> String {
        let (mut prefix, mut rest) = (String::new(), self.root);
        loop {
            let (first, next) = match self.nodes.get(rest) {
                Node::Concat(first, next) => (*first, Some(*next)),
                _ => (rest, None),
            };
            match self.nodes.get(first) {
                Node::Class(ranges) if ranges.len() == 1 && ranges[0].0 == ranges[0].1 => {
                    prefix.push(ranges[0].0);
                }
                _ => return prefix,
            }
            match next {
                Some(next) => rest = next,
                None => return prefix,
            }
        }
    }

    pub(crate) fn matcher(&self) -> Matcher {
        Matcher { nodes: self.nodes.clone(), root: self.root, steps: HashMap::new() }
    }
}

/// A pattern with the derivatives that were needed so far.
pub(crate) struct Matcher {
    nodes: Nodes,
    root: u32,
    steps: HashMap<(u32, char), u32>,
}

impl Matcher {
    /// Whether the pattern matches a whole text; `None`: it has too many states.
    pub(crate) fn matches(&mut self, text: &str) -> Option<bool> {
        let mut state = self.root;
        for letter in text.chars() {
            state = match self.steps.get(&(state, letter)) {
                Some(next) => *next,
                None => {
                    let next = self.nodes.derive(state, letter);
                    if self.nodes.nodes.len() > MAX_STATES || self.nodes.parts > MAX_PARTS {
                        return None;
                    }
                    self.steps.insert((state, letter), next);
                    next
                }
            };
            if *self.nodes.get(state) == Node::Nothing {
                return Some(false);
            }
        }
        Some(self.nodes.nullable[state as usize])
    }
}
