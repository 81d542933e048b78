"""What must be true after each fault: nothing acknowledged is lost or applied twice, and every server answers the same."""

import datetime
import hashlib
import subprocess
import threading
import time

from pymongo.errors import OperationFailure, PyMongoError

from load import COLLECTIONS, NAME, utc
from programs import postgres_programs

#: The TTL monitor sleeps so long between two passes.
SLEEP_SECS = 1
#: Two passes with their sleeps, and the time that a busy machine takes for them.
GONE_SECS = 2 * SLEEP_SECS + 2


class Probe:
    """Writes into PostgreSQL itself, without the servers: for how long Patroni's cluster accepts no commit."""

    def __init__(self, cluster):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=2"
        self.command = [postgres_programs() / "psql", "-qX", url, "-c", "insert into probe values (1)"]
        self.ended, self.longest, self.last = threading.Event(), 0.0, time.monotonic()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                done = subprocess.run(self.command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                now = time.monotonic()
                self.longest, self.last = max(self.longest, now - self.last), now
            self.ended.wait(0.1)

    def end(self) -> float:
        """The longest time without a commit."""
        self.ended.set()
        self.thread.join(70)
        return self.longest


def lost_or_twice(load, least: int) -> list[str]:
    """Compares what the owner has with what was acknowledged; of the documents those from this number on."""
    db, wrong = load.db, []
    found = {one["_id"]: one["n"] for one in db.counters.find()}
    if found != load.counters:
        wrong.append(f"counters are {found}, acknowledged were {load.counters}")
    keys = [one["_id"] for one in db.documents.find({"n": {"$gte": least}}, {"_id": 1})]
    acknowledged = {key for key in load.documents if int(key.split("-")[1]) >= least}
    unknown = {f"{n}-{load.next.get((n, 'unknown'), -1):07}" for n in range(2)}
    if lost := acknowledged - set(keys):
        wrong.append(f"{len(lost)} acknowledged documents are lost, such as {min(lost)}")
    if more := set(keys) - acknowledged - unknown:
        wrong.append(f"{len(more)} documents were not acknowledged, such as {min(more)}")
    if len(keys) != len(set(keys)):
        wrong.append("a document is there twice")
    left, right = ([one["_id"] for one in db[side].find({}, {"_id": 1})] for side in ("left", "right"))
    if sorted(left, key=str) != sorted(right, key=str) or not load.pairs <= set(left):
        wrong.append(f"transactions: {len(left)} and {len(right)} documents, {len(load.pairs)} acknowledged")
    if late := db.late.count_documents({}):
        wrong.append(f"{late} writes of a server that had been replaced")
    return wrong


def digest(client, collection: str, condition: dict, session) -> tuple[int, str]:
    """The number of documents, and a sum over all their bytes."""
    found, count = hashlib.sha256(), 0
    cursor = client[NAME][collection].find_raw_batches(condition, sort=[("_id", 1)], batch_size=5000, session=session)
    for batch in cursor:
        found.update(batch)
        count += len(batch)
    return count, found.hexdigest()


def differences(cluster, load, least: int) -> list[str]:
    """Reads all documents from every server, and compares them with those of the first."""
    time_of_last = load.client.admin.command("ping")
    answers, wrong = [], []
    for server in cluster.servers:
        client = server.client(readPreference="secondaryPreferred", socketTimeoutMS=60_000)
        try:
            with client.start_session(causal_consistency=True) as session:
                session.advance_cluster_time(time_of_last["$clusterTime"])
                session.advance_operation_time(time_of_last["operationTime"])
                conditions = {**COLLECTIONS, "documents": {"n": {"$gte": least}}}
                answers.append({name: digest(client, name, one, session) for name, one in conditions.items()})
        except PyMongoError as error:
            wrong.append(f"{server.name} does not answer: {error}")
        finally:
            client.close()
    for answer in answers[1:]:
        if different := [name for name in answer if answer[name] != answers[0][name]]:
            wrong.append(f"the servers differ in {different}")
    return wrong


def invalid(load) -> list[str]:
    wrong = []
    for name in load.db.list_collection_names():
        if name.startswith("system."):
            continue
        try:
            answer = load.db.command("validate", name)
        except OperationFailure as error:
            wrong.append(f"validate of {name}: {error}")
            continue
        if not answer["valid"]:
            wrong.append(f"validate of {name}: {answer.get('errors')}")
    return wrong


def due_are_gone(load) -> tuple[float, list[str]]:
    """How long documents that are due now stay, and whether that is too long."""
    now, begun = utc() - datetime.timedelta(milliseconds=1), time.monotonic()
    while load.db.policy.find_one({"at": {"$lt": now}}):
        if time.monotonic() > begun + 30:
            return 30, ["documents that are due are not deleted"]
        time.sleep(0.05)
    took = time.monotonic() - begun
    return took, [f"documents that were due stayed for {took:.1f} s"] if took > GONE_SECS else []


def stays(load) -> list[str]:
    """Documents of the policy that are not due, and are not there."""
    now = utc()
    acknowledged = load.next.get("policy", 0)
    expected = [key for key, at in list(load.due.items()) if at > now + datetime.timedelta(minutes=10) and key < acknowledged]
    found = {one["_id"] for one in load.db.policy.find({"stays": True}, {"_id": 1})}
    missing = [key for key in expected if key not in found and key not in load.next.get("unknown policy", ())]
    return [f"{len(missing)} documents are gone that are not due"] if missing else []


def everything(load, streams, cluster, least: int) -> list[str]:
    """All of it, with the clients paused."""
    wrong = lost_or_twice(load, least) + differences(cluster, load, least) + invalid(load) + stays(load)
    wrong += streams.check() + streams.early()
    with load.lock:
        wrong += load.failures
        load.failures.clear()
    return wrong
