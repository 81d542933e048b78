// Transactions, causal and snapshot sessions as a person types them, on both servers. Loaded by session.js, whose functions it
// uses, as those of documents.js.
'use strict';

for (const [posture, address, proxy] of [
  ['router', process.env.MONGODB_URI, process.env.MONGODB_PROXY_URI],
  ['member', process.env.MONGODB_REPLICA_SET_URI, process.env.MONGODB_REPLICA_SET_PROXY_URI],
]) {
  const mongo = new Mongo(address);
  const elsewhere = new Mongo(address);
  const accounts = of => ['clients_mongosh_a', 'clients_mongosh_b'].map(name => of.getDB(name).getCollection('accounts'));
  const within = session =>
    ['clients_mongosh_a', 'clients_mongosh_b'].map(name => session.getDatabase(name).getCollection('accounts'));
  const money = ([first, second]) => [first.findOne({ _id: 'ann' }).n, second.findOne({ _id: 'bob' }).n];
  const move = ([first, second], amount) => {
    first.updateOne({ _id: 'ann' }, { $inc: { n: -amount } });
    second.updateOne({ _id: 'bob' }, { $inc: { n: amount } });
  };
  const anew = () => {
    for (const coll of accounts(mongo)) coll.drop();
    const [first, second] = accounts(mongo);
    first.insertOne({ _id: 'ann', n: 100 });
    second.insertOne({ _id: 'bob', n: 0 });
  };

  check(`${posture}: startTransaction, commitTransaction, abortTransaction`, () => {
    anew();
    const session = mongo.startSession();
    session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } });
    move(within(session), 30);
    same(money(within(session)), [70, 30]);
    same(money(accounts(elsewhere)), [100, 0]);
    session.commitTransaction();
    same(money(accounts(elsewhere)), [70, 30]);
    session.startTransaction();
    move(within(session), 30);
    session.abortTransaction();
    same(money(accounts(elsewhere)), [70, 30]);
    session.endSession();
  });

  check(`${posture}: withTransaction`, () => {
    anew();
    const session = mongo.startSession();
    session.withTransaction(() => move(within(session), 30));
    same(money(accounts(elsewhere)), [70, 30]);
    let error;
    try {
      session.withTransaction(() => {
        move(within(session), 30);
        throw new Error('not this time');
      });
    } catch (thrown) {
      error = thrown;
    }
    assert.equal(error?.message, 'not this time');
    same(money(accounts(elsewhere)), [70, 30]);
    session.endSession();
  });

  check(`${posture}: the loser of a conflict is run again`, () => {
    anew();
    const [winner, loser] = [mongo.startSession(), elsewhere.startSession()];
    const increment = session => within(session)[0].updateOne({ _id: 'ann' }, { $inc: { n: 1 } });
    winner.startTransaction();
    increment(winner);
    let runs = 0;
    loser.withTransaction(() => {
      runs += 1;
      // One person types for both: the winner commits when the loser has lost once.
      if (runs === 2) winner.commitTransaction();
      increment(loser);
    });
    assert.equal(runs, 2);
    assert.equal(accounts(mongo)[0].findOne({ _id: 'ann' }).n, 102);
    winner.endSession();
    loser.endSession();
  });

  check(`${posture}: a causal session`, () => {
    anew();
    const writing = elsewhere.startSession({ causalConsistency: true });
    const reading = mongo.startSession({ causalConsistency: true });
    for (let n = 0; n < 5; n++) {
      within(writing)[0].insertOne({ _id: n }, { writeConcern: { w: 1 } });
      same(within(writing)[0].findOne({ _id: n }), { _id: n });
      reading.advanceClusterTime(writing.getClusterTime());
      reading.advanceOperationTime(writing.getOperationTime());
      same(within(reading)[0].find({ _id: n }).readConcern('majority').toArray(), [{ _id: n }]);
    }
    writing.endSession();
    reading.endSession();
  });

  check(`${posture}: a snapshot session`, () => {
    anew();
    const session = mongo.startSession({ snapshot: true });
    same(money(within(session)), [100, 0]);
    move(accounts(elsewhere), 30);
    accounts(elsewhere)[0].insertOne({ _id: 1 });
    same(money(within(session)), [100, 0]);
    assert.equal(within(session)[0].countDocuments({}), 1);
    same(money(accounts(mongo)), [70, 30]);
    session.endSession();
  });

  check(`${posture}: a commit whose connection is cut`, () => {
    anew();
    const proxied = new Mongo(proxy);
    const cut = what => proxied.getDB('admin').runCommand({ cut: what }).cuts;
    const session = proxied.startSession();
    let amount = 0;
    for (const when of ['request', 'reply']) {
      session.startTransaction();
      move(within(session), 30);
      amount += 30;
      const before = cut(`${when} commitTransaction 1`);
      session.commitTransaction();
      assert.equal(cut('nothing') - before, 1);
      same(money(accounts(elsewhere)), [100 - amount, amount]);
    }
    session.endSession();
    proxied.close();
  });

  mongo.close();
  elsewhere.close();
}
