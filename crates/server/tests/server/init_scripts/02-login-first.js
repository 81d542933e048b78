// The administrator logs in before it creates the user.
db.getSiblingDB('admin').auth(process.env.MONGO_INITDB_ROOT_USERNAME, process.env.MONGO_INITDB_ROOT_PASSWORD);
db = db.getSiblingDB('blog');
db.createUser({ user: 'blog', pwd: 'blog', roles: ['readWrite', { role: 'dbAdmin', db: 'blog' }] });
db.posts.insertMany([
  { title: 'First', tags: ['a', 'b'], published: new Date('2026-01-01T00:00:00Z'), views: NumberLong(5) },
  { title: 'Second', tags: [], published: ISODate('2026-02-01T00:00:00Z'), rating: NumberDecimal('4.50') },
]);
