// Logging in by the Node driver, and what a server with --auth refuses; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { before, test } = require('node:test');
const { MongoClient, MongoServerError } = require('mongodb');

const BASE = process.env.MONGODB_AUTH_URI;
const NAME = 'r@ot:/%';
// SASLprep makes one password of both.
const PASSWORD = 'p@ss:/%\u2168';
const SAME_PASSWORD = 'p@ss:/%I\u00adX';

/** Runs a function with a client that has logged in. */
async function as(name, password, options, act) {
  const login = `${encodeURIComponent(name)}:${encodeURIComponent(password)}@`;
  const client = new MongoClient(BASE.replace('//', `//${login}`) + options);
  try {
    return await act(client);
  } finally {
    await client.close();
  }
}

const who = async client => (await client.db('admin').command({ connectionStatus: 1 })).authInfo.authenticatedUsers;

const refused = (code, codeName, act) =>
  assert.rejects(act, error => error instanceof MongoServerError && error.code === code && error.codeName === codeName);

before(async () => {
  const anonymous = new MongoClient(BASE);
  await anonymous.db('admin').command({ createUser: NAME, pwd: PASSWORD, roles: ['root'] });
  await refused(13, 'Unauthorized', () => anonymous.db('shop').collection('orders').findOne());
  await anonymous.close();
  await as(NAME, PASSWORD, '&authSource=admin', async root => {
    await root.db('shop').command({ createUser: 'reader', pwd: PASSWORD, roles: ['read'] });
    await root.db('shop').collection('orders').insertOne({ _id: 1 });
  });
});

for (const mechanism of ['SCRAM-SHA-1', 'SCRAM-SHA-256']) {
  const by = `&authMechanism=${mechanism}`;

  test(`users of two databases log in by ${mechanism}`, async () => {
    await as(NAME, PASSWORD, `&authSource=admin${by}`, async client => {
      assert.deepEqual(await who(client), [{ user: NAME, db: 'admin' }]);
      assert.equal(await client.db('shop').collection('orders').countDocuments(), 1);
    });
    await as('reader', PASSWORD, `&authSource=shop${by}`, async client => {
      assert.deepEqual(await who(client), [{ user: 'reader', db: 'shop' }]);
    });
  });

  test(`others are refused by ${mechanism}`, async () => {
    for (const [name, password, source] of [
      ['reader', 'wrong', 'shop'],
      ['reader', PASSWORD, 'admin'],
      ['nobody', PASSWORD, 'shop'],
    ]) {
      await as(name, password, `&authSource=${source}${by}`, client =>
        refused(18, 'AuthenticationFailed', () => client.db('shop').collection('orders').findOne()));
    }
  });
}

test('another spelling is the same password', () =>
  as('reader', SAME_PASSWORD, '&authSource=shop&authMechanism=SCRAM-SHA-256', async client => {
    assert.equal(await client.db('shop').collection('orders').countDocuments(), 1);
  }));

test('rights end where the roles do', () =>
  as('reader', PASSWORD, '&authSource=shop', async client => {
    await refused(13, 'Unauthorized', () => client.db('shop').collection('orders').insertOne({}));
    await refused(13, 'Unauthorized', () => client.db('other').collection('c').findOne());
    await refused(13, 'Unauthorized', () => client.db('admin').command({ serverStatus: 1 }));
  }));

test('a changed password is needed by new connections only', () =>
  as(NAME, PASSWORD, '&authSource=admin', async root => {
    await root.db('shop').command({ createUser: 'changing', pwd: 'before', roles: ['read'] });
    await as('changing', 'before', '&authSource=shop', async old => {
      const count = client => client.db('shop').collection('orders').countDocuments();
      assert.equal(await count(old), 1);
      await root.db('shop').command({ updateUser: 'changing', pwd: 'after' });
      assert.equal(await count(old), 1);
      await as('changing', 'before', '&authSource=shop', client =>
        refused(18, 'AuthenticationFailed', () => count(client)));
      assert.equal(await as('changing', 'after', '&authSource=shop', count), 1);
    });
  }));
