"""Backups of a store in PostgreSQL, and restores between PostgreSQL and data folders."""

import random
import subprocess
import threading
import time
from datetime import datetime, timezone


from test_backup import BINARY, ENVIRONMENT, back_up, fails, fill, hashes, noise, server, succeeds, until


def over(tmp_path, name, url, *arguments):
    """A server whose store is in a database, with its archive of the log."""
    folder = tmp_path / f"backups-{name}"
    words = ("--storageEngine", "postgres", "--storageUrl", url, "--backupFolder", folder, *arguments)
    one = server(tmp_path / name, *words)
    return one, folder / "daily"


def test_a_store_in_postgres_is_backed_up_while_clients_write(postgres, tmp_path):
    context, repository = over(tmp_path, "source", postgres.database())
    with context as one:
        one.repository = repository
        fill(one.client)
        one.client.shop.orders.delete_many({"_id": {"$gte": 2900}})
        one.stop()
        one.arguments += ("--backupTo", repository, "--backupLogIntervalSecs", "1")
        one.start()
        ended = threading.Event()

        def write():
            for number in range(10**6):
                if ended.is_set():
                    return
                # In one transaction: a backup has both or none.
                with one.client.start_session() as session, session.start_transaction():
                    one.client.t.a.insert_one({"_id": number, "x": noise(100)}, session=session)
                    one.client.t.b.insert_one({"_id": number}, session=session)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            time.sleep(0.5)
            assert "is complete" in succeeds("backup", "--uri", one.uri, "--to", "daily")
            time.sleep(0.5)
        finally:
            ended.set()
            thread.join()
        expected = hashes(one.client)
        at = one.client.admin.command("ping")["operationTime"]
        until(lambda: one.client.admin.command("backupStatus")["archive"]["archivedUpTo"] >= at)
        assert "is whole" in succeeds("backup", "verify", "--to", repository)
    # The backup alone, and with the log after it.
    succeeds("restore", "--from", repository, "--dbpath", tmp_path / "alone")
    with server(tmp_path / "alone") as restored:
        numbers = [sorted(found["_id"] for found in restored.client.t[name].find()) for name in "ab"]
        assert numbers[0] == numbers[1] == list(range(len(numbers[0]))) and numbers[0]
        assert hashes(restored.client)["shop"] == expected["shop"]
        restored.stop()
    assert "No faults were found" in succeeds("check", "--dbpath", tmp_path / "alone")
    text = datetime.fromtimestamp(at.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    url = postgres.database()
    words = ("restore", "--from", repository, "--at", text, "--dbpath", tmp_path / "again", "--storageUrl", url)
    assert "was restored into the database" in succeeds(*words)
    context, _ = over(tmp_path, "again", url)
    with context as restored:
        assert hashes(restored.client) == expected
        assert restored.client.admin.command("ttlStatus")["suspended"]["reason"] == "restored"
        assert restored.client.shop.validate_collection("orders", full=True)["valid"]


def test_a_data_folder_moves_into_postgres(postgres, tmp_path):
    with server(tmp_path / "data", "--backupFolder", tmp_path / "backups") as one:
        fill(one.client)
        one.client.shop.orders.delete_many({"_id": {"$gte": 2900}})
        back_up(one)
        expected = hashes(one.client)
    url, folder = postgres.database(), tmp_path / "moved"
    words = ["restore", "--from", str(tmp_path / "backups" / "daily"), "--dbpath", str(folder), "--storageUrl", url]
    starts = ["--dbpath", tmp_path / "other", "--port", "0", "--storageEngine", "postgres", "--storageUrl", url]
    tables = "select count(*) from pg_tables where schemaname = 'mayflydb' and tablename = 'catalog'"
    for _ in range(8):
        process = subprocess.Popen([BINARY, *words], stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        time.sleep(0.2 + random.random())
        process.kill()
        process.wait()
        if postgres.ask(url, tables) == "0":
            continue
        if (folder / "RESTORE_UNFINISHED").exists():
            if postgres.ask(url, "select count(*) from mayflydb.catalog where key = '\\x78'") == "1":
                fails(100, "a restore into it is not complete", *starts)
        elif postgres.ask(url, "select count(*) from mayflydb.catalog") != "0":
            # Complete, even if the process was killed: the folder's mark is removed last.
            break
    else:
        succeeds(*words)
    assert list(folder.iterdir()) == []
    context, _ = over(tmp_path, "moved", url)
    with context as restored:
        assert hashes(restored.client) == expected
        db = restored.client.shop
        assert db.seen.count_documents({}) == 10 and db.measured.count_documents({}) == 1000
        assert all(db.validate_collection(name)["valid"] for name in ("orders", "capped", "clustered"))
        words[4] = str(tmp_path / "new")
        fails(100, "another server has the store open", *words)
        restored.stop()
    fails(100, "it contains a store", *words)
    assert not (tmp_path / "new").exists()
