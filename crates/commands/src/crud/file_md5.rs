//! `filemd5`: the MD5 digest of a file of GridFS. Manual: "filemd5".

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{CanonicalQuery, Executor, FindOptions, Flow};
use mayfly_storage::Collection;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};
use md5::{Digest, Md5};

use super::view::budget;
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Names, Reads};
use crate::request::{Demands, Needs, Request};

pub(crate) const ROW: Command =
    Command::new("filemd5", "Returns the MD5 digest of a file in GridFS", run)
        .arguments(&[Argument::string("root")])
        .needs(Needs::Demands(demands))
        .reads(Reads::PREFERENCE)
        .names(Names::Word)
        .expected(Expected::Long);

/// The collection of chunks.
fn chunks(request: &Request<'_>) -> String {
    let root = request.body.get("root").and_then(RawValue::as_str).unwrap_or("fs");
    [root, ".chunks"].concat()
}

fn demands(demands: &mut Demands<'_>, request: &Request<'_>) {
    demands.need(Target::Collection(request.db, &chunks(request)), Action::Find);
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    fields.string("root")?;
    let ns = Namespace::new(request.db, &chunks(request))?;
    let (mut digest, mut count) = (Md5::new(), 0i32);
    if let Some(collection) = ctx.store.collection(&ns) {
        if !has_index(&collection) {
            let text = "need an index on { files_id : 1 , n : 1 }";
            return Err(Error::new(ErrorCode::NoQueryExecutionPlans, text));
        }
        let mut filter = DocBuilder::new();
        filter.start_document("files_id").append("$eq", request.target()).end();
        let mut sort = DocBuilder::new();
        sort.append("n", 1);
        let sort = sort.finish();
        let options = FindOptions { sort: Some(sort.as_doc()), ..FindOptions::default() };
        let query = CanonicalQuery::parse(filter.finish().as_doc(), options)?;
        let mut executor = Executor::new(ctx.store.view, collection, query)?;
        executor.use_budget(budget(ctx, None));
        while !executor.is_done() {
            executor.run(ctx.store, &mut |_, chunk, _| {
                digest.update(data_of(chunk, count)?);
                count += 1;
                Ok(Flow::More)
            })?;
        }
    }
    reply.append("numChunks", count).append("md5", hex::encode(digest.finalize()).as_str());
    Ok(())
}

/// Whether an index gives the chunks of a file in their order.
fn has_index(collection: &Collection) -> bool {
    collection.indexes().iter().any(|index| {
        let fields = index.spec.fields();
        let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        index.is_ready() && !index.is_partial() && paths == ["files_id", "n"]
    })
}

/// The bytes of the chunk with this number.
///
/// # Errors
/// 10040 if another chunk follows, 50848 for a chunk without data, 50849 for other data.
fn data_of(chunk: RawDoc<'_>, number: i32) -> Result<&[u8]> {
    let found = chunk.get("n").and_then(Number::from_value).and_then(Number::to_i64_exact);
    if found != Some(i64::from(number)) {
        let text = format!("chunks out of order, expected chunk {number}");
        return Err(Error::new(ErrorCode(10040), text));
    }
    match chunk.get("data") {
        Some(RawValue::Binary { bytes, .. }) => Ok(bytes),
        None => {
            let text = format!("Chunk {number} has no data");
            Err(Error::new(ErrorCode(50848), text))
        }
        Some(other) => {
            let kind = other.type_name();
            let text = format!("Chunk {number} should have data of type binData, found {kind}");
            Err(Error::new(ErrorCode(50849), text))
        }
    }
}
