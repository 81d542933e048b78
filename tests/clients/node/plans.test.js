// How queries are answered, through the Node driver; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { after, before, beforeEach, describe, test } = require('node:test');
const { MongoClient, MongoServerError } = require('mongodb');

const SORT_MEMORY = 'internalQueryMaxBlockingSortMemoryUsageBytes';
const GROUP_MEMORY = 'internalDocumentSourceGroupMaxMemoryBytes';
let client, db, coll;

before(async () => {
  client = await new MongoClient(process.env.MONGODB_URI).connect();
  db = client.db('clients_node_plans');
});
after(() => client.close());
beforeEach(async t => {
  coll = db.collection(t.name.replaceAll(/[^a-z]+/g, '_'));
  await coll.drop();
  await coll.insertMany(range(1000, i => ({ _id: i, a: i % 10, b: i % 7, c: -i, text: 'x'.repeat(200) })));
});

const range = (count, make) => Array.from({ length: count }, (_, i) => make(i));
const ids = async cursor => (await cursor.toArray()).map(doc => doc._id);
const ascending = list => list.toSorted((one, other) => one - other);
const winner = explained => explained.queryPlanner.winningPlan;

// The names of a plan's stages, from the top.
function stages(plan) {
  const inputs = plan.inputStages ?? (plan.inputStage ? [plan.inputStage] : []);
  return [plan.stage, ...inputs.flatMap(stages)];
}

async function fails(promise, code, codeName) {
  const error = await promise.then(() => assert.fail(`no error ${code}`), error => error);
  assert.ok(error instanceof MongoServerError, String(error.stack));
  assert.deepEqual([error.code, error.codeName], [code, codeName], error.message);
}

async function limited(parameter, value, act) {
  const { was } = await db.admin().command({ setParameter: 1, [parameter]: value });
  try {
    await act();
  } finally {
    await db.admin().command({ setParameter: 1, [parameter]: was });
  }
}

describe('plans', () => {
  test('or of several indexes', async () => {
    const query = { $or: [{ a: 3 }, { b: 5 }] };
    const expected = range(1000, i => i).filter(i => i % 10 === 3 || i % 7 === 5);
    assert.deepEqual(await ids(coll.find(query).sort({ _id: 1 })), expected);
    await coll.createIndexes([{ key: { a: 1 } }, { key: { b: 1 } }]);
    assert.deepEqual(ascending(await ids(coll.find(query))), expected);
    assert.equal(await coll.countDocuments(query), expected.length);
    const explained = await coll.find(query).explain('executionStats');
    const names = stages(winner(explained));
    assert.ok(names.includes('OR') && !names.includes('COLLSCAN'));
    assert.equal(names.filter(name => name === 'IXSCAN').length, 2);
    assert.equal(explained.executionStats.nReturned, expected.length);
    // One without an index makes all of it a scan.
    const scan = await coll.find({ $or: [{ a: 3 }, { text: 'x' }] }).explain('queryPlanner');
    assert.deepEqual(stages(winner(scan)), ['SUBPLAN', 'COLLSCAN']);
  });

  test('covered queries', async () => {
    await coll.createIndex({ a: 1, c: -1 });
    const shown = () => coll.find({ a: 3 }, { projection: { _id: 0, c: 1 } }).sort({ c: -1 }).limit(3);
    assert.deepEqual(await shown().toArray(), [{ c: -3 }, { c: -13 }, { c: -23 }]);
    const explained = await shown().explain('executionStats');
    assert.ok(stages(winner(explained)).includes('PROJECTION_COVERED'));
    assert.equal(explained.executionStats.totalDocsExamined, 0);
    // With _id documents are read.
    const read = await coll.find({ a: 3 }, { projection: { c: 1 } }).explain('executionStats');
    assert.equal(read.executionStats.totalDocsExamined, 100);
  });

  test('hints', async () => {
    await coll.createIndex({ a: 1 }, { name: 'by_a' });
    await coll.createIndex({ b: 1 }, { name: 'by_b' });
    const query = { a: 3, b: 5 };
    const expected = ascending(await ids(coll.find(query)));
    for (const [hint, name] of [['by_a', 'by_a'], ['by_b', 'by_b'], [{ b: 1 }, 'by_b']]) {
      const scan = winner(await coll.find(query).hint(hint).explain('queryPlanner')).inputStage;
      assert.deepEqual([scan.stage, scan.indexName], ['IXSCAN', name]);
      assert.deepEqual(ascending(await ids(coll.find(query).hint(hint))), expected);
    }
    const natural = () => coll.find(query).hint({ $natural: -1 });
    assert.deepEqual(stages(winner(await natural().explain('queryPlanner'))), ['COLLSCAN']);
    assert.deepEqual(await ids(natural()), expected.toReversed());

    assert.equal(await coll.countDocuments(query, { hint: 'by_b' }), expected.length);
    assert.equal((await coll.aggregate([{ $match: query }], { hint: 'by_b' }).toArray()).length, expected.length);
    const changed = await coll.updateMany(query, { $set: { d: 1 } }, { hint: 'by_b' });
    assert.equal(changed.modifiedCount, expected.length);
    assert.equal((await coll.deleteOne(query, { hint: { a: 1 } })).deletedCount, 1);
    await fails(coll.find(query).hint('nothing').toArray(), 2, 'BadValue');
  });

  test('a blocking sort within its time', async () => {
    await coll.insertMany(range(20_000, i => ({ _id: 1000 + i, c: i * 7919 % 20_011 })));
    await fails(coll.find().sort({ c: 1 }).maxTimeMS(1).toArray(), 50, 'MaxTimeMSExpired');
    const sorted = [{ $sort: { c: 1 } }, { $limit: 5 }];
    await fails(coll.aggregate(sorted, { maxTimeMS: 1 }).toArray(), 50, 'MaxTimeMSExpired');
    // Nothing of it is left, and with time it is answered.
    const first = await coll.find().sort({ c: 1 }).maxTimeMS(60_000).limit(1).next();
    assert.equal(first._id, 999);
  });

  test('memory that does not suffice', async () => {
    const exceeded = [292, 'QueryExceededMemoryLimitNoDiskUseAllowed'];
    const byC = () => coll.find().sort({ c: 1 });
    await limited(SORT_MEMORY, 20_000, async () => {
      await fails(byC().allowDiskUse(false).toArray(), ...exceeded);
      assert.deepEqual(await ids(byC().allowDiskUse(true)), range(1000, i => 999 - i));
      // The default is to use files.
      assert.equal((await ids(byC())).length, 1000);
      await fails(coll.aggregate([{ $sort: { c: 1 } }], { allowDiskUse: false }).toArray(), ...exceeded);
    });
    await limited(GROUP_MEMORY, 20_000, async () => {
      const group = [{ $group: { _id: '$c', texts: { $push: '$text' } } }, { $count: 'n' }];
      await fails(coll.aggregate(group, { allowDiskUse: false }).toArray(), ...exceeded);
      assert.deepEqual(await coll.aggregate(group, { allowDiskUse: true }).toArray(), [{ n: 1000 }]);
    });
    assert.equal((await ids(byC().allowDiskUse(false))).length, 1000);
  });

  test('explain', async () => {
    await coll.createIndex({ a: 1 }, { name: 'by_a' });
    const explained = await coll.find({ a: 3, b: 5 }).sort({ c: 1 }).limit(3).explain('allPlansExecution');
    const names = stages(winner(explained));
    assert.equal(names[0], 'SORT');
    assert.deepEqual(names.slice(-2), ['FETCH', 'IXSCAN']);
    assert.equal(explained.queryPlanner.namespace, coll.namespace);
    const { nReturned, totalKeysExamined } = explained.executionStats;
    assert.deepEqual([nReturned, totalKeysExamined], [3, 100]);

    const planned = await coll.find({ a: 3 }).explain('queryPlanner');
    assert.equal(planned.executionStats, undefined);
    const distinct = await coll.distinct('b', { a: 3 }, { explain: 'executionStats' });
    assert.equal(stages(winner(distinct)).at(-1), 'IXSCAN');
    const deleted = await coll.deleteMany({ a: 3 }, { explain: 'executionStats' });
    assert.equal(stages(winner(deleted)).at(-1), 'IXSCAN');
    assert.equal(await coll.countDocuments({ a: 3 }), 100);
    const lookup = { from: coll.collectionName, localField: 'b', foreignField: 'a', as: 'found' };
    const joined = coll.aggregate([{ $match: { _id: { $lt: 2 } } }, { $lookup: lookup }]);
    const [, shown] = (await joined.explain('executionStats')).stages;
    assert.deepEqual(shown.$lookup, lookup);
    assert.deepEqual([shown.totalDocsExamined, shown.collectionScans, shown.nReturned].map(Number), [200, 0, 2]);
    assert.deepEqual(shown.indexesUsed, ['by_a']);
  });
});
