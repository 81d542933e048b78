// Logging in as a person does in mongosh, and what a server with --auth refuses. Loaded by session.js, whose functions it uses.
'use strict';

{
  const base = process.env.MONGODB_AUTH_URI;
  const name = 'r@ot:/%';
  // SASLprep makes one password of both.
  const password = 'p@ss:/%\u2168';
  const samePassword = 'p@ss:/%I\u00adX';

  const as = (user, pwd, options) => {
    const login = `${encodeURIComponent(user)}:${encodeURIComponent(pwd)}@`;
    return new Mongo(base.replace('//', `//${login}`) + options);
  };

  const refused = (code, act) => {
    let error;
    try {
      act();
    } catch (thrown) {
      error = thrown;
    }
    assert.equal(error?.code, code, error?.message ?? 'it was not refused');
  };

  check('auth: the first user', () => {
    const anonymous = new Mongo(base);
    anonymous.getDB('admin').createUser({ user: name, pwd: password, roles: ['root'] });
    refused(13, () => anonymous.getDB('shop').orders.findOne());
    const root = as(name, password, '&authSource=admin');
    root.getDB('shop').createUser({ user: 'reader', pwd: password, roles: ['read'] });
    root.getDB('shop').orders.insertOne({ _id: 1 });
    assert.equal(root.getDB('shop').getUser('reader').roles[0].role, 'read');
  });

  for (const mechanism of ['SCRAM-SHA-1', 'SCRAM-SHA-256']) {
    check(`auth: logins by ${mechanism}`, () => {
      const by = `&authMechanism=${mechanism}`;
      const status = of => of.getDB('admin').runCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers;
      same(status(as(name, password, `&authSource=admin${by}`)), [{ user: name, db: 'admin' }]);
      same(status(as('reader', password, `&authSource=shop${by}`)), [{ user: 'reader', db: 'shop' }]);
      refused(18, () => as('reader', 'wrong', `&authSource=shop${by}`).getDB('shop').orders.findOne());
      refused(18, () => as('reader', password, `&authSource=admin${by}`).getDB('shop').orders.findOne());
      refused(18, () => as('nobody', password, `&authSource=shop${by}`).getDB('shop').orders.findOne());
    });
  }

  check('auth: db.auth and another spelling of the password', () => {
    const shop = new Mongo(base).getDB('shop');
    assert.equal(shop.auth('reader', samePassword).ok, 1);
    assert.equal(shop.orders.countDocuments(), 1);
    refused(13, () => shop.orders.insertOne({}));
  });

  check('auth: a changed password', () => {
    const root = as(name, password, '&authSource=admin').getDB('shop');
    root.createUser({ user: 'changing', pwd: 'before', roles: ['read'] });
    const old = as('changing', 'before', '&authSource=shop').getDB('shop');
    assert.equal(old.orders.countDocuments(), 1);
    root.changeUserPassword('changing', 'after');
    assert.equal(old.orders.countDocuments(), 1);
    refused(18, () => as('changing', 'before', '&authSource=shop').getDB('shop').orders.findOne());
    assert.equal(as('changing', 'after', '&authSource=shop').getDB('shop').orders.countDocuments(), 1);
  });
}
