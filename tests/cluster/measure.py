#!/usr/bin/env python3
"""Measures two servers of a cluster against one: processor time per read, takeovers, the delay of change events, idle streams.

    measure.py [PART...]    MAYFLYDB_BIN is the server; parts: reads, delays, causal, idle, takeovers (all by default)

The results are those of docs/cluster.md.

The clients run on the same machine, so that it is the processor time that counts, not the reads per second.
"""

import asyncio
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from run import SIGNALS, ignore_signals, server_binary, with_pymongo

DOCUMENTS, THREADS, READ_SECS = 20_000, 4, 6
COMMITS_PER_SEC, DELAY_SECS = 700, 20
CAUSAL_READS, CAUSAL_PAUSE_SECS = 20, 2.5
STREAMS, AWAIT_MS, IDLE_SECS = 2000, 10_000, 20


def fill(client) -> None:
    items = client.m.items
    for first in range(0, DOCUMENTS, 1000):
        items.insert_many({"_id": n, "a": n // 200, "b": n % 7, "text": "x" * 300} for n in range(first, first + 1000))
    items.create_index("a")


def read(cluster, servers, name, act, documents) -> None:
    """Threads that read from these servers by turns; prints the processor time of each read."""
    from programs import processor_secs

    clients = [server.client(readPreference="secondaryPreferred") for server in servers]
    counts, end = [0] * THREADS, time.monotonic() + READ_SECS

    def work(which):
        n = which
        while time.monotonic() < end:
            act(clients[n % len(clients)].m.items, n)
            counts[which] += 1
            n += THREADS + 1

    primary = cluster.primary()
    before = [processor_secs([server.pid]) for server in cluster.servers], processor_secs(primary.processes())
    threads = [threading.Thread(target=work, args=[which]) for which in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = [processor_secs([server.pid]) for server in cluster.servers], processor_secs(primary.processes())
    reads = sum(counts)
    own = [(late - early) / reads * 1e6 for early, late in zip(before[0], after[0])]
    base = (after[1] - before[1]) / reads * 1e6
    texts = ", ".join(f"{micros:.0f}" for micros in own)
    print(f"{name}, {len(servers)} server(s): {reads / READ_SECS:.0f} reads/s; us per read: servers {texts}, PostgreSQL {base:.0f}"
          + (f"; {documents} documents each" if documents > 1 else ""), flush=True)
    for client in clients:
        client.close()


def reads(cluster) -> None:
    owner = cluster.owner()
    both = [owner, *(server for server in cluster.servers if server is not owner)][:2]
    kinds = [
        ("find by _id", lambda items, n: items.find_one({"_id": n * 7919 % DOCUMENTS}), 1),
        ("200 documents by an index", lambda items, n: list(items.find({"a": n % 100}, batch_size=300)), 200),
        ("$group of all", lambda items, n: list(items.aggregate([{"$group": {"_id": "$b", "n": {"$sum": "$a"}}}])), DOCUMENTS),
    ]
    for kind in kinds:
        read(cluster, both[:1], *kind)
        read(cluster, both, *kind)


def takeovers(cluster, client, rounds: int = 7) -> None:
    found = []
    for number in range(rounds):
        owner = cluster.await_whole()
        client.m.takeovers.insert_one({"before": number})
        time.sleep(1)
        killed = time.monotonic()
        owner.kill()
        client.m.takeovers.insert_one({"after": number})
        found.append(time.monotonic() - killed)
        owner.start()
    texts = ", ".join(f"{secs:.2f}" for secs in sorted(found))
    print(f"takeover after kill -9, to the next acknowledged write: median {statistics.median(found):.2f} s of {texts}", flush=True)


def follow(port: str, count: str) -> None:
    """A process of its own: receives events, and prints how late they are."""
    import pymongo

    client = pymongo.MongoClient("127.0.0.1", int(port), directConnection=True, readPreference="secondaryPreferred")
    late, wanted = [], int(count)
    with client.m.events.watch(max_await_time_ms=1000) as stream:
        print("ready", flush=True)
        while len(late) < wanted:
            if event := stream.try_next():
                late.append(time.time() - event["fullDocument"]["sent"])
    print(json.dumps(late), flush=True)


def delays(cluster, client) -> None:
    owner = cluster.await_whole()
    secondary = next(server for server in cluster.servers if server is not owner)
    client.m.create_collection("events")
    count = COMMITS_PER_SEC * DELAY_SECS
    words = [sys.executable, "-B", __file__, "follow", str(secondary.port), str(count)]
    follower = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert follower.stdout.readline() == "ready\n"
        begun, writers = time.monotonic(), 8
        took = [0.0] * count

        def write(which):
            for n in range(which, count, writers):
                time.sleep(max(0, begun + n / COMMITS_PER_SEC - time.monotonic()))
                sent = time.time()
                client.m.events.insert_one({"sent": sent})
                took[n] = time.time() - sent

        threads = [threading.Thread(target=write, args=[which]) for which in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = count / (time.monotonic() - begun)
        late = json.loads(follower.stdout.readline())
    finally:
        follower.kill()
        follower.wait()
    for name, values in (("acknowledgement", took), ("event on the secondary", late)):
        parts = statistics.quantiles(values, n=100)
        print(f"{rate:.0f} commits/s, from the insert to the {name}: p50 {parts[49] * 1000:.0f} ms, p99 {parts[98] * 1000:.0f} ms")


def causal(cluster, client) -> None:
    """Writes after a pause, each followed by a read of a secondary in a causally consistent session."""
    from pymongo import ReadPreference
    from pymongo.read_concern import ReadConcern

    cluster.await_whole()
    client.m.own.insert_one({"_id": 1, "n": 0})
    secondary = client.m.own.with_options(read_preference=ReadPreference.SECONDARY, read_concern=ReadConcern("majority"))
    took = []
    with client.start_session(causal_consistency=True) as session:
        for n in range(1, CAUSAL_READS + 1):
            time.sleep(CAUSAL_PAUSE_SECS)
            client.m.own.update_one({"_id": 1}, {"$set": {"n": n}}, session=session)
            begun = time.monotonic()
            assert secondary.find_one({"_id": 1}, session=session)["n"] == n
            took.append(time.monotonic() - begun)
    print(f"causally consistent read of an idle secondary after a write: p50 {statistics.median(took) * 1000:.1f} ms, "
          f"longest {max(took) * 1000:.1f} ms", flush=True)


async def open_streams(port: int, ready, done) -> None:
    from pymongo import AsyncMongoClient

    client = AsyncMongoClient("127.0.0.1", port, directConnection=True, readPreference="secondaryPreferred", maxPoolSize=None)
    opened = 0

    async def one():
        nonlocal opened
        async with await client.m.idle.watch(max_await_time_ms=AWAIT_MS) as stream:
            opened += 1
            while not done.is_set():
                await stream.try_next()

    tasks = [asyncio.ensure_future(one()) for _ in range(STREAMS)]
    while opened < STREAMS and not done.is_set():
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.1)
    ready.set()
    while not done.is_set():
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


def idle(cluster, client) -> None:
    from programs import processor_secs

    owner = cluster.await_whole()
    secondary = next(server for server in cluster.servers if server is not owner)
    client.m.create_collection("idle")

    def percent(secs):
        pids = [secondary.pid], cluster.primary().processes()
        before = [processor_secs(some) for some in pids]
        time.sleep(secs)
        return [(processor_secs(some) - early) / secs * 100 for some, early in zip(pids, before)]

    without = percent(10)
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(open_streams(secondary.port, ready, done)), daemon=True)
    thread.start()
    try:
        if not ready.wait(90):
            raise TimeoutError("the streams are not open within 90 s")
        time.sleep(3)
        with_streams = percent(IDLE_SECS)
    finally:
        done.set()
        thread.join(30)
    print(f"idle secondary: {without[0]:.1f} percent of a core, PostgreSQL {without[1]:.1f}; with {STREAMS} idle streams "
          f"(getMore every {AWAIT_MS / 1000:.0f} s): {with_streams[0]:.1f}, PostgreSQL {with_streams[1]:.1f}", flush=True)


PARTS = {
    "reads": lambda cluster, _: reads(cluster), "delays": lambda cluster, client: delays(cluster, client),
    "causal": lambda cluster, client: causal(cluster, client), "idle": lambda cluster, client: idle(cluster, client),
    "takeovers": lambda cluster, client: takeovers(cluster, client),
}


def main(parts) -> None:
    from topology import Cluster

    import pymongo

    folder = Path(tempfile.mkdtemp(prefix="mayflydb-cluster-"))
    folder.chmod(0o711)
    settings = {"fsync": "off"}
    cluster = Cluster(folder, server_binary(), 2, settings=settings)
    try:
        cluster.start()
        client = pymongo.MongoClient(cluster.connection_string, w="majority", serverSelectionTimeoutMS=60_000)
        fill(client)
        for part in parts:
            PARTS[part](cluster, client)
    finally:
        ignore_signals()
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with_pymongo()
    if sys.argv[1:2] == ["follow"]:
        follow(*sys.argv[2:])
    else:
        unknown = [part for part in sys.argv[1:] if part not in PARTS]
        if unknown:
            sys.exit(f"unknown: {', '.join(unknown)}; parts are {', '.join(PARTS)}")
        # `kill` and a terminal that is closed end the cluster as Ctrl-C does.
        for number in SIGNALS:
            signal.signal(number, signal.default_int_handler)
        main(sys.argv[1:] or list(PARTS))
