//! A PostgreSQL server for the tests: in a temporary folder, on a free port of 127.0.0.1, under a
//! user that is not root.
//!
//! A shell starts it, waits for the end of its own input, and then ends the server by its process
//! id. The input ends with the test process, however that ends.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The user of the server's process where the tests are run by root.
const NOBODY: u32 = 65_534;

const SCRIPT: &str = r#"
"$1/postgres" -D "$2" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
    -c fsync=off -c full_page_writes=off -c max_connections=300 -c shared_buffers=64MB \
    -c autovacuum_naptime=10 >>"$2/log" 2>&1 &
pid=$!
read -r end
kill -QUIT "$pid" 2>/dev/null
wait "$pid"
# Processes of the server may end a little later.
if [ "$4" = remove ]; then rm -rf "$5" || { sleep 1; rm -rf "$5"; }; fi
"#;

/// A running server.
pub struct PostgresServer {
    folder: TempDir,
    programs: PathBuf,
    /// The port on which it listens.
    pub port: u16,
    /// Whether the shell removes the folder in the end.
    end: &'static str,
    /// The shell; `None` only while it is dropped.
    shell: Option<Child>,
}

/// The server that most tests share.
pub fn shared_postgres() -> &'static PostgresServer {
    // It is never dropped, so the shell removes its folder.
    static SHARED: LazyLock<PostgresServer> =
        LazyLock::new(|| PostgresServer::start_with("remove"));
    &SHARED
}

/// The folder with the newest `postgres`.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            let folder = version.path().join("bin");
            folder.join("postgres").exists().then_some((number, folder))
        })
        .collect();
    found.sort();
    if let Some((_, folder)) = found.pop() {
        return folder;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
        .expect("PostgreSQL is missing: scripts/setup installs it")
}

/// A command that does not run as root.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

impl PostgresServer {
    /// Makes a new cluster, and starts it.
    pub fn start() -> PostgresServer {
        PostgresServer::start_with("keep")
    }

    fn start_with(end: &'static str) -> PostgresServer {
        let (programs, folder) = (programs(), TempDir::new().unwrap());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        if rustix::process::getuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = command(&programs.join("initdb"))
            .args(["--no-sync", "-U", "mayfly", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"])
            .arg(folder.path().join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let rights =
            "host all secret 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        fs::write(folder.path().join("data/pg_hba.conf"), rights).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = PostgresServer { folder, programs, port, end, shell: None };
        server.run();
        server
    }

    /// Adds a file that the server reads, which no other user may read.
    pub fn add_file(&self, name: &str, text: &str) {
        let path = self.folder.path().join("data").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::getuid().is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Starts the server over its folder.
    pub fn run(&mut self) {
        let shell = command(Path::new("/bin/sh"))
            .args(["-c", SCRIPT, "sh"])
            .args([&self.programs, &self.folder.path().join("data")])
            .args([self.port.to_string().as_str(), self.end])
            .arg(self.folder.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.shell = Some(shell);
        let give_up = Instant::now() + Duration::from_secs(60);
        while self.try_sql("select 1").is_err() {
            assert!(Instant::now() < give_up, "the server does not start");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server at once, as a crash does, and waits until its processes are gone.
    pub fn crash(&mut self) {
        let file = fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap();
        let pid = file.lines().next().and_then(|line| line.parse().ok()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        self.stop();
        // Its other processes notice it, and end.
        thread::sleep(Duration::from_millis(500));
    }

    fn stop(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }

    /// The URL of a database on another port, for example that of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgresql://mayfly@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    /// The URL of a database.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Executes statements; returns the first column of the last row.
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn try_sql(&self, text: &str) -> Result<String, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await?;
            let driver = tokio::spawn(connection);
            let replies = client.simple_query(text).await?;
            drop(client);
            let _ = driver.await;
            let last = replies.iter().rev().find_map(|reply| match reply {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            Ok(last.unwrap_or_default())
        })
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}
