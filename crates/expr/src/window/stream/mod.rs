//! Window functions over a partition that does not fit memory: results one by one, while the documents are read from files.
//!
//! | function | what stays in memory |
//! |---|---|
//! | with an unbounded lower end, `$rank` and its like, `$locf`, `$expMovingAvg` | its running state ([`running`]) |
//! | with a bounded lower end, `$shift` | the documents that the window reaches ([`sliding`]) |
//! | `$linearFill` | the gap between two values ([`Line`]) |
//!
//! A window that is bounded below only reaches to the end of the partition, so that the rest of the partition has to fit memory.

mod line;
mod running;
mod sliding;

use mayfly_base::Result;
use mayfly_value::{DocBuf, ValueBuf};

use super::bounds::{Bound, Bounds};
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

/// What a stream may use.
pub trait StreamMemory {
    /// Notes how many bytes the stream holds now; false when the streams together hold too much.
    fn holds(&mut self, bytes: usize) -> bool;

    /// Whether the stream may buffer so many bytes for speed, although it could go on with less.
    fn has_room(&self, bytes: usize) -> bool;

    /// The error for a stream that cannot go on with less memory.
    fn failure(&self) -> mayfly_base::Error;
}

/// The results of one function over one partition.
pub struct WindowStream(Kind);

enum Kind {
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
        let unbounded_below = matches!(
            function.bounds,
            Bounds::Documents(Bound::Unbounded, _) | Bounds::Range { lower: Bound::Unbounded, .. }
        );
        Ok(WindowStream(match &function.function {
            Function::LinearFill(_) => Kind::Line(Line::new(open()?)),
            Function::Shift { .. } => Kind::Sliding(Sliding::new(open()?)),
            Function::Rank(_) | Function::Locf(_) | Function::Fading { .. } => {
                Kind::Running(Running::new(function, open)?)
            }
            Function::Accumulate(_)
            | Function::Derivative { .. }
            | Function::Integral { .. }
            | Function::Covariance { .. } => match unbounded_below {
                true => Kind::Running(Running::new(function, open)?),
                false => Kind::Sliding(Sliding::new(open()?)),
            },
        }))
    }

    /// The result for the next document; it is called once for each document of the partition. Nothing means that the field is
    /// left out.
    ///
    /// # Errors
    /// Errors of expressions and operators, of the reader, and the failure of the memory.
    pub fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        match &mut self.0 {
            Kind::Running(running) => running.next(function, memory),
            Kind::Sliding(sliding) => sliding.next(function, memory),
            Kind::Line(line) => line.next(function, memory),
        }
    }
}

/// Memory of a buffered document with its bytes.
fn document_bytes(document: &DocBuf) -> usize {
    size_of::<DocBuf>() + document.as_bytes().len()
}
