// Aggregations, a view, and a collection that a pipeline writes.
db = db.getSiblingDB('stock');
const groups = db.items.aggregate([{ $group: { _id: '$stock', n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
assert(groups.length === 7 && groups[0].n === 358);
db.createView('empty', 'items', [{ $match: { stock: 0 } }]);
assert(db.empty.countDocuments() === 358);
db.items.aggregate([{ $match: { stock: 1 } }, { $out: 'ones' }]);
assert(db.ones.estimatedDocumentCount() === 357);
assert(db.items.distinct('stock').length === 7);
