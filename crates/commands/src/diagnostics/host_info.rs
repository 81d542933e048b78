//! `hostInfo`: the machine. Compass closes the connection if it fails, so it never fails.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::machine::Memory;
use mayfly_service::usage;
use mayfly_value::{DocBuilder, RawValue};

use super::process;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("hostInfo", "Returns information about the machine", run)
        .needs(Needs::Cluster(&[Action::HostInfo]))
        .flags(RowFlags::LENIENT);

fn run(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let memory = Memory::of_system();
    let megabytes = |bytes: u64| (bytes >> 20) as i64;
    doc.start_document("system");
    doc.append("currentTime", RawValue::Date(ctx.service.clock.now_ms()));
    doc.append("hostname", process::host_name().as_str());
    doc.append("cpuAddrSize", 64);
    doc.append("memSizeMB", megabytes(memory.machine_bytes));
    doc.append("memLimitMB", megabytes(memory.usable_bytes()));
    doc.append("numCores", process::processors());
    doc.append("numCoresAvailableToProcess", process::processors());
    doc.append("numPhysicalCores", process::physical_cores());
    doc.append("numCpuSockets", process::sockets());
    doc.append("cpuArch", std::env::consts::ARCH);
    doc.append("numaEnabled", false).append("numNumaNodes", process::numa_nodes());
    doc.end();
    let (name, version) = process::os_release();
    doc.start_document("os");
    doc.append("type", if cfg!(target_os = "linux") { "Linux" } else { std::env::consts::OS });
    doc.append("name", name.as_str());
    doc.append("version", version.as_str());
    doc.end();
    doc.start_document("extra");
    doc.append("versionString", process::line("/proc/version").as_str());
    doc.append("libcVersion", "unknown");
    doc.append("kernelVersion", process::line("/proc/sys/kernel/osrelease").as_str());
    doc.append("cpuFrequencyMHz", "unknown");
    doc.append("cpuFeatures", "");
    doc.append("pageSize", usage::PAGE_BYTES as i64);
    doc.append("numPages", (memory.machine_bytes / usage::PAGE_BYTES) as i32);
    doc.append("maxOpenFiles", process::max_open_files());
    doc.end();
    Ok(())
}
