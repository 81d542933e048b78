// Options of indexes, and what describes them.
db = db.getSiblingDB('indexes');
assert(db.c.createIndex({ a: 1, b: -1 }) === 'a_1_b_-1');
assert(db.c.createIndex({ mail: 1 }, { unique: true, partialFilterExpression: { mail: { $exists: true } }, collation: { locale: 'en', strength: 2 } }) === 'mail_1');
db.c.createIndex({ at: 1 }, { expireAfterSeconds: 3600, name: 'ttl' });
db.c.createIndex({ '$**': 1 });
assert(db.c.getIndexes().map((index) => index.name).join() === '_id_,a_1_b_-1,mail_1,ttl,$**_1');
db.c.hideIndex('ttl');
db.runCommand({ collMod: 'c', index: { name: 'ttl', expireAfterSeconds: 7200, hidden: false } });
db.c.dropIndex('a_1_b_-1');
assert(db.c.getIndexes().find(({ name }) => name === 'ttl').expireAfterSeconds === 7200);
