"""Logging in by a driver, and what a server with --auth refuses."""

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from urllib.parse import quote_plus

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import database_tools as tools

READY = re.compile(r"ready on (127\.0\.0\.1:\d+)")
START_SECS, STOP_SECS = 30, 20
# SASLprep makes these one password: the composed and the decomposed form of one character.
PASSWORD, SAME_PASSWORD = "p\u00e4ss/w:rd@", "pa\u0308ss/w:rd@"


@contextmanager
def running(folder):
    """The address of a server with --auth, and a root user."""
    log = folder / "log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAYFLYDB_")}
    arguments = ["--port", "0", "--dbpath", str(folder / "data"), "--storageEngine", "memory", "--auth"]
    (folder / "data").mkdir()
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [os.environ["MAYFLYDB_BIN"], *arguments],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
        )
    try:
        deadline = time.monotonic() + START_SECS
        while not (ready := READY.search(log.read_text(errors="replace"))):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.02)
        with MongoClient(f"mongodb://{ready[1]}") as client:
            client.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
        yield ready[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECS) == 0
        shown = log.read_text(errors="replace")
        assert PASSWORD not in shown and SAME_PASSWORD not in shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a server with users of the database `shop`."""
    with running(tmp_path_factory.mktemp("auth")) as address:
        with connect(address, "root", "admin") as root:
            create = root.shop.command
            create("createUser", "both", pwd=PASSWORD, roles=["readWrite"])
            create("createUser", "old", pwd=PASSWORD, roles=["read"], mechanisms=["SCRAM-SHA-1"])
            create("createUser", "new", pwd=PASSWORD, roles=["read"], mechanisms=["SCRAM-SHA-256"])
            create("createUser", "a,b=c@d", pwd=PASSWORD, roles=["read"])
            root.shop.orders.insert_many({"_id": number} for number in range(10))
        yield address


def connect(address, user, source, password=PASSWORD, **options):
    return MongoClient(f"mongodb://{address}", username=user, password=password, authSource=source, **options)


def code_of(action):
    with pytest.raises(OperationFailure) as failed:
        action()
    return failed.value.code


@pytest.mark.parametrize(
    "user, options",
    [
        ("both", {}),
        ("both", {"authMechanism": "SCRAM-SHA-1"}),
        ("both", {"authMechanism": "SCRAM-SHA-256"}),
        ("old", {}),
        ("old", {"authMechanism": "SCRAM-SHA-1"}),
        ("new", {}),
        ("new", {"authMechanism": "SCRAM-SHA-256"}),
        ("a,b=c@d", {}),
        ("both", {"authMechanism": "SCRAM-SHA-256", "password": SAME_PASSWORD}),
    ],
)
def test_users_log_in_by_their_mechanisms(address, user, options):
    with connect(address, user, "shop", **options) as client:
        assert client.shop.orders.count_documents({}) == 10
        status = client.admin.command("connectionStatus")["authInfo"]
        assert status["authenticatedUsers"] == [{"user": user, "db": "shop"}]


@pytest.mark.parametrize(
    "user, source, options",
    [
        ("both", "shop", {"password": "wrong"}),
        ("both", "shop", {"password": "wrong", "authMechanism": "SCRAM-SHA-1"}),
        ("both", "admin", {}),
        ("nobody", "shop", {}),
        ("old", "shop", {"authMechanism": "SCRAM-SHA-256"}),
        ("new", "shop", {"authMechanism": "SCRAM-SHA-1"}),
    ],
)
def test_others_are_refused_alike(address, user, source, options):
    with connect(address, user, source, **options) as client:
        with pytest.raises(OperationFailure) as failed:
            client.shop.orders.find_one()
        assert failed.value.code == 18 and "Authentication failed." in str(failed.value)


def test_without_a_login_there_is_nothing_but_the_handshake(address):
    with MongoClient(f"mongodb://{address}") as client:
        assert client.admin.command("ping")["ok"] == 1
        assert code_of(lambda: client.shop.orders.find_one()) == 13
        assert code_of(lambda: client.admin.command("createUser", "x", pwd="y", roles=["root"])) == 13


def test_rights_end_where_the_roles_do(address):
    with connect(address, "new", "shop") as client:
        assert [database["name"] for database in client.list_databases()] == ["shop"]
        assert client.shop.list_collection_names(authorizedCollections=True, nameOnly=True) == ["orders"]
        assert len(list(client.shop.orders.find(batch_size=2))) == 10
        assert code_of(lambda: client.shop.orders.insert_one({})) == 13
        assert code_of(lambda: list(client.shop.orders.aggregate([{"$out": "copy"}]))) == 13
        assert code_of(lambda: client.other.c.find_one()) == 13
        assert code_of(lambda: client.admin.command("serverStatus")) == 13
    with connect(address, "both", "shop") as client, client.start_session() as session:
        with session.start_transaction():
            client.shop.orders.insert_one({"_id": "t"}, session=session)
        client.shop.orders.delete_one({"_id": "t"})
        list(client.shop.orders.aggregate([{"$out": "copy"}]))
        client.shop.copy.drop()


def test_a_changed_role_holds_for_open_connections(address):
    with connect(address, "root", "admin") as root, connect(address, "old", "shop") as client:
        assert client.shop.orders.find_one() is not None
        root.shop.command("revokeRolesFromUser", "old", roles=["read"])
        assert code_of(lambda: client.shop.orders.find_one()) == 13
        root.shop.command("grantRolesToUser", "old", roles=["read"])
        assert client.shop.orders.find_one() is not None


def test_names_and_passwords_in_connection_strings(address):
    name, password = "r@ot:/%", "p@ss:/%\u2168"
    with connect(address, "root", "admin") as root:
        root.shop.command("createUser", name, pwd=password, roles=["read"])
    login = f"{quote_plus(name)}:{quote_plus(password)}"
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
        options = f"authSource=shop&authMechanism={mechanism}"
        with MongoClient(f"mongodb://{login}@{address}/?{options}") as client:
            assert client.shop.orders.count_documents({}) == 10


def test_a_changed_password_is_needed_by_new_connections_only(address):
    with connect(address, "root", "admin") as root:
        root.shop.command("createUser", "changing", pwd="before", roles=["read"])
        with connect(address, "changing", "shop", "before", maxPoolSize=1) as old:
            assert old.shop.orders.find_one() is not None
            root.shop.command("updateUser", "changing", pwd="after")
            assert old.shop.orders.find_one() is not None
            with connect(address, "changing", "shop", "before") as late:
                assert code_of(lambda: late.shop.orders.find_one()) == 18
            with connect(address, "changing", "shop", "after") as new:
                assert new.shop.orders.find_one() is not None


def test_a_session_belongs_to_its_user(address):
    with connect(address, "both", "shop") as own, connect(address, "new", "shop") as other:
        with own.start_session() as session:
            cursor = own.shop.orders.find(batch_size=2, session=session)
            next(cursor)
            named = [session.session_id]
            other.admin.command("killSessions", named)
            other.admin.command("endSessions", named)
            assert len(list(cursor)) == 9
            listed = [{"$listLocalSessions": {}}]
            ids = lambda client: [one["_id"]["id"] for one in client.shop.aggregate(listed)]
            assert session.session_id["id"] in ids(own) and session.session_id["id"] not in ids(other)
            assert code_of(lambda: other.shop.aggregate([{"$listLocalSessions": {"allUsers": True}}])) == 13


@pytest.fixture(scope="module")
def kept(address):
    """The same server with roles, users who have them, and one who may make backups."""
    privileges = [{"resource": {"db": "shop", "collection": "orders"}, "actions": ["find"]}]
    with connect(address, "root", "admin") as root:
        for source, name in (("shop", "clerk"), ("admin", "keeper")):
            root[source].command("createRole", name, privileges=privileges, roles=[])
            root[source].command("createUser", name, pwd=PASSWORD, roles=[name])
        root.admin.command("createUser", "saver", pwd=PASSWORD, roles=["backup"])
    return address


@pytest.mark.parametrize("database", ["", "shop"])
def test_users_and_roles_are_dumped_and_restored(kept, tmp_path, database):
    with connect(kept, "saver", "admin") as saver:
        archive = tools.dump_users_and_roles(saver, database)
        documents = tools.dump(saver.shop)
    with running(tmp_path) as empty:
        with connect(empty, "root", "admin") as root:
            root.admin.command("createUser", "restorer", pwd=PASSWORD, roles=["restore"])
        with connect(empty, "restorer", "admin") as restorer:
            tools.restore(restorer.shop, documents)
            tools.restore_users_and_roles(restorer, archive, database)
            assert "tempusers" not in [info["name"] for info in restorer.admin.list_collections()]
            assert code_of(lambda: restorer.shop.orders.find_one()) == 13
        for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
            with connect(empty, "clerk", "shop", authMechanism=mechanism) as clerk:
                assert clerk.shop.orders.count_documents({}) == 10
                assert code_of(lambda: clerk.shop.orders.insert_one({})) == 13
        with connect(empty, "keeper", "admin") as keeper:
            count = lambda: keeper.shop.orders.count_documents({})
            # A database's users are restored alone.
            assert code_of(count) == 18 if database else count() == 10
        # Who was there stays, and with --drop goes when it was not dumped.
        with connect(empty, "root", "admin") as root, connect(empty, "restorer", "admin") as restorer:
            root.shop.command("createUser", "late", pwd=PASSWORD, roles=[])
            tools.restore_users_and_roles(restorer, archive, database)
            assert users(root, "shop", "late")
            tools.restore_users_and_roles(restorer, archive, "shop", drop=True)
            assert not users(root, "shop", "late") and users(root, "shop", "clerk")


def test_users_are_restored_by_those_who_may_create_them(address):
    with connect(address, "both", "shop") as client:
        command = {"_mergeAuthzCollections": 1, "tempUsersCollection": "shop.orders", "db": "", "drop": False}
        assert code_of(lambda: client.admin.command(command)) == 13


def users(client, source, name):
    return client[source].command("usersInfo", name)["users"]
