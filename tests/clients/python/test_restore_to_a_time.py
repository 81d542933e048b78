"""The archive of the log, and restores to any time after a backup: each must give the data of that moment."""

import random
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from test_backup import BINARY, ENVIRONMENT, back_up, fails, hashes, noise, restore, server, succeeds, until

PHASES = 6


def archived(tmp_path, *arguments):
    words = ("--backupFolder", tmp_path / "backups", "--backupTo", tmp_path / "backups" / "daily",
             "--backupLogIntervalSecs", "1", "--replSet", "rs0", *arguments)  # fmt: skip
    one = server(tmp_path / "data", *words)
    return one


@pytest.fixture
def source(tmp_path):
    with archived(tmp_path, "--setParameter", "ttlMonitorSleepSecs=1") as one:
        one.repository = tmp_path / "backups" / "daily"
        yield one


def moment(one):
    """Waits for the end of the present second of the cluster time; returns this second as text."""
    now = one.client.admin.command("ping")["operationTime"].time
    until(lambda: time.time() > now + 1.05)
    return datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def wait_for_archive(one):
    """Waits until the archive has all that was written so far."""
    now = one.client.admin.command("ping")["operationTime"]
    return until(lambda: one.client.admin.command("backupStatus")["archive"]["archivedUpTo"] >= now)


def documents(db, phase):
    for n in range(40):
        key = random.randrange(60)
        match random.randrange(7):
            case 0:
                db.a.replace_one({"_id": key}, {"n": n, "list": list(range(n % 7)), "phase": phase}, upsert=True)
            case 1:
                db.a.update_many({"_id": {"$lt": key}}, {"$inc": {"n": 1}, "$push": {"list": n}, "$set": {"in.x": n}})
            case 2:
                db.a.update_many({}, {"$unset": {"in.x": 1}, "$pull": {"list": {"$gt": 20}}})
            case 3:
                db.a.delete_many({"_id": {"$gt": key, "$lt": key + 5}})
            case 4:
                db.b.insert_many({"w": phase, "text": "x" * random.randrange(200)} for _ in range(20))
            case 5:
                db.capped.insert_many({"n": n} for n in range(5))
            case 6:
                begin = datetime(2026, 1, 1) + timedelta(seconds=60 * phase + n)
                db.series.insert_many({"t": begin + timedelta(milliseconds=k), "m": k % 2, "v": k} for k in range(10))


def transactions(db, phase):
    for n in range(5):
        def both(session):
            db.a.update_one({"_id": -n}, {"$set": {"phase": phase}}, upsert=True, session=session)
            db.pairs.insert_one({"n": n, "phase": phase}, session=session)

        with db.client.start_session() as session:
            session.with_transaction(both)
    # One that needs several entries of the log.
    with db.client.start_session() as session, session.start_transaction():
        for n in range(5):
            db.large.insert_many(({"phase": phase, "n": n, "x": noise(400_000)} for _ in range(10)), session=session)
    db.large.delete_many({"phase": {"$lt": phase}})


def definitions(db, phase):
    name = f"made{phase}"
    options = {"validator": {"n": {"$gte": 0}}, "collation": {"locale": "sv"}, "changeStreamPreAndPostImages": {"enabled": True}}
    db.create_collection(name, **options)
    db[name].insert_many({"_id": n, "n": n, "at": datetime.now(timezone.utc), "p": [n, n]} for n in range(50))
    db[name].create_index([("n", -1), ("p", 1)], name="np", partialFilterExpression={"n": {"$gt": 5}})
    db[name].create_index("unique", unique=True, sparse=True)
    db[name].create_index([("$**", 1)], name="wild")
    db[name].create_index([("where", "2dsphere")])
    db[name].create_index([("n", "text")], name="words", collation={"locale": "simple"})
    db[name].create_index("at", name="at", expireAfterSeconds=1, hidden=False)
    db.command("collMod", name, index={"name": "at", "expireAfterSeconds": random.choice((0, 3600))})
    db.command("collMod", name, validationLevel="moderate")
    db[name].drop_index("np")
    db[name].rename(f"renamed{phase}")
    db.create_collection(f"view{phase}", viewOn="a", pipeline=[{"$match": {"n": phase}}])
    db.a.aggregate([{"$match": {"n": {"$gt": 2}}}, {"$out": f"out{phase // 2}"}])
    db.a.aggregate([{"$match": {"n": {"$gt": 2}}}, {"$merge": {"into": "merged"}}])
    if phase % 2:
        db.command("convertToCapped", f"out{phase // 2}", size=20_000)
        db.drop_collection(f"renamed{phase - 1}")
        db.command("dropUser", f"user{phase - 1}")
    db.command("createUser", f"user{phase}", pwd="x", roles=["read"])
    db.command("createRole", f"role{phase}", privileges=[], roles=["read"])
    db.client[f"other{phase}"].c.insert_one({"_id": 1})
    db.client.drop_database(f"other{phase - 1}")


def shape(client):
    """What the hashes of documents do not show."""
    found = {}
    for name in client.list_database_names():
        if name in ("local", "config"):
            continue
        for info in client[name].list_collections():
            indexes = []
            if info["type"] != "view":
                indexes = sorted(client[name][info["name"]].index_information())
            found[f"{name}.{info['name']}"] = (info["type"], info["options"], indexes, info["info"].get("uuid"))
    users = client.shop.command("usersInfo", 1)["users"], client.shop.command("rolesInfo", 1)["roles"]
    return found, users


def test_every_moment_after_a_backup_can_be_restored(source, tmp_path):
    db = source.client.shop
    db.create_collection("capped", capped=True, size=4000)
    db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    moments = []
    for phase in range(PHASES):
        if phase in (1, 4):
            back_up(source)
        with ThreadPoolExecutor() as threads:
            acts = (documents, documents, transactions, definitions)
            for done in [threads.submit(act, db, phase) for act in acts]:
                done.result()
        db.clustered.insert_one({"_id": phase})
        # The monitor must not delete between the picture and the next phase.
        until(lambda: source.client.admin.command("ttlStatus")["totals"]["due"] == 0)
        picture = hashes(source.client), shape(source.client)
        moments.append((moment(source), picture))
        assert (hashes(source.client), shape(source.client)) == picture
    wait_for_archive(source)
    assert "is whole" in succeeds("backup", "verify", "--to", source.repository)
    fails(2, "is before the first backup", *words(source, tmp_path / "x", "2026-01-01T00:00:00Z"))
    fails(2, "ends before", *words(source, tmp_path / "x", "2100-01-01T00:00:00Z"))
    fails(2, "with a zone", *words(source, tmp_path / "x", moments[2][0].strip("Z")))
    for at, (expected_hashes, expected_shape) in moments:
        folder = tmp_path / at.replace(":", "")
        assert "entries of the log after it" in restore(source, folder, "--at", at)
        with server(folder) as restored:
            found = hashes(restored.client)
            differ = {(db, name) for db, of in expected_hashes.items() for name in of if found.get(db, {}).get(name) != of[name]}
            assert not differ and found == expected_hashes
            assert shape(restored.client) == expected_shape
            for name in restored.client.shop.list_collection_names(filter={"type": {"$ne": "view"}}):
                assert restored.client.shop.validate_collection(name, full=True)["valid"], name
            assert restored.client.admin.command("ttlStatus")["suspended"]["reason"] == "restored"


def words(one, folder, at):
    return ("restore", "--from", one.repository, "--dbpath", folder, "--at", at)


def test_acknowledged_writes_up_to_the_archives_end_are_there(source, tmp_path):
    back_up(source)
    written, ended = [], threading.Event()

    def write():
        number = 0
        while not ended.is_set():
            try:
                client = source.client
                client.t.c.insert_one({"_id": number, "x": noise(200)})
                written.append((number, client.admin.command("ping")["operationTime"]))
            except Exception:
                time.sleep(0.01)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(4):
        time.sleep(random.random() * 2)
        source.kill()
        source.start()
    time.sleep(0.5)
    ended.set()
    thread.join()
    wait_for_archive(source)
    end = source.client.admin.command("backupStatus")["archive"]["archivedUpTo"]
    expected = {number for number, at in written if at <= end}
    assert len(expected) > 50
    at = datetime.fromtimestamp(end.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    succeeds(*words(source, tmp_path / "restored", at))
    with server(tmp_path / "restored") as restored:
        found = {document["_id"] for document in restored.client.t.c.find({}, {"_id": 1})}
        assert expected <= found
        assert hashes(restored.client) == hashes(source.client)


def test_a_replay_that_is_killed_begins_again(source, tmp_path):
    back_up(source)
    for n in range(5):
        source.client.t.c.insert_many({"_id": 1000 * n + k, "x": noise(100)} for k in range(1000))
        source.client.t.c.rename(f"c{n}")
        source.client.t.c.create_index("x")
    at = moment(source)
    wait_for_archive(source)
    folder = tmp_path / "restored"
    command = [BINARY, *map(str, words(source, folder, at))]
    for _ in range(10):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        time.sleep(random.random() * 1.5)
        process.kill()
        process.wait()
        complete = not (folder / "RESTORE_UNFINISHED").exists() and (folder / "CURRENT").exists()
        if complete:
            break
    if not complete:
        # Without a target it goes on with the one that was begun.
        restore(source, folder)
    with server(tmp_path / "restored") as restored:
        assert hashes(restored.client) == hashes(source.client)


def test_missing_and_damaged_segments_are_named(source, tmp_path):
    back_up(source)
    ends = []
    for n in range(3):
        source.client.t.c.insert_one({"_id": n})
        wait_for_archive(source)
        ends.append(moment(source))
    segments = sorted((source.repository / "log" / "t1").iterdir())
    assert len(segments) >= 3
    second = segments[-2]
    bytes = second.read_bytes()
    second.unlink()
    fails(2, "segments are missing", *words(source, tmp_path / "x", ends[-1]))
    fails(14, "segments are missing", "backup", "verify", "--to", source.repository)
    damaged = bytearray(bytes)
    damaged[random.randrange(len(bytes))] ^= 1
    second.write_bytes(damaged)
    # The next segment names the checksum of this one.
    fails(14, "'log/t1/", *words(source, tmp_path / "x", ends[-1]))
    fails(14, second.name, "backup", "verify", "--to", source.repository)
    assert not (tmp_path / "x").exists() or (tmp_path / "x" / "RESTORE_UNFINISHED").exists()


def test_the_archive_goes_on_after_an_outage(source, tmp_path):
    back_up(source)
    source.client.t.c.insert_one({"_id": 1})
    wait_for_archive(source)
    hidden = source.repository.with_name("hidden")
    source.repository.rename(hidden)
    source.repository.write_text("no folder")
    source.client.t.c.insert_one({"_id": 2})
    status = lambda: source.client.admin.command("backupStatus")["archive"]
    until(lambda: "errmsg" in status())
    assert status()["lagSecs"] >= 0
    source.repository.unlink()
    hidden.rename(source.repository)
    source.client.t.c.insert_one({"_id": 3})
    wait_for_archive(source)
    until(lambda: "errmsg" not in status())
    assert status()["gaps"] == 0
    at = moment(source)
    succeeds(*words(source, tmp_path / "restored", at))
    with server(tmp_path / "restored") as restored:
        assert restored.client.t.c.count_documents({}) == 3


def test_a_log_that_is_cut_before_it_is_archived_leaves_a_gap(tmp_path):
    with archived(tmp_path, "--oplogSize", "1") as one:
        one.repository = tmp_path / "backups" / "daily"
        back_up(one)
        one.client.t.c.insert_one({"_id": 0})
        wait_for_archive(one)
        before, end = moment(one), one.client.admin.command("backupStatus")["archive"]["archivedUpTo"]
        one.stop()
        # A start without the archive does not wait for it.
        arguments, one.arguments = one.arguments, ("--replSet", "rs0", "--oplogSize", "1")
        one.start()
        for _ in range(8):
            one.client.t.big.insert_many({"x": noise(1000)} for _ in range(1000))
        oldest = lambda: one.client.local["oplog.rs"].find_one({}, {"ts": 1}, sort=[("$natural", 1)])["ts"]
        until(lambda: oldest() > end)
        one.stop()
        one.arguments = arguments
        one.start()
        one.client.t.c.insert_one({"_id": 1})
        wait_for_archive(one)
        assert one.client.admin.command("backupStatus")["archive"]["gaps"] == 1
        after = moment(one)
        fails(2, "a recorded gap", *words(one, tmp_path / "x", after))
        succeeds(*words(one, tmp_path / "before", before))
        # A backup closes it.
        back_up(one)
        one.client.t.c.insert_one({"_id": 2})
        wait_for_archive(one)
        succeeds(*words(one, tmp_path / "after", moment(one)))
        with server(tmp_path / "after") as restored:
            assert hashes(restored.client) == hashes(one.client)
