//! Projections of plans, as clients read them.

use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use super::node::Node;
use super::tree::{Of, node};
use crate::exec::Ran;
use crate::plan::Plan;

/// A node, and the projection of what it gives.
pub(super) fn projected(of: &Of<'_>, plan: &Plan, ran: &Ran) -> Node {
    let node = node(of, plan, ran);
    match of.explained.projection {
        Some(projection) if !plan.is_covered() => {
            let (returned, over) = (ran.counters.returned, ran.counters.over);
            let stage = Node::new(projection_stage(projection)).with(|out| {
                out.append("transformBy", projection);
            });
            stage.did(returned, returned, over).over(node)
        }
        _ => node,
    }
}

/// The projection of stages that look at these paths.
pub(super) fn shown(paths: &[String]) -> DocBuf {
    let mut out = DocBuilder::new();
    for path in paths {
        out.append(path, 1);
    }
    if !paths.iter().any(|path| path == "_id") {
        out.append("_id", 0);
    }
    out.finish()
}

/// A projection of whole fields is simple.
fn projection_stage(projection: RawDoc<'_>) -> &'static str {
    let simple = projection.iter().all(|field| {
        let value = field.value();
        !field.name().contains(['.', '$']) && (value.is_number() || value.type_name() == "bool")
    });
    if simple { "PROJECTION_SIMPLE" } else { "PROJECTION_DEFAULT" }
}
