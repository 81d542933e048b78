// A set of one member, as compose files for transactions have it.
try {
  rs.status();
} catch (error) {
  print('no set yet: ' + error.codeName);
}
printjson(db.hello().isWritablePrimary);
