// A time series that expires, a capped collection, and the reference's options of expiry.
db = db.getSiblingDB('metrics');
db.createCollection('cpu', { timeseries: { timeField: 't', metaField: 'host', granularity: 'minutes' }, expireAfterSeconds: 86400 });
db.cpu.insertOne({ t: new Date(), host: 'a', v: 0.5 });
db.createCollection('events', { capped: true, size: 65536, max: 10 });
for (let i = 0; i < 20; i++) db.events.insertOne({ i });
assert(db.events.count() === 10 && db.events.isCapped());
