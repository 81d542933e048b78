#!/usr/bin/env python3
"""Measures the processor time of operations over PostgreSQL: that of PostgreSQL against plain SQL for the same data, and that of
the server against a server with the embedded engine (docs/performance.md).

    sql.py [ROUNDS]    MAYFLYDB_BIN is the server

The clients of all three execute the same number of operations a second. PostgreSQL needs more time for a statement that it
waited for than for one that is there already, so operations at different rates cannot be compared. PostgreSQL has its default
settings, but for more connections.
"""

import datetime
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from run import ROOT, SIGNALS, ignore_signals, server_binary, with_pymongo

sys.path.insert(0, str(ROOT / "tests/clients/python"))
from postgres import Postgres  # noqa: E402

CLIENTS, SECS = 4, 8
DOCUMENTS, EXPIRING, BULK = 100_000, 40_000, 1000
#: Operations a second: more than four clients in Python reach on a slow machine would be measured at the rate that they reach.
SINGLE_RATE, BULK_RATE = 1000, 8
VALUE = "y" * 1000
SCHEMA = f"""
create table item (id bigint primary key, value bytea);
insert into item select i, decode(repeat('ab', 1000), 'hex') from generate_series(0, {DOCUMENTS - 1}) i;
create table bulk (id bigserial primary key, a int, b int, at timestamptz, value bytea);
create index on bulk (a); create index on bulk (b); create index on bulk (at);
create table expiring (id bigserial primary key, a int, b int, at timestamptz, value bytea);
create index on expiring (a); create index on expiring (b); create index on expiring (at);
create sequence numbers start {DOCUMENTS};
"""
ROWS = "select (random() * 1000)::int, (random() * 1e9)::int, now(), decode(repeat('ab', 350), 'hex') from generate_series(1, {})"
FIND = f"\\set i random(0, {DOCUMENTS - 1})\nselect value from item where id = :i;\n"
UPDATE = f"\\set i random(0, {DOCUMENTS - 1})\nupdate item set value = :v::bytea where id = :i;\n"
INSERT = "insert into item values (nextval('numbers'), :v::bytea);\n"
INSERT_MANY = f"insert into bulk (a, b, at, value) {ROWS.format(BULK)};\n"
DELETE = "delete from expiring where id in (select id from expiring where at < now() order by at limit 20000)"


class Measured(Postgres):
    """A PostgreSQL that writes to the disk as it does by default."""

    def start(self, data: Path, *further: str, port: int | None = None) -> None:
        super().start(data, "fsync=on", "full_page_writes=on", *further, port=port)

    def execute(self, text: str) -> str:
        return self.ask(self.url("postgres"), text)

    def secs(self) -> float:
        from programs import children, processor_secs

        return processor_secs([self.process.pid, *children(self.process.pid)])

    def bench(self, script: str, rate: float, clients: int) -> float:
        """Executes a script at this rate; returns the microseconds of PostgreSQL for each execution."""
        file = Path(self.folder) / "script.sql"
        file.write_text(script)
        words = [self.programs / "pgbench", "-n", "-M", "prepared", "-c", clients, "-T", SECS, "-R", f"{rate:.0f}"]
        words += ["-D", "v=\\x" + "ab" * 1000, "-f", file, self.url("postgres")]
        before = self.secs()
        out = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout
        count = int(out.split("actually processed: ")[1].split()[0].split("/")[0])
        # The sessions have ended, so their times belong to the first process.
        time.sleep(0.5)
        return (self.secs() - before) / count * 1e6


def execute(port: int, act, which: int, rate: float, counts) -> None:
    """A process of its own: executes operations at a rate, as far as it can."""
    import pymongo

    client = pymongo.MongoClient("127.0.0.1", port, retryWrites=False)
    begun, n = time.monotonic(), 0
    while (now := time.monotonic()) < begun + SECS:
        if (wait := begun + n / rate - now) > 0:
            time.sleep(wait)
        act(client.m, which, n)
        n += 1
    counts.put(n)


def find(database, which, n):
    database.item.find_one({"_id": (which * 7919 + n * 104729) % DOCUMENTS})


def update(database, which, n):
    database.item.update_one({"_id": (which * 7919 + n * 104729) % DOCUMENTS}, {"$inc": {"n": 1}})


def insert(database, which, n):
    database.item.insert_one({"_id": f"{which}-{n}-{time.monotonic()}", "x": VALUE})


def rows(at, count):
    return [{"a": n * 7919 % 1000, "b": n * 104729, "at": at, "x": VALUE[:350]} for n in range(count)]


def insert_many(database, which, n):
    database.bulk.insert_many(rows(datetime.datetime.now(datetime.timezone.utc), BULK))


class Server:
    """A server, and a client of it."""

    def __init__(self, folder: Path, name: str, storage: list):
        import pymongo
        from programs import Program, free_ports, wait_until

        self.port, log = free_ports(1)[0], folder / f"{name}.log"
        (folder / name).mkdir()
        words = [server_binary(), "--port", self.port, "--dbpath", folder / name, "--setParameter", "ttlMonitorEnabled=false"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MAYFLYDB_")}
        self.program = Program(name, [*words, *storage], log, env=environment)
        self.program.start()
        try:
            wait_until(self.answers, "the server answers", 20)
        except TimeoutError:
            print(log.read_text(), file=sys.stderr)
            self.program.end()
            raise
        self.client = pymongo.MongoClient("127.0.0.1", self.port)

    def answers(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def fill(self) -> None:
        data = self.client.m
        for first in range(0, DOCUMENTS, BULK):
            data.item.insert_many({"_id": n, "n": 0, "x": VALUE} for n in range(first, first + BULK))
        for name in ("a", "b", "at"):
            data.bulk.create_index(name)
        for name in ("a", "b"):
            data.expiring.create_index(name)
        data.expiring.create_index("at", expireAfterSeconds=1)

    def secs(self) -> float:
        from programs import processor_secs

        return processor_secs([self.program.pid])

    def execute(self, act, rate: float, clients: int) -> int:
        """Executes operations at this rate, as far as the clients can; returns their number."""
        counts = multiprocessing.Queue()
        all_of = [(self.port, act, which, rate / clients, counts) for which in range(clients)]
        workers = [multiprocessing.Process(target=execute, args=one) for one in all_of]
        for worker in workers:
            worker.start()
        count = sum(counts.get() for _ in workers)
        for worker in workers:
            worker.join()
        return count

    def prepare_expiry(self) -> None:
        long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
        for _ in range(EXPIRING // BULK):
            self.client.m.expiring.insert_many(rows(long_ago, BULK))

    def expire(self) -> None:
        from programs import wait_until

        self.client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
        self.client.admin.command("setParameter", 1, ttlMonitorEnabled=True)
        wait_until(lambda: self.client.m.expiring.estimated_document_count() == 0, "all are deleted", 120)
        self.client.admin.command("setParameter", 1, ttlMonitorEnabled=False)

    def end(self) -> None:
        self.client.close()
        self.program.end()


class Measure:
    """A server over PostgreSQL, one with the embedded engine, and what was measured."""

    def __init__(self, postgres: Postgres, server: Server, embedded: Server):
        self.postgres, self.server, self.embedded = postgres, server, embedded
        self.found = {}

    def times(self):
        return self.postgres.secs(), self.server.secs(), self.embedded.secs()

    def note(self, name: str, plain: float, secs, counts) -> None:
        """`secs` and `counts` are those of PostgreSQL, of the server and of the one with the embedded engine."""
        base, own, embedded = (time / count * 1e6 for time, count in zip(secs, counts))
        self.found.setdefault(name, []).append((plain, base, base / plain, own, embedded, own / embedded))
        print(f"{name}: PostgreSQL {plain:.1f} us by SQL, {base:.1f} for the server, {base / plain:.2f} x; "
              f"server {own:.1f}, embedded {embedded:.1f}, {own / embedded:.2f} x", flush=True)

    def compare(self, name: str, act, script: str, rate: float, clients: int = CLIENTS, units: int = 1) -> None:
        self.postgres.execute("checkpoint")
        first = self.times()
        count = self.server.execute(act, rate, clients)
        second = self.times()
        other = self.embedded.execute(act, count / SECS, clients)
        third = self.times()
        self.postgres.execute("checkpoint")
        plain = self.postgres.bench(script, count / SECS, clients)
        secs = second[0] - first[0], second[1] - first[1], third[2] - second[2]
        self.note(name, plain / units, secs, (count * units, count * units, other * units))

    def expire(self) -> None:
        """Documents and rows that are due are deleted, as fast as each can."""
        for server in (self.server, self.embedded):
            server.prepare_expiry()
        self.postgres.execute(f"insert into expiring (a, b, at, value) {ROWS.format(EXPIRING)}")
        self.postgres.execute("checkpoint")
        before = self.postgres.secs()
        self.postgres.execute((DELETE + ";") * (EXPIRING // 20_000))
        time.sleep(0.5)
        plain = (self.postgres.secs() - before) / EXPIRING * 1e6
        before = self.times()
        self.server.expire()
        after = self.times()
        self.embedded.expire()
        secs = after[0] - before[0], after[1] - before[1], self.embedded.secs() - before[2]
        self.note("expiry, two further indexes", plain, secs, [EXPIRING] * 3)


def main(rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="mayflydb-sql-"))
    folder.chmod(0o711)
    with ExitStack() as ended:
        ended.callback(shutil.rmtree, folder, ignore_errors=True)
        postgres = ended.enter_context(Measured(folder / "postgres.log"))
        postgres.execute(SCHEMA)
        postgres.execute("vacuum analyze")
        server = Server(folder, "server", ["--storageEngine", "postgres", "--storageUrl", postgres.database()])
        ended.callback(server.end)
        embedded = Server(folder, "embedded", [])
        ended.callback(embedded.end)
        ended.callback(ignore_signals)
        for one in (server, embedded):
            one.fill()
        measure = Measure(postgres, server, embedded)
        for _ in range(rounds):
            measure.compare("find by `_id`", find, FIND, SINGLE_RATE)
            measure.compare("updateOne `$inc` by `_id`", update, UPDATE, SINGLE_RATE)
            measure.compare("insertOne, 1 KB", insert, INSERT, SINGLE_RATE)
            measure.compare(f"insertMany of {BULK} x 450 B, three further indexes", insert_many, INSERT_MANY, BULK_RATE, 1, BULK)
            measure.expire()
        for name, found in measure.found.items():
            plain, base, times, own, other, ratio = (statistics.median(column) for column in zip(*found))
            print(f"| {name} | {plain:.1f} | {base:.1f} | {times:.2f} | {own:.1f} | {other:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    with_pymongo()
    # `kill` and a terminal that is closed end the programs as Ctrl-C does.
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
