// Search indexes through the Node driver's own helpers; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');
const { MongoClient, MongoServerError } = require('mongodb');

let client, coll;

before(async () => {
  client = await new MongoClient(process.env.MONGODB_URI).connect();
  coll = client.db('clients_node_search').collection('notes');
  await coll.drop();
  await coll.insertMany([
    { _id: 1, text: 'a red pen', v: [1, 0, 0] },
    { _id: 2, text: 'blue ink', v: [0, 1, 0] },
    { _id: 3, text: 'a pen and another pen', v: [0, 0, 1] },
  ]);
});
after(() => client.close());

async function ready() {
  for (let tries = 0; tries < 3000; tries += 1) {
    const indexes = await coll.listSearchIndexes().toArray();
    if (indexes.every(index => index.queryable && index.status === 'READY')) return indexes;
    await pause(10);
  }
  assert.fail('an index is not ready');
}

test('search: definitions', async () => {
  assert.equal(await coll.createSearchIndex({ name: 'default', definition: { mappings: { dynamic: true } } }), 'default');
  const fields = [{ type: 'vector', path: 'v', numDimensions: 3, similarity: 'cosine' }];
  assert.deepEqual(await coll.createSearchIndexes([{ name: 'v', type: 'vectorSearch', definition: { fields } }]), ['v']);
  const [first, second] = await ready();
  assert.deepEqual([first.name, first.type, second.name, second.type], ['default', 'search', 'v', 'vectorSearch']);
  await coll.updateSearchIndex('default', { mappings: { dynamic: true }, analyzer: 'lucene.english' });
  assert.equal((await ready())[0].latestDefinitionVersion.version, 1);
});

test('search: text, vectors and their scores', async () => {
  const text = [{ $search: { text: { path: 'text', query: 'pens' } } }, { $project: { score: { $meta: 'searchScore' } } }];
  const found = await coll.aggregate(text).toArray();
  assert.deepEqual(found.map(document => document._id), [3, 1]);
  assert.ok(found[0].score > found[1].score);
  const near = [{ $vectorSearch: { index: 'v', path: 'v', queryVector: [0, 0.9, 0.1], numCandidates: 10, limit: 2 } }];
  assert.deepEqual((await coll.aggregate(near).toArray()).map(document => document._id), [2, 3]);
  await coll.insertOne({ _id: 4, text: 'found at once' });
  assert.equal((await coll.aggregate([{ $search: { text: { path: 'text', query: 'once' } } }]).toArray()).length, 1);
});

test('search: errors and the end', async () => {
  const failed = await coll.aggregate([{ $search: { text: { path: 'text' } } }]).toArray().catch(error => error);
  assert.ok(failed instanceof MongoServerError && failed.code === 8, String(failed));
  await coll.dropSearchIndex('v');
  assert.deepEqual((await coll.listSearchIndexes().toArray()).map(index => index.name), ['default']);
  const again = await coll.dropSearchIndex('v').catch(error => error);
  assert.equal(again.code, 27);
});
