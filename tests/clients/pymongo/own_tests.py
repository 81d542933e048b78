#!/usr/bin/env python3
"""Runs tests of PyMongo itself, against a server without a replica set and against one with a set of one member.

usage: own_tests.py SOURCE [argument of pytest ...]

SOURCE is the folder of PyMongo's source distribution. Without arguments, the files are those that the lists below
name. What cannot pass is in `left_out.txt`.
"""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from run import LOGS, TEST_COMMANDS, Server, server_binary  # noqa: E402

POSTURES = {"router": [], "member": ["--replSet", "rs0"]}
# Specifications of the drivers that depend on answers of the server, and differ between the postures.
FILES = [
    "test/test_change_stream.py", "test/test_read_write_concern_spec.py", "test/test_run_command.py", "test/test_session.py",
    "test/test_sessions_unified.py", "test/test_transactions.py",
]
# Those whose answers are the same in both. Others, such as test_crud_unified.py, take longer: by hand.
ROUTER_FILES = [
    "test/test_causal_consistency.py", "test/test_collection_management.py", "test/test_index_management.py",
    "test/test_retryable_writes_unified.py", "test/test_transactions_unified.py", "test/test_versioned_api_integration.py",
]
# After this time the stacks of a test that hangs are printed. The limit of the suite ends it.
TEST_SECS = 120


@contextmanager
def lonely_port():
    """A free port whose next one is taken: the tests look there for a second router."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            first.close()
            yield port
            return


def run_tests(source: Path, posture: str, arguments: list[str]) -> bool:
    """Runs the tests in a posture; returns whether they and the server ended well."""
    log = LOGS / f"pymongo.{posture}.log"
    with lonely_port() as port:
        server = Server(server_binary(), log, *TEST_COMMANDS, *POSTURES[posture], port=port)
        with server:
            command = [
                sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "left_out", "--posture", posture,
                "-o", "addopts=", "-o", f"faulthandler_timeout={TEST_SECS}", "-m", "default or default_async", "-rfEX", "--tb=short",
                *arguments,
            ]
            environment = {**os.environ, "DB_IP": "127.0.0.1", "DB_PORT": str(port), "PYTHONPATH": str(HERE)}
            status = subprocess.run(command, cwd=source, env=environment).returncode
    complaints = server.complaints()
    for complaint in complaints:
        print(f"1 failed in 0.0s: {posture}: {complaint}")
    return status == 0 and not complaints


def main() -> int:
    source, given = Path(sys.argv[1]), sys.argv[2:]
    files = {"router": FILES + ROUTER_FILES, "member": FILES}
    passed = [run_tests(source, posture, given or files[posture]) for posture in POSTURES]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
