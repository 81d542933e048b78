// Functions of the shell before mongosh.
conn = new Mongo();
db = conn.getDB('legacy');
db.users.insert({ _id: 1, name: 'Ada' });
db.users.insert([{ _id: 2, name: 'Bob' }, { _id: 3, name: 'Cy' }]);
db.users.replaceOne({ _id: 3 }, { name: 'Cyd' });
db.users.update({ _id: 1 }, { $set: { name: 'Ada L.' } });
db.users.update({ _id: 9 }, { $set: { name: 'Zoe' } }, { upsert: true });
db.users.remove({ _id: 2 });
db.users.ensureIndex({ name: 1 }, { unique: true });
print('users: ' + db.users.count() + ', ' + db.users.find({ _id: { $gt: 1 } }).count());
