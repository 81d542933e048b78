//! Tests a server under power cuts (`power`), on full disks (`disk`), with little memory
//! (`memory`), and with failing file calls (`faults`). A layer below the server's file calls
//! (`tests/torture/files.c`), which is compiled at the start, records what is written and synced.
//!
//! The folder of a failed run is kept, and its seed is printed: `--seed` uses the same random
//! numbers. The scheduling of threads differs, so that a seed leads to the same kind of round, but
//! not to the same bytes.

mod control;
mod disk;
mod faults;
mod journal;
mod load;
mod memory;
mod power;
mod stream;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;

/// Power cuts, full disks, little memory and failing file calls under load.
#[derive(Parser)]
struct Arguments {
    /// The program mayflydb.
    #[arg(long, env = "MAYFLYDB_BIN")]
    server: PathBuf,
    #[command(subcommand)]
    what: What,
    /// Seed of the random numbers.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Power cuts under load.
    Power {
        #[arg(long, default_value_t = 200)]
        rounds: u32,
    },
    /// Disks that are full.
    Disk {
        /// Size of the disk.
        #[arg(long, default_value_t = 600)]
        megabytes: u64,
        /// An ext4 in a file, instead of a file system in memory.
        #[arg(long)]
        ext4: bool,
        /// Rounds of each action that frees space.
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// Only rounds whose description contains this text.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Control groups with little memory.
    Memory {
        /// Seconds of load for each size of a group.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The sizes of the groups.
        #[arg(long, value_delimiter = ',', default_values_t = memory::SIZES_MB)]
        megabytes: Vec<u64>,
    },
    /// File calls that fail.
    Faults {
        /// Number of calls at which each kind of fault is injected.
        #[arg(long, default_value_t = 40)]
        calls: u32,
        /// Only faults whose description contains this text.
        #[arg(long, default_value = "")]
        only: String,
        /// Number of kinds of faults, chosen at random; all of them, and a slow sync, if it is
        /// larger than their number.
        #[arg(long, default_value_t = usize::MAX)]
        kinds: usize,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("seed {seed}");
    match torture(&arguments, seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}\nseed {seed}");
            ExitCode::FAILURE
        }
    }
}

fn torture(arguments: &Arguments, seed: u64) -> Result<(), String> {
    let folder = tempfile::Builder::new().prefix("mayfly-torture-").tempdir();
    let folder = folder.map_err(|error| error.to_string())?;
    if let What::Disk { megabytes, ext4, rounds, ref only } = arguments.what {
        let kind = if ext4 { disk::FileSystem::Ext4 } else { disk::FileSystem::Tmpfs };
        let done = match disk::Disk::mount(&folder.path().join("data"), megabytes, kind) {
            Ok(disk) => {
                let (program, folder) = (&arguments.server, folder.path());
                let done = disk::FullDisk { program, folder, disk: &disk, seed, only }.run(rounds);
                if done.is_err() {
                    // The disk stays mounted: its files may show the reason.
                    std::mem::forget(disk);
                }
                done
            }
            Err(why) => {
                println!("disk: SKIPPED: no file system can be mounted, which root may do: {why}");
                Ok(())
            }
        };
        if done.is_err() {
            println!("kept: {}", folder.keep().display());
        }
        return done;
    }
    if let What::Memory { seconds, megabytes } = &arguments.what {
        let program = (arguments.server.as_path(), folder.path());
        let done = memory::run(program, megabytes, *seconds, seed);
        if done.is_err() {
            println!("kept: {}", folder.keep().display());
        }
        return done;
    }
    let layer = compile(folder.path())?;
    let (program, sum) = (&arguments.server, power::Sum::default());
    let mut rounds = power::Rounds { program, layer: &layer, folder: folder.path(), seed, sum };
    let done = match arguments.what {
        What::Power { rounds: count } => power_cuts(&mut rounds, count),
        What::Faults { calls, ref only, kinds } => rounds.faults(calls, only, kinds),
        What::Disk { .. } | What::Memory { .. } => unreachable!("it needs no layer"),
    };
    if done.is_err() {
        println!("kept: {}", folder.keep().display());
    }
    done
}

fn power_cuts(rounds: &mut power::Rounds<'_>, count: u32) -> Result<(), String> {
    let began = Instant::now();
    rounds.run(count)?;
    let sum = &rounds.sum;
    println!(
        "power: {} cuts ({} while it started) in {:.0} s: {} commands acknowledged, {} syncs, {} files with unsynced bytes, \
         {} unsynced names, {} events read again",
        count,
        sum.cuts_at_start,
        began.elapsed().as_secs_f64(),
        sum.acknowledged,
        sum.syncs,
        sum.unsynced,
        sum.names,
        sum.events
    );
    Ok(())
}

/// Compiles the layer below the server.
fn compile(folder: &Path) -> Result<PathBuf, String> {
    let layer = folder.join("files.so");
    let source = folder.join("files.c");
    let text = include_str!("../../../../../tests/torture/files.c");
    std::fs::write(&source, text).map_err(|error| error.to_string())?;
    let compiled =
        Command::new("cc").args(["-O2", "-fPIC", "-shared", "-o"]).args([&layer, &source]).status();
    match compiled {
        Ok(status) if status.success() => Ok(layer),
        Ok(status) => Err(format!("cc ends with {status}")),
        Err(error) => Err(format!("cc: {error}")),
    }
}
