"""Dumps by a user with the role `backup` alone, during writes, and restores by one with the role `restore` alone.

The reference wants more for `--oplogReplay`: a role with all actions on all resources.
source: MongoDB manual, "mongorestore", Required Access
"""

import threading
import time
from datetime import datetime, timedelta, timezone

import gridfs
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import database_tools as tools
from test_backup import fill, hashes, noise, server
from test_restore_to_a_time import shape

INDEXES = [
    ([("n", -1), ("p", 1)], {"name": "np", "partialFilterExpression": {"n": {"$gt": 5}}}),
    ([("unique", 1)], {"unique": True, "sparse": True}),
    ([("$**", 1)], {"name": "wild", "wildcardProjection": {"x": 0}}),
    ([("where", "2dsphere")], {}),
    ([("flat", "2d")], {"min": -200, "max": 200}),
    ([("text", "text")], {"default_language": "none"}),
    ([("n", "hashed")], {}),
    ([("at", 1)], {"expireAfterSeconds": 3600, "hidden": True}),
    ([("name", 1)], {"collation": {"locale": "sv", "strength": 1}}),
]


class Guarded:
    """A server with access control, and clients of several users."""

    def __init__(self, one):
        self.one = one
        one.client.admin.command("createUser", "root", pwd="x", roles=["root"])
        self.root = self.of("root")
        self.root.admin.command("createRole", "all", privileges=[{"resource": {"anyResource": True}, "actions": ["anyAction"]}], roles=[])
        for user, role in {"backer": "backup", "restorer": "restore", "replayer": "all"}.items():
            self.root.admin.command("createUser", user, pwd="x", roles=[role])

    def of(self, user):
        return MongoClient(self.one.uri, username=user, password="x", directConnection=True)


def write(client, ended):
    """Changes of all kinds until the end."""
    db, number = client.shop, 0
    while not ended.is_set():
        number += 1
        db.orders.update_many({"_id": {"$lt": 20}}, {"$inc": {"n": 1}, "$push": {"list": number}})
        db.orders.replace_one({"_id": 3000 + number}, {"text": noise(100)}, upsert=True)
        db.orders.delete_one({"_id": 100 + number})
        db.clustered.insert_one({"_id": 1000 + number})
        db.capped.insert_one({"_id": 1000 + number})
        begin = datetime(2026, 2, 1) + timedelta(minutes=number)
        db.measured.insert_many({"t": begin + timedelta(seconds=k), "m": number % 3, "v": k} for k in range(5))
        with client.start_session() as session, session.start_transaction():
            db.orders.insert_one({"_id": 10_000 + number}, session=session)
            db.pairs.insert_one({"_id": number}, session=session)
        if number % 20 == 0:
            db[f"made{number}"].insert_one({"_id": 1})
            db[f"made{number}"].create_index("n")
            db[f"made{number - 20}"].drop()


def contents(client):
    """Hashes of all collections; of a time series its measurements, because buckets need not be the same."""
    found = {name: {k: v for k, v in of.items() if "system." not in k} for name, of in hashes(client).items()}
    for info in client.shop.list_collections(filter={"type": "timeseries"}):
        measured = client.shop[info["name"]].find({}, {"_id": 0})
        found["shop"][info["name"]] = sorted((one["t"], one["m"], one["v"]) for one in measured)
    return found


def options(client):
    """Options and indexes without identities, and users without the time of their making."""
    collections, (users, roles) = shape(client)
    collections = {name: of[:3] for name, of in collections.items() if "system." not in name}
    return collections, [(user["_id"], user["roles"]) for user in users], roles


@pytest.fixture
def source(tmp_path):
    with server(tmp_path / "source", "--auth", "--replSet", "rs0") as one:
        guarded = Guarded(one)
        db = guarded.root.shop
        fill(guarded.root)
        kinds = guarded.root.shop.kinds
        kinds.insert_many(
            {"n": k, "p": [k, k], "unique": k, "where": [k / 10, 1], "flat": [k, k], "text": f"word{k}", "name": "Å",
             "at": datetime.now(timezone.utc)}
            for k in range(100)
        )  # fmt: skip
        for keys, more in INDEXES:
            kinds.create_index(keys, **more)
        gridfs.GridFSBucket(db).upload_from_stream("file", noise(1_000_000))
        db.command("createRole", "seller", privileges=[], roles=["readWrite"])
        db.command("createUser", "seller", pwd="x", roles=["seller"])
        yield guarded


def test_a_dump_and_a_restore_with_the_roles_alone(source, tmp_path):
    backer, ended = source.of("backer"), threading.Event()
    thread = threading.Thread(target=write, args=(source.root, ended))
    since = tools.newest_entry(backer)
    thread.start()
    try:
        time.sleep(0.5)
        names = [name for name in backer.list_database_names() if name not in ("admin", "config", "local")]
        archives = {name: tools.dump(backer[name]) for name in names}
        users = tools.dump_users_and_roles(backer)
        time.sleep(0.5)
    finally:
        ended.set()
        thread.join()
    entries = tools.dump_oplog(backer, since)
    expected = contents(source.root), options(source.root)
    with pytest.raises(OperationFailure, match="not authorized"):
        backer.shop.orders.insert_one({})
    with server(tmp_path / "target", "--auth", "--replSet", "rs0") as one:
        target = Guarded(one)
        restorer = target.of("restorer")
        for name, archive in archives.items():
            tools.restore(restorer[name], archive)
        tools.restore_users_and_roles(restorer, users)
        with pytest.raises(OperationFailure, match="not authorized"):
            tools.replay_oplog(restorer, entries)
        with pytest.raises(OperationFailure, match="not authorized"):
            restorer.shop.orders.find_one()
        replayed = [entry for entry in entries if b"shop." in entry]
        tools.replay_oplog(target.of("replayer"), replayed, upsert=True)
        assert (contents(target.root), options(target.root)) == expected
        assert MongoClient(one.uri, username="seller", password="x", authSource="shop").shop.orders.find_one()
        stored = gridfs.GridFSBucket(target.root.shop).open_download_stream_by_name("file").read()
        assert stored == gridfs.GridFSBucket(source.root.shop).open_download_stream_by_name("file").read()
        for info in target.root.shop.list_collections(filter={"type": "collection"}):
            assert target.root.shop.validate_collection(info["name"], full=True)["valid"], info["name"]
