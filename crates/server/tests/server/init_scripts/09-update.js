// Updates in their forms.
use('forms');
db.c.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2, list: [1, 2, 3] }]);
let r = db.c.updateOne({ _id: 1 }, { $inc: { n: 5 } });
assert(r.matchedCount === 1 && r.modifiedCount === 1 && r.upsertedCount === 0);
r = db.c.updateMany({}, { $set: { seen: true } });
assert(r.modifiedCount === 2);
r = db.c.updateOne({ _id: 3 }, { $set: { n: 3 } }, { upsert: true });
assert(r.upsertedCount === 1 && r.insertedId === 3);
db.c.updateOne({ _id: 2 }, { $set: { 'list.$[x]': 0 } }, { arrayFilters: [{ x: { $gte: 2 } }] });
assert(db.c.findOne({ _id: 2 }).list.join() === '1,0,0');
db.c.replaceOne({ _id: 3 }, { n: 33 });
const after = db.c.findOneAndUpdate({ _id: 3 }, { $inc: { n: 1 } }, { returnDocument: 'after', projection: { _id: 0 } });
assert(JSON.stringify(after) === '{"n":34}', JSON.stringify(after));
assert(db.c.findOneAndDelete({ _id: 3 }).n === 34);
assert(db.c.deleteMany({ _id: { $in: [1, 9] } }).deletedCount === 1);
try {
  db.c.updateOne({}, { n: 1 });
  throw new Error('no operators');
} catch (error) {
  assert(error.name === 'MongoInvalidArgumentError', error.name);
}
