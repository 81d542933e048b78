"""The runner of the client suites: a suite that hangs is stopped, and counts as failed; a signal ends all processes."""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def runner(monkeypatch):
    """The module `run.py`, with a short time between the two signals."""
    spec = importlib.util.spec_from_file_location("runner", Path(__file__).resolve().parent.parent / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "runner", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "KILL_SECS", 0.5)
    return module


def is_alive(pid):
    """Whether the process runs. A zombie, which process 1 has not reaped yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_files_with_servers_of_their_own_are_suites(runner):
    own = runner.OWN_ENGINE + runner.OWN_POSTGRES
    suites = [runner.KINDS[name](name) for name in ("python", "servers", "servers-postgres")]
    for suite in suites:
        suite.venv, suite.match = Path("venv"), None
        assert all((suite.folder / name).is_file() for name in own)
    shared, servers, postgres = (suite.command()[0] for suite in suites)
    assert [shared[place + 1] for place, word in enumerate(shared) if word == "--ignore"] == own
    for command, files in ((servers, runner.OWN_ENGINE), (postgres, runner.OWN_POSTGRES)):
        assert [word for word in command if word in own] == files and "--ignore" not in command


@contextmanager
def no_servers(*_):
    yield {"MONGODB_URI": ""}


@pytest.mark.parametrize("ignore", ["", 'trap "" TERM; '], ids=["ends at SIGTERM", "ignores SIGTERM"])
def test_a_suite_that_sleeps_fails_at_its_limit(runner, tmp_path, monkeypatch, ignore):
    class Sleeper(runner.Suite):
        def command(self):
            return ["sh", "-c", f"{ignore}echo $$; sh -c '{ignore}echo $$; sleep 600; :'; :"], {}

    suite = Sleeper("sleeper")
    suite.folder, suite.log, suite.limit = tmp_path, tmp_path / "sleeper.log", 1
    monkeypatch.setattr(runner, "addresses", no_servers)
    began = time.monotonic()
    outcome = runner.try_suite(suite, Path("no-server"), tmp_path)
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert outcome.why == "sh exceeded its limit of 1 s and was stopped"
    assert time.monotonic() - began < 30
    pids = [int(line) for line in suite.log.read_text().split() if line.isdigit()]
    assert len(pids) == 2
    # A process may still run for a moment after SIGKILL was sent.
    while any(map(is_alive, pids)):
        assert time.monotonic() - began < 30
        time.sleep(0.01)


# The runner with one suite, which starts a process and sleeps.
SLEEPING = """
import sys
sys.path.insert(0, sys.argv[1])
import run
from pathlib import Path

class Sleeper(run.Suite):
    folder_name = "python"

    def prepare(self):
        pass

    def command(self):
        return ["sh", "-c", "sleep 600 & echo begun; wait"], {}

run.LOGS, run.KINDS = Path(sys.argv[2]), {"sleeper": Sleeper}
sys.argv[1:] = sys.argv[3:]
sys.exit(run.main())
"""


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


@pytest.mark.parametrize("flags", [[], ["--postgres"]], ids=["on disk", "in PostgreSQL"])
def test_sigterm_ends_the_servers_and_the_suites(tmp_path, flags):
    # PostgreSQL has another user where the tests are run by root, and that user cannot enter `tmp_path`.
    logs, scratch = tmp_path / "logs", Path(tempfile.mkdtemp(prefix="mayflydb-runner-"))
    scratch.chmod(0o755)
    folder = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-c", SLEEPING, str(folder), str(logs), *flags, "sleeper"]
    runner = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.DEVNULL)
    began, log = time.monotonic(), logs / "sleeper.log"
    while not (log.exists() and "begun" in log.read_text()):
        assert runner.poll() is None and time.monotonic() - began < 120
        time.sleep(0.05)
    pids = descendants(runner.pid)
    assert len(pids) >= 6, "four servers, the suite and its process"
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(60) == 128 + signal.SIGTERM
    assert [pid for pid in pids if is_alive(pid)] == []
    assert list(scratch.iterdir()) == []
    scratch.rmdir()
