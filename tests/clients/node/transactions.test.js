// Transactions and causally consistent sessions of the Node driver; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { after, before, beforeEach, describe, test } = require('node:test');
const { MongoClient, MongoNetworkError, MongoServerError } = require('mongodb');

const POSTURES = {
  router: [process.env.MONGODB_URI, process.env.MONGODB_PROXY_URI],
  member: [process.env.MONGODB_REPLICA_SET_URI, process.env.MONGODB_REPLICA_SET_PROXY_URI],
};
const TRANSIENT = 'TransientTransactionError';
const UNKNOWN = 'UnknownTransactionCommitResult';

const accounts = client => ['clients_node_a', 'clients_node_b'].map(db => client.db(db).collection('accounts'));

async function move(client, session, amount) {
  const [first, second] = accounts(client);
  await first.updateOne({ _id: 'ann' }, { $inc: { n: -amount } }, { session });
  await second.updateOne({ _id: 'bob' }, { $inc: { n: amount } }, { session });
}

async function money(client, session) {
  const [first, second] = accounts(client);
  const ann = await first.findOne({ _id: 'ann' }, { session });
  const bob = await second.findOne({ _id: 'bob' }, { session });
  return [ann.n, bob.n];
}

for (const [posture, [uri, throughProxy]] of Object.entries(POSTURES)) {
  describe(`transactions, ${posture}`, () => {
    let client, elsewhere, proxied, commands;

    before(async () => {
      [client, elsewhere] = await Promise.all([0, 1].map(() => new MongoClient(uri).connect()));
      proxied = await new MongoClient(throughProxy, { monitorCommands: true }).connect();
      proxied.on('commandStarted', ({ commandName }) => commands.push(commandName));
    });
    after(() => Promise.all([client, elsewhere, proxied].map(each => each.close())));
    beforeEach(async () => {
      commands = [];
      for (const coll of accounts(client)) await coll.drop();
      const [first, second] = accounts(client);
      await first.insertOne({ _id: 'ann', n: 100 });
      await second.insertOne({ _id: 'bob', n: 0 });
    });

    test(`all or nothing ${posture}`, () => client.withSession(async session => {
      const result = await session.withTransaction(async () => {
        await move(client, session, 30);
        assert.deepEqual(await money(client, session), [70, 30]);
        assert.deepEqual(await money(elsewhere), [100, 0]);
        return 'done';
      });
      assert.equal(result, 'done');
      assert.deepEqual(await money(elsewhere), [70, 30]);
      const failing = session.withTransaction(async () => {
        await move(client, session, 30);
        throw new RangeError('not this time');
      });
      await assert.rejects(failing, RangeError);
      assert.deepEqual(await money(elsewhere), [70, 30]);
    }));

    test(`the loser of a conflict is run again ${posture}`, async () => {
      const [counters] = accounts(client);
      const sessions = [client.startSession(), elsewhere.startSession()];
      try {
        sessions.forEach(session => session.startTransaction());
        const change = [{ _id: 'ann' }, { $inc: { n: 1 } }];
        await counters.updateOne(...change, { session: sessions[0] });
        const [theirs] = accounts(elsewhere);
        const error = await theirs.updateOne(...change, { session: sessions[1] }).then(assert.fail, error => error);
        assert.ok(error instanceof MongoServerError, String(error.stack));
        assert.equal(error.code, 112);
        assert.ok(error.hasErrorLabel(TRANSIENT));
        await sessions[1].abortTransaction();
        await sessions[0].commitTransaction();
        let runs = 0;
        const count = async (of, session) => {
          for (let i = 0; i < 10; i++) {
            await session.withTransaction(async () => {
              runs += 1;
              const [mine] = accounts(of);
              const { n } = await mine.findOne({ _id: 'ann' }, { session });
              await mine.updateOne({ _id: 'ann' }, { $set: { n: n + 1 } }, { session });
            });
          }
        };
        await Promise.all([count(client, sessions[0]), count(elsewhere, sessions[1])]);
        assert.equal((await counters.findOne({ _id: 'ann' })).n, 121);
        assert.ok(runs >= 20);
      } finally {
        await Promise.all(sessions.map(session => session.endSession()));
      }
    });

    test(`a causal session reads its own writes ${posture}`, () =>
      client.withSession({ causalConsistency: true }, async session => {
        const [mine] = accounts(client);
        for (let n = 0; n < 20; n++) {
          await mine.insertOne({ _id: n }, { session, writeConcern: { w: 1 } });
          const options = { session, readConcern: { level: n % 2 ? 'local' : 'majority' } };
          assert.deepEqual(await mine.findOne({ _id: n }, options), { _id: n });
        }
      }));

    const cut = async (when, name, times = 1) =>
      (await proxied.db('admin').command({ cut: `${when} ${name} ${times}` })).cuts;
    const cuts = async () => (await proxied.db('admin').command({ cut: 'nothing' })).cuts;
    const sent = name => commands.filter(each => each === name).length;

    for (const when of ['request', 'reply']) {
      test(`a commit is tried again, ${when} lost, ${posture}`, () => proxied.withSession(async session => {
        session.startTransaction();
        await move(proxied, session, 30);
        const before = await cut(when, 'commitTransaction');
        await session.commitTransaction();
        assert.equal(await cuts() - before, 1);
        assert.equal(sent('commitTransaction'), 2);
        assert.deepEqual(await money(elsewhere), [70, 30]);
      }));

      test(`the result of a commit is unknown, ${when} lost, ${posture}`, () => proxied.withSession(async session => {
        session.startTransaction();
        await move(proxied, session, 30);
        await cut(when, 'commitTransaction', 2);
        const error = await session.commitTransaction().then(assert.fail, error => error);
        assert.ok(error instanceof MongoNetworkError, String(error.stack));
        assert.ok(error.hasErrorLabel(UNKNOWN) && !error.hasErrorLabel(TRANSIENT));
        await session.commitTransaction();
        assert.deepEqual(await money(elsewhere), [70, 30]);

        let runs = 0;
        const before = await cut(when, 'commitTransaction', 3);
        await session.withTransaction(async () => {
          runs += 1;
          await move(proxied, session, 30);
        });
        assert.deepEqual([await cuts() - before, runs], [3, 1]);
        assert.deepEqual(await money(elsewhere), [40, 60]);
      }));

      test(`an abort leaves nothing, ${when} lost, ${posture}`, () => proxied.withSession(async session => {
        session.startTransaction();
        await move(proxied, session, 30);
        const before = await cut(when, 'abortTransaction');
        await session.abortTransaction();
        assert.equal(await cuts() - before, 1);
        assert.equal(sent('abortTransaction'), 2);
        // It waits for no transaction that is still open.
        const [first] = accounts(elsewhere);
        assert.equal((await first.updateOne({ _id: 'ann' }, { $inc: { n: 1 } }, { maxTimeMS: 5000 })).modifiedCount, 1);
        assert.deepEqual(await money(elsewhere), [101, 0]);
      }));

      test(`a statement is lost, ${when} lost, ${posture}`, () => proxied.withSession(async session => {
        let runs = 0;
        await cut(when, 'update');
        await session.withTransaction(async () => {
          runs += 1;
          await move(proxied, session, 30);
        });
        assert.equal(runs, 2);
        assert.deepEqual(await money(elsewhere), [70, 30]);
      }));
    }
  });
}
