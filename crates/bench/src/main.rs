//! The load generator `mayfly-bench`: puts a server under the loads that the budgets name and reports what each cost.
//!
//! ```text
//! mayfly-bench --server target/release/mayflydb table              its own server, temporary folder, free port
//! mayfly-bench --uri mongodb://127.0.0.1:27017 table               any server; costs only when it runs here
//! mayfly-bench --server mongod --only find,ttl --quick table       some of the work, shorter
//! ```
//!
//! What a load costs the server is the CPU time that the operating system counted for its process, because on a
//! machine with few cores and other tenants throughput says more about the neighbours than about the server. Every
//! client waits for its answer before it asks again; what a stalled server would have been asked meanwhile is not
//! counted against it (coordinated omission).

mod client;
mod documents;
mod load;
mod process;
mod server;
mod table;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use server::Target;
use work::Plan;

/// Puts a server under load and reports what each operation cost.
#[derive(Parser)]
struct Flags {
    /// Start this server in a temporary folder, and end it afterwards
    #[arg(long, value_name = "PATH", conflicts_with = "uri")]
    server: Option<PathBuf>,
    /// A further argument for the server, repeatable
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    server_arg: Vec<String>,
    /// Where the temporary folder is made
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Use a server that runs already
    #[arg(long, default_value = "mongodb://127.0.0.1:27017")]
    uri: String,
    /// Seconds for each load
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Documents in the collection that is scanned, grouped and expired
    #[arg(long, default_value_t = 300_000)]
    documents: u32,
    /// Short loads and small collections: the whole table in about a minute
    #[arg(long)]
    quick: bool,
    /// Only this work, by the beginning of its name; several separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs every load once and prints a table with the budgets beside the figures
    Table,
    /// Prints the names of the loads
    List,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mayfly-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<()> {
    if matches!(flags.command, Command::List) {
        for work in work::ALL {
            println!("{:20} {}", work.name, work.title);
        }
        return Ok(());
    }
    let folder = flags.folder.clone().unwrap_or_else(std::env::temp_dir);
    let target = match &flags.server {
        Some(path) => Target::start(path, &flags.server_arg, &folder)?,
        None => Target::running(&flags.uri)?,
    };
    let quick_seconds = 2.0;
    let plan = Plan {
        time: Duration::from_secs_f64(if flags.quick { quick_seconds } else { flags.seconds }),
        documents: if flags.quick { 100_000 } else { flags.documents },
        records: if flags.quick { 20_000 } else { 100_000 },
    };
    let mut rows = Vec::new();
    table::print_head();
    for work in work::ALL {
        let wanted = |name: &String| work.name.starts_with(name.as_str());
        if !flags.only.is_empty() && !flags.only.iter().any(wanted) {
            continue;
        }
        match (work.run)(&target, &plan).with_context(|| work.name) {
            Ok(measured) => {
                table::print_row(work, &measured);
                rows.push((work, measured));
            }
            Err(error) => println!("{:44} {error:#}", work.title),
        }
        target.settle();
    }
    if let Some(path) = &flags.json {
        let text = serde_json::to_string_pretty(&table::json(&rows))?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
