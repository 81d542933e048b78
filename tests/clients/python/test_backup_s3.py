"""Backups, the archive of the log and restores in an object store that speaks S3's protocol (moto)."""

import http.client
import socket
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pymongo.errors import OperationFailure

from test_backup import ENVIRONMENT, fails, fill, hashes, noise, server, succeeds, until
from test_restore_to_a_time import moment, wait_for_archive

PLACE = "s3://bucket/prod"


def at_endpoint(monkeypatch, url):
    settings = {
        "AWS_ENDPOINT": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    for name, value in settings.items():
        monkeypatch.setitem(ENVIRONMENT, name, value)


@pytest.fixture
def bucket(monkeypatch):
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    url = f"http://{host}:{port}"
    # The buckets of all servers in this process are the same.
    urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()
    at_endpoint(monkeypatch, url)
    s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret")
    s3.create_bucket(Bucket="bucket")
    yield s3
    moto.stop()


def objects(s3):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket")
    return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}


def test_a_repository_in_s3(bucket, tmp_path):
    arguments = ("--backupUrls", "s3://bucket", "--backupTo", PLACE, "--backupLogIntervalSecs", "1", "--replSet", "rs0")
    with server(tmp_path / "data", *arguments) as one:
        fill(one.client)
        first = succeeds("backup", "--uri", one.uri, "--to", PLACE).split()[2]
        sent = sum(objects(bucket).values())
        assert sent > 1_000_000 and all(name.startswith("prod/") for name in objects(bucket))
        one.client.t.c.insert_many({"_id": i} for i in range(100))
        succeeds("backup", "--uri", one.uri, "--to", PLACE)
        assert sum(objects(bucket).values()) < 1.5 * sent
        expected = hashes(one.client)
        at = moment(one)
        one.client.t.c.delete_many({})
        wait_for_archive(one)
        listed = succeeds("backup", "list", "--to", PLACE)
        assert first in listed and "Restores are possible to" in listed
        assert "is whole" in succeeds("backup", "verify", "--to", PLACE)
        succeeds("restore", "--from", PLACE, "--dbpath", tmp_path / "restored", "--at", at)
        with server(tmp_path / "restored") as restored:
            assert hashes(restored.client) == expected
        one.client.t.c.drop()
        succeeds("backup", "--uri", one.uri, "--to", PLACE)
        planned = succeeds("backup", "prune", "--to", PLACE, "--keep-last", "1")
        assert first in planned and first in succeeds("backup", "list", "--to", PLACE)
        succeeds("backup", "prune", "--to", PLACE, "--keep-last", "1", "--yes")
        assert first not in succeeds("backup", "list", "--to", PLACE)
        assert "is whole" in succeeds("backup", "verify", "--to", PLACE)
        # A damaged object is found and named.
        name = max((name for name in objects(bucket) if "/files/" in name), key=objects(bucket).get)
        body = bucket.get_object(Bucket="bucket", Key=name)["Body"].read()
        bucket.put_object(Bucket="bucket", Key=name, Body=body[:-1] + bytes([body[-1] ^ 1]))
        fails(14, name.split("/")[-1][:12], "backup", "verify", "--to", PLACE)


@pytest.fixture
def refusing(monkeypatch):
    """An object store that answers every request with 403."""

    class Refusal(BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, *_):
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    at_endpoint(monkeypatch, f"http://127.0.0.1:{web.server_port}")
    yield
    web.shutdown()


def test_an_object_store_that_refuses(refusing, tmp_path):
    with server(tmp_path / "data", "--backupUrls", "s3://bucket") as one:
        one.client.t.c.insert_one({"x": noise(100)})
        began = time.monotonic()
        fails(1, "403", "backup", "--uri", one.uri, "--to", PLACE)
        assert "403" in one.client.admin.command("backupStatus")["failed"]["errmsg"]
        for words in (("backup", "list", "--to", PLACE), ("restore", "--from", PLACE, "--dbpath", tmp_path / "restored")):
            fails(100, "403", *words)
        assert not (tmp_path / "restored").exists() and one.checkpoints() == []
        assert time.monotonic() - began < 30


class Faults:
    """A proxy in front of the object store. `rule` gets the method, the path and the number of the request, and returns a fault."""

    def __init__(self, url):
        self.target, self.rule, self.count, self.lock = url.removeprefix("http://"), lambda *_: None, 0, threading.Lock()
        faults = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with faults.lock:
                    faults.count += 1
                    number = faults.count
                fault = faults.rule(self.command, self.path, number)
                if fault == "slow":
                    time.sleep(0.15)
                elif isinstance(fault, int):
                    self.reply(fault, {}, b"<Error><Code>Test</Code><Message>on purpose</Message></Error>")
                    return
                connection = http.client.HTTPConnection(faults.target, timeout=60)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
                hop = ("connection", "transfer-encoding", "content-length", "date", "server")
                headers = {name: value for name, value in answer.getheaders() if name.lower() not in hop}
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                connection.close()
                if fault == "cut" and len(content) > 1000:
                    # The rest of the content does not come.
                    self.reply(answer.status, headers, content[: len(content) // 2], len(content))
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.reply(answer.status, headers, content, length)

            def reply(self, status, headers, content, length=None):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(length or len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

            def log_message(self, *_):
                pass

        self.web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.web.serve_forever, daemon=True).start()

    def begin(self, rule):
        self.rule, self.count = rule, 0

    def end(self):
        self.rule = lambda *_: None


@pytest.fixture
def faults(bucket, monkeypatch):
    proxy = Faults(ENVIRONMENT["AWS_ENDPOINT"])
    at_endpoint(monkeypatch, f"http://127.0.0.1:{proxy.web.server_port}")
    yield proxy
    proxy.web.shutdown()


def test_an_object_store_with_faults(faults, tmp_path):
    arguments = ("--backupUrls", "s3://bucket", "--backupTo", PLACE, "--backupLogIntervalSecs", "1", "--replSet", "rs0")
    with server(tmp_path / "data", *arguments) as one:
        fill(one.client)
        command = ("backup", "--uri", one.uri, "--to", PLACE)
        none = lambda: "no complete backup" in succeeds("backup", "list", "--to", PLACE)
        # Credentials that expire in the middle.
        for after in (3, 6, 9):
            faults.begin(lambda method, path, number: 403 if number > after else None)
            fails(1, "403", *command)
            faults.end()
            assert none() and one.checkpoints() == []
        # One that does not come back, until the client gives up.
        faults.begin(lambda method, path, number: 500 if number > 5 else None)
        with pytest.raises(OperationFailure) as failed:
            one.client.admin.command("backup", to=PLACE, maxTimeMS=2000)
        assert failed.value.code == 50
        faults.end()
        assert none() and one.checkpoints() == []
        # Faults that pass, and slow answers.
        faults.begin(lambda method, path, number: 503 if number % 4 == 0 else "slow" if number % 3 == 0 else None)
        succeeds(*command)
        succeeds(*command, "--parent", "none")
        assert "is whole" in succeeds("backup", "verify", "--to", PLACE)
        # The archive meanwhile, also without rights for a while.
        faults.begin(lambda method, path, number: 403)
        one.client.t.c.insert_one({"_id": 1})
        archive = lambda: one.client.admin.command("backupStatus")["archive"]
        until(lambda: "403" in archive().get("errmsg", ""))
        faults.end()
        expected, at = hashes(one.client), moment(one)
        wait_for_archive(one)
        assert archive()["gaps"] == 0
    restore = ("restore", "--from", PLACE, "--dbpath", tmp_path / "restored", "--at", at)
    for after in (2, 8, 15):
        faults.begin(lambda method, path, number: 403 if number > after else None)
        fails(100, "403", *restore)
        if (tmp_path / "restored").exists():
            fails(100, "a restore into it is not complete", "--dbpath", tmp_path / "restored", "--port", "0")
    # Contents that end in the middle, and errors that pass.
    faults.begin(lambda method, path, number: "cut" if number % 5 == 0 else 500 if number % 7 == 0 else None)
    succeeds(*restore)
    with server(tmp_path / "restored") as restored:
        assert hashes(restored.client) == expected
