//! Notices for systemd, the lines of `mayflydb status`, and the texts for shells and `man`.

use std::collections::VecDeque;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use mayfly_testkit::outside::Process;
use mayfly_value::bson::{DateTime, doc};
use rustix::process::{Pid, Signal, kill_process};

use crate::authorization::ok;

/// The socket at which systemd would listen.
struct Manager {
    socket: UnixDatagram,
    lines: VecDeque<String>,
}

impl Manager {
    /// Waits for a notice that begins so, and returns the rest of its line.
    fn wait_for(&mut self, start: &str) -> String {
        let began = Instant::now();
        loop {
            while let Some(line) = self.lines.pop_front() {
                if let Some(rest) = line.strip_prefix(start) {
                    return rest.to_owned();
                }
            }
            assert!(began.elapsed() < Duration::from_secs(30), "no notice {start}");
            let mut notice = [0; 4096];
            if let Ok(length) = self.socket.recv(&mut notice) {
                let text = String::from_utf8_lossy(&notice[..length]).into_owned();
                self.lines.extend(text.lines().map(str::to_owned));
            }
        }
    }
}

#[test]
fn the_service_manager_and_people_are_kept_informed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut manager = Manager { socket, lines: VecDeque::new() };
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayflydb"));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    command.args(["--port", "0", "--dbpath"]).arg(folder.path().join("data"));
    let server = Process::start(command).unwrap();
    manager.wait_for("READY=1");
    assert_eq!(manager.wait_for("STATUS="), "No TTL policies yet: nothing expires.");
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    let signal = |signal| {
        let process = i32::try_from(server.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(process, signal).unwrap();
    };
    signal(Signal::HUP);
    manager.wait_for("RELOADING=1");
    manager.wait_for("MONOTONIC_USEC=");
    manager.wait_for("READY=1");

    let mut client = server.connect();
    let off = doc! { "setParameter": 1, "ttlMonitorEnabled": false, "$db": "admin" };
    ok(&mut client, off);
    let key = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 0 };
    ok(&mut client, doc! { "createIndexes": "sess", "indexes": [key], "$db": "shop" });
    let at = DateTime::from_millis(1_000_000_000_000);
    ok(&mut client, doc! { "insert": "sess", "documents": [{ "at": at }], "$db": "shop" });
    let asked = |uri: &str| {
        let words = ["status", uri];
        let output = Command::new(env!("CARGO_BIN_EXE_mayflydb")).args(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (status, lines, _) = asked(&format!("mongodb://127.0.0.1:{}", server.port));
    assert_eq!(status, Some(0));
    let off = "Expiry is switched off (ttlMonitorEnabled). 1 document is due.\n";
    assert!(lines.starts_with(off), "{lines}");
    for part in ["engine rocksdb.\n", " of memory, ", " free on the disk.\n", "\nshop.sess (at_1) "]
    {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    let (status, _, why) = asked("mongodb://127.0.0.1:1");
    assert_eq!(status, Some(1));
    assert!(why.contains("cannot ask the server for its state"), "{why}");

    signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
}

#[test]
fn texts_for_shells_and_manuals_name_the_flags() {
    let printed = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_mayflydb")).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(&["completions", shell]).contains("storageEngine"), "{shell}");
    }
    let manual = printed(&["manual"]);
    assert!(manual.contains(".TH mayflydb 1") && manual.contains("diskReserveMB"));
}
