// A collection with a schema, and indexes of several kinds.
db = db.getSiblingDB('hr');
db.createCollection('people', {
  validator: { $jsonSchema: { bsonType: 'object', required: ['email'], properties: { age: { bsonType: 'int', minimum: 0 } } } },
  validationAction: 'error',
});
db.people.createIndexes([{ email: 1 }, { 'address.city': 1, age: -1 }]);
db.people.createIndex({ bio: 'text' }, { name: 'search', default_language: 'english' });
db.people.createIndex({ place: '2dsphere' }, { sparse: true });
db.people.insertOne({ email: 'a@b.c', age: 30 });
try {
  db.people.insertOne({ age: 30 });
  throw 'not refused';
} catch (error) {
  if (error.code !== 121) throw error;
}
