//! Programs that test the server from outside: its process, and messages over blocking sockets.

use std::process::ExitCode;

mod process;
mod server;
mod tasks;
mod wire;

pub use process::Process;
pub use server::Server;
pub use tasks::{TaskConnection, decode};
pub use wire::{Connection, batch, message};

/// Prints the faults that a run has found, or why it could not continue; returns the exit code of
/// the program.
pub fn ended(run: Result<Vec<String>, String>, seed: u64) -> ExitCode {
    match run {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            println!("{} things are wrong (seed {seed}):", wrong.len());
            wrong.iter().take(20).for_each(|wrong| println!("{wrong}"));
            ExitCode::FAILURE
        }
        Err(why) => {
            println!("{why} (seed {seed})");
            ExitCode::from(2)
        }
    }
}
