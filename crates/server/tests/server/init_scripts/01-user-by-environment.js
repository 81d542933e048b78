// A user for the application, with names and secrets from the environment.
db = db.getSiblingDB(process.env.APP_DATABASE || 'fallback');
db.createUser({
  user: process.env.APP_USER,
  pwd: process.env.APP_PASSWORD || 'secret',
  roles: [{ role: 'readWrite', db: process.env.APP_DATABASE }],
});
db.createCollection('sessions');
db.sessions.createIndex({ expiresAt: 1 }, { expireAfterSeconds: 0 });
