'use strict';
// A strict program with a function that is called at once.
(function () {
  const target = connect('mongodb://localhost:27017/strict');
  const seed = [{ key: 'theme', value: 'dark' }, { key: 'limit', value: 10 }];
  seed.forEach((setting) => target.settings.updateOne({ key: setting.key }, { $setOnInsert: setting }, { upsert: true }));
  if (target.settings.countDocuments({}) !== seed.length) quit(1);
})();
