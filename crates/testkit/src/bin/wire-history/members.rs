//! The servers of a history: one, or several members of a set over one PostgreSQL, of which the
//! primary or a secondary is ended.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mayfly_testkit::dialect::parsed;
use mayfly_testkit::outside::{Connection, Server};
use mayfly_value::RawValue;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::line::Network;

/// The longest time until there is a primary again.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// The servers.
pub(crate) struct Members {
    servers: Vec<Server>,
    /// Which of them is the primary.
    primary: usize,
    pub(crate) kills: u32,
    pub(crate) stops: u32,
    pub(crate) takeovers: u32,
}

impl Members {
    /// Starts this number of servers, each with a folder in this one.
    pub(crate) fn start(
        count: usize,
        program: &Path,
        arguments: &[String],
        folder: &Path,
        network: &Network,
    ) -> Result<Members, String> {
        let mut servers = Vec::new();
        for number in 0..count {
            let own = folder.join(format!("server{number}"));
            std::fs::create_dir(&own).map_err(|error| error.to_string())?;
            let mut arguments = arguments.to_vec();
            if count > 1 {
                let port = free_port()?;
                let address = format!("127.0.0.1:{port}");
                arguments.extend(
                    ["--storageStandby", "--replSet", "rs0", "--advertise", &address, "--port"]
                        .map(str::to_owned),
                );
                arguments.push(port.to_string());
            }
            servers.push(Server::start(program, &arguments, &own)?);
        }
        let (primary, kills, stops, takeovers) = (0, 0, 0, 0);
        let members = Members { servers, primary, kills, stops, takeovers };
        members.note(network);
        Ok(members)
    }

    /// Kills or stops a server and starts it again.
    pub(crate) fn end_one(
        &mut self,
        random: &mut SmallRng,
        network: &Network,
    ) -> Result<(), String> {
        let which = match random.random_bool(0.3) {
            true => random.random_range(0..self.servers.len()),
            false => self.primary,
        };
        match random.random_bool(0.2) {
            true => {
                self.servers[which].stop()?;
                self.stops += 1;
            }
            false => {
                self.servers[which].kill()?;
                self.kills += 1;
            }
        }
        if which == self.primary && self.servers.len() > 1 {
            self.primary = self.other_primary(which)?;
            self.takeovers += 1;
            self.note(network);
        }
        self.servers[which].restart()?;
        self.note(network);
        Ok(())
    }

    /// Kills all servers and starts them again.
    pub(crate) fn kill_all(&mut self, network: &Network) -> Result<(), String> {
        for server in &mut self.servers {
            server.kill()?;
            self.kills += 1;
        }
        for server in &mut self.servers {
            server.restart()?;
        }
        self.primary = 0;
        self.note(network);
        Ok(())
    }

    /// Stops all servers; returns what their logs must not contain.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        // The primary last: otherwise another one would become it.
        for at in (0..self.servers.len()).filter(|at| *at != self.primary).chain([self.primary]) {
            wrong.extend(self.servers[at].stop().err());
        }
        let several = self.servers.len() > 1;
        let expected = |line: &String| several && line.contains("another server has taken");
        for server in &self.servers {
            wrong.extend(server.complaints().into_iter().filter(|line| !expected(line)));
        }
        wrong
    }

    /// The member that has become the primary after this one has ended.
    fn other_primary(&self, ended: usize) -> Result<usize, String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let others = (0..self.servers.len()).filter(|at| *at != ended);
            if let Some(found) = others.into_iter().find(|at| is_primary(self.servers[*at].port)) {
                return Ok(found);
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("no other member became the primary within {PATIENCE:?}"))
    }

    fn note(&self, network: &Network) {
        network.port.store(self.servers[self.primary].port, Ordering::Release);
        let others = (0..self.servers.len()).filter(|at| *at != self.primary);
        *network.secondaries.write() = others.map(|at| self.servers[at].port).collect();
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

fn is_primary(port: u16) -> bool {
    let Ok(mut connection) = Connection::open(port, PATIENCE) else { return false };
    let reply = connection.ask("admin", parsed("{hello: 1}").as_doc());
    reply.is_ok_and(|reply| reply.as_doc().get("isWritablePrimary") == Some(RawValue::Bool(true)))
}
