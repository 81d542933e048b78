//! Projections in explained plans.

use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use super::Explained;
use super::node::Node;
use super::tree::{ExplainContext, node};
use crate::exec::NodeStats;
use crate::plan::Plan;

/// The stages of a node with the projection above them.
pub(super) fn projected(of: &ExplainContext<'_>, plan: &Plan, ran: &NodeStats) -> Node {
    let node = node(of, plan, ran);
    match of.explained.projection {
        Some(projection) if !plan.is_covered() && !of.explained.projects_written() => {
            let (returned, over) = (ran.counters.returned, ran.counters.over);
            let stage = Node::new(projection_stage(projection)).with(|out| {
                out.append("transformBy", projection);
            });
            stage.did(returned, returned, over).over(node)
        }
        _ => node,
    }
}

/// The stages of a write with the projection of the returned document above them.
pub(super) fn written(explained: &Explained<'_>, node: Node) -> Node {
    let Some(projection) = explained.projection.filter(|_| explained.projects_written()) else {
        return node;
    };
    let stage = Node::new("PROJECTION_DEFAULT").with(|out| {
        out.append("transformBy", projection);
    });
    let (returned, over) = (node.returned, node.at_end);
    stage.did(returned, returned, over).over(node)
}

/// The projection that stages with these paths need.
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

/// A projection is simple if it includes or excludes top-level fields.
fn projection_stage(projection: RawDoc<'_>) -> &'static str {
    let simple = projection.iter().all(|field| {
        let value = field.value();
        !field.name().contains(['.', '$']) && (value.is_number() || value.type_name() == "bool")
    });
    if simple { "PROJECTION_SIMPLE" } else { "PROJECTION_DEFAULT" }
}
