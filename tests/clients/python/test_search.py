"""Search indexes through PyMongo's own helpers: definitions, text, vectors, facets, hybrid searches, expiry."""

import asyncio
import os
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from bson.binary import Binary, BinaryVectorDtype
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

DYNAMIC = {"mappings": {"dynamic": True}}
VECTOR = {
    "fields": [
        {"type": "vector", "path": "v", "numDimensions": 4, "similarity": "cosine"},
        {"type": "filter", "path": "n"},
    ]
}


@pytest.fixture(scope="module")
def client():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        yield client


@pytest.fixture
def db(client):
    client.drop_database("search_tests")
    yield client.search_tests
    client.drop_database("search_tests")


def until_ready(collection, name=None):
    deadline = time.monotonic() + 60
    while not all(index["queryable"] and index["status"] == "READY" for index in collection.list_search_indexes(name)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def search(collection, stage, *later):
    return list(collection.aggregate([{"$search": stage}, *later]))


def ids(documents):
    return [document["_id"] for document in documents]


def code_of(action):
    with pytest.raises(OperationFailure) as failed:
        action()
    return failed.value.code


def test_the_life_of_an_index(db):
    db.c.insert_many({"_id": n, "title": f"book {n}", "v": [n, 1, 0, 1]} for n in range(100))
    made = db.c.create_search_indexes([SearchIndexModel(DYNAMIC), SearchIndexModel(VECTOR, name="v", type="vectorSearch")])
    assert made == ["default", "v"]
    assert db.c.create_search_index(SearchIndexModel(DYNAMIC)) == "default"
    assert code_of(lambda: db.c.create_search_index(SearchIndexModel({"mappings": {"dynamic": False}}))) == 68
    until_ready(db.c)
    shown = {index["name"]: index for index in db.c.list_search_indexes()}
    assert shown["default"]["type"] == "search" and shown["default"]["latestDefinition"] == DYNAMIC
    assert shown["v"]["type"] == "vectorSearch" and shown["v"]["latestDefinitionVersion"]["version"] == 0
    by_id = list(db.c.aggregate([{"$listSearchIndexes": {"id": shown["v"]["id"]}}]))
    assert [index["name"] for index in by_id] == ["v"]
    assert ids(search(db.c, {"text": {"path": "title", "query": "42"}})) == [42]

    db.c.update_search_index("default", {"mappings": {"dynamic": False, "fields": {"title": {"type": "token"}}}})
    until_ready(db.c, "default")
    assert ids(search(db.c, {"equals": {"path": "title", "value": "book 42"}})) == [42]
    assert code_of(lambda: db.c.update_search_index("v", DYNAMIC)) == 197

    db.c.rename("d")
    assert ids(search(db.d, {"equals": {"path": "title", "value": "book 7"}})) == [7]
    db.d.drop_search_index("default")
    assert code_of(lambda: db.d.drop_search_index("default")) == 27
    assert search(db.d, {"equals": {"path": "title", "value": "book 7"}}) == []
    db.d.drop()
    assert list(db.d.list_search_indexes()) == []


def test_the_asynchronous_client(db):
    async def use():
        async with AsyncMongoClient(os.environ["MONGODB_URI"]) as client:
            c = client.search_tests.c
            await c.insert_many({"_id": n, "title": f"book {n}", "v": [n, 1, 0, 1]} for n in range(10))
            models = [SearchIndexModel(DYNAMIC, name="t"), SearchIndexModel(VECTOR, name="v", type="vectorSearch")]
            assert await c.create_search_indexes(models) == ["t", "v"]
            until_ready(db.c)
            found = lambda stage: c.aggregate([stage, {"$project": {"_id": 1}}])
            text = {"$search": {"index": "t", "text": {"path": "title", "query": "7"}}}
            assert await (await found(text)).to_list() == [{"_id": 7}]
            near = {"index": "v", "path": "v", "queryVector": [0, 1, 0, 1], "exact": True, "limit": 1}
            assert await (await found({"$vectorSearch": near})).to_list() == [{"_id": 0}]
            meta = {"$searchMeta": {"index": "t", "exists": {"path": "title"}, "count": {"type": "total"}}}
            assert await (await c.aggregate([meta])).to_list() == [{"count": {"total": 10}}]
            await c.update_search_index("t", {"mappings": {"dynamic": False, "fields": {"title": {"type": "token"}}}})
            until_ready(db.c)
            assert await (await found(text)).to_list() == []
            await c.drop_search_index("t")
            assert [index["name"] async for index in await c.list_search_indexes()] == ["v"]

    asyncio.run(use())


def test_an_update_of_a_definition_does_not_stop_searches(db):
    db.c.insert_many({"_id": n, "title": f"book {n}"} for n in range(5_000))
    db.c.create_search_index(SearchIndexModel(DYNAMIC))
    until_ready(db.c)
    db.c.update_search_index("default", {"mappings": {"dynamic": True}, "analyzer": "lucene.english"})
    served = 0
    while True:
        assert len(search(db.c, {"text": {"path": "title", "query": "42"}})) == 1
        served += 1
        (index,) = db.c.list_search_indexes()
        assert index["queryable"]
        if index["status"] == "READY":
            break
    assert len(search(db.c, {"text": {"path": "title", "query": "books"}})) == 5_000
    assert served > 0


def test_text(db):
    texts = ["the red pen writes", "a blue pen", "red ink and a red cap", "Grüße aus München", "pencils"]
    db.c.insert_many({"_id": n, "t": text, "n": n, "k": "even" if n % 2 == 0 else "odd"} for n, text in enumerate(texts))
    fields = {"t": [{"type": "string"}, {"type": "autocomplete"}], "k": {"type": "token"}}
    definition = {"mappings": {"dynamic": True, "fields": fields}, "storedSource": {"include": ["n"]}}
    db.c.create_search_index(SearchIndexModel(definition))
    until_ready(db.c)
    found = lambda stage, *later: ids(search(db.c, stage, *later))
    assert found({"text": {"path": "t", "query": "red"}}) == [2, 0]
    assert found({"text": {"path": "t", "query": "red pen", "matchCriteria": "all"}}) == [0]
    assert found({"text": {"path": "t", "query": "pan", "fuzzy": {"maxEdits": 1}}, "sort": {"n": 1}}) == [0, 1]
    assert found({"phrase": {"path": "t", "query": "red writes", "slop": 1}}) == [0]
    assert found({"autocomplete": {"path": "t", "query": "penc"}}) == [4]
    assert found({"wildcard": {"path": "t", "query": "pen*", "allowAnalyzedField": True}, "sort": {"n": -1}}) == [4, 1, 0]
    assert found({"regex": {"path": "t", "query": "pen(cil)?s?", "allowAnalyzedField": True}, "sort": {"n": 1}}) == [0, 1, 4]
    assert found({"range": {"path": "n", "gt": 2}, "sort": {"n": -1}}) == [4, 3]
    assert found({"in": {"path": "n", "value": [1, 4]}, "sort": {"n": 1}}) == [1, 4]
    assert found({"near": {"path": "n", "origin": 2, "pivot": 1}}, {"$limit": 1}) == [2]
    assert found({"equals": {"path": "k", "value": "odd"}, "sort": {"n": 1}}) == [1, 3]
    assert found({"exists": {"path": "t"}, "sort": {"n": 1}}) == [0, 1, 2, 3, 4]
    both = {"must": [{"text": {"path": "t", "query": "pen"}}], "should": [{"equals": {"path": "k", "value": "odd"}}]}
    assert found({"compound": both}) == [1, 0]
    assert found({"text": {"path": {"wildcard": "*"}, "query": "münchen"}}) == [3]

    (shown,) = search(
        db.c,
        {"text": {"path": "t", "query": "writes"}, "highlight": {"path": "t"}, "scoreDetails": True},
        {"$project": {"h": {"$meta": "searchHighlights"}, "d": {"$meta": "searchScoreDetails"}, "s": {"$meta": "searchScore"}}},
    )
    assert {"value": "writes", "type": "hit"} in shown["h"][0]["texts"]
    assert shown["d"]["value"] == shown["s"] > 0
    assert search(db.c, {"text": {"path": "t", "query": "writes"}, "returnStoredSource": True}) == [{"_id": 0, "n": 0}]

    page = {"exists": {"path": "t"}, "sort": {"n": 1}}
    token = {"$project": {"token": {"$meta": "searchSequenceToken"}}}
    first = search(db.c, page, {"$limit": 2}, token)
    assert ids(search(db.c, {**page, "searchAfter": first[1]["token"]}, {"$limit": 2}, token)) == [2, 3]
    assert ids(search(db.c, {**page, "searchBefore": first[1]["token"]}, {"$limit": 2}, token)) == [0]


def test_counts_and_facets(db):
    db.c.insert_many({"_id": n, "kind": "ab"[n % 2], "n": n, "at": datetime(2026, 1 + n % 3, 1)} for n in range(30))
    fields = {"kind": {"type": "stringFacet"}, "n": {"type": "numberFacet"}, "at": {"type": "dateFacet"}}
    db.c.create_search_index(SearchIndexModel({"mappings": {"fields": fields}}))
    until_ready(db.c)
    facets = {
        "kinds": {"type": "string", "path": "kind"},
        "sizes": {"type": "number", "path": "n", "boundaries": [0, 10, 20], "default": "more"},
        "months": {"type": "date", "path": "at", "boundaries": [datetime(2026, m, 1) for m in (1, 2, 3)]},
    }
    stage = {"facet": {"operator": {"range": {"path": "n", "gte": 0}}, "facets": facets}, "count": {"type": "total"}}
    (meta,) = db.c.aggregate([{"$searchMeta": stage}])
    assert meta["count"] == {"total": 30}
    assert meta["facet"]["kinds"]["buckets"] == [{"_id": "a", "count": 15}, {"_id": "b", "count": 15}]
    assert meta["facet"]["sizes"]["buckets"] == [{"_id": 0, "count": 10}, {"_id": 10, "count": 10}, {"_id": "more", "count": 10}]
    assert [bucket["count"] for bucket in meta["facet"]["months"]["buckets"]] == [10, 10]
    with_meta = search(db.c, {"range": {"path": "n", "lt": 5}}, {"$limit": 1}, {"$project": {"m": "$$SEARCH_META.count.lowerBound"}})
    assert with_meta[0]["m"] == 5


def test_vectors(db):
    floats = lambda n: [float(n), 1.0, 0.0, -1.0]
    db.c.insert_many({"_id": n, "n": n, "v": Binary.from_vector(floats(n), BinaryVectorDtype.FLOAT32) if n % 2 else floats(n)} for n in range(200))
    db.c.insert_many([{"_id": 1000, "v": [1.0]}, {"_id": 1001, "v": "none"}, {"_id": 1002}])
    db.c.create_search_index(SearchIndexModel(VECTOR, type="vectorSearch"))
    until_ready(db.c)
    stage = {"index": "default", "path": "v", "queryVector": floats(50), "limit": 3}
    near = lambda **more: list(db.c.aggregate([{"$vectorSearch": {**stage, **more}}, {"$project": {"s": {"$meta": "vectorSearchScore"}}}]))
    exact, approximate = near(exact=True), near(numCandidates=50)
    assert ids(exact)[0] == 50 and exact[0]["s"] == pytest.approx(1.0)
    assert ids(exact) == ids(approximate)
    assert ids(near(exact=True, filter={"n": {"$in": [3, 4]}})) == [4, 3]
    assert ids(near(exact=True, filter={"$and": [{"n": {"$gte": 60}}, {"n": {"$ne": 60}}]})) == [61, 62, 63]
    assert ids(near(exact=True, queryVector=Binary.from_vector(floats(50), BinaryVectorDtype.FLOAT32))) == ids(exact)
    assert code_of(lambda: near(exact=True, queryVector=[1.0])) == 8
    assert code_of(lambda: near()) == 8


def test_hybrid_searches(db):
    db.c.insert_many({"_id": n, "t": "red" if n < 3 else "blue", "v": [float(n), 1.0, 0.0, 0.0]} for n in range(10))
    db.c.create_search_indexes([SearchIndexModel(DYNAMIC, name="t"), SearchIndexModel(VECTOR, name="v", type="vectorSearch")])
    until_ready(db.c)
    text = [{"$search": {"index": "t", "text": {"path": "t", "query": "red"}}}, {"$limit": 3}]
    vector = [{"$vectorSearch": {"index": "v", "path": "v", "queryVector": [2.0, 1.0, 0.0, 0.0], "exact": True, "limit": 3}}]
    ranked = list(db.c.aggregate([{"$rankFusion": {"input": {"pipelines": {"t": text, "v": vector}}}}]))
    assert ranked[0]["_id"] == 2 and len(ranked) == 5
    db.d.insert_one({"_id": "d"})
    joined = list(db.d.aggregate([{"$unionWith": {"coll": "c", "pipeline": text}}]))
    assert ids(joined) == ["d", 0, 1, 2]
    (looked_up,) = db.d.aggregate([{"$lookup": {"from": "c", "pipeline": vector, "as": "near"}}])
    assert looked_up["near"][0]["_id"] == 2


def test_a_search_finds_every_acknowledged_write(db):
    db.c.insert_one({"_id": 0, "w": "nothing"})
    db.c.create_search_index(SearchIndexModel(DYNAMIC))
    until_ready(db.c)
    stop, failures = threading.Event(), []

    def noise():
        with MongoClient(os.environ["MONGODB_URI"]) as other:
            n = 0
            while not stop.is_set():
                n += 1
                other.search_tests.c.insert_one({"w": f"noise {n}"})
                other.search_tests.elsewhere.insert_one({})

    def write_and_search(which):
        with MongoClient(os.environ["MONGODB_URI"]) as other:
            c = other.search_tests.c
            for n in range(60):
                key, word = f"{which}-{n}", f"word{which}x{n}"
                for action, expected in [
                    (lambda: c.insert_one({"_id": key, "w": word}), [key]),
                    (lambda: c.update_one({"_id": key}, {"$set": {"w": "changed"}}), []),
                    (lambda: c.update_one({"_id": key}, {"$set": {"w": word}}), [key]),
                    (lambda: c.delete_one({"_id": key}), []),
                ]:
                    action()
                    found = ids(search(c, {"text": {"path": "w", "query": word}}))
                    if found != expected:
                        failures.append((key, found, expected))

    writers = [threading.Thread(target=write_and_search, args=(which,)) for which in range(3)]
    noisy = threading.Thread(target=noise)
    for thread in [noisy, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    noisy.join()
    assert failures == []


def test_indexes_on_views(db):
    db.c.insert_many({"_id": n, "title": f"book {n}", "year": 1990 + n, "v": [n, 1, 0, 1]} for n in range(20))
    newer = [{"$match": {"$expr": {"$gte": ["$year", 2000]}}}, {"$set": {"kind": {"$concat": ["new ", "$title"]}}}]
    db.create_collection("w", viewOn="c", pipeline=newer)
    facet = {"year": [{"type": "number"}, {"type": "numberFacet"}]}
    text = {"mappings": {"dynamic": True, "fields": facet}, "storedSource": {"include": ["kind"]}}
    models = [SearchIndexModel(text, name="t"), SearchIndexModel(VECTOR, name="v", type="vectorSearch")]
    assert db.w.create_search_indexes(models) == ["t", "v"]
    assert list(db.c.list_search_indexes()) == []
    assert code_of(lambda: db.c.create_search_index(SearchIndexModel(DYNAMIC, name="t"))) == 68
    until_ready(db.w)
    found = lambda view, word, *later: search(view, {"index": "t", "text": {"path": "kind", "query": word}}, *later)
    assert found(db.w, "12") == [db.w.find_one({"_id": 12})] == [db.c.find_one({"_id": 12}) | {"kind": "new book 12"}]
    assert found(db.w, "2") == []
    buckets = {"type": "number", "path": "year", "boundaries": [1990, 2000, 2010]}
    meta = {"index": "t", "facet": {"operator": {"exists": {"path": "title"}}, "facets": {"y": buckets}}}
    assert list(db.w.aggregate([{"$searchMeta": meta}])) == [
        {"count": {"lowerBound": 10}, "facet": {"y": {"buckets": [{"_id": 1990, "count": 0}, {"_id": 2000, "count": 10}]}}}
    ]
    stored = {"index": "t", "text": {"path": "kind", "query": "12"}, "returnStoredSource": True}
    assert search(db.w, stored) == [{"_id": 12, "kind": "new book 12"}]
    near = {"index": "v", "path": "v", "queryVector": [0, 1, 0, 1], "exact": True, "limit": 2}
    assert ids(db.w.aggregate([{"$vectorSearch": near}])) == [10, 11]

    db.c.update_one({"_id": 12}, {"$set": {"year": 1999}})
    assert found(db.w, "12") == []
    db.c.update_one({"_id": 2}, {"$set": {"year": 2001}})
    assert ids(found(db.w, "2")) == [2]

    older = [{"$match": {"$expr": {"$lt": ["$year", 2000]}}}, {"$set": {"kind": {"$concat": ["old ", "$title"]}}}]
    db.command("collMod", "w", viewOn="c", pipeline=older)
    until_ready(db.w)
    assert [document["kind"] for document in found(db.w, "12")] == ["old book 12"]
    assert found(db.w, "13") == []
    db.w.update_search_index("t", {"mappings": {"fields": {"kind": {"type": "token"}}}})
    until_ready(db.w)
    assert ids(search(db.w, {"index": "t", "equals": {"path": "kind", "value": "old book 3"}})) == [3]
    db.w.drop_search_index("v")
    assert [index["name"] for index in db.w.list_search_indexes()] == ["t"]
    db.w.drop()
    db.create_collection("w", viewOn="c", pipeline=newer)
    assert list(db.w.list_search_indexes()) == [] and found(db.w, "12") == []


def test_searches_while_a_view_changes(db):
    """Each document that is found is one that the view shows with this word; searches fail while the index is filled."""
    db.c.insert_many({"_id": n, "w": f"n{n}"} for n in range(50))
    stages = {word: [{"$set": {"t": {"$concat": [word, " ", "$w"]}}}] for word in ["alpha", "beta"]}
    db.create_collection("w", viewOn="c", pipeline=stages["alpha"])
    db.w.create_search_index(SearchIndexModel(DYNAMIC))
    until_ready(db.w)
    stop, failures, full = threading.Event(), [], []

    def look(word):
        with MongoClient(os.environ["MONGODB_URI"]) as other:
            while not stop.is_set():
                try:
                    found = search(other.search_tests.w, {"text": {"path": "t", "query": word}}, {"$set": {"m": "$$SEARCH_META"}})
                except OperationFailure as error:
                    if "INITIAL_SYNC" not in str(error) and error.code != 175:
                        failures.append(error)
                    continue
                if found:
                    full.append(word)
                if len(found) not in (0, 50) or any(word not in document["t"] or document["m"]["count"]["lowerBound"] != 50 for document in found):
                    failures.append((word, found))

    threads = [threading.Thread(target=look, args=(word,)) for word in stages]
    for thread in threads:
        thread.start()
    for _ in range(6):
        for word in ["beta", "alpha"]:
            db.command("collMod", "w", viewOn="c", pipeline=stages[word])
            until_ready(db.w)
            assert len(search(db.w, {"text": {"path": "t", "query": word}})) == 50
            time.sleep(0.02)
    # A client changes the definition itself.
    seen = len(full)
    changed = db["system.views"].update_one({"_id": "search_tests.w"}, {"$set": {"pipeline": stages["beta"]}})
    assert changed.modified_count == 1
    deadline = time.monotonic() + 30
    while "beta" not in full[seen:]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == [] and set(full) == set(stages)


def test_expired_documents_are_never_found(db):
    index = {"key": {"at": 1}, "name": "at", "expireAfterSeconds": 1, "ttl": {"hideExpired": True, "holdField": "keep"}}
    db.command({"createIndexes": "c", "indexes": [index]})
    fields = {"k": {"type": "stringFacet"}, "t": {"type": "string"}}
    db.c.create_search_index(SearchIndexModel({"mappings": {"fields": fields}}))
    now = datetime.now(timezone.utc)
    db.c.insert_many(
        [
            {"_id": "soon", "t": "pen", "k": "a", "at": now},
            {"_id": "held", "t": "pen", "k": "a", "at": now, "keep": True},
            {"_id": "later", "t": "pen", "k": "b", "at": now + timedelta(hours=1)},
        ]
    )
    until_ready(db.c)
    facet = {"facet": {"operator": {"exists": {"path": "t"}}, "facets": {"k": {"type": "string", "path": "k"}}}}
    deadline = time.monotonic() + 30
    while "soon" in ids(search(db.c, {"text": {"path": "t", "query": "pen"}})):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert datetime.now(timezone.utc) >= now + timedelta(milliseconds=990)
    assert sorted(ids(search(db.c, {"text": {"path": "t", "query": "pen"}}))) == ["held", "later"]
    (meta,) = db.c.aggregate([{"$searchMeta": facet}])
    assert meta["count"]["lowerBound"] == 2
    assert meta["facet"]["k"]["buckets"] == [{"_id": "a", "count": 1}, {"_id": "b", "count": 1}]


def test_bad_input(db):
    db.c.insert_one({"_id": 1, "t": "x", "v": [1.0, 0.0, 0.0, 0.0]})
    db.c.create_search_indexes([SearchIndexModel(DYNAMIC), SearchIndexModel(VECTOR, name="v", type="vectorSearch")])
    until_ready(db.c)
    for stage in [
        {},
        {"text": {"path": "t"}},
        {"text": {"path": "t", "query": "x", "unknown": 1}},
        {"text": {"path": "t", "query": "x"}, "exists": {"path": "t"}},
        {"unknown": {"path": "t"}},
        {"compound": {}},
        {"compound": {"must": [{"text": {"path": "t", "query": "x"}}] * 2_000}},
        {"regex": {"path": "t", "query": "(" * 10_000, "allowAnalyzedField": True}},
        {"text": {"path": "t", "query": "x"}, "searchAfter": "not a token"},
        {"text": {"path": "t", "query": "x"}, "sort": {"t": 2}},
    ]:
        assert code_of(lambda: search(db.c, stage)) == 8, stage
    for more in [{"queryVector": []}, {"queryVector": ["a"]}, {"limit": 0}, {"limit": 10**12}, {"filter": {"n": {"$regex": "a"}}}]:
        stage = {"index": "v", "path": "v", "queryVector": [1.0, 0.0, 0.0, 0.0], "limit": 1, "exact": True, **more}
        assert code_of(lambda: list(db.c.aggregate([{"$vectorSearch": stage}]))) == 8, more
    with db.client.start_session() as session:
        session.start_transaction()
        stage = [{"$search": {"text": {"path": "t", "query": "x"}}}]
        assert code_of(lambda: list(db.c.aggregate(stage, session=session))) == 263
        session.abort_transaction()
