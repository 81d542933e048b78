//! Measures a backup, a verification and a restore over a folder. The folder must not exist; it is
//! left with its files. The last argument is the size of a file.
//!
//! ```text
//! cargo run --release -p mayfly-repository --example throughput -- <folder> <megabytes> [<megabytes>]
//! ```

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mayfly_base::SystemClock;
use mayfly_repository::*;
use rand::RngCore;

/// The size of the files unless it is given: that of a large table file.
const FILE_MB: usize = 32;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "arguments: a folder, megabytes, and optionally those of a file";
    let (root, megabytes) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let file_mb = arguments.next().map_or(Ok(FILE_MB), |given| given.parse::<usize>())?.max(1);
    let (root, files) = (Path::new(&root), megabytes.parse::<usize>()?.div_ceil(file_mb));
    let (source, target) = (root.join("source"), root.join("target"));
    fs::create_dir_all(&target)?;
    fs::create_dir(&source)?;
    let mut content = vec![0; 1 << 20];
    for at in 0..files {
        let mut file = fs::File::create(source.join(at.to_string()))?;
        for _ in 0..file_mb {
            rand::rng().fill_bytes(&mut content);
            file.write_all(&content)?;
        }
    }
    let clock = Arc::new(SystemClock::new());
    let objects =
        FolderStore::open_or_create(&root.join("repository"), mayfly_base::Clock::now_ms(&*clock))?;
    let store = "00000000-0000-0000-0000-000000000001".parse()?;
    let repository = Repository::open_or_create(Arc::new(objects), clock.clone(), store).await?;
    let transfer = Transfer::new(clock);
    let report = |what: &str, begin: Instant| {
        let seconds = begin.elapsed().as_secs_f64();
        println!("{what}: {:.0} MiB/s, {}", (files * file_mb) as f64 / seconds, peak_memory());
    };

    let begin = Instant::now();
    let mut backup = repository
        .begin(BackupStart {
            parent: None,
            timeline: "1".parse()?,
            kind: BackupKind::Files,
            store_format: 1,
            server_version: "0".into(),
        })
        .await?;
    for at in 0..files {
        let path = at.to_string().parse()?;
        let options = FileOptions { path, content: FileContent::Mutable };
        backup.add_file(&source.join(at.to_string()), options, &transfer).await?;
    }
    let manifest = backup.finish(ClusterTime::default(), Vec::new()).await?;
    report("backup", begin);

    let begin = Instant::now();
    let found = repository.verify(&VerifyScope::All, &transfer).await?;
    assert!(found.problems.is_empty());
    report("verify", begin);

    let begin = Instant::now();
    for file in &manifest.files {
        repository.fetch(file, &target, &transfer).await?;
    }
    report("fetch", begin);
    Ok(())
}

/// The most memory that this process has used, as Linux prints it.
fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    peak.unwrap_or("VmHWM: unknown").split_whitespace().collect::<Vec<_>>().join(" ")
}
