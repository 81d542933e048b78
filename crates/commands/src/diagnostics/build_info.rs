//! `buildInfo`: the version that clients check, and this server's own version. Unlike in MongoDB
//! 8.2 it needs no login, because drivers such as Java 3.x ask for it before they log in.

use mayfly_base::{Result, limits};
use mayfly_value::{DocBuilder, RawDoc};

use crate::context::{Command, CommandContext};
use crate::request::row::{InTransaction, RowFlags};
use crate::request::{Needs, Request};

/// The version of the reference whose behaviour this server implements; it belongs to
/// `maxWireVersion` 27.
pub const VERSION: &str = "8.2.0";
const VERSION_PARTS: [i32; 4] = [8, 2, 0, 0];

pub(crate) const ROW: Command = Command::new("buildInfo", "Returns version and build", run)
    .needs(Needs::Nothing)
    .aliases(&["buildinfo"])
    .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT))
    .in_transaction(InTransaction::Informational);

fn run(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    doc.append("version", VERSION);
    doc.append("gitVersion", option_env!("MAYFLYDB_GIT_VERSION").unwrap_or("unknown"));
    doc.start_array("modules").end();
    doc.append("allocator", "mimalloc");
    let engine = if ctx.service.settings.script_limits().enabled { "quickjs" } else { "none" };
    doc.append("javascriptEngine", engine);
    doc.append("sysInfo", "deprecated");
    doc.start_array("versionArray");
    for part in VERSION_PARTS {
        doc.push(part);
    }
    doc.end();
    doc.append("openssl", RawDoc::EMPTY);
    doc.start_document("buildEnvironment");
    doc.append("target_arch", std::env::consts::ARCH);
    doc.append("target_os", std::env::consts::OS);
    doc.end();
    doc.append("bits", 64);
    doc.append("debug", cfg!(debug_assertions));
    doc.append("maxBsonObjectSize", limits::MAX_USER_DOCUMENT_BYTES as i32);
    doc.start_array("storageEngines").push("memory").push("rocksdb").end();
    // Our version; tools display it without further effect.
    doc.start_document("mayflydb").append("version", env!("CARGO_PKG_VERSION")).end();
    Ok(())
}
