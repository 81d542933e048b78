"""`mayflydb copy`: a store moves between a data folder and PostgreSQL while clients use it."""

import datetime
import os
import re
import signal
import subprocess
import threading
import time
import uuid

import pymongo
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from pymongo.errors import OperationFailure, PyMongoError

from postgres import free_port
from test_postgres import PATIENCE, environment

# In a debug build on a loaded machine.
LONGEST_SWITCH = 8


class Server:
    """A server on one of the engines."""

    def __init__(self, folder, *flags, port=None, url=None, data=None):
        folder.mkdir(exist_ok=True)
        self.data, self.port, self.log = data or folder / "data", port or free_port(), folder / "log"
        engine = ["--storageEngine", "postgres", "--storageUrl", url, "--dbpath", folder / "scratch"] if url else ["--dbpath", self.data]
        words = [os.environ["MAYFLYDB_BIN"], "--port", str(self.port), *engine, *flags]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment(),
            )

    def ready(self):
        deadline = time.monotonic() + PATIENCE
        while not re.search(r"ready on 127\.0\.0\.1:\d+", self.log.read_text()):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return self

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}"

    def client(self, **options):
        self.ready()
        return pymongo.MongoClient(self.uri, directConnection=True, serverSelectionTimeoutMS=20_000, **options)

    def wait(self):
        return self.process.wait(PATIENCE), self.log.read_text()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)


class Copy:
    """A run of `mayflydb copy`."""

    def __init__(self, folder, source, target, *flags):
        self.log = folder / f"copy-{uuid.uuid4().hex}"
        words = [os.environ["MAYFLYDB_BIN"], "copy", "--from", str(source), "--to", str(target), *flags]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment(),
            )

    def said(self):
        return self.log.read_text()

    def until(self, text):
        deadline = time.monotonic() + PATIENCE
        while text not in self.said():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self):
        return self.process.wait(PATIENCE), self.said()


def copy(folder, *words):
    return Copy(folder, *words).end()


def fill(client, count=3000):
    """Collections of all kinds."""
    shop = client.shop
    now = datetime.datetime.now(datetime.timezone.utc)
    later = now + datetime.timedelta(hours=1)
    shop.carts.create_index("at", expireAfterSeconds=0)
    shop.carts.create_index([("tags", 1)])
    rows = [{"_id": n, "at": later, "tags": [n % 5, n % 7], "text": "x" * 200} for n in range(count)]
    shop.carts.insert_many(rows)
    shop.create_collection("capped", capped=True, size=100_000, max=20)
    shop.capped.insert_many({"n": n} for n in range(30))
    shop.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    shop.clustered.insert_many({"_id": n} for n in range(10))
    shop.create_collection("weather", timeseries={"timeField": "at", "metaField": "place"})
    shop.weather.insert_many({"at": now, "place": n % 3, "value": n} for n in range(100))
    shop.create_collection("few", viewOn="carts", pipeline=[{"$match": {"_id": {"$lt": 3}}}])
    shop.gone.insert_many({"_id": n} for n in range(500))
    shop.gone.delete_many({"_id": {"$lt": 250}})
    shop.large.insert_one({"_id": 1, "bytes": b"y" * 14_000_000})


def check(client, count=3000):
    shop = client.shop
    assert shop.carts.count_documents({"_id": {"$lt": count}}) == count
    assert shop.carts.count_documents({"tags": 3}) >= count // 5
    assert [row["n"] for row in shop.capped.find()] == list(range(10, 30))
    assert shop.command("listCollections", filter={"name": "clustered"})["cursor"]["firstBatch"][0]["options"]["clusteredIndex"]
    assert shop.weather.count_documents({}) >= 100 and shop.few.count_documents({}) == 3
    assert shop.gone.count_documents({}) == 250
    assert len(shop.large.find_one()["bytes"]) == 14_000_000
    for name in ("carts", "gone", "weather", "capped"):
        checked = shop.command("validate", name, full=True)
        assert checked["valid"], checked


class Writers:
    """Clients that write all the time: inserts with retries, transactions, increments, updates that expire."""

    def __init__(self, *ports):
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.client = pymongo.MongoClient(f"mongodb://{hosts}/", serverSelectionTimeoutMS=60_000)
        self.ended, self.errors = threading.Event(), []
        self.inserted, self.counted, self.transferred, self.longest = [], 0, 0, 0
        self.client.shop.counter.insert_one({"_id": 1, "n": 0})
        self.client.shop.accounts.insert_many([{"_id": "a", "n": 0}, {"_id": "b", "n": 0}])
        self.threads = [threading.Thread(target=work) for work in (self.insert, self.count, self.transfer, self.measure)]
        for thread in self.threads:
            thread.start()

    def insert(self):
        number, last = 1_000_000, time.monotonic()
        while not self.ended.is_set():
            number += 1
            try:
                self.client.shop.items.insert_one({"_id": number})
                self.inserted.append(number)
            except PyMongoError as error:
                self.errors.append(error)
            self.longest = max(self.longest, time.monotonic() - last)
            last = time.monotonic()

    def count(self):
        while not self.ended.is_set():
            try:
                self.client.shop.counter.update_one({"_id": 1}, {"$inc": {"n": 1}})
                self.counted += 1
            except PyMongoError as error:
                self.errors.append(error)

    def transfer(self):
        """Both accounts change in one transaction."""
        def body(session):
            accounts = self.client.shop.accounts
            accounts.update_one({"_id": "a"}, {"$inc": {"n": 1}}, session=session)
            accounts.update_one({"_id": "b"}, {"$inc": {"n": -1}}, session=session)

        while not self.ended.is_set():
            try:
                with self.client.start_session() as session:
                    session.with_transaction(body)
                self.transferred += 1
            except PyMongoError as error:
                self.errors.append(error)

    def measure(self):
        number = 0
        while not self.ended.is_set():
            number += 1
            now = datetime.datetime.now(datetime.timezone.utc)
            try:
                self.client.shop.weather.insert_one({"at": now, "place": 7, "value": number})
                self.client.shop.carts.update_one({"_id": 10_000_000}, {"$set": {"at": now, "n": number}}, upsert=True)
            except PyMongoError as error:
                self.errors.append(error)

    def goes_on(self):
        seen, deadline = len(self.inserted), time.monotonic() + PATIENCE
        while len(self.inserted) < seen + 20:
            assert time.monotonic() < deadline, self.errors[-3:]
            time.sleep(0.02)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def watch_token(client):
    """A resume token, after one event was read."""
    with client.shop.watch() as stream:
        client.shop.events.insert_one({})
        deadline = time.monotonic() + PATIENCE
        while stream.try_next() is None:
            assert time.monotonic() < deadline
        return stream.resume_token


def send(client, lsid):
    """Sends a statement of this session, always as the same one."""
    with client.start_session() as session:
        assert session.session_id
        session._server_session.session_id = {"id": lsid}
        update = {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": True}
        client.shop.command({"update": "counted_once", "updates": [update], "txnNumber": Int64(1)}, session=session)


def test_a_store_moves_into_postgres_while_clients_write(postgres, tmp_path):
    url = postgres.database()
    source = Server(tmp_path / "source")
    fill(source.client())
    port = free_port()
    writers = Writers(source.port, port)
    token = watch_token(source.client())
    # A kill in the base, and two in the log.
    run = Copy(tmp_path, source.uri, url)
    run.until("are copied")
    run.kill()
    refused, said = Server(tmp_path / "early", url=url).wait()
    assert refused == 100 and ("'mayflydb copy'" in said or "is not complete" in said), said
    for _ in range(2):
        run = Copy(tmp_path, source.uri, url)
        run.until("follows less than a second late")
        writers.goes_on()
        source.client().shop[f"made_{uuid.uuid4().hex}"].create_index("a")
        run.kill()
    writers.goes_on()
    # A statement whose reply was lost: it is sent again, and once more at the new place.
    lost = Binary.from_uuid(uuid.uuid4())
    send(source.client(), lost)
    send(source.client(), lost)
    assert source.client().shop.counted_once.find_one()["n"] == 1
    final = Copy(tmp_path, source.uri, url, "--switchOver")
    final.until("Writes waited for")
    target = Server(tmp_path / "target", port=port, url=url)
    code, said = final.end()
    assert code == 0, said
    waited = int(re.search(r"Writes waited for (\d+) ms", said)[1])
    target.ready()
    writers.goes_on()
    writers.end()
    print(f"writes waited for {waited} ms, the longest insert took {writers.longest:.2f} s")
    assert waited < 1000 * LONGEST_SWITCH
    assert source.process.wait(PATIENCE) == 0
    client = target.client()
    check(client)
    found = {row["_id"] for row in client.shop.items.find()}
    assert set(writers.inserted) <= found and len(found) <= len(writers.inserted) + len(writers.errors)
    # Each write counts once, although drivers have repeated some.
    counted = client.shop.counter.find_one()["n"]
    assert writers.counted <= counted <= writers.counted + len(writers.errors)
    accounts = {row["_id"]: row["n"] for row in client.shop.accounts.find()}
    assert accounts["a"] == -accounts["b"] and accounts["a"] >= writers.transferred
    send(client, lost)
    assert client.shop.counted_once.find_one()["n"] == 1
    with pytest.raises(OperationFailure) as gone:
        client.shop.watch(resume_after=token)
    assert gone.value.code == 286
    assert not client.admin.command("serverStatus")["ttl"].get("suspended")
    # The old folder is not opened again.
    code, said = Server(tmp_path / "source2", data=source.data).wait()
    assert code == 100 and "was moved to another place" in said
    assert target.end() == 0
    # And back, without a server: the database stays as it is.
    back = tmp_path / "back"
    code, said = copy(tmp_path, url, back, "--verify")
    assert code == 0 and "shop.carts" in said and "differ" not in said, said
    again = Server(tmp_path / "again", data=back)
    check(again.client())
    assert again.client().shop.items.count_documents({}) == len(found)
    assert again.end() == 0


def test_a_server_waits_for_the_target(postgres, tmp_path):
    url, port = postgres.database(), free_port()
    source = Server(tmp_path / "source")
    fill(source.client())
    writers = Writers(source.port, port)
    run = Copy(tmp_path, source.uri, url, "--switchOver")
    run.until("are copied")
    target = Server(tmp_path / "target", "--storageStandby", port=port, url=url)
    code, said = run.end()
    assert code == 0, said
    target.ready()
    writers.goes_on()
    writers.end()
    print(f"{said.splitlines()[-1]} The longest insert took {writers.longest:.2f} s.")
    assert writers.longest < LONGEST_SWITCH
    check(target.client())
    counted = target.client().shop.counter.find_one()["n"]
    assert writers.counted <= counted <= writers.counted + len(writers.errors)
    assert target.end() == 0 and source.process.wait(PATIENCE) == 0


def test_offline_copies_can_be_killed_and_are_compared(postgres, tmp_path):
    url = postgres.database()
    source = Server(tmp_path / "source")
    fill(source.client(), 20_000)
    assert source.end() == 0
    run = Copy(tmp_path, source.data, url)
    run.until("are copied")
    run.kill()
    code, said = copy(tmp_path, source.data, url, "--verify")
    assert code == 0 and "The copy is complete" in said and "differ" not in said, said
    code, said = copy(tmp_path, source.data, url, "--verify")
    assert code == 0, said
    target = Server(tmp_path / "target", url=url)
    check(target.client(), 20_000)
    target.client().shop.carts.delete_one({"_id": 5})
    assert target.end() == 0
    code, said = copy(tmp_path, source.data, url, "--verify")
    assert code == 1 and re.search("shop.carts .* the documents differ", said) and "collections differ" in said, said
    assert re.search("shop.gone .* equal", said), said
    # The source can still be used, and a server that has opened it makes the next copy begin again.
    source = Server(tmp_path / "source")
    assert source.client().shop.carts.count_documents({"_id": 5}) == 1
    assert source.end() == 0


def test_the_base_goes_on_after_its_position(postgres, tmp_path):
    url = postgres.database()
    source = Server(tmp_path / "source")
    shop = source.client().shop
    # The target stores a position every 64 MB.
    for n in range(180):
        shop.large.insert_one({"_id": n, "bytes": b"y" * 1_000_000})
    assert source.end() == 0
    run, deadline = Copy(tmp_path, source.data, url), time.monotonic() + PATIENCE
    run.until("are copied")
    about = float(re.search(r"about ([0-9.]+) MB are copied", run.said())[1])
    assert 170 < about < 250, run.said()
    state = "select max(octet_length(value)) from mayflydb.catalog where key = 'x'"
    first = int(postgres.ask(url, state))
    while int(postgres.ask(url, state)) == first:
        assert run.process.poll() is None and time.monotonic() < deadline, run.said()
    run.kill()
    code, said = copy(tmp_path, source.data, url, "--verify")
    assert code == 0 and "the base goes on in the keyspace 'record'" in said and "differ" not in said, said
    # And into a folder: whatever its last files were, the copy is whole.
    target = tmp_path / "folder"
    run = Copy(tmp_path, url, target)
    while not list(target.glob("*.sst")):
        assert run.process.poll() is None and time.monotonic() < deadline, run.said()
        time.sleep(0.01)
    run.kill()
    code, said = copy(tmp_path, url, target, "--verify")
    assert code == 0 and "The copy is complete" in said and "differ" not in said, said


def test_a_copy_from_postgres_follows_and_goes_on_from_the_folder(postgres, tmp_path):
    url = postgres.database()
    source = Server(tmp_path / "source", url=url)
    fill(source.client())
    target = tmp_path / "moved"
    run = Copy(tmp_path, source.uri, target)
    run.until("follows less than a second late")
    source.client().shop.carts.insert_one({"_id": 50_000})
    run.kill()
    source.client().shop.carts.insert_one({"_id": 50_001})
    # The server of the source has ended: the copy goes on without it.
    assert source.end() == 0
    code, said = copy(tmp_path, source.uri, target, "--switchOver")
    assert code == 1 and "check that the server of the source is running" in said
    code, said = copy(tmp_path, url, target, "--switchOver", "--verify")
    assert code == 0 and "The copy is complete" in said, said
    moved = Server(tmp_path / "target", data=target)
    check(moved.client())
    assert moved.client().shop.carts.count_documents({"_id": {"$gte": 50_000}}) == 2
    assert moved.end() == 0
    code, said = Server(tmp_path / "late", url=url).wait()
    assert code == 100 and "was moved to another place" in said


def test_writes_go_on_when_a_copy_dies_during_the_switch_over(tmp_path):
    source = Server(tmp_path / "source")
    client = source.client()
    client.shop.carts.insert_one({"_id": 1})
    id, admin = Binary.from_uuid(uuid.uuid4()), client.admin
    admin.command({"copyStore": 1, "step": "begin", "copy": id})
    held = admin.command({"moveStore": 1, "step": "hold", "copy": id, "limitMillis": 700})
    began = time.monotonic()
    client.shop.carts.insert_one({"_id": 2})
    assert 0.3 < time.monotonic() - began < PATIENCE
    with pytest.raises(OperationFailure) as late:
        admin.command({"moveStore": 1, "step": "finish", "copy": id, "time": held["time"]})
    assert late.value.code == 43
    client.shop.carts.insert_one({"_id": 3})
    assert source.end() == 0


def test_bad_input_is_refused(postgres, tmp_path):
    url, other = postgres.database(), postgres.database()
    source = Server(tmp_path / "source")
    source.client().shop.carts.insert_one({"_id": 1})
    empty = tmp_path / "empty"

    def refused(code, text, *words):
        found, said = copy(tmp_path, *words)
        assert found == code and text in said, said

    refused(2, "--from must be of one of the forms", "http://x", url)
    refused(2, "names no host", "mongodb://", url)
    refused(2, "name the same store", empty, empty)
    refused(2, "name the same store", url, url)
    refused(2, "--to must be", source.data, source.uri)
    refused(2, "--verify needs", source.uri, url, "--verify")
    refused(100, "contains no store", tmp_path / "missing", url)
    refused(100, "it contains no store", other, empty)
    refused(100, "--from mongodb://", source.data, url)
    refused(1, "check that the server", "mongodb://127.0.0.1:1", url)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    refused(100, "is not empty", source.uri, tmp_path / "full")
    used = Server(tmp_path / "used", url=other)
    used.client().shop.carts.insert_one({"_id": 1})
    refused(100, "another server has the store open", source.uri, other)
    assert used.end() == 0
    refused(100, "it contains a store", source.uri, other)
    run = Copy(tmp_path, source.uri, url)
    run.until("follows less than a second late")
    run.kill()
    second = Server(tmp_path / "second")
    second.client().shop.carts.insert_one({"_id": 1})
    refused(100, "an unfinished copy of another store", second.uri, url)
    assert second.end() == 0 and source.end() == 0


def test_rights_are_needed(tmp_path):
    source = Server(tmp_path / "source", "--auth")
    source.client().admin.command("createUser", "root", pwd="r", roles=["root"])
    admin = source.client(username="root", password="r").admin
    admin.command("createUser", "reader", pwd="r", roles=["readAnyDatabase"])
    admin.command("createUser", "copier", pwd="c", roles=["backup"])
    uri = "mongodb://{}@127.0.0.1:" + str(source.port)
    code, said = copy(tmp_path, source.uri, tmp_path / "a")
    assert code == 2 and "role backup" in said, said
    code, said = copy(tmp_path, uri.format("reader:r"), tmp_path / "b")
    assert code == 2 and "role backup" in said, said
    code, said = copy(tmp_path, uri.format("copier:c"), tmp_path / "c", "--switchOver")
    assert code == 2 and "hostManager" in said, said
    run = Copy(tmp_path, uri.format("copier:c"), tmp_path / "c")
    run.until("follows less than a second late")
    run.process.send_signal(signal.SIGINT)
    run.process.wait(PATIENCE)
    code, said = copy(tmp_path, uri.format("root:r"), tmp_path / "c", "--switchOver")
    assert code == 0, said
    moved = Server(tmp_path / "moved", "--auth", data=tmp_path / "c")
    assert moved.client(username="copier", password="c").admin.command("ping")["ok"] == 1
    assert moved.end() == 0 and source.process.wait(PATIENCE) == 0
