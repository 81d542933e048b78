// What the other parts of the shell use: commands and their errors, types of BSON, output.
export default (function (shell) {
  'use strict';
  const { native, prelude, writeLine } = shell;
  const { classify, define } = prelude;
  // The reply to a command, also one with `ok: 0`.
  const execute = (database, command) => native(prelude, database, command);

  class MongoServerError extends Error {
    constructor(reply) {
      super(reply.errmsg ?? 'the server answers with an error');
      Object.assign(this, { code: reply.code, codeName: reply.codeName, errmsg: reply.errmsg, errorResponse: reply });
    }
  }
  class MongoBulkWriteError extends MongoServerError {
    constructor(errors, result, concern) {
      super(errors[0] ?? concern);
      Object.assign(this, { writeErrors: errors, writeConcernErrors: concern ? [concern] : [], result });
    }
  }
  class MongoInvalidArgumentError extends Error {}
  class MongoshInvalidInputError extends Error {}
  for (const type of [MongoServerError, MongoBulkWriteError, MongoInvalidArgumentError, MongoshInvalidInputError]) {
    Object.defineProperty(type.prototype, 'name', { value: type.name, configurable: true, writable: true });
    Object.defineProperty(globalThis, type.name, { value: type, configurable: true, writable: true });
  }
  // The end of the program by quit(); only `statusOf` looks at it.
  class Quit extends Error {
    constructor(status) { super('quit'); this.status = status; }
  }

  const isObject = (value) => typeof value === 'object' && value !== null;
  const isPlain = (value) => isObject(value) && !Array.isArray(value) && classify(value) === undefined;
  const invalid = (text) => new MongoshInvalidInputError(text);
  const needObject = (value, what) => {
    if (!isPlain(value)) throw invalid(`${what} must be a document`);
    return value;
  };
  // The reply to a command; throws unless it succeeded.
  const run = (database, command) => {
    const reply = execute(database, command);
    if (Number(reply.ok) !== 1) throw new MongoServerError(reply);
    return reply;
  };
  // The error for a member that the reference's shell has.
  const missing = (name) => {
    throw invalid(`${name} is not part of the built-in shell; install mongosh to run this program`);
  };
  // The options of these names, those that are undefined omitted.
  const pick = (options, names) => {
    const picked = {};
    for (const name of names) if (options?.[name] !== undefined) picked[name] = options[name];
    return picked;
  };

  // Types, under the names of mongosh and of its predecessor.
  const add = (type, members) => {
    for (const name of Object.keys(members)) {
      Object.defineProperty(type.prototype, name, { value: members[name], writable: true, configurable: true });
    }
  };
  const double = define('Double', (value = 0) => double(1, Number(value)), {
    toString() { return String(Number(this)); },
    valueOf() { return classify(this)[1]; },
    toJSON() { return classify(this)[1]; },
  });
  add(ObjectId, {
    toString() { return this.str; },
    toHexString() { return this.str; },
  });
  ObjectId.isValid = (value) => value instanceof ObjectId || /^[0-9a-fA-F]{24}$/.test(String(value));
  ObjectId.createFromHexString = (text) => ObjectId(text);
  add(NumberLong, { toString() { return classify(this)[1]; } });
  add(NumberInt, { toString() { return String(classify(this)[1]); } });
  add(NumberDecimal, { toString() { return classify(this)[1]; } });
  NumberLong.fromNumber = (value) => NumberLong(value);
  NumberLong.fromString = (value) => NumberLong(String(value));
  NumberDecimal.fromString = (value) => NumberDecimal(String(value));
  const uuidOf = (hex) => [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  add(BinData, {
    toUUID() { return this; },
    toHexString() { return this.subtype() === 4 ? uuidOf(this.hex()) : this.hex(); },
    toString(encoding) {
      if (encoding === undefined && this.subtype() === 4) return uuidOf(this.hex());
      return encoding === 'hex' ? this.hex() : this.base64();
    },
  });
  const SeparateTimestamp = Timestamp;
  const timestamp = function Timestamp(first, second) {
    return isPlain(first) ? SeparateTimestamp(first.t, first.i) : SeparateTimestamp(first, second);
  };
  timestamp.prototype = SeparateTimestamp.prototype;
  const named = { Long: NumberLong, Int32: NumberInt, Decimal128: NumberDecimal, ObjectID: ObjectId, Timestamp: timestamp };
  for (const name of Object.keys(named)) {
    Object.defineProperty(globalThis, name, { value: named[name], writable: true, configurable: true });
  }

  // Values as a person reads them.
  const quoted = (text) => "'" + JSON.stringify(text).slice(1, -1).replace(/\\"/g, '"').replace(/'/g, "\\'") + "'";
  const bare = (name) => /^[A-Za-z_$][\w$]*$/.test(name) ? name : quoted(name);
  const showTyped = (value, [type, first, second]) => {
    switch (type) {
      case 5: return second === 4 ? `UUID('${value.toString()}')` : `BinData(${second}, '${value.base64()}')`;
      case 7: return `ObjectId('${first}')`;
      case 9: return isNaN(first) ? 'Invalid Date' : `ISODate('${value.toISOString()}')`;
      case 11: return `/${first}/${second}`;
      case 13: return typeof value === 'function' ? String(value) : `Code('${first}')`;
      case 17: return `Timestamp({ t: ${first}, i: ${second} })`;
      case 18: return `Long('${first}')`;
      case 19: return `Decimal128('${first}')`;
      case 127: return 'MaxKey()';
      case 255: return 'MinKey()';
      default: return String(first);
    }
  };
  const show = (value, indent = '') => {
    if (typeof value === 'string') return quoted(value);
    if (typeof value !== 'object' && typeof value !== 'function' || value === null) return String(value);
    if (typeof value.inspectForShell === 'function') return value.inspectForShell();
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    const kind = classify(value);
    if (kind) return kind[0] === 'value' ? show(kind[1], indent) : showTyped(value, kind);
    if (indent.length > 200) throw new RangeError('nested too deeply to be printed');
    const inner = indent + '  ';
    const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
    const items = Array.isArray(value) ? value.map((item) => show(item, inner))
      : Object.keys(value).map((name) => `${bare(name)}: ${show(value[name], inner)}`);
    if (items.length === 0) return open + close;
    const line = `${open} ${items.join(', ')} ${close}`;
    if (line.length + indent.length <= 76 && !line.includes('\n')) return line;
    return `${open}\n${inner}${items.join(',\n' + inner)}\n${indent}${close}`;
  };
  const print = (...values) => {
    writeLine(values.map((value) => typeof value === 'string' ? value : show(value)).join(' '));
  };

  Object.assign(shell, {
    MongoServerError, MongoBulkWriteError, MongoInvalidArgumentError, Quit, execute, run, missing, invalid, needObject, isPlain, isObject, pick,
    show, print,
    statusOf: (thrown) => thrown instanceof Quit ? thrown.status : undefined,
  });
});
