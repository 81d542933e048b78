"""Queryable encryption: values that the client encrypts and the server finds, for equality and for ranges.

The values are encrypted explicitly (`ClientEncryption.encrypt`), and the driver adds what the server needs and decrypts
what it reads (`bypass_query_analysis`). The library for automatic encryption of queries is not open source.
"""

import collections
import datetime
import os
import random
import threading

import pytest
from bson import Decimal128, Int64
from bson.binary import STANDARD, Binary
from bson.codec_options import CodecOptions
from pymongo import MongoClient, ReturnDocument
from pymongo.encryption import Algorithm, ClientEncryption
from pymongo.encryption_options import AutoEncryptionOpts, RangeOpts
from pymongo.errors import BulkWriteError, OperationFailure

from test_backup import server

DATABASE = "queryable_encryption"
MASTER_KEY = {"local": {"key": b"\x0b" * 96}}
KEY_VAULT = f"{DATABASE}.keys"
EPOCH = datetime.datetime(1970, 1, 1)


def range_query(least, most, contention=0, **more):
    return {"queryType": "range", "contention": Int64(contention), "min": least, "max": most, "sparsity": Int64(1), "trimFactor": 4, **more}


FIELDS = {
    "name": ("string", {"queryType": "equality", "contention": Int64(0)}),
    "city": ("string", {"queryType": "equality", "contention": Int64(4)}),
    "address.zip": ("int", {"queryType": "equality", "contention": Int64(4)}),
    "age": ("int", range_query(0, 200)),
    "salary": ("long", range_query(Int64(0), Int64(1_000_000), 4)),
    "score": ("double", range_query(0.0, 100.0, precision=2)),
    "price": ("decimal", range_query(Decimal128("0"), Decimal128("1000"), precision=2)),
    "born": ("date", range_query(EPOCH, datetime.datetime(2100, 1, 1))),
    "note": ("string", None),
}
OPTIONS = {"sparsity": 1, "trim_factor": 4}


class World:
    """A client that encrypts, one that does not, and a collection with encrypted fields."""

    def __init__(self, uri, keys=None):
        """With keys, the collection is there."""
        self.plain = MongoClient(uri)
        self.db = self.plain[DATABASE]
        options = CodecOptions(uuid_representation=STANDARD)
        self.tools = ClientEncryption(MASTER_KEY, KEY_VAULT, self.plain, options)
        opts = AutoEncryptionOpts(MASTER_KEY, KEY_VAULT, bypass_query_analysis=True)
        self.client = MongoClient(uri, auto_encryption_opts=opts)
        self.collection = self.client[DATABASE].c
        if keys is None:
            self.plain.drop_database(DATABASE)
            keys = {path: self.tools.create_data_key("local") for path in FIELDS}
            fields = []
            for path, (kind, query) in FIELDS.items():
                field = {"path": path, "keyId": keys[path], "bsonType": kind}
                fields.append(field if query is None else {**field, "queries": query})
            self.client[DATABASE].create_collection("c", encryptedFields={"fields": fields})
        self.keys = keys
        self.esc, self.ecoc = self.db["enxcol_.c.esc"], self.db["enxcol_.c.ecoc"]

    def close(self):
        self.client.close()
        self.tools.close()
        self.plain.close()

    def _of(self, path, query_type=None):
        kind, query = FIELDS[path]
        if query is None:
            return {"algorithm": Algorithm.UNINDEXED, "key_id": self.keys[path]}
        is_range = query["queryType"] == "range"
        arguments = {
            "algorithm": Algorithm.RANGE if is_range else Algorithm.INDEXED,
            "key_id": self.keys[path],
            "contention_factor": query["contention"],
        }
        if is_range:
            arguments["range_opts"] = RangeOpts(min=query["min"], max=query["max"], precision=query.get("precision"), **OPTIONS)
        if query_type:
            arguments["query_type"] = query["queryType"]
        return arguments

    def put(self, path, value):
        """A value to insert."""
        return self.tools.encrypt(value, **self._of(path))

    def find(self, path, value):
        """A value to look for."""
        return self.tools.encrypt(value, **self._of(path, query_type=True))

    def between(self, path, **ends):
        """A filter for a range: `gte=1, lt=5`."""
        conditions = [{path: {f"${name}": value}} for name, value in ends.items()]
        return self.tools.encrypt_expression({"$and": conditions}, **self._of(path, query_type=True))

    def ids(self, filter, **more):
        return sorted(document["_id"] for document in self.collection.find(filter, {"_id": 1}, **more))

    def named(self, name):
        return self.ids({"name": self.find("name", name)})

    def compact(self):
        return self.client[DATABASE].command("compactStructuredEncryptionData", "c")["stats"]

    def cleanup(self):
        return self.client[DATABASE].command("cleanupStructuredEncryptionData", "c")["stats"]

    def check_tags(self):
        """No tag is there twice: each value of each document has tags of its own."""
        tags = collections.Counter()
        for document in self.db.c.find():
            tags.update(bytes(tag) for tag in document.get("__safeContent__", []))
        assert all(count == 1 for count in tags.values())
        return len(tags)


on_both_postures = pytest.mark.parametrize("world", ["MONGODB_URI", "MONGODB_REPLICA_SET_URI"], indirect=True)


@pytest.fixture
def world(request):
    one = World(os.environ[getattr(request, "param", "MONGODB_URI")])
    yield one
    one.plain.drop_database(DATABASE)
    one.close()


@on_both_postures
def test_the_driver_creates_the_collections(world):
    listed = {info["name"]: info for info in world.db.list_collections()}
    for name in ("enxcol_.c.esc", "enxcol_.c.ecoc"):
        assert listed[name]["options"]["clusteredIndex"]["key"] == {"_id": 1}
    assert [field["path"] for field in listed["c"]["options"]["encryptedFields"]["fields"]] == list(FIELDS)
    assert "__safeContent___1" in world.db.c.index_information()
    fields = {"fields": [{"path": "a", "bsonType": "int", "keyId": None, "queries": {"queryType": "equality"}}]}
    made, definition = world.tools.create_encrypted_collection(world.client[DATABASE], "made", fields, "local")
    assert isinstance(definition["fields"][0]["keyId"], Binary)
    value = world.tools.encrypt(5, Algorithm.INDEXED, key_id=definition["fields"][0]["keyId"], contention_factor=8)
    made.insert_one({"_id": 1, "a": value})
    assert made.find_one() == {"_id": 1, "a": 5, "__safeContent__": made.find_one()["__safeContent__"]}
    made.drop(encrypted_fields=definition)
    assert not [name for name in world.db.list_collection_names() if "made" in name]


@on_both_postures
def test_values_are_found_by_equality(world):
    people = [("Ada", "London", 1), ("Bob", "Paris", 2), ("Ada", "Paris", 1), ("Eve", "London", 3)]
    for at, (name, city, code) in enumerate(people):
        document = {"_id": at, "name": world.put("name", name), "city": world.put("city", city), "n": at}
        document["address"] = {"zip": world.put("address.zip", code), "street": "a"}
        document["note"] = world.put("note", f"note {at}")
        world.collection.insert_one(document)
    found = world.collection.find_one({"name": world.find("name", "Bob")})
    assert (found["name"], found["city"], found["note"]) == ("Bob", "Paris", "note 1")
    assert found["address"] == {"zip": 2, "street": "a"} and len(found["__safeContent__"]) == 3
    stored = world.db.c.find_one({"_id": 1})
    assert stored["name"].subtype == 6 and stored["note"].subtype == 6
    assert world.named("Ada") == [0, 2] and world.named("Zoe") == []
    either = [world.find("name", "Bob"), world.find("name", "Eve")]
    assert world.ids({"name": {"$in": either}}) == [1, 3]
    assert world.ids({"name": {"$nin": either}}) == [0, 2]
    assert world.ids({"name": {"$ne": world.find("name", "Ada")}}) == [1, 3]
    both = {"name": world.find("name", "Ada"), "city": world.find("city", "Paris")}
    assert world.ids(both) == [2] and world.ids({**both, "n": 0}) == []
    assert world.ids({"$or": [{"name": world.find("name", "Eve")}, {"city": world.find("city", "Paris")}]}) == [1, 2, 3]
    assert world.ids({"address.zip": {"$eq": world.find("address.zip", 1)}}) == [0, 2]
    assert world.collection.count_documents({"name": world.find("name", "Ada")}) == 2
    counted = world.client[DATABASE].command("count", "c", query={"name": world.find("name", "Ada")})
    assert counted["n"] == 2
    stages = [{"$match": {"city": world.find("city", "London")}}, {"$sort": {"n": -1}}, {"$project": {"name": 1}}]
    assert [found["name"] for found in world.collection.aggregate(stages)] == ["Eve", "Ada"]
    expression = {"$expr": {"$eq": ["$name", world.find("name", "Eve")]}}
    assert world.ids(expression) == [3]
    assert world.check_tags() == 12
    assert world.esc.count_documents({}) == 12 and world.ecoc.count_documents({}) == 12
    assert {entry["fieldName"] for entry in world.ecoc.find()} == {"name", "city", "address.zip"}


def test_the_index_on_the_tags_serves_the_query(world):
    world.collection.insert_many({"_id": at, "name": world.put("name", f"n{at % 5}")} for at in range(20))
    plan = world.collection.find({"name": world.find("name", "n1")}).explain()
    assert plan["executionStats"]["totalDocsExamined"] == 4 and plan["executionStats"]["nReturned"] == 4
    assert "__safeContent___1" in str(plan["queryPlanner"]["winningPlan"])
    command = {"update": "c", "updates": [{"q": {"name": world.find("name", "n1")}, "u": {"$set": {"a": 1}}}]}
    plan = world.client[DATABASE].command("explain", command, verbosity="queryPlanner")
    assert "__safeContent___1" in str(plan["queryPlanner"]["winningPlan"])


RANGES = {
    "age": [0, 1, 5, 17, 18, 99, 200],
    "salary": [Int64(n) for n in (0, 1, 999, 1000, 500_000, 1_000_000)],
    "score": [0.0, 0.5, 3.14, 50.0, 99.99, 100.0],
    "price": [Decimal128(text) for text in ("0", "0.01", "9.99", "10.00", "1000")],
    "born": [EPOCH + datetime.timedelta(days=days) for days in (0, 1, 365, 10_000, 40_000)],
}


@pytest.mark.parametrize("path", RANGES)
def test_values_are_found_by_ranges(world, path):
    values = RANGES[path]
    world.collection.insert_many({"_id": at, path: world.put(path, value)} for at, value in enumerate(values))
    assert [document[path] for document in world.collection.find().sort("_id")] == values
    compare = {"gt": lambda a, b: a > b, "gte": lambda a, b: a >= b, "lt": lambda a, b: a < b, "lte": lambda a, b: a <= b}
    rank = [value.to_decimal() if isinstance(value, Decimal128) else value for value in values]
    for low, high, (first, second) in ((0, -1, ("gte", "lte")), (1, -1, ("gt", "lt")), (1, 3, ("gte", "lt")), (2, 2, ("gte", "lte"))):
        ends = rank[low], rank[high]
        expected = [at for at, value in enumerate(rank) if compare[first](value, ends[0]) and compare[second](value, ends[1])]
        assert world.ids(world.between(path, **{first: values[low], second: values[high]})) == expected
    for name in compare:
        expected = [at for at, value in enumerate(rank) if compare[name](value, rank[2])]
        assert world.ids(world.between(path, **{name: values[2]})) == expected
    world.compact()
    assert world.ids(world.between(path, gte=values[1], lte=values[-1])) == list(range(1, len(values)))


@on_both_postures
def test_updates_replace_values_and_their_tags(world):
    c = world.collection
    c.insert_one({"_id": 1, "name": world.put("name", "Ada"), "age": world.put("age", 30)})
    before = set(map(bytes, world.db.c.find_one()["__safeContent__"]))
    changed = c.update_one({"name": world.find("name", "Ada")}, {"$set": {"name": world.put("name", "Eve")}})
    assert (changed.matched_count, changed.modified_count) == (1, 1)
    after = set(map(bytes, world.db.c.find_one()["__safeContent__"]))
    assert len(before & after) == len(before) - 1 and len(after) == len(before)
    assert world.named("Ada") == [] and world.named("Eve") == [1]
    assert world.ids(world.between("age", gte=29, lt=31)) == [1]
    c.update_one({"_id": 1}, {"$unset": {"age": ""}, "$inc": {"n": 1}})
    assert len(world.db.c.find_one()["__safeContent__"]) == 1
    assert world.ids(world.between("age", gte=29, lt=31)) == []
    c.replace_one({"_id": 1}, {"name": world.put("name", "Bob"), "city": world.put("city", "Rome")})
    assert world.named("Eve") == [] and world.named("Bob") == [1]
    assert len(world.db.c.find_one()["__safeContent__"]) == 2
    upserted = c.update_one({"_id": 7}, {"$set": {"name": world.put("name", "Ada")}}, upsert=True)
    assert upserted.upserted_id == 7 and world.named("Ada") == [7]
    old = c.find_one_and_update({"name": world.find("name", "Ada")}, {"$set": {"name": world.put("name", "Ida")}})
    assert old["name"] == "Ada" and world.named("Ida") == [7]
    old = c.find_one_and_replace({"_id": 7}, {"name": world.put("name", "Ada")})
    assert old["name"] == "Ida" and world.named("Ida") == [] and world.named("Ada") == [7]
    assert c.find_one_and_delete({"name": world.find("name", "Ada")})["name"] == "Ada"
    assert world.named("Ada") == []
    assert c.delete_one({"name": world.find("name", "Bob")}).deleted_count == 1
    assert c.count_documents({}) == 0
    # The counts stay: a later insert of the value gets a new tag.
    c.insert_one({"_id": 1, "name": world.put("name", "Ada")})
    assert set(map(bytes, world.db.c.find_one()["__safeContent__"])).isdisjoint(before)


def test_bulk_writes(world):
    c = world.collection
    with pytest.raises(BulkWriteError) as failed:
        c.insert_many([{"_id": at % 3, "name": world.put("name", "Ada")} for at in range(5)], ordered=False)
    assert [error["code"] for error in failed.value.details["writeErrors"]] == [11000, 11000]
    assert world.named("Ada") == [0, 1, 2] and world.check_tags() == 3
    assert c.delete_many({"name": world.find("name", "Ada")}).deleted_count == 3


def refused(code, act):
    with pytest.raises(OperationFailure) as failed:
        act()
    assert failed.value.code == code, failed.value


def test_what_is_refused(world):
    c, db, name = world.collection, world.client[DATABASE], world.put("name", "Ada")
    one = {"q": {}, "u": {"$set": {"name": name}}}
    refused(6371502, lambda: db.command("update", "c", updates=[one, one]))
    refused(6371503, lambda: db.command("update", "c", updates=[{**one, "multi": True}]))
    refused(6371517, lambda: db.command("update", "c", updates=[{"q": {}, "u": [{"$set": {"name": name}}]}]))
    refused(6371302, lambda: db.command("delete", "c", deletes=[{"q": {}, "limit": 1}, {"q": {}, "limit": 1}]))
    update = {"$set": {"name": name}}
    refused(6371402, lambda: c.find_one_and_update({}, update, return_document=ReturnDocument.AFTER))
    refused(6371408, lambda: c.find_one_and_update({}, update, projection={"a": 1}))
    # A value in a field that is not encrypted, in one with another index, and in a list.
    refused(2, lambda: c.insert_one({"other": name}))
    refused(2, lambda: c.insert_one({"city": world.find("name", "Ada")}))
    refused(2, lambda: c.insert_one({"name": [name]}))
    # Values that are not encrypted, and those of another kind.
    for document in ({"name": "Ada"}, {"age": 5}, {"name": None}, {"note": 1}, {"name": world.put("note", "x")}):
        refused(121, lambda: world.db.c.insert_one(document))
    world.db.c.insert_one({"_id": 1})
    refused(121, lambda: world.db.c.update_one({"_id": 1}, {"$set": {"name": "Ada"}}))
    refused(2, lambda: world.db.c.insert_one({"__safeContent__": []}))
    refused(2, lambda: world.db.c.update_one({"_id": 1}, {"$set": {"__safeContent__": []}}))
    refused(6666200, lambda: c.update_one({"_id": 1}, {"$set": {"__safeContent__": []}}))
    # A stored value cannot be copied: its tag would be there twice.
    c.insert_one({"_id": 2, "name": name})
    documents = [{"_id": 3, "name": world.db.c.find_one({"_id": 2})["name"]}]
    fields = world.db.command("listCollections", filter={"name": "c"})["cursor"]["firstBatch"][0]["options"]["encryptedFields"]
    information = {"type": 1, "schema": {f"{DATABASE}.c": fields}}
    reply = world.db.command("insert", "c", documents=documents, encryptionInformation=information)
    assert [error["code"] for error in reply["writeErrors"]] == [2]
    assert world.check_tags() == 1


@on_both_postures
def test_transactions(world):
    c = world.collection
    with world.client.start_session() as session:
        with pytest.raises(KeyError), session.start_transaction():
            c.insert_one({"_id": 1, "name": world.put("name", "Ada")}, session=session)
            c.insert_one({"_id": 2, "name": world.put("name", "Ada")}, session=session)
            assert c.count_documents({"name": world.find("name", "Ada")}, session=session) == 2
            raise KeyError
        assert world.db.c.count_documents({}) == world.esc.count_documents({}) == world.ecoc.count_documents({}) == 0
        with session.start_transaction():
            c.insert_one({"_id": 1, "name": world.put("name", "Ada")}, session=session)
            c.update_one({"_id": 1}, {"$set": {"name": world.put("name", "Eve")}}, session=session)
            c.insert_one({"_id": 2, "name": world.put("name", "Eve")}, session=session)
        assert world.named("Eve") == [1, 2] and world.named("Ada") == []
        assert world.esc.count_documents({}) == 3
        # Of two transactions that insert a value, one fails.
        session.start_transaction()
        c.insert_one({"_id": 3, "name": world.put("name", "Eve")}, session=session)
        with world.client.start_session() as other:
            other.start_transaction()
            with pytest.raises(OperationFailure) as failed:
                c.insert_one({"_id": 4, "name": world.put("name", "Eve")}, session=other)
            assert failed.value.code == 112 and failed.value.has_error_label("TransientTransactionError")
        session.commit_transaction()
    assert world.named("Eve") == [1, 2, 3] and world.check_tags() == 3


@on_both_postures
def test_concurrent_writers_of_one_value_get_different_counts(world):
    threads, each, done, errors = 6, 20, threading.Event(), []
    names = [[world.put("name", "Ada") for _ in range(each)] for _ in range(threads)]

    def write(at):
        try:
            for number, name in enumerate(names[at]):
                world.collection.insert_one({"_id": at * each + number, "name": name})
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    def shrink():
        try:
            while not done.is_set():
                world.compact()
                world.cleanup()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    writers = [threading.Thread(target=write, args=(at,)) for at in range(threads)]
    upkeep = [threading.Thread(target=shrink) for _ in range(2)]
    for thread in writers + upkeep:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in upkeep:
        thread.join()
    assert errors == []
    assert world.named("Ada") == list(range(threads * each)) and world.check_tags() == threads * each
    world.compact()
    assert world.ecoc.count_documents({}) == 0


def test_compaction_and_cleanup(world):
    c = world.collection
    for at in range(10):
        c.insert_one({"_id": at, "name": world.put("name", "Ada" if at % 2 else "Eve"), "age": world.put("age", at)})
    entries, counts = world.ecoc.count_documents({}), world.esc.count_documents({})
    assert entries == counts
    stats = world.compact()
    assert stats["ecoc"] == {"read": entries, "deleted": entries}
    assert stats["esc"]["deleted"] == counts and stats["esc"]["updated"] == 0
    assert world.ecoc.count_documents({}) == 0
    anchors = list(world.esc.find())
    assert len(anchors) == stats["esc"]["inserted"] < counts and all("value" in anchor for anchor in anchors)
    assert world.compact() == {"ecoc": {"read": 0, "deleted": 0}, "esc": {"read": 0, "inserted": 0, "updated": 0, "deleted": 0}}
    assert world.named("Ada") == [1, 3, 5, 7, 9]
    assert world.ids(world.between("age", gte=3, lt=6)) == [3, 4, 5]
    c.insert_one({"_id": 10, "name": world.put("name", "Ada")})
    assert world.named("Ada") == [1, 3, 5, 7, 9, 10]
    assert world.compact()["esc"]["inserted"] == 1
    assert world.named("Ada") == [1, 3, 5, 7, 9, 10]
    c.insert_one({"_id": 11, "name": world.put("name", "Ada")})
    stats = world.cleanup()
    # The null anchor replaces two anchors and a count.
    assert (stats["esc"]["inserted"], stats["esc"]["deleted"]) == (1, 3) and stats["ecoc"]["deleted"] == 1
    assert world.named("Ada") == [1, 3, 5, 7, 9, 10, 11]
    c.insert_one({"_id": 12, "name": world.put("name", "Ada")})
    stats = world.cleanup()
    assert (stats["esc"]["inserted"], stats["esc"]["updated"], stats["esc"]["deleted"]) == (0, 1, 1)
    assert world.named("Ada") == [1, 3, 5, 7, 9, 10, 11, 12] and world.named("Eve") == [0, 2, 4, 6, 8]
    world.check_tags()
    refused(6346806, lambda: world.db.command("compactStructuredEncryptionData", "c", compactionTokens={}))


def test_a_value_with_very_many_counts_is_compacted(world):
    name = world.put("name", "Ada")
    for first in range(0, 5000, 500):
        world.collection.insert_many({"_id": at, "name": name} for at in range(first, first + 500))
    stats = world.compact()
    assert (stats["esc"]["inserted"], stats["esc"]["deleted"]) == (1, 5000) and stats["ecoc"]["deleted"] == 5000
    assert world.esc.count_documents({}) == 1 and len(world.named("Ada")) == 5000
    world.check_tags()


def test_a_query_with_too_many_tags_reads_the_documents(world):
    name = world.put("name", "Ada")
    for first in range(0, 16_500, 1500):
        world.collection.insert_many({"_id": at, "name": name} for at in range(first, first + 1500))
    world.collection.insert_one({"_id": -1, "name": world.put("name", "Eve")})
    query = {"name": world.find("name", "Ada")}
    assert world.collection.count_documents(query) == 16_500
    assert world.ids({"name": {"$ne": query["name"]}}) == [-1]
    assert world.collection.find(query).limit(1).explain()["queryPlanner"]["winningPlan"]["inputStage"]["stage"] == "COLLSCAN"
    world.collection.delete_many({"_id": {"$gte": 3}})
    assert world.named("Ada") == [0, 1, 2] and world.named("Eve") == [-1]


def test_what_the_operator_sees_shows_no_queries(world):
    world.db.command("profile", 2)
    world.collection.insert_one({"_id": 1, "name": world.put("name", "Ada")})
    world.named("Ada")
    world.db.other.find_one({"a": 1})
    world.db.command("profile", 0)
    profiled = [entry.get("command", {}) for entry in world.db["system.profile"].find()]
    assert any(command.get("find") == "other" for command in profiled)
    assert not any("encryptionInformation" in command or command.get("insert") == "c" for command in profiled)


def test_change_streams_out_and_validate(world):
    with world.db.c.watch() as stream:
        world.collection.insert_one({"_id": 1, "name": world.put("name", "Ada")})
        world.collection.update_one({"_id": 1}, {"$set": {"name": world.put("name", "Eve")}})
        insert, update = stream.next(), stream.next()
    assert insert["fullDocument"]["name"].subtype == 6
    assert set(update["updateDescription"]["updatedFields"]) <= {"name", "__safeContent__", "__safeContent__.0"}
    list(world.db.c.aggregate([{"$out": "copied"}]))
    assert world.db.copied.find_one() == world.db.c.find_one()
    for name in ("c", "enxcol_.c.esc", "enxcol_.c.ecoc"):
        assert world.db.command("validate", name, full=True)["valid"]


def test_a_server_that_is_killed_during_compactions_loses_nothing(tmp_path):
    rng = random.Random(4)
    with server(tmp_path / "data") as one:
        # A client of a server that was killed gives up soon.
        uri = lambda: f"{one.uri.rstrip('/')}/?serverSelectionTimeoutMS=1000"  # noqa: E731
        world = World(uri())
        names = {name: [] for name in ("Ada", "Eve", "Ida")}
        at = 0
        for round in range(4):
            for _ in range(60):
                name = rng.choice(list(names))
                world.collection.insert_one({"_id": at, "name": world.put("name", name), "age": world.put("age", at % 100)})
                names[name].append(at)
                at += 1

            def shrink():
                try:
                    (world.compact if round % 2 else world.cleanup)()
                except Exception:  # noqa: BLE001
                    pass

            thread = threading.Thread(target=shrink)
            thread.start()
            thread.join(rng.uniform(0, 0.1))
            one.kill()
            thread.join()
            one.start()
            world.close()
            world = World(uri(), world.keys)
            for name, expected in names.items():
                assert world.named(name) == expected
            world.check_tags()
        world.compact()
        assert world.ecoc.count_documents({}) == 0
        for name, expected in names.items():
            assert world.named(name) == expected
        assert world.ids(world.between("age", gte=10, lt=12)) == [10, 11, 110, 111, 210, 211]
        world.close()
