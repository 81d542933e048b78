//! The load generator `mayfly-bench`: puts a server under the loads that the budgets name and
//! reports what each cost.
//!
//! ```text
//! mayfly-bench --server target/release/mayflydb table              its own server over a temporary folder
//! mayfly-bench --uri mongodb://127.0.0.1:27017 table               any server; costs only when it runs here
//! mayfly-bench --server mongod --only find,ttl --quick table       some of the work, shorter
//! mayfly-bench --server mayflydb table --budget --runs 5           the verdict about the budgets
//! mayfly-bench compare old/mayflydb new/mayflydb --runs 5          two servers by turns, and their ratios
//! ```
//!
//! What a load costs the server is the CPU time that the operating system counted for its process,
//! because on a machine with few cores and other tenants throughput says more about the neighbours
//! than about the server. Where clients wait for an answer before they ask again, a stalled server
//! is asked less (coordinated omission): the figures "corrected p99" and "corrected p99.9" add what
//! it would have been asked, and `--rate` asks by the clock.

mod budget;
mod caller;
mod client;
mod compare;
mod documents;
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
mod wire;
mod work;
mod zipf;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use server::Source;
use work::Plan;

/// Puts a server under load and reports what each operation cost.
#[derive(Parser)]
struct Flags {
    /// Start this server in a temporary folder, and end it afterwards
    #[arg(long, value_name = "PATH", conflicts_with = "uri", global = true)]
    server: Option<PathBuf>,
    /// A further argument for the server, repeatable
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true, global = true)]
    server_arg: Vec<String>,
    /// Where the temporary folder is made
    #[arg(long, value_name = "FOLDER", global = true)]
    folder: Option<PathBuf>,
    /// Use a server that runs already
    #[arg(long, default_value = "mongodb://127.0.0.1:27017", global = true)]
    uri: String,
    /// Seconds for each load
    #[arg(long, default_value_t = 4.0, global = true)]
    seconds: f64,
    /// Documents in the collection that is scanned, grouped and expired
    #[arg(long, default_value_t = 300_000, global = true)]
    documents: u32,
    /// Short loads and small collections: the whole table in about two minutes
    #[arg(long, global = true)]
    quick: bool,
    /// Only this work, by name or the beginning of names; several separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', global = true)]
    only: Vec<String>,
    /// Exactly the loads that have budgets
    #[arg(long, global = true)]
    budget: bool,
    /// How often everything runs, each time with a new server
    #[arg(long, default_value_t = 1, global = true)]
    runs: usize,
    /// Ask by the clock, so many operations in a second; latencies count from the intended time
    #[arg(long, value_name = "PER_SECOND", global = true)]
    rate: Option<f64>,
    /// Connections, instead of the load's own number
    #[arg(long, value_name = "COUNT", global = true)]
    connections: Option<usize>,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Write what the load `ttl-mass` measured each second to this file, as comma-separated values,
    /// and a plot of it to the same name with .svg
    #[arg(long, value_name = "FILE", global = true)]
    csv: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the loads and prints a table with verdicts about the budgets
    Table,
    /// Runs the loads on two servers by turns and prints ratios
    Compare {
        /// The program of a server, or the address of one that runs
        a: String,
        /// The same, to be compared with the first
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
    let json = flags.json.as_deref();
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
            run::table(&source, &works, &flags.plan(), flags.runs.max(1), json)
        }
        Command::Compare { a, b } => {
            let works = work::select(&flags.only, flags.budget)?;
            let source = |text: &String| match text.starts_with("mongodb://") {
                true => Source::Address(text.clone()),
                false => flags.program(PathBuf::from(text)),
            };
            let sources = [source(a), source(b)];
            run::compare(&sources, &works, &flags.plan(), flags.runs.max(1), json)
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
            csv: self.csv.clone(),
        }
    }

    fn program(&self, path: PathBuf) -> Source {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        Source::Program { path, arguments: self.server_arg.clone(), parent }
    }
}
