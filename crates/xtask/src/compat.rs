//! COMPATIBILITY.md: supported and missing members, from the tables that the server uses itself.

use std::fmt::Write;

use mayfly_commands::{Handler, registry};
use mayfly_mql::matcher::op as match_op;
use mayfly_mql::update::op as update_op;
use mayfly_query::{ABSENT_STAGES, Absence, STAGES, StageRow};

const HEAD: &str = "\
# Compatibility

What this server answers to, compared with MongoDB 8.0. Generated from the tables in the code by
`cargo run -p mayfly-xtask -- pages`; a test fails when it is out of date.

A member that is listed as missing answers its proper error, usually 238 `NotImplemented`; one that is not listed at
all does not exist in the reference either. Members that came with versions behind 8.0 answer as 8.0 does, which does not
recognize them; those that work nevertheless are extensions: the expression `$sigmoid`, and the accumulators and window functions
`$concatArrays` and `$setUnion`, all of 8.1.

## On purpose different

* A wall clock that jumps by more than `ttlClockJumpLimitSecs` (300) suspends expiry until it is back, or until `ttlResume`: the
  reference deletes what is due by the new time at once.
* NaN as `expireAfterSeconds` in `collMod` is refused with 72 instead of becoming 0, which would empty the collection.
* `expireAfterSeconds` on a compound index makes a plain index, with a note in the reply, as the manual says
  (`setParameter: ttlIndexRules: \"mongod8\"` gives the error of 8.x servers instead).
* A visit of the TTL monitor is a full operation: `currentOp` shows it as a `remove` with its plan and a `ttl` document,
  `killOp` ends the visit, and its oplog entries name the index.
* Extensions that plain clients never notice are described in [EXPIRY.md](EXPIRY.md): the document `ttl` of a policy, `dryRun`,
  `onConflict`, `expireAfterSeconds: \"off\"` for an index, `$ttlStats`, `ttlStatus`, `ttlResume`, and last-modified policies on `_ts`.
  With `setParameter: lastModifiedTTL: false` a TTL index on `_ts` is one like any other.
* `hello` answers as a router (`msg: isdbgrid`): drivers send retryable writes, which are answered once and for all, run
  transactions, and do not look for other addresses. Answers carry no `recoveryToken`: there is one server to ask.
* Between two statements a transaction holds no lock on a collection. `createIndexes` and a `collMod` that changes no answer
  of it go on beside it: it does not use an index that was made meanwhile, and its commit writes the keys. When they do not go
  into a unique index, the commit fails with 112. Other changes of definitions wait, up to their `maxTimeMS`, for the
  transactions that had come to the collection when the change was asked for; one that comes to it later, and began before
  the change, ends with 246.
* In a transaction time stands still: what is due and hidden is so as of its beginning. What it has written itself carries that
  time, too.
* `--replSet NAME` makes a replica set of one member. `replSetStepDown` needs `force: true` and refuses at once without it, where
  the reference first waits for others to catch up. Cluster times are not signed.
* A change stream goes back as far as the operation log does, and so do images before and after a change, which the log holds
  (`changeStreamPreAndPostImages`). `updateDescription` is made of the documents before and after an update, not of the
  operators: `$set` of a whole document is told field by field. Deletions by a TTL policy carry `ttl`. A stream over everything
  leaves out `admin`, `config` and `local`. Streams that wait read nothing while others write; how many entries of the log streams have
  read is `serverStatus.metrics.changeStreams.logEntriesRead`.
* With `--auth` the handshake lists all mechanisms for a user that does not exist, where the reference lists none and so tells that
  there is no such user; an unknown mechanism fails with 18 as a wrong password does. A policy that archives into a collection needs
  `insert` on it. A login replaces the one before it on the same connection.
* With TLS and without `net.tls.CAFile` the server starts, and asks clients for no certificate; the reference refuses to start.
* To all addresses (`--bind_ip_all`) the server listens only with `--auth` or `--allowOpen`.
* Before a login, messages have 64 KiB at most and each step has 10 seconds; half of `--maxConns` are for connections without a login.
  Answers to failed logins of one address are delayed when there are many.
* `authenticate` knows MONGODB-X509 only, and `saslStart` the two mechanisms of SCRAM.
* A first start whose script fails is not taken for complete (`MONGO_INITDB_ROOT_USERNAME`, `/docker-entrypoint-initdb.d`).
* SIGHUP opens the log files again and reads certificates again, where the reference stops. After SIGTERM commands may go on for
  `shutdownTimeoutMillisForSignaledShutdown`, 5 seconds by default (the reference: 15), because Docker kills a container after 10.
* `systemLog.logAppend` is true by default. `systemLog.logRotate: rename` leaves a log file alone that another program has moved.
* Keys of `mongod.conf` that have no meaning here are ignored with a line in the log. `security.keyFile` and `security.clusterAuthMode` switch
  authorization on and are not read otherwise. `storage.engine: wiredTiger` means RocksDB.
* `top` has no entries for namespaces that do not exist.
* The audit log has commands about users and roles with the code of their error, too, where the reference has those that succeeded.
  `createIndex` has no event for the index on `_id`, and a build that fails is followed by the `dropIndex` that takes it back.
  `directAuthMutation` leaves out the documents, `authCheck` what stands in document sequences and commands that need no login.
  `auditLog.schema` is that of `mongo`; a changed view, `replSetInitiate` and `updateCachedClusterServerParameter` are no events.
* A statement that is sent again and had no effect the first time is run again.
* Updates by operators are logged as deltas, replacements as whole documents.
* Strings are always normalized before a collation compares them, so `normalization: false` is as `true`. The rules are those
  of a newer Unicode than the reference's. `backwards` for locales with rules of their own, variants for searching, and
  locales without data (`bo`, `dz`, `fa_AF`, `haw`, `kl`, `lkt`, `ln`, `se`, `smn`, `wae`, `yi`) answer 238.
* Scripts (`$where`, `$function`, `$accumulator`) run in QuickJS, each in a heap of its own that begins empty with the
  statement: what one leaves in its globals no other sees (the functions of one `$accumulator` share theirs). Texts and stacks
  of their errors are QuickJS's. Numbers inside arrays come back as doubles; a field of a document keeps its integer type. Dates
  that JavaScript cannot hold come back as the lowest date.
  `print` writes nothing; there is no `sleep`, no `hex_md5`, no `Proxy`, and no stored functions.
* `$percentile` and `$median` are exact, not estimated. `$setUnion` and `$setIntersection` answer in ascending order.
  `$dateFromString` without a `format` knows the common forms only: ISO 8601, dates with names of months, month/day/year,
  `@seconds`, each with an offset or a time zone.
* A cursor over `$near` or `$geoNear` gives each document as it was when the search came to it, in whichever batch: order and
  distances are those of one answer. What waits beyond 100 MiB is in a file; without `allowDiskUse` that is an error (292).
* `$out` looks at its target when it writes its first results, about 250 documents or 1 MiB, not before it reads; changes of the
  target's options or indexes after that make it fail (125), as in the reference. While they are beside the target, results do not
  expire, are not hidden and not archived: one that is due has its keys like any other (11000).
* Numbers of records (`showRecordId`) have gaps, as where a write was tried again, and none is used twice.
* A writer is not refused by a unique index that is still being built: the build ends with the error.
* An update or delete of many documents in a capped collection goes on behind what is gone meanwhile; cursors end with 136.
* A geometry may have at most 250,000 points. The border of `$box`, `$center` and `$polygon` belongs to them.
* `queryShapeHash`, `planCacheShapeHash` and `planCacheKey` are equal for queries of one shape and differ for others, as in the
  reference, but their digits are this server's own: restored query settings of another server are found under the hashes that their
  representative queries have here. In the shape of a command a flag that is false, a limit of 0 and an empty order count as absent. `queryFramework` in
  query settings is kept and shown and changes nothing. Index filters end when their collection gets another name.
* Plans are tried in turns of 16, 32, 64 ... keys and documents, each looked at counting as one of `works`; explaining shows no
  yields. `internalQueryPlanEvaluationCollFraction` is 0 (the reference: 0.3), and a collection remembers 1,000 plans
  (`internalQueryCacheMaxEntriesPerCollection`; the reference: 5,000). Sorted intersection (`AND_SORTED`) is never planned,
  `AND_HASH` where `internalQueryPlannerEnableHashIntersection` says so. `internalQueryFacetBufferSizeBytes` changes nothing:
  `$facet` keeps no input.
* Stages about shards answer as on a server that has none.
* Arrays and texts that an expression makes on its way may be no larger than a document (10334), just as its result.
* A build of an index that a crash cut off is forgotten at the next start, with a line in the log.
* OP_QUERY takes what drivers send before and while they log in, as in the reference: `hello`, `isMaster`, `buildInfo`,
  `saslStart`, `saslContinue`, `authenticate`, `_isSelf`.
* `replSetReconfig` changes version, address, tags and settings of the one member; settings are kept and change nothing. Further
  members answer 238. An address that is the one of the client's connection stays that of each connection.
* On the router `config.shards` has this server as the only shard, so that `sh.status()` works; `config.databases` and
  `config.collections` are empty.
* `prepareUnique` refuses new duplicates; the conversion (`unique: true` in `collMod`) answers 238.
* Buckets of a time series are packed in this server's own way. `system.buckets.*` shows them in the reference's format, with
  columns (BSONColumn) of whole values, repetitions and gaps; nothing but whole buckets is written there, as `mongorestore`
  does. They are taken apart and checked against their own bounds and counts; one with measurements beyond
  `bucketMaxSpanSeconds` is refused (121). In change streams and in the operation log buckets are as they are stored; `applyOps`
  takes such entries, and buckets in the reference's format, but not the reference's deltas of buckets. Meta
  values are grouped byte by byte: documents with their fields in another order are different sources. `system.views` does not
  list time series.
* `local.oplog.rs` is there without `--replSet`, too. It has entries of one write unit as `applyOps`, and beside the reference's
  fields `ttl` (which policy deleted) and images of documents (`preImage`, `postImage`). `oplogSizeMB` counts entries as they are
  shown, whatever they take on the disk. `replSetResizeOplog` takes sizes from 1 MB on (the reference: from 990 MB), with and without
  `--replSet`. On a disk that is nearly full the log is cut as a whole, whatever `minRetentionHours` says.
* Read concern `snapshot` reads everything with the first batch, and keeps the rest for later batches in a temporary file. Earlier
  times can be asked for that an answer named as its `atClusterTime` (`minSnapshotHistoryWindowInSeconds`), or behind which nothing
  was written; others answer 239. A collection whose indexes or options have changed since answers 246. What is due and hidden
  now is hidden in such reads, too. Cluster times that clients gossip show in `$clusterTime`; they move the operation log's clock
  only when a command waits for them.
* A change stream, and a read with read concern `majority`, show only what is on the disk: the answer waits for it.
* A pattern that gives up on a text (10,000 steps from one place of it, or the stack of the compiled pattern), and one that is asked
  of a text of more than 16 KiB, is answered by an automaton in linear time where both engines read it alike. What it does not read (back references, lookaround, `x`, letters
  outside ASCII in either case) may take 200,000 steps and 16 MiB of stack. A command that meets a text beyond that fails with
  51156, as one with `$regexMatch` does, because it is not known whether the document matches; filters of the reference take such
  a text for one that does not match. A write that a validator cannot judge for that reason is refused, under `warn`, too.

## Not there yet, beside the lists

`tests/scripts/commands/not_there_yet.txt` holds what these answer.

* Sets of more than one member, and shards. Logins by Kerberos, LDAP, OpenID Connect and PLAIN.
* Encryption of the data folder, and of fields (`encryptedFields`, `encrypt` in `$jsonSchema`).
* Options: `temp` and, on `local`, `autoIndexId: false` of `create`; `recordPreImages`, `index.unique` and
  `index.forceNonUnique` of `collMod`; `repair` and `metadata` of `validate`;
  `dryRun` of `compact`; `returnKey` of `find` over an index that has a collation or arrays; of `$changeStream` `showSystemEvents`,
  `showMigrationEvents`, `showRawUpdateDescription`, `allowToRunOnConfigDB` and `allowToRunOnSystemNS`.
* Explaining `$changeStream`, and reads of the operation log.
* Indexes of older formats: `2dsphereIndexVersion: 1`, `textIndexVersion` 1 and 2.
* Of time series: collations, indexes on `_id`, and by other fields than the meta field partial, hashed, wildcard and `2dsphere` indexes.

";

/// The page.
pub(crate) fn page() -> String {
    let mut out = HEAD.to_owned();
    commands(&mut out);
    let matching = match_op::ROWS.iter().map(|row| {
        let missing = matches!(
            row.parse,
            match_op::Parse::MissingTopLevel | match_op::Parse::MissingPredicate
        );
        (row.name, !missing)
    });
    section(&mut out, "Query operators", matching);
    let updates = update_op::ROWS.iter().map(|row| (row.name, true));
    section(&mut out, "Update operators", updates);
    let parts = update_op::ARRAY_PARTS.iter().map(|name| (*name, true));
    section(&mut out, "Update paths", parts);
    let clauses = update_op::CLAUSES.iter().map(|name| (*name, true));
    section(&mut out, "Clauses of $push and $addToSet", clauses);
    let of_updates = mayfly_mql::update::pipeline::STAGES.iter().map(|row| (row.name, true));
    section(&mut out, "Stages of an update", of_updates);
    let projections = mayfly_mql::projection::row::ROWS.iter().map(|row| (row.name, row.works));
    section(&mut out, "Projection", projections);
    stages(&mut out);
    let accumulators = mayfly_expr::accum::ROWS.iter().map(|row| (row.name, true));
    section(&mut out, "Accumulators of $group", accumulators);
    let windows = mayfly_expr::window::ROWS.iter().map(|row| row.name);
    let accumulators = mayfly_expr::accum::ROWS.iter().map(|row| row.name);
    let accumulators = accumulators.filter(|name| mayfly_expr::window::takes_accumulator(name));
    let windows = windows.chain(accumulators).map(|name| (name, true));
    section(&mut out, "Window functions of $setWindowFields", windows);
    newer(&mut out, mayfly_expr::window::NEWER);
    let expressions = mayfly_expr::op::rows().map(|row| (row.name, true));
    section(&mut out, "Expressions", expressions);
    newer(&mut out, mayfly_expr::op::NEWER);
    let options = mayfly_value::collation::OPTIONS.iter().map(|name| (*name, true));
    section(&mut out, "Collation", options);
    let parameters = mayfly_service::parameters::TABLE.iter().map(|row| (row.name, true));
    section(&mut out, "Server parameters", parameters);
    out
}

/// Members that no server of 8.0 knows.
fn newer(out: &mut String, names: &[&str]) {
    out.push_str("Newer than 8.0, so that they are unrecognized:\n\n");
    list(out, names);
}

fn stages(out: &mut String) {
    let mut rows: Vec<&StageRow> = STAGES.iter().filter(|row| !row.is_internal()).collect();
    rows.sort_by_key(|row| row.name);
    out.push_str(
        "## Pipeline stages that work\n\n| stage | what it does | since |\n|---|---|---|\n",
    );
    for row in rows {
        let since = if row.since.is_empty() { "this server only" } else { row.since };
        let _ = writeln!(out, "| `{}` | {} | {since} |", row.name, row.help);
    }
    let absent = |wanted: &[Absence]| -> Vec<&str> {
        let stages = ABSENT_STAGES.iter().filter(|stage| wanted.contains(&stage.absence));
        let mut names: Vec<_> = stages.map(|stage| stage.name).collect();
        names.sort_unstable();
        names
    };
    out.push_str("\n## Pipeline stages that are missing\n\n");
    list(out, &absent(&[Absence::Missing, Absence::Search]));
    newer(out, &absent(&[Absence::Newer]));
}

fn commands(out: &mut String) {
    let mut commands: Vec<_> = registry::commands().iter().collect();
    commands.sort_by_key(|command| command.row.name);
    out.push_str("## Commands that work\n\n| command | what it does |\n|---|---|\n");
    for command in commands.iter().filter(|it| matches!(it.handler, Handler::Run(_))) {
        let _ = writeln!(out, "| `{}` | {} |", command.row.name, command.row.help);
    }
    let missing: Vec<&str> = commands
        .iter()
        .filter(|command| matches!(command.handler, Handler::Missing))
        .map(|command| command.row.name)
        .collect();
    out.push_str("\n## Commands that are missing\n\n");
    list(out, &missing);
}

fn section(out: &mut String, title: &str, members: impl Iterator<Item = (&'static str, bool)>) {
    let mut members: Vec<_> = members.collect();
    members.sort_unstable();
    members.dedup();
    let names = |works: bool| -> Vec<&str> {
        members.iter().filter(|member| member.1 == works).map(|member| member.0).collect()
    };
    let _ = writeln!(out, "## {title}\n");
    for (label, works) in [("Work", true), ("Missing", false)] {
        let names = names(works);
        if !names.is_empty() {
            let _ = writeln!(out, "{label}:\n");
            list(out, &names);
        }
    }
}

/// Names in lines of readable length.
fn list(out: &mut String, names: &[&str]) {
    let mut line = String::new();
    for name in names {
        if line.len() + name.len() > 100 {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
        }
        let _ = write!(line, "`{name}` ");
    }
    out.push_str(line.trim_end());
    out.push_str("\n\n");
}
