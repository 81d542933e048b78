"""Copies of a data folder under `fsync: {lock: true}` during full load: no file changes meanwhile, and each copy is what it was then.

`make torture` makes more of them (FSYNC_COPIES).
"""

import os
import random
import shutil
import subprocess
import threading
import time
from datetime import datetime, timedelta, timezone

from pymongo.errors import OperationFailure

from test_backup import hashes, noise, server, until

COPIES = int(os.environ.get("FSYNC_COPIES", 3))
WRITERS = 4
# Of a collection that is dropped, created or built on meanwhile.
EXPECTED = {26, 48, 11000, 112, 117, 276, 10107}


def load(client, number, ended):
    """Writes, and defines, until the end."""
    db, chance, at = client.load, random.Random(), 0
    while not ended.is_set():
        at += 1
        try:
            match chance.randrange(7):
                case 0 | 1:
                    db[f"c{number}"].insert_many({"n": k, "x": noise(500)} for k in range(200))
                case 2:
                    db[f"c{number}"].update_many({"n": chance.randrange(200)}, {"$set": {"x": noise(500), "at": at}})
                case 3:
                    db[f"c{number}"].delete_many({"n": {"$lt": chance.randrange(60)}})
                case 4:
                    soon = datetime.now(timezone.utc) + timedelta(seconds=chance.randrange(3))
                    db.expiring.insert_many({"at": soon, "x": noise(200)} for _ in range(100))
                case 5:
                    db.series.insert_many({"t": datetime.now(timezone.utc), "m": k % 3, "v": k} for k in range(50))
                case 6 if at % 5 == 0:
                    db[f"made{number}"].insert_many({"n": k} for k in range(100))
                    db[f"made{number}"].create_index("n")
                    db[f"c{number}"].create_index("n")
                    db.drop_collection(f"made{number}")
                    db[f"c{number}"].drop_index("n_1")
                case _:
                    db.command("compact", f"c{number}", force=True)
        except OperationFailure as error:
            assert error.code in EXPECTED, error


def state(folder):
    """What would be different if a file had changed, or had been replaced."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        # The log of RocksDB, and what the server says of itself, are no data.
        if path.is_file() and not path.name.startswith("LOG") and path.name != "running.json":
            found[str(path.relative_to(folder))] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def copies(folder, to):
    """Two ways to copy it, or one where the other program is not installed."""
    ways = [["cp", "-a", str(folder), str(to)]]
    if shutil.which("rsync"):
        ways.append(["rsync", "-a", f"{folder}/", f"{to}/"])
    return ways


def test_fsync_copies(tmp_path):
    every_second = ("--setParameter", "ttlMonitorSleepSecs=1", "--oplogSize", "8")
    with server(tmp_path / "data", *every_second) as one:
        db, ended = one.client.load, threading.Event()
        db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        db.expiring.create_index("at", expireAfterSeconds=0)
        threads = [threading.Thread(target=load, args=(one.client, number, ended)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            for number in range(COPIES):
                time.sleep(random.random() * 2)
                one.client.admin.command("fsync", lock=True)
                before, expected = state(one.folder), hashes(one.client)
                ways = copies(one.folder, tmp_path / "copy")
                subprocess.run(ways[number % len(ways)], check=True)
                # Longer than the intervals of all threads that work in the background.
                time.sleep(1.5)
                after, again = state(one.folder), hashes(one.client)
                one.client.admin.command("fsyncUnlock")
                assert after == before and again == expected
                with server(tmp_path / "copy", "--setParameter", "ttlMonitorEnabled=false") as copied:
                    assert hashes(copied.client) == expected
                    names = copied.client.load.list_collection_names(filter={"type": "collection"})
                    assert all(copied.client.load.validate_collection(name)["valid"] for name in names)
                    copied.stop()
                shutil.rmtree(tmp_path / "copy")
                until(lambda: all(thread.is_alive() for thread in threads))
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert not one.client.admin.command("currentOp").get("fsyncLock")
