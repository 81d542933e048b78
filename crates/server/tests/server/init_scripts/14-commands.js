// Commands by name, of this database and of the administrator's.
assert(db.runCommand({ ping: 1 }).ok === 1 && db.runCommand('ping').ok === 1);
assert(db.adminCommand({ listDatabases: 1, nameOnly: true }).databases.length > 3);
assert(db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 30 }).was === 60);
db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 60 });
assert(/^8\./.test(db.version()));
assert(db.getMongo().getDBNames().includes('shop'));
assert(db.serverStatus().ok === 1 && db.stats().ok === 1);
