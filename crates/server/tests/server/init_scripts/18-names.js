// Names that need getCollection, and nested ones.
db = db.getSiblingDB('names');
db['order-items'].insertOne({ a: 1 });
db.getCollection('2024.sales').insertOne({ a: 1 });
db.app.events.log.insertOne({ a: 1 });
db.getCollection('stats').insertOne({ a: 1 });
assert(db.getCollectionNames().sort().join() === '2024.sales,app.events.log,order-items,stats');
assert(db.app.events.getFullName() === 'names.app.events' && db.getName() === 'names');
db.app.events.log.renameCollection('moved');
assert(db.moved.drop() === true && !db.getCollectionNames().includes('moved'));
