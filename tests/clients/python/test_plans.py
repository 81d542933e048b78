"""How queries are answered, through PyMongo; what is expected is listed in ../README.md."""

import os
from contextlib import contextmanager

import pytest
from pymongo import ASCENDING, DESCENDING, IndexModel, MongoClient
from pymongo.errors import ExecutionTimeout, OperationFailure

SORT_MEMORY = "internalQueryMaxBlockingSortMemoryUsageBytes"
GROUP_MEMORY = "internalDocumentSourceGroupMaxMemoryBytes"


@pytest.fixture(scope="module")
def client():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        yield client


@pytest.fixture
def db(client):
    return client["clients_python_plans"]


@pytest.fixture
def coll(db, request):
    collection = db[request.node.name]
    collection.drop()
    collection.insert_many(
        [{"_id": i, "a": i % 10, "b": i % 7, "c": -i, "text": "x" * 200} for i in range(1000)]
    )
    return collection


def stages(plan):
    """The names of a plan's stages, from the top."""
    inputs = plan.get("inputStages", [plan["inputStage"]] if "inputStage" in plan else [])
    return [plan["stage"]] + [name for below in inputs for name in stages(below)]


def winner(explained):
    return explained["queryPlanner"]["winningPlan"]


@contextmanager
def limit(client, parameter, value):
    was = client.admin.command({"setParameter": 1, parameter: value})["was"]
    try:
        yield
    finally:
        client.admin.command({"setParameter": 1, parameter: was})


def test_or_of_several_indexes(coll):
    query = {"$or": [{"a": 3}, {"b": 5}]}
    expected = [i for i in range(1000) if i % 10 == 3 or i % 7 == 5]
    assert [doc["_id"] for doc in coll.find(query).sort("_id")] == expected
    coll.create_indexes([IndexModel("a"), IndexModel("b")])
    assert sorted(doc["_id"] for doc in coll.find(query)) == expected
    assert coll.count_documents(query) == len(expected)
    explained = coll.find(query).explain()
    names = stages(winner(explained))
    assert "OR" in names and names.count("IXSCAN") == 2 and "COLLSCAN" not in names
    assert explained["executionStats"]["nReturned"] == len(expected)
    # One without an index makes all of it a scan.
    scan = coll.find({"$or": [{"a": 3}, {"text": "x"}]})
    assert stages(winner(scan.explain())) == ["SUBPLAN", "COLLSCAN"]


def test_covered_queries(coll):
    coll.create_index([("a", ASCENDING), ("c", DESCENDING)], name="a_c")
    cursor = coll.find({"a": 3}, {"_id": 0, "c": 1}).sort("c", DESCENDING).limit(3)
    explained = cursor.clone().explain()
    assert list(cursor) == [{"c": -3}, {"c": -13}, {"c": -23}]
    assert "PROJECTION_COVERED" in stages(winner(explained))
    assert explained["executionStats"]["totalDocsExamined"] == 0
    # With _id documents are read.
    read = coll.find({"a": 3}, {"c": 1}).explain()
    assert read["executionStats"]["totalDocsExamined"] == 100


def test_hints(db, coll):
    coll.create_index("a", name="by_a")
    coll.create_index("b", name="by_b")
    query = {"a": 3, "b": 5}
    expected = sorted(doc["_id"] for doc in coll.find(query))
    for hint, name in [("by_a", "by_a"), ("by_b", "by_b"), ([("b", 1)], "by_b")]:
        cursor = coll.find(query).hint(hint)
        scan = winner(cursor.clone().explain())["inputStage"]
        assert (scan["stage"], scan["indexName"]) == ("IXSCAN", name)
        assert sorted(doc["_id"] for doc in cursor) == expected
    natural = coll.find(query).hint([("$natural", -1)])
    assert stages(winner(natural.clone().explain())) == ["COLLSCAN"]
    assert [doc["_id"] for doc in natural] == expected[::-1]

    assert coll.count_documents(query, hint="by_b") == len(expected)
    assert len(list(coll.aggregate([{"$match": query}], hint="by_b"))) == len(expected)
    changed = coll.update_many(query, {"$set": {"d": 1}}, hint="by_b")
    assert changed.modified_count == len(expected)
    assert coll.delete_one(query, hint=[("a", 1)]).deleted_count == 1
    with pytest.raises(OperationFailure, match="hint") as failed:
        list(coll.find(query).hint("nothing"))
    assert failed.value.code == 2


def test_a_blocking_sort_within_its_time(client, coll):
    coll.insert_many([{"_id": i, "c": i * 7919 % 20011} for i in range(1000, 21000)])
    with pytest.raises(ExecutionTimeout) as failed:
        list(coll.find().sort("c").max_time_ms(1))
    assert failed.value.code == 50
    with pytest.raises(ExecutionTimeout):
        list(coll.aggregate([{"$sort": {"c": 1}}, {"$limit": 5}], maxTimeMS=1))
    # Nothing of it is left, and with time it is answered.
    first = next(coll.find().sort("c").max_time_ms(60_000))
    assert first["_id"] == 999


def test_memory_that_does_not_suffice(client, coll):
    by_c = coll.find({}, {"text": 1}).sort("c")
    with limit(client, SORT_MEMORY, 20_000):
        with pytest.raises(OperationFailure) as failed:
            list(by_c.clone().allow_disk_use(False))
        assert failed.value.code == 292
        assert failed.value.details["codeName"] == "QueryExceededMemoryLimitNoDiskUseAllowed"
        found = list(by_c.clone().allow_disk_use(True))
        assert [doc["_id"] for doc in found] == list(range(999, -1, -1))
        # The default is to use files.
        assert len(list(by_c.clone())) == 1000
        with pytest.raises(OperationFailure) as failed:
            list(coll.aggregate([{"$sort": {"c": 1}}], allowDiskUse=False))
        assert failed.value.code == 292
    with limit(client, GROUP_MEMORY, 20_000):
        group = [{"$group": {"_id": "$c", "texts": {"$push": "$text"}}}, {"$count": "n"}]
        with pytest.raises(OperationFailure) as failed:
            list(coll.aggregate(group, allowDiskUse=False))
        assert failed.value.code == 292
        assert list(coll.aggregate(group, allowDiskUse=True)) == [{"n": 1000}]
    assert len(list(by_c.clone().allow_disk_use(False))) == 1000


def test_explain(db, coll):
    coll.create_index("a", name="by_a")
    explained = coll.find({"a": 3, "b": 5}).sort("c").limit(3).explain()
    names = stages(winner(explained))
    assert names[0] == "SORT" and names[-2:] == ["FETCH", "IXSCAN"]
    assert explained["queryPlanner"]["namespace"] == f"{db.name}.{coll.name}"
    run = explained["executionStats"]
    assert (run["nReturned"], run["totalKeysExamined"]) == (3, 100)

    def explain(command, verbosity="executionStats"):
        return db.command({"explain": command, "verbosity": verbosity})

    shown = explain({"count": coll.name, "query": {"a": 3}})
    assert stages(winner(shown))[0] == "COUNT" and shown["executionStats"]["totalDocsExamined"] == 0
    shown = explain({"distinct": coll.name, "key": "b", "query": {"a": 3}})
    assert stages(winner(shown))[-1] == "IXSCAN"
    shown = explain({"delete": coll.name, "deletes": [{"q": {"a": 3}, "limit": 0}]}, "queryPlanner")
    assert stages(winner(shown))[-1] == "IXSCAN" and "executionStats" not in shown
    assert coll.count_documents({"a": 3}) == 100
    lookup = {"from": coll.name, "localField": "b", "foreignField": "a", "as": "found"}
    pipeline = [{"$match": {"_id": {"$lt": 2}}}, {"$lookup": lookup}]
    shown = explain({"aggregate": coll.name, "pipeline": pipeline, "cursor": {}})["stages"][1]
    assert shown["$lookup"] == lookup
    assert (shown["totalDocsExamined"], shown["collectionScans"]) == (200, 0)
    assert (shown["indexesUsed"], shown["nReturned"]) == (["by_a"], 2)
