"""Fail points: the server fails where a test wants it to, and the driver does what it does about real failures."""

import os
import threading
import time
from contextlib import contextmanager

import pytest
from pymongo import MongoClient, monitoring
from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure, WriteConcernError

URIS = ["MONGODB_URI", "MONGODB_REPLICA_SET_URI"]


class Commands(monitoring.CommandListener):
    """Which commands the driver sent, and how each ended."""

    def __init__(self):
        self.seen = []

    def started(self, event):
        pass

    def succeeded(self, event):
        self.seen.append((event.command_name, "ok"))

    def failed(self, event):
        self.seen.append((event.command_name, event.failure.get("code", "closed")))

    def of(self, name):
        return [end for command, end in self.seen if command == name]


class Watched:
    def __init__(self, uri, **options):
        self.commands = Commands()
        self.client = MongoClient(uri, event_listeners=[self.commands], appname="watched", **options)
        self.db = self.client.fail_points


@pytest.fixture(params=URIS)
def uri(request):
    return os.environ[request.param]


@pytest.fixture
def watched(uri):
    watched = Watched(uri)
    watched.client.drop_database("fail_points")
    watched.db.c.insert_many([{"_id": 1}, {"_id": 2}, {"_id": 3}])
    watched.commands.seen.clear()
    yield watched
    watched.client.drop_database("fail_points")
    watched.client.close()


@contextmanager
def failing(uri, name="failCommand", mode=None, **data):
    """Sets a fail point over another client, and takes it away."""
    with MongoClient(uri) as client:
        command = {"configureFailPoint": name, "mode": mode or {"times": 1}}
        if data:
            command["data"] = data
        before = client.admin.command(command)["count"]
        passed = lambda: client.admin.command({"configureFailPoint": name, "mode": "off"})["count"] - before
        try:
            yield passed
        finally:
            passed()


def test_a_read_is_tried_again(uri, watched):
    with failing(uri, failCommands=["find"], errorCode=262, appName="watched") as passed:
        assert watched.db.c.count_documents({}) == 3
        assert watched.db.c.find_one({"_id": 1}) == {"_id": 1}
        assert passed() == 1
    assert watched.commands.of("find") == [262, "ok"]


def test_a_write_is_tried_again_and_has_one_effect(uri, watched):
    with failing(uri, failCommands=["update"], errorCode=262, appName="watched") as passed:
        result = watched.db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert (result.modified_count, passed()) == (1, 1)
    assert watched.commands.of("update") == [262, "ok"]
    assert watched.db.c.find_one({"_id": 1})["n"] == 1


def test_a_write_without_the_label_is_not_tried_again(uri, watched):
    with failing(uri, failCommands=["insert"], errorCode=262, errorLabels=[], appName="watched"):
        with pytest.raises(OperationFailure) as failed:
            watched.db.c.insert_one({"_id": 9})
        assert failed.value.code == 262
    assert watched.commands.of("insert") == [262]
    assert watched.db.c.find_one({"_id": 9}) is None


def test_a_write_with_the_label_alone_is_tried_again(uri, watched):
    labels = ["RetryableWriteError"]
    with failing(uri, failCommands=["insert"], errorCode=2, errorLabels=labels, appName="watched"):
        watched.db.c.insert_one({"_id": 9})
    assert watched.commands.of("insert") == [2, "ok"]


def test_the_connection_is_closed(uri, watched):
    with failing(uri, failCommands=["insert", "ping"], closeConnection=True, appName="watched") as passed:
        watched.db.c.insert_one({"_id": 9})
        assert passed() == 1
    assert watched.commands.of("insert") == ["closed", "ok"]
    mode = {"times": 2}
    with failing(uri, mode=mode, failCommands=["insert", "ping"], closeConnection=True, appName="watched"):
        with pytest.raises(AutoReconnect):
            watched.client.admin.command("ping")
        watched.db.c.insert_one({"_id": 10})
    assert watched.client.admin.command("ping")["ok"] == 1


def test_one_can_wait_for_a_fail_point(uri, watched):
    with failing(uri, failCommands=["ping"], errorCode=2, appName="watched"), MongoClient(uri) as other:
        count = other.admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1},
                                     "data": {"failCommands": ["ping"], "errorCode": 2, "appName": "watched"}})["count"]
        wait = {"waitForFailPoint": "failCommand", "timesEntered": count + 1}
        with pytest.raises(OperationFailure) as failed:
            other.admin.command({**wait, "maxTimeMS": 50})
        assert failed.value.code == 50
        with pytest.raises(OperationFailure):
            watched.client.admin.command("ping")
        assert other.admin.command({**wait, "maxTimeMS": 5000})["ok"] == 1


def test_a_handshake_fails(uri):
    hellos = ["hello", "isMaster"]
    with failing(uri, mode={"times": 1}, failCommands=hellos, closeConnection=True, appName="watched") as passed:
        with Watched(uri).client as client:
            assert client.admin.command("ping")["ok"] == 1
        assert passed() == 1


def test_a_write_concern_error_comes_with_what_was_written(uri, watched):
    error = {"code": 64, "errmsg": "waited in vain"}
    with failing(uri, failCommands=["insert"], writeConcernError=error, appName="watched"):
        with pytest.raises(WriteConcernError) as failed:
            watched.db.c.insert_one({"_id": 9})
        assert failed.value.code == 64
    assert watched.db.c.find_one({"_id": 9}) == {"_id": 9}


def test_a_blocked_command_blocks_no_other_client(uri, watched):
    with failing(uri, mode="alwaysOn", failCommands=["find"], blockConnection=True, blockTimeMS=700,
                 appName="watched"):
        began = time.monotonic()
        # More than the server has threads.
        threads = [threading.Thread(target=watched.db.c.find_one) for _ in range(8)]
        for thread in threads:
            thread.start()
        with MongoClient(uri) as other:
            assert other.fail_points.c.find_one({"_id": 1}) == {"_id": 1}
            assert time.monotonic() - began < 0.6
        for thread in threads:
            thread.join()
        assert time.monotonic() - began >= 0.7
        with pytest.raises(OperationFailure) as failed:
            watched.db.command({"find": "c", "maxTimeMS": 20})
        assert failed.value.code == 50
    slow = Watched(uri, socketTimeoutMS=200, retryReads=False)
    with failing(uri, failCommands=["find"], blockConnection=True, blockTimeMS=600, appName="watched"):
        with pytest.raises(NetworkTimeout):
            slow.db.c.find_one()
    slow.client.close()


def test_what_is_committed_and_not_answered_is_not_done_again(uri, watched):
    with failing(uri, "onPrimaryTransactionalWrite") as passed:
        result = watched.db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert (result.modified_count, passed()) == (1, 1)
    assert watched.commands.of("update") == ["closed", "ok"]
    assert watched.db.c.find_one({"_id": 1})["n"] == 1


def test_what_is_never_committed_is_never_there(uri, watched):
    with failing(uri, "onPrimaryTransactionalWrite", {"times": 2}, failBeforeCommitExceptionCode=1):
        with pytest.raises(AutoReconnect):
            watched.db.c.insert_one({"_id": 9})
    assert watched.commands.of("insert") == ["closed", "closed"]
    assert watched.db.c.find_one({"_id": 9}) is None


def test_changes_go_on_after_an_error_that_allows_it(uri, watched):
    with watched.db.c.watch(max_await_time_ms=50) as stream:
        assert stream.try_next() is None
        watched.db.c.insert_one({"_id": 9})
        with failing(uri, "failGetMoreAfterCursorCheckout", errorCode=280):
            with pytest.raises(OperationFailure) as failed:
                stream.next()
            assert failed.value.code == 280
    with watched.db.c.watch(max_await_time_ms=50) as stream:
        assert stream.try_next() is None
        watched.db.c.insert_one({"_id": 10})
        with failing(uri, "failGetMoreAfterCursorCheckout", errorCode=6):
            assert stream.next()["documentKey"] == {"_id": 10}
    assert 6 in watched.commands.of("getMore")


# the end of a transaction


def count_up(watched, runs):
    def body(session):
        runs.append(1)
        watched.db.c.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        watched.client.fail_points_too.c.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True, session=session)

    return body


def counted(watched):
    """How often both are there."""
    counts = [db.c.find_one({"_id": 1}) for db in (watched.db, watched.client.fail_points_too)]
    first, second = [(found or {}).get("n", 0) for found in counts]
    assert first == second
    return first


@pytest.fixture
def session(watched):
    watched.client.drop_database("fail_points_too")
    with watched.client.start_session() as session:
        yield session
    watched.client.drop_database("fail_points_too")


def test_a_commit_of_a_server_that_goes_is_tried_again(uri, watched, session):
    # The driver asks who is there when the next heartbeat is due: what the server says of itself has not changed.
    watching = Watched(uri, heartbeatFrequencyMS=500)
    with watching.client, watching.client.start_session() as own:
        with failing(uri, failCommands=["commitTransaction"], errorCode=11602, appName="watched") as passed:
            runs = []
            own.with_transaction(count_up(watching, runs))
            assert (len(runs), passed()) == (1, 1)
    assert watching.commands.of("commitTransaction") == [11602, "ok"]
    assert counted(watched) == 1


def test_a_commit_that_is_not_possible_runs_the_transaction_again(uri, watched, session):
    with failing(uri, failCommands=["commitTransaction"], errorCode=251, appName="watched") as passed:
        runs = []
        session.with_transaction(count_up(watched, runs))
        assert (len(runs), passed()) == (2, 1)
    assert watched.commands.of("commitTransaction") == [251, "ok"]
    assert counted(watched) == 1


def test_a_commit_without_a_reply_is_committed_again(uri, watched, session):
    error = {"code": 64, "errmsg": "waited in vain"}
    with failing(uri, failCommands=["commitTransaction"], writeConcernError=error, appName="watched") as passed:
        runs = []
        session.with_transaction(count_up(watched, runs))
        assert (len(runs), passed()) == (1, 1)
    assert watched.commands.of("commitTransaction") == [64, "ok"]
    assert counted(watched) == 1


def test_a_commit_that_takes_too_long(uri, watched, session):
    """Whether it is there is not known; who commits again knows it."""
    data = {"failCommands": ["commitTransaction"], "blockConnection": True, "blockTimeMS": 300, "appName": "watched"}
    with failing(uri, **data):
        runs = []
        with pytest.raises(OperationFailure) as failed:
            session.with_transaction(count_up(watched, runs), max_commit_time_ms=50)
        assert failed.value.code == 50
        assert failed.value.has_error_label("UnknownTransactionCommitResult")
    assert (len(runs), counted(watched)) == (1, 0)
    session.commit_transaction()
    assert counted(watched) == 1


@pytest.mark.parametrize("code", [112, 251])
def test_a_statement_that_may_be_tried_again_runs_the_transaction_again(uri, watched, session, code):
    mode = {"skip": 1}
    with failing(uri, failCommands=["update"], mode=mode, errorCode=code, appName="watched"):
        runs = []

        def body(session):
            if runs:
                with MongoClient(uri) as other:
                    other.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
            count_up(watched, runs)(session)

        session.with_transaction(body)
    assert len(runs) == 2
    assert watched.commands.of("update") == ["ok", code, "ok", "ok"]
    assert counted(watched) == 1
