// What the published pages on expiry state and show, as a person types it: TTL indexes, time series (MongoDB's manual), and
// time to live by last modification (the pages on Azure Cosmos DB). Loaded by session.js, whose functions it uses; it comes
// first, while the server's parameters still have their defaults.
//
// Seconds are fewer than in the pages where something has to be waited for.
'use strict';

use('clients_mongosh_documents');
db.dropDatabase();

const parameter = (name, value) => db.adminCommand({ setParameter: 1, [name]: value });
const indexOf = (coll, name) => coll.getIndexes().find(index => index.name === name);
const names = coll => coll.find({}, { _id: 0, name: 1 }).sort({ name: 1 }).toArray().map(({ name }) => name);
const optionsOf = name =>
  db.runCommand({ listCollections: 1, filter: { name } }).cursor.firstBatch[0].options;

function twoPasses() {
  const target = Number(ttl().passes) + 2;
  until('two passes', () => Number(ttl().passes) >= target);
}

/** The shell waits for what a function does only where it can see it: no `assert.throws`. */
function refuses(code, act) {
  let error;
  try {
    act();
  } catch (thrown) {
    error = thrown;
  }
  assert.equal(error?.code, code, error?.message);
}

check('documents: the task runs every 60 seconds', () => {
  assert.equal(db.adminCommand({ getParameter: 1, ttlMonitorSleepSecs: 1 }).ttlMonitorSleepSecs, 60);
});

// Time to live by last modification. The monitor is off: what is due is invisible all the same.

check('documents: the command on _ts and its reply', () => {
  const index = { key: { _ts: 1 }, name: '_ts_1', expireAfterSeconds: 10 };
  const reply = db.runCommand({ createIndexes: 'coll', indexes: [index] });
  assert.equal(reply._t, 'CreateIndexesResponse');
  assert.equal(reply.ok, 1);
  assert.equal(reply.createdCollectionAutomatically, true);
  assert.equal(reply.numIndexesBefore, 1);
  assert.equal(reply.numIndexesAfter, 2);
  assert.equal(db.same.createIndex({ _ts: 1 }, { expireAfterSeconds: 10 }), '_ts_1');
  assert.equal(indexOf(db.same, '_ts_1').expireAfterSeconds, 10);
});

check('documents: _ts is not accessible', () => {
  db.coll.insertOne({ name: 'seen' });
  same(Object.keys(db.coll.findOne()), ['_id', 'name']);
  assert.equal(db.coll.countDocuments({ _ts: { $exists: true } }), 0);
  db.coll.deleteMany({});
});

check('documents: values of documents, of collections, and the last modification', () => {
  parameter('ttlMonitorEnabled', false);
  const deleted = Number(ttl().deletedDocuments);
  // The page on documents' own values: 2 for 10 seconds, 7 for 20.
  db.values.createIndex({ _ts: 1 }, { expireAfterSeconds: 2 });
  // The table of collections and items: no time to live, -1, 2 for 1000; 7 for 2000.
  db.minus_one.createIndex({ _ts: 1 }, { expireAfterSeconds: -1 });
  db.thousand.createIndex({ _ts: 1 }, { expireAfterSeconds: 2 });
  db.modified.createIndex({ _ts: 1 }, { expireAfterSeconds: 5 });
  const begun = Date.now();
  const passed = () => Date.now() - begun;
  db.values.insertMany([
    { name: 'double', location: 'Paris', ttl: 7.0 },
    { name: 'int', location: 'Paris', ttl: NumberInt(7) },
    { name: 'long', location: 'Paris', ttl: NumberLong('7') },
    { name: 'fraction', location: 'Paris', ttl: 20.5 },
    { name: 'too great', location: 'Paris', ttl: NumberLong('2147483649') },
    { name: 'none', location: 'Paris' },
    { name: 'other case', location: 'Paris', TTL: NumberInt(7) },
    { name: 'not at the root', at: { ttl: NumberInt(7) } },
  ]);
  for (const coll of [db.no_time_to_live, db.minus_one, db.thousand]) {
    coll.insertMany([{ name: 'missing' }, { name: '-1', ttl: -1 }, { name: '2000', ttl: 7 }]);
  }
  db.modified.insertMany([{ name: 'modified', n: 0 }, { name: 'not modified', n: 0 }]);
  assert.equal(db.values.countDocuments(), 8);

  until('the time to live of the collection', () => db.values.countDocuments() < 8);
  assert.ok(passed() >= 1900, `after ${passed()} ms`);
  same(names(db.values), ['double', 'int', 'long']);
  until('the same, of items', () => db.thousand.countDocuments() < 3);
  same(names(db.thousand), ['-1', '2000']);
  db.modified.updateOne({ name: 'modified' }, { $set: { n: 1 } });
  until('the one that was not modified', () => db.modified.countDocuments() < 2);
  same(names(db.modified), ['modified']);
  until('the time to live of documents', () => db.values.countDocuments() === 0);
  assert.ok(passed() >= 6900, `after ${passed()} ms`);
  until('the same, of items', () => db.thousand.countDocuments() + db.minus_one.countDocuments() < 4);
  same(names(db.thousand), ['-1']);
  same(names(db.minus_one), ['-1', 'missing']);
  same(names(db.no_time_to_live), ['-1', '2000', 'missing']);
  // Invisible, and not deleted yet.
  assert.equal(Number(ttl().deletedDocuments), deleted);
  assert.equal(db.values.validate().nrecords, 8);
});

check('documents: the longest time to live', () => {
  assert.equal(db.longest.createIndex({ _ts: 1 }, { expireAfterSeconds: 2147483647 }), '_ts_1');
  refuses(67, () => db.other.createIndex({ _ts: 1 }, { expireAfterSeconds: 0 }));
});

// TTL indexes.

check('documents: an index on lastModifiedDate of eventlog', () => {
  parameter('ttlMonitorEnabled', true);
  parameter('ttlMonitorSleepSecs', 1);
  const ago = secs => new Date(Date.now() - secs * 1000);
  // Deletion begins as soon as the index over a populated collection is built.
  db.eventlog.insertMany([
    { name: 'due', lastModifiedDate: ago(3601) },
    { name: 'not due', lastModifiedDate: ago(3000) },
    { name: 'earliest of several is due', lastModifiedDate: [ago(0), ago(3601)] },
    { name: 'none of several is due', lastModifiedDate: [ago(0), ago(3000)] },
    { name: 'no date', lastModifiedDate: '2001-01-01' },
    { name: 'no field' },
  ]);
  assert.equal(
    db.eventlog.createIndex({ lastModifiedDate: 1 }, { expireAfterSeconds: 3600 }),
    'lastModifiedDate_1',
  );
  twoPasses();
  same(names(db.eventlog), ['no date', 'no field', 'none of several is due', 'not due']);
});

check('documents: deletions are in what the profiler collects', () => {
  db.setProfilingLevel(1, { slowms: 0 });
  db.eventlog.insertOne({ name: 'due', lastModifiedDate: new Date(0) });
  const ns = `${db.getName()}.eventlog`;
  const entry = () => db.system.profile.findOne({ op: 'remove', ns, ndeleted: 1 });
  until('an entry', () => entry() !== null);
  assert.match(entry().planSummary, /IXSCAN/);
  db.setProfilingLevel(0);
});

check('documents: a TTL index supports queries', () => {
  const plan = db.eventlog.find({ lastModifiedDate: { $gt: new Date(0) } }).explain();
  assert.match(EJSON.stringify(plan.queryPlanner.winningPlan), /"indexName":"lastModifiedDate_1"/);
});

check('documents: restrictions of TTL indexes', () => {
  db.eventlog.createIndex({ a: 1, b: 1 }, { expireAfterSeconds: 10, name: 'compound' });
  assert.equal('expireAfterSeconds' in indexOf(db.eventlog, 'compound'), false);
  refuses(197, () => db.eventlog.createIndex({ _id: 1 }, { expireAfterSeconds: 10 }));
  db.createCollection('capped', { capped: true, size: 4096 });
  refuses(67, () => db.capped.createIndex({ at: 1 }, { expireAfterSeconds: 10 }));
  // Another value: not by createIndex, but by collMod.
  refuses(85, () => db.eventlog.createIndex({ lastModifiedDate: 1 }, { expireAfterSeconds: 10 }));
  const index = { keyPattern: { lastModifiedDate: 1 }, expireAfterSeconds: 7200 };
  assert.equal(db.runCommand({ collMod: 'eventlog', index }).ok, 1);
  assert.equal(indexOf(db.eventlog, 'lastModifiedDate_1').expireAfterSeconds, 7200);
  // A plain index becomes one by being dropped and made again.
  db.eventlog.createIndex({ at: 1 });
  refuses(85, () => db.eventlog.createIndex({ at: 1 }, { expireAfterSeconds: 10 }));
  db.eventlog.dropIndex('at_1');
  assert.equal(db.eventlog.createIndex({ at: 1 }, { expireAfterSeconds: 10 }), 'at_1');
});

// Time series.

check('documents: weather24h', () => {
  db.createCollection('weather24h', {
    timeseries: { timeField: 'timestamp', metaField: 'metadata', granularity: 'hours' },
    expireAfterSeconds: 86400,
  });
  const options = optionsOf('weather24h');
  assert.equal(Number(options.expireAfterSeconds), 86400);
  assert.equal(options.timeseries.timeField, 'timestamp');
  assert.equal(options.timeseries.granularity, 'hours');
  const metadata = { sensorId: 5578, type: 'temperature' };
  db.weather24h.insertOne({ metadata, timestamp: ISODate('2021-05-18T10:00:00.000Z'), temp: 12 });
  // A bucket goes when all of its documents are expired, not before.
  const hoursAgo = hours => new Date(Date.now() - hours * 3600e3);
  const other = { sensorId: 1, type: 'temperature' };
  db.weather24h.insertMany([
    { metadata: other, timestamp: hoursAgo(25), temp: 1 },
    { metadata: other, timestamp: hoursAgo(1), temp: 2 },
  ]);
  twoPasses();
  same(db.weather24h.find({}, { _id: 0, temp: 1 }).sort({ temp: 1 }).toArray().slice(-1), [{ temp: 2 }]);
  assert.equal(db.weather24h.countDocuments({ temp: 12 }), 0);
});

check('documents: changing, disabling and enabling automatic removal', () => {
  assert.equal(db.runCommand({ collMod: 'weather24h', expireAfterSeconds: 604801 }).ok, 1);
  assert.equal(Number(optionsOf('weather24h').expireAfterSeconds), 604801);
  assert.equal(db.runCommand({ collMod: 'weather24h', expireAfterSeconds: 'off' }).ok, 1);
  assert.equal('expireAfterSeconds' in optionsOf('weather24h'), false);
  const old = { metadata: { sensorId: 2 }, timestamp: ISODate('2021-05-18T10:00:00.000Z'), temp: 3 };
  db.weather24h.insertOne(old);
  twoPasses();
  assert.equal(db.weather24h.countDocuments({ temp: 3 }), 1);
  assert.equal(db.runCommand({ collMod: 'weather24h', expireAfterSeconds: 604801 }).ok, 1);
  twoPasses();
  assert.equal(db.weather24h.countDocuments({ temp: 3 }), 0);
});

check('documents: granularities and what a bucket covers', () => {
  const day = 24 * 3600;
  const spans = { seconds: 3600, minutes: day, hours: 30 * day };
  for (const [granularity, span] of Object.entries(spans)) {
    db.createCollection(granularity, { timeseries: { timeField: 't', granularity } });
    assert.equal(optionsOf(granularity).timeseries.bucketMaxSpanSeconds, span);
  }
  db.createCollection('default', { timeseries: { timeField: 't' } });
  assert.equal(optionsOf('default').timeseries.granularity, 'seconds');
});

db.dropDatabase();
use('clients_mongosh');
