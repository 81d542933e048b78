"""`mayflydb check`: a folder without faults, damaged bytes, and what is refused. Nothing changes the folder."""

import random

import pytest

from test_backup import fill, noise, server, task


@pytest.fixture
def folder(tmp_path):
    """A data folder with tables, of a server that was stopped."""
    with server(tmp_path / "data") as one:
        fill(one.client)
        one.client.t.big.insert_many({"_id": i, "x": noise(500)} for i in range(5000))
        one.client.t.big.create_index("x")
        one.client.t.big.delete_many({"_id": {"$lt": 100}})
        # Everything is written into tables.
        one.client.admin.command("fsync", lock=True)
        one.client.admin.command("fsyncUnlock")
    return tmp_path / "data"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "RESERVE"}


def check(folder, *more):
    return task("check", "--dbpath", folder, *more)


def test_a_folder_without_faults(folder):
    before = contents(folder)
    ended = check(folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "No faults were found." in ended.stdout and "entries of the operation log" in ended.stdout
    assert contents(folder) == before
    assert check(folder, "--repair").returncode == 0
    assert contents(folder) == before
    with server(folder) as one:
        assert one.client.t.big.count_documents({}) == 4900


def flip_a_byte(folder):
    """Damages the largest table; returns its path."""
    damaged = max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    whole = damaged.read_bytes()
    # The end of a table is its index and its properties; a block of data is near the front.
    at = random.randrange(len(whole) // 10, len(whole) // 2)
    damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    return damaged


def test_a_flipped_byte_is_found(folder):
    damaged = flip_a_byte(folder)
    before = contents(folder)
    ended = check(folder)
    assert ended.returncode == 14, ended.stdout + ended.stderr
    assert "restore a backup" in ended.stderr and damaged.name in ended.stdout
    assert contents(folder) == before
    damaged.unlink()
    missing = check(folder)
    assert missing.returncode == 14 and damaged.name in missing.stderr, missing.stderr


def test_what_is_refused(folder, tmp_path):
    with server(folder):
        running = check(folder)
        assert running.returncode == 100 and "has it open" in running.stderr
    for other in (tmp_path / "none", tmp_path):
        refused = check(other)
        assert refused.returncode == 100 and "it contains no store" in refused.stderr
    (folder / "MAYFLYDB_FORMAT").write_text("99\n")
    newer = check(folder)
    assert newer.returncode == 62 and "format 99" in newer.stderr


def test_a_repair_of_an_older_format_names_the_upgrade(folder):
    # Formats 4 and 5 differ only in what a server writes.
    (folder / "MAYFLYDB_FORMAT").write_text("4\n")
    assert check(folder, "--repair").returncode == 0
    flip_a_byte(folder)
    before = contents(folder)
    assert check(folder).returncode == 14
    refused = check(folder, "--repair")
    assert refused.returncode == 62 and "--upgrade" in refused.stderr, refused.stderr
    assert contents(folder) == before
