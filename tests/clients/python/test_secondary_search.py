"""Searches on secondaries: each server over one PostgreSQL has search indexes in files of its own."""

import shutil
import statistics
import threading
import time

import pytest
from pymongo.errors import PyMongoError
from pymongo.operations import SearchIndexModel

from postgres import Network
from test_postgres import PATIENCE
from test_secondaries import SetMember, begin, connect
from test_standby import until

DEFINITION = {"mappings": {"dynamic": True}}


@pytest.fixture
def two(postgres, tmp_path):
    members = begin(postgres, tmp_path, 2)
    yield members
    for member in members:
        member.kill()


def ready(collection, name="default", version=0):
    for index in collection.list_search_indexes(name):
        latest = index["latestDefinitionVersion"]["version"]
        return index["queryable"] and index["status"] == "READY" and latest == version
    return False


def text(collection, word, index="default", path="a"):
    stage = {"$search": {"index": index, "text": {"query": word, "path": path}}}
    return sorted(one["_id"] for one in collection.aggregate([stage]))


def count(collection, word, path="a"):
    stage = {"$searchMeta": {"text": {"query": word, "path": path}, "count": {"type": "total"}}}
    return next(collection.aggregate([stage]))["count"]["total"]


def create(members, documents=20):
    """A collection with a search index that all members have filled."""
    items = [member.client().t.items for member in members]
    items[0].insert_many({"_id": number, "a": "red pen", "v": [1.0, number]} for number in range(documents))
    items[0].create_search_index(SearchIndexModel(DEFINITION))
    for one in items:
        until(lambda one=one: ready(one))
    return items


def test_a_search_finds_all_acknowledged_writes(two):
    primary, secondary = create(two)
    vector = {"fields": [{"type": "vector", "path": "v", "numDimensions": 2, "similarity": "euclidean"}]}
    primary.create_search_index(SearchIndexModel(vector, name="near", type="vectorSearch"))
    until(lambda: ready(secondary, "near"))
    ended, others = threading.Event(), two[0].client().t.others

    def write():
        while not ended.is_set():
            others.insert_one({"a": "red"})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(100, 400):
            primary.insert_one({"_id": number, "a": f"word{number}", "v": [1.0, number]})
            assert text(secondary, f"word{number}") == [number]
            if number % 10 == 0:
                stage = {"index": "near", "path": "v", "queryVector": [1.0, number], "numCandidates": 50, "limit": 1}
                assert [one["_id"] for one in secondary.aggregate([{"$vectorSearch": stage}])] == [number]
                assert count(secondary, f"word{number}") == 1
                primary.update_one({"_id": number}, {"$set": {"a": "changed"}})
                assert text(secondary, f"word{number}") == [] and number in text(secondary, "changed")
            if number % 10 == 1:
                primary.delete_one({"_id": number})
                assert text(secondary, f"word{number}") == [] and count(secondary, f"word{number}") == 0
    finally:
        ended.set()
        writer.join(PATIENCE)
    status = two[1].client().admin.command("serverStatus")["search"]
    assert status["late"] == 0 and status["searches"] >= 300


def test_definitions_and_views_follow_the_primary(two):
    primary, secondary = create(two)
    database = two[0].client().t
    primary.update_search_index("default", {"mappings": {"fields": {"b": {"type": "string"}}}})
    while not ready(secondary, version=1):
        # The definition of before, or already the next one; there is always one that answers.
        assert text(secondary, "pen") in ([], list(range(20)))
    primary.insert_one({"_id": "b", "a": "pen", "b": "blue"})
    assert text(secondary, "pen") == [] and text(secondary, "blue", path="b") == ["b"]
    view = [{"$match": {"$expr": {"$gte": [{"$ifNull": ["$n", 0]}, 5]}}}]
    database.create_collection("large", viewOn="items", pipeline=view)
    database.large.create_search_index(SearchIndexModel(DEFINITION, name="of_view"))
    large = two[1].client().t.large
    until(lambda: ready(large, "of_view"))
    primary.insert_many([{"_id": "n4", "n": 4, "a": "ink"}, {"_id": "n5", "n": 5, "a": "ink"}])
    assert text(large, "ink", "of_view") == ["n5"]
    database.command("collMod", "large", viewOn="items", pipeline=[{"$match": {"$expr": {"$eq": ["$n", 4]}}}])
    until(lambda: ready(large, "of_view", 1))
    assert text(large, "ink", "of_view") == ["n4"]
    primary.rename("moved")
    moved = two[1].client().t.moved
    until(lambda: "moved" in two[1].client().t.list_collection_names())
    assert text(moved, "blue", path="b") == ["b"]
    database.moved.insert_one({"_id": "later", "b": "blue"})
    assert text(moved, "blue", path="b") == ["b", "later"]
    database.moved.drop_search_index("default")
    assert text(moved, "blue", path="b") == []
    until(lambda: list(moved.list_search_indexes()) == [])
    until(lambda: not any((two[1].folder / "data" / "search").iterdir()))


def test_expired_documents_are_not_found(two):
    primary, secondary = create(two)
    two[0].client().admin.command("setParameter", 1, ttlMonitorEnabled=False)
    primary.create_index("_ts", expireAfterSeconds=3600)
    primary.insert_many([{"_id": "short", "a": "ink", "ttl": 1}, {"_id": "long", "a": "ink"}])
    assert "long" in text(secondary, "ink")
    until(lambda: secondary.find_one({"_id": "short"}) is None)
    assert text(secondary, "ink") == ["long"] and count(secondary, "ink") == 1


def test_searches_go_on_after_a_takeover_and_restarts(two):
    first, second = two
    primary, secondary = create(two)
    second.end()
    # Written while the secondary is away: it reads the log from the last commit of its files.
    primary.insert_one({"_id": "away", "a": "away"})
    second.start()
    secondary = second.client().t.items
    until(lambda: ready(secondary))
    assert text(secondary, "away") == ["away"] and count(secondary, "pen") == 20
    assert "a search index is built again" not in second.log.read_text()
    first.kill()
    client = connect(two)
    until(lambda: client.primary == ("127.0.0.1", second.port), 30)
    primary = second.client().t.items
    until(lambda: ready(primary))
    primary.insert_one({"_id": "after", "a": "after"})
    assert text(primary, "after") == ["after"] and count(primary, "pen") == 20
    # The former owner is a secondary now, with its own files.
    first.start()
    secondary = first.client().t.items
    until(lambda: ready(secondary))
    assert text(secondary, "after") == ["after"] and count(secondary, "pen") == 20
    first.end()
    for folder in (first.folder / "data" / "search").iterdir():
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "commit").write_text("damaged")
    first.start()
    secondary = first.client().t.items
    until(lambda: ready(secondary))
    primary.insert_one({"_id": "last", "a": "after"})
    assert text(secondary, "after") == ["after", "last"] and count(secondary, "pen") == 20
    assert first.says("a search index is built again")
    started = time.monotonic()
    assert first.end() == 0 and time.monotonic() - started < 10


def test_searches_go_on_after_an_outage(postgres, tmp_path):
    url, network = postgres.database(), Network(postgres.port)
    first = SetMember(tmp_path / "first", url)
    first.client()
    second = SetMember(tmp_path / "second", url.replace(f":{postgres.port}/", f":{network.port}/"))
    try:
        second.client()
        primary, secondary = create([first, second])
        network.flows.clear()
        until(lambda: not secondary.database.client.admin.command("hello")["secondary"], 30)
        primary.insert_one({"_id": "meanwhile", "a": "ink"})
        with pytest.raises(PyMongoError):
            text(secondary, "ink")
        network.flows.set()
        until(lambda: secondary.database.client.admin.command("hello")["secondary"], 30)
        until(lambda: ready(secondary))
        assert text(secondary, "ink") == ["meanwhile"] and count(secondary, "pen") == 20
    finally:
        network.close()
        for member in (first, second):
            member.kill()


def measure(two, rate):
    """The medians of searches on the primary and on the secondary, in milliseconds, while documents are inserted."""
    collections, ended = [member.client().t.items for member in two], threading.Event()
    numbers = iter(range(1_000_000))

    def insert():
        own = two[0].client().t.items
        while not ended.wait(1 / rate):
            own.insert_one({"a": "blue ink", "n": next(numbers)})

    writer = threading.Thread(target=insert)
    if rate:
        writer.start()
    times = [[], []]
    try:
        for _ in range(100):
            for own, collection in zip(times, collections):
                began = time.monotonic()
                assert len(text(collection, "pen")) == 20
                own.append(1000 * (time.monotonic() - began))
    finally:
        ended.set()
        if rate:
            writer.join(PATIENCE)
    return [round(statistics.median(own), 1) for own in times], next(numbers)


def test_the_time_of_searches(two):
    create(two)
    for rate in (0, 200):
        (primary, secondary), inserted = measure(two, rate)
        print(f"{rate} inserts/s wanted, {inserted} done: primary {primary} ms, secondary {secondary} ms")
        assert secondary < 1000
