"""Index filters and query settings: which index a query uses is said from outside, and settings outlive the server."""

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

READY = re.compile(r"ready on (127\.0\.0\.1:\d+)")
START_SECS, STOP_SECS = 30, 20


@contextmanager
def server(folder):
    """A server of our own over a folder, ended by its own process id."""
    log = folder / "log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}
    arguments = ["--port", "0", "--dbpath", str(folder / "data"), "--storageEngine", "rocksdb"]
    (folder / "data").mkdir(exist_ok=True)
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [os.environ["MAYFLYDB_BIN"], *arguments],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
        )
    try:
        deadline = time.monotonic() + START_SECS
        while not (ready := READY.search(log.read_text(errors="replace"))):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.02)
        with MongoClient(f"mongodb://{ready[1]}") as client:
            yield client
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def orders():
    with MongoClient(os.environ["MONGODB_URI"]) as client:
        client.drop_database("query_settings")
        fill(client.query_settings.orders)
        yield client.query_settings.orders
        client.drop_database("query_settings")


def fill(orders):
    orders.insert_many({"_id": i, "status": i % 5, "customer": i % 7} for i in range(200))
    orders.create_index({"status": 1})
    orders.create_index({"customer": 1})
    orders.create_index({"status": 1, "customer": 1})


def planner_of(cursor):
    return cursor.explain()["queryPlanner"]


def index_of(planner):
    plan = planner["winningPlan"]
    while "inputStage" in plan:
        plan = plan["inputStage"]
    return plan.get("indexName", plan["stage"])


def test_an_index_filter_leads_queries_of_its_shape(orders):
    query = {"status": 1, "customer": 3}
    assert index_of(planner_of(orders.find(query))) == "status_1_customer_1"
    found = sorted(document["_id"] for document in orders.find(query))
    orders.database.command("planCacheSetFilter", "orders", query={"customer": 0, "status": 0}, indexes=["customer_1"])
    planner = planner_of(orders.find(query))
    assert planner["indexFilterSet"] is True and index_of(planner) == "customer_1"
    assert index_of(planner_of(orders.find(query).hint("status_1"))) == "customer_1"
    assert sorted(document["_id"] for document in orders.find(query)) == found
    assert orders.count_documents(query) == len(found)
    assert orders.database.command("planCacheListFilters", "orders")["filters"] == [
        {"query": {"customer": 0, "status": 0}, "sort": {}, "projection": {}, "indexes": ["customer_1"]}
    ]
    orders.database.command("planCacheClearFilters", "orders")
    assert index_of(planner_of(orders.find(query))) == "status_1_customer_1"


def test_equal_shapes_have_equal_hashes(orders):
    def hashes(query, **options):
        explained = orders.find(query, **options).explain()
        return explained["queryShapeHash"], explained["queryPlanner"]["planCacheShapeHash"]

    assert hashes({"status": 1}) == hashes({"status": 2.5})
    assert hashes({"status": 1}) != hashes({"customer": 1})
    assert hashes({"status": 1})[0] != hashes({"status": "x"})[0]
    assert hashes({"status": 1}) != hashes({"status": 1}, sort={"customer": 1})
    assert len(hashes({})[0]) == 64 and len(hashes({})[1]) == 8


def test_settings_stay_when_the_server_ends(tmp_path):
    query = {"status": 1, "customer": 3}
    namespace = {"db": "shop", "coll": "orders"}
    with server(tmp_path) as client:
        orders, admin = client.shop.orders, client.admin
        fill(orders)
        reply = admin.command(
            "setQuerySettings",
            {"find": "orders", "filter": {"status": 0, "customer": 0}, "$db": "shop"},
            settings={"indexHints": {"ns": namespace, "allowedIndexes": ["customer_1"]}, "comment": "slow otherwise"},
        )
        assert reply["queryShapeHash"] == orders.find(query).explain()["queryShapeHash"]
        admin.command(
            "setQuerySettings",
            {"aggregate": "orders", "pipeline": [{"$match": {"status": {"$gt": 0}}}], "$db": "shop"},
            settings={"reject": True},
        )
        orders.database.command("planCacheSetFilter", "orders", query={"status": 1}, indexes=["none"])
        check_settings(client, query)
    with server(tmp_path) as client:
        check_settings(client, query)
        orders, admin = client.shop.orders, client.admin
        assert orders.database.command("planCacheListFilters", "orders")["filters"] == []
        for setting in client.admin.aggregate([{"$querySettings": {}}]):
            admin.command("removeQuerySettings", setting["queryShapeHash"])
        assert "querySettings" not in planner_of(orders.find(query))
        assert len(list(orders.aggregate([{"$match": {"status": {"$gt": 3}}}]))) == 40


def check_settings(client, query):
    orders = client.shop.orders
    planner = planner_of(orders.find(query))
    assert index_of(planner) == "customer_1" and planner["indexFilterSet"] is False
    assert planner["querySettings"]["comment"] == "slow otherwise"
    assert index_of(planner_of(orders.find(query).hint("status_1"))) == "customer_1"
    with pytest.raises(OperationFailure) as rejected:
        orders.aggregate([{"$match": {"status": {"$gt": 3}}}])
    assert rejected.value.code == 411
    settings = {setting["queryShapeHash"]: setting for setting in client.admin.aggregate([{"$querySettings": {}}])}
    assert len(settings) == 2
    assert settings[orders.find(query).explain()["queryShapeHash"]]["representativeQuery"]["find"] == "orders"
