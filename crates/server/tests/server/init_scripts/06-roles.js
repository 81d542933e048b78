// A role of one's own.
db = db.getSiblingDB('admin');
db.createRole({
  role: 'auditor',
  privileges: [{ resource: { db: 'shop', collection: '' }, actions: ['find', 'listCollections'] }],
  roles: [],
});
db.createUser({ user: 'auditor', pwd: 'x', roles: ['auditor'], mechanisms: ['SCRAM-SHA-256'], customData: { by: 'script' } });
db.grantRolesToUser('auditor', [{ role: 'read', db: 'hr' }]);
if (db.getUser('auditor').roles.length !== 2) throw new Error('two roles');
