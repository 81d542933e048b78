// An end before the last line.
db.getSiblingDB('end').c.insertOne({ _id: 1 });
quit();
db.getSiblingDB('end').c.insertOne({ _id: 2 });
