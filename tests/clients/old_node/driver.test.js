// The Node driver 3.7 with both of its topologies; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { after, before, describe, test } = require('node:test');
const { MongoClient } = require('mongodb');

const BASE = process.env.MONGODB_AUTH_URI;
const logIn = (password, mechanism) =>
  `${BASE.replace('//', `//root:${password}@`)}&authSource=admin&authMechanism=${mechanism}`;

const SERVERS = {
  router: process.env.MONGODB_URI,
  member: process.env.MONGODB_REPLICA_SET_URI,
  'a user with SCRAM-SHA-1': logIn('pw', 'SCRAM-SHA-1'),
  'a user with SCRAM-SHA-256': logIn('pw', 'SCRAM-SHA-256'),
};
// The first is the default of 3.x.
const TOPOLOGIES = { 'old topology': {}, 'unified topology': { useUnifiedTopology: true } };

before(async () => {
  const anonymous = await MongoClient.connect(BASE, { useUnifiedTopology: true });
  await anonymous.db('admin').command({ createUser: 'root', pwd: 'pw', roles: ['root'] });
  await anonymous.close();
});

for (const [topology, options] of Object.entries(TOPOLOGIES)) {
  for (const [server, uri] of Object.entries(SERVERS)) {
    describe(`${server}, ${topology}`, () => {
      let client, orders;

      before(async () => {
        client = await MongoClient.connect(uri, options);
        orders = client.db('clients_old_node').collection('orders');
      });
      after(() => client.close());

      const start = async () => {
        await orders.deleteMany({});
        await orders.insertOne({ _id: 1, n: 1 });
      };

      test(`documents of ${server}, ${topology}`, async () => {
        await orders.deleteMany({});
        await orders.insertMany(Array.from({ length: 1000 }, (_, number) => ({ _id: number, n: number % 10 })));
        await orders.createIndex({ n: 1 });
        const found = await orders.find({ n: 3 }).sort({ _id: 1 }).batchSize(7).toArray();
        assert.deepEqual(found.map(order => order._id), Array.from({ length: 100 }, (_, number) => 10 * number + 3));
        assert.equal((await orders.updateMany({ n: 3 }, { $inc: { n: 100 } })).modifiedCount, 100);
        assert.equal((await orders.findOneAndUpdate({ _id: 3 }, { $inc: { n: 1 } })).value.n, 103);
        assert.equal((await orders.deleteOne({ n: 104 })).deletedCount, 1);
        assert.equal(await orders.countDocuments(), 999);
        const [sum] = await orders.aggregate([{ $match: { n: 103 } }, { $group: { _id: null, of: { $sum: '$n' } } }]).toArray();
        assert.equal(sum.of, 99 * 103);
        await assert.rejects(orders.insertOne({ _id: 1 }), error => error.code === 11000);
      });

      test(`transaction of ${server}, ${topology}`, async () => {
        await start();
        const session = client.startSession();
        await session.withTransaction(() => orders.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session }));
        assert.equal((await orders.findOne()).n, 2);
        session.startTransaction();
        await orders.insertOne({ _id: 2 }, { session });
        assert.equal(await orders.countDocuments({}, { session }), 2);
        await session.abortTransaction();
        assert.equal(await orders.countDocuments(), 1);
        await new Promise(done => session.endSession(done));
      });

      test(`change stream of ${server}, ${topology}`, async () => {
        await start();
        const { operationTime } = await client.db('admin').command({ ping: 1 });
        await orders.insertOne({ _id: 2, n: 1 });
        await orders.updateOne({ _id: 2 }, { $inc: { n: 1 } });
        const stream = orders.watch([{ $match: { 'documentKey._id': 2 } }], { startAtOperationTime: operationTime });
        assert.deepEqual((await stream.next()).fullDocument, { _id: 2, n: 1 });
        assert.deepEqual((await stream.next()).updateDescription.updatedFields, { n: 2 });
        await stream.close();
      });
    });
  }
}

for (const [topology, options] of Object.entries(TOPOLOGIES)) {
  test(`a wrong password, ${topology}`, () =>
    assert.rejects(MongoClient.connect(logIn('wrong', 'SCRAM-SHA-256'), options), /Authentication failed/));
}
