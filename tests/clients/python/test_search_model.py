"""Search indexes while documents change and expire, and the server is killed: what a search finds is compared with a model."""

import os
import random
import shutil
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.operations import SearchIndexModel

from test_backup import Server, until

SECONDS = float(os.environ.get("SEARCH_MODEL_SECS", "60"))
SEED = int(os.environ.get("SEARCH_MODEL_SEED", str(random.SystemRandom().randrange(10**6))))
WRITERS = 4
# A policy hides a document this long after its date.
EXPIRY = timedelta(seconds=1)
# Shows the documents of even numbers, with another word.
VIEW = [{"$match": {"$expr": {"$eq": [{"$mod": ["$n", 2]}, 0]}}}, {"$set": {"u": {"$concat": ["$w", "view"]}}}]
VECTORS = {"fields": [{"type": "vector", "path": "v", "numDimensions": 3, "similarity": "euclidean"}]}


def until_ready(collection):
    deadline = time.monotonic() + 60
    while not all(index["queryable"] for index in collection.list_search_indexes()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Writer(threading.Thread):
    """Owns documents that no other thread changes. Of each it knows the word, if its last write was acknowledged."""

    def __init__(self, which, uri, stop):
        super().__init__()
        self.which, self.uri, self.stop = which, uri, stop
        self.random = random.Random(SEED * 10 + which)
        self.words, self.dates, self.unsure = {}, {}, set()
        self.failures, self.checks, self.writes, self.number = [], 0, 0, 0

    def run(self):
        with MongoClient(self.uri(), retryWrites=False, serverSelectionTimeoutMS=200) as client:
            while not self.stop.is_set():
                try:
                    if client.address != self.address():
                        raise PyMongoError("the server has another port")
                    self.step(client.t.c)
                except PyMongoError:
                    client.close()
                    time.sleep(0.05)
                    client = MongoClient(self.uri(), retryWrites=False, serverSelectionTimeoutMS=200)

    def address(self):
        host, port = self.uri().removeprefix("mongodb://").rstrip("/").split(":")
        return host, int(port)

    def step(self, collection):
        key = f"{self.which}-{self.random.randrange(40)}"
        self.number += 1
        word = f"w{self.which}n{self.number}"
        self.unsure.add(key)
        before = self.words.pop(key, None)
        if self.random.random() < 0.25:
            collection.delete_one({"_id": key})
            word = None
        else:
            date = datetime.now(timezone.utc) + timedelta(seconds=self.random.choice([0.0, 0.5, 3600]))
            document = {"w": word, "at": date, "v": [float(self.which), float(self.number), 0.0], "n": self.number}
            collection.replace_one({"_id": key}, document, upsert=True)
            self.words[key], self.dates[key] = word, date
        self.unsure.discard(key)
        self.writes += 1
        self.check(collection, key, word, before)

    def check(self, collection, key, word, before):
        began = datetime.now(timezone.utc)
        for searched in [word, before]:
            if searched is None:
                continue
            found = self.search(collection, searched)
            in_view = self.search(collection.database.w, f"{searched}view", "of_view", "u")
            if found is None or in_view is None:
                return
            ended = datetime.now(timezone.utc)
            self.checks += 1
            wanted = [key] if searched == word else []
            shown = wanted if self.number % 2 == 0 else []
            due = self.dates[key] + EXPIRY if wanted else None
            if due and began < due <= ended + timedelta(milliseconds=5):
                continue
            expected = [] if due and due <= began else wanted
            shown = [] if due and due <= began else shown
            if (found, in_view) != (expected, shown):
                self.failures.append((key, searched, found, in_view, expected, shown, due, began))
        if word is not None and self.random.random() < 0.3:
            stage = {"index": "v", "path": "v", "queryVector": [float(self.which), float(self.number), 0.0], "exact": True, "limit": 1}
            near = [document["_id"] for document in collection.aggregate([{"$vectorSearch": stage}])]
            if self.dates[key] + EXPIRY > datetime.now(timezone.utc) + timedelta(milliseconds=5) and near != [key]:
                self.failures.append((key, "vector", near))

    def search(self, collection, word, index="t", path="w"):
        """The keys of a word; none while an index is being built again after a crash."""
        stage = {"index": index, "text": {"path": path, "query": word}}
        try:
            return [document["_id"] for document in collection.aggregate([{"$search": stage}])]
        except OperationFailure as error:
            if "INITIAL_SYNC" in str(error):
                return None
            raise


def test_searches_agree_with_a_model(tmp_path):
    server = Server(tmp_path / "data")
    stop = threading.Event()
    random_pause = random.Random(SEED)
    try:
        with MongoClient(server.uri) as client:
            client.t.command("create", "c")
            ttl = {"hideExpired": True}
            index = {"key": {"at": 1}, "name": "at", "expireAfterSeconds": 1, "ttl": ttl}
            client.t.command({"createIndexes": "c", "indexes": [index]})
            text = {"mappings": {"fields": {"w": {"type": "string"}}}}
            client.t.c.create_search_indexes([SearchIndexModel(text, name="t"), SearchIndexModel(VECTORS, name="v", type="vectorSearch")])
            client.t.create_collection("w", viewOn="c", pipeline=VIEW)
            text = {"mappings": {"fields": {"u": {"type": "string"}}}}
            client.t.w.create_search_index(SearchIndexModel(text, name="of_view"))
            until_ready(client.t.c)
            until_ready(client.t.w)
        box = {"server": server}
        writers = [Writer(which, lambda: box["server"].uri, stop) for which in range(WRITERS)]
        for writer in writers:
            writer.start()
        end = time.monotonic() + SECONDS
        kills = 0
        while time.monotonic() < end:
            time.sleep(random_pause.uniform(1, 5))
            box["server"].kill()
            kills += 1
            box["server"] = Server(tmp_path / "data")
        server = box["server"]
        stop.set()
        for writer in writers:
            writer.join()
        failures = [failure for writer in writers for failure in writer.failures]
        assert failures == [], f"SEARCH_MODEL_SEED={SEED}"
        checks = sum(writer.checks for writer in writers)
        print(f"{checks} checks, {sum(writer.writes for writer in writers)} writes, {kills} kills")
        assert checks > 100 and kills > 2
        with MongoClient(server.uri) as client:
            until_ready(client.t.c)
            until_ready(client.t.w)
            compare(client, writers)
            assert client.admin.command("serverStatus")["search"]["rebuilds"] == 0
            # Changes are in files after five seconds.
            until(lambda: client.admin.command("serverStatus")["search"]["memoryBytes"] == 0)
        server.kill()
        for folder in (tmp_path / "data" / "search").iterdir():
            damage(folder, random_pause)
        server = Server(tmp_path / "data")
        with MongoClient(server.uri) as client:
            until_ready(client.t.c)
            until_ready(client.t.w)
            compare(client, writers)
            assert client.admin.command("serverStatus")["search"]["rebuilds"] > 0
    finally:
        stop.set()
        server.kill()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)


def compare(client, writers):
    """The index has the documents that the collection has, and those that the writers know."""
    collection = client.t.c
    sure = {key: word for writer in writers for key, word in writer.words.items() if writer.dates[key].year > 2020}
    stored = {document["_id"]: document["w"] for document in collection.find()}
    stage = {"index": "t", "exists": {"path": "w"}}
    found = {document["_id"]: document["w"] for document in collection.aggregate([{"$search": stage}])}
    soon = datetime.now(timezone.utc) + timedelta(minutes=1)
    lasting = {writer_key for writer in writers for writer_key, date in writer.dates.items() if date > soon}
    assert {key: word for key, word in found.items() if key in lasting} == {key: word for key, word in stored.items() if key in lasting}
    words = lambda documents: {document["_id"]: document["u"] for document in documents if document["_id"] in lasting}
    stage = {"index": "of_view", "exists": {"path": "u"}}
    assert words(client.t.w.aggregate([{"$search": stage}])) == words(client.t.w.find())
    for key, word in sure.items():
        if key in lasting and not any(key in writer.unsure for writer in writers):
            assert found.get(key) == word


def damage(folder, chosen):
    """Changes a byte of a segment, or cuts it off."""
    segments = sorted(folder.glob("*.seg"))
    if not segments:
        return
    segment = chosen.choice(segments)
    content = bytearray(segment.read_bytes())
    content[chosen.randrange(len(content))] ^= 0x55
    segment.write_bytes(content)
