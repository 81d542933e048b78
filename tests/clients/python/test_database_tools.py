"""A database dumped and restored by what the database tools send is the same database, in both postures of the server."""

import os
import threading
from datetime import datetime, timedelta

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

import database_tools as tools

POSTURES = {"router": "MONGODB_URI", "member": "MONGODB_REPLICA_SET_URI"}
RAW = CodecOptions(document_class=RawBSONDocument)
FUTURE = datetime(2100, 1, 1)


@pytest.fixture(scope="module", params=POSTURES)
def client(request):
    with MongoClient(os.environ[POSTURES[request.param]]) as client:
        yield client


@pytest.fixture
def source(client, request):
    name = "dump_" + request.node.originalname
    client.drop_database(name)
    yield client[name]
    client.drop_database(name)


def picture(database):
    """Everything that a restore must bring back: options, indexes, and documents as bytes."""
    picture = {}
    for info in database.list_collections():
        name = info["name"]
        indexes, documents = [], []
        if info["type"] != "view":
            indexes = sorted((dict(index) for index in database[name].list_indexes()), key=lambda index: index["name"])
        if not name.startswith("system.") or name.startswith("system.buckets."):
            found = database.get_collection(name, codec_options=RAW).find({})
            documents = sorted(bytes(document.raw) for document in found)
        picture[name] = {"type": info["type"], "options": info["options"], "indexes": indexes, "documents": documents}
    return picture


def round_trip(database, **how):
    before = picture(database)
    archive = tools.dump(database)
    database.client.drop_database(database.name)
    assert database.list_collection_names() == []
    tools.restore(database, archive, **how)
    after = picture(database)
    assert list(after) and sorted(after) == sorted(before)
    for name, was in before.items():
        assert after[name]["type"] == was["type"]
        assert after[name]["options"] == was["options"], name
        assert after[name]["indexes"] == was["indexes"], name
        assert after[name]["documents"] == was["documents"], name
    return archive


VALUES = [
    1, Int64(1), 1.0, Decimal128("1.0"), float("inf"), -0.0, "text", "", None, True, MinKey(), MaxKey(),
    datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2100, 1, 1), ObjectId(), Timestamp(0, 0), Timestamp(5, 1),
    Regex("^a", "i"), Code("return 1"), Code("return x", {"x": 1}), Binary(b"\x00\xff", 0), Binary(b"u" * 16, 4),
    [], {}, [[1, [2, {"a": []}]]], {"a": {"b": {"c": None}}}, {"$ref": "c", "$id": 5, "$db": "d"}, "zażółć \U0001f41d",
]  # fmt: skip


def test_plain_collections(source):
    source.values.insert_many({"_id": i, "value": value} for i, value in enumerate(VALUES))
    # Ids of every kind that may be one.
    link = {"$ref": "c", "$id": 5, "$db": "d"}
    source.ids.insert_many({"_id": value} for value in VALUES if not isinstance(value, (list, Regex)) and value not in (1.0, link))
    source.many.insert_many({"_id": i, "text": "x" * (i % 300)} for i in range(5000))
    source.create_collection("empty")
    round_trip(source)


def test_an_empty_timestamp_stays(source):
    source.command("insert", "c", documents=[{"_id": 1, "t": Timestamp(0, 0)}], bypassEmptyTsReplacement=True)
    source.command("insert", "c", documents=[{"_id": 2, "t": Timestamp(0, 0)}])
    assert source.c.find_one({"_id": 1})["t"] == Timestamp(0, 0)
    assert source.c.find_one({"_id": 2})["t"].time > 1_600_000_000
    round_trip(source)
    assert source.c.find_one({"_id": 1})["t"] == Timestamp(0, 0)


def test_options_of_collections(source):
    source.create_collection("capped", capped=True, size=8192, max=50)
    source.capped.insert_many({"_id": i} for i in range(80))
    rules = {"$jsonSchema": {"required": ["name"], "properties": {"name": {"bsonType": "string"}}}}
    source.create_collection("validated", validator=rules, validationLevel="moderate", validationAction="warn")
    source.command("insert", "validated", documents=[{"_id": 1, "name": 5}], bypassDocumentValidation=True)
    source.create_collection("strict", validator={"n": {"$gt": 0}})
    source.command("insert", "strict", documents=[{"_id": 1, "n": -1}], bypassDocumentValidation=True)
    source.create_collection("swedish", collation={"locale": "sv", "strength": 1})
    source.swedish.insert_many([{"_id": "a", "n": "å"}, {"_id": "b", "n": "z"}])
    source.swedish.create_index("n")
    source.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True, "name": "by date"})
    source.clustered.insert_many({"_id": i} for i in range(10))
    source.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    source.images.insert_one({"_id": 1})
    round_trip(source)
    # They are in force again, and a capped collection keeps its order.
    assert [document["_id"] for document in source.capped.find()] == list(range(30, 80))
    source.capped.insert_one({"_id": 80})
    assert source.capped.find_one()["_id"] == 31
    assert source.swedish.find_one({"_id": "A"}) is not None
    with pytest.raises(Exception, match="failed validation"):
        source.strict.insert_one({"_id": 2, "n": -1})


def test_indexes_of_every_kind(source):
    plain = [
        {"key": {"a": 1, "b": -1}, "name": "two"},
        {"key": {"u": 1}, "name": "unique", "unique": True, "sparse": True},
        {"key": {"p": 1}, "name": "partial", "partialFilterExpression": {"p": {"$gt": 5}}},
        {"key": {"n": 1}, "name": "numeric", "collation": {"locale": "en", "numericOrdering": True}},
        {"key": {"hidden": 1}, "name": "hidden", "hidden": True},
        {"key": {"h": "hashed"}, "name": "hash"},
        {"key": {"all.$**": 1}, "name": "wild"},
        {"key": {"t": "text", "v": "text"}, "name": "words", "weights": {"t": 3}, "default_language": "german"},
        {"key": {"place": "2dsphere"}, "name": "sphere"},
        {"key": {"flat": "2d"}, "name": "plane", "min": -500, "max": 500},
    ]
    source.command("createIndexes", "kinds", indexes=plain)
    source.kinds.insert_many(
        {
            "_id": i, "a": i % 7, "b": [i, i + 1], "u": i, "p": i, "n": str(i), "h": i, "hidden": i,
            "all": {"x": i, "y": [i]}, "t": f"Wort {i}", "place": {"type": "Point", "coordinates": [i, i]}, "flat": [i, -i],
        }
        for i in range(40)
    )  # fmt: skip
    round_trip(source)
    assert source.kinds.count_documents({"$text": {"$search": "wort"}}) == 40
    assert source.kinds.find({"n": "7"}).collation({"locale": "en", "numericOrdering": True}).hint("numeric").next()["_id"] == 7


def test_policies(source):
    expiring = [
        {"key": {"at": 1}, "name": "ttl", "expireAfterSeconds": 3600},
        {"key": {"later": 1}, "name": "with document", "expireAfterSeconds": 60,
         "ttl": {"hideExpired": True, "maxDocsPerSec": 100, "holdField": "hold"}},
    ]  # fmt: skip
    source.command("createIndexes", "events", indexes=expiring)
    source.events.insert_many({"_id": i, "at": FUTURE, "later": FUTURE + timedelta(seconds=i)} for i in range(20))
    source.command("createIndexes", "touched", indexes=[{"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 86400}])
    source.touched.insert_one({"_id": 1, "ttl": -1})
    source.create_collection("dated", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=3600)
    source.dated.insert_one({"_id": FUTURE})
    round_trip(source)


def test_views(source):
    source.orders.insert_many({"_id": i, "n": i} for i in range(10))
    source.create_collection("large", viewOn="orders", pipeline=[{"$match": {"n": {"$gt": 4}}}])
    source.create_collection("largest", viewOn="large", pipeline=[{"$match": {"n": 9}}])
    source.create_collection("french", viewOn="orders", pipeline=[], collation={"locale": "fr"})
    archive = round_trip(source)
    assert source.large.count_documents({}) == 5
    assert {metadata["name"] for metadata, _ in archive} == {"orders", "large", "largest", "french"}


def test_time_series(source):
    source.create_collection(
        "weather",
        timeseries={"timeField": "at", "metaField": "sensor", "granularity": "minutes"},
        expireAfterSeconds=10**9,
    )
    began = datetime(2100, 1, 1)
    source.weather.insert_many(
        {"_id": i, "at": began + timedelta(seconds=30 * i), "sensor": {"id": i % 3}, "t": i / 7, "note": "x" if i % 2 else None}
        for i in range(700)
    )
    source.create_collection("spans", timeseries={"timeField": "t", "bucketMaxSpanSeconds": 600, "bucketRoundingSeconds": 600})
    source.spans.insert_many({"t": began + timedelta(seconds=i), "v": value} for i, value in enumerate(VALUES))
    source.weather.create_index([("sensor.id", 1), ("at", 1)])
    round_trip(source)
    assert source.weather.count_documents({"sensor.id": 1}) == 233
    # It goes on in the same collection.
    source.weather.insert_one({"_id": 700, "at": began, "sensor": {"id": 0}, "t": 1.0})
    assert source.weather.count_documents({}) == 701


def test_uuids_are_kept(source, client):
    source.kept.insert_one({"_id": 1})
    (before,) = source.list_collections()
    round_trip(source, apply_uuid=True)
    (after,) = source.list_collections()
    assert after["info"]["uuid"] == before["info"]["uuid"]


def test_a_log_is_replayed(source, client):
    source.c.insert_many({"_id": i, "n": 0, "list": [1, 2, 3]} for i in range(10))
    since = tools.newest_entry(client)
    archive = tools.dump(source)
    # What happens while the dump runs.
    source.c.insert_many({"_id": i, "n": 0} for i in range(10, 20))
    source.c.update_many({"_id": {"$lt": 15}}, {"$inc": {"n": 1}, "$set": {"a.b": 5}, "$push": {"list": 4}})
    source.c.replace_one({"_id": 3}, {"only": True})
    source.c.update_one({"_id": 4}, [{"$unset": "list"}])
    source.c.delete_many({"_id": {"$in": [0, 1, 19]}})
    source.c.create_index("n")
    source.create_collection("born", capped=True, size=4096)
    source.born.insert_one({"_id": 1})
    source.gone.insert_one({"_id": 1})
    source.gone.drop()
    before = picture(source)
    entries = tools.dump_oplog(client, since)
    client.drop_database(source.name)
    tools.restore(source, archive)
    tools.replay_oplog(client, [entry for entry in entries if of_database(entry, source.name)])
    assert picture(source) == before
    # A second time, over data that is newer than the log, it ends at the same.
    tools.replay_oplog(client, [entry for entry in entries if of_database(entry, source.name)], upsert=True)
    assert picture(source) == before


def test_a_log_of_measurements_is_replayed(source, client):
    series = {"timeField": "t", "metaField": "m", "granularity": "seconds"}
    source.create_collection("s", timeseries=series)
    began = datetime(2026, 1, 1)

    def measurements(first, number):
        times = (began + timedelta(seconds=30 * number) for number in range(first, first + number))
        return [{"t": time, "m": at % 3, "v": at, "w": {"deep": [at]}} for at, time in enumerate(times, first)]

    source.s.insert_many(measurements(0, 500))
    since = tools.newest_entry(client)
    stop = threading.Event()

    def write():
        first = 500
        while not stop.is_set() or first < 600:
            source.s.insert_many(measurements(first, 10))
            source.s.insert_one({"t": began, "m": 0, "v": first})
            if first % 50 == 0:
                source.s.delete_many({"m": first // 50 % 3})
            first += 10

    writer = threading.Thread(target=write)
    writer.start()
    try:
        archive = tools.dump(source)
    finally:
        stop.set()
        writer.join()
    # Then without a writer: what comes and goes as a whole.
    source.s.delete_many({"m": 2})
    source.s.create_index([("m", 1), ("v", -1)], name="by_value")
    source.command("collMod", "s", timeseries={"granularity": "minutes"})
    source.create_collection("born", timeseries={**series, "granularity": "hours"}, expireAfterSeconds=10**9)
    source.born.insert_many(measurements(0, 50))
    source.create_collection("gone", timeseries=series)
    source.gone.insert_many(measurements(0, 5))
    source.gone.drop()
    before = picture(source)
    entries = tools.dump_oplog(client, since)
    client.drop_database(source.name)
    tools.restore(source, archive)
    replayed = [entry for entry in entries if of_database(entry, source.name)]
    tools.replay_oplog(client, replayed, upsert=True)
    assert picture(source) == before
    assert source.s.count_documents({"m": 1, "v": {"$gte": 0}}, hint="by_value") > 0
    # A second time, over data that is newer than the log.
    tools.replay_oplog(client, replayed, upsert=True)
    assert picture(source) == before
    source.s.insert_many(measurements(0, 10))
    assert source.command("validate", "system.buckets.s")["valid"]


def of_database(entry, name):
    entry = RawBSONDocument(entry)
    groups = entry["o"].get("applyOps") if entry["op"] == "c" else None
    namespaces = [operation["ns"] for operation in groups] if groups else [entry["ns"]]
    return all(namespace.startswith(name + ".") for namespace in namespaces)


def test_export_and_import(source):
    source.c.insert_many({"_id": i, "key": i, "value": i * 2, "t": Timestamp(0, 0)} for i in range(2500))
    exported = tools.export(source.c)
    tools.import_documents(source.copy, exported)
    assert tools.export(source.copy) == exported
    tools.import_documents(source.copy, [{"key": 5, "value": "new"}], upsert_by=["key"])
    assert source.copy.find_one({"key": 5})["value"] == "new"
    assert source.copy.count_documents({}) == 2500


def test_what_shells_and_monitors_ask(client, source):
    source.c.insert_one({"_id": 1})
    source.create_collection("v", viewOn="c", pipeline=[])
    assert {"admin", "config", "local"} <= set(client.list_database_names())
    assert source.command("dbStats", True)["views"] == 1
    status = client.admin.command("serverStatus")
    assert status["locks"]
    for part in ("opcounters", "connections", "mem", "network", "extra_info"):
        assert part in status
    assert client.admin.command("usersInfo", 1)["users"] == []
    assert source.command("rolesInfo", 1)["roles"] == []
    assert "defaultWriteConcern" in client.admin.command("getDefaultRWConcern")
    assert source.command("compact", "c")["ok"] == 1.0
    assert source.command("planCacheClear", "c")["ok"] == 1.0
    first, second = source.command("dbHash"), source.command("dbHash")
    assert first["md5"] == second["md5"] and set(first["collections"]) == {"c", "system.views"}
    source.c.insert_one({"_id": 2})
    assert source.command("dbHash")["md5"] != first["md5"]
    # db.getReplicationInfo()
    log = client.local["oplog.rs"]
    oldest, newest = (next(log.find().sort("$natural", way).limit(1))["ts"] for way in (1, -1))
    assert oldest <= newest
    assert client.local.command("collStats", "oplog.rs")["maxSize"] > 0


def test_every_answer_tells_the_time(client):
    reply = client.admin.command("ping")
    assert reply["operationTime"] <= reply["$clusterTime"]["clusterTime"]
    with client.start_session(causal_consistency=True) as session:
        client.dump_times.c.insert_one({}, session=session)
        assert session.operation_time is not None and session.cluster_time is not None
