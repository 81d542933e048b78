//! The load generator `mayfly-bench`: runs loads against a server, and reports their costs and
//! whether budgets are met.
//!
//! ```text
//! mayfly-bench --server target/release/mayflydb table              its own server over a temporary folder
//! mayfly-bench --uri mongodb://127.0.0.1:27017 table               any server; costs only when it runs here
//! mayfly-bench --server mongod --only find,ttl --quick table       some of the work, shorter
//! mayfly-bench --server mayflydb table --budget --runs 5           the verdict about the budgets
//! mayfly-bench compare old/mayflydb new/mayflydb --runs 5          two servers by turns, and their ratios
//! mayfly-bench --server mayflydb --only stall --seconds 60 --plot stall.svg table
//! ```
//!
//! The cost of a load is the CPU time that the operating system counted for the server's process.
//! On a shared machine with few cores, throughput depends on the other users of the machine as
//! well. Clients that wait for a reply before the next request send fewer requests to a stalled
//! server (coordinated omission). The figures "corrected p99" and "corrected p99.9" therefore
//! include the requests that were not sent, and with `--rate` requests are sent at fixed times.

mod budget;
mod caller;
mod client;
mod compare;
mod documents;
mod engine;
mod figures;
mod latency;
mod launch;
mod load;
mod plot;
mod process;
mod run;
mod series;
mod server;
mod statistics;
mod table;
mod timeline;
mod wire;
mod work;
mod zipf;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use server::Source;
use timeline::Timeline;
use work::Plan;

/// Runs loads against a server and reports the cost of each operation.
#[derive(Parser)]
struct Flags {
    /// Start this server in a temporary folder, and end it afterwards
    #[arg(long, value_name = "PATH", conflicts_with = "uri", global = true)]
    server: Option<PathBuf>,
    /// Argument of the server, repeatable
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true, global = true)]
    server_arg: Vec<String>,
    /// Folder in which the temporary folder is created
    #[arg(long, value_name = "FOLDER", global = true)]
    folder: Option<PathBuf>,
    /// Address of a running server to use instead
    #[arg(long, default_value = "mongodb://127.0.0.1:27017", global = true)]
    uri: String,
    /// Seconds for each load
    #[arg(long, default_value_t = 4.0, global = true)]
    seconds: f64,
    /// Documents in the collections that are scanned, grouped and expired
    #[arg(long, default_value_t = 300_000, global = true)]
    documents: u32,
    /// Short loads and small collections: the whole table in about two minutes
    #[arg(long, global = true)]
    quick: bool,
    /// Only these loads: names or beginnings of names, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', global = true)]
    only: Vec<String>,
    /// Only the loads that have budgets
    #[arg(long, global = true)]
    budget: bool,
    /// Number of runs of all loads, each with a new server
    #[arg(long, default_value_t = 1, global = true)]
    runs: usize,
    /// Operations per second, at fixed times; latencies count from the time when an operation is
    /// due
    #[arg(long, value_name = "PER_SECOND", global = true)]
    rate: Option<f64>,
    /// Number of connections, instead of the load's own
    #[arg(long, value_name = "COUNT", global = true)]
    connections: Option<usize>,
    /// Requests under way on each connection
    #[arg(long, value_name = "COUNT", default_value_t = 1, global = true)]
    in_flight: usize,
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Draw latency and throughput over time to this file
    #[arg(long, value_name = "FILE.svg", global = true)]
    plot: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the loads and prints a table with verdicts about the budgets
    Table,
    /// Runs the loads on two servers alternately and prints ratios
    Compare {
        /// The program of a server, or the address of a running one
        a: String,
        /// The same for the server that is compared with the first
        b: String,
    },
    /// Prints the names of the loads
    List,
}

fn main() -> ExitCode {
    launch::raise_open_files();
    match run(&Flags::parse()) {
        Ok(run::Outcome::Complete) => ExitCode::SUCCESS,
        Ok(run::Outcome::WithFailures) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mayfly-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<run::Outcome> {
    let output = run::Output { json: flags.json.as_deref(), plot: flags.plot.as_deref() };
    match &flags.command {
        Command::List => {
            for work in work::ALL {
                let budget = if work.budgets.is_empty() { "" } else { "budget" };
                println!("{:20} {:44} {budget}", work.name, work.title);
            }
            Ok(run::Outcome::Complete)
        }
        Command::Table => {
            let works = work::select(&flags.only, flags.budget)?;
            let source = match &flags.server {
                Some(path) => flags.program(path.clone()),
                None => Source::Address(flags.uri.clone()),
            };
            run::table(&source, &works, &flags.plan(), flags.runs.max(1), output)
        }
        Command::Compare { a, b } => {
            let works = work::select(&flags.only, flags.budget)?;
            let source = |text: &String| match text.starts_with("mongodb://") {
                true => Source::Address(text.clone()),
                false => flags.program(PathBuf::from(text)),
            };
            let sources = [source(a), source(b)];
            run::compare(&sources, &works, &flags.plan(), flags.runs.max(1), output)
        }
    }
}

impl Flags {
    fn plan(&self) -> Plan {
        let quick_seconds = 2.0;
        let seconds = if self.quick { quick_seconds } else { self.seconds };
        let time = Duration::from_secs_f64(seconds.max(0.1));
        Plan {
            time,
            documents: if self.quick { 100_000 } else { self.documents.max(10_000) },
            records: if self.quick { 20_000 } else { 100_000 },
            start_documents: if self.quick { 200_000 } else { 2_000_000 },
            rate: self.rate,
            connections: self.connections,
            in_flight: self.in_flight,
            bucket: self.plot.is_some().then(|| Timeline::width_for(time)),
        }
    }

    fn program(&self, path: PathBuf) -> Source {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        Source::Program { path, arguments: self.server_arg.clone(), parent }
    }
}
