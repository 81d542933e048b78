// Another file, and a secret in a file.
load(__dirname + '/data/helper.txt');
const fs = require('fs');
const secret = fs.readFileSync(process.env.SECRET_FILE, 'utf8').trim();
db = db.getSiblingDB('files');
db.createUser({ user: 'files', pwd: secret, roles: [] });
db.c.insertOne({ from: helper(), length: fs.readFileSync(process.env.SECRET_FILE).toString().length });
