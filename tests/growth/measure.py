#!/usr/bin/env python3
"""Finds operations whose time grows faster than the data: executes each with a small and an eight times larger number.

    measure.py [--postgres URL] [PATTERN]    MAYFLYDB_BIN is the server; PATTERN selects cases by their names

A line for each case: the sizes, the time of the client and the processor time of the server in seconds, and how many times
as much time a unit of the larger size took. Lines with more than 1.7 times as much end with `<<<`. Use a release build on a
quiet machine; this is a tool for finding such operations and no test, because it measures time.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cluster"))
from run import server_binary, with_pymongo  # noqa: E402

LEAST_SECS, GROWTH, SHOWN_SECS = 0.002, 1.7, 0.1


class Server:
    """A server with an empty data folder, or over an empty PostgreSQL database."""

    def __init__(self, postgres: str | None):
        self.folder = Path(tempfile.mkdtemp(prefix="mayflydb-growth-"))
        data = self.folder / "data"
        data.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        store = ["--storageEngine", "postgres", "--storageUrl", postgres] if postgres else ["--dbpath", str(data)]
        command = [str(server_binary()), "--port", str(self.port), *store]
        log = (self.folder / "log").open("w")
        settings = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}
        self.process = subprocess.Popen(command, cwd=self.folder, env=settings, stdout=log, stderr=subprocess.STDOUT)

    def client(self):
        import pymongo

        return pymongo.MongoClient("127.0.0.1", self.port, serverSelectionTimeoutMS=20_000)

    def processor_secs(self) -> float:
        from programs import processor_secs

        return processor_secs([self.process.pid])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


def measure(server: Server, client, case, size: int) -> tuple[float, float, str]:
    """The client's time and the server's processor time for an operation, and the error with which it failed."""
    client.drop_database("growth")
    act = case.prepare(client.growth, size)
    time.sleep(0.05)
    began, worked = time.monotonic(), server.processor_secs()
    error = ""
    try:
        act()
    except Exception as failure:
        error = str(failure)[:120]
    took = time.monotonic() - began
    time.sleep(0.03)
    return took, server.processor_secs() - worked, error


def main() -> None:
    with_pymongo()
    from cases import CASES

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--postgres", metavar="URL", help="an empty database, for a server over PostgreSQL")
    arguments.add_argument("pattern", nargs="?", default="", help="a regular expression for the names of cases")
    chosen = arguments.parse_args()
    server = Server(chosen.postgres)
    try:
        client = server.client()
        for case in (case for case in CASES if re.search(chosen.pattern, case.name)):
            sizes = case.size, case.size * 8
            (small, _, failed), (large, worked, error) = (measure(server, client, case, size) for size in sizes)
            growth = large / max(small, LEAST_SECS) / 8
            mark = "<<<" if growth > GROWTH and large > SHOWN_SECS else ""
            columns = f"{case.name:32} {sizes[0]:7} {sizes[1]:7}  {small:8.3f} {large:8.3f} {worked:8.2f}  {growth:6.2f} {mark}"
            print(columns, failed or error, flush=True)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
