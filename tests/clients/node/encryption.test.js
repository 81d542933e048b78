// Encrypted connections and logging in by a certificate; what is expected is listed in ../README.md.
'use strict';

const assert = require('node:assert/strict');
const { before, test } = require('node:test');
const { MongoClient, MongoServerError, MongoServerSelectionError } = require('mongodb');

const { MONGODB_TLS_URI: BASE, MONGODB_TLS_FILES: FILES, MONGODB_TLS_CLIENT_NAME: NAME } = process.env;
const BY_CERTIFICATE = `${BASE}&authMechanism=MONGODB-X509`;

/** Runs a function with a client of its own. */
async function connected(uri, act) {
  const client = new MongoClient(uri);
  try {
    return await act(client);
  } finally {
    await client.close();
  }
}

const find = (client, database = 'shop') => client.db(database).collection('orders').findOne();

const refused = (code, act) => assert.rejects(act, error => error instanceof MongoServerError && error.code === code);

before(async () => {
  await connected(BASE, async anonymous => {
    await anonymous.db('admin').command({ createUser: 'root', pwd: 'secret', roles: ['root'] });
    await refused(13, () => find(anonymous));
  });
  await connected(`${BASE.replace('//', '//root:secret@')}&authMechanism=SCRAM-SHA-256`, async root => {
    await root.db('shop').collection('orders').insertOne({ _id: 1, text: 'x'.repeat(100_000) });
    assert.equal((await find(root)).text.length, 100_000);
    await root.db('$external').command({ createUser: NAME, roles: [{ role: 'readWrite', db: 'shop' }] });
  });
});

test('a certificate logs its user in', () =>
  connected(`${BY_CERTIFICATE}&tlsCertificateKeyFile=${FILES}/client.pem`, async ann => {
    const { authInfo } = await ann.db('admin').command({ connectionStatus: 1 });
    assert.deepEqual(authInfo.authenticatedUsers, [{ user: NAME, db: '$external' }]);
    assert.equal((await find(ann))._id, 1);
    await refused(13, () => find(ann, 'other'));
  }));

test('without a certificate no user can log in', () =>
  connected(BY_CERTIFICATE, anonymous => refused(18, () => find(anonymous))));

for (const [name, uri, why] of [
  ['a plain connection', `${BASE.split('?')[0]}?`, /closed|ECONNRESET/],
  ['another authority', `${BASE.replace('authority.crt', 'stranger.crt')}&`, /certificate/],
]) {
  test(`${name} fails`, () =>
    connected(`${uri}serverSelectionTimeoutMS=1000`, client =>
      assert.rejects(client.db('admin').command({ ping: 1 }), error =>
        error instanceof MongoServerSelectionError && why.test(error.message))));
}
