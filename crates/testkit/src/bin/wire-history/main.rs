//! Makes a history over the network and checks it: clients run transactions and single writes
//! against a server that is killed and started again with the same folder, over connections that
//! are cut. Acknowledged writes must be there, and all reads must be consistent with snapshot
//! isolation (`mayfly_testkit::history`). With `--members` the servers are a set over PostgreSQL:
//! another one takes over from a primary that has ended, and secondaries answer reads.
//!
//! It prints where the history is and, after a failure, the data folder.

mod line;
mod members;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use mayfly_testkit::PostgresServer;
use mayfly_testkit::dialect::{self, Env};
use mayfly_testkit::history::client::{Client, Line, Run};
use mayfly_testkit::history::disturb::{IndexChanges, disturb, upheave};
use mayfly_testkit::history::events::Follower;
use mayfly_testkit::history::{Outcome, Transaction, check};
use mayfly_testkit::outside::ended;
use mayfly_value::RawValue;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use line::{Network, Wire};
use members::Members;

/// Concurrent transactions over the network with kills of the server and cut connections, and a
/// check of the results.
#[derive(Parser)]
struct Arguments {
    /// The program mayflydb.
    #[arg(long, env = "MAYFLYDB_BIN")]
    server: PathBuf,
    /// Seconds for which clients run.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 8)]
    clients: u8,
    /// Average milliseconds between two kills or stops of the server; 0 for none.
    #[arg(long, default_value_t = 2500)]
    kill_every: u64,
    /// Number of cut connections per thousand commands.
    #[arg(long, default_value_t = 5)]
    cuts: u32,
    /// Seed of the random numbers.
    #[arg(long)]
    seed: Option<u64>,
    /// Store in PostgreSQL, on a server of its own.
    #[arg(long)]
    postgres: bool,
    /// Servers of a set over that PostgreSQL; at least 2, or 1 for a server alone.
    #[arg(long, default_value_t = 1, requires = "postgres")]
    members: usize,
    /// File for the history; without it the history is kept only after a failure.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Further arguments of the server, after `--`.
    #[arg(last = true)]
    server_arguments: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    ended(history(&arguments, seed), seed)
}

/// Runs the test; returns the faults.
fn history(arguments: &Arguments, seed: u64) -> Result<Vec<String>, String> {
    let folder = tempfile::Builder::new().prefix("mayfly-wire-history-").tempdir();
    let folder = folder.map_err(|error| error.to_string())?;
    let expiry = ["--setParameter", "ttlMonitorSleepSecs=1"].map(str::to_owned);
    let mut server_arguments = [&expiry, arguments.server_arguments.as_slice()].concat();
    let postgres = arguments.postgres.then(PostgresServer::start);
    if let Some(postgres) = &postgres {
        let engine = ["--storageEngine", "postgres", "--storageUrl", &postgres.url()];
        server_arguments.extend(engine.map(str::to_owned));
    }
    let (run, network) = (Run::with_slow_clients(), Network::default());
    let (program, count) = (&arguments.server, arguments.members.max(1));
    let mut members = Members::start(count, program, &server_arguments, folder.path(), &network)?;
    let mut follower = Follower::new(&run);
    // The stream returns everything from here on.
    while !follower.is_open() {
        follower.step(&mut Wire::new(&network, &run, seed, 0.0));
    }
    let played = play((arguments, seed), &mut members, (&run, &network), &mut follower);
    let seconds = run.elapsed().as_secs_f64();
    let mut history = match played {
        Ok(history) => history,
        Err(why) => {
            let _kept = folder.keep();
            return Err(why);
        }
    };
    // The last acknowledged writes must survive, too.
    members.kill_all(&network)?;
    let mut line = Wire::new(&network, &run, seed, 0.0);
    history.sort_by_key(|it| it.begin);
    history.push(run.read_all(&mut line)?);
    let followed = follower.finish(&mut line);
    let mut wrong = run.complaints();
    wrong.extend(followed.err());
    wrong.extend(follower.check(&history));
    wrong.extend(damaged(&run, &mut line)?);
    wrong.extend(members.finish());
    let checked = Instant::now();
    wrong.extend(check(&history).iter().map(ToString::to_string));
    let count = |outcome| history.iter().filter(|it| it.outcome == outcome).count();
    println!(
        "{} transactions in {seconds:.0} s: {} ok, {} failed, {} unknown; {} kills, {} orderly ends, {} takeovers, \
         {} cuts, {} answers lost, {} reads of secondaries; {} events of a stream that was opened {} times; refused by code {:?}; asked again: {:?}; checked in {:.1} s",
        history.len(),
        count(Outcome::Ok),
        count(Outcome::Fail),
        count(Outcome::Info),
        members.kills,
        members.stops,
        members.takeovers,
        network.cuts.load(Ordering::Relaxed),
        network.lost.load(Ordering::Relaxed),
        run.reads_elsewhere(),
        follower.events,
        follower.opened,
        run.refusals(),
        run.repeats(),
        checked.elapsed().as_secs_f64(),
    );
    if !wrong.is_empty() {
        let folder = folder.keep();
        println!("kept: {}", folder.display());
        write(&history, &folder.join("history"))?;
    }
    if let Some(file) = &arguments.history {
        write(&history, file)?;
    }
    Ok(wrong)
}

/// Runs clients and disturbances while the server is killed or stopped repeatedly; returns the
/// history.
fn play(
    (arguments, seed): (&Arguments, u64),
    members: &mut Members,
    (run, network): (&Run, &Network),
    follower: &mut Follower<'_>,
) -> Result<Vec<Transaction>, String> {
    let cutting = f64::from(arguments.cuts.min(1000)) / 1000.0;
    let mut failed = None;
    let history = std::thread::scope(|threads| {
        let client = |session: u8| {
            let line = Wire::new(network, run, seed.wrapping_mul(31) + u64::from(session), cutting);
            let elsewhere = (arguments.members > 1)
                .then(|| Wire::to_any(network, run, !seed ^ u64::from(session), cutting));
            let mut client = Client::new(run, line, session, seed).reading_from(elsewhere);
            threads.spawn(move || {
                let mut seen = Vec::new();
                while !run.over.load(Ordering::Acquire) {
                    seen.push(client.transaction());
                }
                seen
            })
        };
        let clients: Vec<_> = (1..=arguments.clients).map(client).collect();
        threads.spawn(|| {
            let mut line = Wire::new(network, run, seed, 0.0);
            disturb(run, &mut line, IndexChanges::Made, arguments.clients, seed);
        });
        threads.spawn(|| upheave(run, &mut Wire::new(network, run, !seed, 0.0), seed));
        threads.spawn(move || {
            let mut line = Wire::to_any(network, run, seed.rotate_left(7), cutting);
            while !run.over.load(Ordering::Acquire) {
                follower.step(&mut line);
            }
        });
        failed = end_again_and_again((arguments, seed), members, run, network).err();
        run.over.store(true, Ordering::Release);
        let seen = clients.into_iter().map(|client| client.join().unwrap_or_default());
        seen.flatten().collect()
    });
    match failed {
        None => Ok(history),
        Some(why) => Err(why),
    }
}

/// Kills or stops a server and starts it again, until the time is over.
fn end_again_and_again(
    (arguments, seed): (&Arguments, u64),
    members: &mut Members,
    run: &Run,
    network: &Network,
) -> Result<(), String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let all = Duration::from_secs(arguments.seconds);
    loop {
        let pause = match arguments.kill_every {
            0 => all,
            every => Duration::from_millis(random.random_range(every / 5..=every * 9 / 5)),
        };
        let left = all.saturating_sub(run.elapsed());
        std::thread::sleep(pause.min(left));
        if pause >= left {
            return Ok(());
        }
        members.end_one(&mut random, network)?;
    }
}

/// Collections in which `validate` finds damage.
fn damaged(run: &Run, line: &mut Wire<'_>) -> Result<Vec<String>, String> {
    let mut damaged = Vec::new();
    for (db, collection) in run.namespaces() {
        let command = format!("{{validate: '{collection}', full: true}}");
        let command = dialect::document(&command, &Env::default())?;
        let reply = line.ask(db, command.as_doc()).map_err(|_| "no answer".to_owned())?;
        if reply.as_doc().get("valid") == Some(RawValue::Bool(false)) {
            damaged.push(format!("{db}.{collection}: {}", dialect::show(reply.as_doc())));
        }
    }
    Ok(damaged)
}

fn write(history: &[Transaction], file: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).map_err(text)?);
    for transaction in history {
        writeln!(out, "{transaction}").map_err(text)?;
    }
    out.flush().map_err(text)
}
