// Types as the driver of mongosh writes them.
db = db.getSiblingDB('types');
db.t.insertOne({
  _id: 1, int: 1, zero: 0, double: 1.5, large: 3000000000, long: NumberLong('9007199254740993'), int32: NumberInt(7), whole: Double(2),
  decimal: NumberDecimal('0.10'), id: ObjectId('507f1f77bcf86cd799439011'), uuid: UUID('01234567-89ab-cdef-0123-456789abcdef'),
  date: ISODate('2026-11-28'), stamp: Timestamp({ t: 5, i: 1 }), regex: /ab+/i, none: null, code: Code('1'), min: MinKey(), max: MaxKey(),
  bytes: BinData(0, 'aGk='), nested: { list: [1, 'two', { three: 3 }] }, undef: undefined, negative: -0,
});
const t = db.t.findOne();
assert(t.long.toString() === '9007199254740993' && t.id.toString() === '507f1f77bcf86cd799439011');
assert(t.uuid.toString() === '01234567-89ab-cdef-0123-456789abcdef');
const types = db.t.aggregate([{ $project: { all: { $map: { input: { $objectToArray: '$$ROOT' }, in: { $type: '$$this.v' } } } } }]).next();
assert(types.all.join() === 'int,int,int,double,double,long,int,double,decimal,objectId,binData,date,timestamp,regex,null,javascript,minKey,maxKey,binData,object,null,double', types.all.join());
printjson(t);
