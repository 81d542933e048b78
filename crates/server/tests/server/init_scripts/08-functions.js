// Functions, loops, and many documents.
function price(n) { return Math.round(n * 1.19 * 100) / 100; }
var bulk = [];
for (var i = 0; i < 2500; i++) {
  bulk.push({ sku: 'S' + i.toString().padStart(5, '0'), price: price(i), stock: i % 7, at: new Date(1767225600000 + i) });
}
db = db.getSiblingDB('stock');
var result = db.items.insertMany(bulk);
assert(Object.keys(result.insertedIds).length === 2500);
assert(db.items.countDocuments({ stock: 0 }) === 358);
assert(db.items.find().limit(3).toArray().length === 3);
assert(db.items.find({}, { _id: 0, sku: 1 }).sort({ sku: -1 }).limit(1).next().sku === 'S02499');
var seen = 0;
db.items.find({ stock: { $lt: 2 } }).batchSize(100).forEach(function (item) { seen += 1; });
assert(seen === 715, String(seen));
