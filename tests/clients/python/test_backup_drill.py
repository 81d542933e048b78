"""Clients write everything there is, while backups and the archive run, and servers, backups and restores are killed.

The same operations are executed by a second server, the model, which is never killed. After each phase all clients pause until the
end of a second, and the content of the model is noted. A restore to the end of that second must give the same content.
`make torture` runs this longer (BACKUP_DRILL_SECS, BACKUP_DRILL_TIMES, BACKUP_DRILL_SEED).
"""

import os
import random
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

from test_backup import BINARY, ENVIRONMENT, PATIENCE_SECS, hashes, server, succeeds
from test_restore_to_a_time import moment, wait_for_archive, words

SECONDS = float(os.environ.get("BACKUP_DRILL_SECS", 12))
TIMES = int(os.environ.get("BACKUP_DRILL_TIMES", 3))
SEED = int(os.environ.get("BACKUP_DRILL_SEED", random.randrange(2**32)))
CLIENTS = 3
# Of a repeated operation whose first reply was lost: it exists already, or does not exist any more.
DONE_ALREADY = {11, 26, 48, 11000, 51003}
SERIES, EXPIRING = "series", "expiring"


class Writer:
    """A client with a database of its own. Each operation can be repeated, and then has the same result."""

    def __init__(self, number, seed):
        self.name, self.random, self.count = f"db{number}", random.Random(f"{seed} {number}"), 0

    def next(self):
        """The next operation: a function of the database."""
        self.count += 1
        number, choose = self.count, self.random
        if number == 1:
            return self.begin
        key, text = choose.randrange(80), choose.randbytes(choose.randrange(300))
        documents = [{"_id": 1000 * number + k, "n": k, "x": choose.randbytes(50)} for k in range(30)]
        acts = {
            self.replace: (key, number, text),
            self.update: (key, number),
            self.delete: (key,),
            self.insert: ("many", documents),
            self.insert_capped: (documents[:5],),
            self.measure: (number,),
            self.transaction: (number, key),
            self.define: (number, choose.randrange(6)),
            self.expire: (number, datetime.now(timezone.utc)),
            self.user: (number, choose.randrange(3)),
        }
        act = choose.choices(list(acts), (6, 4, 2, 4, 2, 4, 3, 2, 2, 1))[0]
        if number % 40 == 0:
            blobs = [choose.randbytes(2_000_000) for _ in range(9)]
            return lambda db: self.large_transaction(db, number, blobs)
        arguments = acts[act]
        return lambda db: act(db, *arguments)

    def begin(self, db):
        made = set(db.list_collection_names())
        plain = {"clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}, "capped": {"capped": True, "size": 20_000},
                 SERIES: {"timeseries": {"timeField": "t", "metaField": "m"}}}  # fmt: skip
        for name, options in plain.items():
            if name not in made:
                db.create_collection(name, **options)
        db[EXPIRING].create_index("at", expireAfterSeconds=0)
        db.many.create_index([("n", 1), ("x", -1)])

    def replace(self, db, key, number, text):
        db.a.replace_one({"_id": key}, {"n": number, "text": text, "list": list(range(number % 9))}, upsert=True)
        db.clustered.replace_one({"_id": key}, {"n": number}, upsert=True)

    def update(self, db, key, number):
        db.a.update_many({"_id": {"$lt": key}}, {"$set": {"in.n": number}, "$unset": {"text": 1}})

    def delete(self, db, key):
        db.a.delete_many({"_id": {"$gte": key, "$lt": key + 4}})
        db.many.delete_many({"n": key % 30})

    def insert(self, db, name, documents):
        try:
            db[name].insert_many([dict(document) for document in documents], ordered=False)
        except BulkWriteError as error:
            if any(failed["code"] != 11000 for failed in error.details["writeErrors"]):
                raise

    def insert_capped(self, db, documents):
        for document in documents:
            self.insert(db, "capped", [document])

    def measure(self, db, number):
        begin = datetime(2026, 1, 1) + timedelta(minutes=number)
        there = {found["v"] for found in db[SERIES].find({"m": number % 3, "number": number})}
        wanted = [{"t": begin + timedelta(seconds=k), "m": number % 3, "number": number, "v": k} for k in range(20)]
        if rest := [one for one in wanted if one["v"] not in there]:
            db[SERIES].insert_many(rest)

    def transaction(self, db, number, key):
        with db.client.start_session() as session, session.start_transaction():
            db.a.replace_one({"_id": key}, {"n": number}, upsert=True, session=session)
            db.pairs.replace_one({"_id": key}, {"n": number}, upsert=True, session=session)

    def large_transaction(self, db, number, blobs):
        # It needs several entries of the log.
        with db.client.start_session() as session, session.start_transaction():
            for at, blob in enumerate(blobs):
                db.large.replace_one({"_id": at}, {"n": number, "x": blob}, upsert=True, session=session)

    def define(self, db, number, kind):
        name = f"made{number % 3}"
        match kind:
            case 0:
                if name not in db.list_collection_names():
                    db.create_collection(name, collation={"locale": "sv"}, validator={"n": {"$gte": 0}})
                db[name].create_index([("n", -1)], name="n")
                self.insert(db, name, [{"_id": number * 100 + k, "n": k} for k in range(20)])
            case 1:
                db.drop_collection(name)
            case 2:
                target = f"renamed{number % 2}"
                if name in db.list_collection_names():
                    db[name].rename(target, dropTarget=True)
            case 3:
                db.a.aggregate([{"$match": {"n": {"$gt": number - 20}}}, {"$out": "out"}])
            case 4:
                db.drop_collection("view")
                db.create_collection("view", viewOn="a", pipeline=[{"$match": {"n": number}}])
            case 5:
                if "a_n" not in db.a.index_information():
                    db.a.create_index("n", name="a_n")
                db.command("collMod", "a", index={"name": "a_n", "hidden": bool(number % 2)})

    def expire(self, db, number, now):
        self.insert(db, EXPIRING, [{"_id": f"{number}.{k}", "at": now + timedelta(seconds=k % 3)} for k in range(20)])

    def user(self, db, number, kind):
        name, roles = f"user{number % 3}", ["readWrite"] if kind == 1 else ["read"]
        is_there = name in {user["user"] for user in db.command("usersInfo", 1)["users"]}
        if kind == 0 and is_there:
            db.command("dropUser", name)
        elif kind != 0:
            command = ("updateUser", {}) if is_there else ("createUser", {"pwd": "x"})
            db.command(command[0], name, roles=roles, **command[1])


def until_done(one, name, act, excuses=frozenset()):
    """Executes an operation, again if the server ended meanwhile."""
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        try:
            return act(one.client[name])
        except OperationFailure as error:
            if error.code in excuses:
                return None
            # 11600, 11602, 91: the server stops. 112, 24, 246: a conflict. 189, 10107: it does not write any more.
            if error.code not in (11600, 11602, 91, 112, 24, 246, 189, 10107, 251) or time.monotonic() > deadline:
                raise
            excuses = DONE_ALREADY
        except PyMongoError:
            assert time.monotonic() < deadline, "the server does not come back"
            excuses = DONE_ALREADY
        time.sleep(0.02)


def write(writer, source, model, ends):
    while time.monotonic() < ends:
        act = writer.next()
        until_done(source, writer.name, act)
        until_done(model, writer.name, act)


def picture(client):
    """Hashes of all collections, and what they do not show, or show of what is not equal in two servers."""
    found = {}
    for number in range(CLIENTS):
        db = client[f"db{number}"]
        names = [info["name"] for info in db.list_collections() if info["type"] == "collection"]
        of = hashes(client).get(db.name, {})
        found[db.name] = {name: of[name] for name in names if name != EXPIRING and not name.startswith("system.")}
        found[db.name]["view"] = sorted((info["name"], str(info["options"])) for info in db.list_collections(filter={"type": "view"}))
        found[db.name][SERIES] = sorted((one["t"], one["m"], one["number"], one["v"]) for one in db[SERIES].find())
        users = db.command("usersInfo", 1)["users"]
        found[db.name]["users"] = sorted((user["user"], str(user["roles"])) for user in users)
        indexes = {name: str(sorted(db[name].index_information().items())) for name in names if not name.startswith("system.")}
        found[db.name]["indexes"] = indexes
    return found


def expiring(client):
    return {f"db{number}": {one["_id"]: one["at"] for one in client[f"db{number}"][EXPIRING].find()} for number in range(CLIENTS)}


class Backups:
    """Backups, one after the other, some of which are killed."""

    def __init__(self, chance):
        self.chance, self.process = chance, None

    def look(self, one):
        """Begins another one if none is running."""
        if self.process and self.process.poll() is None:
            return
        parent = self.chance.choice(("auto", "auto", "none"))
        command = [BINARY, "backup", "--uri", one.uri, "--to", "daily", "--parent", parent]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def restored(source, folder, at, chance):
    """Restores, and kills the restore at some points first."""
    command = [BINARY, *map(str, words(source, folder, at))]
    for _ in range(chance.randrange(3)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        time.sleep(chance.random() * chance.choice((0.1, 1)))
        process.kill()
        if process.wait() == 0:
            return
    succeeds(*command[1:])


def test_the_drill(tmp_path):
    print(f"BACKUP_DRILL_SEED={SEED}")
    chance = random.Random(SEED)
    backups_folder = tmp_path / "backups"
    archive = ("--backupFolder", backups_folder, "--backupTo", backups_folder / "daily", "--backupLogIntervalSecs", "1")
    source_words = (*archive, "--replSet", "rs0", "--setParameter", "ttlMonitorSleepSecs=1")
    model_words = ("--storageEngine", "memory", "--replSet", "rs0", "--setParameter", "ttlMonitorEnabled=false")
    writers, moments = [Writer(number, SEED) for number in range(CLIENTS)], []
    with server(tmp_path / "data", *source_words) as source, server(tmp_path / "model", *model_words) as model:
        source.repository = backups_folder / "daily"
        until_done(source, "admin", lambda db: db.command("backup", to="daily"))
        backups, ends = Backups(chance), time.monotonic() + SECONDS
        while time.monotonic() < ends:
            with ThreadPoolExecutor() as threads:
                phase = time.monotonic() + 0.3 + chance.random() * 1.2
                running = [threads.submit(write, writer, source, model, phase) for writer in writers]
                backups.look(source)
                time.sleep(chance.random())
                if chance.random() < 0.4:
                    source.kill()
                    source.start()
                elif chance.random() < 0.3:
                    backups.kill()
                for done in running:
                    done.result()
            expected = picture(model.client)
            at = moment(source)
            assert picture(source.client) == expected
            moments.append((at, expected, expiring(model.client)))
        wait_for_archive(source)
        backups.kill()
        assert source.client.admin.command("backupStatus")["archive"]["gaps"] == 0
    assert "is whole" in succeeds("backup", "verify", "--to", source.repository)
    for at, expected, may_be_there in chance.sample(moments, min(TIMES, len(moments))):
        folder = tmp_path / "restored"
        restored(source, folder, at, chance)
        with server(folder, "--replSet", "rs0") as one:
            assert picture(one.client) == expected, at
            second = datetime.fromisoformat(at.replace("Z", "+00:00")).replace(tzinfo=None) + timedelta(seconds=1)
            for name, documents in expiring(one.client).items():
                assert documents.items() <= may_be_there[name].items()
                gone = may_be_there[name].keys() - documents.keys()
                assert all(may_be_there[name][key] < second for key in gone), at
            assert one.client.admin.command("ttlStatus")["suspended"]["reason"] == "restored"
            one.stop()
        assert "No faults were found" in succeeds("check", "--dbpath", folder)
        shutil.rmtree(folder)
