"""What the database tools send: mongodump and mongorestore, mongoexport and mongoimport.

The tools cannot be installed from a package registry, so these functions send their commands, with the same options and in the
same order. Documents are kept as the bytes that came, as the tools keep them.
"""

from bson import encode
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from pymongo.write_concern import WriteConcern

RAW = CodecOptions(document_class=RawBSONDocument)
BATCH = 1000


def collections_of(database):
    """`listCollections` as mongodump asks: everything, `system.` collections of time series left to their owners."""
    cursor = database.list_collections()
    return [info for info in cursor if not info["name"].startswith("system.")]


def dump(database):
    """mongodump of a database: for each collection its metadata and its documents."""
    database.client.admin.command("isMaster")
    database.client.admin.command("buildInfo")
    archive = []
    for info in collections_of(database):
        metadata = {"options": info.get("options", {}), "indexes": [], "type": info["type"], "name": info["name"]}
        documents = []
        if info["type"] != "view":
            # A time series has none that it tells.
            metadata["uuid"] = info["info"].get("uuid")
            metadata["indexes"] = list(database[info["name"]].list_indexes())
            stored = info["name"]
            if info["type"] == "timeseries":
                stored = f"system.buckets.{info['name']}"
            database.command("count", stored)
            raw = database.get_collection(stored, codec_options=RAW)
            # A scan in the order of `_id`, but for what has no such order.
            hint = {} if "capped" in metadata["options"] or info["type"] == "timeseries" else {"hint": {"_id": 1}}
            documents = [bytes(document.raw) for document in raw.find({}, no_cursor_timeout=True, **hint)]
        archive.append((metadata, documents))
    return archive


def restore(database, archive, *, apply_uuid=False):
    """mongorestore of a database that does not exist: collections with their options, documents, indexes, views last."""
    admin = database.client.admin
    admin.command("buildInfo")
    admin.command("getParameter", 1, featureCompatibilityVersion=1)
    # Views come after what they look at.
    for metadata, documents in sorted(archive, key=lambda entry: entry[0]["type"] == "view"):
        name = metadata["name"]
        assert list(database.list_collections(filter={"name": name})) == []
        create(database, metadata, apply_uuid=apply_uuid)
        if metadata["type"] == "view":
            continue
        stored = f"system.buckets.{name}" if metadata["type"] == "timeseries" else name
        insert_all(database, stored, documents)
        restore_indexes(database, metadata)


def create(database, metadata, *, apply_uuid):
    options = dict(metadata["options"])
    primary = [index for index in metadata["indexes"] if index["name"] == "_id_"]
    # A collection with a collation brings the index on `_id` with it; clustered collections have none.
    if primary and "clusteredIndex" not in options:
        options["idIndex"] = {k: v for k, v in primary[0].items() if k != "ns"}
    command = SON([("create", metadata["name"]), *options.items()])
    if apply_uuid and metadata["type"] == "collection":
        entry = {"op": "c", "ns": f"{database.name}.$cmd", "ui": metadata["uuid"], "o": command}
        database.client.admin.command("applyOps", [entry])
    else:
        database.command(command)


def insert_all(database, name, documents):
    for first in range(0, len(documents), BATCH):
        reply = database.command(
            "insert",
            name,
            documents=[RawBSONDocument(document) for document in documents[first : first + BATCH]],
            ordered=False,
            bypassDocumentValidation=True,
            bypassEmptyTsReplacement=True,
            writeConcern={"w": "majority"},
        )
        assert "writeErrors" not in reply, reply["writeErrors"][0]
        assert reply["n"] == len(documents[first : first + BATCH])


def restore_indexes(database, metadata):
    indexes = [
        {key: value for key, value in index.items() if key != "ns"}
        for index in metadata["indexes"]
        if index["name"] != "_id_" and not index.get("clustered")
    ]
    if indexes:
        database.command("createIndexes", metadata["name"], indexes=indexes, ignoreUnknownIndexOptions=True)


def newest_entry(client):
    """The time from which mongodump --oplog copies the log."""
    newest = client.local["oplog.rs"].find_one({}, sort=[("$natural", -1)])
    return newest["ts"]


def dump_oplog(client, since):
    """The entries after a time, up to the newest now, as mongodump --oplog copies them."""
    until = newest_entry(client)
    raw = client.local.get_collection("oplog.rs", codec_options=RAW)
    entries = raw.find({"ts": {"$gt": since, "$lte": until}}, oplog_replay=True)
    return [bytes(entry.raw) for entry in entries]


def replay_oplog(client, entries, *, upsert=False):
    """mongorestore --oplogReplay without --preserveUUID: every entry that is not a no-op, by the names of collections.

    With `upsert` an update makes a document that is missing, as when the data is newer than the log.
    """
    for entry in map(RawBSONDocument, entries):
        if entry["op"] == "n":
            continue
        operation = without_uuid(entry, upsert)
        reply = client.admin.command("applyOps", [operation])
        assert reply["ok"] == 1.0


def without_uuid(entry, upsert):
    operation = {key: value for key, value in entry.items() if key in ("op", "ns", "o", "o2", "b", "v", "ts")}
    if upsert and operation["op"] == "u":
        operation["b"] = True
    # Several documents of one write are one entry. The tool handles each of its operations like an entry.
    if entry["op"] == "c" and "applyOps" in entry["o"]:
        operation["o"] = {"applyOps": [without_uuid(inner, upsert) for inner in entry["o"]["applyOps"]]}
    return operation


def export(collection):
    """mongoexport: a count for the progress, then a scan."""
    collection.estimated_document_count()
    return list(collection.find({}, sort=[("_id", 1)], no_cursor_timeout=True))


def import_documents(collection, documents, *, upsert_by=None):
    """mongoimport: inserts in batches, or replacements by the fields of `upsert_by`."""
    majority = collection.with_options(write_concern=WriteConcern("majority"))
    if upsert_by is None:
        insert_all(majority.database, collection.name, [encode(document) for document in documents])
        return
    for document in documents:
        selector = {field: document[field] for field in upsert_by}
        majority.database.command(
            "update",
            collection.name,
            updates=[{"q": selector, "u": document, "upsert": True}],
            bypassDocumentValidation=True,
            bypassEmptyTsReplacement=True,
        )


AUTH_SCHEMA, TEMPORARY = 5, {"users": "tempusers", "roles": "temproles"}


def dump_users_and_roles(client, database=""):
    """mongodump of the whole server, or of a database with --dumpDbUsersAndRoles: users, roles, and the form that they have."""
    assert client.admin.command("getParameter", 1, authSchemaVersion=1)["authSchemaVersion"] == AUTH_SCHEMA
    query = {"db": database} if database else {}
    archive = {}
    for kind in TEMPORARY:
        raw = client.admin.get_collection(f"system.{kind}", codec_options=RAW)
        archive[kind] = [bytes(document.raw) for document in raw.find(query)]
    archive["version"] = list(client.admin["system.version"].find({}))
    return archive


def restore_users_and_roles(client, archive, database="", *, drop=False):
    """mongorestore of them: into collections of its own, from which the server takes them over."""
    admin = client.admin
    assert {"_id": "authSchema", "currentVersion": AUTH_SCHEMA} in archive["version"]
    assert admin.command("getParameter", 1, authSchemaVersion=1)["authSchemaVersion"] == AUTH_SCHEMA
    present = [info["name"] for info in admin.list_collections()]
    command = SON([("_mergeAuthzCollections", 1)])
    for kind, name in TEMPORARY.items():
        if name in present:
            admin[name].drop()
        insert_all(admin, name, archive[kind])
        command[f"temp{kind.capitalize()}Collection"] = f"admin.{name}"
    command.update([("drop", drop), ("db", database), ("writeConcern", {"w": "majority"})])
    try:
        admin.command(command)
    finally:
        for name in TEMPORARY.values():
            admin[name].drop()
