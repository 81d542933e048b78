"""What should stay, stays: the errors that a driver sees where data would otherwise be lost or an answer be wrong."""

import os
import re
from datetime import datetime

import pytest
from pymongo import CursorType, MongoClient
from pymongo.errors import DuplicateKeyError, OperationFailure

PAST = datetime(2020, 1, 1)
# More ways to match than anybody can wait for, in both of PCRE2's programs and outside of the automaton's language.
ENDLESS = re.compile(r"^(?!b)(a+)+$")
TEXT = "a" * 40 + "c"


@pytest.fixture
def db():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        client.drop_database("what_stays")
        yield client.what_stays
        client.drop_database("what_stays")


def code_of(action):
    with pytest.raises(OperationFailure) as failed:
        action()
    return failed.value.code


def ids(collection, query=None):
    return sorted(document["_id"] for document in collection.find(query or {}))


def test_a_pattern_that_is_not_finished_deletes_nothing(db):
    db.c.insert_many([{"_id": 1, "f": TEXT}, {"_id": 2, "f": "x"}])
    assert ids(db.c, {"f": {"$not": re.compile(r"(a+)+$|b$")}}) == [1, 2]
    assert code_of(lambda: db.c.delete_many({"f": {"$not": ENDLESS}})) == 51156
    assert code_of(lambda: list(db.c.find({"f": {"$nin": [ENDLESS]}}))) == 51156
    assert ids(db.c) == [1, 2]


def test_a_paused_policy_hides_nothing_and_keeps_its_documents(db):
    db.c.insert_one({"_id": 1, "d": PAST})
    ttl = {"hideExpired": True, "paused": True}
    index = {"key": {"d": 1}, "name": "d", "expireAfterSeconds": 0, "ttl": ttl}
    db.command({"createIndexes": "c", "indexes": [index]})
    assert ids(db.c) == [1]
    with pytest.raises(DuplicateKeyError):
        db.c.insert_one({"_id": 1})
    db.command({"collMod": "c", "index": {"name": "d", "ttl": {"hideExpired": True}}})
    assert ids(db.c) == []


def test_no_archive_leads_back(db):
    name = db.name
    policy = lambda into: {
        "key": {"d": 1}, "name": "d", "expireAfterSeconds": 3600, "ttl": {"archive": {"collection": f"{name}.{into}"}},
    }
    db.command({"createIndexes": "a", "indexes": [policy("b")]})
    assert code_of(lambda: db.command({"createIndexes": "b", "indexes": [policy("a")]})) == 72
    db.b.insert_one({"_id": 1})
    rename = {"renameCollection": f"{name}.a", "to": f"{name}.b", "dropTarget": True}
    assert code_of(lambda: db.client.admin.command(rename)) == 72
    assert ids(db.b) == [1]


def test_names_with_a_null_byte(db):
    db.c.insert_one({"_id": 1, "a": [1, 2]})
    unwind = {"$unwind": {"path": "$a", "includeArrayIndex": "i\0j"}}
    assert code_of(lambda: db.c.aggregate([unwind, {"$out": "out"}])) == 16411
    lookup = {"$lookup": {"from": "c", "localField": "_id", "foreignField": "_id", "as": "x\0y"}}
    assert code_of(lambda: db.c.aggregate([lookup])) == 16411
    assert code_of(lambda: db.command({"count": "a\0b"})) == 73
    totals = db.client.admin.command("top")["totals"]
    assert f"{db.name}.c" in totals and not any("\0" in name for name in totals)


def test_out_and_conversion_keep_what_a_collection_is(db):
    db.c.insert_many({"_id": number} for number in range(10))
    db.create_collection("out", validator={"_id": {"$gte": 0}})
    db.out.create_index("at", name="at", expireAfterSeconds=100)
    db.c.aggregate([{"$out": "out"}])
    assert db.out.index_information()["at"]["expireAfterSeconds"] == 100
    assert db.out.options()["validator"] == {"_id": {"$gte": 0}}
    assert ids(db.out) == list(range(10))
    db.command({"convertToCapped": "out", "size": 8192})
    assert db.out.options()["capped"] and db.out.options()["validator"] == {"_id": {"$gte": 0}}


def test_cursors_that_lost_their_place(db):
    db.create_collection("capped", capped=True, size=4096, max=5)
    db.capped.insert_many({"i": number} for number in range(5))
    # The driver ends a tailable cursor without a word; one that does not wait tells why.
    session = db.client.start_session()
    cursor = db.capped.find(batch_size=2, session=session)
    tailable = db.capped.find(cursor_type=CursorType.TAILABLE, batch_size=2)
    shown = [[next(found), next(found)] for found in (cursor, tailable)]
    assert [[document["i"] for document in batch] for batch in shown] == [[0, 1], [0, 1]]
    db.capped.insert_many({"i": number} for number in range(20))
    command = {"getMore": cursor.cursor_id, "collection": "capped"}
    assert code_of(lambda: db.command(command, session=session)) == 136
    assert list(tailable) == [] and not tailable.alive

    db.c.insert_many({"i": number} for number in range(10))
    cursor = db.c.find(batch_size=2, session=session)
    next(cursor)
    next(cursor)
    db.c.rename("d")
    command = {"getMore": cursor.cursor_id, "collection": "c"}
    assert code_of(lambda: db.command(command, session=session)) == 175


def test_the_state_of_the_clock_is_told(db):
    assert db.client.admin.command("serverStatus")["ttl"]["suspended"] is False
    assert db.client.admin.command({"ttlResume": 1})["wasSuspended"] is False
