#!/usr/bin/env python3
"""Runs the client suites, each against a server of its own, and prints what passed.

usage: run.py [--prepare] [--jobs N] [--postgres] [--limit SECONDS] [--match NAMES] [suite ...]
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "python"))
from cutting_proxy import CuttingProxy  # noqa: E402
from postgres import Postgres  # noqa: E402

ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("MAYFLY_CACHE", Path.home() / ".cache" / "mayflydb")) / "clients"
LOGS = ROOT / "tests" / ".work" / "clients"
NODE_AT_LEAST, NODE_FROM_NPM = (20, 19), "24.21.0"
GO_FETCHES_ITSELF_FROM, GO_FROM_PROXY = (1, 21), "1.25.0"
START_SECS, STOP_SECS, PREPARE_SECS = 30, 20, 1800
# A suite that is not done after SUITE_SECS gets SIGTERM, and SIGKILL after KILL_SECS more. It counts as failed.
SUITE_SECS, KILL_SECS = 900, 10
# Of the log of a failed suite: its last lines, and those from each one that tells of a failure.
END_LINES, FAILURE_LINES = 150, 20
FAILED_LINE = re.compile(r"^\s*not ok |^--- FAIL|<<< (FAILURE|ERROR)!|^---- .* stdout ----")


@dataclass(frozen=True)
class Posture:
    """One of the servers that a suite is run against, and what leads to it."""

    name: str
    # `MONGODB_<variable>_URI` has the address, `MONGODB_<variable>_PROXY_URI` one through a proxy.
    variable: str
    arguments: tuple[str, ...] = ()
    # What the connection string needs besides the address. A suite that logs in adds name, password and further options.
    # Here and among the arguments, {files} is the folder that `make_certificates` fills.
    query: str = ""
    proxied: bool = True


TEST_COMMANDS = ("--setParameter", "enableTestCommands=1")
CERTIFICATES = ("--tlsCertificateKeyFile", "{files}/server.pem", "--tlsCAFile", "{files}/authority.crt")
POSTURES = [
    Posture("server", "MONGODB", (*TEST_COMMANDS, "--archiveFolder", "{files}/archive")),
    Posture("member", "MONGODB_REPLICA_SET", ("--replSet", "rs0", *TEST_COMMANDS), "replicaSet=rs0"),
    # There is no user yet: each suite makes the first one. One connection, so that a test knows which one goes on working.
    Posture("auth", "MONGODB_AUTH", ("--auth",), "maxPoolSize=1", proxied=False),
    # There is no user either.
    Posture(
        "tls", "MONGODB_TLS",
        ("--auth", "--tlsMode", "requireTLS", *CERTIFICATES, "--tlsAllowConnectionsWithoutCertificates"),
        "tls=true&tlsCAFile={files}/authority.crt", proxied=False,
    ),
]
# Of the client's certificate, and as the server names its user.
CLIENT, CLIENT_NAME = "/O=Example/OU=shop/CN=ann", "CN=ann,OU=shop,O=Example"


# Set by a signal that ends the run. The commands that run then are in COMMANDS.
ENDING, COMMANDS = threading.Event(), set()


class Failure(Exception):
    """Why a suite could not run, in words for the table."""


def end_at_signals() -> None:
    """At SIGTERM, SIGINT and SIGHUP the commands that run are stopped; their servers and PostgreSQL end then, too."""
    def end(number, _):
        if ENDING.is_set():
            return
        ENDING.set()
        for process in list(COMMANDS):
            signal_group(process, signal.SIGTERM)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


@dataclass
class Outcome:
    """What one suite counted."""

    passed: int
    failed: int
    seconds: float
    why: str = ""


def server_binary() -> Path:
    """The binary under test: MAYFLYDB_BIN, else the debug build, else the release build."""
    named = os.environ.get("MAYFLYDB_BIN")
    target = Path(os.environ.get("CARGO_TARGET_DIR", CACHE.parent / "target"))
    candidates = [Path(named)] if named else [target / kind / "mayflydb" for kind in ("debug", "release")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    sys.exit(f"no server binary at {', '.join(map(str, candidates))}: build it, or set MAYFLYDB_BIN")


class Server:
    """A server with an empty data folder, on a free port unless one is given; ended by its own process id."""

    def __init__(self, binary: Path, log: Path, *arguments: str, port: int = 0):
        self.binary, self.log, self.arguments, self.port = binary, log, arguments, port

    def __enter__(self) -> str:
        self.data = tempfile.mkdtemp(prefix="mayflydb-clients-")
        arguments = ["--port", str(self.port), "--dbpath", self.data, *self.arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAYFLYDB_")}
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [self.binary, *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
            )
        try:
            return self.wait_until_ready()
        except BaseException:
            self.end()
            raise

    def wait_until_ready(self) -> str:
        deadline = time.monotonic() + START_SECS
        while time.monotonic() < deadline:
            ready = re.search(r"ready on (127\.0\.0\.1:\d+)", self.log.read_text(errors="replace"))
            if ready:
                return f"mongodb://{ready[1]}"
            if ENDING.is_set():
                raise Failure("the run was ended")
            if self.process.poll() is not None:
                raise Failure(f"the server ended with {self.process.returncode} before it was ready")
            time.sleep(0.02)
        raise Failure(f"the server was not ready in {START_SECS} s")

    def end(self) -> None:
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                self.process.wait(STOP_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            shutil.rmtree(self.data, ignore_errors=True)

    def __exit__(self, *_) -> None:
        self.end()

    def complaints(self) -> list[str]:
        """Errors and panics in the log, and an end that was not clean."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                bad = isinstance(entry, dict) and entry.get("s") in ("E", "F")
            except ValueError:
                bad = re.search(r"panicked at|\bERROR\b|\bfatal\b", line) is not None
            if bad:
                found.append(f"server log: {line}")
        if self.process.returncode != 0:
            found.append(f"server ended with {self.process.returncode} after SIGTERM")
        return found


@contextmanager
def proxy_to(uri: str):
    """The address of a proxy that cuts connections at messages a suite names."""
    proxy = CuttingProxy(*uri.removeprefix("mongodb://").split(":"))
    try:
        yield f"mongodb://127.0.0.1:{proxy.port}"
    finally:
        proxy.close()


def run(command, seconds, log, **options) -> int:
    """Runs a command with its output in `log`; stops its process group when `seconds` have passed, or the run is ended."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True, **options,
        )
        COMMANDS.add(process)
        try:
            if ENDING.is_set():
                raise Failure("the run was ended")
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{Path(command[0]).name} exceeded its limit of {seconds} s and was stopped") from None
        finally:
            COMMANDS.discard(process)
            if process.poll() is None or ENDING.is_set():
                stop_group(process)


def signal_group(process, number) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def stop_group(process) -> None:
    """Sends SIGTERM to the process group of `process`, and SIGKILL to what is left of it after KILL_SECS."""
    signal_group(process, signal.SIGTERM)
    try:
        process.wait(KILL_SECS)
    except subprocess.TimeoutExpired:
        pass
    signal_group(process, signal.SIGKILL)
    process.wait()


def must(command, log, **options) -> None:
    if run(command, PREPARE_SECS, log, **options) != 0:
        raise Failure(f"{' '.join(map(str, command[:3]))} failed")


def tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise Failure(f"{name} is not installed (make setup)")
    return found


def cached(suite: str, manifests: list[Path], salt: str, install) -> Path:
    """A folder that `install` filled once for these manifests; a half-filled one is started anew."""
    digest = hashlib.sha256(salt.encode())
    for manifest in manifests:
        digest.update(manifest.read_bytes())
    folder = CACHE / f"{suite}-{digest.hexdigest()[:16]}"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        install(folder)
        (folder / ".complete").touch()
    return folder


def make_certificates(folder: Path) -> None:
    """Fills the folder: `authority.crt` signed `server.pem` and `client.pem`, `stranger.crt` neither.

    Each .pem holds a certificate and its key; `client.p12` holds the client's, too, with the password `client`.
    """
    log = LOGS / "certificates.log"
    log.unlink(missing_ok=True)
    (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = subject\n[subject]\n")

    def openssl(*arguments):
        must([tool("openssl"), *arguments], log, cwd=folder)

    def make(name, subject, extensions, *issuer):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]
        added = [word for extension in extensions for word in ("-addext", extension)]
        openssl(
            "req", "-x509", "-config", "openssl.cnf", *key, "-days", "2", "-subj", subject, *added, *issuer,
            "-out", f"{name}.crt",
        )
        parts = [folder / f"{name}.{kind}" for kind in ("crt", "key")]
        (folder / f"{name}.pem").write_text("".join(part.read_text() for part in parts))

    for authority in ("authority", "stranger"):
        make(authority, f"/CN={authority}", ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"])
    issuer = ["-CA", "authority.crt", "-CAkey", "authority.key"]
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    make("server", "/O=Example/CN=server", [names, "extendedKeyUsage=serverAuth"], *issuer)
    make("client", CLIENT, ["extendedKeyUsage=clientAuth"], *issuer)
    openssl("pkcs12", "-export", "-in", "client.pem", "-out", "client.p12", "-passout", "pass:client")


def sum_of(pattern: str, text: str) -> int:
    return sum(map(int, re.findall(pattern, text, re.MULTILINE)))


class Suite:
    """One client: how to install what it needs, how to run it, how to read its counts."""

    passed_pattern = r"^(\d+) passed, \d+ failed"
    failed_pattern = r"^\d+ passed, (\d+) failed"
    # Where it differs from the suite's name.
    folder_name = ""

    def __init__(self, name: str):
        self.name, self.folder, self.log = name, HERE / (self.folder_name or name), LOGS / f"{name}.log"

    def prepare(self) -> None:
        raise NotImplementedError

    def command(self) -> tuple[list, dict]:
        """The command, with {uri} where it takes the address, and what it adds to the environment."""
        raise NotImplementedError

    def counts(self, text: str) -> tuple[int, int]:
        return sum_of(self.passed_pattern, text), sum_of(self.failed_pattern, text)


# Files in the folder python that are suites of their own, which are left out with --postgres: they start all of their servers
# themselves, on the engine that they are about, so that a second run would repeat the first one. The status page
# has one test on PostgreSQL of its own, because nothing in it depends on the engine but the panel of the disk.
OWN_ENGINE = [
    "test_backup.py", "test_backup_disk_full.py", "test_backup_drill.py", "test_backup_s3.py", "test_check.py", "test_fsync_copies.py",
    "test_restore_to_a_time.py", "test_runner.py", "test_search_model.py", "test_status_page.py", "test_traces.py",
]
OWN_POSTGRES = [
    "test_backup_postgres.py", "test_copy.py", "test_copy_content.py", "test_postgres.py", "test_postgres_builds.py",
    "test_secondaries.py", "test_secondary_search.py", "test_standby.py",
]


class Python(Suite):
    passed_pattern = r"\b(\d+) passed"
    failed_pattern = r"\b(\d+) (?:failed|errors?)\b"

    def prepare(self):
        requirements = self.folder / "requirements.txt"

        def install(folder):
            must([sys.executable, "-m", "venv", folder], self.log)
            must([folder / "bin/pip", "install", "-q", "--no-deps", "-r", requirements], self.log)

        self.venv = cached(self.folder.name, [requirements], sys.version, install)

    def files(self) -> list:
        return [argument for name in OWN_ENGINE + OWN_POSTGRES for argument in ("--ignore", name)]

    def command(self):
        # Data folders of tests that passed are removed: all of them together have gigabytes.
        kept = ("-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1")
        some = ("-k", self.match) if self.match else ()
        return [self.venv / "bin/python", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *kept, *some, *self.files()], {}

    def counts(self, text):
        lines = [line for line in text.splitlines() if re.search(r"\bin [\d.]+s", line)]
        return super().counts(lines[-1] if lines else "")


class Servers(Python):
    """Tests in Python that start their servers themselves."""

    folder_name = "python"

    def files(self):
        return OWN_ENGINE


class PostgresServers(Servers):
    """Those of them that are about stores in PostgreSQL."""

    def files(self):
        return OWN_POSTGRES


class Stores(Python):
    """Stores of frameworks, which search vectors and texts. The folder `stores` has what they share."""

    def command(self):
        some = ("-k", self.match) if self.match else ()
        tests = [self.venv / "bin/python", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *some]
        return tests, {"PYTHONPATH": str(HERE / "stores")}


class Haystack(Stores):
    def command(self):
        tests, variables = super().command()
        # Otherwise it sends statistics of its use.
        return tests, {**variables, "HAYSTACK_TELEMETRY_ENABLED": "False"}


class PyMongo(Python):
    """PyMongo's own tests, which its source distribution contains. They start their servers themselves."""

    def prepare(self):
        super().prepare()
        release = next(line for line in (self.folder / "requirements.txt").read_text().splitlines() if line.startswith("pymongo=="))

        def unpack(folder):
            pip = [self.venv / "bin/pip", "download", "-q", "--no-deps", "--no-binary", "pymongo", "-d", folder]
            must([*pip, release], self.log)
            shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder)

        source = next(cached("pymongo-source", [], release, unpack).glob("pymongo-*/test")).parent
        # The tests import the installed driver.
        for package in ("bson", "gridfs", "pymongo"):
            shutil.rmtree(source / package, ignore_errors=True)
        self.source = source

    def command(self):
        return [self.venv / "bin/python", "-B", "own_tests.py", self.source], {}

    def counts(self, text):
        lines = [line for line in text.splitlines() if re.search(r"\bin [\d.]+s", line)]
        return Suite.counts(self, "\n".join(lines))


class Npm(Suite):
    """node_modules stay outside the clone; install scripts, which compile addons, are left out."""

    def prepare(self):
        manifests = [self.folder / "package.json", self.folder / "package-lock.json"]

        def install(folder):
            for manifest in [*manifests, self.folder / ".npmrc"]:
                shutil.copy(manifest, folder)
            must([tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], self.log, cwd=folder)

        self.modules = cached(self.name, manifests, "", install) / "node_modules"

        self.node = self.find_node()

    def find_node(self) -> Path:
        """The machine's node; where it is too old for the driver, one from npm."""
        found = Path(tool("node"))
        version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        if tuple(map(int, re.findall(r"\d+", version)[:2])) >= NODE_AT_LEAST:
            return found
        machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        package = f"node-linux-{machine}"

        def install(folder):
            install_one = ["install", "--ignore-scripts", "--no-audit", "--no-fund", f"{package}@{NODE_FROM_NPM}"]
            must([tool("npm"), *install_one, "--prefix", folder], self.log, cwd=folder)

        folder = cached("node-runtime", [], f"{package}@{NODE_FROM_NPM}", install)
        return folder / "node_modules" / package / "bin" / "node"


class Node(Npm):
    passed_pattern = r"^# pass (\d+)"
    failed_pattern = r"^# (?:fail|cancelled) (\d+)"

    def command(self):
        # One file at a time: a primary that steps down would interrupt the tests of another file.
        command = [self.node, "--test", "--test-concurrency=1", "--test-reporter=tap"]
        files = sorted(path.name for path in self.folder.glob("*.test.js"))
        return [*command, *files], {"NODE_PATH": str(self.modules)}


class OldNode(Node):
    folder_name = "old_node"


class LangChainJs(Node):
    folder_name = "langchain_js"


class Mongosh(Npm):
    def command(self):
        home = LOGS / "mongosh-home"
        home.mkdir(exist_ok=True)
        settings = home / "mongosh.conf"
        settings.write_text("mongosh:\n  enableTelemetry: false\n  updateURL: ''\n  disableLogging: true\n")
        shell = self.modules / "mongosh/bin/mongosh.js"
        command = [self.node, shell, "--quiet", "--norc", "--file", "session.js"]
        environment = {"HOME": str(home), "MONGOSH_GLOBAL_CONFIG_FILE_FOR_TESTING": str(settings)}
        return [*command, "{uri}"], environment


class Go(Suite):
    passed_pattern = r"^--- PASS: ()"
    failed_pattern = r"^--- FAIL: ()"

    def prepare(self):
        self.program = CACHE / "go" / "driver.test"
        # GOROOT of another version would mix two libraries.
        environment = {name: value for name, value in os.environ.items() if name != "GOROOT"}
        command = [self.find_go(), "test", "-c", "-o", self.program, "."]
        must(command, self.log, cwd=self.folder, env=environment)

    def find_go(self) -> Path:
        """The machine's go; where it is too old to fetch a newer one by itself, one from the module proxy."""
        found = Path(tool("go"))
        version = subprocess.run([found, "version"], capture_output=True, text=True).stdout
        if tuple(map(int, re.findall(r"go(\d+)\.(\d+)", version)[0])) >= GO_FETCHES_ITSELF_FROM:
            return found
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        module = f"golang.org/toolchain@v0.0.1-go{GO_FROM_PROXY}.linux-{machine}"

        def install(folder):
            (folder / "go.mod").write_text("module fetch\n")
            environment = {**os.environ, "GO111MODULE": "on", "GOFLAGS": "-mod=mod", "GOMODCACHE": str(folder)}
            must([found, "mod", "download", module], self.log, cwd=folder, env=environment)
            for program in [*folder.glob("golang.org/*/bin/*"), *folder.glob("golang.org/*/pkg/tool/*/*")]:
                # Archives of modules do not keep what is executable.
                program.chmod(0o755)

        folder = cached("go-runtime", [], module, install)
        return folder / module / "bin" / "go"

    def command(self):
        return [self.program, "-test.v", "-test.timeout", f"{SUITE_SECS - KILL_SECS}s"], {}

    def counts(self, text):
        return tuple(len(re.findall(p, text, re.MULTILINE)) for p in (self.passed_pattern, self.failed_pattern))


class Java(Suite):
    # The properties that Maven gets.
    properties: tuple[str, ...] = ()

    def maven(self, goal):
        return [tool("mvn"), "-q", "-B", f"-Dsuite.build={CACHE / self.name}", *self.properties, *goal]

    def prepare(self):
        shutil.rmtree(CACHE / self.name, ignore_errors=True)
        must(self.maven(["test-compile"]), self.log, cwd=self.folder)

    def command(self):
        return self.maven(["surefire:test", "-Dstyle.color=never"]), {}

    def counts(self, text):
        passed = failed = 0
        for report in (CACHE / self.name / "surefire-reports").glob("TEST-*.xml"):
            head = re.search(r"<testsuite [^>]*>", report.read_text())[0]
            number = {k: int(v) for k, v in re.findall(r'\b(tests|errors|failures|skipped)="(\d+)"', head)}
            bad = number["errors"] + number["failures"]
            failed += bad
            passed += number["tests"] - bad - number["skipped"]
        return passed, failed


class Java3(Java):
    folder_name, properties = "old_java", ("-Ddriver.version=3.12.14",)


class Java4(Java):
    folder_name, properties = "old_java", ("-Ddriver.version=4.0.6",)


class SpringAi(Java):
    folder_name = "spring_ai"


class Rust(Suite):
    passed_pattern = r"^test result: .*?(\d+) passed"
    failed_pattern = r"^test result: .*? (\d+) failed"

    def prepare(self):
        must([*self.cargo(), "--no-run"], self.log, cwd=self.folder, env=self.environment())

    def cargo(self):
        return [tool("cargo"), "test", "--quiet", "--locked"]

    @staticmethod
    def environment():
        return {**os.environ, "CARGO_TARGET_DIR": str(CACHE / "rust-target")}

    def command(self):
        return self.cargo(), {"CARGO_TARGET_DIR": str(CACHE / "rust-target")}


class C(Suite):
    def prepare(self):
        self.build = CACHE / "c"
        must([tool("make"), "--no-print-directory", "-B", f"BUILD={self.build}"], self.log, cwd=self.folder)

    def command(self):
        return [self.build / "driver"], {}


class Php(Suite):
    def prepare(self):
        must([tool("php"), "-r", "exit(extension_loaded('mongodb') ? 0 : 1);"], self.log)

    def command(self):
        return [tool("php"), "driver.php"], {}


class Ruby(Suite):
    def prepare(self):
        must([tool("ruby"), "-e", "require 'mongo'"], self.log)

    def command(self):
        return [tool("ruby"), "driver.rb"], {}


KINDS = {
    "python": Python, "servers": Servers, "servers-postgres": PostgresServers, "pymongo": PyMongo, "node": Node, "go": Go, "java": Java, "rust": Rust, "c": C, "mongosh": Mongosh, "langchain": Stores,
    "langchain-js": LangChainJs, "llamaindex": Stores, "haystack": Haystack, "spring-ai": SpringAi, "mongoose": Node,
    "java-3": Java3, "java-4": Java4, "node-3": OldNode, "php": Php, "ruby": Ruby,
}


def storage(postgres: Postgres | None) -> list[str]:
    """The flags of the storage engine."""
    if postgres is None:
        return ["--storageEngine", "rocksdb"]
    return ["--storageEngine", "postgres", "--storageUrl", postgres.database()]


def members(posture: Posture, postgres: Postgres | None) -> list[int]:
    """The ports of the servers of a posture. In PostgreSQL, a replica set has two members: one that writes, one that reads."""
    if postgres is None or "--replSet" not in posture.arguments:
        return [0]
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]


@contextmanager
def addresses(suite: Suite, binary: Path, files: Path, servers: list[Server], postgres: Postgres | None):
    """Starts a server for each posture; gives the variables of the environment that lead to them."""
    variables = {"MONGODB_TLS_FILES": str(files), "MONGODB_TLS_CLIENT_NAME": CLIENT_NAME}
    with ExitStack() as stack:
        for posture in POSTURES:
            arguments = [argument.format(files=files) for argument in posture.arguments] + storage(postgres)
            uris = []
            for number, port in enumerate(members(posture, postgres)):
                member = ["--storageStandby", "--advertise", f"127.0.0.1:{port}"] if port else []
                log = LOGS / f"{suite.name}.{posture.name}{number or ''}.log"
                servers.append(Server(binary, log, *arguments, *member, port=port))
                uris.append(stack.enter_context(servers[-1]))
            uri = ",".join([uris[0], *(uri.removeprefix("mongodb://") for uri in uris[1:])])
            query = posture.query.format(files=files)
            variables[f"{posture.variable}_URI"] = f"{uri}/?{query}" if query else uri
            if posture.proxied:
                proxy = stack.enter_context(proxy_to(uris[0]))
                # A member's own address leads around the proxy.
                query = "/?directConnection=true" if posture.query else ""
                variables[f"{posture.variable}_PROXY_URI"] = proxy + query
        yield variables


def try_suite(suite: Suite, binary: Path, files: Path, postgres: Postgres | None = None) -> Outcome:
    began = time.monotonic()
    why, servers = [], []
    try:
        with addresses(suite, binary, files, servers, postgres) as variables:
            command, extra = suite.command()
            command = [variables["MONGODB_URI"] if word == "{uri}" else word for word in command]
            before = suite.log.stat().st_size if suite.log.exists() else 0
            environment = {**os.environ, **extra, **variables, "MAYFLYDB_BIN": str(binary)}
            status = run(command, suite.limit, suite.log, cwd=suite.folder, env=environment)
        passed, failed = suite.counts(suite.log.read_text(errors="replace")[before:])
        if status != 0 and failed == 0:
            why.append(f"the runner ended with {status}")
        elif passed + failed == 0:
            why.append("no test ran")
        for server in servers:
            why += server.complaints()
    except (Failure, OSError) as failure:
        passed, failed, why = 0, 0, [*why, str(failure)]
    if why:
        failed += 1
    return Outcome(passed, failed, time.monotonic() - began, "; ".join(why))


def prepare(suites: list[Suite]) -> dict[str, str]:
    """Installs and compiles; gives what failed, by suite."""
    failures = {}
    for suite in suites:
        suite.log.unlink(missing_ok=True)
        began = time.monotonic()
        try:
            suite.prepare()
        except Failure as failure:
            failures[suite.name] = str(failure)
        taken = time.monotonic() - began
        if taken > 5 or suite.name in failures:
            print(f"prepared {suite.name} in {taken:.0f} s {failures.get(suite.name, '')}", flush=True)
    return failures


def show_log(suite: Suite) -> None:
    """What a failed suite printed about failures, and at its end; a mark before each line keeps its counts out of ours."""
    print(f"--- {suite.name}: {suite.log}")
    lines = suite.log.read_text(errors="replace").splitlines()
    end, shown = max(0, len(lines) - END_LINES), 0
    for number, line in enumerate(lines):
        if FAILED_LINE.search(line):
            shown = max(shown, number + FAILURE_LINES)
        if number < shown or number >= end:
            print(f"  | {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="only install and compile")
    parser.add_argument("--jobs", type=int, default=2, help="suites at once")
    parser.add_argument("--postgres", action="store_true", help="the servers store in PostgreSQL; a replica set has two members")
    parser.add_argument("--limit", type=int, default=SUITE_SECS, metavar="SECONDS", help="time limit of each suite")
    parser.add_argument("--match", metavar="NAMES", help="of the suite python only the tests of these names, as pytest -k takes them")
    parser.add_argument("suites", nargs="*", metavar="suite", help=" ".join(KINDS))
    options = parser.parse_args()
    unknown = set(options.suites) - set(KINDS)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    names = options.suites or [name for name in KINDS if not (options.postgres and issubclass(KINDS[name], (Servers, PyMongo)))]
    suites = [KINDS[name](name) for name in names]
    for suite in suites:
        suite.limit, suite.match, suite.on_postgres = options.limit, options.match, options.postgres
    end_at_signals()
    LOGS.mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    binary = None if options.prepare else server_binary()
    failures = prepare(suites)
    if options.prepare:
        return 1 if failures else 0

    began = time.monotonic()
    outcomes = {name: Outcome(0, 1, 0.0, why) for name, why in failures.items()}
    ready = [suite for suite in suites if suite.name not in failures]
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres(LOGS / "postgres.log")) if options.postgres else None
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mayflydb-clients-")))
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        try:
            make_certificates(files)
        except Failure as failure:
            sys.exit(f"no certificates: {failure}, see {LOGS / 'certificates.log'}")
        outcomes_of_ready = pool.map(lambda suite: try_suite(suite, binary, files, postgres), ready)
        for suite, outcome in zip(ready, outcomes_of_ready):
            outcomes[suite.name] = outcome

    for suite in suites:
        if outcomes[suite.name].failed and suite.log.exists():
            show_log(suite)
    print(f"{'suite':<14}{'passed':>8}{'failed':>8}{'seconds':>9}")
    for suite in suites:
        outcome = outcomes[suite.name]
        print(f"{suite.name:<14}{outcome.passed:>8}{outcome.failed:>8}{outcome.seconds:>9.1f}  {outcome.why}".rstrip())
    passed = sum(outcome.passed for outcome in outcomes.values())
    failed = sum(outcome.failed for outcome in outcomes.values())
    print(f"client suites: {passed + failed} run, {passed} passed, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
