"""A PostgreSQL server in a temporary folder, for servers with the engine postgres."""

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

START_SECS = 60
# The user of its processes where the tests are run by root, which PostgreSQL refuses.
NOBODY = 65534
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "full_page_writes=off", "max_connections=500")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def programs() -> Path:
    """The folder of the newest PostgreSQL."""
    def version(folder: str) -> int:
        return int(re.search(r"postgresql/(\d+)", folder)[1])

    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version)
    if found:
        return Path(found[-1])
    initdb = shutil.which("initdb")
    if not initdb:
        raise OSError("PostgreSQL is not installed (make setup)")
    return Path(initdb).parent


class Postgres:
    """The server; each call of `database` makes a database and gives its URL."""

    def __init__(self, log: Path, certificates: Path | None = None):
        """With the folder of `server.crt` and `server.key`, it accepts connections over TLS as well."""
        self.log, self.programs, self.count, self.lock = log, programs(), 0, threading.Lock()
        self.certificates, self.tls = certificates, []

    def __enter__(self):
        self.folder, self.process = tempfile.mkdtemp(prefix="mayflydb-postgres-"), None
        try:
            if os.getuid() == 0:
                os.chown(self.folder, NOBODY, NOBODY)
            if self.certificates:
                self.copy_certificate()
            self.fill(Path(self.folder) / "data")
            self.start(Path(self.folder) / "data")
        except BaseException:
            self.__exit__()
            raise
        return self

    def fill(self, data: Path) -> None:
        self.run("initdb", "--no-sync", "-U", "mayfly", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data)

    def copy_certificate(self) -> None:
        """PostgreSQL wants a key that only its user can read."""
        for kind, name in [("cert", "server.crt"), ("key", "server.key")]:
            file = Path(shutil.copy(self.certificates / name, self.folder))
            file.chmod(0o600)
            if os.getuid() == 0:
                os.chown(file, NOBODY, NOBODY)
            self.tls.append(f"ssl_{kind}_file={file}")
        self.tls.append("ssl=on")

    def options(self, out) -> dict:
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        return {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT, "cwd": "/", **user}

    def run(self, program: str, *arguments) -> None:
        """Executes a program of PostgreSQL as the user of the server."""
        with open(self.log, "ab") as out:
            subprocess.run([self.programs / program, *arguments], check=True, **self.options(out))

    def start(self, data: Path, *further: str, port: int | None = None) -> None:
        self.port = port or free_port()
        settings = [word for setting in (*SETTINGS, *self.tls, *further) for word in ("-c", setting)]
        with open(self.log, "ab") as out:
            command = [self.programs / "postgres", "-D", data, "-p", str(self.port), *settings]
            self.process = subprocess.Popen(command, **self.options(out))
        deadline = time.monotonic() + START_SECS
        while self.sql("select 1") != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"PostgreSQL does not start, see {self.log}")
            time.sleep(0.05)

    def restart(self, away_secs: float) -> None:
        """Ends all sessions, and starts again at the same port."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()
        time.sleep(away_secs)
        self.start(Path(self.folder) / "data", port=self.port)

    def sql(self, text: str) -> int:
        command = [self.programs / "psql", "-qX", self.url("postgres"), "-c", text]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode

    def ask(self, url: str, text: str) -> str:
        """What a query returns, its only column of its only row."""
        command = [self.programs / "psql", "-qXAt", url, "-c", text]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True).stdout.strip()

    def hold(self, url: str, lock: str) -> subprocess.Popen:
        """A session that holds a lock until its standard input is closed."""
        command = [self.programs / "psql", "-qXAt", url]
        session = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        session.stdin.write(f"begin; {lock}; select 'held';\n")
        session.stdin.flush()
        assert session.stdout.readline() == "held\n"
        return session

    def url(self, database: str) -> str:
        return f"postgresql://mayfly@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def database(self) -> str:
        with self.lock:
            self.count += 1
            name = f"store_{self.count}"
        if self.sql(f"create database {name}") != 0:
            raise OSError(f"the database {name} cannot be made, see {self.log}")
        return self.url(name)

    def begin_standby(self, name: str) -> "Standby":
        """Starts a synchronous standby, which takes over when it is promoted."""
        return Standby(self, name)

    def __exit__(self, *_) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Standby(Postgres):
    """A synchronous standby of a server. It has its own port, and the data of the other one."""

    def __init__(self, primary: Postgres, name: str):
        super().__init__(primary.log.with_suffix(f".{name}"))
        self.primary, self.name = primary, name

    def fill(self, data: Path) -> None:
        primary = self.primary
        with open(Path(primary.folder) / "data" / "pg_hba.conf", "a", encoding="utf-8") as rules:
            rules.write("host replication all 127.0.0.1/32 trust\n")
        primary.sql("select pg_reload_conf()")
        source = f"host=127.0.0.1 port={primary.port} user=mayfly application_name={self.name}"
        self.run("pg_basebackup", "-d", source, "-D", data, "-R", "-X", "stream", "-c", "fast")
        # Commits wait for the standby from now on.
        primary.sql(f"alter system set synchronous_standby_names = '{self.name}'")
        primary.sql("select pg_reload_conf()")

    def start(self, data: Path, *further: str) -> None:
        super().start(data, "synchronous_standby_names=", *further)
        deadline = time.monotonic() + START_SECS
        state = "select coalesce(max(sync_state), '') from pg_stat_replication"
        while self.primary.ask(self.primary.url("postgres"), state) != "sync":
            if time.monotonic() > deadline:
                raise OSError(f"the standby does not replicate, see {self.log}")
            time.sleep(0.05)

    def promote(self) -> None:
        self.ask(self.url("postgres"), "select pg_promote()")


class Network:
    """A network to a port of 127.0.0.1 that can stop forwarding, without closing a connection."""

    def __init__(self, port):
        self.target, self.flows = ("127.0.0.1", port), threading.Event()
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
            except OSError:
                return
            for way in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=way, daemon=True).start()

    def forward(self, source, target):
        try:
            while data := source.recv(65536):
                self.flows.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                end.close()

    def close(self):
        self.flows.set()
        self.listener.close()
