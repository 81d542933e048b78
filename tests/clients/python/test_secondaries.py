"""A replica set over one PostgreSQL: the owner of the store is the primary, the others are secondaries that answer reads."""

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pymongo
import pytest
from pymongo import ReadPreference
from pymongo.errors import AutoReconnect, NotPrimaryError, OperationFailure, PyMongoError, WriteConcernError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from postgres import Network, Postgres, free_port
from test_postgres import PATIENCE, Node, environment
from test_standby import Member, until

SET = "rs0"


class SetMember(Member):
    """A member of a set, with a port that it keeps."""

    flags = ()

    def start(self):
        address = f"127.0.0.1:{self.port}"
        words = ["--storageStandby", "--replSet", SET, "--advertise", address, *self.flags]
        Node.__init__(self, self.folder, self.url, *words, port=self.port)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class TlsMember(SetMember):
    """One with further flags, whose clients connect in their own way."""

    def __init__(self, folder, url, flags):
        self.flags = flags
        super().__init__(folder, url)


def connect(members, **options):
    hosts = ",".join(member.address for member in members)
    return pymongo.MongoClient(f"mongodb://{hosts}/", replicaSet=SET, serverSelectionTimeoutMS=60_000, **options)


def begin(postgres, tmp_path, count):
    url, members = postgres.database(), []
    for number in range(count):
        members.append(SetMember(tmp_path / f"member{number}", url))
        members[-1].client()
    return members


@pytest.fixture
def two(postgres, tmp_path):
    members = begin(postgres, tmp_path, 2)
    yield members
    for member in members:
        member.kill()


@pytest.fixture
def three(postgres, tmp_path):
    members = begin(postgres, tmp_path, 3)
    yield members
    for member in members:
        member.kill()


def on_secondary(collection, **options):
    return collection.with_options(read_preference=ReadPreference.SECONDARY, **options)


def test_drivers_find_the_members(two):
    first, second = two
    client = connect([second])
    until(lambda: client.primary == ("127.0.0.1", first.port) and client.secondaries == {("127.0.0.1", second.port)})
    for member in two:
        hello = member.client().admin.command("hello")
        assert hello["hosts"] == sorted(one.address for one in two)
        assert hello["primary"] == first.address and hello["me"] == member.address and hello["setName"] == SET
        assert hello["isWritablePrimary"] == (member is first) and hello["secondary"] == (member is second)
        assert ("electionId" in hello) == (member is first)
        status = member.client().admin.command("replSetGetStatus")
        states = {one["name"]: one["stateStr"] for one in status["members"]}
        assert states == {first.address: "PRIMARY", second.address: "SECONDARY"}
        config = member.client().admin.command("replSetGetConfig")["config"]
        assert [one["host"] for one in config["members"]] == hello["hosts"]
    assert second.end() == 0
    until(lambda: first.client().admin.command("hello")["hosts"] == [first.address], 20)
    assert first.end() == 0


def test_a_configuration_keeps_its_members(two):
    first, _ = two
    admin = first.client().admin
    until(lambda: len(admin.command("hello")["hosts"]) == 2)

    def configure(**changes):
        config = admin.command("replSetGetConfig")["config"]
        admin.command("replSetReconfig", {**config, "version": config["version"] + 1, **changes})

    members = admin.command("replSetGetConfig")["config"]["members"]
    configure(settings={"electionTimeoutMillis": 4000})
    configure(members=[{**member, "tags": {"dc": "east"}} for member in members])
    config = admin.command("replSetGetConfig")["config"]
    assert [member["tags"] for member in config["members"]] == [{"dc": "east"}] * 2
    for members, code in [
        (members[:1], 238),
        ([*members, {"_id": 2, "host": "127.0.0.1:1"}], 238),
        ([members[0], {**members[1], "host": "127.0.0.1:1"}], 93),
        ([members[0], {**members[1], "priority": 2}], 93),
        ([members[1], members[0]], 103),
    ]:
        with pytest.raises(OperationFailure) as refused:
            configure(members=members)
        assert refused.value.code == code, members


def test_a_secondary_answers_reads_and_refuses_writes(two):
    first, second = two
    client = connect(two)
    items = client.t.items
    direct = second.client().t.items
    with client.start_session() as session:
        second.process.send_signal(signal.SIGSTOP)
        items.insert_many(({"_id": number, "a": number % 10} for number in range(1000)), session=session)
        items.create_index("a", session=session)
        second.process.send_signal(signal.SIGCONT)
        # The time of the session's last write is waited for, however late the secondary is.
        found = on_secondary(items)
        assert found.count_documents({}, session=session) == 1000
        assert found.count_documents({"a": 3}, session=session) == 100
        assert len(list(found.find({"a": {"$in": [1, 2]}}, session=session, batch_size=10))) == 200
        totals = found.aggregate([{"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}], session=session)
        assert [one["n"] for one in totals] == [100] * 10
        assert found.distinct("a", session=session) == list(range(10))
    assert on_secondary(items).estimated_document_count() == 1000
    plan = on_secondary(client.t).command("explain", {"find": "items", "filter": {"a": 3}}, read_preference=ReadPreference.SECONDARY)
    assert "IXSCAN" in str(plan["queryPlanner"]["winningPlan"])
    for write in [
        lambda: direct.insert_one({}),
        lambda: direct.update_one({"_id": 1}, {"$set": {"b": 1}}),
        lambda: direct.delete_one({"_id": 1}),
        lambda: direct.create_index("b"),
        lambda: direct.drop(),
        lambda: list(direct.aggregate([{"$out": "copy"}])),
    ]:
        with pytest.raises(NotPrimaryError) as refused:
            write()
        assert refused.value.details["code"] == 10107
    with pytest.raises(NotPrimaryError) as refused:
        second.client().t.command({"find": "items", "$readPreference": {"mode": "primary"}})
    assert refused.value.details["code"] == 13435
    with second.client().start_session() as session, pytest.raises(PyMongoError):
        with session.start_transaction():
            second.client().t.items.find_one({}, session=session)
    assert items.count_documents({}) == 1000
    # Both members have what is durable in the database.
    items.with_options(write_concern=WriteConcern(w=2, wtimeout=1000)).insert_one({"_id": "both"})
    with pytest.raises(WriteConcernError):
        items.with_options(write_concern=WriteConcern(w=3, wtimeout=1000)).insert_one({"_id": "three"})
    assert second.end() == 0 and first.end() == 0


def test_a_secondary_never_misses_documents_while_definitions_change(two):
    client = connect(two)
    items = client.t.get_collection("items", write_concern=WriteConcern("majority"))
    with client.start_session() as session:
        items.insert_many(({"_id": number, "a": number % 5} for number in range(500)), session=session)
        # Without the session, a secondary may find a new collection a moment later.
        assert on_secondary(items).count_documents({}, session=session) == 500
    ended, wrong, reads = threading.Event(), [], [0]

    def read():
        own = connect(two)
        while not ended.is_set():
            try:
                found = len(list(on_secondary(own.t.items).find({"a": 2}, batch_size=7)))
                others = len(on_secondary(own.t).list_collection_names()) if reads[0] % 7 == 0 else 1
                reads[0] += 1
                # A renamed collection has no documents under the old name.
                if found not in (0, 100) or (found == 0 and not renaming.is_set()) or others == 0:
                    wrong.append(found)
            except OperationFailure as error:
                # The plan's index or the collection is gone, as on any server.
                if error.code not in (175, 43):
                    wrong.append(error)

    renaming = threading.Event()
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    round, deadline = 0, time.monotonic() + PATIENCE
    while round < 20 or (reads[0] < 50 and time.monotonic() < deadline):
        round += 1
        items.create_index("a", name="a_1")
        client.t[f"other{round}"].insert_one({})
        items.drop_index("a_1")
        client.t[f"other{round}"].drop()
    renaming.set()
    for _ in range(10):
        items.rename("elsewhere")
        client.t.elsewhere.rename("items")
    ended.set()
    for reader in readers:
        reader.join(PATIENCE)
    assert wrong == [] and reads[0] >= 50
    assert client.t.items.count_documents({}) == 500


def test_change_streams_and_causal_reads_on_a_secondary(two):
    client = connect(two)
    with client.start_session() as session:
        client.t.items.insert_one({"_id": 0}, session=session)
        on_secondary(client.t.items).find_one({}, session=session)
        with on_secondary(client.t.items).watch(max_await_time_ms=500) as stream:
            for number in range(1, 200):
                client.t.items.insert_one({"_id": number}, session=session)
                if number % 20 == 0:
                    # Reads what the session has written.
                    assert on_secondary(client.t.items).find_one({"_id": number}, session=session)
            seen = []
            deadline = time.monotonic() + PATIENCE
            while len(seen) < 199 and time.monotonic() < deadline:
                if event := stream.try_next():
                    seen.append(event["documentKey"]["_id"])
            assert seen == list(range(1, 200))
    majority = on_secondary(client.t.items, read_concern=ReadConcern("majority"))
    assert majority.count_documents({}) == 200


def test_a_secondary_knows_the_size_of_a_large_collection(two):
    client = connect(two)
    items, rows = client.t.items, [{"a": number, "text": "x" * 80} for number in range(6000)]
    secondary = on_secondary(items)
    for _ in range(2):
        items.insert_many([dict(row) for row in rows])
    assert secondary.count_documents({}) == 12000
    stats = client.t.command("collStats", "items")
    # A large collection's number is what the primary has written.
    until(lambda: secondary.estimated_document_count() == 12000)
    until(lambda: two[1].client().t.command("collStats", "items")["size"] == stats["size"])
    items.delete_many({"a": {"$lt": 500}})
    until(lambda: secondary.estimated_document_count() == 11000)
    # A join does not look each value up.
    lookup = {"$lookup": {"from": "items", "localField": "a", "foreignField": "_id", "as": "found"}}
    counted = list(secondary.aggregate([lookup, {"$match": {"found": []}}, {"$count": "n"}]))
    assert counted == [{"n": 11000}]
    items.drop()
    until(lambda: secondary.estimated_document_count() == 0)


def test_expired_documents_are_hidden_on_a_secondary_too(two):
    client = connect(two)
    client.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    client.t.carts.create_index("_ts", expireAfterSeconds=3600)
    client.t.carts.insert_many([{"_id": 1, "ttl": 1}, {"_id": 2}])
    secondary = on_secondary(client.t.carts)
    with client.start_session() as session:
        client.t.carts.insert_one({"_id": 3}, session=session)
        assert secondary.find_one({"_id": 3}, session=session)
    # Each server measures the database's clock, to a few milliseconds.
    for collection in secondary, client.t.carts:
        until(lambda: [one["_id"] for one in collection.find().sort("_id")] == [2, 3])


def test_users_and_settings_come_over(postgres, tmp_path):
    url = postgres.database()
    first = SetMember(tmp_path / "first", url)
    first.client().admin.command("createUser", "root", pwd="root", roles=["root"])
    assert first.end() == 0
    SetMember.flags = ("--auth",)
    members = []
    try:
        members = [SetMember(tmp_path / name, url) for name in ("first", "second")]
        for member in members:
            until(lambda: member.says("ready on"))
        client = connect(members, username="root", password="root")
        until(lambda: client.primary and client.secondaries)
        client.t.items.insert_one({"_id": 1})
        client.t.command("createUser", "ann", pwd="ann", roles=["read"])
        client.admin.command("setDefaultRWConcern", 1, defaultReadConcern={"level": "majority"})
        secondary = next(iter(client.secondaries))

        def reads():
            ann = pymongo.MongoClient(*secondary, username="ann", password="ann", authSource="t", directConnection=True)
            try:
                return ann.t.items.count_documents({}) == 1
            except OperationFailure:
                return False

        until(reads, 10)
        direct = pymongo.MongoClient(*secondary, username="root", password="root", directConnection=True)
        concern = lambda: direct.admin.command("getDefaultRWConcern").get("defaultReadConcern")  # noqa: E731
        until(lambda: concern() == {"level": "majority"}, 10)
        client.t.command("dropUser", "ann")
        until(lambda: not reads(), 10)
    finally:
        SetMember.flags = ()
        for member in members:
            member.kill()


class Load:
    """Clients that write all the time, and some that read from secondaries."""

    def __init__(self, members):
        self.client = connect(members)
        self.ended, self.errors = threading.Event(), []
        self.counters, self.inserted, self.reads = [0] * 3, 0, 0
        self.client.t.counters.insert_many({"_id": which, "n": 0} for which in range(3))
        jobs = [(self.count, [which]) for which in range(3)] + [(self.insert, []), (self.read, []), (self.read, [])]
        self.threads = [threading.Thread(target=job, args=arguments, daemon=True) for job, arguments in jobs]
        for thread in self.threads:
            thread.start()

    def attempt(self, act):
        try:
            act()
            return True
        except PyMongoError as error:
            self.errors.append(error)
            return False

    def count(self, which):
        while not self.ended.is_set():
            if self.attempt(lambda: self.client.t.counters.update_one({"_id": which}, {"$inc": {"n": 1}})):
                self.counters[which] += 1

    def insert(self):
        while not self.ended.is_set():
            if self.attempt(lambda: self.client.t.items.insert_one({"_id": self.inserted})):
                self.inserted += 1

    def read(self):
        nearest = self.client.t.items.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)
        while not self.ended.is_set():
            self.attempt(lambda: nearest.find_one({"_id": 0}))
            self.reads += 1

    def goes_on(self, secs=PATIENCE):
        inserted, reads = self.inserted, self.reads
        until(lambda: self.inserted > inserted + 20 and self.reads > reads + 20, secs)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self.threads)
        assert self.errors == []
        assert [found["n"] for found in self.client.t.counters.find().sort("_id")] == self.counters
        assert self.client.t.items.count_documents({}) == self.inserted


def test_a_secondary_becomes_the_primary(three):
    load = Load(three)
    load.goes_on()
    for round in range(2):
        port = load.client.primary[1]
        primary = next(member for member in three if member.port == port)
        term = primary.client().admin.command("replSetGetStatus")["term"]
        if round:
            assert primary.end() == 0
        else:
            primary.kill()
        until(lambda: load.client.primary and load.client.primary[1] != port)
        load.goes_on()
        assert load.client.admin.command("replSetGetStatus")["term"] > term
        primary.start()
        until(lambda: primary.says("ready on"))
        load.goes_on()
    load.end()


# Manual, "replSetStepDown".
def test_a_primary_steps_down(two):
    first, second = two
    load = Load(two)
    load.goes_on()
    for primary, other in [(first, second), (second, first)]:
        process = primary.process.pid
        assert other.client().admin.command("hello")["secondary"]
        with pytest.raises(NotPrimaryError):
            other.client().admin.command("replSetStepDown", 60)
        began = time.monotonic()
        primary.client().admin.command("replSetStepDown", 60)
        until(lambda: load.client.primary == ("127.0.0.1", other.port))
        load.goes_on()
        assert time.monotonic() - began < 10
        # It goes on as a secondary, in the same process.
        until(lambda: ("127.0.0.1", primary.port) in load.client.secondaries)
        assert primary.process.pid == process and primary.process.poll() is None
        assert primary.client().admin.command("hello")["primary"] == other.address
    load.end()
    assert first.log.read_text().count("another server is to become the primary") == 1


# Manual, "shutdown": a primary steps down first.
@pytest.mark.parametrize("how", ["signal", "shutdown"])
def test_a_primary_that_is_stopped_hands_over_first(two, how):
    """A client learns of it by an error of the server, not by a connection that was closed under its write."""
    first, second = two
    load = Load(two)
    load.goes_on()
    ended, errors = threading.Event(), []

    def insert():
        # A client of its own: after an error, a driver closes the connections of its other threads.
        items = pymongo.MongoClient(first.address, directConnection=True, retryWrites=False).t.direct
        while not ended.is_set():
            try:
                items.insert_one({})
            except PyMongoError as error:
                errors.append(error)
                return

    writers = [threading.Thread(target=insert, daemon=True) for _ in range(4)]
    for writer in writers:
        writer.start()
    until(lambda: first.client().t.direct.count_documents({}) > 20)
    if how == "signal":
        first.process.terminate()
    else:
        first.client().admin.command("shutdown")
    assert first.process.wait(PATIENCE) == 0
    ended.set()
    for writer in writers:
        writer.join(PATIENCE)
    assert [type(error) for error in errors] == [NotPrimaryError] * 4
    assert first.says("another server becomes the primary first")
    # It is the primary before the other one has ended.
    assert second.client().admin.command("hello")["isWritablePrimary"]
    load.goes_on()
    load.end()


def test_a_primary_that_is_stopped_without_a_successor_ends(two):
    first, second = two
    first.client().t.items.insert_one({"_id": 1})
    until(lambda: len(first.client().admin.command("hello")["hosts"]) == 2)
    second.kill()
    began = time.monotonic()
    # The row of the other one is not old yet, so this one waits for it first.
    assert first.end() == 0
    assert time.monotonic() - began < 9


def is_primary(member):
    """A member that begins again closes its connections."""
    try:
        return member.client().admin.command("hello")["isWritablePrimary"]
    except AutoReconnect:
        return False


def test_two_hand_overs_after_each_other(two):
    """The former primary may not wait for the store yet, but it has shown signs of life."""
    first, second = two
    until(lambda: len(first.client().admin.command("hello")["hosts"]) == 2)
    began = time.monotonic()
    for primary, other in [(first, second), (second, first), (first, second)]:
        assert len(primary.client().admin.command("hello")["hosts"]) == 2
        primary.client().admin.command("replSetStepDown", 60)
        until(lambda: is_primary(other))
    # Two former primaries do not leave the store to each other for ten seconds.
    assert time.monotonic() - began < 8


# Manual, "replSetFreeze".
def test_a_frozen_secondary_does_not_become_the_primary(three):
    primary, frozen, other = three
    client = connect(three)
    client.t.items.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as refused:
        primary.client().admin.command("replSetFreeze", 60)
    assert refused.value.code == 95
    until(lambda: frozen.client().admin.command("hello")["secondary"])
    assert frozen.client().admin.command("replSetFreeze", 60)["ok"] == 1
    primary.kill()
    client.t.items.insert_one({"_id": 2})
    assert client.primary == ("127.0.0.1", other.port) and not frozen.says("begins again")
    assert frozen.client().admin.command("replSetFreeze", 0)["info"] == "unfreezing"
    other.kill()
    client.t.items.insert_one({"_id": 3})
    assert client.primary == ("127.0.0.1", frozen.port)


def test_a_primary_that_steps_down_alone_needs_force(two):
    first, second = two
    first.client().t.items.insert_one({"_id": 1})
    assert second.end() == 0
    until(lambda: first.client().admin.command("hello")["hosts"] == [first.address], 20)
    with pytest.raises(OperationFailure) as refused:
        first.client().admin.command("replSetStepDown", 60)
    assert refused.value.code == 262
    first.client().admin.command({"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": True})
    assert not first.client().admin.command("hello")["isWritablePrimary"]
    connect([first]).t.items.insert_one({"_id": 2})
    assert first.log.read_text().count("ready on") == 1


def test_a_primary_whose_successor_dies_takes_the_store_back(two):
    first, second = two
    client = connect(two)
    client.t.items.insert_one({"_id": 1})
    until(lambda: len(first.client().admin.command("hello")["hosts"]) == 2)
    second.kill()
    # Its row is not old yet, so the primary counts on it.
    first.client().admin.command("replSetStepDown", 2, secondaryCatchUpPeriodSecs=1)
    client.t.items.insert_one({"_id": 2})
    assert client.primary == ("127.0.0.1", first.port)
    assert client.t.items.count_documents({}) == 2


def test_one_secondary_takes_over_and_the_other_goes_on_reading(three):
    connect(three).t.items.insert_one({"_id": 1})
    primary, *secondaries = three
    until(lambda: all(on_secondary(member.client().t.items).find_one({"_id": 1}) for member in secondaries))
    ended, errors, events = threading.Event(), {member: [] for member in secondaries}, {member: [] for member in secondaries}

    def read(member):
        items = pymongo.MongoClient(member.address, directConnection=True, retryReads=False).t.items
        while not ended.is_set():
            try:
                on_secondary(items).find_one({"_id": 1})
            except PyMongoError as error:
                errors[member].append(error)

    def follow(member):
        items = on_secondary(pymongo.MongoClient(member.address, directConnection=True).t.items)
        try:
            with items.watch(max_await_time_ms=500) as stream:
                while not ended.is_set():
                    if event := stream.try_next():
                        events[member].append(event["documentKey"]["_id"])
        except PyMongoError as error:
            events[member].append(error)

    threads = [threading.Thread(target=job, args=[member], daemon=True) for member in secondaries for job in (read, follow)]
    for thread in threads:
        thread.start()
    client = connect(three)
    inserted = iter(range(2, 10_000))
    until(lambda: client.t.items.insert_one({"_id": next(inserted)}) and all(events.values()))
    primary.kill()
    until(lambda: sum(member.says("begins again as the primary") for member in secondaries) == 1)
    winner = next(member for member in secondaries if member.says("begins again as the primary"))
    reader = next(member for member in secondaries if member is not winner)
    until(lambda: winner.log.read_text().count("ready on") == 2)
    last = "after the takeover"
    client.t.items.insert_one({"_id": last})
    until(lambda: last in events[reader])
    ended.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors[reader]
    assert not reader.says("begins again") and reader.log.read_text().count("ready on") == 1
    seen = [event for event in events[reader] if event != last]
    assert seen == list(range(seen[0], seen[0] + len(seen)))


def test_a_primary_whose_network_is_cut_does_not_keep_its_clients(postgres, tmp_path):
    url, network = postgres.database(), Network(postgres.port)
    first = SetMember(tmp_path / "first", url.replace(f":{postgres.port}/", f":{network.port}/"))
    first.client()
    second = SetMember(tmp_path / "second", url)
    try:
        second.client()
        load = Load([first, second])
        load.goes_on()
        cut_off, other, longest = first.client(), second.client(), 0
        network.flows.clear()

        def has_other_primary():
            # Drivers end their operations when the server does not answer while these wait for PostgreSQL.
            nonlocal longest
            asked = time.monotonic()
            cut_off.admin.command("hello")
            longest = max(longest, time.monotonic() - asked)
            time.sleep(0.1)
            try:
                return other.admin.command("hello")["isWritablePrimary"]
            except AutoReconnect:
                return False

        # The lease of ten seconds, a takeover, and the selection of a server; the statements of operations have 30 s.
        until(has_other_primary, 30)
        assert longest < 3
        load.goes_on(8)
        hello = cut_off.admin.command("hello")
        assert not hello["isWritablePrimary"] and not hello["secondary"]
        assert cut_off.admin.command("replSetGetStatus")["myState"] == 3
        with pytest.raises(NotPrimaryError) as refused:
            cut_off.t.items.insert_one({"_id": "x"})
        assert refused.value.details["code"] == 10107
        with pytest.raises(NotPrimaryError) as refused:
            on_secondary(cut_off.t.items).find_one()
        assert refused.value.details["code"] == 13436
        network.flows.set()
        until(lambda: load.client.secondaries == {("127.0.0.1", first.port)}, 30)
        # A read that lost its connection to the secondary, which became the primary, was sent to the former primary. Drivers
        # repeat a read once.
        is_read = lambda error: not error.has_error_label("RetryableWriteError")
        load.errors = [error for error in load.errors if not (is_read(error) and error.details["code"] == 11602)]
        load.end()
    finally:
        network.close()
        for member in (first, second):
            member.kill()


def test_a_secondary_whose_network_was_cut_comes_back(postgres, tmp_path):
    url, network = postgres.database(), Network(postgres.port)
    first = SetMember(tmp_path / "first", url)
    first.client().t.items.insert_one({"_id": 1})
    second = SetMember(tmp_path / "second", url.replace(f":{postgres.port}/", f":{network.port}/"))
    try:
        direct = second.client()
        network.flows.clear()
        until(lambda: not direct.admin.command("hello")["secondary"], 30)
        client = connect([first, second])
        until(lambda: client.primary == ("127.0.0.1", first.port))
        nearest = client.t.items.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)
        assert nearest.find_one() == {"_id": 1} and not client.secondaries
        network.flows.set()
        until(lambda: client.secondaries == {("127.0.0.1", second.port)}, 30)
        assert on_secondary(client.t.items).find_one() == {"_id": 1}
    finally:
        network.close()
        for member in (first, second):
            member.kill()


def test_members_over_tls_with_users(tmp_path):
    files = Path(os.environ["MONGODB_TLS_FILES"])
    with Postgres(tmp_path / "postgres.log", files) as postgres, ExitStack() as ending:
        plain = postgres.database()
        url = plain.replace("sslmode=disable", f"sslmode=verify-full&sslrootcert={files}/authority.crt")
        flags = [
            "--auth", "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", f"{files}/server.pem",
            "--tlsCAFile", f"{files}/authority.crt", "--tlsAllowConnectionsWithoutCertificates",
        ]
        tls = {"tls": True, "tlsCAFile": f"{files}/authority.crt"}
        members = []
        for number in range(2):
            members.append(TlsMember(tmp_path / f"member{number}", url, flags))
            ending.callback(members[-1].kill)
            until(lambda: members[-1].says("ready on"))
        first, second = members
        with pymongo.MongoClient(first.address, directConnection=True, **tls) as client:
            client.admin.command("createUser", "ann", pwd="secret", roles=["root"])

        def knows_ann():
            ann = {"username": "ann", "password": "secret", **tls}
            with pymongo.MongoClient(second.address, directConnection=True, **ann) as client:
                try:
                    return client.admin.command("connectionStatus")
                except OperationFailure:
                    return None

        # A secondary has the users of the primary half a second later.
        until(knows_ann)
        client = connect(members, username="ann", password="secret", **tls)
        with client.start_session(causal_consistency=True) as session:
            client.t.items.insert_one({"_id": 1}, session=session)
            assert on_secondary(client.t.items).find_one({"_id": 1}, session=session)
        sessions = "select bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) where a.application_name = 'mayflydb'"
        assert postgres.ask(plain, sessions) == "t"
        client.admin.command("replSetStepDown", 60)
        client.t.items.insert_one({"_id": 2})
        assert client.primary == ("127.0.0.1", second.port)
        until(lambda: ("127.0.0.1", first.port) in client.secondaries)
        assert on_secondary(client.t.items).count_documents({}) == 2
        for member in members:
            assert member.end() == 0


class Knocks:
    """Connects to these servers some hundred times a second, and counts how often each refuses."""

    def __init__(self, members):
        self.ended, self.refused = threading.Event(), dict.fromkeys(members, 0)
        self.threads = [threading.Thread(target=self.knock, args=[member], daemon=True) for member in members]
        for thread in self.threads:
            thread.start()

    def knock(self, member):
        while not self.ended.is_set():
            try:
                socket.create_connection(("127.0.0.1", member.port), timeout=PATIENCE).close()
            except ConnectionRefusedError:
                self.refused[member] += 1
            time.sleep(0.003)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        return self.refused


def test_servers_that_begin_again_refuse_no_connection(two):
    first, second = two
    client = connect(two)
    until(lambda: len(client.nodes) == 2 and client.secondaries)
    knocks = Knocks(two)
    first.client().admin.command("replSetStepDown", 60)
    until(lambda: client.primary == ("127.0.0.1", second.port) and client.secondaries)
    assert knocks.end() == {first: 0, second: 0}
    knocks = Knocks([first])
    second.kill()
    client.t.items.insert_one({"_id": 1})
    assert client.primary == ("127.0.0.1", first.port) and knocks.end() == {first: 0}
    # The port is free when the server has ended.
    assert first.end() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first.port))


class BackgroundMember:
    """A member that was started with --fork."""

    def __init__(self, folder, url):
        folder.mkdir()
        self.port, self.pid_file = free_port(), folder / "pid"
        self.address = f"127.0.0.1:{self.port}"
        words = ["--port", str(self.port), "--dbpath", folder / "data", "--storageEngine", "postgres", "--storageUrl", url]
        words += ["--storageStandby", "--replSet", SET, "--advertise", self.address]
        words += ["--fork", "--pidfilepath", self.pid_file, "--logpath", folder / "log"]
        subprocess.run([os.environ["MAYFLYDB_BIN"], *words], check=True, env=environment(), timeout=PATIENCE)

    def client(self):
        return pymongo.MongoClient(port=self.port, directConnection=True, serverSelectionTimeoutMS=60_000)

    def pid(self):
        return int(self.pid_file.read_text())

    def end(self, how=signal.SIGTERM):
        if self.pid_file.exists():
            os.kill(pid := self.pid(), how)
            until(lambda: has_ended(pid))


def has_ended(pid):
    """Whether a process is gone. Where nothing collects orphans, it stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_members_in_the_background_hand_over(postgres, tmp_path):
    url = postgres.database()
    first = BackgroundMember(tmp_path / "first", url)
    second = BackgroundMember(tmp_path / "second", url)
    try:
        client, begun = connect([first, second], heartbeatFrequencyMS=500), first.pid()
        until(lambda: second.client().admin.command("hello")["secondary"])
        first.client().admin.command("replSetStepDown", 60)
        until(lambda: client.primary == ("127.0.0.1", second.port))
        client.t.items.insert_one({"_id": 1})
        # Another process serves clients, and the file names it.
        until(lambda: first.client().admin.command("hello")["secondary"])
        until(lambda: has_ended(begun))
        assert first.pid() != begun
        second.end()
        until(lambda: client.primary == ("127.0.0.1", first.port))
        client.t.items.insert_one({"_id": 2})
        first.end()
        assert not first.pid_file.exists() and not second.pid_file.exists()
    finally:
        first.end(signal.SIGKILL)
        second.end(signal.SIGKILL)
