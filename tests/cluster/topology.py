"""The cluster: etcd, two PostgreSQL under Patroni in synchronous mode, and several servers of MayflyDB over them."""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pymongo
from pymongo.errors import PyMongoError

from programs import Program, children, free_ports, is_alive, postgres_programs, send, unprivileged, wait_until

HERE = Path(__file__).resolve().parent
SCOPE, SET, DATABASE = "mayfly", "rs0", "mayflydb"
#: The smallest values that Patroni documents. Version 3.0 does not refuse smaller ones; later versions raise them to these.
TTL, LOOP_WAIT, RETRY_TIMEOUT = 20, 1, 3
#: How long operations of the servers wait for PostgreSQL: longer than a failover after the loss of a machine.
WAIT_MS = 30_000
#: PostgreSQL's connections: three servers of up to 100 each, Patroni, and the tests.
MAX_CONNECTIONS = 400
KILL, QUIT = 9, 3


class Node:
    """A PostgreSQL and its Patroni."""

    def __init__(self, cluster: "Cluster", number: int, port: int, api: int):
        self.name, self.port, self.api = f"pg{number + 1}", port, api
        self.folder = cluster.folder / self.name
        self.data = self.folder / "data"
        self.configuration = self.folder / "patroni.yaml"
        self.log = cluster.logs / f"{self.name}.log"
        command = [shutil.which("patroni"), self.configuration]
        self.patroni = Program(self.name, command, self.log, **unprivileged())

    def configure(self, cluster: "Cluster") -> None:
        """Writes Patroni's configuration. JSON is YAML."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        server = {"max_connections": MAX_CONNECTIONS, "wal_log_hints": "on"}
        shared = {
            "ttl": TTL, "loop_wait": LOOP_WAIT, "retry_timeout": RETRY_TIMEOUT, "maximum_lag_on_failover": 1 << 20,
            "synchronous_mode": True,
            # A primary that crashes is not awaited: the standby has every commit.
            "primary_start_timeout": 0,
            "postgresql": {"use_pg_rewind": True, "parameters": server},
        }
        settings = {"unix_socket_directories": str(self.folder), **cluster.settings}
        rules = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        document = {
            "scope": SCOPE, "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.api}", "connect_address": f"127.0.0.1:{self.api}"},
            "etcd3": {"host": f"127.0.0.1:{cluster.etcd_port}"},
            "bootstrap": {"dcs": shared, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data), "bin_dir": str(postgres_programs()), "pg_hba": rules, "parameters": settings,
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
            },
        }
        self.configuration.write_text(json.dumps(document, indent=2))
        if os.getuid() == 0:
            owner = unprivileged()
            for path in (self.folder, self.configuration):
                os.chown(path, owner["user"], owner["group"])

    def postmaster(self) -> int | None:
        """The process of PostgreSQL, if it runs with this folder."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return None
        return pid if str(self.data).encode() in command and is_alive(pid) else None

    def processes(self) -> list[int]:
        pid = self.postmaster()
        return [pid, *children(pid)] if pid else []

    def kill_postgres(self) -> None:
        """As a crash of the machine: no process of it survives the first one."""
        for pid in self.processes():
            send(pid, KILL)

    def status(self) -> dict:
        """What Patroni says of its PostgreSQL; empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api}/patroni", timeout=2) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except (OSError, ValueError):
            return {}

    def role(self) -> str:
        found = self.status()
        role = found.get("role", "") if found.get("state") == "running" else ""
        return "primary" if role == "master" else role

    def end(self) -> None:
        self.patroni.end()
        if pid := self.postmaster():
            send(pid, QUIT)
            wait_until(lambda: not is_alive(pid), f"{self.name} ends", 20)


class Server(Program):
    """A server of MayflyDB, a member of the set."""

    def __init__(self, cluster: "Cluster", number: int, port: int, url: str):
        folder = cluster.folder / f"server{number + 1}"
        self.number, self.port, self.address = number, port, f"127.0.0.1:{port}"
        words = ["--port", port, "--dbpath", folder, "--storageEngine", "postgres", "--storageUrl", url, "--storageStandby"]
        words += ["--replSet", SET, "--advertise", self.address, "--storageWaitMs", WAIT_MS, *cluster.flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}
        log = cluster.logs / f"server{number + 1}.log"
        super().__init__(f"server {number + 1}", [cluster.binary, *words], log, env=environment)
        self.probe = None

    def client(self, **options) -> pymongo.MongoClient:
        """A client of this server alone."""
        given = {"serverSelectionTimeoutMS": 2000, "connectTimeoutMS": 2000, **options}
        return pymongo.MongoClient("127.0.0.1", self.port, directConnection=True, **given)

    def hello(self) -> dict:
        """Its answer to hello; empty if it gives none within two seconds."""
        if self.probe is None:
            self.probe = self.client(socketTimeoutMS=2000, maxPoolSize=2)
        try:
            return self.probe.admin.command("hello")
        except PyMongoError:
            return {}


class Cluster:
    """All of it, on 127.0.0.1 and in one folder."""

    def __init__(self, folder: Path, binary: Path, count: int, ports=None, *, settings=None, flags=(), proxied=False):
        for program in ("etcd", "patroni", "patronictl"):
            if not shutil.which(program):
                raise SystemExit(f"{program} is not installed (make setup-cluster)")
        self.folder, self.binary, self.flags = folder, binary, list(flags)
        self.logs, self.settings = folder / "logs", settings or {}
        self.logs.mkdir(parents=True, exist_ok=True)
        ports = iter(ports or free_ports(6 + 3 * count))
        self.etcd_port, peers = next(ports), next(ports)
        self.nodes = [Node(self, number, next(ports), next(ports)) for number in range(2)]
        own = [next(ports) for _ in range(count)]
        table = [[number, next(ports), node.port] for number in range(count) for node in self.nodes] if proxied else []
        self.proxy = Program(
            "proxy", [sys.executable, HERE / "proxy.py", json.dumps(table)], self.logs / "proxy.log",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) if proxied else None
        self.servers = [Server(self, number, own[number], self.url(number, table)) for number in range(count)]
        here = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{peers}"
        self.etcd = Program("etcd", [
            shutil.which("etcd"), "--name", "one", "--data-dir", folder / "etcd", "--listen-client-urls", here,
            "--advertise-client-urls", here, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"one={peer}",
        ], self.logs / "etcd.log")

    def url(self, server: int, table=()) -> str:
        """Where a server finds PostgreSQL: both hosts, of which it takes the primary."""
        ports = [listen for number, listen, _ in table if number == server] or [node.port for node in self.nodes]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://mayfly@{hosts}/{DATABASE}?target_session_attrs=read-write&sslmode=disable"

    @property
    def connection_string(self) -> str:
        return f"mongodb://{','.join(server.address for server in self.servers)}/?replicaSet={SET}"

    def start(self) -> None:
        for node in self.nodes:
            node.configure(self)
        self.etcd.start()
        self.nodes[0].patroni.start()
        wait_until(self.primary, "PostgreSQL has a primary, see pg1.log", 90)
        self.nodes[1].patroni.start()
        wait_until(self.is_synchronous, "the standby is synchronous, see pg2.log", 90)
        self.make_database()
        if self.proxy:
            self.proxy.start()
            assert self.proxy.process.stdout.readline() == "ready\n"
        for server in self.servers:
            server.start()
            wait_until(server.hello, f"{server.name} answers, see {server.log}", 60)
        self.await_whole()

    def make_database(self) -> None:
        if self.sql(f"select count(*) from pg_database where datname = '{DATABASE}'", "postgres") == "0":
            self.sql("create role mayfly login", "postgres")
            self.sql(f"create database {DATABASE} owner mayfly template template0 encoding UTF8 locale 'C'", "postgres")
            self.sql("create table probe (n int)", "postgres")

    def sql(self, text: str, database: str = DATABASE, seconds: float = 60) -> str:
        """Executes a statement on the primary as the superuser, and returns what it gives."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        url = f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=2"
        command = [postgres_programs() / "psql", "-qXAt", url, "-c", text]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            raise OSError(done.stderr.strip())
        return done.stdout.strip()

    def primary(self) -> Node | None:
        """The node that Patroni calls the primary."""
        return next((node for node in self.nodes if node.role() == "primary"), None)

    def standby(self) -> Node | None:
        return next((node for node in self.nodes if node.role() == "replica"), None)

    def is_synchronous(self) -> bool:
        """Commits wait for the standby."""
        found = [one.get("sync_state") for node in self.nodes for one in node.status().get("replication", [])]
        return bool(self.primary()) and "sync" in found

    def owner(self) -> Server | None:
        return next((server for server in self.servers if server.hello().get("isWritablePrimary")), None)

    def await_whole(self, seconds: float = 90) -> Server:
        """Waits until PostgreSQL has a synchronous standby, and every server serves; returns the owner."""
        wait_until(self.is_synchronous, "PostgreSQL has a synchronous standby", seconds, 0.3)

        def whole():
            found = [server.hello() for server in self.servers]
            owners = [server for server, one in zip(self.servers, found) if one.get("isWritablePrimary")]
            others = sum(bool(one.get("secondary")) for one in found)
            known = all(len(one.get("hosts", [])) == len(self.servers) for one in found)
            return owners[0] if len(owners) == 1 and others == len(self.servers) - 1 and known else None

        return wait_until(whole, "one server is the primary and the others are secondaries", seconds, 0.3)

    def command_proxy(self, line: str) -> None:
        self.proxy.process.stdin.write(line + "\n")
        self.proxy.process.stdin.flush()
        assert self.proxy.process.stdout.readline() == "done\n"

    def switch_over(self) -> None:
        """An orderly change of the primary, as an operator orders it."""
        primary = self.primary()
        words = ["-c", primary.configuration, "switchover", "--force", "--master", primary.name, SCOPE]
        subprocess.run([shutil.which("patronictl"), *words], check=True, capture_output=True, timeout=60, **unprivileged(), cwd="/")

    def end(self) -> None:
        """Ends every process, the servers first."""
        for server in self.servers:
            server.end()
        if self.proxy and self.proxy.process:
            self.proxy.kill()
        # The standby first: a primary that ends in order waits for it.
        for node in sorted(self.nodes, key=lambda node: node.role() == "primary"):
            node.end()
        self.etcd.end()
