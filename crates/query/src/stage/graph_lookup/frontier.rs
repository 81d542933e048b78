//! The values of one level of a `$graphLookup`. They spill to a file.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, ValueBuf};
use mayfly_work::spill::Operator;

use super::search::too_much;
use crate::memory::{Share, Spool, SpoolWriter};
use crate::stage::StageContext;

/// Approximate memory of a value beyond its bytes.
const VALUE_BYTES: usize = 40;
/// Bytes of values in one filter.
const PART_BYTES: usize = 1 << 20;

/// Collects the values of the next level, in memory and then in a file.
pub(super) struct Frontier {
    values: Vec<ValueBuf>,
    bytes: usize,
    share: Share,
    spool: Option<SpoolWriter>,
}

impl Frontier {
    pub(super) fn new(context: &StageContext<'_>) -> Frontier {
        let share = context.settings.budget.share(Operator::GraphLookup);
        Frontier { values: Vec::new(), bytes: 0, share, spool: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn push(&mut self, value: ValueBuf, context: &StageContext<'_>) -> Result<()> {
        let size = value.data().len() + VALUE_BYTES;
        if self.spool.is_none() && (!self.share.is_over(self.bytes + size) || self.is_empty()) {
            self.bytes += size;
            self.values.push(value);
            return Ok(());
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => {
                let folder = self.share.folder()?;
                let folder = folder.ok_or_else(|| self.share.failure(too_much))?;
                let spool = SpoolWriter::new(folder)?;
                self.share.count(context.session.op, spool.spilled());
                self.spool.insert(spool)
            }
        };
        let mut out = DocBuilder::new();
        out.append("v", &value);
        let before = spool.spilled();
        spool.push(out.finish().as_doc())?;
        self.share.count(context.session.op, spool.spilled().since(before));
        Ok(())
    }

    pub(super) fn read(self) -> Result<Level> {
        let spool = self.spool.map(SpoolWriter::finish).transpose()?;
        Ok(Level { values: self.values.into_iter(), spool, _share: self.share })
    }
}

/// Returns the values of a level.
pub(super) struct Level {
    values: std::vec::IntoIter<ValueBuf>,
    spool: Option<Spool>,
    _share: Share,
}

impl Level {
    /// The next values, as many as fit one filter; empty at the end.
    pub(super) fn part(&mut self) -> Result<Vec<ValueBuf>> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < PART_BYTES {
            let value = match (self.values.next(), &mut self.spool) {
                (Some(value), _) => value,
                (None, None) => break,
                (None, Some(spool)) => match spool.next()?.and_then(|entry| entry.get("v")) {
                    Some(value) => value.to_owned(),
                    None => break,
                },
            };
            bytes += value.data().len() + VALUE_BYTES;
            part.push(value);
        }
        Ok(part)
    }
}
