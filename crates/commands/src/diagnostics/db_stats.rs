//! `dbStats`: the sizes of a database and of its file system.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::Service;
use mayfly_storage::LogSizes;
use mayfly_storage::ReadView;
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

use super::scale::{SCALE, bytes, scale};
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("dbStats", "Returns the sizes of a database", run)
    .arguments(&[SCALE, Argument::flag("freeStorage")])
    .needs(Needs::Database(&[Action::DbStats]))
    .aliases(&["dbstats"])
    .reads(Reads::PREFERENCE.union(Reads::COMMITTED))
    .expected(Expected::Long);

/// Totals of all collections.
#[derive(Default)]
struct Sums {
    collections: i64,
    objects: i64,
    data: i64,
    storage: i64,
    indexes: i64,
    index_bytes: i64,
}

impl Sums {
    /// Adds the operation log, which is a collection of `local` without an index.
    fn add_log(&mut self, log: &LogSizes, stored_bytes: u64) {
        self.collections += 1;
        self.objects += log.entries;
        self.data += log.bytes;
        self.storage += bytes(stored_bytes);
    }
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let scale = scale(&fields)?;
    let free = fields.bool("freeStorage")?.unwrap_or(false);
    let mut sums = Sums::default();
    for collection in ctx.service.store.collections(Some(request.db)) {
        let sizes = ctx.service.store.sizes(ctx.op, &collection)?;
        sums.collections += 1;
        sums.objects += sizes.documents;
        sums.data += sizes.data_bytes;
        sums.storage += bytes(sizes.storage_bytes);
        sums.indexes += sizes.indexes.len() as i64 + 1;
        sums.index_bytes += bytes(sizes.id_index_bytes.unwrap_or(0));
        sums.index_bytes += sizes.indexes.iter().map(|(_, size)| bytes(*size)).sum::<i64>();
    }
    if request.db == "local" {
        let store = &ctx.service.store;
        sums.add_log(&store.oplog().sizes()?, store.oplog_bytes()?);
    }
    let views = views(ctx.service, request.db)?;
    let scaled = |bytes: i64| bytes as f64 / scale as f64;
    let average = if sums.objects == 0 { 0.0 } else { sums.data as f64 / sums.objects as f64 };
    doc.append("db", request.db).append("collections", sums.collections).append("views", views);
    doc.append("objects", sums.objects).append("avgObjSize", average);
    doc.append("dataSize", scaled(sums.data)).append("storageSize", scaled(sums.storage));
    if free {
        doc.append("freeStorageSize", 0.0);
    }
    doc.append("indexes", sums.indexes).append("indexSize", scaled(sums.index_bytes));
    if free {
        doc.append("indexFreeStorageSize", 0.0);
    }
    doc.append("totalSize", scaled(sums.storage + sums.index_bytes));
    if free {
        doc.append("totalFreeStorageSize", 0.0);
    }
    doc.append("scaleFactor", scale);
    let (used, total) = if sums.collections > 0 { disk(ctx.service) } else { (0, 0) };
    doc.append("fsUsedSize", scaled(used)).append("fsTotalSize", scaled(total));
    Ok(())
}

/// The number of views of a database, including time series, which clients read the same way.
fn views(service: &Service, db: &str) -> Result<i64> {
    let views = service.store.views(&ReadView::now(), db)?.len();
    let collections = service.store.collections(Some(db));
    let series = collections.iter().filter(|collection| collection.time_series().is_some());
    Ok((views + series.count()) as i64)
}

/// Used and total bytes of the file system of the data; zeros if data is in memory only.
fn disk(service: &Service) -> (i64, i64) {
    let Some(folder) = service.data_folder.get() else { return (0, 0) };
    match fs4::statvfs(folder) {
        Ok(stats) => {
            let total = stats.total_space();
            (bytes(total.saturating_sub(stats.free_space())), bytes(total))
        }
        Err(_) => (0, 0),
    }
}
