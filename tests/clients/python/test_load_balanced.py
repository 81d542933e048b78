"""A server without a set behind one address: connections with `loadBalanced=true`."""

import os

import gridfs
import pytest
from pymongo import MongoClient
from pymongo.errors import ConfigurationError
from pymongo.uri_parser import parse_uri


def balanced(variable):
    host, port = parse_uri(os.environ[variable])["nodelist"][0]
    return MongoClient(f"mongodb://{host}:{port}/?loadBalanced=true", serverSelectionTimeoutMS=5000)


@pytest.fixture
def db():
    with balanced("MONGODB_URI") as client:
        client.drop_database("load_balanced")
        yield client.load_balanced
        client.drop_database("load_balanced")


def test_cursors_stay_on_their_connection(db):
    db.c.insert_many([{"_id": i} for i in range(1000)])
    first, second = db.c.find(batch_size=10).sort("_id"), db.c.aggregate([{"$sort": {"_id": -1}}], batchSize=7)
    pairs = [(a["_id"], b["_id"]) for a, b in zip(first, second)]
    assert pairs == [(i, 999 - i) for i in range(1000)]
    assert db.client.topology_description.topology_type_name == "LoadBalanced"


def test_transactions(db):
    db.create_collection("c")
    with db.client.start_session() as session:
        session.with_transaction(lambda s: [db.c.insert_one({"_id": i}, session=s) for i in range(3)])
        session.start_transaction()
        db.c.delete_many({}, session=session)
        session.abort_transaction()
    assert db.c.count_documents({}) == 3


def test_change_streams_and_files(db):
    with db.watch() as stream:
        db.c.insert_one({"_id": 1})
        assert stream.next()["documentKey"] == {"_id": 1}
    bucket = gridfs.GridFSBucket(db, chunk_size_bytes=1000)
    name = bucket.upload_from_stream("file", b"x" * 5000)
    assert bucket.open_download_stream(name).read() == b"x" * 5000


def test_a_member_of_a_set_does_not_support_it():
    with balanced("MONGODB_REPLICA_SET_URI") as client, pytest.raises(ConfigurationError) as refused:
        client.admin.command("ping")
    assert "does not support this mode" in str(refused.value)
