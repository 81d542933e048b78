// Search indexes through Mongoose: declared in schemas, made and changed by models, and used by its aggregations.
'use strict';

const assert = require('node:assert/strict');
const { after, before, beforeEach, test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');
const mongoose = require('mongoose');

const TEXT = { mappings: { dynamic: false, fields: { title: { type: 'string' }, kind: { type: 'stringFacet' } } } };
const VECTOR = {
  fields: [
    { type: 'vector', path: 'v', numDimensions: 3, similarity: 'euclidean' },
    { type: 'filter', path: 'kind' },
  ],
};

let connection, schema;

before(async () => {
  connection = await mongoose.createConnection(process.env.MONGODB_URI, { dbName: 'clients_mongoose' }).asPromise();
});
beforeEach(async () => {
  for (const name of connection.modelNames()) connection.deleteModel(name);
  await connection.dropDatabase();
  schema = new mongoose.Schema({ _id: Number, title: String, kind: String, v: [Number] });
  schema.searchIndex({ name: 'words', definition: TEXT });
  schema.searchIndex({ name: 'near', type: 'vectorSearch', definition: VECTOR });
});
after(() => connection.close());

async function ready(Model, count) {
  for (let tries = 0; tries < 3000; tries += 1) {
    const indexes = await Model.listSearchIndexes();
    assert.equal(indexes.length, count);
    if (indexes.every(index => index.queryable && index.status === 'READY')) return indexes;
    await pause(10);
  }
  assert.fail('an index is not ready');
}

// A model with two indexes, which are ready, and three documents.
async function notes() {
  schema.set('autoSearchIndex', true);
  const Note = connection.model('Note', schema);
  await Note.init();
  await ready(Note, 2);
  await Note.create([
    { _id: 1, title: 'a red pen', kind: 'thing', v: [1, 0, 0] },
    { _id: 2, title: 'blue ink', kind: 'stuff', v: [0, 1, 0] },
    { _id: 3, title: 'a pen and another pen', kind: 'thing', v: [0, 0, 1] },
  ]);
  return Note;
}

const ids = found => found.map(({ _id }) => _id);
const words = query => ({ index: 'words', text: { path: 'title', query } });
const near = (queryVector, more) => ({ $vectorSearch: { index: 'near', path: 'v', queryVector, limit: 3, ...more } });

test('mongoose: a model makes the indexes of its schema', async () => {
  schema.set('autoSearchIndex', true);
  const Note = connection.model('Note', schema);
  await Note.init();
  const [first, second] = await ready(Note, 2);
  assert.deepEqual([first.name, first.type, first.latestDefinition], ['words', 'search', TEXT]);
  assert.deepEqual([second.name, second.type, second.latestDefinition], ['near', 'vectorSearch', VECTOR]);
  // Once more, as when a program starts again: nothing changes.
  await Note.createSearchIndexes();
  assert.deepEqual(await Note.listSearchIndexes(), [first, second]);
});

test('mongoose: without the option it makes none, until it is asked', async () => {
  const Note = connection.model('Note', schema);
  await Note.init();
  assert.deepEqual(await Note.listSearchIndexes(), []);
  assert.deepEqual(await Note.createSearchIndexes(), ['words', 'near']);
  await ready(Note, 2);
});

test('mongoose: an index is made, changed and dropped', async () => {
  const Note = connection.model('Note', new mongoose.Schema({ _id: Number, title: String }));
  await Note.init();
  await Note.create({ _id: 1, title: 'red pens' });
  assert.equal(await Note.createSearchIndex({ name: 'words', definition: TEXT }), 'words');
  await ready(Note, 1);
  assert.deepEqual(await Note.aggregate().search(words('pen')), []);
  await Note.updateSearchIndex('words', { ...TEXT, analyzer: 'lucene.english' });
  const [{ latestDefinition, latestDefinitionVersion }] = await ready(Note, 1);
  assert.deepEqual([latestDefinition.analyzer, latestDefinitionVersion.version], ['lucene.english', 1]);
  assert.deepEqual(ids(await Note.aggregate().search(words('pen'))), [1]);
  await Note.dropSearchIndex('words');
  assert.deepEqual(await Note.listSearchIndexes(), []);
  await assert.rejects(Note.dropSearchIndex('words'), { code: 27, codeName: 'IndexNotFound' });
  await assert.rejects(Note.updateSearchIndex('words', TEXT), { code: 27, codeName: 'IndexNotFound' });
});

test('mongoose: texts', async () => {
  const Note = await notes();
  const found = await Note.aggregate().search(words('pen')).project({ score: { $meta: 'searchScore' } });
  assert.deepEqual(ids(found), [3, 1]);
  assert.ok(found[0].score > found[1].score && found[1].score > 0, JSON.stringify(found));
  assert.deepEqual(ids(await Note.aggregate().search(words('pen')).match({ title: /red/ })), [1]);
  const [marked] = await Note.aggregate().search({ ...words('ink'), highlight: { path: 'title' } })
    .addFields({ marks: { $meta: 'searchHighlights' } });
  assert.deepEqual(marked.marks[0].texts, [{ value: 'blue ', type: 'text' }, { value: 'ink', type: 'hit' }]);
});

test('mongoose: vectors', async () => {
  const Note = await notes();
  const found = await Note.aggregate([near([0, 1, 0.5], { numCandidates: 10 })])
    .project({ score: { $meta: 'vectorSearchScore' } });
  // The score by euclidean distance is 1 / (1 + its square).
  assert.deepEqual(found, [{ _id: 2, score: 1 / 1.25 }, { _id: 3, score: 1 / 2.25 }, { _id: 1, score: 1 / 3.25 }]
    .map(({ _id, score }) => ({ _id, score: Math.fround(score) })));
  const things = { exact: true, limit: 1, filter: { kind: 'thing' } };
  assert.deepEqual(ids(await Note.aggregate([near([0, 1, 0.5], things)])), [3]);
});

test('mongoose: counts', async () => {
  const Note = await notes();
  const facet = { operator: { exists: { path: 'title' } }, facets: { kinds: { type: 'string', path: 'kind' } } };
  const [meta] = await Note.aggregate([{ $searchMeta: { index: 'words', facet, count: { type: 'total' } } }]);
  assert.deepEqual(meta, {
    count: { total: 3 },
    facet: { kinds: { buckets: [{ _id: 'thing', count: 2 }, { _id: 'stuff', count: 1 }] } },
  });
});

test('mongoose: what a model changes is found at once', async () => {
  const Note = await notes();
  const pens = async () => ids(await Note.aggregate().search(words('pen')));
  const note = new Note({ _id: 4, title: 'pen pen pen', v: [1, 1, 1] });
  await note.save();
  assert.deepEqual(await pens(), [4, 3, 1]);
  note.title = 'a pencil';
  await note.save();
  assert.deepEqual(await pens(), [3, 1]);
  await Note.deleteOne({ _id: 3 });
  await Note.updateOne({ _id: 2 }, { title: 'pen' });
  assert.deepEqual(await pens(), [2, 1]);
  assert.deepEqual(ids(await Note.aggregate([near([1, 1, 0.5], { exact: true, limit: 1 })])), [4]);
});
