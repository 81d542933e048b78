// Cursors of `find` and `aggregate`.
export default (function (shell) {
  'use strict';
  const { run, invalid, missing } = shell;

  class Cursor {
    #database; #collection; #command; #batch = null; #id = null; #at = 0; #closed = false; #map = null;
    // The command is sent when the first document is needed.
    constructor(database, collection, command) {
      this.#database = database;
      this.#collection = collection;
      this.#command = command;
    }
    get command() { return this.#command; }
    change(options) {
      if (this.#batch) throw invalid('the cursor has been read already');
      Object.assign(this.#command, options);
      return this;
    }
    #receive(reply) {
      this.#batch = reply.cursor.firstBatch ?? reply.cursor.nextBatch;
      this.#id = reply.cursor.id;
      this.#at = 0;
      if (reply.cursor.ns) this.#collection = reply.cursor.ns.slice(this.#database.length + 1);
    }
    // Whether there is a document at the position; asks the server for as long as there may be one.
    #fill() {
      if (this.#closed) return false;
      if (!this.#batch) this.#receive(run(this.#database, this.#command));
      while (this.#at >= this.#batch.length) {
        if (Number(this.#id) === 0) return false;
        const more = { getMore: this.#id, collection: this.#collection };
        const { batchSize } = this.#command.cursor ?? this.#command;
        if (batchSize) more.batchSize = batchSize;
        this.#receive(run(this.#database, more));
      }
      return true;
    }
    hasNext() { return this.#fill(); }
    tryNext() {
      if (!this.#fill()) return null;
      const document = this.#batch[this.#at];
      this.#at += 1;
      return this.#map ? this.#map(document) : document;
    }
    next() { return this.tryNext(); }
    toArray() { return [...this]; }
    forEach(visit) {
      for (const document of this) if (visit(document) === false) break;
    }
    map(change) {
      const before = this.#map;
      this.#map = before ? (document) => change(before(document)) : change;
      return this;
    }
    itcount() {
      let count = 0;
      while (this.tryNext() !== null) count += 1;
      return count;
    }
    objsLeftInBatch() { return this.#batch ? this.#batch.length - this.#at : 0; }
    isExhausted() { return !this.#fill(); }
    isClosed() { return this.#closed; }
    close() {
      if (this.#id !== null && Number(this.#id) !== 0 && !this.#closed) {
        run(this.#database, { killCursors: this.#collection, cursors: [this.#id] });
      }
      this.#closed = true;
    }
    pretty() { return this; }
    explain(verbosity = 'queryPlanner') {
      return run(this.#database, { explain: this.#command, verbosity: verbosity === true ? 'allPlansExecution' : verbosity });
    }
    // Prints as mongosh does: the next twenty documents.
    inspectForShell() {
      const lines = [];
      while (lines.length < 20 && this.hasNext()) lines.push(shell.show(this.next()));
      return lines.join('\n');
    }
    *[Symbol.iterator]() {
      for (let document; (document = this.tryNext()) !== null;) yield document;
    }
  }

  class AggregationCursor extends Cursor {
    batchSize(size) { return this.change({ cursor: { batchSize: size } }); }
    maxTimeMS(milliseconds) { return this.change({ maxTimeMS: milliseconds }); }
  }

  class FindCursor extends Cursor {
    limit(count) {
      return count < 0 ? this.change({ limit: -count, singleBatch: true }) : this.change({ limit: count });
    }
    skip(count) { return this.change({ skip: count }); }
    sort(order) { return this.change({ sort: order }); }
    projection(fields) { return this.change({ projection: fields }); }
    project(fields) { return this.projection(fields); }
    hint(index) { return this.change({ hint: index }); }
    collation(collation) { return this.change({ collation }); }
    comment(comment) { return this.change({ comment }); }
    batchSize(size) { return this.change({ batchSize: size }); }
    maxTimeMS(milliseconds) { return this.change({ maxTimeMS: milliseconds }); }
    min(bound) { return this.change({ min: bound }); }
    max(bound) { return this.change({ max: bound }); }
    returnKey(flag = true) { return this.change({ returnKey: flag }); }
    showRecordId(flag = true) { return this.change({ showRecordId: flag }); }
    allowDiskUse(flag = true) { return this.change({ allowDiskUse: flag }); }
    noCursorTimeout(flag = true) { return this.change({ noCursorTimeout: flag }); }
    readConcern(level) { return this.change({ readConcern: { level } }); }
    readPref() { return this; }
    count() {
      const { find, filter, limit, skip, hint, collation } = this.command;
      return this.counted({ count: find, query: filter, hint, collation }, { limit, skip }, false);
    }
    size() {
      const { find, filter, limit, skip, hint, collation } = this.command;
      return this.counted({ count: find, query: filter, hint, collation }, { limit, skip }, true);
    }
    addOption() { return missing('cursor.addOption()'); }
    tailable() { return missing('cursor.tailable()'); }
  }

  Object.assign(shell, { AggregationCursor, FindCursor });
});
