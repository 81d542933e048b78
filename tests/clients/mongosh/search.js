// Search indexes, as a person types it in mongosh. Loaded by session.js, whose functions it uses.
'use strict';

{
  use('clients_mongosh_search');
  db.dropDatabase();

  check('search: definitions', () => {
    db.notes.insertMany([
      { _id: 1, text: 'a red pen', v: [1, 0] },
      { _id: 2, text: 'blue ink', v: [0, 1] },
    ]);
    assert.equal(db.notes.createSearchIndex({ mappings: { dynamic: true } }), 'default');
    const fields = [{ type: 'vector', path: 'v', numDimensions: 2, similarity: 'cosine' }];
    assert.equal(db.notes.createSearchIndex('near', 'vectorSearch', { fields }), 'near');
    until('the indexes', () => db.notes.getSearchIndexes().every(index => index.status === 'READY'));
    same(db.notes.getSearchIndexes().map(({ name, type }) => [name, type]), [['default', 'search'], ['near', 'vectorSearch']]);
  });

  check('search: stages', () => {
    const ids = stages => db.notes.aggregate(stages).toArray().map(({ _id }) => _id);
    same(ids([{ $search: { text: { path: 'text', query: 'pen' } } }]), [1]);
    same(ids([{ $vectorSearch: { index: 'near', path: 'v', queryVector: [0, 1], exact: true, limit: 1 } }]), [2]);
    same(db.notes.aggregate([{ $searchMeta: { exists: { path: 'text' } } }]).toArray(), [{ count: { lowerBound: Long(2) } }]);
  });

  check('search: changes of definitions', () => {
    db.notes.updateSearchIndex('default', { mappings: { dynamic: false, fields: { text: { type: 'token' } } } });
    until('the update', () => db.notes.getSearchIndexes('default')[0].status === 'READY');
    db.notes.dropSearchIndex('near');
    assert.equal(db.notes.getSearchIndexes().length, 1);
  });
}
