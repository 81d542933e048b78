"""Sessions that read as of one time, sessions that are causally consistent, and the levels of read concern, against a router and
against a member of a replica set; what is expected is listed in ../README.md."""

import os
import threading

import pytest
from bson.timestamp import Timestamp
from pymongo import InsertOne, MongoClient, UpdateOne
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

POSTURES = {"router": "MONGODB_URI", "member": "MONGODB_REPLICA_SET_URI"}


@pytest.fixture(scope="module", params=POSTURES)
def uri(request):
    return os.environ[POSTURES[request.param]]


@pytest.fixture(scope="module")
def client(uri):
    with MongoClient(uri) as client:
        yield client


@pytest.fixture(scope="module")
def other(uri):
    """Another client: it knows no time of the first one's."""
    with MongoClient(uri) as client:
        yield client


@pytest.fixture
def coll(client, request):
    collection = client["read_concerns"][request.node.originalname]
    collection.drop()
    return collection


def the_same(client, coll):
    return client[coll.database.name][coll.name]


# snapshot sessions


def test_snapshot_session_sees_one_state(client, other, coll):
    coll.insert_many([{"_id": i, "kind": i % 2, "n": 1} for i in range(300)])
    kinds = coll.database["kinds"]
    kinds.drop()
    kinds.insert_many([{"_id": kind, "name": f"kind {kind}"} for kind in range(2)])
    elsewhere = the_same(other, coll)
    joined = [
        {"$group": {"_id": "$kind", "n": {"$sum": "$n"}}},
        {"$lookup": {"from": "kinds", "localField": "_id", "foreignField": "_id", "as": "kinds"}},
        {"$sort": {"_id": 1}},
    ]
    with client.start_session(snapshot=True) as session:
        # A cursor that stays open, in small batches.
        open_cursor = coll.find({}, session=session, batch_size=50)
        assert next(open_cursor)["n"] == 1
        elsewhere.update_many({}, {"$inc": {"n": 1}})
        elsewhere.delete_many({"_id": {"$gte": 150}})
        elsewhere.insert_one({"_id": 1000, "kind": 5, "n": 7})
        elsewhere.database["kinds"].delete_one({"_id": 1})
        assert [doc["n"] for doc in open_cursor] == [1] * 299
        assert len(list(coll.find({"n": 1}, session=session))) == 300
        assert sorted(coll.distinct("kind", session=session)) == [0, 1]
        found = list(coll.aggregate(joined, session=session))
        assert found == [
            {"_id": kind, "n": 150, "kinds": [{"_id": kind, "name": f"kind {kind}"}]} for kind in range(2)
        ]
        assert list(coll.aggregate([{"$count": "n"}], session=session)) == [{"n": 300}]
        assert coll.find_one({"_id": 1000}, session=session) is None
        # A collection that comes into being has no documents then; an index of another one conflicts with no read.
        created = coll.database["created_meanwhile"]
        created.drop()
        elsewhere.database["created_meanwhile"].insert_one({"_id": 1})
        assert list(created.find({}, session=session)) == []
        elsewhere.database["kinds"].create_index("name")
        assert coll.find_one({"_id": 299}, session=session)["n"] == 1
        # One of this collection is.
        elsewhere.create_index("n")
        with pytest.raises(OperationFailure) as error:
            coll.find_one({"n": 1}, session=session)
        assert (error.value.code, error.value.details["codeName"]) == (246, "SnapshotUnavailable")
    with client.start_session(snapshot=True) as session:
        assert sorted(coll.distinct("n", session=session)) == [2, 7]
        assert len(list(coll.find({}, session=session))) == 151


def test_snapshot_sessions_beside_writers(client, other, coll):
    """Each session sees one state of the accounts, time and again."""
    accounts = 20
    coll.insert_many([{"_id": i, "money": 100} for i in range(accounts)])
    elsewhere, over = the_same(other, coll), threading.Event()

    def move():
        at = 0
        while not over.is_set():
            at += 1
            # Both sides are one write unit, and so one time.
            elsewhere.update_many(
                {"_id": {"$in": [at % accounts, (at * 7 + 1) % accounts]}},
                [{"$set": {"money": {"$add": ["$money", {"$cond": [{"$eq": ["$_id", at % accounts]}, -1, 1]}]}}}],
            )

    writer = threading.Thread(target=move)
    writer.start()
    try:
        for _ in range(20):
            with client.start_session(snapshot=True) as session:
                seen = {doc["_id"]: doc["money"] for doc in coll.find({}, session=session)}
                for _ in range(5):
                    again = {doc["_id"]: doc["money"] for doc in coll.find({}, session=session, batch_size=3)}
                    assert again == seen
                summed = [{"$group": {"_id": None, "money": {"$sum": "$money"}}}]
                assert next(coll.aggregate(summed, session=session))["money"] == sum(seen.values())
    finally:
        over.set()
        writer.join()


def test_reading_the_past(client, coll):
    coll.insert_one({"_id": 1, "n": 1})
    command = {"find": coll.name, "readConcern": {"level": "snapshot"}}
    first = coll.database.command(command)
    then = first["cursor"]["atClusterTime"]
    coll.update_one({"_id": 1}, {"$set": {"n": 2}})
    past = {**command, "readConcern": {"level": "snapshot", "atClusterTime": then}}
    assert coll.database.command(past)["cursor"]["firstBatch"] == [{"_id": 1, "n": 1}]
    # The time of the newest reply.
    newest = {"level": "snapshot", "atClusterTime": coll.database.command("ping")["operationTime"]}
    assert coll.database.command({**command, "readConcern": newest})["cursor"]["firstBatch"] == [{"_id": 1, "n": 2}]
    old = {"level": "snapshot", "atClusterTime": Timestamp(1_000_000_000, 1)}
    with pytest.raises(OperationFailure) as error:
        coll.database.command({**command, "readConcern": old})
    assert (error.value.code, error.value.details["codeName"]) == (239, "SnapshotTooOld")
    future = {"level": "snapshot", "atClusterTime": Timestamp(4_000_000_000, 1)}
    with pytest.raises(OperationFailure) as error:
        coll.database.command({**command, "readConcern": future})
    assert error.value.code == 72
    name = "minSnapshotHistoryWindowInSeconds"
    assert client.admin.command({"getParameter": 1, name: 1})[name] == 300
    client.admin.command({"setParameter": 1, name: 0})
    try:
        with pytest.raises(OperationFailure) as error:
            coll.database.command(past)
        assert error.value.code == 239
    finally:
        client.admin.command({"setParameter": 1, name: 300})


# causal consistency


def test_causal_session_reads_what_another_client_wrote(client, other, coll):
    elsewhere = the_same(other, coll)
    for n in range(50):
        with other.start_session(causal_consistency=True) as writing:
            elsewhere.with_options(write_concern=WriteConcern(w=1)).insert_one({"_id": n}, session=writing)
            with client.start_session(causal_consistency=True) as reading:
                reading.advance_cluster_time(writing.cluster_time)
                reading.advance_operation_time(writing.operation_time)
                assert coll.find_one({"_id": n}, session=reading) == {"_id": n}
                assert reading.operation_time >= writing.operation_time
                majority = coll.with_options(read_concern=ReadConcern("majority"))
                assert majority.find_one({"_id": n}, session=reading) == {"_id": n}
                assert next(majority.aggregate([{"$count": "n"}], session=reading)) == {"n": n + 1}


def test_a_time_from_elsewhere(client, coll):
    """A client that knows another deployment's time brings it along: the log continues after it."""
    coll.insert_one({"_id": 1})
    with client.start_session(causal_consistency=True) as session:
        assert coll.find_one({}, session=session) == {"_id": 1}
        now = session.operation_time
        ahead = Timestamp(now.time + 5, 1)
        session.advance_operation_time(ahead)
        # A command that says what it waits for, but not who has come there.
        with pytest.raises(OperationFailure) as error:
            coll.database.command(
                {"find": coll.name, "readConcern": {"afterClusterTime": Timestamp(now.time + 5000, 1)}}
            )
        assert error.value.code == 72
        session.advance_cluster_time({"clusterTime": ahead, "signature": session.cluster_time["signature"]})
        assert coll.find_one({}, session=session) == {"_id": 1}
        assert session.operation_time >= ahead
        coll.insert_one({"_id": 2}, session=session)
        assert session.operation_time > ahead


# levels, and the times of replies


@pytest.mark.parametrize("level", ["local", "available", "majority", "linearizable", "snapshot"])
def test_levels(coll, level):
    coll.with_options(write_concern=WriteConcern(w=1)).insert_many([{"_id": i, "n": i % 3} for i in range(9)])
    reading = coll.with_options(read_concern=ReadConcern(level))
    assert len(list(reading.find({}, batch_size=4))) == 9
    assert sorted(reading.distinct("n")) == [0, 1, 2]
    assert next(reading.aggregate([{"$count": "n"}])) == {"n": 9}
    if level != "snapshot":
        assert coll.database.command({"count": coll.name, "readConcern": {"level": level}})["n"] == 9


def test_every_reply_carries_the_times(client, coll):
    coll.insert_one({"_id": 1})
    db = coll.database
    replies = [
        db.command("ping"),
        client.admin.command("hello"),
        client.admin.command("buildInfo"),
        db.command({"find": coll.name}),
        db.command({"insert": coll.name, "documents": [{"_id": 1}]}, check=False),
    ]
    for command in [{"none": 1}, {"find": coll.name, "filter": {"$none": 1}}, {"getMore": 1, "collection": "c"}]:
        with pytest.raises(OperationFailure) as error:
            db.command(command)
        replies.append(error.value.details)
    last = Timestamp(0, 0)
    for reply in replies:
        assert reply["operationTime"] >= last, reply
        assert reply["$clusterTime"]["clusterTime"] >= reply["operationTime"], reply
        last = reply["operationTime"]


def test_a_stream_beside_unsynced_writes(coll):
    """What is written with `w: 1` comes through the stream, each once, in order."""
    writing = coll.with_options(write_concern=WriteConcern(w=1))
    coll.insert_one({"_id": -1})
    with coll.watch() as stream:
        writing.bulk_write([InsertOne({"_id": i}) for i in range(100)])
        writing.bulk_write([UpdateOne({"_id": i}, {"$set": {"n": 1}}) for i in range(100)])
        seen = [(event["operationType"], event["documentKey"]["_id"]) for _, event in zip(range(200), stream)]
    assert seen == [("insert", i) for i in range(100)] + [("update", i) for i in range(100)]
