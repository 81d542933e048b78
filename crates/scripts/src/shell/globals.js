// The globals of a program.
export default (function (shell) {
  'use strict';
  const { invalid, missing, print, show, Mongo, Quit } = shell;

  const mongo = new Mongo();
  const global = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const globals = {
    db: mongo.getDB(shell.database),
    Mongo,
    rs: shell.rs,
    sh: shell.sh,
    connect(uri = 'localhost') { return mongo.getDB(shell.checkServer(uri)); },
    use(name) {
      globalThis.db = mongo.getDB(name);
      return `switched to db ${name}`;
    },
    show(what) {
      if (what === 'dbs' || what === 'databases') return mongo.getDBNames();
      if (what === 'collections' || what === 'tables') return globalThis.db.getCollectionNames();
      if (what === 'users') return globalThis.db.getUsers().users;
      if (what === 'roles') return globalThis.db.getRoles({ showBuiltinRoles: true }).roles;
      return missing(`show('${what}')`);
    },
    print,
    printjson: (...values) => print(...values),
    printjsononeline: (value) => print(tojsononeline(value)),
    tojson: (value) => show(value),
    load: (path) => shell.load(String(path)),
    cat: (path) => shell.read(String(path)),
    quit(status = 0) { throw new Quit(Number(status) || 0); },
    exit(status = 0) { throw new Quit(Number(status) || 0); },
    passwordPrompt: () => missing('passwordPrompt()'),
    disableTelemetry() {},
    enableTelemetry() {},
    version: () => '2.5.0',
    __dirname: shell.folder,
    __filename: shell.file,
    _getEnv: (name) => shell.variable(String(name)) ?? '',
    console: { log: print, info: print, warn: print, error: print, debug: print },
  };
  for (const name of Object.keys(globals)) global(name, globals[name]);

  const unknown = (what) => (target, member) => {
    if (member in target || typeof member === 'symbol') return target[member];
    return missing(`${what}.${String(member)}`);
  };
  const env = new shell.Proxied({}, {
    get: (_, name) => typeof name === 'symbol' ? undefined : shell.variable(name),
    has: (_, name) => typeof name === 'string' && shell.variable(name) !== undefined,
  });
  const process = { env, argv: ['mongosh'], platform: 'linux', exit: globals.quit };
  global('process', new shell.Proxied(process, { get: unknown('process') }));
  const fs = {
    readFileSync(path, options) {
      const encoding = typeof options === 'string' ? options : options?.encoding;
      const text = shell.read(String(path));
      if (encoding === undefined) return { toString: () => text, trim: () => text.trim(), length: text.length };
      return text;
    },
    existsSync(path) {
      try {
        shell.read(String(path));
        return true;
      } catch (_) {
        return false;
      }
    },
  };
  const modules = { fs: new shell.Proxied(fs, { get: unknown("require('fs')") }) };
  modules['node:fs'] = modules.fs;
  global('require', (name) => {
    if (Object.hasOwn(modules, name)) return modules[name];
    throw invalid(`require('${name}') is not part of the built-in shell; install mongosh to run this program`);
  });
  global('EJSON', {
    stringify: (value, ...others) => JSON.stringify(value, ...others.filter((it) => Array.isArray(it) || typeof it !== 'object')),
    parse: () => missing('EJSON.parse()'),
  });
  delete shell.Proxied;
});
