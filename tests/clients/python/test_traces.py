"""Traces of commands: what a collector gets, the parents that clients name, and collectors that fail."""

import json
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pymongo.errors import OperationFailure

import test_backup
from test_backup import BINARY, ENVIRONMENT, server, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "a value of a client"


class Collector:
    """An HTTP server that reads requests as OTLP/HTTP defines them for JSON."""

    def __init__(self, status=200):
        self.status, self.requests = status, []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                collector.requests.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self):
        return [
            span for _, _, body in self.requests for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"] for span in scope["spans"]
        ]

    def named(self, name):
        return [span for span in self.spans() if span["name"] == name]

    def wait_for(self, name):
        """The span of this name, and the spans inside of it by their names."""
        (command,) = until(lambda: self.named(name))
        inside = [span for span in self.spans() if span.get("parentSpanId") == command["spanId"]]
        return command, {span["name"]: span for span in inside}


@contextmanager
def collector(**options):
    one = Collector(**options)
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        thread.join()
        one.server.server_close()


def attributes(span):
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def counts(one):
    return one.client.admin.command("serverStatus")["metrics"]["traces"]


def lines(one, text):
    return [line for line in one.log.read_text().splitlines() if text in line]


def test_commands_are_spans(tmp_path):
    with collector() as to, server(tmp_path / "data", "--otlpEndpoint", to.url) as one:
        before = time.time_ns()
        orders = one.client.shop.orders
        orders.create_index("user")
        orders.insert_one({"user": SECRET})
        orders.find_one({"user": SECRET})
        with pytest.raises(OperationFailure):
            one.client.shop.command("find", "orders", filter={"$bad": SECRET})

        until(lambda: len(to.named("find shop.orders")) == 2)
        find, failed = sorted(to.named("find shop.orders"), key=lambda span: int(span["startTimeUnixNano"]))
        assert (find["kind"], find["status"], "parentSpanId" in find) == (2, {}, False)
        assert attributes(find) == {
            "db.system.name": "mongodb", "db.operation.name": "find", "db.namespace": "shop", "db.collection.name": "orders",
        }
        (plan,) = [span for span in to.spans() if span.get("parentSpanId") == find["spanId"]]
        assert (plan["name"], plan["kind"], plan["traceId"]) == ("plan", 1, find["traceId"])
        assert attributes(plan) == {"mayflydb.plan.summary": "IXSCAN { user: 1 }", "mayflydb.plan.count": "1"}
        for span in to.spans():
            assert before - 10**9 <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= time.time_ns() + 10**9
        assert int(find["startTimeUnixNano"]) <= int(plan["startTimeUnixNano"])
        assert int(plan["endTimeUnixNano"]) <= int(find["endTimeUnixNano"])

        insert, inside = to.wait_for("insert shop.orders")
        assert set(inside) == {"sync"} and inside["sync"]["endTimeUnixNano"] == insert["endTimeUnixNano"]

        assert failed["status"] == {"code": 2, "message": "BadValue"}
        assert attributes(failed)["db.response.status_code"] == "2"
        assert SECRET not in json.dumps(to.requests)
        path, _, body = to.requests[0]
        resource = attributes(body["resourceSpans"][0]["resource"])
        assert (path, resource["service.name"]) == ("/v1/traces", "mayflydb")
        until(lambda: counts(one)["sent"] >= 4)


def test_a_client_names_the_parent(tmp_path):
    words = ("--otlpEndpoint", "{}", "--otlpShare", "0")
    with collector() as to, server(tmp_path / "data", *(word.format(to.url) for word in words)) as one:
        db = one.client.shop
        db.other.insert_one({})
        for name, comment in [("text", TRACEPARENT), ("field", {"traceparent": TRACEPARENT}), ("in_text", f"a='b',traceparent='{TRACEPARENT}'")]:
            db.command("find", name, comment=comment)
        db.command("find", "unsampled", comment=TRACEPARENT[:-1] + "0")
        for name in ("text", "field", "in_text"):
            command, _ = to.wait_for(f"find shop.{name}")
            assert (command["traceId"], command["parentSpanId"]) == (TRACE, PARENT)
            assert command["spanId"] != PARENT
        # Without a parent nothing is traced, and the client decides about its own.
        assert {span["name"] for span in to.spans()} == {"find shop.text", "find shop.field", "find shop.in_text"}


def test_what_is_left_is_sent_when_the_server_stops(tmp_path, monkeypatch):
    with collector() as to:
        # The variables of OpenTelemetry work as the keys do.
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": to.url, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer hunter2,X-Tenant=a"}
        monkeypatch.setattr(test_backup, "ENVIRONMENT", {**ENVIRONMENT, **environment})
        with server(tmp_path / "data") as one:
            one.client.shop.command("find", "last")
            one.stop()
            assert to.named("find shop.last")
            _, headers, _ = to.requests[0]
            assert (headers["authorization"], headers["x-tenant"]) == ("Bearer hunter2", "a")
            assert "hunter2" not in one.log.read_text()


def test_without_a_collector_nothing_is_traced(tmp_path):
    with server(tmp_path / "data") as one:
        one.client.shop.command("find", "c", comment=TRACEPARENT)
        assert counts(one) == {"sent": 0, "overflowed": 0, "refused": 0} and lines(one, "commands are traced") == []


@pytest.mark.parametrize("kind", ["gone", "refusing", "silent"])
def test_a_collector_that_fails_slows_no_command(tmp_path, kind):
    with socket.create_server(("127.0.0.1", 0)) as silent, collector(status=503) as refusing:
        port = silent.getsockname()[1]
        if kind == "gone":
            silent.close()
        url = refusing.url if kind == "refusing" else f"http://127.0.0.1:{port}"
        with server(tmp_path / "data", "--otlpEndpoint", url) as one:
            began = time.monotonic()
            for _ in range(8000):
                one.client.admin.command("ping")
            # More commands than the queue has places, and requests to a silent collector end after ten seconds.
            assert time.monotonic() - began < 60
            lost = "overflowed" if kind == "silent" else "refused"
            until(lambda: counts(one)[lost] > 0 and (kind != "silent" or counts(one)["refused"] > 0))
            assert counts(one)["sent"] == 0
            assert len(lines(one, "traces are lost, because the collector does not take them")) == 1
            began = time.monotonic()
            one.stop()
            assert time.monotonic() - began < 20


@pytest.mark.parametrize("flags, text", [
    (["--otlpEndpoint", "localhost:4318"], "'localhost:4318' is not an address such as http://127.0.0.1:4318"),
    (["--otlpEndpoint", "http://h", "--otlpHeaders", "hunter2"], "a header is not name=value"),
    (["--otlpEndpoint", "http://h", "--otlpShare", "2"], "traces.share"),
])
def test_mistakes_end_the_start(tmp_path, flags, text):
    command = [BINARY, "--dbpath", str(tmp_path / "data"), "--port", "0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert ended.returncode == 2 and text in ended.stderr + ended.stdout, ended.stderr + ended.stdout
    assert "hunter2" not in ended.stderr + ended.stdout
