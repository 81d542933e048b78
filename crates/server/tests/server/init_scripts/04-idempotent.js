// A script that may run again: it asks before it creates.
const shop = db.getSiblingDB('shop');
const existing = shop.getCollectionNames();
for (const name of ['products', 'orders', 'carts']) {
  if (!existing.includes(name)) shop.createCollection(name);
}
if (shop.getUser('clerk') === null) {
  shop.createUser({ user: 'clerk', pwd: 'clerk', roles: [{ role: 'read', db: 'shop' }] });
}
try {
  shop.createUser({ user: 'clerk', pwd: 'other', roles: [] });
  throw new Error('the second user is refused');
} catch (error) {
  if (error.code !== 51003) throw error;
  print(`user exists: ${error.codeName}, ${error.message}`);
}
