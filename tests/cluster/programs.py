"""Processes of the cluster: how one is started, found and ended. Every process is ended by its id, and only if it is ours."""

import glob
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

#: A process that does not end by itself within these seconds is killed.
END_SECS = 20


def postgres_programs() -> Path:
    """The folder of the newest PostgreSQL."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda folder: int(re.search(r"(\d+)/bin", folder)[1]))
    initdb = shutil.which("initdb")
    if not found and not initdb:
        raise SystemExit("PostgreSQL is not installed (make setup-cluster)")
    return Path(found[-1]) if found else Path(initdb).parent


def unprivileged() -> dict:
    """Options of Popen: the user of Patroni and PostgreSQL, which refuses root."""
    if os.getuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def processor_secs(pids) -> float:
    """Processor time that the processes have used, in seconds."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        # With the time of children that have ended: sessions of PostgreSQL.
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    found = []
    for file in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            found += map(int, Path(file).read_text().split())
        except OSError:
            pass
    return found


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def wait_until(condition, what: str, seconds: float = 60, pause: float = 0.1):
    """Waits until the condition is true, and returns its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)
    return value


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 below those that the kernel gives to clients, so that a restart finds its port free."""
    found, port = [], 15000 + os.getpid() % 5000
    while len(found) < count:
        port += 1
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
                found.append(port)
            except OSError:
                pass
    return found


class Program:
    """A process that is started, killed and started again; its output goes to a file."""

    def __init__(self, name: str, command: list, log: Path, **options):
        self.name, self.command, self.log, self.options = name, [str(word) for word in command], log, options
        self.process = None

    def start(self) -> None:
        with open(self.log, "ab") as out:
            # A session of its own: Ctrl-C of the terminal does not reach it, and the test ends all in order.
            self.process = subprocess.Popen(
                self.command, **{"stdin": subprocess.DEVNULL, "stdout": out, **self.options},
                stderr=out, cwd="/", start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Returns when all threads have stopped: until one of them has taken the signal, the others go on."""
        send(self.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")
        stopped = lambda: all(" T " in (thread / "stat").read_text() for thread in threads.iterdir())
        wait_until(stopped, f"process {self.pid} has stopped", END_SECS)

    def wake(self) -> None:
        send(self.pid, signal.SIGCONT)

    def end(self, seconds: float = END_SECS) -> int | None:
        """Asks the process to end, and kills it if it does not; returns its exit code."""
        if self.process is None:
            return None
        if self.runs():
            self.wake()
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
