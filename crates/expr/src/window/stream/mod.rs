//! Window functions over a partition that does not fit into memory: results are computed one by one
//! while the documents are read from files.
//!
//! | function | state in memory |
//! |---|---|
//! | with an unbounded lower end, `$rank` and similar ones, `$locf`, `$expMovingAvg` | the state of its window ([`running`]) |
//! | with a bounded lower end, `$shift` | that, and the documents of the window ([`sliding`]) |
//! | `$linearFill` | the gap between two values ([`Line`]) |
//!
//! A window with only a lower bound extends to the end of the partition, so the rest of the
//! partition must fit into memory.

mod line;
mod running;
mod sliding;

use mayfly_base::Result;
use mayfly_value::{DocBuf, ValueBuf};

use super::bounds::Motion;
use super::{Function, WindowFunction};
use line::Line;
use running::Running;
use sliding::Sliding;

/// Reads the documents of a partition from the first to the last.
pub trait DocumentReader: Send {
    /// The next document, with at least the fields that the function reads.
    ///
    /// # Errors
    /// Errors of files.
    fn next(&mut self) -> Result<Option<DocBuf>>;
}

/// Opens a new reader at the first document.
pub type OpenReader<'o> = dyn FnMut() -> Result<Box<dyn DocumentReader>> + 'o;

/// The memory budget of a stream.
pub trait StreamMemory {
    /// Reports the bytes that the stream holds; returns false when all streams together exceed the
    /// budget.
    fn holds(&mut self, bytes: usize) -> bool;

    /// The error for a stream that cannot continue with less memory.
    fn failure(&self) -> mayfly_base::Error;
}

/// The results of one function over one partition.
pub struct WindowStream(StreamKind);

enum StreamKind {
    Running(Running),
    Sliding(Sliding),
    Line(Line),
}

impl WindowStream {
    /// Starts at the first document.
    ///
    /// # Errors
    /// Errors of opening a reader, and of an accumulator's start.
    pub fn start(function: &WindowFunction, open: &mut OpenReader<'_>) -> Result<WindowStream> {
        Ok(WindowStream(match &function.function {
            Function::LinearFill(_) => StreamKind::Line(Line::new(open()?)),
            _ => match function.bounds.motion() {
                Motion::Slides => StreamKind::Sliding(Sliding::new(function, open()?)?),
                Motion::Grows => StreamKind::Running(Running::new(function, open)?),
            },
        }))
    }

    /// The result for the next document. Must be called once for each document of the partition.
    /// `None` means that the field is omitted.
    ///
    /// # Errors
    /// Errors of expressions and operators, of the reader, and [`StreamMemory::failure`].
    pub fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        match &mut self.0 {
            StreamKind::Running(running) => running.next(function, memory),
            StreamKind::Sliding(sliding) => sliding.next(function, memory),
            StreamKind::Line(line) => line.next(function, memory),
        }
    }
}

/// Memory of a buffered document.
fn document_bytes(document: &DocBuf) -> usize {
    size_of::<DocBuf>() + document.as_bytes().len()
}
