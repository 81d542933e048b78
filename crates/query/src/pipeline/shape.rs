//! The shapes of commands with pipelines. The row of each stage determines its shape.

use mayfly_base::Namespace;
use mayfly_value::RawDoc;

use super::row::StageRow;
use crate::language::{QueryShape, StageShape};
use crate::plan::Suggestion;

fn shape_of(stage: &str) -> StageShape {
    StageRow::find(stage).map_or(StageShape::Options, |row| row.shape)
}

impl QueryShape {
    /// The shape of a command on a collection; `None` for commands without shapes.
    pub fn of(command: &str, ns: &Namespace, body: RawDoc<'_>) -> Option<QueryShape> {
        QueryShape::with_stages(command, ns, body, shape_of)
    }
}

impl Suggestion {
    /// The index for a shape, as [`QueryShape::as_doc`] returns it.
    pub fn of(shape: RawDoc<'_>) -> Option<Suggestion> {
        Suggestion::with_stages(shape, shape_of)
    }
}
