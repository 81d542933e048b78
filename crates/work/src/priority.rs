//! The priority of background threads.

/// Lowers the priority of this thread, so that clients' commands precede it when there are fewer
/// processors than busy threads. `niceness` is that of `setpriority`, 1 to 19; `thread` names the
/// thread in the warning of a failure.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
pub fn give_way(thread: &str, niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::setpriority_process(Some(rustix::thread::gettid()), niceness)
    {
        tracing::warn!(%error, thread, "the priority of a thread could not be lowered");
    }
}
