// Bulk writes: `bulkWrite`, and the objects of `initializeOrderedBulkOp`.
export default (function (shell) {
  'use strict';
  const { invalid, pick } = shell;

  // The command and the statement of one operation.
  const statementOf = (collection, operation) => {
    const kind = Object.keys(operation)[0];
    const of = operation[kind];
    const update = (change, multi) => ['update', collection.statement(of.filter, change, of, multi)];
    const remove = (limit) => ['delete', { q: of.filter, limit, ...pick(of, ['collation', 'hint']) }];
    switch (kind) {
      case 'insertOne': return ['insert', shell.identified(of.document ?? of)];
      case 'updateOne': return update(shell.needOperators(of.update), false);
      case 'updateMany': return update(shell.needOperators(of.update), true);
      case 'replaceOne': return update(shell.needReplacement(of.replacement), false);
      case 'deleteOne': return remove(1);
      case 'deleteMany': return remove(0);
      default: throw invalid(`bulkWrite has no operation ${kind}`);
    }
  };
  const STATEMENTS = { insert: 'documents', update: 'updates', delete: 'deletes' };

  // Sends the operations: consecutive ones of a kind in one command, at most 1,000. If a command
  // exceeds 16 MB, half as many.
  shell.bulkWrite = (collection, operations, options) => {
    if (!Array.isArray(operations) || operations.length === 0) throw invalid('bulkWrite needs an array of operations');
    const ordered = options?.ordered ?? true;
    const result = {
      acknowledged: true, insertedCount: 0, insertedIds: {}, matchedCount: 0, modifiedCount: 0, deletedCount: 0,
      upsertedCount: 0, upsertedIds: {},
    };
    const statements = operations.map((operation) => statementOf(collection, operation));
    const errors = [];
    let concern, from = 0, most = 1000;
    const note = (kind, part, reply) => {
      for (const error of reply.writeErrors ?? []) errors.push({ ...error, index: error.index + from });
      concern ??= reply.writeConcernError;
      if (kind === 'insert') {
        result.insertedCount += reply.n;
        part.forEach(([, document], at) => { result.insertedIds[from + at] = document._id; });
      } else if (kind === 'delete') {
        result.deletedCount += reply.n;
      } else {
        const upserted = reply.upserted ?? [];
        result.matchedCount += reply.n - upserted.length;
        result.modifiedCount += reply.nModified;
        result.upsertedCount += upserted.length;
        for (const { index, _id } of upserted) result.upsertedIds[from + index] = _id;
      }
    };
    while (from < statements.length && (errors.length === 0 || !ordered)) {
      const kind = statements[from][0];
      let to = from;
      while (to < statements.length && to - from < most && statements[to][0] === kind) to += 1;
      const part = statements.slice(from, to);
      const command = { [kind]: collection.getName(), [STATEMENTS[kind]]: part.map(([, statement]) => statement), ordered };
      const reply = shell.execute(collection.getDB().getName(), { ...command, ...shell.concernOf(options) });
      if (Number(reply.ok) !== 1) {
        if (part.length === 1 || reply.code !== 10334) throw new shell.MongoServerError(reply);
        most = Math.ceil(part.length / 2);
        continue;
      }
      note(kind, part, reply);
      from = to;
    }
    if (errors.length > 0 || concern) throw new shell.MongoBulkWriteError(errors, result, concern);
    return result;
  };

  class Bulk {
    #collection; #ordered; #operations = [];
    constructor(collection, ordered) {
      this.#collection = collection;
      this.#ordered = ordered;
    }
    insert(document) {
      this.#operations.push({ insertOne: { document } });
      return this;
    }
    find(filter) {
      const options = {};
      const add = (kind, fields) => {
        this.#operations.push({ [kind]: { filter, ...options, ...fields } });
        return this;
      };
      const found = {
        upsert: () => Object.assign(options, { upsert: true }) && found,
        arrayFilters: (arrayFilters) => Object.assign(options, { arrayFilters }) && found,
        collation: (collation) => Object.assign(options, { collation }) && found,
        hint: (hint) => Object.assign(options, { hint }) && found,
        update: (update) => add('updateMany', { update }),
        updateOne: (update) => add('updateOne', { update }),
        replaceOne: (replacement) => add('replaceOne', { replacement }),
        remove: () => add('deleteMany', {}),
        delete: () => add('deleteMany', {}),
        removeOne: () => add('deleteOne', {}),
        deleteOne: () => add('deleteOne', {}),
      };
      return found;
    }
    execute(writeConcern) {
      return shell.bulkWrite(this.#collection, this.#operations, { ordered: this.#ordered, writeConcern });
    }
    toString() { return `bulk of ${this.#operations.length} operations`; }
  }
  shell.Bulk = Bulk;
});
