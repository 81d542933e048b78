"""A change stream on each server, which is opened again by its token when it ends, and what the streams have shown."""

import threading
import time

from pymongo import ReadPreference
from pymongo.errors import PyMongoError

from load import NAME


class Stream:
    """Follows one server; its events are recorded in the order in which they came."""

    def __init__(self, server, begin, failures: list):
        self.server, self.begin, self.failures = server, begin, failures
        self.ended, self.opened = threading.Event(), 0
        self.tokens, self.inserted, self.updates, self.deleted = [], {}, {}, {}
        self.last = None
        self.thread = threading.Thread(target=self.run, name=f"stream {server.name}", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                self.follow()
            except PyMongoError as error:
                # The server is away. A stream that cannot go on by its token is a failure.
                if getattr(error, "code", None) in (280, 286, 260):
                    self.failures.append(f"the stream on {self.server.name} cannot go on: {error}")
                    return
                time.sleep(0.2)

    def follow(self) -> None:
        client = self.server.client(socketTimeoutMS=5000, readPreference="secondaryPreferred")
        where = {"resume_after": self.last} if self.last else {"start_at_operation_time": self.begin}
        try:
            database = client.get_database(NAME, read_preference=ReadPreference.SECONDARY_PREFERRED)
            with database.watch(max_await_time_ms=300, batch_size=500, **where) as stream:
                self.opened += 1
                while not self.ended.is_set():
                    if event := stream.try_next():
                        self.record(event)
        finally:
            client.close()

    def record(self, event) -> None:
        self.last = event["_id"]
        self.tokens.append((event["_id"]["_data"], event["operationType"]))
        key = event.get("documentKey", {}).get("_id")
        place = (event["ns"]["coll"], key)
        if event["operationType"] == "insert":
            self.inserted[place] = self.inserted.get(place, 0) + 1
        elif event["operationType"] in ("update", "replace"):
            self.updates[place] = self.updates.get(place, 0) + 1
        elif event["operationType"] == "delete":
            self.deleted[place] = event["wallTime"]

    def end(self) -> None:
        self.ended.set()


class Streams:
    """Those of all servers."""

    def __init__(self, cluster, load):
        self.load, self.compared = load, 0
        self.all = [Stream(server, load.begin, load.failures) for server in cluster.servers]

    def check(self, seconds: float = 40) -> list[str]:
        """Waits until every stream has shown what was acknowledged, with the clients paused; returns what is wrong."""
        deadline, wrong = time.monotonic() + seconds, []
        for stream in self.all:
            while (missing := self.missing(stream)) and time.monotonic() < deadline:
                time.sleep(0.1)
            if missing:
                wrong.append(f"the stream on {stream.server.name} (opened {stream.opened} times) lacks {missing}")
            twice = [place for place, count in list(stream.inserted.items()) if count > 1]
            if twice:
                wrong.append(f"the stream on {stream.server.name} shows twice: {twice[:3]}")
        # In one order: the shortest is a beginning of the others.
        shortest = min(len(stream.tokens) for stream in self.all)
        parts = [stream.tokens[self.compared:shortest] for stream in self.all]
        if any(part != parts[0] for part in parts):
            at = next(n for n in range(len(parts[0])) if len({part[n] for part in parts}) > 1)
            wrong.append(f"the streams differ at event {self.compared + at}: {[part[at] for part in parts]}")
        self.compared = shortest
        return wrong

    def missing(self, stream) -> str:
        """What was acknowledged and has not been shown yet; or shown although it was not written."""
        load = self.load
        for collection, acknowledged in (("documents", load.documents), ("left", load.pairs), ("right", load.pairs)):
            if absent := [key for key in list(acknowledged) if (collection, key) not in stream.inserted]:
                return f"{len(absent)} of {collection}, such as {absent[0]}"
        for n, count in load.counters.items():
            if (shown := stream.updates.get(("counters", n), 0)) != count:
                return f"counter {n}: {shown} events of {count}"
        return ""

    def early(self) -> list[str]:
        """Deletions before their document was due, by the times of the events."""
        found = []
        for stream in self.all:
            for (collection, key), at in list(stream.deleted.items()):
                due = self.load.due.get(key) if collection == "policy" else None
                # Dates have milliseconds.
                if due is None or (due - at.replace(tzinfo=due.tzinfo)).total_seconds() > 0.001:
                    found.append(f"{collection} {key} deleted at {at}, due at {due}")
        return found[:3]

    def end(self) -> None:
        for stream in self.all:
            stream.end()
        for stream in self.all:
            stream.thread.join(20)
