//! Patterns of `wildcard`: `*` stands for any characters, `?` for one, `\` makes the next one stand
//! for itself.

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Letter(char),
    One,
    Many,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Glob {
        let mut parts: Vec<Part> = Vec::new();
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            parts.push(match letter {
                '*' if parts.last() == Some(&Part::Many) => continue,
                '*' => Part::Many,
                '?' => Part::One,
                '\\' => Part::Letter(letters.next().unwrap_or('\\')),
                letter => Part::Letter(letter),
            });
        }
        Glob(parts)
    }

    /// The number of its parts.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The letters with which every match begins.
    pub(crate) fn prefix(&self) -> String {
        let letters = self.0.iter().map_while(|part| match part {
            Part::Letter(letter) => Some(*letter),
            Part::One | Part::Many => None,
        });
        letters.collect()
    }

    /// Whether the pattern matches a whole text. The work is bounded by the product of the lengths.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let letters: Vec<char> = text.chars().collect();
        let (mut part, mut at) = (0, 0);
        // Where the last `*` stands, and from where on the rest is tried next.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(part), letters.get(at)) {
                (None, None) => return true,
                (Some(Part::Many), _) => {
                    retry = Some((part, at));
                    part += 1;
                }
                (Some(Part::One), Some(_)) => (part, at) = (part + 1, at + 1),
                (Some(Part::Letter(letter)), Some(found)) if letter == found => {
                    (part, at) = (part + 1, at + 1);
                }
                _ => match retry {
                    Some((many, from)) if from < letters.len() => {
                        retry = Some((many, from + 1));
                        (part, at) = (many + 1, from + 1);
                    }
                    _ => return false,
                },
            }
        }
    }
}
