"""Change events that are too large for one document: in fragments, and what follows each of them."""

import os

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

LARGE = 9_000_000
SPLIT = [{"$changeStreamSplitLargeEvent": {}}]
IMAGES = {"full_document": "required", "full_document_before_change": "required"}


@pytest.fixture(params=["MONGODB_URI", "MONGODB_REPLICA_SET_URI"])
def collection(request):
    with MongoClient(os.environ[request.param]) as client:
        client.drop_database("split_events")
        db = client.split_events
        yield db.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
        client.drop_database("split_events")


def take(stream, count):
    return [stream.next() for _ in range(count)]


def test_fragments_together_are_the_event(collection):
    collection.insert_one({"_id": 1, "x": "x" * LARGE})
    with collection.watch(pipeline=SPLIT, **IMAGES) as stream:
        collection.update_one({"_id": 1}, {"$set": {"n": 1}})
        collection.insert_one({"_id": 2})
        first, second, last = take(stream, 3)
    assert first["splitEvent"] == {"fragment": 1, "of": 2}
    assert second["splitEvent"] == {"fragment": 2, "of": 2}
    assert "splitEvent" not in last and last["documentKey"] == {"_id": 2}
    event = {**first, **second}
    assert event["operationType"] == "update" and event["updateDescription"]["updatedFields"] == {"n": 1}
    assert event["fullDocument"] == {"_id": 1, "x": "x" * LARGE, "n": 1}
    assert event["fullDocumentBeforeChange"] == {"_id": 1, "x": "x" * LARGE}
    own = {"_id", "splitEvent"}
    assert not (first.keys() & second.keys()) - own


def test_a_stream_goes_on_behind_a_fragment(collection):
    collection.insert_one({"_id": 1, "x": "x" * LARGE})
    with collection.watch(pipeline=SPLIT, **IMAGES) as stream:
        collection.update_one({"_id": 1}, {"$set": {"x": "y" * LARGE}})
        collection.insert_one({"_id": 2})
        events = take(stream, 4)
        tokens = [event["_id"] for event in events]
    assert [event.get("splitEvent", {}).get("fragment") for event in events] == [1, 2, 3, None]
    for at, token in enumerate(tokens):
        for start in ({"resume_after": token}, {"start_after": token}):
            with collection.watch(pipeline=SPLIT, max_await_time_ms=50, **start, **IMAGES) as stream:
                assert take(stream, 3 - at) == events[at + 1:]
                assert stream.try_next() is None


def test_the_driver_goes_on_behind_a_fragment_by_itself(collection):
    client = collection.database.client
    collection.insert_one({"_id": 1, "x": "x" * LARGE})
    with collection.watch(pipeline=SPLIT, **IMAGES) as stream:
        collection.update_one({"_id": 1}, {"$set": {"x": "y" * LARGE}})
        assert stream.next()["splitEvent"] == {"fragment": 1, "of": 3}
        once = {"mode": {"times": 1}, "data": {"errorCode": 6}}
        client.admin.command({"configureFailPoint": "failGetMoreAfterCursorCheckout", **once})
        assert [event["splitEvent"]["fragment"] for event in take(stream, 2)] == [2, 3]


def test_without_the_stage_the_event_is_an_error(collection):
    collection.insert_one({"_id": 1, "x": "x" * LARGE})
    with collection.watch(**IMAGES) as stream:
        collection.update_one({"_id": 1}, {"$set": {"n": 1}})
        with pytest.raises(OperationFailure) as failed:
            stream.next()
        assert failed.value.code == 10334
