// What clients of the Node driver see while the primary of their replica set steps down; what is expected is listed in
// ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, beforeEach, describe, test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');
const { MongoClient } = require('mongodb');

const URI = process.env.MONGODB_REPLICA_SET_URI;
const MEMBERS = URI.split('/')[2].split(',');
const WAIT_MS = 12_000;

async function until(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  while (!await condition()) {
    assert.ok(Date.now() < deadline, `not in ${WAIT_MS} ms: ${what}`);
    await pause(20);
  }
}

describe('failover', () => {
  // The operator steps the primary down; the client is the one under test.
  let operator, client, db;

  const hello = () => operator.db('admin').command({ hello: 1 }).catch(() => ({}));

  /** Makes the other member the primary. A member alone is the primary again after a second. */
  async function stepDown() {
    const alone = { replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true };
    await operator.db('admin').command(MEMBERS.length > 1 ? { replSetStepDown: 60 } : alone);
  }

  /** Waits until every member is there, and gives the primary's name. */
  async function primary() {
    let found;
    await until('the set has a primary and all members', async () => {
      found = await hello();
      return found.isWritablePrimary && found.hosts.length === MEMBERS.length;
    });
    return found.me;
  }

  before(async () => {
    operator = await new MongoClient(URI).connect();
  });
  after(() => operator.close());
  beforeEach(async t => {
    client = await new MongoClient(URI).connect();
    await primary();
    db = client.db(`clients_node_failover_${t.name.replaceAll(' ', '_')}`);
    await db.dropDatabase();
  });
  afterEach(async () => {
    await client.close();
    // The proxy leads to the first member.
    if (await primary() !== MEMBERS[0]) {
      await stepDown();
      assert.equal(await primary(), MEMBERS[0]);
    }
  });

  test('writers', async () => {
    const counters = db.collection('counters');
    const items = db.collection('items');
    await counters.insertMany([0, 1, 2].map(_id => ({ _id, n: 0 })));
    const done = [0, 0, 0, 0];
    let ended = false;
    const write = async (writer, act) => {
      while (!ended) {
        await act();
        done[writer] += 1;
      }
    };
    const increment = _id => counters.updateOne({ _id }, { $inc: { n: 1 } });
    const writers = Promise.all([
      ...[0, 1, 2].map(writer => write(writer, () => increment(writer))),
      write(3, () => items.insertOne({ _id: done[3] })),
    ]);
    const goOn = async () => {
      const before = [...done];
      const waiting = until('every writer goes on', () => done.every((count, writer) => count >= before[writer] + 20));
      await Promise.race([waiting, writers]);
    };
    try {
      await goOn();
      await stepDown();
      await goOn();
    } finally {
      ended = true;
      await writers;
    }
    const counted = await counters.find().sort({ _id: 1 }).toArray();
    assert.deepEqual(counted.map(({ n }) => n), done.slice(0, 3));
    assert.equal(await items.countDocuments(), done[3]);
  });

  test('change stream', async () => {
    const items = db.collection('items');
    await db.createCollection('items');
    const stream = items.watch();
    try {
      // Opens it.
      assert.equal(await stream.tryNext(), null);
      const seen = [];
      const insert = async (from, to) => {
        for (let _id = from; _id < to; _id++) await items.insertOne({ _id });
      };
      const see = count => until(`${count} events`, async () => {
        const event = await stream.tryNext();
        if (event) seen.push(event.documentKey._id);
        return seen.length >= count;
      });
      await insert(0, 10);
      await see(5);
      await stepDown();
      await insert(10, 20);
      await see(20);
      assert.deepEqual(seen, Array.from({ length: 20 }, (_, id) => id));
    } finally {
      await stream.close();
    }
  });

  const skip = MEMBERS.length < 2 && 'the set has one member';
  test('reads on a secondary', { skip }, async () => {
    const items = db.collection('items');
    const readPreference = 'secondary';
    await client.withSession({ causalConsistency: true }, async session => {
      for (let _id = 0; _id < 20; _id++) {
        if (_id === 10) await stepDown();
        await items.insertOne({ _id }, { session });
        assert.deepEqual(await items.findOne({ _id }, { session, readPreference }), { _id });
      }
      assert.equal(await items.countDocuments({}, { session, readPreference }), 20);
    });
  });

  test('transaction', async () => {
    const accounts = db.collection('accounts');
    await accounts.insertMany([{ _id: 'ann', n: 100 }, { _id: 'bob', n: 0 }]);
    let runs = 0;
    await client.withSession(session => session.withTransaction(async () => {
      runs += 1;
      await accounts.updateOne({ _id: 'ann' }, { $inc: { n: -30 } }, { session });
      if (runs === 1) await stepDown();
      await accounts.updateOne({ _id: 'bob' }, { $inc: { n: 30 } }, { session });
    }));
    assert.ok(runs > 1);
    const found = await accounts.find().sort({ _id: 1 }).toArray();
    assert.deepEqual(found, [{ _id: 'ann', n: 70 }, { _id: 'bob', n: 30 }]);
  });
});
