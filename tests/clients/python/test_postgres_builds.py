"""Index builds over PostgreSQL that are interrupted while their entries are loaded with COPY."""

import threading
import time

import pytest
from pymongo.errors import OperationFailure, PyMongoError

from test_postgres import PATIENCE, Node

COUNT = 12_000
# Long enough that the entries are loaded with COPY, in several chunks.
TEXT = "x" * 1000
# Holds up the load in the middle.
LOCK = "lock table mayflydb.index in share row exclusive mode"
COPIES = "select count(*) from pg_stat_activity where query ilike 'copy %' and wait_event_type = 'Lock'"


def fill(collection):
    for first in range(0, COUNT, 1000):
        collection.insert_many({"_id": n, "a": f"{n % 1000:04}{TEXT}{n}"} for n in range(first, first + 1000))


def check(collection):
    """The index has exactly the entries of the documents."""
    checked = collection.database.command("validate", collection.name, full=True)
    assert checked["valid"] and checked["keysPerIndex"]["a_1"] == COUNT, checked
    assert collection.count_documents({"a": {"$gte": "0999", "$lt": "1"}}, hint="a_1") == COUNT // 1000


class Build:
    """A build that waits for a lock of its table, when it loads its entries."""

    def __init__(self, postgres, url, collection, folder):
        self.postgres, self.url, self.error = postgres, url, None
        self.blocker = postgres.hold(url, LOCK)
        self.collection = collection
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        deadline = time.monotonic() + PATIENCE
        while postgres.ask(url, COPIES) != "1":
            assert time.monotonic() < deadline and self.thread.is_alive(), self.error
            time.sleep(0.05)

    def run(self):
        try:
            self.collection.create_index("a")
        except PyMongoError as error:
            self.error = error

    def unlock(self):
        self.blocker.stdin.close()
        self.blocker.wait(PATIENCE)

    def end(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.error


def test_an_interrupted_build_leaves_nothing(postgres, tmp_path):
    url = postgres.database()
    node = Node(tmp_path / "node", url)
    carts = node.client().shop.carts
    fill(carts)
    # The session of the load is lost: the chunk is sent again.
    build = Build(postgres, url, carts, tmp_path)
    assert postgres.ask(url, COPIES.replace("count(*)", "count(pg_terminate_backend(pid))")) == "1"
    build.unlock()
    assert build.end() is None
    check(carts)
    carts.drop_index("a_1")
    # The index is dropped meanwhile.
    build = Build(postgres, url, carts, tmp_path)
    dropping = threading.Thread(target=lambda: carts.database.command("dropIndexes", "carts", index="a_1"))
    dropping.start()
    time.sleep(0.2)
    build.unlock()
    assert isinstance(build.end(), OperationFailure) and build.error.code == 276, build.error
    dropping.join(PATIENCE)
    carts.create_index("a")
    check(carts)
    carts.drop_index("a_1")
    # The server is killed: the next one finishes the build, or forgets it.
    build = Build(postgres, url, carts, tmp_path)
    node.process.kill()
    node.process.wait(PATIENCE)
    build.unlock()
    assert build.end() is not None
    node = Node(tmp_path / "next", url)
    carts = node.client().shop.carts
    carts.create_index("a")
    check(carts)
    # A key that PostgreSQL does not take.
    carts.insert_one({"_id": -1, "b": "y" * 3000})
    with pytest.raises(OperationFailure) as long:
        carts.create_index([("a", 1), ("b", 1)])
    assert long.value.code == 17280 and "a_1_b_1" in str(long.value), long.value
    assert list(carts.index_information()) == ["_id_", "a_1"]
    assert node.end() == 0
