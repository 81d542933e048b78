"""The faults. Each function causes one; the clients go on meanwhile, and what must be true afterwards is in checks.py."""

import threading
import time

from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from load import NAME
from programs import wait_until

#: Longer than the ten seconds after which a server without a sign of life is replaced.
STOP_SECS = 15
TAKEOVER_SECS = 1
LEASE_SECS = 10
#: A server that shows no sign of life is replaced after its lease; the takeover itself takes as long as after a kill.
REPLACED_SECS = LEASE_SECS + TAKEOVER_SECS
#: The clients notice a server that is silent after their connectTimeoutMS and heartbeatFrequencyMS.
NOTICE_SECS = 4


def other_owner(cluster, former, seconds: float = 40):
    """Waits until another server is the owner."""
    # The former owner may be paused, and would not answer.
    others = [server for server in cluster.servers if server is not former]

    def found():
        return next((server for server in others if server.hello().get("isWritablePrimary")), None)

    return wait_until(found, "another server takes over", seconds)


def kill_owner(run):
    owner = run.cluster.owner()
    owner.kill()
    other_owner(run.cluster, owner)
    owner.start()


def kill_secondary(run):
    owner = run.cluster.owner()
    secondary = next(server for server in run.cluster.servers if server is not owner)
    secondary.kill()
    run.load.await_writes()
    secondary.start()


def kill_primary(run):
    primary = run.cluster.primary()
    primary.kill_postgres()
    wait_until(lambda: run.cluster.primary() not in (None, primary), "Patroni promotes the standby")


def kill_standby(run):
    run.cluster.standby().kill_postgres()


def lose_machine(run):
    """PostgreSQL and its Patroni are gone: the standby waits until the key of the leader expires."""
    primary = run.cluster.primary()
    primary.patroni.kill()
    primary.kill_postgres()
    wait_until(lambda: run.cluster.primary() not in (None, primary), "Patroni promotes the standby", 90)
    run.load.await_writes()
    primary.patroni.start()


def kill_etcd(run):
    run.cluster.etcd.kill()
    wait_until(lambda: run.cluster.primary() is None, "Patroni demotes the primary")
    run.cluster.etcd.start()
    wait_until(run.cluster.primary, "PostgreSQL has a primary again")


def switch_over(run):
    run.cluster.switch_over()


def write_late(server):
    """A client of one server; its writes await no reply, so that they lie in the socket of a server that is paused."""
    client = server.client(heartbeatFrequencyMS=60_000)
    late = client[NAME].get_collection("late", write_concern=WriteConcern(0))
    # The connection that is used afterwards.
    client[NAME].late.find_one()
    return client, late


def stop_owner(run):
    """The owner is paused for longer than its lease; it must not execute what it received meanwhile."""
    owner = run.cluster.owner()
    client, late = write_late(owner)
    owner.pause()
    begun = time.monotonic()
    try:
        late.insert_one({"of": owner.name})
        other_owner(run.cluster, owner)
        run.note = f"; another owner after {time.monotonic() - begun:.1f} s"
        run.load.go_on_if_paused()
        time.sleep(max(0, begun + STOP_SECS - time.monotonic()))
    finally:
        owner.wake()
    wait_until(lambda: owner.hello().get("secondary"), f"{owner.name} is a secondary")
    client.close()


def stop_idle_owner(run):
    run.load.pause()
    stop_owner(run)


def stop_owner_in_transaction(run):
    """A transaction is open on the owner; after it was replaced, the transaction cannot be committed."""
    client = run.load.connect(serverSelectionTimeoutMS=20_000)
    with client.start_session() as session:
        session.start_transaction()
        client[NAME].left.insert_one({"_id": "open"}, session=session)
        client[NAME].right.insert_one({"_id": "open"}, session=session)
        stop_owner(run)
        try:
            session.commit_transaction()
            run.load.fail("a transaction of an owner that was replaced is committed")
        except PyMongoError as error:
            if not error.has_error_label("TransientTransactionError"):
                run.load.fail(f"the error of an open transaction is not transient: {error!r}")
    client.close()
    if run.load.db.left.count_documents({"_id": "open"}):
        run.load.fail("documents of a transaction are there that was not committed")


def stop_secondary(run):
    owner = run.cluster.owner()
    secondary = next(server for server in run.cluster.servers if server is not owner)
    secondary.pause()
    try:
        time.sleep(STOP_SECS)
    finally:
        secondary.wake()


def step_down(run):
    owner = run.cluster.owner()
    with owner.client() as client:
        client.admin.command("replSetStepDown", 60)
    other_owner(run.cluster, owner)
    wait_until(lambda: owner.hello().get("secondary"), f"{owner.name} is a secondary")


def restart_all(run):
    """The secondaries first, then the owner, as an upgrade does."""
    owner = run.cluster.owner()
    for server in sorted(run.cluster.servers, key=lambda server: server is owner):
        code = server.end()
        if code != 0:
            run.load.fail(f"{server.name} ended with {code}")
        server.start()
        wait_until(server.hello, f"{server.name} answers")
        run.cluster.await_whole()


def cut(which: str, seconds: float):
    """The network between the owner and PostgreSQL is cut."""
    def act(run):
        owner = run.cluster.owner()
        run.cluster.command_proxy(f"cut {owner.number} {which}")
        try:
            time.sleep(seconds)
        finally:
            run.cluster.command_proxy(f"open {owner.number}")

    return act


def during(run, act):
    """Executes something again and again while the owner is killed; its errors are counted, since no driver retries it."""
    ended, errors = threading.Event(), []

    def repeat():
        while not ended.is_set():
            try:
                act()
            except PyMongoError as error:
                errors.append(error)
            time.sleep(0.01)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    time.sleep(0.3)
    kill_owner(run)
    run.load.await_writes()
    ended.set()
    thread.join(60)
    run.not_retried += len(errors)


def build_index(run):
    documents = run.load.db.documents

    def build():
        documents.create_index([("text", 1), ("n", 1)], name="built")
        documents.drop_index("built")

    during(run, build)
    documents.create_index([("text", 1), ("n", 1)], name="built")
    run.load.pause()
    indexed = documents.count_documents({"text": {"$gte": ""}}, hint="built")
    everything = documents.count_documents({}, hint="_id_")
    if indexed != everything:
        run.load.fail(f"the index has {indexed} documents, the collection {everything}")
    documents.drop_index("built")


def rename(run):
    database = run.load.db

    def move():
        for one, other in (("moving", "moved"), ("moved", "moving")):
            try:
                database[one].rename(other)
            except PyMongoError as error:
                # 26: it has the other name already.
                if getattr(error, "code", None) != 26:
                    raise

    during(run, move)
    counts = sorted(database[name].count_documents({}) for name in ("moving", "moved"))
    if counts != [0, 500]:
        run.load.fail(f"a collection was renamed, the documents under both names are {counts}")


#: Name, function, and for how long writes may pause although PostgreSQL accepts them; 2 s are added to the longer of this and
#: of the time that Patroni's cluster accepted no commit.
SHORT = [
    ("kill -9 of the owner", kill_owner, TAKEOVER_SECS),
    ("kill -9 of a secondary", kill_secondary, 0),
    ("kill -9 of PostgreSQL's primary", kill_primary, 0),
    ("kill -9 of PostgreSQL's standby", kill_standby, 0),
    ("kill -9 of etcd", kill_etcd, 0),
    ("owner paused for 15 s, idle", stop_idle_owner, REPLACED_SECS),
    ("owner paused for 15 s, under writes", stop_owner, REPLACED_SECS),
    ("owner paused for 15 s, open transaction", stop_owner_in_transaction, REPLACED_SECS),
    ("secondary paused for 15 s", stop_secondary, NOTICE_SECS),
    ("rs.stepDown()", step_down, TAKEOVER_SECS),
    ("rolling restart", restart_all, TAKEOVER_SECS),
    ("network of the owner cut for 5 s, both ways", cut("both", 5), 5),
    ("network of the owner cut for 5 s, replies only", cut("from", 5), 5),
    ("index build during a takeover", build_index, TAKEOVER_SECS),
    ("renameCollection during a takeover", rename, TAKEOVER_SECS),
    ("patronictl switchover", switch_over, 0),
]
#: In the cuts of 16 s another server takes over after ten. The former owner cannot know that, and ends its operations when it
#: could not reach PostgreSQL for ten seconds, which it notices up to two seconds later.
LONG = [
    ("network of the owner cut for 5 s, requests only", cut("to", 5), 5),
    ("network of the owner cut for 16 s, both ways", cut("both", 16), 12),
    ("network of the owner cut for 16 s, requests only", cut("to", 16), 12),
    ("network of the owner cut for 16 s, replies only", cut("from", 16), 12),
    ("machine of PostgreSQL's primary lost", lose_machine, 0),
]
#: Once more, since what they interrupt is different each time.
AGAIN = ["kill -9 of the owner", "kill -9 of PostgreSQL's primary", "owner paused for 15 s, under writes", "kill -9 of the owner",
         "patronictl switchover", "kill -9 of PostgreSQL's primary", "rolling restart"]


def chosen(is_short: bool, match: str) -> list:
    table = SHORT if is_short else SHORT + LONG
    again = [] if is_short else [next(one for one in table if one[0] == name) for name in AGAIN]
    return [one for one in table + again if match in one[0]]
