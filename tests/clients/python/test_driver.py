"""PyMongo against a running server; what is expected is listed in ../README.md."""

import os
import threading
import time
from datetime import datetime, timedelta, timezone

import pymongo
import pymongo.uri_parser
import pytest
from bson.code import Code
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from pymongo import (
    ASCENDING,
    DESCENDING,
    GEO2D,
    GEOSPHERE,
    TEXT,
    CursorType,
    IndexModel,
    MongoClient,
)
from pymongo.collation import Collation
from pymongo.errors import (
    BulkWriteError,
    ClientBulkWriteException,
    DuplicateKeyError,
    OperationFailure,
    WriteError,
)

from cutting_proxy import CuttingProxy

URI = os.environ["MONGODB_URI"]


@pytest.fixture(scope="session")
def client():
    with MongoClient(URI) as client:
        yield client


@pytest.fixture
def db(client):
    return client["clients_python"]


@pytest.fixture
def coll(db, request):
    collection = db[request.node.name.replace("[", "_").rstrip("]")]
    collection.drop()
    return collection


# connect


def test_ping_and_build_info(client):
    assert client.admin.command("ping")["ok"] == 1.0
    assert client.server_info()["version"].startswith("8.")
    assert client.server_info()["versionArray"][0] == 8
    assert client.options.retry_writes is True


@pytest.mark.parametrize("compressor", ["zlib", "snappy", "zstd"])
def test_compression(compressor, db):
    with MongoClient(URI, compressors=compressor) as client:
        collection = client[db.name]["compressed"]
        collection.drop()
        text = "mayfly " * 5000
        collection.insert_many([{"_id": i, "text": text} for i in range(20)])
        found = list(collection.find().sort("_id"))
        assert [doc["_id"] for doc in found] == list(range(20))
        assert all(doc["text"] == text for doc in found)


# insert


def test_insert(coll):
    one = coll.insert_one({"name": "ann"})
    assert coll.find_one({"_id": one.inserted_id}) == {"_id": one.inserted_id, "name": "ann"}
    many = coll.insert_many([{"n": i} for i in range(10)])
    assert len(many.inserted_ids) == 10
    assert coll.count_documents({}) == 11


def test_values_come_back_as_they_went(coll):
    doc = {
        "_id": 1,
        "int": 7,
        "long": Int64(7),
        "double": 7.5,
        "text": "zażółć",
        "none": None,
        "yes": True,
        "date": datetime(2024, 2, 29, 12, 0, 0, 123000),
        "bytes": b"\x00\x01",
        "nested": {"list": [1, "two", {"three": 3}], "empty": {}},
    }
    coll.insert_one(doc)
    found = coll.find_one({"_id": 1})
    assert found == doc
    assert list(found) == list(doc)
    assert type(found["long"]) is Int64 and type(found["int"]) is int


def test_unordered_bulk_reports_the_duplicate(coll):
    with pytest.raises(BulkWriteError) as caught:
        coll.insert_many([{"_id": 1}, {"_id": 1}, {"_id": 2}], ordered=False)
    details = caught.value.details
    assert details["nInserted"] == 2
    (error,) = details["writeErrors"]
    assert error["index"] == 1
    assert error["code"] == 11000
    assert error["keyPattern"] == {"_id": 1}
    assert error["keyValue"] == {"_id": 1}
    assert sorted(doc["_id"] for doc in coll.find()) == [1, 2]


def test_ordered_bulk_stops_at_the_duplicate(coll):
    with pytest.raises(BulkWriteError) as caught:
        coll.insert_many([{"_id": 1}, {"_id": 1}, {"_id": 2}])
    assert caught.value.details["nInserted"] == 1
    assert [doc["_id"] for doc in coll.find()] == [1]


# find


def test_find(coll):
    coll.insert_many([{"_id": i, "even": i % 2 == 0, "n": i * 10} for i in range(20)])
    cursor = coll.find({"even": True, "n": {"$gte": 40}}, {"_id": 0, "n": 1})
    assert list(cursor.sort("n", DESCENDING).skip(1).limit(3)) == [{"n": 160}, {"n": 140}, {"n": 120}]
    assert coll.find_one({"_id": 99}) is None
    assert sorted(doc["_id"] for doc in coll.find({"$or": [{"_id": 3}, {"n": {"$in": [50, 70]}}]})) == [3, 5, 7]


# update


def test_update(coll):
    coll.insert_many([{"_id": i, "n": i, "old": 1, "tags": ["a"]} for i in range(5)])
    result = coll.update_one(
        {"_id": 3},
        {"$set": {"name": "three", "deep.er": 1}, "$inc": {"n": 10}, "$unset": {"old": ""}, "$push": {"tags": "b"}},
    )
    assert (result.matched_count, result.modified_count) == (1, 1)
    assert coll.find_one({"_id": 3}) == {"_id": 3, "n": 13, "tags": ["a", "b"], "deep": {"er": 1}, "name": "three"}
    result = coll.update_many({"n": {"$lt": 3}}, {"$inc": {"n": 1}})
    assert (result.matched_count, result.modified_count) == (3, 3)
    result = coll.update_many({}, {"$set": {"n": 2}})
    assert (result.matched_count, result.modified_count) == (5, 4)


def test_replace_and_upsert(coll):
    coll.insert_one({"_id": 1, "a": 1, "b": 2})
    assert coll.replace_one({"_id": 1}, {"c": 3}).modified_count == 1
    assert coll.find_one() == {"_id": 1, "c": 3}
    result = coll.update_one({"key": "k"}, {"$set": {"v": 1}}, upsert=True)
    assert result.matched_count == 0 and result.upserted_id is not None
    assert coll.find_one({"_id": result.upserted_id}) == {"_id": result.upserted_id, "key": "k", "v": 1}
    assert coll.update_one({"key": "k"}, {"$set": {"v": 2}}, upsert=True).upserted_id is None
    assert coll.replace_one({"_id": 7}, {"v": 7}, upsert=True).upserted_id == 7


def test_mixed_bulk(coll):
    result = coll.bulk_write(
        [
            pymongo.InsertOne({"_id": 1}),
            pymongo.UpdateOne({"_id": 1}, {"$set": {"a": 1}}),
            pymongo.UpdateOne({"_id": 2}, {"$set": {"a": 2}}, upsert=True),
            pymongo.DeleteOne({"_id": 1}),
        ]
    )
    assert (result.inserted_count, result.modified_count, result.deleted_count) == (1, 1, 1)
    assert result.upserted_ids == {2: 2}


def test_array_filters(coll):
    coll.insert_many([{"_id": 1, "grades": [95, 102, 90]}, {"_id": 2, "grades": [{"of": "quiz", "n": 1}, {"of": "exam", "n": 2}]}])
    result = coll.update_one({"_id": 1}, {"$set": {"grades.$[over]": 100}}, array_filters=[{"over": {"$gt": 100}}])
    assert result.modified_count == 1
    coll.update_one({"_id": 2}, {"$inc": {"grades.$[quiz].n": 10, "grades.$[].seen": 1}}, array_filters=[{"quiz.of": "quiz"}])
    coll.update_one({"grades": 90}, {"$set": {"grades.$": 91}})
    assert list(coll.find(sort=[("_id", 1)])) == [
        {"_id": 1, "grades": [95, 100, 91]},
        {"_id": 2, "grades": [{"of": "quiz", "n": 11, "seen": 1}, {"of": "exam", "n": 2, "seen": 1}]},
    ]
    with pytest.raises(WriteError) as caught:
        coll.update_one({"_id": 1}, {"$set": {"grades.$[x]": 1}})
    assert caught.value.code == 2


def test_pipeline_update(coll):
    coll.insert_one({"_id": 1, "a": 1, "b": 2})
    assert coll.update_one({"_id": 1}, [{"$set": {"c": "$a"}}, {"$unset": "b"}]).modified_count == 1
    assert coll.find_one() == {"_id": 1, "a": 1, "c": 1}


# find and modify


def test_find_one_and(coll):
    coll.insert_many([{"_id": i, "n": 10 - i} for i in range(5)])
    assert coll.find_one_and_update({}, {"$set": {"hit": 1}}, sort=[("n", 1)]) == {"_id": 4, "n": 6}
    after = pymongo.ReturnDocument.AFTER
    found = coll.find_one_and_update({"_id": 4}, {"$inc": {"n": 1}}, projection={"n": 1}, return_document=after)
    assert found == {"_id": 4, "n": 7}
    assert coll.find_one_and_replace({"_id": 3}, {"new": True}, return_document=after) == {"_id": 3, "new": True}
    assert coll.find_one_and_delete({"n": {"$gte": 9}}, sort={"_id": -1}) == {"_id": 1, "n": 9}
    assert coll.find_one_and_delete({"n": 1000}) is None
    assert coll.find_one_and_update({"_id": 9}, {"$set": {"n": 1}}, upsert=True) is None
    found = coll.find_one_and_update({"_id": 8}, {"$set": {"n": 1}}, upsert=True, return_document=after)
    assert found == {"_id": 8, "n": 1}
    failure(66, "ImmutableField", lambda: coll.find_one_and_update({"_id": 8}, {"$set": {"_id": 7}}))


# client bulk write


def test_client_bulk_write(client, db, coll):
    other = db[coll.name + "_other"]
    other.drop()
    (here, there) = (f"{db.name}.{coll.name}", f"{db.name}.{other.name}")
    result = client.bulk_write(
        [
            pymongo.InsertOne(namespace=here, document={"_id": 1, "a": [1, 2]}),
            pymongo.InsertOne(namespace=there, document={"_id": "x"}),
            pymongo.UpdateOne(namespace=here, filter={"_id": 1}, update={"$set": {"a.$[i]": 0}}, array_filters=[{"i": 2}]),
            pymongo.UpdateMany(namespace=there, filter={}, update={"$set": {"seen": True}}),
            pymongo.ReplaceOne(namespace=here, filter={"_id": 2}, replacement={"b": 1}, upsert=True),
            pymongo.DeleteOne(namespace=there, filter={"_id": "x"}),
        ],
        verbose_results=True,
    )
    assert (result.inserted_count, result.matched_count, result.modified_count) == (2, 2, 2)
    assert (result.upserted_count, result.deleted_count) == (1, 1)
    assert result.update_results[4].upserted_id == 2
    assert list(coll.find(sort=[("_id", 1)])) == [{"_id": 1, "a": [1, 0]}, {"_id": 2, "b": 1}]
    assert other.count_documents({}) == 0


def test_client_bulk_write_reports_errors(client, db, coll):
    namespace = f"{db.name}.{coll.name}"
    with pytest.raises(ClientBulkWriteException) as caught:
        client.bulk_write([pymongo.InsertOne(namespace=namespace, document={"_id": i}) for i in (1, 1, 2)], ordered=False)
    (error,) = caught.value.write_errors
    assert (error["idx"], error["code"]) == (1, 11000)
    assert caught.value.partial_result.inserted_count == 2
    many = [pymongo.InsertOne(namespace=namespace, document={"_id": 10 + i}) for i in range(5000)]
    assert client.bulk_write(many, verbose_results=True).inserted_count == 5000


# delete


def test_delete(coll):
    coll.insert_many([{"_id": i, "even": i % 2 == 0} for i in range(10)])
    assert coll.delete_one({"even": True}).deleted_count == 1
    assert coll.delete_many({"even": True}).deleted_count == 4
    assert coll.delete_many({"even": True}).deleted_count == 0
    assert coll.count_documents({}) == 5


# cursors


def test_small_batches(db, coll):
    coll.insert_many([{"_id": i} for i in range(1000)])
    assert [doc["_id"] for doc in coll.find(batch_size=7).sort("_id")] == list(range(1000))
    assert [doc["_id"] for doc in coll.find(batch_size=7).sort("_id", DESCENDING)] == list(range(999, -1, -1))
    abandoned = coll.find(batch_size=7)
    next(abandoned)
    number = Int64(abandoned.cursor_id)
    assert number != 0
    abandoned.close()
    failure(43, "CursorNotFound", lambda: db.command("getMore", number, collection=coll.name))


def test_default_batches(coll):
    coll.insert_many([{"_id": i, "text": "x" * 20} for i in range(20000)])
    assert sum(1 for _ in coll.find()) == 20000
    assert sum(1 for _ in coll.aggregate([{"$match": {"_id": {"$gte": 0}}}], batchSize=1000)) == 20000


# count


def test_conversion_to_a_unique_index(db, coll):
    """Manual: "Convert an Existing Index to a Unique Index"."""
    coll.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 1}, {"_id": 3, "a": 2}])
    coll.create_index("a")
    index = {"keyPattern": {"a": 1}}
    with pytest.raises(OperationFailure) as refused:
        db.command("collMod", coll.name, index={**index, "unique": True})
    assert refused.value.code == 72
    db.command("collMod", coll.name, index={**index, "prepareUnique": True})
    for options in [{"dryRun": True}, {}]:
        with pytest.raises(OperationFailure) as refused:
            db.command("collMod", coll.name, index={**index, "unique": True}, **options)
        assert refused.value.code == 359
        assert refused.value.details["violations"] == [{"ids": [1, 2]}]
    coll.delete_one({"_id": 2})
    db.command("collMod", coll.name, index={**index, "unique": True}, dryRun=True)
    assert "unique" not in coll.index_information()["a_1"]
    assert db.command("collMod", coll.name, index={**index, "unique": True})["unique_new"] is True
    information = coll.index_information()["a_1"]
    assert information["unique"] is True and "prepareUnique" not in information
    with pytest.raises(DuplicateKeyError):
        coll.insert_one({"a": 2})


def test_counts(coll):
    coll.insert_many([{"_id": i, "mod": i % 3} for i in range(30)])
    assert coll.count_documents({"mod": 1}) == 10
    assert coll.count_documents({}, skip=5, limit=20) == 20
    assert coll.estimated_document_count() == 30


# aggregate


def test_aggregate(coll):
    coll.insert_many([{"_id": i, "kind": "abc"[i % 3], "n": i} for i in range(30)])
    pipeline = [
        {"$match": {"n": {"$lt": 20}}},
        {"$group": {"_id": "$kind", "total": {"$sum": "$n"}, "count": {"$sum": 1}}},
        {"$sort": {"total": -1}},
        {"$limit": 2},
    ]
    assert list(coll.aggregate(pipeline)) == [
        {"_id": "b", "total": 70, "count": 7},
        {"_id": "a", "total": 63, "count": 7},
    ]


# catalog


def test_aggregate_joins_and_windows(db, coll):
    other = db[coll.name + "_other"]
    other.drop()
    day = datetime(2024, 3, 31, tzinfo=timezone.utc)
    coll.insert_many([
        {"_id": i, "k": i % 3, "at": day + timedelta(hours=i), "n": i} for i in range(6)
    ])
    other.insert_many([{"_id": 0, "name": "zero"}, {"_id": 1, "name": "one"}])
    joined = coll.aggregate([
        {"$lookup": {"from": other.name, "localField": "k", "foreignField": "_id", "as": "o"}},
        {"$unwind": {"path": "$o", "preserveNullAndEmptyArrays": True}},
        {"$group": {"_id": "$o.name", "ids": {"$push": "$_id"}, "last": {"$top": {
            "sortBy": {"n": -1}, "output": "$n"}}}},
        {"$sort": {"_id": 1}},
    ])
    assert list(joined) == [
        {"_id": None, "ids": [2, 5], "last": 5},
        {"_id": "one", "ids": [1, 4], "last": 4},
        {"_id": "zero", "ids": [0, 3], "last": 3},
    ]
    windows = coll.aggregate([
        {"$setWindowFields": {"partitionBy": "$k", "sortBy": {"at": 1}, "output": {
            "sum": {"$sum": "$n", "window": {"documents": ["unbounded", "current"]}},
            "near": {"$sum": "$n", "window": {"range": [-3, 0], "unit": "hour"}},
            "rank": {"$rank": {}}}}},
        {"$sort": {"_id": 1}},
        {"$project": {"at": 0, "k": 0, "n": 0}},
    ])
    assert list(windows)[3:] == [
        {"_id": 3, "sum": 3, "near": 3, "rank": 2},
        {"_id": 4, "sum": 5, "near": 5, "rank": 2},
        {"_id": 5, "sum": 7, "near": 7, "rank": 2},
    ]
    local = {"$dateToString": {"date": "$at", "format": "%Y-%m-%dT%H:%M%z", "timezone": "Europe/Berlin"}}
    texts = coll.aggregate([{"$match": {"_id": {"$lte": 1}}}, {"$project": {"t": local}}])
    assert [text["t"] for text in texts] == ["2024-03-31T01:00+0100", "2024-03-31T03:00+0200"]


def test_aggregate_writes(db, coll):
    target = db[coll.name + "_target"]
    target.drop()
    coll.insert_many([{"_id": i, "g": i % 2, "n": i} for i in range(10)])
    sums = {"$group": {"_id": "$g", "n": {"$sum": "$n"}}}
    assert list(coll.aggregate([sums, {"$out": target.name}])) == []
    assert list(target.find().sort("_id")) == [{"_id": 0, "n": 20}, {"_id": 1, "n": 25}]
    add = [{"$set": {"n": {"$add": ["$n", "$$new.n"]}}}]
    merge = {"$merge": {"into": target.name, "whenMatched": add, "whenNotMatched": "insert"}}
    list(coll.aggregate([{"$match": {"_id": {"$gt": 7}}}, sums, merge]))
    assert list(target.find().sort("_id")) == [{"_id": 0, "n": 28}, {"_id": 1, "n": 34}]
    with pytest.raises(OperationFailure) as refused:
        coll.aggregate([{"$out": target.name}, {"$match": {}}])
    assert refused.value.code == 40601


def test_catalog(client, db, coll):
    coll.insert_one({})
    assert db.name in client.list_database_names()
    assert coll.name in db.list_collection_names()
    (info,) = db.list_collections(filter={"name": coll.name})
    assert info["type"] == "collection" and info["idIndex"]["name"] == "_id_"
    coll.drop()
    assert coll.name not in db.list_collection_names()


# ttl


def test_ttl_index(coll):
    assert coll.create_index("at", expireAfterSeconds=3600) == "at_1"
    coll.create_indexes([IndexModel([("other", DESCENDING)], expireAfterSeconds=0, name="gone")])
    indexes = {index["name"]: index for index in coll.list_indexes()}
    assert set(indexes) == {"_id_", "at_1", "gone"}
    assert indexes["at_1"]["expireAfterSeconds"] == 3600
    assert indexes["gone"]["expireAfterSeconds"] == 0
    assert indexes["gone"]["key"] == {"other": -1}
    raw = coll.database.command("listIndexes", coll.name, codec_options=CodecOptions(RawBSONDocument)).raw
    assert b"\x10expireAfterSeconds\x00" + (3600).to_bytes(4, "little") in raw, "int32 on the wire"


def ttl_metrics(client):
    return client.admin.command("serverStatus")["metrics"]["ttl"]


def wait_for_passes(client, more, seconds=30):
    target = ttl_metrics(client)["passes"] + more
    deadline = time.monotonic() + seconds
    while ttl_metrics(client)["passes"] < target:
        assert time.monotonic() < deadline, f"no {more} passes in {seconds} s"
        time.sleep(0.05)


def test_ttl_deletion(client, coll):
    coll.create_index([("at", ASCENDING)], expireAfterSeconds=60)
    client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
    wait_for_passes(client, 1)
    before = ttl_metrics(client)["deletedDocuments"]
    now = datetime.now(timezone.utc)
    due = [{"_id": f"due{i}", "at": now - timedelta(seconds=61 + i)} for i in range(25)]
    due.append({"_id": "due in an array", "at": [now + timedelta(hours=1), now - timedelta(hours=1)]})
    kept = [
        {"_id": "fresh", "at": now},
        {"_id": "future", "at": now + timedelta(hours=1)},
        {"_id": "text", "at": "2001-01-01"},
        {"_id": "number", "at": 0},
        {"_id": "null", "at": None},
        {"_id": "missing"},
    ]
    coll.insert_many(due + kept)
    wait_for_passes(client, 2)
    assert sorted(doc["_id"] for doc in coll.find()) == sorted(doc["_id"] for doc in kept)
    assert ttl_metrics(client)["deletedDocuments"] - before == len(due)


def test_ttl_change_by_coll_mod(db, coll):
    coll.create_index("at", expireAfterSeconds=60)
    reply = db.command("collMod", coll.name, index={"keyPattern": {"at": 1}, "expireAfterSeconds": 120})
    assert (reply["expireAfterSeconds_old"], reply["expireAfterSeconds_new"]) == (60, 120)
    assert coll.index_information()["at_1"]["expireAfterSeconds"] == 120


# errors


def failure(code, name, act):
    with pytest.raises(OperationFailure) as caught:
        act()
    assert caught.value.code == code, caught.value
    assert caught.value.details.get("codeName", name) == name
    return caught.value


def test_duplicate_key(coll):
    coll.create_index("email", unique=True)
    coll.insert_one({"_id": 1, "email": "a@b"})
    with pytest.raises(DuplicateKeyError) as caught:
        coll.insert_one({"_id": 2, "email": "a@b"})
    assert caught.value.details["keyPattern"] == {"email": 1}
    assert caught.value.details["keyValue"] == {"email": "a@b"}
    assert "E11000 duplicate key error collection" in str(caught.value)
    coll.insert_many([{"twice": 1, "email": 1}, {"twice": 1, "email": 2}])
    error = failure(11000, "DuplicateKey", lambda: coll.create_index("twice", unique=True))
    assert error.details["codeName"] == "DuplicateKey"


def test_unknown_command(db):
    error = failure(59, "CommandNotFound", lambda: db.command("noSuchCommand"))
    assert "no such command: 'noSuchCommand'" in str(error)


def test_index_errors(coll):
    coll.create_index("at", expireAfterSeconds=60)
    failure(85, "IndexOptionsConflict", lambda: coll.create_index("at", expireAfterSeconds=61))
    failure(67, "CannotCreateIndex", lambda: coll.create_index("x", expireAfterSeconds=-1))


def test_write_and_query_errors(coll):
    coll.insert_one({"_id": 1, "text": "x"})
    with pytest.raises(WriteError) as caught:
        coll.update_one({"_id": 1}, {"$inc": {"text": 1}})
    assert caught.value.code == 14
    error = failure(2, "BadValue", lambda: coll.find_one({"a": {"$noSuchOperator": 1}}))
    assert error.details["codeName"] == "BadValue"
    assert "unknown operator: $noSuchOperator" in str(error)


# retryable writes


@pytest.fixture
def proxied():
    host, port = pymongo.uri_parser.parse_uri(URI)["nodelist"][0]
    proxy = CuttingProxy(host, port)
    with MongoClient("127.0.0.1", proxy.port, serverMonitoringMode="poll") as client:
        yield proxy, client
    proxy.close()


def test_lost_replies_of_writes(proxied, coll):
    """The driver sends a write again whose reply was lost; the server gives the first answer."""
    proxy, client = proxied
    through = client[coll.database.name][coll.name]
    proxy.cut("reply", "insert")
    through.insert_one({"_id": 1, "n": 0})
    proxy.cut("reply", "update")
    assert through.update_one({"_id": 1}, {"$inc": {"n": 1}}).modified_count == 1
    proxy.cut("reply", "findAndModify")
    after = through.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, return_document=True)
    assert after == {"_id": 1, "n": 2}
    proxy.cut("reply", "insert")
    assert len(through.insert_many([{"k": k} for k in range(1000)]).inserted_ids) == 1000
    proxy.cut("reply", "delete")
    assert through.delete_one({"k": {"$gte": 0}}).deleted_count == 1
    assert proxy.cuts == 5
    assert coll.count_documents({}) == 1000
    assert coll.find_one({"_id": 1}) == {"_id": 1, "n": 2}


# collections with rules


def test_validator(db, coll):
    schema = {"required": ["n"], "properties": {"n": {"bsonType": "int", "minimum": 0}}}
    db.create_collection(coll.name, validator={"$jsonSchema": schema})
    coll.insert_one({"_id": 1, "n": 1})
    for write in (
        lambda: coll.insert_one({"_id": 2, "n": -1}),
        lambda: coll.insert_one({"_id": 3}),
        lambda: coll.update_one({"_id": 1}, {"$set": {"n": "x"}}),
    ):
        with pytest.raises(WriteError) as caught:
            write()
        assert caught.value.code == 121
        details = caught.value.details["errInfo"]["details"]
        assert details["operatorName"] == "$jsonSchema"
        assert details["schemaRulesNotSatisfied"]
    coll.with_options().insert_one({"_id": 4}, bypass_document_validation=True)
    assert [doc["_id"] for doc in coll.find(sort=[("_id", 1)])] == [1, 4]


def test_collation(db, coll):
    coll.insert_many([{"_id": i, "s": s} for i, s in enumerate(["a10", "A2", "b1", "B1"])])
    folded = Collation(locale="en", strength=2)
    assert {doc["_id"] for doc in coll.find({"s": "B1"}, collation=folded)} == {2, 3}
    numeric = Collation(locale="en", strength=2, numericOrdering=True)
    assert [doc["_id"] for doc in coll.find({"_id": {"$lt": 2}}).sort("s").collation(numeric)] == [1, 0]
    assert coll.count_documents({"s": "b1"}, collation=folded) == 2
    assert len(coll.distinct("s", collation=folded)) == 3
    failure(11000, "DuplicateKey", lambda: coll.create_index("s", unique=True, collation=folded))
    coll.delete_one({"s": "B1"}, collation=folded)
    coll.create_index("s", unique=True, collation=folded)
    with pytest.raises(DuplicateKeyError):
        coll.insert_one({"s": "a2"})
    by_default = db.create_collection(f"{coll.name}_default_{os.getpid()}", collation=folded)
    by_default.insert_one({"_id": 1, "s": "X"})
    assert by_default.find_one({"s": "x"})["_id"] == 1
    by_default.drop()


def test_places(coll):
    coll.create_index([("loc", GEOSPHERE)])
    coll.create_index([("at", GEO2D)], bits=20)
    stations = {1: (2.35, 48.85), 2: (-0.13, 51.51), 3: (13.4, 52.52), 4: (12.5, 41.9)}
    coll.insert_many(
        {"_id": i, "loc": {"type": "Point", "coordinates": place}, "at": place} for i, place in stations.items()
    )
    near = {"$near": {"$geometry": {"type": "Point", "coordinates": [2, 48]}, "$maxDistance": 1_000_000}}
    assert [doc["_id"] for doc in coll.find({"loc": near})] == [1, 2, 3]
    assert [doc["_id"] for doc in coll.find({"at": SON([("$near", [12, 42]), ("$maxDistance", 5)])})] == [4]
    box = {"type": "Polygon", "coordinates": [[[0, 45], [15, 45], [15, 55], [0, 55], [0, 45]]]}
    for operator in ("$geoWithin", "$geoIntersects"):
        assert {doc["_id"] for doc in coll.find({"loc": {operator: {"$geometry": box}}})} == {1, 3}
    stage = {"near": {"type": "Point", "coordinates": [2.35, 48.85]}, "key": "loc", "distanceField": "d"}
    found = list(coll.aggregate([{"$geoNear": stage}]))
    assert [doc["_id"] for doc in found] == [1, 2, 3, 4]
    assert found[0]["d"] == 0 and 340_000 < found[1]["d"] < 350_000
    with pytest.raises(OperationFailure) as caught:
        list(coll.find({"other": near}))
    assert caught.value.code == 291
    with pytest.raises(WriteError) as caught:
        coll.insert_one({"loc": "nowhere"})
    assert caught.value.code == 16755
    assert coll.index_information()["loc_2dsphere"]["2dsphereIndexVersion"] == 3


def test_text_search(coll):
    coll.insert_many(
        [
            {"_id": 1, "title": "Coffee shop", "body": "Where to have a coffee"},
            {"_id": 2, "title": "Tea", "body": "Café con leche is coffee, too"},
            {"_id": 3, "title": "Baking cakes", "body": "Nothing to drink"},
        ]
    )
    with pytest.raises(OperationFailure) as error:
        coll.find_one({"$text": {"$search": "coffee"}})
    assert error.value.code == 27
    name = coll.create_index([("title", TEXT), ("body", TEXT)], weights={"title": 10})
    assert name == "title_text_body_text"
    assert coll.index_information()[name]["weights"] == SON([("body", 1), ("title", 10)])
    score = {"$meta": "textScore"}
    found = coll.find({"$text": {"$search": "coffee"}}, {"score": score}).sort([("score", score)])
    found = list(found)
    assert [document["_id"] for document in found] == [1, 2]
    assert found[0]["score"] > found[1]["score"] > 0
    phrase = {"$text": {"$search": '"con leche" -shop'}}
    assert [document["_id"] for document in coll.find(phrase)] == [2]
    assert coll.count_documents({"$text": {"$search": "CAKE CAFE"}}) == 2
    assert coll.update_many({"$text": {"$search": "coffee"}}, {"$set": {"hot": True}}).modified_count == 2
    pipeline = [
        {"$match": {"$text": {"$search": "coffee cake"}}},
        {"$sort": {"score": score}},
        {"$limit": 1},
        {"$project": {"score": score}},
    ]
    (best,) = coll.aggregate(pipeline)
    assert best["score"] > 5


def test_tailable_cursor(db, coll):
    db.create_collection(coll.name, capped=True, size=4096, max=3)
    coll.insert_many([{"_id": i} for i in range(5)])
    assert [doc["_id"] for doc in coll.find()] == [2, 3, 4]
    cursor = coll.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(5000)
    assert [next(cursor)["_id"] for _ in range(3)] == [2, 3, 4]
    inserting = threading.Timer(0.2, lambda: coll.insert_one({"_id": 5}))
    inserting.start()
    began = time.monotonic()
    assert next(cursor)["_id"] == 5
    assert time.monotonic() - began < 4
    inserting.join()
    cursor.close()
    plain = db[f"{coll.name}_plain"]
    plain.insert_one({})
    failure(2, "BadValue", lambda: list(plain.find(cursor_type=CursorType.TAILABLE)))
    plain.drop()


def test_view(db, coll):
    coll.insert_many([{"_id": i, "even": i % 2 == 0} for i in range(10)])
    name = f"{coll.name}_view"
    db.drop_collection(name)
    view = db.create_collection(name, viewOn=coll.name, pipeline=[{"$match": {"even": True}}])
    assert [doc["_id"] for doc in view.find({"_id": {"$gt": 3}})] == [4, 6, 8]
    assert view.count_documents({}) == 5
    with pytest.raises(OperationFailure) as caught:
        view.insert_one({})
    assert caught.value.code == 166
    view.drop()


# diagnostics


def test_explain_and_sizes(db, coll):
    coll.create_index("a")
    coll.insert_many([{"a": i % 10} for i in range(100)])
    explained = coll.find({"a": 3}).explain()
    plan = explained["queryPlanner"]["winningPlan"]
    assert (plan["stage"], plan["inputStage"]["stage"]) == ("FETCH", "IXSCAN")
    assert explained["executionStats"]["nReturned"] == 10
    assert db.command("collStats", coll.name)["count"] == 100
    assert db.command("dbStats")["collections"] >= 1
    assert db.validate_collection(coll.name)["valid"] is True


# time series


def test_time_series(db, request):
    series = db.create_collection(
        request.node.name,
        timeseries={"timeField": "t", "metaField": "source", "granularity": "minutes"},
        expireAfterSeconds=86400,
    )
    info = next(iter(db.list_collections(filter={"name": series.name})))
    assert info["type"] == "timeseries"
    assert info["options"]["expireAfterSeconds"] == 86400
    assert info["options"]["timeseries"] == {
        "timeField": "t", "metaField": "source", "granularity": "minutes", "bucketMaxSpanSeconds": 86400,
    }
    begin = datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None)
    at = lambda n: begin - timedelta(seconds=60 * n)
    rows = [{"t": at(n), "source": {"id": n % 3}, "v": n} for n in range(300)]
    assert len(series.insert_many(rows).inserted_ids) == 300
    assert series.count_documents({"source.id": 1}) == 100
    recent = series.find({"t": {"$gte": at(9)}, "source": {"id": 0}}, {"_id": 0}).sort("t", ASCENDING)
    assert list(recent) == [{"t": at(n), "source": {"id": 0}, "v": n} for n in (9, 6, 3, 0)]
    by_source = series.aggregate([
        {"$match": {"t": {"$gt": at(30)}}},
        {"$group": {"_id": "$source.id", "n": {"$sum": 1}, "most": {"$max": "$v"}}},
        {"$sort": {"_id": 1}},
    ])
    assert list(by_source) == [
        {"_id": 0, "n": 10, "most": 27}, {"_id": 1, "n": 10, "most": 28}, {"_id": 2, "n": 10, "most": 29},
    ]
    assert series.delete_many({"source.id": 2}).deleted_count == 100
    assert series.count_documents({}) == 200
    series.drop()
    assert list(db.list_collections(filter={"name": {"$regex": request.node.name}})) == []


# scripts


def test_scripts(coll):
    coll.insert_many({"_id": n, "a": n, "b": 10 - n} for n in range(10))
    assert [doc["_id"] for doc in coll.find({"$where": "this.a > this.b"}).sort("_id")] == [6, 7, 8, 9]
    assert coll.count_documents({"a": {"$lt": 8}, "$expr": {"$function": {
        "body": "function(a, b) { return a > b; }", "args": ["$a", "$b"], "lang": "js",
    }}}) == 2
    body = {"body": "function(a, b) { return a * b; }", "args": ["$a", "$b"], "lang": "js"}
    found = coll.aggregate([{"$match": {"_id": 3}}, {"$project": {"product": {"$function": body}}}])
    assert list(found) == [{"_id": 3, "product": 21.0}]


# what goes beyond expireAfterSeconds


@pytest.fixture
def without_monitor(client):
    client.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    yield
    client.admin.command("setParameter", 1, ttlMonitorEnabled=True)


def test_map_reduce(db, coll):
    coll.insert_many([{"tags": ["cat", "dog"]}, {"tags": ["cat"]}, {"tags": ["mouse", "cat"]}])
    count = {
        "map": Code("function () { this.tags.forEach(tag => emit(tag, step)); }"),
        "reduce": Code("function (key, values) { return Array.sum(values); }"),
        "scope": {"step": 1},
    }
    inline = db.command("mapReduce", coll.name, **count, out={"inline": 1})
    expected = [{"_id": "cat", "value": 3.0}, {"_id": "dog", "value": 1.0}, {"_id": "mouse", "value": 1.0}]
    assert inline["results"] == expected
    counts = db[coll.name + "_counts"]
    counts.drop()
    for found in [expected, [{**row, "value": row["value"] * 2} for row in expected]]:
        assert db.command("mapReduce", coll.name, **count, out={"reduce": counts.name})["result"] == counts.name
        assert list(counts.find(sort=[("_id", ASCENDING)])) == found
    db.command("mapReduce", coll.name, **count, query={"tags": "dog"}, finalize="function (k, v) { return -v; }", out=counts.name)
    assert list(counts.find(sort=[("_id", ASCENDING)])) == [{"_id": "cat", "value": -1.0}, {"_id": "dog", "value": -1.0}]
    with pytest.raises(OperationFailure) as failure:
        endless = {"map": "function () { for (;;); }", "reduce": "function () {}"}
        db.command("mapReduce", coll.name, **endless, out={"inline": 1}, maxTimeMS=50)
    assert failure.value.code == 50


def test_hide_expired(without_monitor, db, coll):
    coll.create_index("key", unique=True)
    coll.create_index("at", expireAfterSeconds=0, ttl={"hideExpired": True})
    assert coll.index_information()["at_1"]["ttl"] == {"hideExpired": True}
    now = datetime.now(timezone.utc)
    coll.insert_many([
        {"_id": 1, "key": 1, "at": now - timedelta(hours=1)},
        {"_id": 2, "key": 2, "at": now + timedelta(hours=1)},
    ])
    assert [doc["_id"] for doc in coll.find()] == [2]
    assert coll.find_one({"_id": 1}) is None
    assert coll.count_documents({}) == 1
    assert coll.distinct("key") == [2]
    assert db.command("validate", coll.name)["nrecords"] == 2
    # A hidden document conflicts with no write.
    coll.insert_one({"_id": 3, "key": 1})
    with pytest.raises(DuplicateKeyError):
        coll.insert_one({"_id": 4, "key": 2})
    coll.drop()


def test_dry_run(db, coll):
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    coll.insert_many([*({"at": hour_ago} for _ in range(7)), {"at": "2001-01-01"}, {}])
    index = {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 60}
    reply = db.command("createIndexes", coll.name, indexes=[index], dryRun=True)
    assert reply["dryRun"] is True
    assert (reply["dueNow"], reply["never"]) == (7, {"missing": 1, "wrongType": {"string": 1}})
    assert reply["dueBytes"] > 0 and reply["oldest"] == reply["newest"]
    assert set(coll.index_information()) == {"_id_"}
    assert coll.count_documents({}) == 9


def test_ttl_stats(without_monitor, client, db, coll):
    coll.create_index("at", expireAfterSeconds=60)
    coll.create_index("_ts", expireAfterSeconds=3600)
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    coll.insert_many({"at": hour_ago} for _ in range(5))
    at, modified = coll.aggregate([{"$ttlStats": {}}])
    assert (at["index"], at["kind"], at["due"], at["deleted"], at["lastError"]) == ("at_1", "index", 5, 0, None)
    assert 3500 < at["oldestOverdueSecs"] < 3700
    assert (modified["kind"], modified["due"], modified["oldestOverdueSecs"]) == ("lastModified", 0, None)
    status = client.admin.command("ttlStatus")
    of_this = [policy for policy in status["policies"] if policy["ns"] == coll.full_name]
    assert [(policy["index"], policy["due"]) for policy in of_this] == [("at_1", 5), ("_ts_1", 0)]
    assert status["totals"]["due"] >= 5
    coll.drop()


# a replica set of one member


@pytest.fixture
def member():
    with MongoClient(os.environ["MONGODB_REPLICA_SET_URI"], heartbeatFrequencyMS=500) as client:
        yield client


def test_replica_set(member):
    assert member.admin.command("hello")["isWritablePrimary"] is True
    assert member.topology_description.topology_type_name == "ReplicaSetWithPrimary"
    assert member.topology_description.replica_set_name == "rs0"
    status = member.admin.command("replSetGetStatus")
    assert (status["set"], status["myState"]) == ("rs0", 1)
    with member.start_session(causal_consistency=True) as session:
        member.clients_python.seen.insert_one({}, session=session)
        assert session.operation_time is not None and session.cluster_time is not None
        assert member.clients_python.seen.find_one({}, session=session) is not None


def test_step_down(member):
    """T-51: a node that stepped down expires nothing and refuses writes; it is elected again when its time is over."""
    if len(member.admin.command("hello")["hosts"]) > 1:
        pytest.skip("another member takes over (test_secondaries.py)")
    coll = member.clients_python.step_down
    coll.drop()
    coll.create_index("at", expireAfterSeconds=0)
    member.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
    address = member.address
    member.admin.command("replSetStepDown", 3, force=True)
    direct = MongoClient(*address, directConnection=True, retryWrites=False)
    passes = lambda: direct.admin.command("serverStatus")["metrics"]["ttl"]["passes"]
    before = passes()
    with pytest.raises(pymongo.errors.NotPrimaryError):
        direct.clients_python.step_down.insert_one({})
    # The driver waits for a primary, and sends the write to it.
    coll.insert_one({"_id": 1, "at": datetime.now(timezone.utc) - timedelta(hours=1)})
    deadline = time.monotonic() + 20
    while (coll.count_documents({}) or passes() == before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert coll.count_documents({}) == 0 and passes() > before
    direct.close()
    status = member.admin.command("replSetGetStatus")
    # Of several members the term is the number of the owner, which stays the same.
    assert status["term"] >= 2 or len(status["members"]) > 1
    member.admin.command("setParameter", 1, ttlMonitorSleepSecs=60)


# change streams


def test_watch_collection(coll):
    with coll.watch(max_await_time_ms=1000) as stream:
        coll.insert_one({"_id": 1, "a": 1})
        coll.update_one({"_id": 1}, {"$set": {"a": 2, "b.c": 1}})
        coll.replace_one({"_id": 1}, {"z": 1})
        coll.delete_one({"_id": 1})
        events = [next(stream) for _ in range(4)]
        token = events[1]["_id"]
        assert stream.try_next() is None
        # The token is that of the last event until there are later writes anywhere.
        assert stream.resume_token["_data"] >= events[-1]["_id"]["_data"]
        coll.database["test_watch_elsewhere"].insert_one({})
        assert stream.try_next() is None
        assert stream.resume_token["_data"] > events[-1]["_id"]["_data"]
    assert [event["operationType"] for event in events] == ["insert", "update", "replace", "delete"]
    assert events[0]["fullDocument"] == {"_id": 1, "a": 1}
    assert events[0]["ns"] == {"db": coll.database.name, "coll": coll.name}
    changed = events[1]["updateDescription"]
    assert (changed["updatedFields"], changed["removedFields"]) == ({"a": 2, "b": {"c": 1}}, [])
    with coll.watch(resume_after=token) as stream:
        assert [next(stream)["operationType"] for _ in range(2)] == ["replace", "delete"]
    with coll.watch(start_at_operation_time=events[2]["clusterTime"]) as stream:
        assert next(stream)["_id"] == events[2]["_id"]


def test_watch_database_and_everything(client, db, coll):
    with db.watch([{"$match": {"operationType": "insert"}}]) as of_db, client.watch() as of_all:
        coll.insert_one({"_id": 1})
        client["clients_python_other"].c.insert_one({"_id": 2})
        assert next(of_db)["documentKey"] == {"_id": 1}
        assert [next(of_all)["documentKey"]["_id"] for _ in range(2)] == [1, 2]
    client.drop_database("clients_python_other")


def test_watch_sees_each_change_once(client, db, coll):
    """Eight writers at a time: every write is seen, each once, and those of one document in their order."""
    coll.insert_many({"_id": n, "v": 0} for n in range(8))
    rounds = 50

    def write(n):
        for v in range(1, rounds + 1):
            coll.update_one({"_id": n}, {"$set": {"v": v}})

    with coll.watch(max_await_time_ms=2000) as stream:
        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        seen = {n: [] for n in range(8)}
        for _ in range(8 * rounds):
            event = next(stream)
            seen[event["documentKey"]["_id"]].append(event["updateDescription"]["updatedFields"]["v"])
        for thread in threads:
            thread.join()
        assert stream.try_next() is None
    assert seen == {n: list(range(1, rounds + 1)) for n in range(8)}


# Manual, "$currentOp" (cursor.originatingCommand) and "killOp".
def test_a_cursor_that_waits_for_data_is_an_operation(client, db, coll):
    with client.start_session() as session:
        opened = db.command({"aggregate": coll.name, "pipeline": [{"$changeStream": {}}], "cursor": {}}, session=session)
        number, ended = opened["cursor"]["id"], []
        more = {"getMore": number, "collection": coll.name, "maxTimeMS": 60_000, "comment": "waits"}

        def wait():
            try:
                ended.append(db.command(more, session=session))
            except OperationFailure as error:
                ended.append(error)

        def shown():
            stage = {"$currentOp": {"allUsers": True, "idleCursors": True}}
            return list(client.admin.aggregate([stage, {"$match": {"command.comment": "waits"}}]))

        waiting = threading.Thread(target=wait)
        waiting.start()
        deadline = time.monotonic() + 10
        while not (ops := shown()) or ops[0]["microsecs_running"] < 300_000:
            assert time.monotonic() < deadline
            # It looks at the collection, and goes on waiting.
            coll.database.other.insert_one({})
        (op,) = ops
        assert (op["type"], op["op"], op["active"], op["ns"]) == ("op", "getmore", True, coll.full_name)
        assert op["cursor"]["cursorId"] == number and op["cursor"]["originatingCommand"]["aggregate"] == coll.name
        assert shown()[0]["opid"] == op["opid"]
        client.admin.command("killOp", op=op["opid"])
        waiting.join(10)
        assert ended[0].code == 11601 and shown() == []
        failure(43, "CursorNotFound", lambda: db.command(more, session=session))


def test_watch_expiry(client, db):
    """T-52, T-70: one event for each document that a policy deletes, with the policy's name and the document as it was."""
    db.drop_collection("watched")
    coll = db.create_collection("watched", changeStreamPreAndPostImages={"enabled": True})
    coll.create_index("at", expireAfterSeconds=0, name="by_at")
    old = datetime.now(timezone.utc) - timedelta(hours=1)
    coll.insert_many({"_id": n, "at": old, "n": n} for n in range(25))
    match = [{"$match": {"ttl.index": "by_at"}}]
    with coll.watch(match, full_document_before_change="required", max_await_time_ms=5000) as stream:
        client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
        events = [next(stream) for _ in range(25)]
        client.admin.command("setParameter", 1, ttlMonitorSleepSecs=60)
        assert stream.try_next() is None
    assert {event["operationType"] for event in events} == {"delete"}
    assert sorted(event["documentKey"]["_id"] for event in events) == list(range(25))
    assert all(event["fullDocumentBeforeChange"]["n"] == event["documentKey"]["_id"] for event in events)
    assert events[0]["ttl"] == {"index": "by_at", "expireAfterSeconds": 0}
    coll.drop()
