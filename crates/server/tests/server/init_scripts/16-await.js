// Statements that wait, although nothing here has to.
(async () => {
  const names = await db.getSiblingDB('shop').getCollectionNames();
  await db.getSiblingDB('waits').c.insertOne({ names });
})();
