// Bulk writes.
db = db.getSiblingDB('bulk');
let r = db.c.bulkWrite([
  { insertOne: { document: { _id: 1, n: 1 } } },
  { insertOne: { document: { _id: 2, n: 2 } } },
  { updateOne: { filter: { _id: 1 }, update: { $set: { n: 10 } } } },
  { updateOne: { filter: { _id: 7 }, update: { $set: { n: 7 } }, upsert: true } },
  { deleteOne: { filter: { _id: 2 } } },
]);
assert(r.insertedCount === 2 && r.modifiedCount === 1 && r.deletedCount === 1 && r.upsertedIds[3] === 7);
const ops = db.c.initializeUnorderedBulkOp();
ops.insert({ _id: 20 });
ops.find({ _id: 1 }).updateOne({ $inc: { n: 1 } });
ops.find({ _id: 7 }).delete();
r = ops.execute();
assert(r.insertedCount === 1 && r.deletedCount === 1 && db.c.findOne({ _id: 1 }).n === 11);
try {
  db.c.insertMany([{ _id: 30 }, { _id: 1 }, { _id: 31 }], { ordered: false });
  throw new Error('a duplicate');
} catch (error) {
  assert(error.name === 'MongoBulkWriteError' && error.code === 11000 && error.writeErrors[0].index === 1);
}
assert(db.c.countDocuments() === 4);
