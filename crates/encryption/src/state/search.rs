//! The search for the newest count of a value, EmuBinary in MongoDB's paper.
//!
//! 1. Read the null anchor. Anchors begin after its position, or at 1.
//! 2. Look for the last anchor. The positions of anchors have no gaps, so a binary search finds it:
//!    first in growing steps (1, 2, 4 ... beyond the start) until an anchor is absent, then between
//!    the last present and the first absent one.
//! 3. Look for the last non-anchor in the same way, beyond the count in the last anchor, or in the
//!    null anchor, or 0.
//!
//! The searches of several values advance together, so that each round is one batch of look-ups.

use mayfly_base::{Error, Result};

use super::records::{EscId, EscRecord, StateTokens};

/// Reads the collection of counts.
pub trait EscReader {
    /// The documents with these ids, in the order of the ids; `None` for those that do not exist.
    /// The ids of one call can repeat.
    ///
    /// # Errors
    /// Errors of the store.
    fn read(&mut self, ids: &[EscId]) -> Result<Vec<Option<EscRecord>>>;
}

/// What the state has of one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Positions {
    /// The null anchor, if a cleanup has made one.
    pub(crate) null: Option<NullAnchor>,
    /// The position of the newest anchor, that of the null anchor if there is no newer one, or 0.
    pub(crate) anchor: u64,
    /// The count in that anchor: non-anchors up to it are no longer needed.
    pub(crate) anchored: u64,
    /// The newest count: how often the value was inserted. 0 if never.
    pub(crate) count: u64,
}

/// The content of a null anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NullAnchor {
    /// The last position whose anchor a cleanup has deleted.
    pub(crate) position: u64,
    /// The count in that anchor.
    pub(crate) count: u64,
}

/// The positions of each value, in the order of the tokens.
pub(crate) fn find_positions(
    tokens: &[StateTokens],
    reader: &mut dyn EscReader,
) -> Result<Vec<Positions>> {
    let mut searches: Vec<Search> = tokens.iter().map(Search::new).collect();
    loop {
        let mut open: Vec<&mut Search> =
            searches.iter_mut().filter(|search| search.step != Step::Done).collect();
        if open.is_empty() {
            return Ok(searches.into_iter().map(|search| search.found).collect());
        }
        let ids = open.iter().map(|search| search.probe()).collect::<Result<Vec<_>>>()?;
        let records = reader.read(&ids)?;
        if records.len() != ids.len() {
            return Err(Error::internal("a reader of encrypted state returned another number"));
        }
        for (search, record) in open.iter_mut().zip(records) {
            search.advance(record)?;
        }
    }
}

struct Search {
    tokens: StateTokens,
    step: Step,
    found: Positions,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    NullAnchor,
    Anchors(Gallop),
    NonAnchors(Gallop),
    Done,
}

impl Search {
    fn new(tokens: &StateTokens) -> Search {
        Search { tokens: *tokens, step: Step::NullAnchor, found: Positions::default() }
    }

    /// The id to look up next.
    fn probe(&self) -> Result<EscId> {
        match self.step {
            Step::NullAnchor => Ok(self.tokens.anchor(0)),
            Step::Anchors(gallop) => Ok(self.tokens.anchor(gallop.probe()?)),
            Step::NonAnchors(gallop) => Ok(self.tokens.non_anchor(gallop.probe()?)),
            Step::Done => Err(Error::internal("a finished search has no next position")),
        }
    }

    fn advance(&mut self, record: Option<EscRecord>) -> Result<()> {
        match &mut self.step {
            Step::NullAnchor => {
                if let Some(record) = record {
                    let (position, count) = self.tokens.decrypt_anchor(&record)?;
                    self.found.null = Some(NullAnchor { position, count });
                    self.found.anchor = position;
                    self.found.anchored = count;
                }
                self.step = Step::Anchors(Gallop::beyond(self.found.anchor));
            }
            Step::Anchors(gallop) => {
                gallop.advance(record.is_some())?;
                if let Some(record) = record {
                    self.found.anchor = gallop.present;
                    self.found.anchored = self.tokens.decrypt_anchor(&record)?.1;
                }
                if gallop.is_done() {
                    self.step = Step::NonAnchors(Gallop::beyond(self.found.anchored));
                }
            }
            Step::NonAnchors(gallop) => {
                gallop.advance(record.is_some())?;
                if gallop.is_done() {
                    self.found.count = gallop.present;
                    self.step = Step::Done;
                }
            }
            Step::Done => {}
        }
        Ok(())
    }
}

/// The search for the last present number beyond a start, where presence has no gaps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Gallop {
    start: u64,
    /// The greatest number that is present; the start counts as present.
    present: u64,
    /// The least number that is known to be absent.
    absent: Option<u64>,
}

impl Gallop {
    fn beyond(start: u64) -> Gallop {
        Gallop { start, present: start, absent: None }
    }

    fn probe(self) -> Result<u64> {
        let probe = match self.absent {
            Some(absent) => Some(self.present + (absent - self.present) / 2),
            None => {
                let distance = self.present - self.start;
                distance.checked_mul(2).and_then(|step| self.start.checked_add(step.max(1)))
            }
        };
        probe.ok_or_else(|| Error::internal("the state of encrypted fields has no end"))
    }

    fn advance(&mut self, is_present: bool) -> Result<()> {
        let probe = self.probe()?;
        match is_present {
            true => self.present = probe,
            false => self.absent = Some(probe),
        }
        Ok(())
    }

    fn is_done(self) -> bool {
        self.absent.is_some_and(|absent| absent - self.present <= 1)
    }
}
