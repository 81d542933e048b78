//! Checks a history in a file for everything that snapshot isolation forbids; see
//! `mayfly_testkit::history`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mayfly_testkit::history::{check, parse};

/// Prints the anomalies of a history, and ends with 1 when there are any.
#[derive(Parser)]
struct Arguments {
    /// A line for each transaction.
    file: PathBuf,
}

fn main() -> ExitCode {
    let file = Arguments::parse().file;
    let text = std::fs::read_to_string(&file).map_err(|error| error.to_string());
    match text.and_then(|text| parse(&text)) {
        Ok(history) => {
            let anomalies = check(&history);
            anomalies.iter().for_each(|anomaly| println!("{anomaly}"));
            println!("{} transactions, {} anomalies", history.len(), anomalies.len());
            ExitCode::from(u8::from(!anomalies.is_empty()))
        }
        Err(why) => {
            eprintln!("{}: {why}", file.display());
            ExitCode::from(2)
        }
    }
}
