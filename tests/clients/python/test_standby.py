"""Several servers over one PostgreSQL, of which one serves clients: it is killed, paused and stopped."""

import os
import signal
import socket
import subprocess
import threading
import time

import pymongo
import pytest
from pymongo.errors import PyMongoError

from postgres import free_port
from test_postgres import PATIENCE, Node, environment, storage

STANDBY = "--storageStandby"


class Member(Node):
    """One of several servers, with a port that it keeps."""

    def __init__(self, folder, url):
        self.port = free_port()
        self.folder, self.url = folder, url
        self.start()

    def start(self):
        super().__init__(self.folder, self.url, STANDBY, port=self.port)

    def listens(self):
        with socket.socket() as one:
            one.settimeout(1)
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def is_healthy(self):
        words = [os.environ["MAYFLYDB_BIN"], "--healthcheck", "--dbpath", self.folder / "data", "--storageEngine", "postgres"]
        return subprocess.run(words, capture_output=True, env=environment(), timeout=PATIENCE, check=False).returncode == 0

    def says(self, text):
        return text in self.log.read_text()


def until(condition, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Load:
    """Clients that write all the time, and one that follows the changes."""

    def __init__(self, members):
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in members)
        self.client = pymongo.MongoClient(f"mongodb://{hosts}/", serverSelectionTimeoutMS=60_000)
        # The driver waits as long for the server of a cursor or of a transaction, before it goes on at another one.
        self.impatient = pymongo.MongoClient(f"mongodb://{hosts}/", serverSelectionTimeoutMS=5_000)
        self.ended = threading.Event()
        self.inserted, self.errors, self.events, self.last = [], [], [], time.monotonic()
        self.longest = 0
        self.counters = [0] * 3
        self.client.t.counters.insert_many({"_id": which, "n": 0} for which in range(3))
        self.stream = self.impatient.t.items.watch(max_await_time_ms=200)
        self.written = threading.Event()
        self.writers = [threading.Thread(target=self.insert)]
        self.writers += [threading.Thread(target=self.count, args=[which]) for which in range(3)]
        self.follower = threading.Thread(target=self.follow)
        for thread in (*self.writers, self.follower):
            thread.start()

    def insert(self):
        number = 0
        while not self.ended.is_set():
            number += 1
            try:
                self.client.t.items.insert_one({"_id": number})
                self.inserted.append(number)
            except PyMongoError as error:
                self.errors.append(error)
            self.longest = max(self.longest, time.monotonic() - self.last)
            self.last = time.monotonic()

    def count(self, which):
        while not self.ended.is_set():
            try:
                self.client.t.counters.update_one({"_id": which}, {"$inc": {"n": 1}})
                self.counters[which] += 1
            except PyMongoError as error:
                self.errors.append(error)

    def follow(self):
        while not self.written.is_set() or len(self.events) < len(self.inserted):
            if event := self.stream.try_next():
                self.events.append(event["documentKey"]["_id"])

    def goes_on(self):
        """Waits until writes are acknowledged again."""
        seen = len(self.inserted)
        until(lambda: len(self.inserted) > seen + 20)

    def end(self):
        """What was acknowledged is there once, and no client saw an error: drivers repeat each write once."""
        self.ended.set()
        for thread in self.writers:
            thread.join(PATIENCE)
        self.written.set()
        self.follower.join(PATIENCE)
        assert not any(thread.is_alive() for thread in (*self.writers, self.follower))
        assert self.errors == []
        assert [found["n"] for found in self.client.t.counters.find().sort("_id")] == self.counters
        assert [found["_id"] for found in self.client.t.items.find().sort("_id")] == self.inserted
        assert self.events == self.inserted
        return self.longest


@pytest.fixture
def members(postgres, tmp_path):
    url = postgres.database()
    first = Member(tmp_path / "first", url)
    first.client()
    second = Member(tmp_path / "second", url)
    until(lambda: second.says("standby: the server 127.0.0.1 since"))
    yield first, second
    for member in (first, second):
        if member.process.poll() is None:
            member.process.kill()
            member.process.wait()


def test_a_standby_takes_over_from_a_server_that_was_killed_or_stopped(members):
    first, second = members
    assert not second.listens()
    standbys = lambda: first.client().admin.command("serverStatus")["storageEngine"]["standbys"]  # noqa: E731
    assert standbys() == {"servers": 1, "databases": 0, "areSynchronous": False}
    assert first.is_healthy() and second.is_healthy()
    code, said = storage("check", first.url)
    assert code == 0 and "There is no standby of PostgreSQL." in said
    assert "Servers that wait to take the store over: 1." in said
    load = Load(members)
    load.goes_on()
    first.process.kill()
    first.process.wait()
    load.goes_on()
    assert second.listens() and second.is_healthy() and not first.is_healthy()
    first.start()
    until(lambda: first.says("standby: the server 127.0.0.1 since"))
    assert second.end() == 0
    load.goes_on()
    assert first.listens()
    # Two and a half seconds on a quiet machine: most of them until the driver looks again.
    assert load.end() < 15
    assert first.end() == 0


def test_a_server_that_was_paused_becomes_the_standby(members):
    first, second = members
    load = Load(members)
    load.goes_on()
    with load.impatient.start_session() as session:
        session.start_transaction()
        load.impatient.t.items.insert_one({"_id": "never"}, session=session)
        first.process.send_signal(signal.SIGSTOP)
        until(lambda: second.says("ready on"))
        # Clients whose connections are to the paused server wait for it.
        first.process.send_signal(signal.SIGCONT)
        load.goes_on()
        with pytest.raises(PyMongoError) as failed:
            session.commit_transaction()
        labels = ("TransientTransactionError", "UnknownTransactionCommitResult")
        assert any(failed.value.has_error_label(label) for label in labels)
    until(lambda: first.says("another server has taken the store over"))
    until(lambda: first.says("standby: the server 127.0.0.1 since"))
    assert not first.listens()
    # The lease is ten seconds.
    assert load.end() < 30
    second.process.kill()
    second.process.wait()
    assert first.client().t.items.count_documents({"_id": "never"}) == 0
    assert first.end() == 0


def test_the_owner_goes_on_when_postgresql_was_restarted(postgres, members):
    first, second = members
    load = Load(members)
    load.goes_on()
    for _ in range(2):
        postgres.restart(1.5)
        load.goes_on()
    assert first.listens() and not second.listens()
    assert second.says("standby: the database cannot be reached")
    # No client has seen an error: operations wait for the database.
    assert load.end() < 15
    assert second.end() == 0 and first.end() == 0


def test_a_standby_ends_when_it_is_asked_to(members, tmp_path):
    first, second = members
    assert second.end() == 0
    # A port in use is found at once.
    until(lambda: "over: 0." in storage("check", first.url)[1])
    third = Member(tmp_path / "third", first.url)
    until(lambda: third.says("standby: "))
    fourth = Node(tmp_path / "fourth", first.url, STANDBY, port=first.port)
    code, said = fourth.refused()
    assert code == 48 and "uses this port" in said
    assert third.end() == 0 and first.end() == 0
    code, said = Node(tmp_path / "careful", first.url, "--requireSynchronousStandby").refused()
    assert code == 1 and "synchronous_standby_names" in said
    words = [os.environ["MAYFLYDB_BIN"], "--dbpath", tmp_path / "embedded", "--port", "0", STANDBY]
    ended = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=False)
    assert ended.returncode == 2 and "only a store in PostgreSQL has several servers" in ended.stderr


def test_of_two_waiting_servers_one_takes_over_and_the_other_waits_again(members, tmp_path):
    first, second = members
    third = Member(tmp_path / "third", first.url)
    try:
        until(lambda: third.says("standby: "))
        first.process.kill()
        first.process.wait()
        until(lambda: second.says("ready on") or third.says("ready on"))
        owner, other = (second, third) if second.says("ready on") else (third, second)
        owner.client().t.items.insert_one({})
        standbys = lambda: owner.client().admin.command("serverStatus")["storageEngine"]["standbys"]["servers"]  # noqa: E731
        until(lambda: standbys() == 1)
        # The other one is asked to stop while it opens the store.
        assert owner.end() == 0 and other.end() == 0
    finally:
        if third.process.poll() is None:
            third.process.kill()
            third.process.wait()
