"""A disk that gets full, on the side of a backup, of the archive of the log, and of a restore. Only root can mount such disks."""

import os
import subprocess
import time
from contextlib import contextmanager
from datetime import datetime, timezone

import pytest

from test_backup import BINARY, ENVIRONMENT, back_up, fails, hashes, noise, restore, server, succeeds, task, until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount file systems")


@contextmanager
def disk(folder, megabytes):
    """A file system of this size; yields a function that changes it."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "test", folder], check=False)
    if mounted.returncode != 0:
        pytest.skip("this container cannot mount file systems")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}m", folder], check=True)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_destination_that_is_full(tmp_path):
    with disk(tmp_path / "backups", 8) as resize, server(tmp_path / "data", "--backupFolder", tmp_path / "backups") as one:
        one.repository = tmp_path / "backups" / "daily"
        one.client.t.big.insert_many({"_id": i, "x": noise(1000)} for i in range(20_000))
        fails(1, "No space left", "backup", "--uri", one.uri, "--to", "daily")
        assert "No space left" in one.client.admin.command("backupStatus")["failed"]["errmsg"]
        assert one.checkpoints() == [] and "no complete backup" in succeeds("backup", "list", "--to", one.repository)
        # The server does not mind.
        one.client.t.big.insert_one({"_id": -1})
        resize(100)
        back_up(one)
        assert "is whole" in succeeds("backup", "verify", "--to", one.repository)
        expected = hashes(one.client)
        restore(one, tmp_path / "restored")
    with server(tmp_path / "restored") as restored:
        assert hashes(restored.client) == expected


def test_an_archive_that_is_full_goes_on_later(tmp_path):
    repository = tmp_path / "backups" / "daily"
    words = ("--backupFolder", tmp_path / "backups", "--backupTo", repository, "--backupLogIntervalSecs", "1")
    with disk(tmp_path / "backups", 6) as resize, server(tmp_path / "data", *words) as one:
        one.repository = repository
        one.client.t.c.insert_one({"_id": 0})
        back_up(one)
        for part in range(10):
            one.client.t.c.insert_many({"_id": 1 + 1000 * part + i, "x": noise(1000)} for i in range(1000))
        archive = lambda: one.client.admin.command("backupStatus")["archive"]
        until(lambda: "No space left" in archive().get("errmsg", ""))
        resize(100)
        now = one.client.admin.command("ping")["operationTime"]
        until(lambda: archive()["archivedUpTo"] >= now and "errmsg" not in archive())
        assert archive()["gaps"] == 0
        assert "is whole" in succeeds("backup", "verify", "--to", repository)


def test_a_restore_on_a_disk_that_is_full(tmp_path):
    words = ("--backupFolder", tmp_path / "backups", "--backupTo", tmp_path / "backups" / "daily", "--backupLogIntervalSecs", "1")
    with server(tmp_path / "data", *words) as one:
        one.repository = tmp_path / "backups" / "daily"
        one.client.t.big.insert_many({"_id": i, "x": noise(1000)} for i in range(10_000))
        back_up(one)
        for part in range(1, 5):
            one.client.t.big.insert_many({"_id": 10_000 * part + i, "x": noise(1000)} for i in range(10_000))
        expected, now = hashes(one.client), one.client.admin.command("ping")["operationTime"]
        until(lambda: one.client.admin.command("backupStatus")["archive"]["archivedUpTo"] >= now)
    at = datetime.fromtimestamp(now.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with disk(tmp_path / "disk", 5) as resize:
        target = tmp_path / "disk" / "data"
        words = ("restore", "--from", one.repository, "--dbpath", target, "--at", at)
        fails(100, "the disk is full", *words)
        assert not target.exists()
        # Room for the files, but not for the log after them: the replay finds it full at several points.
        for megabytes in (16, 40):
            resize(megabytes)
            ended = task(*words)
            assert ended.returncode == 100 and len(ended.stderr.splitlines()) == 1, ended.stderr
            assert "free space on its disk" in ended.stderr, ended.stderr
            fails(100, "a restore into it is not complete", "--dbpath", target, "--port", "0")
        resize(400)
        succeeds(*words)
        with server(target) as restored:
            assert hashes(restored.client) == expected
            restored.stop()
        assert "No faults were found" in succeeds("check", "--dbpath", target)


def test_a_disk_that_another_program_fills(tmp_path):
    """While files are being fetched."""
    with server(tmp_path / "data", "--backupFolder", tmp_path / "backups") as one:
        one.repository = tmp_path / "backups" / "daily"
        one.client.t.big.insert_many({"_id": i, "x": noise(1000)} for i in range(20_000))
        back_up(one)
        expected = hashes(one.client)
    with disk(tmp_path / "disk", 40):
        target, other = tmp_path / "disk" / "data", tmp_path / "disk" / "other"
        command = ("restore", "--from", one.repository, "--dbpath", target)
        process = subprocess.Popen([BINARY, *map(str, command), "--maxMBps", "4"], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        until(lambda: target.exists())
        time.sleep(0.3)
        with open(other, "wb") as filler, pytest.raises(OSError, match="No space"):
            for _ in range(100):
                filler.write(b"x" * (1 << 20))
                filler.flush()
        _, text = process.communicate(timeout=60)
        assert process.returncode == 100 and "No space left" in text, text
        other.unlink()
        succeeds(*command)
        with server(target) as restored:
            assert hashes(restored.client) == expected
