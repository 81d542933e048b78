//! Programs that test the server from outside: its process, and messages over blocking sockets.

mod server;
mod wire;

pub use server::Server;
pub use wire::Connection;
