"""A server over PostgreSQL as its operator meets it: starts that are refused, a crash, a database that goes away."""

import os
import re
import subprocess
import threading
import time

import pymongo
import pytest
from pymongo.errors import PyMongoError

from postgres import Network, Postgres

PATIENCE = 60


def environment():
    """Without the variables that are meant for another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}


class Node:
    """A server that stores in a database."""

    def __init__(self, folder, url, *arguments, port=0):
        folder.mkdir(exist_ok=True)
        self.log = folder / "log"
        flags = ["--port", str(port), "--dbpath", folder / "data", "--storageEngine", "postgres", "--storageUrl", url]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [os.environ["MAYFLYDB_BIN"], *flags, *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment(),
            )

    def client(self):
        deadline = time.monotonic() + PATIENCE
        while not (ready := re.search(r"ready on (127\.0\.0\.1:\d+)", self.log.read_text())):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return pymongo.MongoClient(f"mongodb://{ready[1]}", directConnection=True, serverSelectionTimeoutMS=2000)

    def refused(self):
        """The exit code, and what the process said."""
        return self.process.wait(PATIENCE), self.log.read_text()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)


def test_starts_that_are_refused(postgres, tmp_path):
    url = postgres.database()
    node = Node(tmp_path / "first", url)
    node.client().shop.carts.insert_one({"_id": 1})
    code, said = Node(tmp_path / "second", url).refused()
    assert code == 100 and "another server has the store open" in said
    assert node.end() == 0
    code, said = Node(tmp_path / "set", url, "--replSet", "rs0").refused()
    assert code == 2 and "PostgreSQL replicates the data" in said
    code, said = Node(tmp_path / "missing", postgres.url("missing")).refused()
    assert code == 1 and "createdb" in said
    code, said = Node(tmp_path / "nowhere", "postgresql://mayfly:hidden@127.0.0.1:1/x").refused()
    assert code == 100 and "hidden" not in said
    assert postgres.sql("alter role mayfly set synchronous_commit = off") == 0
    code, said = Node(tmp_path / "careless", url).refused()
    assert code == 1 and "synchronous_commit is off" in said
    assert postgres.sql("alter role mayfly reset synchronous_commit") == 0
    node = Node(tmp_path / "first", url)
    assert node.client().shop.carts.count_documents({}) == 1
    assert node.end() == 0


def test_a_first_start_that_failed_names_the_schema_to_drop(postgres, tmp_path):
    url, scripts = postgres.database(), tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "a.sh").write_text("exit 3\n")
    for sentence in ["cannot run the script", "did not finish"]:
        code, said = Node(tmp_path / "node", url, "--initFolder", scripts).refused()
        assert code == 1 and sentence in said and "drop the schema mayflydb" in said


def storage(action, url):
    """Runs `mayflydb storage`; gives its exit code, and what it said."""
    command = [os.environ["MAYFLYDB_BIN"], "storage", action, "--storageUrl", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_store_is_checked_without_a_server(postgres, tmp_path):
    url = postgres.database()
    code, said = storage("check", url)
    assert code == 0 and "there is no store yet" in said
    assert storage("init", url) == (0, "The store is ready.\n")
    node = Node(tmp_path / "node", url)
    node.client().shop.carts.insert_one({"_id": 1})
    code, said = storage("check", url)
    assert code == 0 and "the format of this version" in said
    code, said = storage("stats", url)
    assert code == 0 and re.search(r"^record +\S+ +\d+ +\d+$", said, re.MULTILINE)
    code, said = storage("init", url)
    assert code == 100 and "another server has the store open" in said
    assert node.end() == 0
    assert storage("check", postgres.url("missing"))[0] == 1
    # A user who may not create a store, and who may not use one.
    assert postgres.sql("create role guest login") == 0
    for database in [postgres.database(), url]:
        code, said = storage("check", database.replace("mayfly@", "guest@"))
        assert code == 1 and "the user lacks a right" in said


def test_a_crash_loses_no_acknowledged_write(postgres, tmp_path):
    url = postgres.database()
    node = Node(tmp_path / "node", url)
    for _ in range(3):
        carts = node.client().shop.carts
        carts.create_index("at", expireAfterSeconds=3600)
        last = carts.find_one(sort=[("_id", -1)])
        acknowledged = [last["_id"]] if last else [0]
        crash = threading.Timer(1, node.process.kill)
        crash.start()
        try:
            while True:
                number = acknowledged[-1] + 1
                carts.insert_one({"_id": number})
                acknowledged.append(number)
        except PyMongoError:
            pass
        node.process.wait(PATIENCE)
        node = Node(tmp_path / "node", url)
        carts = node.client().shop.carts
        assert len(acknowledged) > 1
        found = carts.count_documents({"_id": {"$gte": 1}})
        # The last insert may have been committed without its reply.
        assert found in (acknowledged[-1], acknowledged[-1] + 1)
        checked = carts.database.command("validate", "carts", full=True)
        assert checked["valid"], checked
    assert node.end() == 0


def test_the_database_ends_connections(postgres, tmp_path):
    node = Node(tmp_path / "node", postgres.database())
    client = node.client()
    carts = client.shop.carts
    carts.insert_many([{"_id": number} for number in range(100)])
    end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'mayfly' and pid <> pg_backend_pid()"
    for number in range(100, 110):
        assert postgres.sql(end) == 0
        # The first statement after it may fail; the driver repeats it once.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                carts.update_one({"_id": number}, {"$set": {"n": number}}, upsert=True)
                break
            except PyMongoError:
                assert time.monotonic() < deadline
    assert carts.count_documents({}) == 110
    assert client.shop.command("validate", "carts", full=True)["valid"]
    assert client.admin.command("serverStatus")["storageEngine"]["name"] == "postgres"
    assert node.end() == 0


def test_a_standby_takes_over_without_a_lost_write(tmp_path):
    with Postgres(tmp_path / "primary.log") as primary, primary.begin_standby("s1") as standby:
        database = primary.database().rsplit("/", 1)[1].split("?")[0]
        both = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://mayfly@{both}/{database}?sslmode=disable&target_session_attrs=read-write"
        node = Node(tmp_path / "node", url)
        carts = node.client().shop.carts
        acknowledged, stopping = [], threading.Event()

        def write():
            for number in range(1_000_000):
                if stopping.is_set():
                    return
                try:
                    carts.insert_one({"_id": f"{threading.get_ident()} {number}"})
                except PyMongoError:
                    continue
                acknowledged.append(f"{threading.get_ident()} {number}")

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + PATIENCE
        while len(acknowledged) < 500:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        primary.process.kill()
        primary.process.wait()
        before = len(acknowledged)
        standby.promote()
        while len(acknowledged) < before + 500:
            assert time.monotonic() < deadline, node.log.read_text()
            time.sleep(0.01)
        stopping.set()
        for writer in writers:
            writer.join()
        found = {cart["_id"] for cart in carts.find()}
        assert not set(acknowledged) - found
        assert carts.database.command("validate", "carts", full=True)["valid"]
        assert node.end() == 0


def test_compact_vacuums_the_tables(postgres, tmp_path):
    url = postgres.database()
    node = Node(tmp_path / "node", url)
    carts = node.client().shop.carts
    carts.insert_many([{"_id": number} for number in range(1000)])
    carts.delete_many({})
    assert carts.database.command("compact", "carts")["ok"] == 1
    assert node.end() == 0
    count = "select sum(vacuum_count) from pg_stat_user_tables where schemaname = 'mayflydb'"
    deadline = time.monotonic() + PATIENCE
    while postgres.ask(url, count) != "2":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_long_keys_are_refused_by_name(postgres, tmp_path):
    node = Node(tmp_path / "node", postgres.database())
    carts = node.client().shop.carts
    carts.create_index("note")
    carts.create_index("code", unique=True)
    carts.insert_one({"_id": 1, "note": "x" * 2000, "code": 1})
    for document, index in [
        ({"_id": "x" * 3000}, "_id_"), ({"note": "x" * 3000}, "note_1"), ({"code": "x" * 3000}, "code_1"),
    ]:
        with pytest.raises(pymongo.errors.WriteError) as refused:
            carts.insert_one(document)
        assert refused.value.code == 17280 and f"shop.carts {index}" in str(refused.value)
    with pytest.raises(pymongo.errors.WriteError) as refused:
        carts.update_one({"_id": 1}, {"$set": {"note": "y" * 3000}})
    assert refused.value.code == 17280
    assert carts.count_documents({}) == 1
    assert node.end() == 0


def test_a_server_ends_although_postgresql_does_not_answer(postgres, tmp_path):
    network = Network(postgres.port)
    node = Node(tmp_path / "node", postgres.database().replace(f":{postgres.port}/", f":{network.port}/"))
    try:
        node.client().t.c.insert_one({"_id": 1})
        network.flows.clear()
        begun = time.monotonic()
        assert node.end() == 1 and "acknowledged writes are stored" in node.log.read_text()
        # It takes nine seconds.
        assert time.monotonic() - begun < 25
    finally:
        network.close()
