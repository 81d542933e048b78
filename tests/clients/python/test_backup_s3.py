"""Backups, the archive of the log and restores in an object store that speaks S3's protocol (moto)."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest
from moto.server import ThreadedMotoServer

from test_backup import ENVIRONMENT, fails, fill, hashes, noise, server, succeeds
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
