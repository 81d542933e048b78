"""Transactions of several statements as PyMongo runs them, against both postures; what is expected is listed in ../README.md."""

import os
import threading
import time

import pytest
from pymongo import InsertOne, MongoClient, UpdateOne, WriteConcern
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern

POSTURES = {"router": "MONGODB_URI", "member": "MONGODB_REPLICA_SET_URI"}
TRANSIENT = "TransientTransactionError"


@pytest.fixture(scope="module", params=list(POSTURES))
def client(request):
    with MongoClient(os.environ[POSTURES[request.param]]) as client:
        yield client


@pytest.fixture
def coll(client, request):
    collection = client["clients_python"]["transactions_" + request.node.originalname]
    collection.drop()
    return collection


def accounts(coll):
    coll.insert_many([{"_id": "a", "n": 100}, {"_id": "b", "n": 0}])


def move(coll, amount, session):
    coll.update_one({"_id": "a"}, {"$inc": {"n": -amount}}, session=session)
    coll.update_one({"_id": "b"}, {"$inc": {"n": amount}}, session=session)


def content(coll, session=None):
    return {doc["_id"]: doc["n"] for doc in coll.find({}, session=session)}


def test_with_transaction_commits_all_or_nothing(client, coll):
    accounts(coll)
    with client.start_session() as session:
        assert session.with_transaction(lambda s: move(coll, 30, s) or "done") == "done"
        assert content(coll) == {"a": 70, "b": 30}

        def fails(s):
            move(coll, 30, s)
            assert content(coll, s) == {"a": 40, "b": 60}
            assert content(coll) == {"a": 70, "b": 30}
            raise ValueError("not this time")

        with pytest.raises(ValueError):
            session.with_transaction(fails)
    assert content(coll) == {"a": 70, "b": 30}


def test_statements_see_what_was_written_before(client, coll):
    other = coll.database[coll.name + "_other"]
    other.drop()
    coll.insert_one({"_id": 1, "n": 1})
    with client.start_session() as session, session.start_transaction():
        coll.insert_many([{"_id": i, "n": i} for i in range(2, 400)], session=session)
        assert len(list(coll.find({}, batch_size=50, session=session))) == 399
        assert coll.update_many({"n": {"$lt": 3}}, {"$set": {"kind": "small"}}, session=session).modified_count == 2
        assert sorted(coll.distinct("kind", session=session)) == ["small"]
        found = coll.find_one_and_update({"_id": 2}, {"$inc": {"n": 1}}, return_document=True, session=session)
        assert found == {"_id": 2, "n": 3, "kind": "small"}
        other.insert_one({"_id": 1, "of": 2}, session=session)
        lookup = {"$lookup": {"from": coll.name, "localField": "of", "foreignField": "_id", "as": "found"}}
        (joined,) = other.aggregate([lookup], session=session)
        assert joined["found"] == [found]
        assert coll.count_documents({}, session=session) == 399
        result = coll.bulk_write([InsertOne({"_id": 500}), UpdateOne({"_id": 1}, {"$set": {"n": 10}})], session=session)
        assert (result.inserted_count, result.modified_count) == (1, 1)
        assert coll.delete_many({"_id": {"$gt": 2}}, session=session).deleted_count == 398
        assert coll.count_documents({}) == 1 and other.count_documents({}) == 0
    assert list(coll.find().sort("_id")) == [{"_id": 1, "n": 10, "kind": "small"}, found]
    assert other.count_documents({}) == 1


def test_a_conflict_is_transient_and_is_tried_again(client, coll):
    coll.insert_one({"_id": 1, "n": 0})
    with client.start_session() as first, client.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=first)
        with pytest.raises(OperationFailure) as caught:
            coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=second)
        assert caught.value.code == 112 and caught.value.has_error_label(TRANSIENT)
        with pytest.raises(OperationFailure) as caught:
            second.commit_transaction()
        assert caught.value.code == 251
        first.commit_transaction()
    failures = []

    def work():
        try:
            with client.start_session() as session:
                for _ in range(20):
                    session.with_transaction(lambda s: increment(coll, s))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    def increment(coll, session):
        n = coll.find_one({"_id": 1}, session=session)["n"]
        coll.update_one({"_id": 1}, {"$set": {"n": n + 1}}, session=session)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert coll.find_one({"_id": 1})["n"] == 81


def test_a_write_beside_a_transaction_waits_for_it(client, coll):
    coll.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session:
        session.start_transaction()
        coll.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        writers = [threading.Thread(target=lambda: coll.update_one({"_id": 1}, {"$inc": {"n": 1}})) for _ in range(12)]
        for writer in writers:
            writer.start()
        time.sleep(0.3)
        assert any(writer.is_alive() for writer in writers)
        session.commit_transaction()
    for writer in writers:
        writer.join()
    assert coll.find_one({"_id": 1})["n"] == 13


def test_a_failed_statement_ends_the_transaction(client, coll):
    coll.insert_one({"_id": 1})
    with client.start_session() as session:
        session.start_transaction()
        coll.insert_one({"_id": 2}, session=session)
        with pytest.raises(DuplicateKeyError) as caught:
            coll.insert_one({"_id": 1}, session=session)
        assert not caught.value.has_error_label(TRANSIENT)
        with pytest.raises(OperationFailure) as caught:
            session.commit_transaction()
        assert caught.value.code == 251 and caught.value.has_error_label(TRANSIENT)
        session.start_transaction()
        with pytest.raises(BulkWriteError) as caught:
            coll.insert_many([{"_id": 3}, {"_id": 1}, {"_id": 4}], ordered=False, session=session)
        assert [error["index"] for error in caught.value.details["writeErrors"]] == [1]
        session.abort_transaction()
    assert [doc["_id"] for doc in coll.find()] == [1]


def test_commit_and_abort_again(client, coll):
    with client.start_session() as session:
        session.start_transaction(write_concern=WriteConcern("majority", wtimeout=10_000))
        coll.insert_one({"_id": 1}, session=session)
        session.commit_transaction()
        session.commit_transaction()
        retried = client.admin.command("serverStatus")["transactions"]["retriedCommandsCount"]
        session.commit_transaction()
        assert client.admin.command("serverStatus")["transactions"]["retriedCommandsCount"] == retried + 1
        session.start_transaction()
        coll.insert_one({"_id": 2}, session=session)
        session.abort_transaction()
    assert [doc["_id"] for doc in coll.find()] == [1]


def test_reads_are_of_one_time(client, coll):
    coll.insert_many([{"_id": i, "n": 0} for i in range(1000)])
    with client.start_session() as session:
        with session.start_transaction(read_concern=ReadConcern("snapshot")):
            cursor = coll.find({}, batch_size=10, session=session)
            assert next(cursor)["n"] == 0
            coll.update_many({}, {"$set": {"n": 1}})
            assert all(doc["n"] == 0 for doc in cursor)
            assert coll.count_documents({"n": 1}, session=session) == 0
    assert coll.count_documents({"n": 1}) == 1000


def test_collections_and_indexes_are_made(client, coll):
    db = coll.database
    with client.start_session() as session:
        with session.start_transaction():
            made = db.create_collection(coll.name, session=session)
            made.create_index("a", unique=True, session=session)
            made.insert_one({"a": 1}, session=session)
            assert coll.name not in db.list_collection_names()
        assert coll.name in db.list_collection_names()
        with pytest.raises(DuplicateKeyError):
            coll.insert_one({"a": 1})
        coll.drop()
        session.start_transaction()
        db.create_collection(coll.name, session=session)
        session.abort_transaction()
    assert coll.name not in db.list_collection_names()


def test_what_is_refused(client, coll):
    coll.insert_one({"_id": 1})
    with client.start_session() as session:
        session.start_transaction()
        coll.insert_one({"_id": 2}, session=session)
        for refused in (
            lambda: coll.estimated_document_count(session=session),
            lambda: coll.drop(session=session),
            lambda: client.config.things.find_one(session=session),
        ):
            with pytest.raises(Exception) as caught:
                refused()
            assert getattr(caught.value, "code", 263) == 263
        session.commit_transaction()
        session.start_transaction()
        with pytest.raises(OperationFailure) as caught:
            list(coll.aggregate([{"$out": "elsewhere"}], session=session))
        assert caught.value.code == 263
        session.abort_transaction()
    assert coll.count_documents({}) == 2


def test_the_lifetime_is_limited(client, coll):
    def idle(session):
        # Other suites have transactions on the same server.
        shown = client.admin.aggregate([{"$currentOp": {"idleSessions": True}}])
        lsid = session.session_id["id"]
        return [op for op in shown if op.get("lsid", {}).get("id") == lsid and "transaction" in op]

    client.admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 3})
    try:
        aborted = client.admin.command("serverStatus")["transactions"]["totalAborted"]
        with client.start_session() as session:
            session.start_transaction()
            coll.insert_one({"_id": 1}, session=session)
            (shown,) = idle(session)
            assert shown["transaction"]["parameters"]["autocommit"] is False
            deadline = time.monotonic() + 20
            while idle(session):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert client.admin.command("serverStatus")["transactions"]["totalAborted"] > aborted
            with pytest.raises(OperationFailure) as caught:
                coll.insert_one({"_id": 2}, session=session)
            assert caught.value.code == 251 and caught.value.has_error_label(TRANSIENT)
    finally:
        client.admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 60})
    assert coll.count_documents({}) == 0


def test_changes_of_a_transaction_are_events(client, coll):
    other = client["clients_python_other"][coll.name]
    other.drop()
    with client.watch() as stream, client.start_session() as session:
        with session.start_transaction():
            coll.insert_one({"_id": 1}, session=session)
            other.insert_one({"_id": 2}, session=session)
            coll.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
        events = [next(stream) for _ in range(3)]
        number, lsid = session._transaction_id, session.session_id["id"]
    seen = [(event["operationType"], event["ns"]["db"]) for event in events]
    assert seen == [
        ("insert", "clients_python"), ("insert", "clients_python_other"), ("update", "clients_python"),
    ]
    assert len({event["clusterTime"] for event in events}) == 1
    assert {event["txnNumber"] for event in events} == {number}
    assert all(event["lsid"]["id"] == lsid for event in events)


def test_a_transaction_of_many_bytes_is_told_in_order_and_from_any_place(client, coll):
    # Several entries of the log, and several batches of events.
    text = "x" * (1 << 20)
    coll.insert_one({"_id": 0})
    with coll.watch() as stream, client.start_session() as session:
        with session.start_transaction():
            for first in range(1, 41, 4):
                documents = [{"_id": id, "text": text} for id in range(first, first + 4)]
                coll.insert_many(documents, session=session)
            coll.insert_many([{"_id": id} for id in range(41, 400)], session=session)
        coll.insert_one({"_id": 400})
        events = [next(stream) for _ in range(400)]
    assert [event["documentKey"]["_id"] for event in events] == list(range(1, 401))
    assert len({event["clusterTime"] for event in events[:399]}) == 1
    assert events[399]["clusterTime"] > events[0]["clusterTime"]
    for place in (0, 17, 200, 398):
        with coll.watch(resume_after=events[place]["_id"]) as stream:
            following = [next(stream)["documentKey"]["_id"] for _ in range(2 if place < 398 else 1)]
        assert following == list(range(place + 2, place + 2 + len(following)))
