"""The runner of the client suites: a suite that hangs is stopped, and counts as failed."""

import importlib.util
import sys
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
