//! The shapes of commands with pipelines. The row of each stage determines its shape.

use mayfly_base::Namespace;
use mayfly_value::RawDoc;

use super::row::StageRow;
use crate::language::{QueryShape, StageShape};

impl QueryShape {
    /// The shape of a command on a collection; `None` for commands without shapes.
    pub fn of(command: &str, ns: &Namespace, body: RawDoc<'_>) -> Option<QueryShape> {
        let shape_of =
            |name: &str| StageRow::find(name).map_or(StageShape::Options, |row| row.shape);
        QueryShape::with_stages(command, ns, body, shape_of)
    }
}
