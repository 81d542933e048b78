// Databases, connections, and sets.
export default (function (shell) {
  'use strict';
  const { run, invalid, missing, needObject, pick, isObject, Collection, AggregationCursor, Proxy } = shell;
  delete shell.Proxy;
  shell.Proxied = Proxy;

  // A collection whose further names are collections, too: db.shop.orders. Calling it throws an
  // error that names the member.
  const reach = (target, path, name) => new Proxy(Object.assign(() => {}, { target }), {
    get(_, member) {
      if (typeof member === 'symbol') {
        return member === Symbol.toPrimitive ? () => target.toString() : undefined;
      }
      const own = target[member];
      if (own !== undefined || member === 'then') return typeof own === 'function' ? own.bind(target) : own;
      return path(member);
    },
    set(_, member, value) {
      target[member] = value;
      return true;
    },
    has: (_, member) => member in target,
    getPrototypeOf: () => Object.getPrototypeOf(target),
    apply: () => missing(`${name}()`),
  });
  const collectionOf = (database, name) => {
    const path = (member) => collectionOf(database, `${name}.${member}`);
    return reach(new Collection(database, name), path, `db.${name}`);
  };
  const databaseOf = (mongo, name) => {
    const target = new Database(mongo, name);
    const database = reach(target, (member) => collectionOf(database, member), 'db');
    target.self = database;
    return database;
  };

  class Database {
    #mongo; #name;
    constructor(mongo, name) {
      if (typeof name !== 'string' || !/^[^\s/\\."$\0]+$/.test(name)) throw invalid(`Invalid database name: ${name}`);
      this.#mongo = mongo;
      this.#name = name;
    }
    getName() { return this.#name; }
    getMongo() { return this.#mongo; }
    getSiblingDB(name) { return this.#mongo.getDB(name); }
    getSisterDB(name) { return this.getSiblingDB(name); }
    getCollection(name) { return collectionOf(this.self, name); }
    toString() { return this.#name; }
    inspectForShell() { return this.#name; }

    runCommand(command, options) {
      return run(this.#name, typeof command === 'string' ? { [command]: 1, ...options } : needObject(command, 'the command'));
    }
    adminCommand(command, options) { return this.getSiblingDB('admin').runCommand(command, options); }
    aggregate(pipeline, options) {
      const { batchSize, ...others } = options ?? {};
      const cursor = batchSize === undefined ? {} : { batchSize };
      return new AggregationCursor(this.#name, '$cmd.aggregate', { aggregate: 1, pipeline, ...others, cursor });
    }
    getCollectionInfos(filter = {}, options) {
      const command = { listCollections: 1, filter, ...options };
      return new AggregationCursor(this.#name, '$cmd.listCollections', command).toArray();
    }
    getCollectionNames() {
      return this.getCollectionInfos({}, { nameOnly: true }).map(({ name }) => name);
    }
    createCollection(name, options) { return this.runCommand({ create: name, ...options }); }
    createView(name, source, pipeline = [], options) {
      const stages = Array.isArray(pipeline) ? pipeline : [pipeline];
      return this.runCommand({ create: name, viewOn: source, pipeline: stages, ...options });
    }
    dropDatabase(writeConcern) { return this.runCommand({ dropDatabase: 1, writeConcern }); }

    auth(user, password) {
      const given = isObject(user) ? user : { user, pwd: password };
      const failed = shell.logIn(this.#name, String(given.user), String(given.pwd));
      if (failed) throw new shell.MongoServerError({ code: 18, codeName: 'AuthenticationFailed', errmsg: failed });
      return { ok: 1 };
    }
    logout() { return missing('db.logout()'); }
    createUser({ user, ...options }, writeConcern) { return this.runCommand({ createUser: user, ...options, writeConcern }); }
    addUser(user) { return this.createUser(user); }
    updateUser(user, options, writeConcern) { return this.runCommand({ updateUser: user, ...options, writeConcern }); }
    changeUserPassword(user, password) { return this.runCommand({ updateUser: user, pwd: password }); }
    dropUser(user) {
      const reply = shell.execute(this.#name, { dropUser: user });
      if (Number(reply.ok) === 1) return true;
      if (reply.code === 11) return false;
      throw new shell.MongoServerError(reply);
    }
    removeUser(user) { return this.dropUser(user); }
    dropAllUsers() { return this.runCommand({ dropAllUsersFromDatabase: 1 }); }
    grantRolesToUser(user, roles) { return this.runCommand({ grantRolesToUser: user, roles }); }
    revokeRolesFromUser(user, roles) { return this.runCommand({ revokeRolesFromUser: user, roles }); }
    getUser(user, options) { return this.runCommand({ usersInfo: { user, db: this.#name }, ...options }).users[0] ?? null; }
    getUsers(options) { return this.runCommand({ usersInfo: 1, ...options }); }
    createRole({ role, ...options }, writeConcern) { return this.runCommand({ createRole: role, ...options, writeConcern }); }
    updateRole(role, options, writeConcern) { return this.runCommand({ updateRole: role, ...options, writeConcern }); }
    dropRole(role) {
      const reply = shell.execute(this.#name, { dropRole: role });
      if (Number(reply.ok) === 1) return true;
      if (reply.code === 31) return false;
      throw new shell.MongoServerError(reply);
    }
    dropAllRoles() { return this.runCommand({ dropAllRolesFromDatabase: 1 }).n; }
    grantPrivilegesToRole(role, privileges) { return this.runCommand({ grantPrivilegesToRole: role, privileges }); }
    revokePrivilegesFromRole(role, privileges) { return this.runCommand({ revokePrivilegesFromRole: role, privileges }); }
    grantRolesToRole(role, roles) { return this.runCommand({ grantRolesToRole: role, roles }); }
    revokeRolesFromRole(role, roles) { return this.runCommand({ revokeRolesFromRole: role, roles }); }
    getRole(role, options) { return this.runCommand({ rolesInfo: { role, db: this.#name }, ...options }).roles[0] ?? null; }
    getRoles(options) { return this.runCommand({ rolesInfo: 1, ...options }); }

    hello() { return this.runCommand('hello'); }
    isMaster() { return this.runCommand('isMaster'); }
    ping() { return this.runCommand('ping'); }
    stats(options) {
      return this.runCommand({ dbStats: 1, ...(typeof options === 'number' ? { scale: options } : options) });
    }
    serverStatus(options) { return this.adminCommand({ serverStatus: 1, ...options }); }
    serverBuildInfo() { return this.adminCommand('buildInfo'); }
    serverCmdLineOpts() { return this.adminCommand('getCmdLineOpts'); }
    hostInfo() { return this.adminCommand('hostInfo'); }
    version() { return this.serverBuildInfo().version; }
    listCommands() { return this.runCommand('listCommands'); }
    currentOp(options) { return this.adminCommand({ currentOp: 1, ...(isObject(options) ? options : { $all: Boolean(options) }) }); }
    killOp(op) { return this.adminCommand({ killOp: 1, op }); }
    setProfilingLevel(level, options) {
      return this.runCommand({ profile: level, ...(typeof options === 'number' ? { slowms: options } : options) });
    }
    getProfilingStatus() { return this.runCommand({ profile: -1 }); }
    setLogLevel(level, component = 'default') {
      const nested = component === 'default' ? { verbosity: level }
        : component.split('.').reduceRight((inner, name) => ({ [name]: inner }), { verbosity: level });
      return this.adminCommand({ setParameter: 1, logComponentVerbosity: nested });
    }
    fsyncLock() { return this.adminCommand({ fsync: 1, lock: true }); }
    fsyncUnlock() { return this.adminCommand('fsyncUnlock'); }
    shutdownServer(options) { return this.adminCommand({ shutdown: 1, ...options }); }
    watch() { return missing('db.watch()'); }
  }

  // A connection: always the one of the program.
  class Mongo {
    #databases = {};
    constructor(uri = 'localhost') { shell.checkServer(uri); }
    getDB(name) { return this.#databases[name] ??= databaseOf(this, name); }
    getDBs(options) { return run('admin', { listDatabases: 1, ...options }); }
    getDBNames() { return this.getDBs({ nameOnly: true }).databases.map(({ name }) => name); }
    adminCommand(command) { return this.getDB('admin').runCommand(command); }
    getCollection(namespace) {
      const [database, ...rest] = namespace.split('.');
      return this.getDB(database).getCollection(rest.join('.'));
    }
    setReadPref() {}
    setSecondaryOk() {}
    setSlaveOk() {}
    close() {}
    startSession() { return missing('startSession()'); }
    toString() { return 'mongodb://localhost'; }
    inspectForShell() { return this.toString(); }
  }

  // Whether the address in a connection string is the server of the program; the database in it.
  shell.checkServer = (uri) => {
    const parts = /^(?:mongodb:\/\/)?(?:[^@/]*@)?(\[[^\]]*\]|[^:/?,]+)(?::(\d+))?(?:\/([^?]*))?(?:\?.*)?$/.exec(String(uri));
    if (!parts || !shell.isServer(parts[1], Number(parts[2] ?? 27017))) {
      throw invalid('the built-in shell connects to its own server only; install mongosh to run this program');
    }
    return parts[3] || 'test';
  };

  const admin = (command) => run('admin', command);
  const local = { initiate: 'replSetInitiate', reconfig: 'replSetReconfig' };
  const rs = {
    initiate: (config = {}) => admin({ [local.initiate]: config }),
    reconfig: (config, options) => admin({ [local.reconfig]: config, ...pick(options, ['force']) }),
    status: () => admin({ replSetGetStatus: 1 }),
    conf: () => admin({ replSetGetConfig: 1 }).config,
    config: () => rs.conf(),
    hello: () => admin({ hello: 1 }),
    isMaster: () => admin({ isMaster: 1 }),
    stepDown: (seconds = 60) => admin({ replSetStepDown: seconds }),
    secondaryOk() {},
    slaveOk() {},
    inspectForShell: () => 'rs',
  };
  // A group of functions of which only some are built in.
  const group = (name, members) => new Proxy(members, {
    get: (target, member) => member in target || typeof member === 'symbol' ? target[member]
      : () => missing(`${name}.${member}()`),
  });
  Object.assign(shell, { Mongo, rs: group('rs', rs), sh: group('sh', { inspectForShell: () => 'sh' }) });
});
