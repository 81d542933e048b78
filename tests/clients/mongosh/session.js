// What a person types into mongosh; what is expected is listed in ../README.md.
// Run with: mongosh --quiet --norc --file session.js URI
'use strict';

const assert = require('node:assert/strict');
let passed = 0;
const failed = [];

function check(name, act) {
  try {
    act();
    passed += 1;
    print(`ok - ${name}`);
  } catch (error) {
    failed.push(name);
    print(`not ok - ${name}: ${error.name} ${error.code ?? ''} ${error.message}`);
  }
}

/** Documents come from another realm than the script's, so their prototypes differ. */
function same(found, expected) {
  assert.equal(EJSON.stringify(found), EJSON.stringify(expected));
}

function until(what, test, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  while (!test()) {
    assert.ok(Date.now() < deadline, `not in ${seconds} s: ${what}`);
    sleep(50);
  }
}

use('clients_mongosh');
db.sessions.drop();
db.people.drop();
const ttl = () => db.serverStatus().metrics.ttl;

check('version and ping', () => {
  assert.match(db.version(), /^8\./);
  assert.equal(db.adminCommand({ ping: 1 }).ok, 1);
  assert.equal(db.hello().ok, 1);
});

load('documents.js');

// The commands of docs/tutorial.md, as they stand there.
{
  const { readFileSync, unlinkSync, writeFileSync } = require('node:fs');
  const blocks = readFileSync('../../../docs/tutorial.md', 'utf8').matchAll(/^```js\n(.*?)^```/gms);
  const file = `${require('node:os').tmpdir()}/tutorial-${process.pid}.js`;
  writeFileSync(file, [...blocks].map(([, code]) => code).join('\n'));
  load(file);
  unlinkSync(file);
}

check('the commands of the tutorial', () => {
  use('tutorial');
  same(db.people.findOne({ name: 'Ann' }, { _id: 0, langs: 1 }), { langs: ['en', 'de', 'fr'] });
  same(db.people.aggregate([{ $group: { _id: null, youngest: { $max: '$born' } } }]).toArray(), [{ _id: null, youngest: 2001 }]);
  assert.equal(db.people.find({ born: 1990 }).explain('executionStats').executionStats.totalDocsExamined, 1);
  db.dropDatabase();
  use('clients_mongosh');
});

check('the session of the README', () => {
  assert.equal(db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 1 }).ok, 1);
  assert.equal(db.sessions.createIndex({ lastSeen: 1 }, { expireAfterSeconds: 5 }), 'lastSeen_1');
  db.sessions.insertMany([
    { user: 'ann', lastSeen: new Date() },
    { user: 'bob', lastSeen: new Date(Date.now() + 3600e3) },
  ]);
  const before = ttl().deletedDocuments;
  assert.equal(db.sessions.countDocuments(), 2);
  until('ann expires', () => db.sessions.countDocuments() === 1);
  assert.equal(db.sessions.findOne().user, 'bob');
  assert.equal(Number(ttl().deletedDocuments) - Number(before), 1);
});

check('getIndexes', () => {
  same(db.sessions.getIndexes(), [
    { v: 2, key: { _id: 1 }, name: '_id_' },
    { v: 2, key: { lastSeen: 1 }, name: 'lastSeen_1', expireAfterSeconds: 5 },
  ]);
});

check('show dbs, show collections', () => {
  assert.ok(db.adminCommand({ listDatabases: 1 }).databases.some(({ name }) => name === 'clients_mongosh'));
  assert.ok(db.getMongo().getDBNames().includes('clients_mongosh'));
  assert.ok(db.getCollectionNames().includes('sessions'));
  assert.equal(db.getCollectionInfos({ name: 'sessions' })[0].type, 'collection');
  assert.ok(show('dbs').value.some(({ name }) => name === 'clients_mongosh'));
  assert.ok(show('collections').value.some(({ name }) => name === 'sessions'));
});

check('currentOp', () => assert.ok(Array.isArray(db.currentOp().inprog)));

check('currentOp shows the idle TTL monitor', () => {
  const find = () => db.currentOp({ $all: true, desc: 'TTLMonitor' }).inprog;
  until('TTLMonitor in currentOp', () => find().length === 1);
});

check('serverStatus().metrics.ttl', () => {
  const metrics = ttl();
  for (const name of ['passes', 'subPasses', 'deletedDocuments']) {
    assert.ok(Number(metrics[name]) >= 0, `${name}: ${metrics[name]}`);
  }
  const passes = Number(metrics.passes);
  until('the next pass', () => Number(ttl().passes) > passes);
});

check('collMod', () => {
  const index = { keyPattern: { lastSeen: 1 }, expireAfterSeconds: 7200 };
  const reply = db.runCommand({ collMod: 'sessions', index });
  assert.equal(Number(reply.expireAfterSeconds_old), 5);
  assert.equal(Number(reply.expireAfterSeconds_new), 7200);
});

check('crud as typed', () => {
  const { insertedIds } = db.people.insertMany(Array.from({ length: 100 }, (_, n) => ({ _id: n, n, even: n % 2 === 0 })));
  assert.equal(Object.keys(insertedIds).length, 100);
  assert.equal(db.people.find({ even: true }).sort({ n: -1 }).limit(1).next().n, 98);
  assert.equal(db.people.find().toArray().length, 100);
  assert.equal(db.people.find({}, { _id: 0, n: 1 }).skip(99).toArray()[0].n, 99);
  assert.equal(db.people.updateMany({ even: true }, { $inc: { n: 1 } }).modifiedCount, 50);
  assert.equal(db.people.updateOne({ _id: 'new' }, { $set: { n: 1 } }, { upsert: true }).upsertedCount, 1);
  assert.equal(db.people.replaceOne({ _id: 'new' }, { n: 2 }).modifiedCount, 1);
  assert.equal(db.people.deleteOne({ _id: 'new' }).deletedCount, 1);
  assert.equal(db.people.deleteMany({ even: false }).deletedCount, 50);
  assert.equal(db.people.estimatedDocumentCount(), 50);
  const groups = db.people.aggregate([{ $group: { _id: '$even', total: { $sum: '$n' } } }]).toArray();
  same(groups, [{ _id: true, total: 2500 }]);
  assert.equal(db.people.drop(), true);
});

check('helpers that a newcomer tries', () => {
  db.people.insertOne({ _id: 1 });
  const names = db.adminCommand({ listDatabases: 1 }).databases.map((database) => database.name);
  for (const name of ['admin', 'config', 'local']) assert.ok(names.includes(name), name);
  assert.equal(db.stats().db, 'clients_mongosh');
  assert.equal(db.people.stats().count, 1);
  assert.ok(db.people.dataSize() > 0);
  assert.ok(db.people.totalSize() >= 0);
  same(db.getUsers().users, []);
  assert.equal(db.getRoles().roles.length, 0);
  assert.equal(db.people.validate().valid, true);
  assert.equal(db.people.latencyStats().length, 1);
  assert.ok(db.serverStatus().locks.Global);
  assert.ok(db.hostInfo().system.numCores > 0);
  assert.ok(db.getReplicationInfo().logSizeMB > 0);
  assert.ok(rs.printReplicationInfo() !== undefined);
  db.people.getPlanCache().clear();
  assert.equal(db.people.drop(), true);
});

check('errors', () => {
  const failure = (code, codeName, act) => {
    let error;
    try {
      act();
    } catch (thrown) {
      error = thrown;
    }
    assert.equal(error?.code, code, error?.message);
    if (codeName) assert.equal(error.codeName, codeName);
  };
  db.people.insertOne({ _id: 1, name: 'ann' });
  failure(11000, null, () => db.people.insertOne({ _id: 1 }));
  failure(59, 'CommandNotFound', () => db.runCommand({ noSuchCommand: 1 }));
  failure(85, 'IndexOptionsConflict', () => db.sessions.createIndex({ lastSeen: 1 }, { expireAfterSeconds: 9 }));
  failure(67, 'CannotCreateIndex', () => db.sessions.createIndex({ other: 1 }, { expireAfterSeconds: -1 }));
  failure(14, null, () => db.people.updateOne({ _id: 1 }, { $inc: { name: 1 } }));
  failure(2, 'BadValue', () => db.people.find({ a: { $noSuchOperator: 1 } }).toArray());
});

/** What a helper prints, as far as it gives it back. */
const shown = result => EJSON.stringify(result?.value ?? result);

check('sh.status of the router', () => {
  const status = shown(sh.status());
  assert.match(status, /"clusterId"/);
  assert.match(status, /"_id":"mayflydb","host":"[^"]+:\d+"/);
  assert.equal(db.getSiblingDB('config').shards.countDocuments(), 1);
});

check('rs helpers of the member', () => {
  const before = db;
  db = new Mongo(process.env.MONGODB_REPLICA_SET_URI).getDB('test');
  try {
    const hosts = process.env.MONGODB_REPLICA_SET_URI.split('/')[2].split(',');
    assert.equal(rs.status().members.length, hosts.length);
    rs.printReplicationInfo();
    rs.printSecondaryReplicationInfo();
    const config = rs.conf();
    config.settings.electionTimeoutMillis = 4000;
    assert.equal(rs.reconfig(config).ok, 1);
    assert.equal(rs.conf().settings.electionTimeoutMillis, 4000);
    assert.equal(db.getSiblingDB('local').system.replset.findOne()._id, 'rs0');
    assert.equal(db.getSiblingDB('config').getCollection('version').countDocuments(), 0);
  } finally {
    db = before;
  }
});

load('transactions.js');
load('failover.js');
load('search.js');
load('authorization.js');
load('encryption.js');
load('examples.js');

print(`${passed} passed, ${failed.length} failed`);
if (failed.length > 0) quit(1);
