//! `checkMetadataConsistency`: answered like a router with one shard, whose metadata cannot differ
//! between shards.

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, Number};

use super::sharding::check_router;
use crate::context::{Command, CommandContext};
use crate::request::arguments::CURSOR;
use crate::request::row::Names;
use crate::request::{Demands, Needs, Request};

pub(super) const ROW: Command =
    Command::new("checkMetadataConsistency", "Compares the metadata of the shards", run)
        .arguments(&[
            Argument::fields("cursor", CURSOR),
            Argument::bool("checkIndexes"),
            Argument::bool("checkRangeDeletionIndexes").since("8.1"),
        ])
        .needs(Needs::Demands(demands))
        .names(Names::Collection)
        .since("7.0");

fn demands(demands: &mut Demands<'_>, request: &Request<'_>) {
    let action = Action::CheckMetadataConsistency;
    let part = match request.target().as_str() {
        _ if request.db == "admin" => Target::Cluster,
        Some(collection) => Target::Collection(request.db, collection),
        None => Target::Database(request.db),
    };
    demands.need_any(&[(Target::Cluster, action), (part, action)]);
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    check_router(ctx, request)?;
    let ns = match Number::from_value(request.target()) {
        Some(_) => Namespace::new(request.db, "$cmd.aggregate")?,
        None if request.db == "admin" => {
            let text = format!(
                "{} command on admin database can only be run without collection name. Found unexpected collection name: {}",
                request.name,
                request.target().as_str().unwrap_or_default()
            );
            return Err(Error::new(ErrorCode::InvalidNamespace, text));
        }
        None => request.namespace()?,
    };
    for flag in ["checkIndexes", "checkRangeDeletionIndexes"] {
        fields.bool(flag)?;
    }
    reply.start_document("cursor").append("id", 0i64).append("ns", ns.as_str());
    reply.start_array("firstBatch").end().end();
    Ok(())
}
