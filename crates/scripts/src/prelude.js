// Extensions of the language for scripts: the BSON types that JavaScript lacks, under the names in
// the manual's list for server-side scripts. The module exports a function that takes the
// interruption check, a wait and a digest, and returns the functions that the server calls. Scripts
// cannot reach any of them, and a script that modifies built-in objects affects only its own
// sandbox.
export default (function (mustEnd, pause, md5) {
  'use strict';
  const { defineProperty, getPrototypeOf, keys } = Object;
  const { apply } = Reflect;
  const plain = Object.prototype;
  const dateTime = Date.prototype.getTime;
  const functionText = Function.prototype.toString;
  const wellFormedText = String.prototype.toWellFormed;
  const flagsOf = Object.getOwnPropertyDescriptor(RegExp.prototype, 'flags').get;
  const sourceOf = Object.getOwnPropertyDescriptor(RegExp.prototype, 'source').get;
  const numberOf = Number.prototype.valueOf;
  const textOf = String.prototype.valueOf;
  const sliceText = String.prototype.slice;
  const replaceText = String.prototype.replace;
  const flagOf = Boolean.prototype.valueOf;
  // The key of the list of fields that were 32-bit integers, on objects made from documents.
  const integers = Symbol('integers');

  // BSON type bytes.
  const T = { binary: 5, objectId: 7, date: 9, regex: 11, pointer: 12, code: 13, int: 16, timestamp: 17, long: 18,
    decimal: 19, max: 127, min: 255 };

  class Typed {
    #kind;
    constructor(type, first, second) { this.#kind = [type, first, second]; }
    static kind(value) {
      return typeof value === 'object' && value !== null && #kind in value ? value.#kind : undefined;
    }
  }

  const hexOf = (bytes) => bytes.map((byte) => (byte + 256).toString(16).slice(1)).join('');
  const bytesOf = (hex) => {
    const bytes = [];
    for (let at = 0; at < hex.length; at += 2) bytes.push(parseInt(hex.slice(at, at + 2), 16));
    return bytes;
  };
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const toBase64 = (hex) => {
    const bytes = bytesOf(hex);
    let text = '';
    for (let at = 0; at < bytes.length; at += 3) {
      const three = (bytes[at] << 16) | ((bytes[at + 1] || 0) << 8) | (bytes[at + 2] || 0);
      text += letters[three >> 18] + letters[(three >> 12) & 63];
      text += at + 1 < bytes.length ? letters[(three >> 6) & 63] : '=';
      text += at + 2 < bytes.length ? letters[three & 63] : '=';
    }
    return text;
  };
  const fromBase64 = (text) => {
    const bytes = [];
    let bits = 0, have = 0;
    for (const letter of String(text).replace(/=+$/, '')) {
      const value = letters.indexOf(letter);
      if (value < 0) throw new Error('BinData could not decode base64 parameter');
      bits = ((bits << 6) | value) & 0xffffff;
      have += 6;
      if (have >= 8) { have -= 8; bytes.push((bits >> have) & 255); }
    }
    return hexOf(bytes);
  };
  const isHex = (text, length) => typeof text === 'string' && /^[0-9a-fA-F]*$/.test(text)
    && (length === undefined ? text.length % 2 === 0 : text.length === length);

  // A constructor that works with and without `new`.
  const define = (name, make, methods, getters) => {
    const constructor = { [name]: function (...args) { return make(...args); } }[name];
    const prototype = constructor.prototype;
    for (const method of keys(methods)) {
      defineProperty(prototype, method, { value: methods[method], writable: true, configurable: true });
    }
    for (const getter of keys(getters || {})) {
      defineProperty(prototype, getter, { get: getters[getter], configurable: true });
    }
    defineProperty(globalThis, name, { value: constructor, writable: true, configurable: true });
    return (type, first, second) => {
      const value = new Typed(type, first, second);
      Object.setPrototypeOf(value, prototype);
      return value;
    };
  };
  const part = (value, at) => Typed.kind(value)[at];

  // The counter of new ids, and the random bytes that distinguish them from those of other
  // sandboxes.
  let count = Math.floor(Math.random() * 0x1000000);
  const process = hexOf(Array.from({ length: 5 }, () => Math.floor(Math.random() * 256)));
  const newObjectId = () => {
    count = (count + 1) % 0x1000000;
    const seconds = Math.floor(Date.now() / 1000) + 0x100000000;
    return seconds.toString(16).slice(-8) + process + (count + 0x1000000).toString(16).slice(1);
  };
  const objectId = define('ObjectId', (hex) => {
    if (hex === undefined) return objectId(T.objectId, newObjectId());
    if (Typed.kind(hex)?.[0] === T.objectId) return hex;
    if (!isHex(hex, 24)) throw new Error('invalid object id: length');
    return objectId(T.objectId, hex.toLowerCase());
  }, {
    toString() { return 'ObjectId("' + part(this, 1) + '")'; },
    valueOf() { return this.toString(); },
    toJSON() { return { $oid: part(this, 1) }; },
    equals(other) { return this.str === other?.str; },
    getTimestamp() { return new Date(parseInt(part(this, 1).slice(0, 8), 16) * 1000); },
  }, { str() { return part(this, 1); } });

  const least = -(2n ** 63n), most = 2n ** 63n - 1n;
  const long = define('NumberLong', (value = 0, low) => {
    let number;
    if (low !== undefined) number = (BigInt(value) << 32n) | BigInt.asUintN(32, BigInt(low));
    else if (typeof value === 'string') {
      if (!/^[+-]?\d+$/.test(value)) throw new Error('could not convert string to long long');
      number = BigInt(value);
    } else number = BigInt(Math.trunc(Number(value)) || 0);
    if (number < least || number > most) throw new Error('number out of range for NumberLong');
    return long(T.long, number.toString());
  }, {
    toString() {
      const text = part(this, 1);
      const number = Number(text);
      return Math.abs(number) <= 2147483647 ? 'NumberLong(' + text + ')' : 'NumberLong("' + text + '")';
    },
    toNumber() { return Number(part(this, 1)); },
    valueOf() { return Number(part(this, 1)); },
    toJSON() { return { $numberLong: part(this, 1) }; },
    compare(other) {
      const [a, b] = [BigInt(part(this, 1)), BigInt(Typed.kind(other) ? part(other, 1) : Math.trunc(other))];
      return a < b ? -1 : a > b ? 1 : 0;
    },
  }, {
    floatApprox() { return Number(part(this, 1)); },
    top() { return Number(BigInt(part(this, 1)) >> 32n); },
    bottom() { return Number(BigInt.asUintN(32, BigInt(part(this, 1)))); },
  });
  const int = define('NumberInt', (value = 0) => int(T.int, Number(value) | 0), {
    toString() { return 'NumberInt(' + part(this, 1) + ')'; },
    toNumber() { return part(this, 1); },
    valueOf() { return part(this, 1); },
    toJSON() { return part(this, 1); },
  });
  const decimal = define('NumberDecimal', (value = 0) => {
    const text = Typed.kind(value) ? String(part(value, 1)) : String(value);
    if (!/^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|Infinity|NaN)$/.test(text)) {
      throw new Error('Input is not a valid Decimal128 value.');
    }
    return decimal(T.decimal, text);
  }, {
    toString() { return 'NumberDecimal("' + part(this, 1) + '")'; },
    toJSON() { return { $numberDecimal: part(this, 1) }; },
  });
  const binary = define('BinData', (subtype, base64) => {
    if (typeof subtype !== 'number' || subtype < 0 || subtype > 255) {
      throw new Error('BinData subtype must be between 0 and 255');
    }
    return binary(T.binary, fromBase64(base64), subtype);
  }, {
    toString() { return 'BinData(' + part(this, 2) + ',"' + this.base64() + '")'; },
    toJSON() { return { $binary: this.base64(), $type: (part(this, 2) + 256).toString(16).slice(1) }; },
    base64() { return toBase64(part(this, 1)); },
    hex() { return part(this, 1); },
    length() { return part(this, 1).length / 2; },
    subtype() { return part(this, 2); },
  }, { type() { return part(this, 2); }, len() { return part(this, 1).length / 2; } });
  const hexData = (subtype, hex) => {
    if (!isHex(hex)) throw new Error('HexData needs an even number of hexadecimal digits');
    return binary(T.binary, hex.toLowerCase(), subtype);
  };
  const timestamp = define('Timestamp', (seconds = 0, increment = 0) => {
    for (const number of [seconds, increment]) {
      if (!(Number(number) >= 0 && Number(number) <= 4294967295)) {
        throw new Error('Timestamp parts must be between 0 and 4294967295');
      }
    }
    return timestamp(T.timestamp, Math.floor(Number(seconds)), Math.floor(Number(increment)));
  }, {
    toString() { return 'Timestamp(' + part(this, 1) + ', ' + part(this, 2) + ')'; },
    toJSON() { return { $timestamp: { t: part(this, 1), i: part(this, 2) } }; },
    getTime() { return part(this, 1); },
    getInc() { return part(this, 2); },
  }, { t() { return part(this, 1); }, i() { return part(this, 2); } });
  const pointer = define('DBPointer', (ns, id) => pointer(T.pointer, String(ns), id.str), {
    toString() { return 'DBPointer("' + part(this, 1) + '", ObjectId("' + part(this, 2) + '"))'; },
  }, { ns() { return part(this, 1); }, id() { return objectId(T.objectId, part(this, 2)); } });
  const code = define('Code', (text) => code(T.code, String(text)), {
    toString() { return part(this, 1); },
  }, { code() { return part(this, 1); } });
  const minKey = define('MinKey', () => minKey(T.min), { toString() { return 'MinKey'; } });
  const maxKey = define('MaxKey', () => maxKey(T.max), { toString() { return 'MaxKey'; } });
  // Regular expressions of documents that JavaScript cannot compile, or with unknown options.
  const foreignRegex = define('BSONRegExp', (source, options = '') => foreignRegex(T.regex, source, options), {
    toString() { return '/' + part(this, 1) + '/' + part(this, 2); },
  }, { source() { return part(this, 1); }, flags() { return part(this, 2); } });

  const makers = { [T.binary]: binary, [T.objectId]: objectId, [T.pointer]: pointer, [T.timestamp]: timestamp,
    [T.long]: long, [T.decimal]: decimal, [T.max]: maxKey, [T.min]: minKey };
  const make = (type, first, second) => {
    switch (type) {
      case T.date: return new Date(first);
      case T.code: return typeof first === 'string' ? compile(first) : undefined;
      case T.regex:
        if (/^[ims]*$/.test(second)) {
          try { return new RegExp(first, second); } catch (_) { /* not one of this language */ }
        }
        return foreignRegex(type, first, second);
      default: return makers[type](type, first, second);
    }
  };

  // The BSON form of an object: [type, parts], ['value', primitive], or undefined for plain
  // objects.
  const classify = (object) => {
    if (typeof object === 'function') return [T.code, apply(functionText, object, [])];
    const kind = Typed.kind(object);
    if (kind) return kind;
    if (object instanceof Date) return [T.date, apply(dateTime, object, [])];
    if (object instanceof RegExp) {
      const flags = apply(flagsOf, object, []).replace(/[^ims]/g, '');
      return [T.regex, apply(sourceOf, object, []), flags];
    }
    if (object instanceof Uint8Array) return [T.binary, hexOf(Array.from(object)), 0];
    if (object instanceof ArrayBuffer) return [T.binary, hexOf(Array.from(new Uint8Array(object))), 0];
    if (object instanceof Number) return ['value', apply(numberOf, object, [])];
    if (object instanceof String) return ['value', apply(textOf, object, [])];
    if (object instanceof Boolean) return ['value', apply(flagOf, object, [])];
    return undefined;
  };

  // Compiles a function's source, an expression, or the statements of a body to a function. Without
  // a `return`, the value of a body is that of its last statement.
  const compile = (source) => {
    const text = source.trim().replace(/;+\s*$/, '');
    const evaluate = (0, eval);
    const attempt = (shape) => {
      try { return evaluate(shape); } catch (error) {
        if (error instanceof SyntaxError) return undefined;
        throw error;
      }
    };
    if (/^(async\s+)?function\b|^(async\s*)?(\([^()]*\)|[\w$]+)\s*=>/.test(text)) {
      const found = attempt('(' + text + '\n)');
      if (typeof found === 'function') return found;
    }
    const expression = attempt('(function () { return (' + text + '\n); })');
    if (expression) return expression;
    const body = evaluate('(function () { ' + source + '\n})');
    // A `return` outside of a function is not a statement of a program. Nothing is executed here.
    const isProgram = attempt('if (false) { ' + source + '\n}; true');
    return isProgram ? evaluate('(function () { return eval(' + JSON.stringify(source) + '); })') : body;
  };

  const isNumber = (value) => typeof value === 'number';
  const isString = (value) => typeof value === 'string';
  const isObject = (value) => typeof value === 'object' && value !== null;
  const show = (value, indent, newline, depth) => {
    if (depth > 100) throw new Error('tojson: nested too deeply');
    if (value === undefined) return 'undefined';
    if (value === null || typeof value === 'boolean' || typeof value === 'number') return String(value);
    if (typeof value === 'string') return JSON.stringify(value);
    if (typeof value === 'function') return String(value);
    if (typeof value !== 'object') return String(value);
    const kind = Typed.kind(value);
    if (kind || value instanceof RegExp) return String(value);
    if (value instanceof Date) return 'ISODate("' + value.toISOString() + '")';
    const inner = newline === ' ' ? '' : indent + '\t';
    const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
    const items = Array.isArray(value) ? Array.from(value, (item) => show(item, inner, newline, depth + 1))
      : keys(value).map((name) => JSON.stringify(name) + ' : ' + show(value[name], inner, newline, depth + 1));
    if (items.length === 0) return open + ' ' + close;
    const outer = newline === ' ' ? '' : indent;
    return open + newline + inner + items.join(',' + newline + inner) + newline + outer + close;
  };
  const assert = (held, text) => { if (!held) throw new Error('assert failed' + (text ? ' : ' + text : '')); };
  const globals = {
    HexData: hexData,
    UUID(text) {
      if (text === undefined) {
        const bytes = Array.from({ length: 16 }, () => Math.floor(Math.random() * 256));
        bytes[6] = (bytes[6] & 15) | 64;
        bytes[8] = (bytes[8] & 63) | 128;
        return binary(T.binary, hexOf(bytes), 4);
      }
      const hex = String(text).replace(/-/g, '');
      if (!isHex(hex, 32)) throw new Error('UUID string must have 32 hexadecimal digits');
      return binary(T.binary, hex.toLowerCase(), 4);
    },
    ISODate(text) {
      if (text === undefined) return new Date();
      const date = new Date(/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(text) ? text.replace(' ', 'T') + 'Z' : text);
      if (isNaN(apply(dateTime, date, []))) throw new Error('invalid ISO date: ' + text);
      return date;
    },
    DBRef: function DBRef($ref, $id, $db) {
      return $db === undefined ? { $ref, $id } : { $ref, $id, $db };
    },
    isNumber, isString, isObject, assert,
    hex_md5: (text) => md5(apply(wellFormedText, String(text), [])),
    sleep(milliseconds) {
      pause(Number(milliseconds) || 0);
      if (mustEnd()) for (;;);
    },
    tojson: (value, indent = '', oneLine = false) => show(value, indent, oneLine ? ' ' : '\n', 0),
    tojsononeline: (value) => show(value, '', ' ', 0),
    tojsonObject: (value, indent = '', oneLine = false) => show(value, indent, oneLine ? ' ' : '\n', 0),
    // Output of scripts is discarded, not written to the server's log.
    print() {}, printjson() {}, printjsononeline() {}, gc() {},
    doassert(text) { throw new Error(isString(text) ? text : globals.tojson(text)); },
    version: () => '8.0.0',
  };
  for (const name of keys(globals)) {
    defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true });
  }
  const statics = {
    contains(array, item) { return array.some((have) => have == item); },
    unique(array) { return array.filter((item, at) => array.indexOf(item) === at); },
    sum(array) { return array.length === 0 ? null : array.reduce((a, b) => a + b); },
    avg(array) { return array.length === 0 ? null : Array.sum(array) / array.length; },
    stdDev(array) {
      const average = Array.avg(array);
      return Math.sqrt(Array.avg(array.map((item) => (average - item) ** 2)));
    },
  };
  for (const name of keys(statics)) {
    defineProperty(Array, name, { value: statics[name], writable: true, configurable: true });
  }
  // The interpreter checks for interruption once in ten thousand calls and loop iterations.
  // Built-in functions that allocate get no memory after an interruption; those that process many
  // items or characters without allocating are counted here.
  const mostWork = 1 << 18;
  let work = 0;
  const ask = () => {
    work = 0;
    // The interpreter checks in this loop too, and ends the script in a way that `catch` cannot
    // intercept.
    if (mustEnd()) for (;;);
  };
  const charge = (more) => { if ((work += more) > mostWork) ask(); };
  // Replaces methods by the result of `make` for each: a method `it` of an object whose prototype
  // has the built-in method as `it`, which is the fastest way to call it. Its number of parameters
  // is such that an omitted argument is the same as `undefined`.
  const wrap = (owner, names, make) => {
    for (const name of names) {
      const native = owner[name];
      const { it } = make({ it: native }, native, name);
      defineProperty(it, 'name', { value: native.name });
      defineProperty(it, 'length', { value: native.length });
      defineProperty(owner, name, { value: it, writable: true, configurable: true });
    }
  };

  // Some built-in loops over array-likes are endless. They are limited to the number of items that
  // a document can have. Objects whose length may change between reads are refused: accessors here,
  // proxies everywhere.
  const mostItems = 1 << 24;
  const ownLength = (value) => {
    const property = Object.getOwnPropertyDescriptor(value, 'length');
    if (property === undefined) return ArrayBuffer.isView(value) || !('length' in value) ? 0 : NaN;
    return typeof property.value === 'number' || property.value === undefined && !property.get ? property.value || 0 : NaN;
  };
  const checkLength = (value) => {
    if (value !== null && value !== undefined && !(ownLength(Object(value)) <= mostItems)) {
      throw new RangeError('too many items for this operation');
    }
    charge(Array.isArray(value) ? value.length : 1);
  };
  const replace = (name, method) => {
    defineProperty(Array.prototype, name, { value: method, writable: true, configurable: true });
  };
  wrap(Array.prototype, ['copyWithin', 'join', 'reverse', 'shift', 'toLocaleString'], (proto) => ({ __proto__: proto, it(a, b, c) {
    checkLength(this);
    return super.it(a, b, c);
  } }));
  wrap(Array.prototype, ['splice', 'unshift'], (_, native) => ({ it(...args) {
    checkLength(this);
    return apply(native, this, args);
  } }));
  // A native sort of more items takes seconds. With a comparison function it takes longer, but the
  // interpreter checks.
  const mostSorted = 1 << 20;
  const byText = (a, b) => {
    const first = String(a), second = String(b);
    return first < second ? -1 : first > second ? 1 : 0;
  };
  wrap(Array.prototype, ['sort', 'toSorted'], (proto) => ({ __proto__: proto, it(compare) {
    checkLength(this);
    return super.it(compare === undefined && this.length > mostSorted ? byText : compare);
  } }));
  // Searches compare a string with one item after the other, which takes long for long strings.
  const longText = 1 << 12;
  const isLong = (value) => typeof value === 'string' && value.length > longText;
  const seekItem = (items, needle, from, step) => {
    for (let at = from; at >= 0 && at < items.length; at += step) {
      charge(needle.length);
      if (items[at] === needle) return at;
    }
    return -1;
  };
  // The start of a search at `from`, which counts from the end when it is negative.
  const startIn = (items, from) => {
    const start = Math.trunc(Number(from)) || 0;
    return start < 0 ? items.length + start : start;
  };
  const first = (items, args) => seekItem(items, args[0], Math.max(startIn(items, args[1]), 0), 1);
  const itemSearches = {
    indexOf: first,
    includes: (items, args) => first(items, args) >= 0,
    lastIndexOf(items, args) {
      const from = args.length > 1 ? startIn(items, args[1]) : Infinity;
      return seekItem(items, args[0], Math.min(from, items.length - 1), -1);
    },
  };
  wrap(Array.prototype, keys(itemSearches), (_, native, name) => ({ it(...args) {
    if (!Array.isArray(this)) return apply(native, this, args);
    charge(this.length);
    return isLong(args[0]) ? itemSearches[name](this, args) : apply(native, this, args);
  } }));
  wrap(Array.prototype, ['fill'], (proto) => ({ __proto__: proto, it(a, b, c) {
    if (Array.isArray(this)) charge(this.length);
    return super.it(a, b, c);
  } }));
  wrap(getPrototypeOf(Uint8Array.prototype), ['copyWithin', 'fill', 'includes', 'indexOf', 'lastIndexOf', 'reverse', 'set', 'sort'],
    (_, native) => ({ it(...args) {
      const done = apply(native, this, args);
      charge(this.length);
      return done;
    } }));

  // A substring search takes time for each position and each character of the pattern. Where that
  // may take seconds, the Knuth-Morris-Pratt algorithm is used instead, which reads the text once.
  const mostCompared = 1 << 26;
  const seekText = (text, needle, from, step) => {
    const { length } = needle;
    const letter = step > 0 ? (at) => needle.charCodeAt(at) : (at) => needle.charCodeAt(length - 1 - at);
    // For each prefix, the length of its longest proper prefix that is also its suffix.
    const ends = new Int32Array(length);
    for (let at = 1, same = 0; at < length; at += 1) {
      while (same > 0 && letter(at) !== letter(same)) same = ends[same - 1];
      if (letter(at) === letter(same)) same += 1;
      ends[at] = same;
    }
    for (let at = from, same = 0; at >= 0 && at < text.length; at += step) {
      const code = text.charCodeAt(at);
      while (same > 0 && code !== letter(same)) same = ends[same - 1];
      if (code === letter(same)) same += 1;
      if (same === length) return step > 0 ? at - length + 1 : at;
    }
    return -1;
  };
  const position = (value) => Math.max(Math.trunc(Number(value)) || 0, 0);
  const cut = (text, from, to) => apply(sliceText, text, [from, to]);
  const replaced = (text, needle, by, mostTimes) => {
    if (typeof by !== 'function') by = String(by);
    let out = '', from = 0;
    for (let times = 0, at; times < mostTimes && (at = seekText(text, needle, from, 1)) >= 0; times += 1) {
      const end = at + needle.length;
      out += cut(text, from, at);
      if (typeof by === 'function') out += String(by(needle, at, text));
      else {
        out += apply(replaceText, by, [/\$([$&`'])/g, (_, sign) => {
          if (sign === '$') return '$';
          return sign === '&' ? needle : sign === '`' ? cut(text, 0, at) : cut(text, end);
        }]);
      }
      from = end;
    }
    return out + cut(text, from);
  };
  const textSearches = {
    indexOf: (text, needle, from) => seekText(text, needle, position(from), 1),
    includes: (text, needle, from) => seekText(text, needle, position(from), 1) >= 0,
    lastIndexOf(text, needle, from) {
      const last = Number(from) === Number(from) ? position(from) + needle.length : text.length;
      return seekText(text, needle, Math.min(last, text.length) - 1, -1);
    },
    replace: (text, needle, by) => replaced(text, needle, by, 1),
    replaceAll: (text, needle, by) => replaced(text, needle, by, Infinity),
    split(text, separator, limit) {
      const parts = [], most = limit === undefined ? 2 ** 32 - 1 : limit >>> 0;
      let from = 0;
      for (let at; parts.length < most && (at = seekText(text, separator, from, 1)) >= 0;) {
        parts[parts.length] = cut(text, from, at);
        from = at + separator.length;
      }
      if (parts.length < most) parts[parts.length] = cut(text, from);
      return parts;
    },
  };
  // The receiver and the argument of a search as strings. Values that the built-in method rejects,
  // and regular expressions, are passed to it unchanged.
  const asText = (value) => value === null || value === undefined || typeof value === 'symbol' ? value : String(value);
  const asNeedle = (value) => typeof value !== 'object' || value === null
    || value[Symbol.match] || value[Symbol.replace] || value[Symbol.split] ? value : String(value);
  wrap(String.prototype, keys(textSearches), (proto, native, name) => ({ __proto__: proto, it(a, b) {
    if (typeof this === 'string' && typeof a === 'string' && this.length * a.length <= mostCompared) {
      if ((work += this.length) > mostWork) ask();
      return super.it(a, b);
    }
    const text = asText(this), needle = asNeedle(a);
    if (typeof text === 'string') charge(text.length);
    const isSlow = typeof text === 'string' && typeof needle === 'string' && needle.length > 1
      && text.length * needle.length > mostCompared;
    return isSlow ? textSearches[name](text, needle, b) : apply(native, text, [needle, b]);
  } }));
  const append = (out, items) => {
    for (let at = 0; at < items.length; at += 1) {
      if (at in items) out[out.length] = items[at]; else out.length += 1;
    }
  };
  const spreads = (value) => {
    if (typeof value !== 'object' || value === null) return false;
    const asked = value[Symbol.isConcatSpreadable];
    return asked === undefined ? Array.isArray(value) : Boolean(asked);
  };
  replace('concat', function concat(...args) {
    const out = [];
    for (const value of [Object(this), ...args]) if (spreads(value)) append(out, value); else out[out.length] = value;
    return out;
  });
  const flatten = (out, items, depth) => {
    for (let at = 0; at < items.length; at += 1) {
      if (!(at in items)) continue;
      if (depth > 0 && Array.isArray(items[at])) flatten(out, items[at], depth - 1); else out[out.length] = items[at];
    }
    return out;
  };
  replace('flat', function flat(depth = 1) { return flatten([], Object(this), Math.trunc(Number(depth)) || 0); });
  delete globalThis.Proxy;
  // Calls a function on a state and the items of each array in turn; each result is the state of
  // the next call.
  const fold = (called, state, calls) => {
    for (let at = 0; at < calls.length; at++) state = apply(called, undefined, [state, ...calls[at]]);
    return state;
  };
  // The pairs that a call has emitted, as an array of keys and values in turn.
  let emitted = [];
  const emit = (...args) => {
    if (args.length !== 2) throw new Error('emit takes 2 args');
    emitted.push(args[0], args[1]);
  };
  const collect = (called, document) => {
    emitted = [];
    apply(called, document, []);
    const pairs = emitted;
    emitted = [];
    return pairs;
  };
  return { make, classify, compile, define, fold, collect, emit, integers, plain, wellFormed: (text) => apply(wellFormedText, text, []) };
});
