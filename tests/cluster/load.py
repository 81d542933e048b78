"""Clients under load: they write, read and follow the changes all the time, and record what was acknowledged.

Every client retries as a driver does (`retryWrites`, `retryReads`, `with_transaction`). An error that surfaces nevertheless is
recorded: one with a label by which an application may try again is counted, and the application tries again; any other one is a
failure of the test.
"""

import datetime
import threading
import time

import pymongo
from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern

NAME = "load"
#: Collections whose documents are compared between servers. That of the policy has a filter: the others are being deleted.
COLLECTIONS = {"counters": {}, "documents": {}, "left": {}, "right": {}, "own": {}, "policy": {"stays": True}}
PAUSE = 0.005
DUE_SECS = 3
LABELS = ("RetryableWriteError", "TransientTransactionError", "UnknownTransactionCommitResult")


def utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


class Worker:
    """A thread that does one thing again and again, until the load is paused or ends."""

    def __init__(self, load: "Load", name: str, act, is_writer: bool):
        self.load, self.name, self.act, self.is_writer = load, name, act, is_writer
        self.count, self.last, self.longest, self.idle = 0, time.monotonic(), 0.0, False
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        while not self.load.ended.is_set():
            if not self.load.going.is_set():
                self.idle = True
                self.load.going.wait(0.5)
                self.last = time.monotonic()
                continue
            self.idle = False
            try:
                self.act()
                self.count += 1
                now = time.monotonic()
                self.longest, self.last = max(self.longest, now - self.last), now
            except PyMongoError as error:
                self.load.note(self.name, error)
            except Exception as error:  # noqa: BLE001
                self.load.fail(f"{self.name}: {error!r}")
            time.sleep(PAUSE)
        self.idle = True

    def pause_so_far(self) -> float:
        """The longest time without a success, the present one included."""
        return max(self.longest, time.monotonic() - self.last)


class Load:
    """All clients, and what they know."""

    def __init__(self, cluster):
        self.cluster = cluster
        # Short time-outs of the monitors: a server that is paused is noticed within seconds.
        self.client = self.connect()
        self.db = self.client[NAME]
        self.ended, self.going, self.lock = threading.Event(), threading.Event(), threading.Lock()
        self.failures, self.surfaced = [], []
        self.counters, self.documents, self.pairs, self.due = {}, set(), set(), {}
        self.next = {}
        self.prepare()
        names = [(f"counter {n}", lambda n=n: self.count(n), True) for n in range(3)]
        names += [(f"documents {n}", lambda n=n: self.insert(n), True) for n in range(2)]
        names += [("transactions", self.transact, True), ("policy", self.expire, True)]
        names += [(f"causal {n}", lambda n=n, state={}: self.read_own(n, state), True) for n in range(2)]
        self.workers = [Worker(self, *one) for one in names]

    def connect(self, **options) -> pymongo.MongoClient:
        given = {
            "w": "majority", "serverSelectionTimeoutMS": 60_000, "connectTimeoutMS": 3000, "heartbeatFrequencyMS": 1000,
            "localThresholdMS": 1000,
        }
        return pymongo.MongoClient(self.cluster.connection_string, **{**given, **options})

    def prepare(self) -> None:
        for name in (*COLLECTIONS, "late", "moving"):
            self.db.create_collection(name)
        self.db.moving.insert_many({"_id": n} for n in range(500))
        self.db.policy.create_index("at", expireAfterSeconds=0)
        self.db.documents.create_index("n")
        self.db.counters.insert_many({"_id": n, "n": 0} for n in range(3))
        self.db.own.insert_many({"_id": n, "n": 0} for n in range(2))
        self.counters = dict.fromkeys(range(3), 0)
        # Every stream begins here.
        self.begin = self.client.admin.command("ping")["operationTime"]

    def start(self) -> None:
        self.going.set()
        for worker in self.workers:
            worker.thread.start()

    def fail(self, text: str) -> None:
        with self.lock:
            self.failures.append(text)

    def note(self, name: str, error: PyMongoError) -> None:
        """An error that the driver returned: by its labels the application may try again, or it may not."""
        labels = [label for label in LABELS if error.has_error_label(label)]
        text = f"{name}: {type(error).__name__} {getattr(error, 'code', '')} {labels} {error}"[:400]
        with self.lock:
            (self.surfaced if labels else self.failures).append(text)

    # What each client does.

    def count(self, n: int) -> None:
        """One more; after an error with an unknown outcome, the counter says what became of it."""
        try:
            self.db.counters.update_one({"_id": n}, {"$inc": {"n": 1}})
        except PyMongoError as error:
            self.note(f"counter {n}", error)
            found = self.db.counters.find_one({"_id": n})["n"]
            if found - self.counters[n] not in (0, 1):
                self.fail(f"counter {n} is {found}, acknowledged were {self.counters[n]}")
            self.counters[n] = found
            return
        self.counters[n] += 1

    def insert(self, worker: int) -> None:
        number = self.next.get(worker, 0)
        key = f"{worker}-{number:07}"
        try:
            self.db.documents.insert_one({"_id": key, "worker": worker, "n": number, "text": "x" * 100})
        except DuplicateKeyError:
            # Only an attempt whose outcome was unknown may have written it.
            if self.next.get((worker, "unknown")) != number:
                self.fail(f"document {key} was there before it was inserted")
        except PyMongoError:
            self.next[worker, "unknown"] = number
            raise
        self.next[worker] = number + 1
        self.documents.add(key)

    def transact(self) -> None:
        number = self.next.get("pairs", 0)

        def write(session):
            self.db.left.insert_one({"_id": number}, session=session)
            self.db.right.insert_one({"_id": number}, session=session)

        with self.client.start_session() as session:
            try:
                session.with_transaction(write)
            except DuplicateKeyError:
                if self.next.get("unknown pair") != number:
                    raise
            except PyMongoError:
                self.next["unknown pair"] = number
                raise
        self.next["pairs"] = number + 1
        self.pairs.add(number)

    def expire(self) -> None:
        """Documents that are due soon, and others that are not due for an hour."""
        number = self.next.get("policy", 0)
        stays = number % 4 == 0
        at = utc() + datetime.timedelta(seconds=3600 if stays else DUE_SECS)
        # A moment before the write: the stream may show the deletion before the acknowledgement.
        self.due[number] = at
        self.next["policy"] = number + 1
        try:
            self.db.policy.insert_one({"_id": number, "at": at, "stays": stays})
        except PyMongoError:
            # It may be there or not; the next one has another number.
            self.next.setdefault("unknown policy", set()).add(number)
            raise

    def read_own(self, n: int, state: dict) -> None:
        """Writes on the primary, and reads on a secondary what was written: a causally consistent session."""
        if "session" not in state:
            state["session"] = self.client.start_session(causal_consistency=True)
        session = state["session"]
        found = self.db.own.find_one_and_update({"_id": n}, {"$inc": {"n": 1}}, session=session, return_document=True)
        secondary = self.db.own.with_options(
            read_preference=ReadPreference.SECONDARY_PREFERRED, read_concern=ReadConcern("majority"),
        )
        read = secondary.find_one({"_id": n}, session=session)
        if read is None or read["n"] != found["n"]:
            self.fail(f"a causal read gives {read}, written was {found}")

    # What the test does with all of them.

    def pause(self) -> None:
        """Stops the clients between two operations."""
        self.going.clear()
        deadline = time.monotonic() + 90
        while not all(worker.idle for worker in self.workers):
            if time.monotonic() > deadline:
                busy = [worker.name for worker in self.workers if not worker.idle]
                raise TimeoutError(f"clients do not finish their operation: {busy}")
            time.sleep(0.02)

    def go_on(self) -> None:
        for worker in self.workers:
            worker.last = time.monotonic()
        self.going.set()

    def go_on_if_paused(self) -> None:
        if not self.going.is_set():
            self.go_on()

    def forget_pauses(self) -> None:
        for worker in self.workers:
            worker.longest = 0.0

    def await_writes(self, seconds: float = 90) -> float:
        """Waits until every client has succeeded again; returns the longest pause of one of them."""
        before = {worker: worker.count for worker in self.workers}
        deadline = time.monotonic() + seconds
        while any(worker.count < count + 2 for worker, count in before.items()):
            if time.monotonic() > deadline:
                late = [worker.name for worker, count in before.items() if worker.count < count + 2]
                raise TimeoutError(f"no success within {seconds:.0f} s: {late}; {self.surfaced[-3:]}")
            time.sleep(0.02)
        return max(worker.pause_so_far() for worker in self.workers)

    def end(self) -> None:
        self.ended.set()
        self.going.set()
        for worker in self.workers:
            worker.thread.join(60)
        self.client.close()
