// The stores of LangChain for JavaScript over this server: vectors with filters, answers that are found by likeness, keys,
// messages. Embeddings are a fixed function, so that no model and no network is needed.
'use strict';

const assert = require('node:assert/strict');
const { after, before, beforeEach, test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');
const { Document } = require('@langchain/core/documents');
const { Embeddings } = require('@langchain/core/embeddings');
const { AIMessage, HumanMessage } = require('@langchain/core/messages');
const {
  MongoDBAtlasSemanticCache, MongoDBAtlasVectorSearch, MongoDBChatMessageHistory, MongoDBStore,
} = require('@langchain/mongodb');
const { MongoClient } = require('mongodb');

const WORDS = ['the', 'a', 'red', 'blue', 'green', 'tall', 'pen', 'car', 'tree', 'house'];
const TEXTS = [
  ['the red pen', 'thing', 1],
  ['a blue car', 'thing', 4],
  ['the green tree', 'place', 5],
  ['a red car', 'thing', 3],
  ['the tall green house', 'place', 9],
];
const FIELDS = [
  { type: 'vector', path: 'embedding', numDimensions: WORDS.length, similarity: 'cosine' },
  { type: 'filter', path: 'kind' },
  { type: 'filter', path: 'size' },
];

// One dimension for each word.
const embed = text => WORDS.map(word => text.split(' ').filter(other => other === word).length);

class Words extends Embeddings {
  async embedQuery(text) {
    return embed(text);
  }

  async embedDocuments(texts) {
    return texts.map(embed);
  }
}

// The score of a text for another one by cosine, between 0 and 1.
function likeness(one, other) {
  const [left, right] = [embed(one), embed(other)];
  const product = left.reduce((sum, value, i) => sum + value * right[i], 0);
  return (1 + product / Math.hypot(...left) / Math.hypot(...right)) / 2;
}

let client, collection, store;

before(async () => {
  client = await new MongoClient(process.env.MONGODB_URI).connect();
});
beforeEach(async () => {
  const db = client.db('clients_langchain_js');
  await db.dropDatabase();
  collection = await db.createCollection('documents');
  await collection.createSearchIndex({ name: 'near', type: 'vectorSearch', definition: { fields: FIELDS } });
  await queryable();
  store = new MongoDBAtlasVectorSearch(new Words({}), { collection, indexName: 'near' });
});
after(() => client.close());

async function queryable() {
  for (let tries = 0; tries < 3000; tries += 1) {
    const [index] = await collection.listSearchIndexes('near').toArray();
    if (index.queryable) return;
    await pause(10);
  }
  assert.fail('the index is not ready');
}

const fill = () => store.addDocuments(
  TEXTS.map(([pageContent, kind, size]) => new Document({ pageContent, metadata: { kind, size } })),
  { ids: TEXTS.map(([text]) => text) },
);
const contents = documents => documents.map(({ pageContent }) => pageContent);

test('langchain: the nearest texts and their scores', async () => {
  assert.deepEqual(await fill(), TEXTS.map(([text]) => text));
  const found = await store.similaritySearchWithScore('red pen', 2);
  assert.deepEqual(contents(found.map(([document]) => document)), ['the red pen', 'a red car']);
  for (const [{ pageContent }, score] of found) {
    assert.ok(Math.abs(score - likeness('red pen', pageContent)) < 1e-5, `${pageContent}: ${score}`);
  }
  assert.deepEqual(found[0][0].metadata, { _id: 'the red pen', kind: 'thing', size: 1 });
});

test('langchain: filters before and after the search', async () => {
  await fill();
  const find = async filter => contents(await store.similaritySearch('the red car', 5, filter)).sort();
  assert.deepEqual(await find({ kind: 'place' }), ['the green tree', 'the tall green house']);
  assert.deepEqual(await find({ preFilter: { kind: { $ne: 'place' }, size: { $gt: 1 } } }), ['a blue car', 'a red car']);
  const either = { $or: [{ size: { $in: [1] } }, { $and: [{ kind: { $eq: 'place' } }, { size: { $lte: 5 } }] }] };
  assert.deepEqual(await find({ preFilter: either }), ['the green tree', 'the red pen']);
  const both = { preFilter: { kind: 'thing' }, postFilterPipeline: [{ $match: { text: /^a / } }] };
  assert.deepEqual(await find(both), ['a blue car', 'a red car']);
});

test('langchain: what was added, replaced and deleted is found at once', async () => {
  await fill();
  const [id] = await store.addDocuments([new Document({ pageContent: 'a tall tree', metadata: {} })]);
  const nearest = async text => contents(await store.similaritySearch(text, 1));
  assert.deepEqual(await nearest('tall tree'), ['a tall tree']);
  await store.addDocuments([new Document({ pageContent: 'a blue house', metadata: {} })], { ids: ['a blue car'] });
  assert.deepEqual(await nearest('blue'), ['a blue house']);
  assert.equal(await collection.countDocuments(), 6);
  await store.delete({ ids: [id, 'a blue car'] });
  assert.equal(await collection.countDocuments(), 4);
  assert.deepEqual(await nearest('tall house'), ['the tall green house']);
});

test('langchain: different results, and a retriever', async () => {
  await fill();
  await store.addDocuments([new Document({ pageContent: 'the red red car', metadata: { kind: 'thing' } })]);
  const different = await store.maxMarginalRelevanceSearch('a red car', { k: 2, fetchK: 6, lambda: 0.1 });
  assert.equal(different[0].pageContent, 'a red car');
  assert.equal(likeness('a red car', different[1].pageContent), 0.5);
  const retriever = store.asRetriever({ k: 2, filter: { preFilter: { kind: { $eq: 'place' } } } });
  assert.deepEqual(contents(await retriever.invoke('green house')), ['the tall green house', 'the green tree']);
});

test('langchain: an answer to a similar question', async () => {
  const cache = new MongoDBAtlasSemanticCache(collection, new Words({}), { indexName: 'near', scoreThreshold: 0.9 });
  const answer = [{ text: 'a pen' }];
  await cache.update('the tall red pen', 'model:"m"', answer);
  assert.deepEqual(await cache.lookup('tall red pen', 'model:"m"'), answer);
  assert.equal(await cache.lookup('tall red pen', 'model:"other"'), null);
  assert.equal(await cache.lookup('a blue car', 'model:"m"'), null);
  await cache.clear();
  assert.equal(await cache.lookup('the tall red pen', 'model:"m"'), null);
});

test('langchain: keys and messages', async () => {
  const keys = new MongoDBStore({ collection, namespace: 'shop' });
  const bytes = text => new TextEncoder().encode(text);
  await keys.mset([['a', bytes('one')], ['ab', bytes('two')], ['c', bytes('three')]]);
  await keys.mdelete(['c']);
  assert.deepEqual(await keys.mget(['ab', 'c', 'a']), [bytes('two'), undefined, bytes('one')]);
  const found = [];
  for await (const key of keys.yieldKeys('a')) found.push(key);
  assert.deepEqual(found.sort(), ['a', 'ab']);
  const history = new MongoDBChatMessageHistory({ collection, sessionId: 'first' });
  await history.addMessage(new HumanMessage('hello'));
  await history.addMessage(new AIMessage('good day'));
  assert.deepEqual((await history.getMessages()).map(({ content }) => content), ['hello', 'good day']);
  await history.clear();
  assert.deepEqual(await history.getMessages(), []);
});
