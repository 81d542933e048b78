//! Parses a regular expression.

use super::{MAX_NODES, Node, Nodes};

/// Most levels of parentheses.
const MAX_DEPTH: usize = 50;

/// Most digits of a number in an interval.
const MAX_DIGITS: usize = 10;

/// Most repetitions that a pattern may ask for.
const MAX_REPEAT: usize = 1_000;

struct Parser {
    letters: Vec<char>,
    at: usize,
    nodes: Nodes,
    depth: usize,
}

const DIGITS: &[(char, char)] = &[('0', '9')];
const SPACES: &[(char, char)] = &[('\t', '\n'), ('\r', '\r'), (' ', ' ')];
const WORDS: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];

/// The nodes of a pattern, and the number of its root.
pub(super) fn parse(source: &str) -> Result<(Nodes, u32), String> {
    let letters = source.chars().collect();
    let mut parser = Parser { letters, at: 0, nodes: Nodes::default(), depth: 0 };
    let root = match parser.letters.is_empty() {
        true => parser.nodes.add(Node::Empty),
        false => parser.union()?,
    };
    match parser.peek() {
        None => Ok((parser.nodes, root)),
        Some(letter) => Err(format!("unexpected \"{letter}\" at position {}", parser.at)),
    }
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek();
        self.at += usize::from(letter.is_some());
        letter
    }

    /// Skips a character if it is this one.
    fn skip(&mut self, wanted: char) -> bool {
        let is_it = self.peek() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.skip(wanted) {
            true => Ok(()),
            false => Err(format!("expected \"{wanted}\" at position {}", self.at)),
        }
    }

    fn check_size(&self) -> Result<(), String> {
        match self.nodes.nodes.len() > MAX_NODES {
            true => Err("it is too complex".to_owned()),
            false => Ok(()),
        }
    }

    fn union(&mut self) -> Result<u32, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} levels deep"));
        }
        let mut parts = vec![self.intersection()?];
        while self.skip('|') {
            parts.push(self.intersection()?);
        }
        self.depth -= 1;
        Ok(self.nodes.union(parts))
    }

    fn intersection(&mut self) -> Result<u32, String> {
        let mut parts = vec![self.concat()?];
        while self.skip('&') {
            parts.push(self.concat()?);
        }
        Ok(self.nodes.intersection(parts))
    }

    fn concat(&mut self) -> Result<u32, String> {
        let mut parts = Vec::new();
        while self.peek().is_some_and(|letter| !matches!(letter, ')' | '|' | '&')) {
            parts.push(self.repeat()?);
        }
        if parts.is_empty() {
            return Err(format!("expected an expression at position {}", self.at));
        }
        Ok(self.sequence(&parts))
    }

    fn sequence(&mut self, parts: &[u32]) -> u32 {
        let empty = self.nodes.add(Node::Empty);
        parts.iter().rev().fold(empty, |rest, part| self.nodes.concat(*part, rest))
    }

    fn optional(&mut self, node: u32) -> u32 {
        let empty = self.nodes.add(Node::Empty);
        self.nodes.union([node, empty])
    }

    fn repeat(&mut self) -> Result<u32, String> {
        let mut node = self.complement()?;
        loop {
            node = match self.peek() {
                Some('?') => self.optional(node),
                Some('*') => self.nodes.star(node),
                Some('+') => {
                    let rest = self.nodes.star(node);
                    self.nodes.concat(node, rest)
                }
                Some('{') => {
                    self.at += 1;
                    node = self.counted(node)?;
                    continue;
                }
                _ => return Ok(node),
            };
            self.at += 1;
            self.check_size()?;
        }
    }

    /// The repetitions in braces.
    fn counted(&mut self, node: u32) -> Result<u32, String> {
        let least = self.number()?;
        let most = match self.skip(',') {
            false => Some(least),
            true if self.peek() == Some('}') => None,
            true => Some(self.number()?),
        };
        self.expect('}')?;
        if most.is_some_and(|most| most < least) {
            return Err(format!("invalid repetition range at position {}", self.at));
        }
        let mut parts = vec![node; least];
        match most {
            None => parts.push(self.nodes.star(node)),
            Some(most) => {
                let optional = self.optional(node);
                parts.extend(std::iter::repeat_n(optional, most - least));
            }
        }
        let repeated = self.sequence(&parts);
        self.check_size()?;
        Ok(repeated)
    }

    fn number(&mut self) -> Result<usize, String> {
        let start = self.at;
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.letters[start..self.at].iter().collect();
        match digits.parse::<usize>() {
            Ok(number) if number <= MAX_REPEAT => Ok(number),
            Ok(_) => Err(format!("it repeats more than {MAX_REPEAT} times")),
            Err(_) => Err(format!("expected an integer at position {start}")),
        }
    }

    fn complement(&mut self) -> Result<u32, String> {
        let mut is_inverted = false;
        while self.skip('~') {
            is_inverted = !is_inverted;
        }
        let node = self.simple()?;
        Ok(if is_inverted { self.nodes.not(node) } else { node })
    }

    fn class(&mut self, ranges: &[(char, char)]) -> u32 {
        self.nodes.add(Node::Class(ranges.to_vec()))
    }

    fn simple(&mut self) -> Result<u32, String> {
        let start = self.at;
        Ok(match self.next() {
            None => return Err("it ends too early".to_owned()),
            Some('.') => self.class(&[('\0', char::MAX)]),
            Some('#') => self.nodes.add(Node::Nothing),
            Some('@') => {
                let any = self.class(&[('\0', char::MAX)]);
                self.nodes.star(any)
            }
            Some('"') => {
                let mut parts = Vec::new();
                while let Some(letter) = self.peek().filter(|letter| *letter != '"') {
                    self.at += 1;
                    parts.push(self.class(&[(letter, letter)]));
                }
                self.expect('"')?;
                self.sequence(&parts)
            }
            Some('(') if self.skip(')') => self.nodes.add(Node::Empty),
            Some('(') => {
                let inner = self.union()?;
                self.expect(')')?;
                inner
            }
            Some('[') => self.classes()?,
            Some('<') => self.interval()?,
            Some('\\') => {
                let ranges = self.escaped()?;
                self.class(&ranges)
            }
            Some('?' | '*' | '+' | '{') => {
                return Err(format!("expected an expression at position {start}"));
            }
            Some(letter) => self.class(&[(letter, letter)]),
        })
    }

    /// An interval of numbers, `<n-m>`. If both are written with as many digits, all numbers are;
    /// otherwise they may begin with any number of zeros.
    fn interval(&mut self) -> Result<u32, String> {
        let start = self.at;
        let wrong = || format!("expected two numbers, as in <1-9>, at position {start}");
        let first = self.digits().ok_or_else(wrong)?;
        self.expect('-').map_err(|_| wrong())?;
        let last = self.digits().ok_or_else(wrong)?;
        self.expect('>').map_err(|_| wrong())?;
        let number =
            |digits: &[u8]| digits.iter().fold(0_u64, |all, digit| all * 10 + u64::from(*digit));
        let (least, most) = (number(&first).min(number(&last)), number(&first).max(number(&last)));
        if first.len() == last.len() {
            return Ok(self.between(&padded(least, first.len()), &padded(most, first.len())));
        }
        let mut parts = Vec::new();
        for len in 1..=MAX_DIGITS {
            let shortest = if len == 1 { 0 } else { 10_u64.pow(len as u32 - 1) };
            let (from, to) = (least.max(shortest), most.min(10_u64.pow(len as u32) - 1));
            if from <= to {
                parts.push(self.between(&padded(from, len), &padded(to, len)));
            }
        }
        let zero = self.class(&[('0', '0')]);
        let zeros = self.nodes.star(zero);
        let numbers = self.nodes.union(parts);
        Ok(self.nodes.concat(zeros, numbers))
    }

    /// The digits of a number, if it is not too long.
    fn digits(&mut self) -> Option<Vec<u8>> {
        let mut digits = Vec::new();
        while let Some(digit) = self.peek().and_then(|letter| letter.to_digit(10)) {
            digits.push(digit as u8);
            self.at += 1;
        }
        (1..=MAX_DIGITS).contains(&digits.len()).then_some(digits)
    }

    /// The numbers between two numbers with as many digits.
    fn between(&mut self, least: &[u8], most: &[u8]) -> u32 {
        let (Some((low, low_rest)), Some((high, high_rest))) =
            (least.split_first(), most.split_first())
        else {
            return self.nodes.add(Node::Empty);
        };
        let digit = |digit: u8| char::from(b'0' + digit);
        if low == high {
            let (first, rest) =
                (self.class(&[(digit(*low), digit(*low))]), self.between(low_rest, high_rest));
            return self.nodes.concat(first, rest);
        }
        let mut parts = Vec::new();
        for (from, to, least, most) in [
            (*low, *low, low_rest.to_vec(), vec![9; low_rest.len()]),
            (low + 1, high - 1, vec![0; low_rest.len()], vec![9; low_rest.len()]),
            (*high, *high, vec![0; low_rest.len()], high_rest.to_vec()),
        ] {
            if from <= to {
                let (first, rest) =
                    (self.class(&[(digit(from), digit(to))]), self.between(&least, &most));
                parts.push(self.nodes.concat(first, rest));
            }
        }
        self.nodes.union(parts)
    }

    /// What a backslash and the next character stand for.
    fn escaped(&mut self) -> Result<Vec<(char, char)>, String> {
        Ok(match self.next() {
            None => return Err("it ends with a backslash".to_owned()),
            Some('d') => DIGITS.to_vec(),
            Some('D') => inverted(DIGITS),
            Some('s') => SPACES.to_vec(),
            Some('S') => inverted(SPACES),
            Some('w') => WORDS.to_vec(),
            Some('W') => inverted(WORDS),
            Some(letter) if letter.is_ascii_alphabetic() => {
                return Err(format!("invalid character class \\{letter}"));
            }
            Some(letter) => vec![(letter, letter)],
        })
    }

    /// The classes in brackets.
    fn classes(&mut self) -> Result<u32, String> {
        let is_inverted = self.skip('^');
        let mut ranges: Vec<(char, char)> = Vec::new();
        while ranges.is_empty() || self.peek() != Some(']') {
            let first = match self.next() {
                None => return Err("expected \"]\"".to_owned()),
                Some('\\') => {
                    let escaped = self.escaped()?;
                    match escaped.as_slice() {
                        [(first, last)] if first == last => *first,
                        _ => {
                            ranges.extend(escaped);
                            continue;
                        }
                    }
                }
                Some(letter) => letter,
            };
            let is_range = self.peek() == Some('-')
                && self.letters.get(self.at + 1).is_some_and(|letter| *letter != ']');
            let last = match is_range {
                false => first,
                true => {
                    self.at += 1;
                    match self.next() {
                        Some('\\') => self.escaped()?.first().map_or(first, |range| range.0),
                        letter => letter.unwrap_or(first),
                    }
                }
            };
            if first > last {
                return Err(format!("invalid range at position {}", self.at));
            }
            ranges.push((first, last));
        }
        self.expect(']')?;
        ranges.sort_unstable();
        ranges.dedup();
        Ok(match is_inverted {
            true => self.class(&inverted(&ranges)),
            false => self.class(&ranges),
        })
    }
}

/// The digits of a number, with zeros before it.
fn padded(number: u64, len: usize) -> Vec<u8> {
    format!("{number:0len$}").bytes().map(|digit| digit - b'0').collect()
}

/// The characters that are in none of these ranges, which are sorted.
fn inverted(ranges: &[(char, char)]) -> Vec<(char, char)> {
    let mut rest = Vec::new();
    let mut next = Some('\0');
    for (first, last) in ranges {
        let Some(from) = next else { break };
        if from < *first
            && let Some(to) = before(*first)
        {
            rest.push((from, to));
        }
        next = after(*last).map(|after| after.max(from));
    }
    rest.extend(next.map(|from| (from, char::MAX)));
    rest
}

fn before(letter: char) -> Option<char> {
    let number = u32::from(letter).checked_sub(1)?;
    char::from_u32(number).or(char::from_u32(0xD7FF))
}

fn after(letter: char) -> Option<char> {
    let number = u32::from(letter) + 1;
    char::from_u32(number).or(char::from_u32(0xE000).filter(|_| number < 0xE000))
}
