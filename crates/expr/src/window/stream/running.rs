//! Functions whose windows begin with the partition: a state to which documents are added.

use mayfly_base::Result;
use mayfly_value::{DocBuf, ValueBuf, compare_values};

use super::super::WindowFunction;
use super::super::bounds::{Bound, Bounds, RangeUnit, check_kind, range_end};
use super::super::moving::Window;
use super::{DocumentReader, OpenReader, StreamMemory};

/// The upper end of the windows.
enum WindowEnd {
    /// This many documents after the current one.
    Documents(i64),
    /// The last document of the partition.
    Partition,
    /// The last document whose value does not exceed that of the current document plus an offset.
    Range { upper: Bound, unit: Option<RangeUnit> },
}

pub(super) struct Running {
    window: Window,
    end: WindowEnd,
    /// The reader is at the current document; `None` if no result depends on that document.
    current: Option<Box<dyn DocumentReader>>,
    input: Box<dyn DocumentReader>,
    /// A document that was read and belongs to a later window.
    ahead: Option<DocBuf>,
    /// Index of the document whose result is next.
    here: i64,
}

impl Running {
    pub(super) fn new(function: &WindowFunction, open: &mut OpenReader<'_>) -> Result<Running> {
        let end = match function.bounds {
            Bounds::Documents(_, Bound::Current) => WindowEnd::Documents(0),
            Bounds::Documents(_, Bound::Offset(by)) => {
                WindowEnd::Documents(by.to_i64_exact().unwrap_or(0))
            }
            Bounds::Documents(_, Bound::Unbounded) => WindowEnd::Partition,
            Bounds::Range { upper, unit, .. } => WindowEnd::Range { upper, unit },
        };
        let reads_current = function.reads_current() || matches!(end, WindowEnd::Range { .. });
        let current = if reads_current { Some(open()?) } else { None };
        let window = Window::start(function)?;
        Ok(Running { window, end, current, input: open()?, ahead: None, here: 0 })
    }

    pub(super) fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        let current = match &mut self.current {
            Some(current) => current.next()?.unwrap_or_else(DocBuf::empty),
            None => DocBuf::empty(),
        };
        let (to, high) = match self.end {
            WindowEnd::Documents(by) => (self.here.saturating_add(by).saturating_add(1), None),
            WindowEnd::Partition => (i64::MAX, None),
            WindowEnd::Range { upper, unit } => {
                let value = function.sort_value(&current);
                check_kind(value.as_raw(), unit)?;
                match upper {
                    Bound::Current => (self.here.saturating_add(1), None),
                    upper => (i64::MAX, range_end(upper, value.as_raw(), unit)?),
                }
            }
        };
        self.here += 1;
        while (self.window.end() as i64) < to {
            let next = match self.ahead.take() {
                Some(document) => Some(document),
                None => self.input.next()?,
            };
            let Some(document) = next else { break };
            let beyond = |high: &ValueBuf| {
                compare_values(function.sort_value(&document).as_raw(), high.as_raw()).is_gt()
            };
            if high.as_ref().is_some_and(beyond) {
                self.ahead = Some(document);
                break;
            }
            self.window.push(function, &document)?;
            if !memory.holds(self.window.bytes()) {
                return Err(memory.failure());
            }
        }
        self.window.result(function, &current).map(Some)
    }
}
