// Makes scripts end while built-in functions work for them. The interpreter asks whether it may go on once in ten thousand
// calls and turns of loops, and a single call of a built-in function may take seconds. So the functions whose work grows
// with their operands are replaced by functions that count items and characters, and ask after so many of them.
//
// Evaluates to a function that takes what is to be asked; nothing of both is reachable from a script.
(function (mustEnd) {
  'use strict';
  const { defineProperty, getOwnPropertyDescriptor } = Object;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const { apply, construct } = Reflect;
  const { log2, max, min, trunc } = Math;
  const textOf = String;
  // `method(self, ...)` calls a built-in method, whatever the script did to `call`.
  const method = Function.prototype.bind.bind(Function.prototype.call);
  const charCount = (value) => (typeof value === 'string' ? value.length : 0);

  const most = 1 << 14;
  let spent = 0;
  // The interpreter asks in this loop, too, and ends the script in a way that no `catch` sees.
  const ask = () => {
    spent = 0;
    if (mustEnd()) for (;;);
  };
  const charge = (work) => { if ((spent += work) > most) ask(); };

  const typed = Object.getPrototypeOf(Uint8Array);
  const typedLength = method(getOwnPropertyDescriptor(typed.prototype, 'length').get);
  const typedTag = method(getOwnPropertyDescriptor(typed.prototype, Symbol.toStringTag).get);
  // How many items something has that may be no array; no code of the script runs for that.
  const itemCount = (value) => {
    if (isArray(value)) return value.length;
    if (value === null || value === undefined) return 0;
    if (typedTag(value) !== undefined) return typedLength(value);
    const length = getOwnPropertyDescriptor(Object(value), 'length')?.value;
    return length > 0 && typeof length === 'number' ? length : 0;
  };

  // Some built-in loops over array-likes do not ask whether the script may go on. They take no more items than a document can
  // have. What could tell one length now and another one later is refused: accessors here, proxies altogether.
  const mostItems = 1 << 24;
  const ownLength = (value) => {
    const property = getOwnPropertyDescriptor(value, 'length');
    if (property === undefined) return isView(value) || !('length' in value) ? 0 : NaN;
    return typeof property.value === 'number' || property.value === undefined && !property.get ? property.value || 0 : NaN;
  };
  const checkLength = (value) => {
    if (value !== null && value !== undefined && !(ownLength(Object(value)) <= mostItems)) {
      throw new RangeError('too many items for this operation');
    }
    charge(itemCount(value));
  };
  delete globalThis.Proxy;

  // Replaces methods by what `make` makes of them: a method `it` of an object that has the built-in method as its prototype's
  // `it`, which is the fastest way to call it. It takes so many arguments that one not given is the same as `undefined`.
  const replace = (owner, names, make) => {
    for (const name of names) {
      const native = owner[name];
      const made = make({ it: native }, native).it;
      defineProperty(made, 'name', { value: native.name });
      defineProperty(made, 'length', { value: native.length });
      owner[name] = made;
    }
  };

  // Methods of arrays.
  const items = (proto) => ({ __proto__: proto, it(a, b, c) {
    if (!isArray(this) || this.length > mostItems) checkLength(this); else if ((spent += this.length) > most) ask();
    return super.it(a, b, c);
  } });
  // The same where an argument that is `undefined` is not the same as none.
  const manyItems = (_, native) => ({ it(...args) {
    checkLength(this);
    charge(args.length);
    return apply(native, this, args);
  } });
  // The interpreter goes through all items without asking for spread arrays, and where arrays are taken apart.
  const iterators = (proto) => ({ __proto__: proto, it() {
    if ((spent += this?.length >>> 0) > most) ask();
    return super.it();
  } });
  const list = Array.prototype;
  replace(list, ['copyWithin', 'fill', 'join', 'reverse', 'shift', 'slice', 'toLocaleString', 'toReversed', 'with'], items);
  replace(list, ['splice', 'toSpliced', 'unshift'], manyItems);
  replace(list, ['entries', 'keys', 'values'], iterators);
  list[Symbol.iterator] = list.values;

  // Searches for an item compare texts. A long text is compared with one item after the other.
  const longText = 1 << 12;
  const seekItem = (array, wanted, from, step) => {
    for (let at = from; at >= 0 && at < array.length; at += step) {
      charge(wanted.length);
      if (array[at] === wanted) return at;
    }
    return -1;
  };
  const startIn = (array, from) => {
    const start = trunc(Number(from)) || 0;
    return start < 0 ? array.length + start : start;
  };
  const itemSearch = (proto, search) => ({ __proto__: proto, it(wanted, from) {
    if ((spent += this?.length >>> 0) > most) ask();
    if (typeof wanted !== 'string' || wanted.length <= longText || !isArray(this)) return super.it(wanted, from);
    return search(this, wanted, max(startIn(this, from), 0));
  } });
  replace(list, ['includes'], (proto) => itemSearch(proto, (array, wanted, from) => seekItem(array, wanted, from, 1) >= 0));
  replace(list, ['indexOf'], (proto) => itemSearch(proto, (array, wanted, from) => seekItem(array, wanted, from, 1)));
  replace(list, ['lastIndexOf'], (_, native) => ({ it(...args) {
    charge(itemCount(this));
    if (charCount(args[0]) <= longText || !isArray(this)) return apply(native, this, args);
    const from = args.length > 1 ? startIn(this, args[1]) : Infinity;
    return seekItem(this, args[0], min(from, this.length - 1), -1);
  } }));

  // Sorting without a function compares texts. Where that may take long, it is done with a function, which takes ten times as
  // long, and during which the interpreter asks. The work is counted in characters; a comparison is worth so many beside them.
  const mostSorted = 2 ** 31 - 1, comparison = 300;
  const byText = (a, b) => {
    const first = textOf(a), second = textOf(b);
    charge(min(first.length, second.length));
    return first < second ? -1 : first > second ? 1 : 0;
  };
  const sorts = (proto) => ({ __proto__: proto, it(compare) {
    if (!isArray(this) || this.length > mostItems) checkLength(this);
    else if (compare === undefined) {
      let longest = 0;
      for (let at = 0; at < this.length; at += 1) {
        const item = this[at];
        if (typeof item === 'string' && item.length > longest) longest = item.length;
      }
      const work = this.length * log2(this.length + 1) * (comparison + longest);
      if ((spent += work >> 12) > most || work > mostSorted) ask();
      if (work > mostSorted) compare = byText;
    }
    return super.it(compare);
  } });
  replace(list, ['sort', 'toSorted'], sorts);

  const append = (out, items) => {
    for (let at = 0; at < items.length; at += 1) {
      if (at in items) out[out.length] = items[at]; else out.length += 1;
    }
  };
  const spreads = (value) => {
    if (typeof value !== 'object' || value === null) return false;
    const asked = value[Symbol.isConcatSpreadable];
    return asked === undefined ? isArray(value) : Boolean(asked);
  };
  replace(list, ['concat'], () => ({ it(...args) {
    const out = [];
    for (const value of [Object(this), ...args]) if (spreads(value)) append(out, value); else out[out.length] = value;
    return out;
  } }));
  const flatten = (out, items, depth) => {
    for (let at = 0; at < items.length; at += 1) {
      if (!(at in items)) continue;
      if (depth > 0 && isArray(items[at])) flatten(out, items[at], depth - 1); else out[out.length] = items[at];
    }
    return out;
  };
  replace(list, ['flat'], () => ({ it(depth = 1) { return flatten([], Object(this), trunc(Number(depth)) || 0); } }));

  // Methods of typed arrays.
  const typedItems = (proto) => ({ __proto__: proto, it(a, b, c) {
    charge(itemCount(this) + (typeof a === 'object' ? itemCount(a) : 0));
    return super.it(a, b, c);
  } });
  replace(typed.prototype, ['set', 'copyWithin', 'fill', 'reverse', 'toReversed', 'slice', 'join', 'toLocaleString', 'with',
    'indexOf', 'includes', 'values', 'keys', 'entries'], typedItems);
  typed.prototype[Symbol.iterator] = typed.prototype.values;
  replace(typed.prototype, ['lastIndexOf'], (_, native) => ({ it(...args) {
    charge(itemCount(this));
    return apply(native, this, args);
  } }));
  const mostNumbers = 1 << 20;
  const byNumber = (a, b) => {
    if (a < b) return -1;
    if (a > b) return 1;
    if (a === b) return Object.is(a, b) ? 0 : Object.is(a, -0) ? -1 : 1;
    return a === a ? -1 : b === b ? 1 : 0;
  };
  replace(typed.prototype, ['sort', 'toSorted'], (proto) => ({ __proto__: proto, it(compare) {
    const count = itemCount(this);
    charge(count);
    return super.it(compare === undefined && count > mostNumbers ? byNumber : compare);
  } }));

  // Methods of strings.
  const textMethod = (proto, native) => ({ __proto__: proto, it(a, b) {
    if (typeof this !== 'string') return apply(native, asText(this), [a, b]);
    if ((spent += this.length) > most) ask();
    return super.it(a, b);
  } });
  // What a method of strings works on; those that refuse it do so.
  const asText = (value) => {
    if (value === null || value === undefined || typeof value === 'symbol') return value;
    const text = textOf(value);
    charge(text.length);
    return text;
  };
  const string = String.prototype;
  replace(string, ['toLowerCase', 'toUpperCase', 'toLocaleLowerCase', 'toLocaleUpperCase', 'normalize', 'localeCompare',
    'toWellFormed', 'isWellFormed', 'trim', 'trimStart', 'trimEnd', Symbol.iterator], textMethod);
  string.trimLeft = string.trimStart;
  string.trimRight = string.trimEnd;
  // These copy, which is much faster than what else is done to characters.
  replace(string, ['slice', 'substring', 'substr'], (proto) => ({ __proto__: proto, it(a, b) {
    if (typeof this === 'string' && (spent += this.length >> 4) > most) ask();
    return super.it(a, b);
  } }));
  replace(string, ['repeat', 'padStart', 'padEnd'], (proto) => ({ __proto__: proto, it(a, b) {
    const out = super.it(a, b);
    charge(out.length >> 4);
    return out;
  } }));

  // Searches for a text take time for each place and each character of what is searched for. Those that may take long look at
  // a part of the text after the other.
  const mostCompared = 1 << 24, headLength = 1 << 11, windowLength = 1 << 12;
  const cut = method(string.slice), find = method(string.indexOf), findLast = method(string.lastIndexOf);
  const change = method(string.replace);
  const isLong = (text, wanted) => charCount(text) * charCount(wanted) > mostCompared && wanted.length > 1;
  // The first place of `wanted` in `text` at or after `from`, or -1.
  const firstPlace = (text, wanted, from) => {
    const head = cut(wanted, 0, headLength);
    for (let at = from; at + wanted.length <= text.length;) {
      charge(windowLength);
      const found = find(cut(text, at, at + windowLength + head.length - 1), head);
      if (found < 0) { at += windowLength; continue; }
      at += found;
      charge(wanted.length);
      if (cut(text, at, at + wanted.length) === wanted) return at;
      at += 1;
    }
    return -1;
  };
  // The last place of `wanted` in `text` at or before `from`, or -1.
  const lastPlace = (text, wanted, from) => {
    const head = cut(wanted, 0, headLength);
    for (let at = min(from, text.length - wanted.length); at >= 0;) {
      charge(windowLength);
      const low = max(at - windowLength + 1, 0);
      const found = findLast(cut(text, low, at + head.length), head);
      if (found < 0) { at = low - 1; continue; }
      at = low + found;
      charge(wanted.length);
      if (cut(text, at, at + wanted.length) === wanted) return at;
      at -= 1;
    }
    return -1;
  };
  // What such a method takes as a text to search for; patterns stay.
  const asWanted = (value) => {
    const isObject = typeof value === 'object' && value !== null || typeof value === 'function';
    if (!isObject || value[Symbol.match] || value[Symbol.replace] || value[Symbol.split]) return value;
    return textOf(value);
  };
  const textSearch = (proto, native, search) => ({ __proto__: proto, it(a, b) {
    if (typeof this === 'string' && this.length * (typeof a === 'string' ? a.length : windowLength) <= mostCompared) {
      if ((spent += this.length) > most) ask();
      return super.it(a, b);
    }
    const text = asText(this), wanted = asWanted(a);
    return isLong(text, wanted) ? search(text, wanted, b) : apply(native, text, [wanted, b]);
  } });
  const position = (value) => max(trunc(Number(value)) || 0, 0);
  replace(string, ['indexOf'], (proto, native) => textSearch(proto, native, (text, wanted, from) =>
    firstPlace(text, wanted, position(from))));
  replace(string, ['includes'], (proto, native) => textSearch(proto, native, (text, wanted, from) =>
    firstPlace(text, wanted, position(from)) >= 0));
  replace(string, ['lastIndexOf'], (proto, native) => textSearch(proto, native, (text, wanted, from) =>
    lastPlace(text, wanted, Number(from) === Number(from) ? position(from) : text.length)));
  replace(string, ['split'], (proto, native) => textSearch(proto, native, (text, separator, limit) => {
    const parts = [], count = limit === undefined ? 2 ** 32 - 1 : limit >>> 0;
    let from = 0;
    for (let at; parts.length < count && (at = firstPlace(text, separator, from)) >= 0;) {
      parts[parts.length] = cut(text, from, at);
      from = at + separator.length;
    }
    if (parts.length < count) parts[parts.length] = cut(text, from);
    return parts;
  }));
  const replaced = (text, wanted, by, mostTimes) => {
    if (typeof by !== 'function') by = textOf(by);
    let out = '', from = 0;
    for (let times = 0, at; times < mostTimes && (at = firstPlace(text, wanted, from)) >= 0; times += 1) {
      const end = at + wanted.length;
      out += cut(text, from, at);
      if (typeof by === 'function') out += textOf(by(wanted, at, text));
      else {
        out += change(by, /\$([$&`'])/g, (_, sign) => {
          if (sign === '$') return '$';
          return sign === '&' ? wanted : sign === '`' ? cut(text, 0, at) : cut(text, end);
        });
      }
      from = end;
    }
    return out + cut(text, from);
  };
  replace(string, ['replace'], (proto, native) => textSearch(proto, native, (text, wanted, by) => replaced(text, wanted, by, 1)));
  replace(string, ['replaceAll'], (proto, native) => textSearch(proto, native, (text, wanted, by) => replaced(text, wanted, by, Infinity)));

  // Functions of objects: what there is to do is not known before, only what came of it.
  const ofObject = (proto) => ({ __proto__: proto, it(a, b, c) {
    if ((spent += most >> 2) > most) ask();
    const out = super.it(a, b, c);
    if ((spent += out?.length >>> 0) > most) ask();
    return out;
  } });
  const ofObjects = (_, native) => ({ it(...args) {
    charge(most >> 2);
    return apply(native, this, args);
  } });
  replace(Object, ['entries', 'getOwnPropertyNames', 'getOwnPropertySymbols', 'keys', 'values'], ofObject);
  replace(Object, ['defineProperties', 'freeze', 'fromEntries', 'getOwnPropertyDescriptors', 'isFrozen', 'isSealed',
    'preventExtensions', 'seal'], ofObjects);
  replace(Object, ['assign'], (proto) => ({ __proto__: proto, it(target, ...sources) {
    const out = super.it(target);
    for (let at = 0; at < sources.length; at += 1) {
      charge(most >> 2);
      super.it(out, sources[at]);
    }
    return out;
  } }));
  replace(Reflect, ['ownKeys'], ofObject);
  replace(Map.prototype, ['entries', 'keys', 'values'], ofObject);
  Map.prototype[Symbol.iterator] = Map.prototype.entries;
  replace(Set.prototype, ['difference', 'entries', 'intersection', 'isDisjointFrom', 'isSubsetOf', 'isSupersetOf',
    'symmetricDifference', 'union', 'values'], ofObject);
  Set.prototype.keys = Set.prototype[Symbol.iterator] = Set.prototype.values;
  replace(ArrayBuffer.prototype, ['resize', 'slice', 'sliceToImmutable', 'transfer', 'transferToFixedLength',
    'transferToImmutable'], ofObjects);
  replace(JSON, ['stringify'], (proto) => ofObject({ __proto__: proto, it(value, replacer, space) {
    if (isArray(replacer) && replacer.length > longText) throw new RangeError('too many items for this operation');
    return super.it(value, replacer, space);
  } }));
  const from = (proto) => ofObject({ __proto__: proto, it(source, map, that) {
    charge(itemCount(source));
    return super.it(source, map, that);
  } });
  replace(Array, ['from'], from);
  replace(typed, ['from'], from);
  for (const name of ['Int8Array', 'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array',
    'BigInt64Array', 'BigUint64Array', 'Float16Array', 'Float32Array', 'Float64Array']) {
    const native = globalThis[name];
    const made = function (...args) {
      if (new.target === undefined) return native(...args);
      charge(itemCount(args[0]));
      return construct(native, args, new.target);
    };
    for (const own of ['name', 'length', 'prototype', 'BYTES_PER_ELEMENT']) {
      defineProperty(made, own, getOwnPropertyDescriptor(native, own));
    }
    Object.setPrototypeOf(made, typed);
    native.prototype.constructor = globalThis[name] = made;
  }
  const ofText = (proto) => ({ __proto__: proto, it(a, b) {
    if ((spent += typeof a === 'string' ? a.length : most >> 2) > most) ask();
    return super.it(a, b);
  } });
  replace(JSON, ['parse'], ofText);
  replace(globalThis, ['parseInt', 'parseFloat', 'encodeURI', 'encodeURIComponent', 'decodeURI', 'decodeURIComponent',
    'escape', 'unescape'], ofText);
  Object.assign(Number, { parseInt, parseFloat });

  // Calls with an array of arguments.
  replace(Function.prototype, ['apply'], (proto) => ({ __proto__: proto, it(self, args) {
    if ((spent += args?.length >>> 0) > most) ask();
    return super.it(self, args);
  } }));
  replace(Reflect, ['apply', 'construct'], (_, native) => ({ it(...args) {
    charge(itemCount(args[native === construct ? 1 : 2]));
    return apply(native, this, args);
  } }));
})
