//! Runs one path through the server many times in this process, so that its instructions can be
//! counted:
//!
//! ```text
//! message bytes -> codec -> dispatch -> handler -> store -> RocksDB in a temporary folder -> reply bytes
//! ```
//!
//! There are no sockets and no runtime: one thread does what the connection loop does for each
//! message. Background threads are those of RocksDB and the one that syncs the log. The counted
//! work runs inside [`measured`] on the main thread, so that a profiler (`scripts/instructions`)
//! can ignore everything else.
//!
//! ```text
//! paths list             names, how often each is run, how many units that is, what it is
//! paths NAME ITERATIONS  runs a path
//! ```

mod documents;
mod path;
mod server;

use std::hint::black_box;
use std::process::ExitCode;

use mayfly_server::allocator::Counting;
use path::{Path, Work};
use server::Server;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for path in path::ALL {
                let Path { name, iterations, units, title, .. } = path;
                println!("{name} {iterations} {units} {title}");
            }
            ExitCode::SUCCESS
        }
        [name, iterations] => {
            match (path::ALL.iter().find(|path| path.name == name), iterations.parse()) {
                (Some(path), Ok(iterations)) => {
                    run(path, iterations);
                    ExitCode::SUCCESS
                }
                (None, _) => complain(&format!("there is no path '{name}'")),
                (_, Err(error)) => complain(&format!("'{iterations}' iterations: {error}")),
            }
        }
        _ => complain("usage: paths list | paths NAME ITERATIONS"),
    }
}

fn complain(why: &str) -> ExitCode {
    eprintln!("paths: {why}");
    ExitCode::FAILURE
}

fn run(path: &Path, iterations: u32) {
    let mut server = Server::new();
    match (path.prepare)(&mut server, iterations) {
        Work::Messages { messages, check } => {
            measured(&mut || {
                for message in &messages {
                    server.serve(black_box(message));
                }
            });
            check(&server.last_reply());
        }
        Work::TtlPass => {
            measured(&mut || server.ttl_pass());
            server.expect_expired(iterations);
        }
    }
}

/// Runs the counted work. `scripts/instructions` refers to it by name.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}
