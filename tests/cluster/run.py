#!/usr/bin/env python3
"""Tests a cluster under faults (`make cluster-test`), or keeps one running until Ctrl-C (`make cluster`).

    run.py test [--short] [--servers 3] [--match TEXT] [--keep]
    run.py keep [--data ./data-cluster] [--servers 2] [--port 27017]

MAYFLYDB_BIN is the server; otherwise the debug build, or the release build.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("MAYFLY_CACHE") or Path.home() / ".cache/mayflydb")
#: Processes are killed, and the machine goes on: its page cache is not lost. pg_rewind needs full_page_writes.
FAST = {"fsync": "off"}


def with_pymongo() -> None:
    """Executes the program again with a Python that has the pymongo of the client suites."""
    try:
        import pymongo  # noqa: F401
        return
    except ImportError:
        if os.environ.get("CLUSTER_PYTHON"):
            raise
    wanted = (ROOT / "tests/clients/python/requirements.txt").read_text().split()
    packages = [one for one in wanted if one.startswith(("pymongo==", "dnspython=="))]
    folder = CACHE / "clients" / f"cluster-{'-'.join(packages).replace('==', '-')}"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "--no-deps", *packages], check=True)
        (folder / ".complete").touch()
    python = str(folder / "bin/python")
    os.execve(python, [python, "-B", *sys.argv], {**os.environ, "CLUSTER_PYTHON": python})


def server_binary() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or CACHE / "target")
    candidates = [Path(named)] if (named := os.environ.get("MAYFLYDB_BIN")) else [target / "debug/mayflydb", target / "release/mayflydb"]
    for candidate in candidates:
        if candidate.exists():
            return candidate.resolve()
    sys.exit(f"no server binary at {', '.join(map(str, candidates))}: build it, or set MAYFLYDB_BIN")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_signals() -> None:
    """A second Ctrl-C does not interrupt the end of the processes."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Run:
    """One test: the cluster, its clients, and the counts."""

    def __init__(self, cluster):
        from load import Load
        from streams import Streams

        self.cluster, self.passed, self.failed, self.not_retried, self.least = cluster, 0, 0, 0, 0
        # What a fault adds to its line.
        self.note = ""
        self.load = Load(cluster)
        self.streams = Streams(cluster, self.load)
        self.load.start()

    def fault(self, name: str, act, allowed: float) -> None:
        import checks

        self.note = ""
        surfaced, refused, begun = len(self.load.surfaced), self.not_retried, time.monotonic()
        probe, wrong, paused, away, gone = None, [], 0.0, 0.0, 0.0
        try:
            self.cluster.await_whole()
            self.load.go_on_if_paused()
            self.load.await_writes()
            self.load.forget_pauses()
            probe = checks.Probe(self.cluster)
            act(self)
            self.load.go_on_if_paused()
            paused = self.load.await_writes()
            self.cluster.await_whole()
            away = probe.end()
            gone, wrong = checks.due_are_gone(self.load)
            if paused > max(away, allowed) + 2:
                wrong.append(f"writes paused for {paused:.1f} s, PostgreSQL for {away:.1f} s")
            self.load.pause()
            least, self.least = self.least, min(self.load.next.get(n, 0) for n in range(2))
            wrong += checks.everything(self.load, self.streams, self.cluster, least)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            wrong.append(repr(error))
        finally:
            if probe:
                probe.ended.set()
        text = f"{name}: writes paused {paused:.1f} s, PostgreSQL {away:.1f} s, due gone after {gone:.1f} s"
        surfaced, refused = len(self.load.surfaced) - surfaced, self.not_retried - refused
        text += self.note
        text += f"; {surfaced} errors with a retry label" if surfaced else ""
        text += f"; {refused} errors of commands that drivers do not retry" if refused else ""
        self.report(text, wrong, time.monotonic() - begun)

    def report(self, text: str, wrong: list, took: float) -> None:
        self.passed, self.failed = self.passed + (not wrong), self.failed + bool(wrong)
        print(f"{'FAILED' if wrong else 'ok    '} {text} ({took:.0f} s)", flush=True)
        for one in wrong[:8]:
            print(f"       {one}", flush=True)

    def last_check(self) -> None:
        """Compares everything, from the first document on."""
        import checks

        begun = time.monotonic()
        try:
            self.load.go_on_if_paused()
            self.load.await_writes()
            self.cluster.await_whole()
            self.load.pause()
            wrong = checks.everything(self.load, self.streams, self.cluster, 0)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            wrong = [repr(error)]
        load = self.load
        text = f"at the end: {sum(load.counters.values())} counted, {len(load.documents)} documents, {len(load.pairs)} transactions, "
        text += f"{len(load.due)} expiring, {len(self.streams.all[0].tokens)} events on each of {len(self.streams.all)} servers, "
        text += f"{len(load.surfaced)} errors with a retry label"
        self.report(text, wrong, time.monotonic() - begun)
        for one in load.surfaced[:5]:
            print(f"       {one}", flush=True)


def test(options) -> int:
    from faults import chosen
    from topology import Cluster

    folder = Path(tempfile.mkdtemp(prefix="mayflydb-cluster-"))
    folder.chmod(0o711)
    begun, run, failed = time.monotonic(), None, True
    cluster = Cluster(
        folder, server_binary(), options.servers, settings=FAST, flags=["--setParameter", "ttlMonitorSleepSecs=1"], proxied=True,
    )
    try:
        cluster.start()
        run = Run(cluster)
        print(f"{options.servers} servers, 2 PostgreSQL, etcd in {folder}, started in {time.monotonic() - begun:.0f} s", flush=True)
        for fault in chosen(options.short, options.match):
            run.fault(*fault)
        run.last_check()
        failed = run.failed > 0
        print(f"cluster: {run.passed} passed, {run.failed} failed ({time.monotonic() - begun:.0f} s)")
    finally:
        ignore_signals()
        if run:
            run.load.ended.set()
            run.streams.end()
        cluster.end()
        if failed or options.keep:
            print(f"The logs are in {cluster.logs}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def keep(options) -> int:
    from programs import unprivileged
    from topology import Cluster

    folder = Path(options.data).resolve()
    folder.mkdir(mode=0o711, exist_ok=True)
    if subprocess.run(["test", "-x", folder], cwd="/", check=False, **unprivileged()).returncode:
        sys.exit(f"the user of PostgreSQL may not enter {folder}: choose another folder with --data")
    first = options.port
    ports = [23790, 23800, 54321, 8008, 54322, 8009, *range(first, first + options.servers)]
    cluster = Cluster(folder, server_binary(), options.servers, ports)
    try:
        cluster.start()
        print(f"PostgreSQL's primary is {cluster.primary().name}; the logs are in {cluster.logs}")
        print(f"patronictl -c {cluster.nodes[0].configuration} list")
        print(f"\n    {cluster.connection_string}\n\nCtrl-C ends everything.", flush=True)
        while all(server.runs() for server in cluster.servers):
            time.sleep(0.5)
        print("a server has ended, see its log", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        ignore_signals()
        print("ending", flush=True)
        cluster.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    tests = actions.add_parser("test")
    tests.add_argument("--short", action="store_true", help="each fault at most once, at most five minutes")
    tests.add_argument("--servers", type=int, choices=(2, 3), default=3)
    tests.add_argument("--match", default="", metavar="TEXT", help="only faults with this text in their name")
    tests.add_argument("--keep", action="store_true", help="keep the logs although everything passed")
    tests.set_defaults(act=test)
    keeps = actions.add_parser("keep")
    keeps.add_argument("--data", default="data-cluster", metavar="FOLDER")
    keeps.add_argument("--servers", type=int, choices=(2, 3), default=2)
    keeps.add_argument("--port", type=int, default=27017, help="of the first server; the others follow")
    keeps.set_defaults(act=keep)
    options = parser.parse_args()
    with_pymongo()
    # A terminal that is closed and `kill` end the cluster as Ctrl-C does, which a shell may have made ignored.
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    try:
        return options.act(options)
    except KeyboardInterrupt:
        print("interrupted")
        return 1


if __name__ == "__main__":
    sys.exit(main())
