"""Transactions over connections that are cut, at each of their messages; what is expected is listed in ../README.md."""

import os
import threading
import time
from itertools import product

import pytest
from cutting_proxy import CuttingProxy
from pymongo import MongoClient, monitoring
from pymongo.errors import ConnectionFailure
from pymongo.uri_parser import parse_uri

POSTURES = {"router": "MONGODB_URI", "member": "MONGODB_REPLICA_SET_URI"}
WHEN = ["request", "reply"]
TRANSIENT, UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"


class Commands(monitoring.CommandListener):
    """The commands the driver sent, in their order."""

    def __init__(self):
        self.started_names = []

    def started(self, event):
        self.started_names.append(event.command_name)

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass

    def count(self, name):
        return self.started_names.count(name)


class Through:
    """A client behind a proxy of its own, and one that goes straight to the server."""

    def __init__(self, uri, name):
        self.proxy = CuttingProxy(*parse_uri(uri)["nodelist"][0])
        self.commands = Commands()
        self.client = MongoClient(
            "127.0.0.1", self.proxy.port, directConnection=True, event_listeners=[self.commands]
        )
        self.straight = MongoClient(uri)
        self.name = name
        for coll in self.collections(self.straight):
            coll.drop()
            coll.insert_one({"_id": 1, "n": 0})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.straight.close()
        self.proxy.close()

    def collections(self, client=None):
        client = client or self.client
        return [client[db][self.name] for db in ("clients_python_cut", "clients_python_cut_too")]

    def write(self, session):
        """Four statements, over two collections of two databases."""
        first, second = self.collections()
        n = first.find_one({"_id": 1}, session=session)["n"]
        first.update_one({"_id": 1}, {"$set": {"n": n + 1}}, session=session)
        second.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        second.insert_one({"of": n}, session=session)

    def wait_for_late(self, when):
        """Until the server has answered the request that came late."""
        deadline = time.monotonic() + 20
        while when == "late" and self.proxy.late == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def there(self):
        """How often all of it is there; never a part."""
        first, second = self.collections(self.straight)
        # A write waits for a transaction that is still open, so that the state that is read afterwards stays.
        first.update_one({"_id": 1}, {"$inc": {"seen": 1}})
        counts = {first.find_one()["n"], second.find_one({"_id": 1})["n"], second.count_documents({}) - 1}
        assert len(counts) == 1, counts
        return counts.pop()


def at_once(work, *choices):
    """Runs `work` for each posture and each combination of choices, all at once: a driver comes back after half a second."""
    failures = []

    def run(posture, rest):
        name = "_".join(map(str, [work.__name__, *rest]))
        try:
            with Through(os.environ[POSTURES[posture]], name) as through, through.client.start_session() as session:
                work(through, session, *rest)
        except BaseException as error:  # noqa: BLE001
            failures.append((posture, name, error))

    cases = product(POSTURES, product(*choices))
    threads = [threading.Thread(target=run, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_commit_is_tried_again_and_has_one_effect():
    def commits(through, session, when):
        with session.start_transaction():
            through.write(session)
            through.proxy.cut(when, "commitTransaction")
        assert (through.proxy.cuts, through.commands.count("commitTransaction")) == (1, 2)
        assert through.there() == 1
        # Once more, by the application.
        session.commit_transaction()
        assert through.there() == 1

    at_once(commits, WHEN)


def test_a_commit_of_unknown_result():
    def commits(through, session, when):
        session.start_transaction()
        through.write(session)
        through.proxy.cut(when, "commitTransaction", times=2)
        with pytest.raises(ConnectionFailure) as caught:
            session.commit_transaction()
        assert caught.value.has_error_label(UNKNOWN) and not caught.value.has_error_label(TRANSIENT)
        session.commit_transaction()
        assert (through.proxy.cuts, through.there()) == (2, 1)

    at_once(commits, WHEN)


def test_with_transaction_goes_on_until_the_result_is_known():
    def commits(through, session, when):
        through.proxy.cut(when, "commitTransaction", times=3)
        ran = []
        session.with_transaction(lambda s: ran.append(1) or through.write(s))
        assert (through.proxy.cuts, len(ran), through.there()) == (3, 1, 1)

    at_once(commits, WHEN)


def test_an_abort_leaves_nothing():
    def aborts(through, session, when, times):
        session.start_transaction()
        through.write(session)
        through.proxy.cut(when, "abortTransaction", times=times)
        session.abort_transaction()
        assert (through.proxy.cuts, through.commands.count("abortTransaction")) == (times, 2)
        # What the server may still hold open ends with the session's next one.
        session.with_transaction(through.write)
        assert through.there() == 1

    at_once(aborts, WHEN, [1, 2])


def test_cut_at_every_message():
    """One client for each message of a transaction: each loses another one."""
    messages = ["find", "update", "update", "insert", "commitTransaction"]

    def loops(through, session, when, at):
        through.proxy.cut(when, skip=at)
        session.with_transaction(through.write)
        assert (through.proxy.cuts, through.proxy.names[: at + 1]) == (1, messages[: at + 1])
        through.wait_for_late(when)
        assert through.there() == 1
        # Whatever came late, the session goes on.
        session.with_transaction(through.write)
        assert through.there() == 2

    def once(through, session, when, at):
        """Without the loop: wholly there where the driver says so, else wholly absent."""
        through.proxy.cut(when, skip=at)
        try:
            with session.start_transaction():
                through.write(session)
        except ConnectionFailure as error:
            assert messages[at] != "commitTransaction" and error.has_error_label(TRANSIENT)
            there = 0
        else:
            assert messages[at] == "commitTransaction"
            there = 1
        assert through.there() == there and through.proxy.cuts == 1
        through.wait_for_late(when)
        assert through.there() == there

    at_once(loops, [*WHEN, "late"], range(len(messages)))
    at_once(once, [*WHEN, "late"], range(len(messages)))


def test_a_client_that_is_gone_leaves_nothing():
    """The connection is cut and the client does not come back: its transaction ends by its lifetime."""

    def goes(through, session):
        admin = through.straight.admin
        admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 1})
        try:
            session.start_transaction()
            through.write(session)
            through.proxy.cut("request", "find")
            with pytest.raises(ConnectionFailure):
                through.collections()[0].find_one(session=session)
            # The writer waits for the transaction, and goes on when it is no more.
            assert through.there() == 0
        finally:
            admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 60})

    at_once(goes)
