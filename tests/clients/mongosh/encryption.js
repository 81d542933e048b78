// Encrypted connections and logging in by a certificate, as a person does in mongosh. Loaded by session.js, whose functions it uses.
'use strict';

{
  const { MONGODB_TLS_URI: base, MONGODB_TLS_FILES: files, MONGODB_TLS_CLIENT_NAME: name } = process.env;
  const byCertificate = `${base}&authMechanism=MONGODB-X509`;

  // Not by assert.throws: the shell turns what waits for the server into promises, which Node's own functions do not await.
  const failure = (act) => {
    try {
      act();
    } catch (thrown) {
      return thrown;
    }
    return undefined;
  };
  const refused = (code, act) => {
    const error = failure(act);
    assert.equal(error?.code, code, error?.message ?? 'it was not refused');
  };

  check('tls: the first user', () => {
    const anonymous = new Mongo(base);
    anonymous.getDB('admin').createUser({ user: 'root', pwd: 'secret', roles: ['root'] });
    refused(13, () => anonymous.getDB('shop').orders.findOne());
    const root = new Mongo(`${base.replace('//', '//root:secret@')}&authMechanism=SCRAM-SHA-256`);
    root.getDB('shop').orders.insertOne({ _id: 1 });
    root.getDB('$external').createUser({ user: name, roles: [{ role: 'readWrite', db: 'shop' }] });
  });

  check('tls: a certificate logs its user in', () => {
    const ann = new Mongo(`${byCertificate}&tlsCertificateKeyFile=${files}/client.pem`);
    const status = ann.getDB('admin').runCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers;
    same(status, [{ user: name, db: '$external' }]);
    assert.equal(ann.getDB('shop').orders.findOne()._id, 1);
    refused(13, () => ann.getDB('other').orders.findOne());
    refused(18, () => new Mongo(byCertificate).getDB('shop').orders.findOne());
  });

  check('tls: plain connections and another authority fail', () => {
    for (const [uri, why] of [
      [`${base.split('?')[0]}?`, /closed|ECONNRESET/],
      [`${base.replace('authority.crt', 'stranger.crt')}&`, /certificate/],
    ]) {
      const options = 'serverSelectionTimeoutMS=1000';
      const error = failure(() => new Mongo(`${uri}${options}`).getDB('admin').runCommand({ ping: 1 }));
      assert.match(error?.message ?? 'it did not fail', why);
    }
  });
}
