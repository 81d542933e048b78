// The Node driver against a running server; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const { after, before, beforeEach, describe, test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');
const {
  Int32, Long, MongoBulkWriteError, MongoClient, MongoClientBulkWriteError, MongoServerError,
} = require('mongodb');

const URI = process.env.MONGODB_URI;
const DB = 'clients_node';
let client, db, coll;

before(async () => {
  client = await new MongoClient(URI).connect();
  db = client.db(DB);
});
after(() => client.close());
beforeEach(async t => {
  coll = db.collection(t.name.replaceAll(/[^a-z]+/g, '_'));
  await coll.drop();
});

const numbers = (count, more = () => ({})) =>
  Array.from({ length: count }, (_, i) => ({ _id: i, ...more(i) }));
const ids = async cursor => (await cursor.toArray()).map(doc => doc._id);

async function fails(promise, code, codeName, text = '') {
  const error = await promise.then(() => assert.fail(`no error ${code}`), error => error);
  assert.ok(error instanceof MongoServerError, String(error.stack));
  assert.equal(error.code, code, error.message);
  if (codeName) assert.equal(error.codeName, codeName);
  assert.ok(error.message.includes(text), error.message);
  return error;
}

describe('connect', () => {
  test('ping and build info', async () => {
    assert.equal((await db.command({ ping: 1 })).ok, 1);
    const info = await db.admin().buildInfo();
    assert.match(info.version, /^8\./);
    assert.equal(client.options.retryWrites, true);
  });

  for (const compressor of ['zlib', 'snappy']) {
    test(`compression with ${compressor}`, async () => {
      const compressed = new MongoClient(URI, { compressors: [compressor] });
      try {
        const other = compressed.db(DB).collection(coll.collectionName);
        const text = 'mayfly '.repeat(5000);
        await other.insertMany(numbers(20, () => ({ text })));
        const found = await other.find().sort({ _id: 1 }).toArray();
        assert.equal(found.length, 20);
        assert.ok(found.every(doc => doc.text === text));
      } finally {
        await compressed.close();
      }
    });
  }
});

describe('insert', () => {
  test('insert one and many', async () => {
    const one = await coll.insertOne({ name: 'ann' });
    assert.deepEqual(await coll.findOne({ _id: one.insertedId }), { _id: one.insertedId, name: 'ann' });
    const many = await coll.insertMany(Array.from({ length: 10 }, (_, n) => ({ n })));
    assert.equal(many.insertedCount, 10);
    assert.equal(await coll.countDocuments(), 11);
  });

  test('an unordered bulk reports the duplicate', async () => {
    const documents = [{ _id: 1 }, { _id: 1 }, { _id: 2 }];
    const error = await coll.insertMany(documents, { ordered: false }).then(assert.fail, error => error);
    assert.ok(error instanceof MongoBulkWriteError, String(error));
    assert.equal(error.code, 11000);
    assert.equal(error.result.insertedCount, 2);
    assert.equal(error.writeErrors.length, 1);
    assert.equal(error.writeErrors[0].index, 1);
    assert.equal(error.writeErrors[0].code, 11000);
    assert.deepEqual((await ids(coll.find())).sort(), [1, 2]);
  });
});

describe('find', () => {
  test('find with filter sort skip limit projection', async () => {
    await coll.insertMany(numbers(20, i => ({ even: i % 2 === 0, n: i * 10 })));
    const found = coll.find({ even: true, n: { $gte: 40 } }, { projection: { _id: 0, n: 1 } });
    assert.deepEqual(await found.sort({ n: -1 }).skip(1).limit(3).toArray(), [{ n: 160 }, { n: 140 }, { n: 120 }]);
    assert.equal(await coll.findOne({ _id: 99 }), null);
    assert.deepEqual(await ids(coll.find({ $or: [{ _id: 3 }, { n: { $in: [50, 70] } }] }).sort({ _id: 1 })), [3, 5, 7]);
  });
});

describe('update', () => {
  test('update one and many', async () => {
    await coll.insertMany(numbers(5, n => ({ n, old: 1, tags: ['a'] })));
    let result = await coll.updateOne(
      { _id: 3 },
      { $set: { name: 'three', 'deep.er': 1 }, $inc: { n: 10 }, $unset: { old: '' }, $push: { tags: 'b' } }
    );
    assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);
    assert.deepEqual(await coll.findOne({ _id: 3 }), { _id: 3, n: 13, tags: ['a', 'b'], deep: { er: 1 }, name: 'three' });
    result = await coll.updateMany({ n: { $lt: 3 } }, { $inc: { n: 1 } });
    assert.deepEqual([result.matchedCount, result.modifiedCount], [3, 3]);
    result = await coll.updateMany({}, { $set: { n: 2 } });
    assert.deepEqual([result.matchedCount, result.modifiedCount], [5, 4]);
  });

  test('replace and upsert', async () => {
    await coll.insertOne({ _id: 1, a: 1, b: 2 });
    assert.equal((await coll.replaceOne({ _id: 1 }, { c: 3 })).modifiedCount, 1);
    assert.deepEqual(await coll.findOne(), { _id: 1, c: 3 });
    const result = await coll.updateOne({ key: 'k' }, { $set: { v: 1 } }, { upsert: true });
    assert.equal(result.upsertedCount, 1);
    assert.deepEqual(await coll.findOne({ _id: result.upsertedId }), { _id: result.upsertedId, key: 'k', v: 1 });
    assert.equal((await coll.updateOne({ key: 'k' }, { $set: { v: 2 } }, { upsert: true })).upsertedId, null);
    assert.equal((await coll.replaceOne({ _id: 7 }, { v: 7 }, { upsert: true })).upsertedId, 7);
  });
});

describe('array items', () => {
  test('array filters and positions', async () => {
    await coll.insertMany([{ _id: 1, grades: [95, 102, 90] }, { _id: 2, grades: [{ of: 'quiz', n: 1 }, { of: 'exam', n: 2 }] }]);
    const arrayFilters = [{ over: { $gt: 100 } }];
    const result = await coll.updateOne({ _id: 1 }, { $set: { 'grades.$[over]': 100 } }, { arrayFilters });
    assert.equal(result.modifiedCount, 1);
    await coll.updateOne({ 'grades.of': 'exam' }, { $inc: { 'grades.$.n': 5 } });
    await coll.updateOne({ _id: 2 }, { $set: { 'grades.$[].seen': true } });
    assert.deepEqual(await coll.find().sort({ _id: 1 }).toArray(), [
      { _id: 1, grades: [95, 100, 90] },
      { _id: 2, grades: [{ of: 'quiz', n: 1, seen: true }, { of: 'exam', n: 7, seen: true }] },
    ]);
    await fails(coll.updateOne({ _id: 1 }, { $set: { 'grades.$[x]': 1 } }), 2);
  });

  test('an update by a pipeline', async () => {
    await coll.insertOne({ _id: 1, a: 1, b: 2 });
    assert.equal((await coll.updateOne({ _id: 1 }, [{ $set: { c: '$a' } }, { $unset: 'b' }])).modifiedCount, 1);
    assert.deepEqual(await coll.findOne(), { _id: 1, a: 1, c: 1 });
  });
});

describe('find and modify', () => {
  test('find one and update replace delete', async () => {
    await coll.insertMany(numbers(5, i => ({ n: 10 - i })));
    const returnDocument = 'after';
    assert.deepEqual(await coll.findOneAndUpdate({}, { $set: { hit: 1 } }, { sort: { n: 1 } }), { _id: 4, n: 6 });
    const projection = { n: 1 };
    const updated = await coll.findOneAndUpdate({ _id: 4 }, { $inc: { n: 1 } }, { projection, returnDocument });
    assert.deepEqual(updated, { _id: 4, n: 7 });
    assert.deepEqual(await coll.findOneAndReplace({ _id: 3 }, { new: true }, { returnDocument }), { _id: 3, new: true });
    assert.deepEqual(await coll.findOneAndDelete({ n: { $gte: 9 } }, { sort: { _id: -1 } }), { _id: 1, n: 9 });
    assert.equal(await coll.findOneAndDelete({ n: 1000 }), null);
    const whole = await coll.findOneAndUpdate({ _id: 8 }, { $set: { n: 1 } }, { upsert: true, includeResultMetadata: true });
    assert.deepEqual(whole.lastErrorObject, { n: 1, updatedExisting: false, upserted: 8 });
    await fails(coll.findOneAndUpdate({ _id: 8 }, { $set: { _id: 7 } }), 66, 'ImmutableField');
  });
});

describe('client bulk write', () => {
  test('operations over two collections', async () => {
    const other = db.collection(`${coll.collectionName}_other`);
    await other.drop();
    const [here, there] = [coll.namespace, other.namespace];
    const result = await client.bulkWrite(
      [
        { name: 'insertOne', namespace: here, document: { _id: 1, a: [1, 2] } },
        { name: 'insertOne', namespace: there, document: { _id: 'x' } },
        { name: 'updateOne', namespace: here, filter: { _id: 1 }, update: { $set: { 'a.$[i]': 0 } }, arrayFilters: [{ i: 2 }] },
        { name: 'updateMany', namespace: there, filter: {}, update: { $set: { seen: true } } },
        { name: 'replaceOne', namespace: here, filter: { _id: 2 }, replacement: { b: 1 }, upsert: true },
        { name: 'deleteOne', namespace: there, filter: { _id: 'x' } },
      ],
      { verboseResults: true }
    );
    assert.deepEqual([result.insertedCount, result.matchedCount, result.modifiedCount], [2, 2, 2]);
    assert.deepEqual([result.upsertedCount, result.deletedCount], [1, 1]);
    assert.equal(result.updateResults.get(4).upsertedId, 2);
    assert.deepEqual(await coll.find().sort({ _id: 1 }).toArray(), [{ _id: 1, a: [1, 0] }, { _id: 2, b: 1 }]);
    assert.equal(await other.countDocuments(), 0);
  });

  test('errors together with what was inserted', async () => {
    const namespace = coll.namespace;
    const models = [1, 1, 2].map(_id => ({ name: 'insertOne', namespace, document: { _id } }));
    const error = await client.bulkWrite(models, { ordered: false }).then(assert.fail, error => error);
    assert.ok(error instanceof MongoClientBulkWriteError, String(error));
    assert.deepEqual([...error.writeErrors.keys()], [1]);
    assert.equal(error.writeErrors.get(1).code, 11000);
    assert.equal(error.partialResult.insertedCount, 2);
  });
});

describe('delete', () => {
  test('delete one and many', async () => {
    await coll.insertMany(numbers(10, i => ({ even: i % 2 === 0 })));
    assert.equal((await coll.deleteOne({ even: true })).deletedCount, 1);
    assert.equal((await coll.deleteMany({ even: true })).deletedCount, 4);
    assert.equal(await coll.countDocuments(), 5);
  });
});

describe('cursors', () => {
  test('small batches', async () => {
    const expected = numbers(1000);
    await coll.insertMany(expected);
    const seen = [];
    for await (const doc of coll.find({}, { batchSize: 7 }).sort({ _id: 1 })) seen.push(doc);
    assert.deepEqual(seen, expected);
    const abandoned = coll.find({}, { batchSize: 7 });
    await abandoned.next();
    const { id } = abandoned;
    assert.ok(id && !id.isZero());
    await abandoned.close();
    await fails(db.command({ getMore: id, collection: coll.collectionName }), 43, 'CursorNotFound');
  });

  test('default batches', async () => {
    await coll.insertMany(numbers(20000, () => ({ text: 'x'.repeat(20) })));
    let count = 0;
    for await (const _ of coll.find()) count++;
    assert.equal(count, 20000);
  });
});

describe('count', () => {
  test('counts', async () => {
    await coll.insertMany(numbers(30, i => ({ mod: i % 3 })));
    assert.equal(await coll.countDocuments({ mod: 1 }), 10);
    assert.equal(await coll.countDocuments({}, { skip: 5, limit: 20 }), 20);
    assert.equal(await coll.estimatedDocumentCount(), 30);
  });
});

describe('aggregate', () => {
  test('match group sort limit', async () => {
    await coll.insertMany(numbers(30, i => ({ kind: 'abc'[i % 3], n: i })));
    const pipeline = [
      { $match: { n: { $lt: 20 } } },
      { $group: { _id: '$kind', total: { $sum: '$n' }, count: { $sum: 1 } } },
      { $sort: { total: -1 } },
      { $limit: 2 },
    ];
    assert.deepEqual(await coll.aggregate(pipeline).toArray(), [
      { _id: 'b', total: 70, count: 7 },
      { _id: 'a', total: 63, count: 7 },
    ]);
  });
});

describe('catalog', () => {
  test('databases and collections', async () => {
    await coll.insertOne({});
    const { databases } = await db.admin().listDatabases();
    assert.ok(databases.some(({ name, empty }) => name === DB && empty === false));
    const [info] = await db.listCollections({ name: coll.collectionName }).toArray();
    assert.equal(info.type, 'collection');
    assert.equal(info.idIndex.name, '_id_');
    await coll.drop();
    assert.deepEqual(await db.listCollections({ name: coll.collectionName }).toArray(), []);
  });
});

const ttlMetrics = async () => (await db.admin().serverStatus()).metrics.ttl;

async function waitForPasses(more, seconds = 30) {
  const target = (await ttlMetrics()).passes + more;
  const deadline = Date.now() + seconds * 1000;
  while ((await ttlMetrics()).passes < target) {
    assert.ok(Date.now() < deadline, `no ${more} passes in ${seconds} s`);
    await pause(50);
  }
}

describe('ttl', () => {
  test('the helper makes a ttl index', async () => {
    assert.equal(await coll.createIndex({ at: 1 }, { expireAfterSeconds: 3600 }), 'at_1');
    const [, index] = await coll.listIndexes({ promoteValues: false }).toArray();
    assert.ok(index.expireAfterSeconds instanceof Int32, 'int32 on the wire');
    assert.equal(index.expireAfterSeconds.value, 3600);
    assert.equal((await coll.indexInformation({ full: true }))[1].expireAfterSeconds, 3600);
  });

  test('due documents are deleted', async () => {
    await coll.createIndex({ at: 1 }, { expireAfterSeconds: 60 });
    await db.admin().command({ setParameter: 1, ttlMonitorSleepSecs: 1 });
    await waitForPasses(1);
    const { deletedDocuments } = await ttlMetrics();
    const from = seconds => new Date(Date.now() + seconds * 1000);
    const due = Array.from({ length: 25 }, (_, i) => ({ _id: `due${i}`, at: from(-61 - i) }));
    const kept = [
      { _id: 'fresh', at: from(0) },
      { _id: 'future', at: from(3600) },
      { _id: 'missing' },
      { _id: 'null', at: null },
      { _id: 'number', at: Long.fromNumber(0) },
      { _id: 'text', at: '2001-01-01' },
    ];
    await coll.insertMany([...due, ...kept]);
    await waitForPasses(2);
    assert.deepEqual(await ids(coll.find().sort({ _id: 1 })), kept.map(doc => doc._id));
    assert.equal((await ttlMetrics()).deletedDocuments - deletedDocuments, due.length);
  });
});

describe('time series', () => {
  test('measurements', async () => {
    const name = coll.collectionName;
    const series = await db.createCollection(name, {
      timeseries: { timeField: 't', metaField: 'source', granularity: 'minutes' }, expireAfterSeconds: 86400,
    });
    const [info] = await db.listCollections({ name }).toArray();
    assert.equal(info.type, 'timeseries');
    assert.equal(info.options.expireAfterSeconds, 86400);
    assert.deepEqual(info.options.timeseries, {
      timeField: 't', metaField: 'source', granularity: 'minutes', bucketMaxSpanSeconds: 86400,
    });
    const now = Date.now();
    const at = n => new Date(now - n * 60e3);
    const rows = Array.from({ length: 300 }, (_, n) => ({ t: at(n), source: { id: n % 3 }, v: n }));
    assert.equal((await series.insertMany(rows)).insertedCount, 300);
    assert.equal(await series.countDocuments({ 'source.id': 1 }), 100);
    const recent = series.find({ t: { $gte: at(9) }, source: { id: 0 } }, { projection: { _id: 0 } });
    const expected = [9, 6, 3, 0].map(n => ({ t: at(n), source: { id: 0 }, v: n }));
    assert.deepEqual(await recent.sort({ t: 1 }).toArray(), expected);
    const bySource = series.aggregate([
      { $match: { t: { $gt: at(30) } } },
      { $group: { _id: '$source.id', n: { $sum: 1 }, most: { $max: '$v' } } },
      { $sort: { _id: 1 } },
    ]);
    assert.deepEqual(await bySource.toArray(), [0, 1, 2].map(id => ({ _id: id, n: 10, most: 27 + id })));
    assert.equal((await series.deleteMany({ 'source.id': 2 })).deletedCount, 100);
    assert.equal(await series.countDocuments(), 200);
    await series.drop();
    assert.deepEqual(await db.listCollections({ name: { $regex: name } }).toArray(), []);
  });
});

describe('scripts', () => {
  test('where and function', async () => {
    await coll.insertMany(numbers(10, n => ({ a: n, b: 10 - n })));
    assert.deepEqual(await ids(coll.find({ $where: 'this.a > this.b' }).sort({ _id: 1 })), [6, 7, 8, 9]);
    const body = 'function(a, b) { return a * b; }';
    const product = { $function: { body, args: ['$a', '$b'], lang: 'js' } };
    const found = coll.aggregate([{ $match: { _id: 3 } }, { $project: { product } }]);
    assert.deepEqual(await found.toArray(), [{ _id: 3, product: 21 }]);
  });
});

describe('beyond expireAfterSeconds', () => {
  const monitor = on => db.admin().command({ setParameter: 1, ttlMonitorEnabled: on });
  before(() => monitor(false));
  after(() => monitor(true));
  const hours = n => new Date(Date.now() + n * 3600e3);

  test('hide expired', async () => {
    await coll.createIndex({ key: 1 }, { unique: true });
    const index = { key: { at: 1 }, name: 'at_1', expireAfterSeconds: 0, ttl: { hideExpired: true } };
    await db.command({ createIndexes: coll.collectionName, indexes: [index] });
    await coll.insertMany([{ _id: 1, key: 1, at: hours(-1) }, { _id: 2, key: 2, at: hours(1) }]);
    assert.deepEqual(await ids(coll.find()), [2]);
    assert.equal(await coll.findOne({ _id: 1 }), null);
    assert.equal(await coll.countDocuments(), 1);
    assert.deepEqual(await coll.distinct('key'), [2]);
    assert.equal((await db.command({ validate: coll.collectionName })).nrecords, 2);
    await coll.insertOne({ _id: 3, key: 1 });
    await fails(coll.insertOne({ _id: 4, key: 2 }), 11000);
    await coll.drop();
  });

  test('dry run', async () => {
    const due = Array.from({ length: 7 }, () => ({ at: hours(-1) }));
    await coll.insertMany([...due, { at: '2001-01-01' }, {}]);
    const index = { key: { at: 1 }, name: 'at_1', expireAfterSeconds: 60 };
    const reply = await db.command({ createIndexes: coll.collectionName, indexes: [index], dryRun: true });
    assert.equal(reply.dryRun, true);
    assert.equal(reply.dueNow, 7);
    assert.deepEqual(reply.never, { missing: 1, wrongType: { string: 1 } });
    assert.equal((await coll.indexes()).length, 1);
    assert.equal(await coll.countDocuments(), 9);
  });

  test('ttl stats', async () => {
    await coll.createIndex({ at: 1 }, { expireAfterSeconds: 60 });
    await coll.createIndex({ _ts: 1 }, { expireAfterSeconds: 3600 });
    await coll.insertMany(Array.from({ length: 5 }, () => ({ at: hours(-1) })));
    const [at, modified] = await coll.aggregate([{ $ttlStats: {} }]).toArray();
    assert.deepEqual([at.index, at.kind, at.due, at.deleted, at.lastError], ['at_1', 'index', 5, 0, null]);
    assert.ok(at.oldestOverdueSecs > 3500 && at.oldestOverdueSecs < 3700, `${at.oldestOverdueSecs}`);
    assert.deepEqual([modified.kind, modified.due, modified.oldestOverdueSecs], ['lastModified', 0, null]);
    const { policies, totals } = await db.admin().command({ ttlStatus: 1 });
    const ofThis = policies.filter(policy => policy.ns === coll.namespace);
    assert.deepEqual(ofThis.map(({ index, due }) => [index, due]), [['at_1', 5], ['_ts_1', 0]]);
    assert.ok(totals.due >= 5);
    await coll.drop();
  });
});

describe('errors', () => {
  test('duplicate key', async () => {
    await coll.createIndex({ email: 1 }, { unique: true });
    await coll.insertOne({ _id: 1, email: 'a@b' });
    const error = await fails(coll.insertOne({ _id: 2, email: 'a@b' }), 11000, null, 'E11000 duplicate key error');
    assert.deepEqual(error.keyPattern, { email: 1 });
    assert.deepEqual(error.keyValue, { email: 'a@b' });
    await coll.insertMany([{ twice: 1, email: 1 }, { twice: 1, email: 2 }]);
    await fails(coll.createIndex({ twice: 1 }, { unique: true }), 11000, 'DuplicateKey');
  });

  test('unknown command', () => fails(db.command({ noSuchCommand: 1 }), 59, 'CommandNotFound', 'no such command'));

  test('index errors', async () => {
    await coll.createIndex({ at: 1 }, { expireAfterSeconds: 60 });
    await fails(coll.createIndex({ at: 1 }, { expireAfterSeconds: 61 }), 85, 'IndexOptionsConflict');
    await fails(coll.createIndex({ x: 1 }, { expireAfterSeconds: -1 }), 67, 'CannotCreateIndex');
  });

  test('write and query errors', async () => {
    await coll.insertOne({ _id: 1, text: 'x' });
    await fails(coll.updateOne({ _id: 1 }, { $inc: { text: 1 } }), 14, null, 'non-numeric');
    await fails(coll.findOne({ a: { $noSuchOperator: 1 } }), 2, 'BadValue', 'unknown operator: $noSuchOperator');
  });
});

describe('collections with rules', () => {
  test('a validator', async () => {
    const schema = { required: ['n'], properties: { n: { bsonType: 'int', minimum: 0 } } };
    await db.createCollection(coll.collectionName, { validator: { $jsonSchema: schema } });
    await coll.insertOne({ _id: 1, n: 1 });
    const error = await fails(coll.insertOne({ _id: 2, n: -1 }), 121, null, 'Document failed validation');
    assert.equal(error.errInfo.details.operatorName, '$jsonSchema');
    await fails(coll.updateOne({ _id: 1 }, { $unset: { n: 1 } }), 121);
    await coll.insertOne({ _id: 3 }, { bypassDocumentValidation: true });
    assert.deepEqual(await ids(coll.find().sort({ _id: 1 })), [1, 3]);
  });

  test('a collation', async () => {
    await coll.insertMany(['a10', 'A2', 'b1', 'B1'].map((s, _id) => ({ _id, s })));
    const folded = { locale: 'en', strength: 2 };
    assert.deepEqual(await ids(coll.find({ s: 'B1' }, { collation: folded }).sort({ _id: 1 })), [2, 3]);
    const numeric = { ...folded, numericOrdering: true };
    assert.deepEqual(await ids(coll.find({ _id: { $lt: 2 } }).sort({ s: 1 }).collation(numeric)), [1, 0]);
    await fails(coll.createIndex({ s: 1 }, { unique: true, collation: folded }), 11000, 'DuplicateKey');
  });

  test('places', async () => {
    await coll.createIndex({ loc: '2dsphere', kind: 1 });
    const point = coordinates => ({ type: 'Point', coordinates });
    await coll.insertMany([
      { _id: 1, kind: 'a', loc: point([2.35, 48.85]) }, { _id: 2, kind: 'b', loc: point([-0.13, 51.51]) },
      { _id: 3, kind: 'a', loc: point([13.4, 52.52]) }, { _id: 4, kind: 'a' },
    ]);
    const $geometry = point([2, 48]);
    assert.deepEqual(await ids(coll.find({ loc: { $near: { $geometry } } })), [1, 2, 3]);
    assert.deepEqual(await ids(coll.find({ kind: 'a', loc: { $nearSphere: { $geometry, $minDistance: 500000 } } })), [3]);
    assert.deepEqual(await ids(coll.find({ loc: { $geoWithin: { $centerSphere: [[2, 48], 0.05] } } })), [1]);
    const $geoNear = { near: $geometry, distanceField: 'd', query: { kind: 'a' }, distanceMultiplier: 0.001 };
    const found = await coll.aggregate([{ $geoNear }, { $limit: 1 }]).toArray();
    assert.ok(found[0]._id === 1 && found[0].d > 90 && found[0].d < 110, String(found[0].d));
    await fails(coll.find({ nowhere: { $near: { $geometry } } }).toArray(), 291, 'NoQueryExecutionPlans');
    await fails(coll.countDocuments({ loc: { $near: { $geometry } } }), 5626500);
    const open = { type: 'Polygon', coordinates: [[[0, 0], [1, 0], [1, 1]]] };
    await fails(coll.insertOne({ loc: open }), 16755, null, 'Loop is not closed');
  });

  test('a tailable cursor', async () => {
    await db.createCollection(coll.collectionName, { capped: true, size: 4096, max: 3 });
    await coll.insertMany(numbers(5));
    const cursor = coll.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 5000 });
    assert.deepEqual([await cursor.next(), await cursor.next(), await cursor.next()].map(doc => doc._id), [2, 3, 4]);
    const [found] = await Promise.all([cursor.next(), coll.insertOne({ _id: 5 })]);
    assert.equal(found._id, 5);
    await cursor.close();
  });

  test('a change stream', async () => {
    const stream = coll.watch([{ $match: { operationType: { $ne: 'delete' } } }], { fullDocument: 'updateLookup' });
    const seen = new Promise(resolve => {
      const events = [];
      stream.on('change', event => {
        events.push(event);
        if (events.length === 3) resolve(events);
      });
    });
    // The stream begins with its first batch.
    await once(stream, 'resumeTokenChanged');
    await coll.insertOne({ _id: 1 });
    await coll.deleteOne({ _id: 1 });
    await coll.insertOne({ _id: 2, a: [1] });
    await coll.updateOne({ _id: 2 }, { $push: { a: 2 } });
    const [first, , last] = await seen;
    assert.deepEqual([first.operationType, first.fullDocument], ['insert', { _id: 1 }]);
    assert.deepEqual([last.operationType, last.fullDocument], ['update', { _id: 2, a: [1, 2] }]);
    await stream.close();
    const resumed = coll.watch([], { resumeAfter: first._id });
    assert.equal((await resumed.next()).operationType, 'delete');
    await coll.drop();
    let event;
    do event = await resumed.next(); while (event.operationType !== 'drop');
    assert.equal((await resumed.next()).operationType, 'invalidate');
    await resumed.close();
  });
});

for (const posture of ['MONGODB_URI', 'MONGODB_REPLICA_SET_URI']) {
  describe(`read concerns, ${posture}`, () => {
    let here, elsewhere;
    before(async () => {
      [here, elsewhere] = await Promise.all(
        [0, 1].map(() => new MongoClient(process.env[posture]).connect()));
    });
    after(() => Promise.all([here.close(), elsewhere.close()]));

    test(`a snapshot session sees one state ${posture}`, async () => {
      const name = 'snapshot_session';
      const [mine, theirs] = [here, elsewhere].map(of => of.db(DB).collection(name));
      await mine.drop();
      await mine.insertMany(numbers(50, i => ({ n: 1, kind: i % 2 })));
      const session = here.startSession({ snapshot: true });
      try {
        const open = mine.find({}, { session, batchSize: 10 });
        assert.equal((await open.next()).n, 1);
        await theirs.updateMany({}, { $inc: { n: 1 } });
        await theirs.deleteMany({ _id: { $gte: 20 } });
        await theirs.insertOne({ _id: 100, n: 9, kind: 9 });
        assert.equal((await open.toArray()).length, 49);
        assert.equal((await mine.find({ n: 1 }, { session }).toArray()).length, 50);
        assert.deepEqual((await mine.distinct('kind', {}, { session })).sort(), [0, 1]);
        const summed = [{ $group: { _id: null, n: { $sum: '$n' } } }];
        assert.equal((await mine.aggregate(summed, { session }).next()).n, 50);
        await theirs.createIndex({ n: 1 });
        await fails(mine.findOne({ n: 1 }, { session }), 246, 'SnapshotUnavailable');
      } finally {
        await session.endSession();
      }
      assert.equal((await mine.find().toArray()).length, 21);
    });

    test(`a causal session reads what another client wrote ${posture}`, async () => {
      const name = 'causal_session';
      const [mine, theirs] = [here, elsewhere].map(of => of.db(DB).collection(name));
      await mine.drop();
      for (let n = 0; n < 20; n++) {
        const writing = elsewhere.startSession({ causalConsistency: true });
        const reading = here.startSession({ causalConsistency: true });
        try {
          await theirs.insertOne({ _id: n }, { session: writing, writeConcern: { w: 1 } });
          reading.advanceClusterTime(writing.clusterTime);
          reading.advanceOperationTime(writing.operationTime);
          assert.deepEqual(await mine.findOne({ _id: n }, { session: reading }), { _id: n });
          const options = { session: reading, readConcern: { level: 'majority' } };
          assert.deepEqual(await mine.findOne({ _id: n }, options), { _id: n });
        } finally {
          await Promise.all([writing.endSession(), reading.endSession()]);
        }
      }
    });

    test(`levels ${posture}`, async () => {
      const mine = here.db(DB).collection('levels');
      await mine.drop();
      await mine.insertMany(numbers(21));
      for (const level of ['local', 'available', 'majority', 'linearizable', 'snapshot']) {
        const found = mine.find({}, { readConcern: { level }, batchSize: 5 });
        assert.equal((await found.toArray()).length, 21, level);
      }
    });
  });
}
