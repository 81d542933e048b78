"""What a copy of a store contains: encrypted collections, search indexes, policies by the last change, records of
retryable writes, users and roles, views. The store moves into PostgreSQL with a server, and back without one."""

import datetime
import time
import uuid

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from postgres import free_port
from test_copy import Copy, Server, copy
from test_postgres import PATIENCE
from test_queryable_encryption import World
from test_search import DYNAMIC, VECTOR, ids, search, until_ready

USER = {"username": "root", "password": "r"}
SESSIONS = 90


def uri_of(server):
    return server.uri.replace("//", "//root:r@") + "/?directConnection=true"


class Content:
    """Fills a store, and checks one that has the same content."""

    def __init__(self, server):
        server.client().admin.command("createUser", "root", pwd="r", roles=["root"])
        client = server.client(**USER)
        self.add_users(client)
        world = World(uri_of(server))
        for n in range(40):
            world.collection.insert_one({"_id": n, "name": world.put("name", f"n{n % 4}"), "age": world.put("age", n)})
        world.compact()
        world.collection.insert_one({"_id": 40, "name": world.put("name", "n0"), "age": world.put("age", 40)})
        self.keys = world.keys
        world.close()
        books = client.shop.books
        books.insert_many({"_id": n, "title": f"book {n}", "v": [n, 1, 0, 1], "n": n} for n in range(200))
        books.create_search_indexes([SearchIndexModel(DYNAMIC), SearchIndexModel(VECTOR, name="v", type="vectorSearch")])
        until_ready(books)
        self.add_policies(client)
        self.sessions = [Binary.from_uuid(uuid.uuid4()) for _ in range(SESSIONS)]
        client.shop.counters.insert_many({"_id": n, "n": 0, "text": "x" * 100_000} for n in range(SESSIONS))
        for n in range(SESSIONS):
            assert self.count(client, n)["n"] == 1
        collation = {"locale": "en", "strength": 1}
        client.shop.create_collection("few", viewOn="books", pipeline=[{"$match": {"_id": {"$lt": 3}}}], collation=collation)
        client.shop.create_collection("fewer", viewOn="few", pipeline=[{"$limit": 1}], collation=collation)

    @staticmethod
    def add_users(client):
        read_books = {"resource": {"db": "shop", "collection": "books"}, "actions": ["find"]}
        client.shop.command("createRole", "librarian", privileges=[read_books], roles=[])
        client.shop.command("createUser", "ann", pwd="a", roles=["librarian"])

    def add_policies(self, client):
        """The time of the last change is no part of a document."""
        shop, self.due = client.shop, {}
        for name, after, documents in (
            ("changed", 3600, [{"_id": 1}, {"_id": 2}]),
            ("own", -1, [{"_id": 1, "ttl": 5000}, {"_id": 2}, {"_id": 3, "ttl": -1}]),
            ("dated", 3600, [{"_id": 1, "_ts": datetime.datetime(2100, 1, 1)}]),
            ("shorter", 1, [{"_id": 1, "ttl": -1}, {"_id": 2, "ttl": 100_000}]),
        ):
            shop[name].create_index("_ts", expireAfterSeconds=after)
            shop[name].insert_many(documents)
            self.due[name] = self.next_due(shop[name])
            assert self.due[name], name
        # The second write counts.
        assert shop.changed.update_one({"_id": 1}, {"$set": {"a": 1}}).modified_count == 1

    @staticmethod
    def next_due(collection):
        [policy] = collection.aggregate([{"$ttlStats": {}}])
        return policy["nextDue"]

    def count(self, client, n):
        """A statement of a session, always as the same one: it counts once."""
        with client.start_session() as session:
            assert session.session_id
            session._server_session.session_id = {"id": self.sessions[n]}
            command = {"findAndModify": "counters", "query": {"_id": n}, "update": {"$inc": {"n": 1}}, "new": True, "txnNumber": Int64(1)}
            return client.shop.command(command, session=session)["value"]

    def check(self, server):
        client = server.client(**USER)
        self.check_encrypted(server)
        self.check_searches(client)
        for name, due in self.due.items():
            assert self.next_due(client.shop[name]) == due, name
        assert [client.shop[name].count_documents({}) for name in self.due] == [2, 3, 1, 2]
        for n in range(SESSIONS):
            found = self.count(client, n)
            assert found["n"] == 1 and len(found["text"]) == 100_000, n
        assert client.shop.few.count_documents({}) == 3 and client.shop.fewer.count_documents({}) == 1
        [view] = client.shop.list_collections(filter={"name": "fewer"})
        assert view["options"]["collation"]["strength"] == 1
        ann = server.client(username="ann", password="a", authSource="shop")
        assert ann.shop.books.find_one({"_id": 7})["title"] == "book 7"
        with pytest.raises(OperationFailure) as refused:
            ann.shop.counters.find_one()
        assert refused.value.code == 13
        for database in ("shop", "queryable_encryption"):
            for name in client[database].list_collection_names(filter={"type": "collection"}):
                if name.startswith("system."):
                    continue
                checked = client[database].command("validate", name, full=True)
                assert checked["valid"], checked

    def check_encrypted(self, server):
        world = World(uri_of(server), self.keys)
        expected = [n for n in range(40) if n % 4 == 0] + [40]
        assert [n for n in world.named("n0") if n <= 40] == expected
        assert world.ids(world.between("age", gte=10, lt=15)) == [10, 11, 12, 13, 14]
        # The state of the encrypted fields goes on, in the collection of tags and of the log of compaction.
        added = 1 + max(world.ids({}))
        world.collection.insert_one({"_id": added, "name": world.put("name", "n0"), "age": world.put("age", 150)})
        assert world.named("n0")[-1] == added
        world.check_tags()
        world.compact()
        assert added in world.ids(world.between("age", gte=150))
        world.close()

    @staticmethod
    def check_searches(client):
        books = client.shop.books
        until_ready(books)
        assert ids(search(books, {"text": {"path": "title", "query": "42"}})) == [42]
        vectors = {"index": "v", "path": "v", "queryVector": [199, 1, 0, 1], "numCandidates": 200, "limit": 1, "filter": {"n": 5}}
        assert ids(books.aggregate([{"$vectorSearch": vectors}])) == [5]
        added = 1000 + books.count_documents({})
        books.insert_one({"_id": added, "title": f"late {added}", "v": [1, 2, 3, 4], "n": added})
        assert ids(search(books, {"text": {"path": "title", "query": str(added)}})) == [added]


def test_all_kinds_of_content_move(postgres, tmp_path):
    url = postgres.database()
    source = Server(tmp_path / "source", "--auth")
    content = Content(source)
    run = Copy(tmp_path, uri_of(source).split("/?")[0], url)
    run.until("follows less than a second late")
    # Its entries are in the log.
    client = source.client(**USER)
    client.shop.books.update_one({"_id": 42}, {"$set": {"title": "chapter 42"}})
    client.shop.changed.insert_one({"_id": 3, "ttl": 1_000_000})
    client.shop.changed.delete_one({"_id": 3})
    run.kill()
    code, said = copy(tmp_path, uri_of(source).split("/?")[0], url, "--switchOver")
    assert code == 0, said
    assert source.process.wait(PATIENCE) == 0
    target = Server(tmp_path / "target", "--auth", port=free_port(), url=url)
    content.check(target)
    assert target.end() == 0
    back = tmp_path / "back"
    code, said = copy(tmp_path, url, back, "--verify")
    assert code == 0 and "differ" not in said, said
    again = Server(tmp_path / "again", "--auth", data=back)
    content.check(again)
    assert again.end() == 0


def test_what_becomes_due_during_a_move_expires(postgres, tmp_path):
    """Nothing expires in the target while it is copied; what is due then expires in the first pass after the move."""
    url = postgres.database()
    source = Server(tmp_path / "source", "--setParameter", "ttlMonitorEnabled=false")
    shop = source.client().shop
    now = datetime.datetime.now(datetime.timezone.utc)
    shop.plain.create_index("at", expireAfterSeconds=0)
    shop.by_change.create_index("_ts", expireAfterSeconds=-1)
    past, later = now - datetime.timedelta(hours=1), now + datetime.timedelta(hours=1)
    shop.plain.insert_many({"_id": n, "at": past if n < 500 else later} for n in range(1000))
    shop.by_change.insert_many({"_id": n, "_ts": past if n < 50 else later, "ttl": 60} for n in range(100))
    code, said = copy(tmp_path, source.uri, url, "--switchOver")
    assert code == 0, said
    assert source.process.wait(PATIENCE) == 0
    target = Server(tmp_path / "target", "--setParameter", "ttlMonitorSleepSecs=1", url=url)
    client, deadline = target.client(), time.monotonic() + PATIENCE
    while client.shop.plain.count_documents({}) > 500 or client.shop.by_change.count_documents({}) > 50:
        assert time.monotonic() < deadline, list(client.shop.plain.aggregate([{"$ttlStats": {}}]))
        time.sleep(0.05)
    passes = client.admin.command("serverStatus")["metrics"]["ttl"]["passes"]
    while client.admin.command("serverStatus")["metrics"]["ttl"]["passes"] < passes + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.shop.plain.count_documents({"_id": {"$gte": 500}}) == 500
    assert client.shop.by_change.count_documents({"_id": {"$gte": 50}}) == 50
    assert target.end() == 0
