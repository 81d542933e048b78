// A primary that steps down, as a person makes it do. Loaded by session.js, whose functions it uses.
'use strict';

{
  const before = db;
  const address = process.env.MONGODB_REPLICA_SET_URI;
  const members = address.split('/')[2].split(',');
  const set = new Mongo(address);
  const named = name => set.getDB(`clients_mongosh_failover_${name}`);

  /** Waits for a primary and all members, as a person looks until they are there; gives the primary's name. */
  const primary = () => {
    let found;
    until('the set has a primary and all members', () => {
      try {
        found = set.getDB('admin').hello();
      } catch (error) {
        return false;
      }
      return found.isWritablePrimary && found.hosts.length === members.length;
    }, 12);
    return found.me;
  };

  /** Makes the other member the primary. One alone steps down by force, and is the primary again after a second. */
  const stepDown = () => {
    db = set.getDB('admin');
    try {
      if (members.length > 1) {
        assert.equal(rs.stepDown().ok, 1);
      } else {
        assert.equal(db.adminCommand({ replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true }).ok, 1);
      }
    } finally {
      db = before;
    }
  };

  /** Steps down, and waits until a member is the primary: with two, it is the other one. */
  const handOver = () => {
    const former = primary();
    stepDown();
    assert.equal(primary() === former, members.length < 2);
  };

  /** With a whole set and an empty database. In the end the first member is the primary: the proxy leads to it. */
  const checkSet = (name, act) => check(`failover: ${name}`, () => {
    primary();
    const database = named(name.replaceAll(' ', '_'));
    database.dropDatabase();
    try {
      act(database);
    } finally {
      if (primary() !== members[0]) handOver();
    }
  });

  checkSet('writes', database => {
    database.counters.insertOne({ _id: 1, n: 0 });
    for (let n = 0; n < 40; n++) {
      if (n === 20) handOver();
      database.counters.updateOne({ _id: 1 }, { $inc: { n: 1 } });
      database.items.insertOne({ _id: n });
    }
    same(database.counters.findOne(), { _id: 1, n: 40 });
    assert.equal(database.items.countDocuments(), 40);
  });

  checkSet('change stream', database => {
    database.createCollection('items');
    const stream = database.items.watch();
    const seen = [];
    const see = count => until(`${count} events`, () => {
      const event = stream.tryNext();
      if (event) seen.push(event.documentKey._id);
      return seen.length >= count;
    }, 12);
    // Opens it.
    assert.equal(stream.tryNext(), null);
    for (let _id = 0; _id < 10; _id++) database.items.insertOne({ _id });
    see(5);
    handOver();
    for (let _id = 10; _id < 20; _id++) database.items.insertOne({ _id });
    see(20);
    same(seen, Array.from({ length: 20 }, (_, id) => id));
    stream.close();
  });

  if (members.length > 1) {
    checkSet('reads on a secondary', database => {
      const session = set.startSession({ causalConsistency: true });
      const { items } = session.getDatabase(database.getName());
      for (let _id = 0; _id < 10; _id++) {
        if (_id === 5) handOver();
        items.insertOne({ _id });
        same(items.find({ _id }).readPref('secondary').toArray(), [{ _id }]);
      }
      session.endSession();
    });
  }

  checkSet('transaction', database => {
    database.accounts.insertMany([{ _id: 'ann', n: 100 }, { _id: 'bob', n: 0 }]);
    const session = set.startSession();
    const { accounts } = session.getDatabase(database.getName());
    let runs = 0;
    session.withTransaction(() => {
      runs += 1;
      accounts.updateOne({ _id: 'ann' }, { $inc: { n: -30 } });
      if (runs === 1) handOver();
      accounts.updateOne({ _id: 'bob' }, { $inc: { n: 30 } });
    });
    session.endSession();
    assert.ok(runs > 1);
    same(database.accounts.find().sort({ _id: 1 }).toArray(), [{ _id: 'ann', n: 70 }, { _id: 'bob', n: 30 }]);
  });

  set.close();
}
