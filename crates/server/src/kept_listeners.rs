//! Listening sockets that stay open while the program begins again.
//!
//! A member of a replica set begins again when it becomes the primary, and when it was replaced
//! ([`crate::standby`]). Clients that connect meanwhile wait for the new program. If they were
//! refused, drivers would try again half a second later, and some would report an error.
//!
//! The numbers of the sockets' descriptors are in the environment of the new program, which is the
//! same process:
//!
//! ```text
//! MAYFLYDB_LISTENERS=PID FD FD ...
//! ```

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::process::Command;
use std::sync::Arc;

use rustix::io::{FdFlags, fcntl_setfd};

/// The environment variable with the numbers.
pub(crate) const VARIABLE: &str = "MAYFLYDB_LISTENERS";

/// The sockets. They are closed when this is dropped.
#[derive(Default)]
pub struct KeptListeners(Vec<TcpListener>);

impl KeptListeners {
    /// The sockets that the previous program of this process has left open. Must be called once,
    /// before other processes are started.
    pub fn of_previous_program() -> KeptListeners {
        let value = std::env::var(VARIABLE).unwrap_or_default();
        let mut numbers = value.split(' ').map_while(|number| number.parse::<RawFd>().ok());
        // A child process has the variable as well, but not the sockets.
        if numbers.next().and_then(|id| u32::try_from(id).ok()) != Some(std::process::id()) {
            return KeptListeners::default();
        }
        #[allow(unsafe_code, reason = "takes descriptors over by their numbers")]
        // SAFETY: `pass_on` has left these descriptors open for this program, which is the same
        // process, and no other part of it knows their numbers.
        let listeners = numbers.map(|number| unsafe { TcpListener::from_raw_fd(number) });
        KeptListeners(listeners.filter(|it| fcntl_setfd(it, FdFlags::CLOEXEC).is_ok()).collect())
    }

    /// Keeps these sockets open.
    pub(crate) fn keep(listeners: &[Arc<tokio::net::TcpListener>]) -> KeptListeners {
        let duplicates = listeners.iter().filter_map(|it| it.as_fd().try_clone_to_owned().ok());
        KeptListeners(duplicates.map(TcpListener::from).collect())
    }

    /// The socket that listens on this address. It stays open as long as one of both is.
    pub(crate) fn listener(&self, address: SocketAddr) -> Option<tokio::net::TcpListener> {
        let is_it = |it: &&TcpListener| it.local_addr().is_ok_and(|bound| bound == address);
        let found = self.0.iter().find(is_it)?.try_clone().ok()?;
        tokio::net::TcpListener::from_std(found).ok()
    }

    /// Leaves the sockets to the program that replaces this one in its process.
    pub(crate) fn pass_on(&self, program: &mut Command) {
        let mut value = std::process::id().to_string();
        for listener in &self.0 {
            // A socket that cannot be passed on is closed, and opened again by the new program.
            if fcntl_setfd(listener, FdFlags::empty()).is_ok() {
                value = format!("{value} {}", listener.as_raw_fd());
            }
        }
        program.env(VARIABLE, value);
    }
}
