"""Backups of a running server, and restores: what is in them, what an interruption leaves, and what a mistake answers."""

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

BINARY = os.environ["MAYFLYDB_BIN"]
# The program refuses variables that are no keys of its configuration.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}
PATIENCE_SECS = 60


class Server:
    """A server in a folder of its own, started on a free port."""

    def __init__(self, folder, *arguments):
        self.folder, self.log = Path(folder), Path(f"{folder}.log")
        self.arguments = arguments
        self.start()

    def start(self):
        self.log.unlink(missing_ok=True)
        # The reserve of the disk is a file in each folder.
        common = ("--port", "0", "--diskReserveMB", "16")
        command = [BINARY, "--dbpath", self.folder, *common, "--logpath", self.log, *self.arguments]
        self.process = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        self.uri = f"mongodb://127.0.0.1:{self.port()}"
        self.client = MongoClient(self.uri, directConnection=True, serverSelectionTimeoutMS=PATIENCE_SECS * 1000)

    def port(self):
        def ready():
            assert self.process.poll() is None, self.log.read_text()
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            return next((line for line in lines if "mongosh" in line and "ready on" in line), None)

        line = until(ready)
        return int(line.split("ready on 127.0.0.1:")[1].split(" ")[0])

    def kill(self):
        self.client.close()
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.client.close()
        self.process.terminate()
        assert self.process.wait(PATIENCE_SECS) == 0

    def checkpoints(self):
        scratch = self.folder / "_tmp"
        return [entry.name for entry in scratch.iterdir() if entry.name.startswith("backup-")] if scratch.exists() else []


def until(holds):
    """Waits until a condition holds, and returns its value."""
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        if value := holds():
            return value
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def server(folder, *arguments):
    one = Server(folder, *arguments)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture
def source(tmp_path):
    with server(tmp_path / "data", "--backupFolder", tmp_path / "backups") as one:
        one.repository = tmp_path / "backups" / "daily"
        yield one


def task(*words):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=300, env=ENVIRONMENT)


def succeeds(*words):
    ended = task(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def fails(code, text, *words):
    ended = task(*words)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (code, 1), ended.stderr
    assert text in ended.stderr, ended.stderr


def back_up(one, *words):
    """Makes a backup; returns its name."""
    return succeeds("backup", "--uri", one.uri, "--to", "daily", *words).split()[2]


def restore(one, to, *words):
    return succeeds("restore", "--from", one.repository, "--dbpath", to, *words)


def hashes(client):
    names = [name for name in client.list_database_names() if name not in ("admin", "config", "local")]
    return {name: client[name].command("dbHash")["collections"] for name in names}


def noise(size):
    return random.randbytes(size)


def fill(client):
    """Collections of all kinds."""
    db = client.shop
    db.orders.insert_many({"_id": i, "text": noise(300)} for i in range(3000))
    db.orders.create_index("text")
    db.create_collection("capped", capped=True, size=100_000)
    db.capped.insert_many({"_id": i} for i in range(100))
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.clustered.insert_many({"_id": i} for i in range(100))
    db.create_collection("measured", timeseries={"timeField": "t", "metaField": "m"})
    begin = datetime(2026, 1, 1)
    db.measured.insert_many({"t": begin + timedelta(seconds=i), "m": i % 3, "v": i} for i in range(1000))
    db.create_collection("seen", viewOn="orders", pipeline=[{"$match": {"_id": {"$lt": 10}}}])
    db.command("createUser", "reader", pwd="secret", roles=["read"])


def test_a_restored_folder_has_everything(source, tmp_path):
    fill(source.client)
    first = back_up(source)
    before = hashes(source.client)
    source.client.other.later.insert_one({"_id": 1})
    second = back_up(source)
    after = hashes(source.client)
    assert second > first and before != after
    listed = succeeds("backup", "list", "--to", source.repository)
    assert listed.index(first) < listed.index(second)
    assert "is whole" in succeeds("backup", "verify", "--to", source.repository)
    for name, expected in ((first, before), (second, after), (None, after)):
        folder = tmp_path / f"restored-{name}"
        assert "Expiry is suspended" in restore(source, folder, *(["--backup", name] if name else []))
        with server(folder) as restored:
            assert hashes(restored.client) == expected
            db = restored.client.shop
            assert db.seen.count_documents({}) == 10 and db.measured.count_documents({}) == 1000
            assert db.command("usersInfo", "reader")["users"][0]["user"] == "reader"
            assert all(db.validate_collection(name)["valid"] for name in ("orders", "capped", "clustered"))
            db.orders.insert_one({"_id": "new"})
            restored.stop()


def test_the_second_backup_sends_new_files_only(source):
    source.client.t.big.insert_many({"_id": i, "noise": noise(1000)} for i in range(20_000))
    first = source.client.admin.command("backup", to="daily")
    assert first["parent"] is None and first["sentBytes"] > 15_000_000
    source.client.t.small.insert_one({"_id": 1})
    second = source.client.admin.command("backup", to="daily")
    assert second["parent"] == first["id"] and second["reusedFiles"] > 0
    assert second["sentBytes"] < first["sentBytes"] / 20 and second["bytes"] >= first["bytes"]
    # A first backup elsewhere, and one without a parent, read all files.
    assert source.client.admin.command("backup", to="weekly")["sentBytes"] > 15_000_000
    third = source.client.admin.command("backup", to="daily", parent="none")
    assert third["parent"] is None and third["reusedFiles"] == 0
    status = source.client.admin.command("backupStatus")
    assert status["last"]["id"] == third["id"] and "running" not in status and "failed" not in status
    assert source.checkpoints() == []


def test_a_backup_during_writes_is_one_moment(source, tmp_path):
    ended = threading.Event()
    client = source.client
    client.t.command("create", "a"), client.t.command("create", "b")

    def write(writer):
        number = 0
        while not ended.is_set():
            with client.start_session() as session, session.start_transaction():
                # Both or none, and no later pair without the earlier ones.
                client.t.a.insert_one({"w": writer, "n": number, "x": noise(500)}, session=session)
                client.t.b.insert_one({"w": writer, "n": number}, session=session)
            number += 1

    def define():
        while not ended.is_set():
            client.t.defined.create_index("x")
            client.t.defined.insert_one({"x": 1})
            client.t.defined.rename("renamed", dropTarget=True)
            client.t.orders.aggregate([{"$match": {}}, {"$out": "out"}])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    threads.append(threading.Thread(target=define))
    [thread.start() for thread in threads]
    names = []
    for _ in range(4):
        time.sleep(0.4)
        names.append(back_up(source))
    ended.set()
    [thread.join() for thread in threads]
    for name in names:
        folder = tmp_path / name
        restore(source, folder, "--backup", name)
        with server(folder) as restored:
            pairs = [{(it["w"], it["n"]) for it in restored.client.t[which].find()} for which in "ab"]
            assert pairs[0] == pairs[1] and pairs[0]
            for writer in range(3):
                numbers = sorted(n for w, n in pairs[0] if w == writer)
                assert numbers == list(range(len(numbers)))
            for collection in restored.client.t.list_collection_names():
                assert restored.client.t.validate_collection(collection, full=True)["valid"]


def test_what_is_due_survives_a_restore_until_it_is_resumed(source, tmp_path):
    soon = datetime.now(timezone.utc) + timedelta(seconds=2)
    hidden = {"key": {"at": 1}, "name": "at", "expireAfterSeconds": 0, "ttl": {"hideExpired": True}}
    source.client.t.sessions.create_index("at", expireAfterSeconds=0)
    source.client.t.command("createIndexes", "hidden", indexes=[hidden])
    for name in ("sessions", "hidden"):
        source.client.t[name].insert_many({"_id": i, "at": soon} for i in range(500))
    back_up(source)
    restore(source, tmp_path / "kept")
    restore(source, tmp_path / "resumed", "--resumeExpiry")
    time.sleep(2.5)
    every_second = ("--setParameter", "ttlMonitorSleepSecs=1")
    with server(tmp_path / "kept", *every_second) as restored:
        for _ in range(2):
            until(lambda: restored.client.admin.command("serverStatus")["ttl"]["suspendedPasses"] >= 2)
            assert [restored.client.t[name].count_documents({}) for name in ("sessions", "hidden")] == [500, 500]
            status = restored.client.admin.command("ttlStatus")
            assert status["suspended"]["reason"] == "restored" and status["totals"]["due"] == 1000
            until(lambda: restored.log.read_text().count('"due":500') == 2)
            # Neither a stop nor a crash resumes it.
            random.choice((restored.stop, restored.kill))()
            restored.start()
        assert restored.client.admin.command("ttlResume")["wasSuspended"]
        until(lambda: restored.client.t.sessions.count_documents({}) == 0)
        restored.kill()
        restored.start()
        assert "suspended" not in restored.client.admin.command("ttlStatus")
    with server(tmp_path / "resumed", *every_second) as restored:
        until(lambda: restored.client.t.sessions.count_documents({}) == 0)


def test_change_streams_cannot_resume_at_lost_times(source, tmp_path):
    events = source.client.t.c
    with events.watch() as stream:
        events.insert_one({"_id": 1})
        before = stream.next()["_id"]
        back_up(source)
        time.sleep(1)
        events.insert_one({"_id": 2})
        lost = stream.next()["_id"]
    restore(source, tmp_path / "restored")
    with server(tmp_path / "restored") as restored:
        with restored.client.t.c.watch(resume_after=before) as stream:
            restored.client.t.c.insert_one({"_id": 3})
            assert stream.next()["documentKey"] == {"_id": 3}
        with pytest.raises(OperationFailure) as failed:
            restored.client.t.c.watch(resume_after=lost)
        assert failed.value.code == 286
        # The next backup is of another store.
        restored.stop()
        restored.arguments = ("--backupFolder", tmp_path / "backups")
        restored.start()
        with pytest.raises(OperationFailure, match="choose another folder or prefix"):
            restored.client.admin.command("backup", to="daily")
        assert restored.client.admin.command("backup", to="restored")["parent"] is None


def slow_backup(one, max_mbps=1):
    """Begins a backup that takes several seconds, in a process of its own; returns it when bytes are being copied."""
    words = ["backup", "--uri", one.uri, "--to", "daily", "--parent", "none", "--maxMBps", max_mbps]
    process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    until(lambda: running(one.client))
    return process


def running(client):
    ops = client.admin.command({"currentOp": 1, "command.backup": 1})["inprog"]
    return next((op for op in ops if op.get("progress", {}).get("total")), None)


def test_a_backup_shows_its_progress_and_can_be_killed(source):
    source.client.t.big.insert_many({"_id": i, "noise": noise(1000)} for i in range(10_000))
    process = slow_backup(source)
    op = running(source.client)
    assert op["progress"]["total"] > 9_000_000 and op["msg"].startswith("Backup")
    assert source.client.admin.command("backupStatus")["running"]["opid"] == op["opid"]
    with pytest.raises(OperationFailure) as failed:
        source.client.admin.command("backup", to="weekly")
    assert failed.value.code == 117
    source.client.admin.command("killOp", op=op["opid"])
    _, text = process.communicate(timeout=10)
    assert process.returncode == 1 and "interrupted" in text
    assert not running(source.client) and source.checkpoints() == []
    assert "interrupted" in source.client.admin.command("backupStatus")["failed"]["errmsg"]
    # It ends with its client, too.
    process = slow_backup(source)
    process.kill()
    process.communicate()
    until(lambda: not running(source.client) and not source.checkpoints())
    with pytest.raises(OperationFailure) as failed:
        source.client.admin.command("backup", to="daily", parent="none", maxMBps=1, maxTimeMS=1000)
    assert failed.value.code == 50
    assert "no complete backup" in succeeds("backup", "list", "--to", source.repository)
    back_up(source)
    assert "is whole" in succeeds("backup", "verify", "--to", source.repository)


def test_a_server_that_is_stopped_or_killed_during_a_backup(source):
    source.client.t.big.insert_many({"_id": i, "noise": noise(1000)} for i in range(10_000))
    first = back_up(source)
    source.stop()
    # A stop otherwise lets the backup finish.
    source.arguments += ("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100")
    source.start()
    for end in (source.kill, source.stop, source.kill):
        process = slow_backup(source)
        time.sleep(random.random())
        end()
        process.communicate(timeout=30)
        assert process.returncode != 0
        source.start()
        assert source.checkpoints() == []
        source.client.t.small.insert_one({})
    second = back_up(source)
    listed = succeeds("backup", "list", "--to", source.repository)
    assert listed.count("2026") + listed.count("2027") >= 2 and listed.splitlines()[2].startswith(second)
    assert listed.splitlines()[1].startswith(first)
    assert "is whole" in succeeds("backup", "verify", "--to", source.repository)


def test_a_restore_that_is_killed_at_any_point_goes_on(source, tmp_path):
    fill(source.client)
    source.client.t.big.insert_many({"_id": i, "noise": noise(1000)} for i in range(10_000))
    back_up(source)
    expected = hashes(source.client)
    folder = tmp_path / "restored"
    words = [BINARY, "restore", "--from", str(source.repository), "--dbpath", str(folder)]
    kills = 0
    while kills < 12:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        time.sleep(random.choice((random.random() * 0.05, random.random() * 0.4)))
        process.kill()
        process.wait()
        if (folder / "RESTORE_UNFINISHED").exists():
            fails(100, "a restore into it is not complete", "--dbpath", folder, "--port", "0")
        elif (folder / "CURRENT").exists():
            # It was complete before it was killed.
            with server(folder) as restored:
                assert hashes(restored.client) == expected
            shutil.rmtree(folder)
        kills += 1
    ended = subprocess.run(words, env=ENVIRONMENT)
    assert ended.returncode == 0
    with server(folder) as restored:
        assert hashes(restored.client) == expected
        assert restored.client.admin.command("ttlStatus")["suspended"]["reason"] == "restored"
    assert not [entry for entry in folder.iterdir() if entry.name.startswith((".tmp", "RESTORE"))]


def contents(repository):
    return sorted(path for path in (repository / "files").iterdir() if path.stat().st_size > 0)


def test_damage_is_found_and_named(source, tmp_path):
    source.client.t.c.insert_many({"_id": i, "x": noise(100)} for i in range(1000))
    name = back_up(source)
    whole = tmp_path / "whole"
    shutil.copytree(source.repository, whole)
    manifest = f"backups/{name}/manifest.json"
    for path in [*contents(source.repository), source.repository / manifest, source.repository / "repository.json"]:
        relative = path.relative_to(source.repository)
        damaged = tmp_path / "damaged"
        shutil.copytree(whole, damaged)
        place = damaged / relative
        bytes = bytearray(place.read_bytes())
        bytes[random.randrange(len(bytes))] ^= 1 << random.randrange(8)
        place.write_bytes(bytes)
        for words in (["backup", "verify", "--to", damaged], ["restore", "--from", damaged, "--dbpath", tmp_path / "new"]):
            ended = task(*words)
            assert ended.returncode in (14, 62) and str(relative) in ended.stderr, (relative, ended.stderr)
        place.unlink()
        ended = task("restore", "--from", damaged, "--dbpath", tmp_path / "new")
        assert ended.returncode in (14, 62, 100), ended.stderr
        shutil.rmtree(damaged)
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
    restore(source, tmp_path / "new")


def test_mistakes_have_a_sentence_a_code_and_no_effect(source, tmp_path):
    name = back_up(source)
    repository, new = source.repository, tmp_path / "new"
    full, empty = tmp_path / "full", tmp_path / "empty"
    full.mkdir(), empty.mkdir()
    (full / "x").write_text("x")
    from_daily = ("restore", "--from", repository, "--dbpath")
    fails(100, "it is not empty: it contains 'x'", *from_daily, full)
    fails(100, "has it open", *from_daily, source.folder)
    fails(100, "No such file or directory", "restore", "--from", tmp_path / "nowhere", "--dbpath", new)
    fails(100, "no repository.json", "restore", "--from", empty, "--dbpath", new)
    fails(62, "but no repository.json", "restore", "--from", full, "--dbpath", new)
    fails(2, "the name of a backup", *from_daily, new, "--backup", "x")
    fails(14, "does not exist", *from_daily, new, "--backup", "20200101T000000000Z-00000000")
    fails(2, "--uri is missing", "backup", "--to", "daily")
    fails(2, "--to is missing", "backup", "--uri", source.uri)
    fails(2, "must begin with mongodb://", "backup", "--uri", "127.0.0.1", "--to", "daily")
    fails(2, "inside of 'backup.folder'", "backup", "--uri", source.uri, "--to", "../daily")
    fails(2, "inside of 'backup.folder'", "backup", "--uri", source.uri, "--to", "/etc")
    fails(2, "'backup.urls'", "backup", "--uri", source.uri, "--to", "s3://bucket/x")
    fails(2, "not a valid value", "backup", "--uri", source.uri, "--to", "daily", "--parent", name)
    fails(1, "refused", "backup", "--uri", "mongodb://127.0.0.1:1", "--to", "daily")
    fails(2, "would delete all backups", "backup", "prune", "--to", repository)
    assert not new.exists() and list(empty.iterdir()) == [] and list(full.iterdir()) == [full / "x"]
    # A repository of another store, and of a later format.
    with server(tmp_path / "other", "--backupFolder", tmp_path / "backups") as other:
        with pytest.raises(OperationFailure, match="backups of the store"):
            other.client.admin.command("backup", to="daily")
    assert name in succeeds("backup", "list", "--to", repository)


def test_a_backup_needs_the_role_backup(tmp_path):
    with server(tmp_path / "data", "--auth", "--backupFolder", tmp_path / "backups") as one:
        users = {"root": "root", "backer": "backup", "reader": "readAnyDatabase", "restorer": "restore"}
        admin = one.client.admin
        for user, role in users.items():
            admin.command("createUser", user, pwd=f"{user}@:/1", roles=[role])
            if user == "root":
                admin = MongoClient(one.uri, username="root", password="root@:/1", directConnection=True).admin
        uri = lambda user: one.uri.replace("mongodb://", f"mongodb://{user}:{user}%40%3A%2F1@")
        back_up_as = lambda user: ("backup", "--uri", uri(user), "--to", "daily")
        fails(2, "requires authentication", "backup", "--uri", one.uri, "--to", "daily")
        fails(2, "not authorized", *back_up_as("reader"))
        fails(2, "not authorized", *back_up_as("restorer"))
        fails(2, "Authentication failed", "backup", "--uri", uri("backer").replace("%2F1", "x"), "--to", "daily")
        assert not (tmp_path / "backups" / "daily").exists()
        assert "is complete" in succeeds(*back_up_as("backer"))
        backer = MongoClient(uri("backer"), directConnection=True)
        assert backer.admin.command("backupStatus")["last"]["sentBytes"] > 0
        with pytest.raises(PyMongoError):
            MongoClient(uri("reader"), directConnection=True).admin.command("backupStatus")


def test_old_backups_are_pruned(source):
    for n in range(4):
        source.client.t.c.insert_one({"_id": n, "x": noise(10_000)})
        last = back_up(source)
    prune = ("backup", "prune", "--to", source.repository, "--keep-last", 2)
    assert "Nothing was deleted" in succeeds(*prune)
    assert succeeds("backup", "list", "--to", source.repository).count("Z-") == 7
    assert "This was deleted" in succeeds(*prune, "--yes")
    listed = succeeds("backup", "list", "--to", source.repository)
    assert last in listed and len(listed.splitlines()) == 4
    assert "is whole" in succeeds("backup", "verify", "--to", source.repository)


def test_a_backup_waits_for_fsync_unlock(source):
    source.client.admin.command("fsync", lock=True)
    with pytest.raises(OperationFailure) as failed:
        source.client.admin.command("backup", to="daily", maxTimeMS=500)
    assert failed.value.code == 50
    source.client.admin.command("fsyncUnlock")
    back_up(source)


def test_an_engine_without_files_is_backed_up_as_entries(tmp_path):
    options = ("--storageEngine", "memory", "--backupFolder", tmp_path / "backups", "--backupTo", tmp_path / "backups" / "daily",
               "--backupLogIntervalSecs", "1")  # fmt: skip
    with server(tmp_path / "data", *options) as one:
        one.repository = tmp_path / "backups" / "daily"
        fill(one.client)
        # Deleted records that the log refers to.
        one.client.shop.orders.delete_many({"_id": {"$lt": 100}})
        first = one.client.admin.command("backup", to="daily")
        expected = hashes(one.client)
        assert first["sentBytes"] == first["bytes"] > 500_000
        one.client.t.later.insert_one({"_id": 1})
        second = one.client.admin.command("backup", to="daily")
        assert second["parent"] == first["id"]
        with pytest.raises(OperationFailure) as failed:
            one.client.admin.command("aggregate", 1, pipeline=[{"$backupCursor": {}}], cursor={})
        assert failed.value.code == 115
        one.client.t.later.insert_one({"_id": 2})
        at = one.client.admin.command("ping")["operationTime"]
        until(lambda: one.client.admin.command("backupStatus")["archive"]["archivedUpTo"] >= at)
        assert "is whole" in succeeds("backup", "verify", "--to", one.repository)
    restore(one, tmp_path / "restored", "--backup", first["id"])
    with server(tmp_path / "restored") as restored:
        assert hashes(restored.client) == expected
        assert restored.client.shop.validate_collection("orders", full=True)["valid"]
        assert restored.client.admin.command("ttlStatus")["suspended"]["reason"] == "restored"
        restored.stop()
    assert "No faults were found" in succeeds("check", "--dbpath", tmp_path / "restored")
    # With the log after the newest backup.
    text = datetime.fromtimestamp(at.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "entries of the log after it" in restore(one, tmp_path / "later", "--at", text)
    with server(tmp_path / "later") as restored:
        assert restored.client.t.later.count_documents({}) == 2


def test_a_restore_of_entries_that_is_killed_begins_again(tmp_path):
    with server(tmp_path / "data", "--storageEngine", "memory", "--backupFolder", tmp_path / "backups") as one:
        one.repository = tmp_path / "backups" / "daily"
        one.client.t.big.insert_many({"_id": i, "noise": noise(1000)} for i in range(30_000))
        back_up(one)
        one.client.t.small.insert_one({"_id": 1})
        # Most runs are those of the first backup.
        second = one.client.admin.command("backup", to="daily")
        assert second["sentBytes"] < second["bytes"] / 2
        expected = hashes(one.client)
    folder = tmp_path / "restored"
    words = [BINARY, "restore", "--from", str(one.repository), "--dbpath", str(folder)]
    for _ in range(6):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        time.sleep(random.random() * 0.6)
        process.kill()
        process.wait()
        if (folder / "RESTORE_UNFINISHED").exists():
            fails(100, "a restore into it is not complete", "--dbpath", folder, "--port", "0")
        elif (folder / "CURRENT").exists():
            # Complete, even if the process was killed: the mark is removed last.
            shutil.rmtree(folder)
    restore(one, folder)
    with server(folder) as restored:
        assert hashes(restored.client) == expected


def test_other_programs_copy_the_files_of_a_backup_cursor(source, tmp_path):
    fill(source.client)
    expected = hashes(source.client)
    admin = source.client.admin
    with source.client.start_session() as session, admin.aggregate([{"$backupCursor": {}}], session=session) as cursor:
        metadata = cursor.next()["metadata"]
        assert metadata["checkpointTimestamp"] == metadata["oplogEnd"]["ts"] >= metadata["oplogStart"]["ts"]
        copy = tmp_path / "copy"
        copy.mkdir()
        source.client.shop.orders.drop()
        files = [cursor.next() for _ in os.listdir(metadata["dbpath"])]
        for file in files:
            assert os.path.getsize(file["filename"]) == file["fileSize"]
            shutil.copy2(file["filename"], copy / os.path.relpath(file["filename"], metadata["dbpath"]))
        # It stays open, and excludes another one.
        assert cursor.alive and cursor.cursor_id
        more = admin.command({"getMore": cursor.cursor_id, "collection": "$cmd.aggregate"}, session=session)
        assert more["cursor"]["nextBatch"] == [] and more["cursor"]["id"] == cursor.cursor_id
        with pytest.raises(OperationFailure) as failed:
            admin.aggregate([{"$backupCursor": {}}])
        assert failed.value.code == 50886
        assert len(source.checkpoints()) == 1
    until(lambda: source.checkpoints() == [])
    with server(copy) as copied:
        assert hashes(copied.client) == expected
    with admin.aggregate([{"$backupCursor": {}}, {"$match": {"filename": {"$regex": "CURRENT$"}}}]) as cursor:
        assert cursor.next()["fileSize"] > 0
    until(lambda: source.checkpoints() == [])
