// Collections.
export default (function (shell) {
  'use strict';
  const { run, invalid, isPlain, isObject, missing, needObject, pick, AggregationCursor, FindCursor } = shell;

  const WRITE = ['collation', 'hint', 'arrayFilters', 'sort'];
  const hasOperators = (update) => Array.isArray(update) || Object.keys(update).some((name) => name[0] === '$');
  const needOperators = (update) => {
    if (!isObject(update)) throw invalid('the update must be a document or a pipeline');
    if (!hasOperators(update)) throw new shell.MongoInvalidArgumentError('Update document requires atomic operators');
    return update;
  };
  const needReplacement = (document) => {
    if (hasOperators(needObject(document, 'the replacement'))) {
      throw new shell.MongoInvalidArgumentError('Replacement document must not contain atomic operators');
    }
    return document;
  };
  const concernOf = (options) => pick(options, ['writeConcern', 'comment', 'let', 'maxTimeMS']);
  // Throws the error of the only statement of a write command.
  const check = (reply) => {
    const error = reply.writeErrors?.[0] ?? reply.writeConcernError;
    if (error) throw new shell.MongoServerError(error);
    return reply;
  };
  // Adds an _id where it is missing, as drivers do.
  const identified = (document) => {
    needObject(document, 'a document to be inserted');
    if (document._id === undefined) document._id = ObjectId();
    return document;
  };
  const indexName = (keys) => Object.keys(keys).map((field) => `${field}_${keys[field]}`).join('_');
  const keysOf = (keys) => {
    if (typeof keys === 'string') return { [keys]: 1 };
    if (!Array.isArray(keys)) return needObject(keys, 'the keys of an index');
    return Object.assign({}, ...keys.map((field) => typeof field === 'string' ? { [field]: 1 } : field));
  };

  class Collection {
    #database; #name;
    constructor(database, name) {
      if (typeof name !== 'string' || name === '') throw invalid('a collection needs a name');
      this.#database = database;
      this.#name = name;
    }
    getName() { return this.#name; }
    getFullName() { return `${this.#database.getName()}.${this.#name}`; }
    getDB() { return this.#database; }
    getMongo() { return this.#database.getMongo(); }
    getCollection(name) { return this.#database.getCollection(`${this.#name}.${name}`); }
    toString() { return this.getFullName(); }
    inspectForShell() { return this.getFullName(); }
    run(command) { return run(this.#database.getName(), command); }

    // Inserts in parts, because a command has at most 16 MB.
    #insert(documents, options) {
      const ordered = options?.ordered ?? true;
      const result = { acknowledged: true, insertedIds: Object.assign({}, documents.map(({ _id }) => _id)) };
      const errors = [];
      let from = 0, most = 1000, concern;
      while (from < documents.length && (errors.length === 0 || !ordered)) {
        const part = documents.slice(from, from + most);
        const command = { insert: this.#name, documents: part, ordered, ...concernOf(options) };
        Object.assign(command, pick(options, ['bypassDocumentValidation']));
        const reply = shell.execute(this.#database.getName(), command);
        if (Number(reply.ok) !== 1) {
          if (part.length === 1 || reply.code !== 10334) throw new shell.MongoServerError(reply);
          most = Math.ceil(part.length / 2);
          continue;
        }
        for (const error of reply.writeErrors ?? []) errors.push({ ...error, index: error.index + from });
        concern ??= reply.writeConcernError;
        from += part.length;
      }
      if (errors.length > 0 || concern) throw new shell.MongoBulkWriteError(errors, result, concern);
      return result;
    }
    insertOne(document, options) {
      const command = { insert: this.#name, documents: [identified(document)], ...concernOf(options) };
      check(this.run({ ...command, ...pick(options, ['bypassDocumentValidation']) }));
      return { acknowledged: true, insertedId: document._id };
    }
    insertMany(documents, options) {
      if (!Array.isArray(documents) || documents.length === 0) throw invalid('insertMany needs an array of documents');
      return this.#insert(documents.map(identified), options);
    }
    insert(documents, options) {
      return this.#insert((Array.isArray(documents) ? documents : [documents]).map(identified), options);
    }
    save(document, options) {
      if (document._id === undefined) return this.insertOne(document, options);
      return this.replaceOne({ _id: document._id }, document, { ...options, upsert: true });
    }

    // One statement of `update`.
    statement(filter, update, options, multi) {
      return { q: needObject(filter, 'the filter'), u: update, multi, ...pick(options, ['upsert', ...WRITE]) };
    }
    #update(filter, update, options, multi) {
      const statement = this.statement(filter, update, options, multi);
      const command = { update: this.#name, updates: [statement], ...concernOf(options) };
      const reply = check(this.run(command));
      const { upserted = [] } = reply;
      return {
        acknowledged: true,
        insertedId: upserted.length > 0 ? upserted[0]._id : null,
        matchedCount: reply.n - upserted.length,
        modifiedCount: reply.nModified,
        upsertedCount: upserted.length,
      };
    }
    updateOne(filter, update, options) { return this.#update(filter, needOperators(update), options, false); }
    updateMany(filter, update, options) { return this.#update(filter, needOperators(update), options, true); }
    replaceOne(filter, document, options) { return this.#update(filter, needReplacement(document), options, false); }
    update(filter, update, options = {}, multi = false) {
      const given = typeof options === 'object' ? options : { upsert: options, multi };
      return this.#update(filter, update, given, Boolean(given.multi));
    }

    #delete(filter, limit, options) {
      const statement = { q: needObject(filter, 'the filter'), limit, ...pick(options, ['collation', 'hint']) };
      const command = { delete: this.#name, deletes: [statement], ...concernOf(options) };
      return { acknowledged: true, deletedCount: check(this.run(command)).n };
    }
    deleteOne(filter, options) { return this.#delete(filter, 1, options); }
    deleteMany(filter, options) { return this.#delete(filter, 0, options); }
    remove(filter, options = {}) {
      const given = typeof options === 'object' ? options : { justOne: options };
      return this.#delete(filter, given.justOne ? 1 : 0, given);
    }

    find(filter = {}, projection, options) {
      const command = { find: this.#name, filter: needObject(filter ?? {}, 'the filter') };
      if (projection !== undefined && projection !== null) command.projection = projection;
      const cursor = new FindCursor(this.#database.getName(), this.#name, Object.assign(command, options));
      cursor.counted = (count, limits, applies) => this.run({ ...count, ...(applies ? limits : {}) }).n;
      return cursor;
    }
    findOne(filter = {}, projection, options) {
      return this.find(filter, projection, options).change({ limit: 1, singleBatch: true }).next();
    }
    #findAndModify(filter, options, command) {
      const returnNew = options?.returnDocument === 'after' || options?.returnNewDocument || options?.new;
      const common = { findAndModify: this.#name, query: needObject(filter, 'the filter'), ...command };
      if (command.update) Object.assign(common, pick(options, ['upsert', 'arrayFilters']), returnNew ? { new: true } : {});
      const fields = options?.projection ?? options?.fields;
      if (fields !== undefined) common.fields = fields;
      return this.run({ ...common, ...pick(options, ['sort', 'collation', 'hint']), ...concernOf(options) }).value ?? null;
    }
    findOneAndUpdate(filter, update, options) {
      return this.#findAndModify(filter, options, { update: needOperators(update) });
    }
    findOneAndReplace(filter, document, options) {
      return this.#findAndModify(filter, options, { update: needReplacement(document) });
    }
    findOneAndDelete(filter, options) { return this.#findAndModify(filter, options, { remove: true }); }
    findAndModify(options) {
      const change = options.remove ? { remove: true } : { update: options.update };
      return this.#findAndModify(options.query ?? {}, options, change);
    }

    aggregate(...stages) {
      const isArray = Array.isArray(stages[0]);
      const { batchSize, explain, ...options } = (isArray ? stages[1] : undefined) ?? {};
      const command = { aggregate: this.#name, pipeline: isArray ? stages[0] : stages, ...options };
      command.cursor = batchSize === undefined ? {} : { batchSize };
      if (explain) return this.run({ ...command, explain: true });
      const cursor = new AggregationCursor(this.#database.getName(), this.#name, command);
      // A pipeline that writes does so although its result is not read.
      const last = command.pipeline.at(-1);
      if (last && ('$out' in last || '$merge' in last)) cursor.hasNext();
      return cursor;
    }
    countDocuments(filter = {}, options) {
      const pipeline = [{ $match: filter }];
      if (options?.skip) pipeline.push({ $skip: options.skip });
      if (options?.limit) pipeline.push({ $limit: options.limit });
      pipeline.push({ $group: { _id: 1, n: { $sum: 1 } } });
      const found = this.aggregate(pipeline, pick(options, ['hint', 'collation', 'maxTimeMS'])).next();
      return found ? found.n : 0;
    }
    estimatedDocumentCount() { return this.run({ count: this.#name }).n; }
    count(filter = {}, options) {
      return this.run({ count: this.#name, query: filter, ...pick(options, ['limit', 'skip', 'hint', 'collation']) }).n;
    }
    distinct(field, filter = {}, options) {
      return this.run({ distinct: this.#name, key: field, query: filter, ...options }).values;
    }
    explain(verbosity = 'queryPlanner') {
      return {
        find: (...given) => this.find(...given).explain(verbosity),
        aggregate: (pipeline, options) => this.run({
          explain: { aggregate: this.#name, pipeline, cursor: {}, ...options }, verbosity,
        }),
      };
    }

    createIndex(keys, options, commitQuorum) { return this.createIndexes([keys], options, commitQuorum)[0]; }
    ensureIndex(keys, options) { return this.createIndex(keys, options); }
    createIndexes(all, options, commitQuorum) {
      if (!Array.isArray(all) || all.length === 0) throw invalid('createIndexes needs an array of keys');
      const indexes = all.map((keys) => {
        const key = keysOf(keys);
        return { name: indexName(key), ...options, key };
      });
      this.run({ createIndexes: this.#name, indexes, commitQuorum });
      return indexes.map(({ name }) => name);
    }
    getIndexes() {
      return new AggregationCursor(this.#database.getName(), this.#name, { listIndexes: this.#name }).toArray();
    }
    getIndexKeys() { return this.getIndexes().map(({ key }) => key); }
    getIndices() { return this.getIndexes(); }
    dropIndex(index) {
      if (index === '*') throw invalid("To drop indexes in the collection using '*', use db.collection.dropIndexes().");
      return this.dropIndexes(index);
    }
    dropIndexes(index = '*') { return this.run({ dropIndexes: this.#name, index }); }
    #hide(index, hidden) {
      const named = typeof index === 'string' ? { name: index } : { keyPattern: index };
      return this.run({ collMod: this.#name, index: { ...named, hidden } });
    }
    hideIndex(index) { return this.#hide(index, true); }
    unhideIndex(index) { return this.#hide(index, false); }
    reIndex() { return this.run({ reIndex: this.#name }); }

    drop(options) {
      const reply = shell.execute(this.#database.getName(), { drop: this.#name, ...options });
      if (Number(reply.ok) === 1) return true;
      if (reply.code === 26) return false;
      throw new shell.MongoServerError(reply);
    }
    exists() { return this.#database.getCollectionInfos({ name: this.#name })[0] ?? null; }
    renameCollection(name, dropTarget = false) {
      const of = (collection) => `${this.#database.getName()}.${collection}`;
      return this.#database.adminCommand({ renameCollection: of(this.#name), to: of(name), dropTarget });
    }
    convertToCapped(size) { return this.run({ convertToCapped: this.#name, size }); }
    runCommand(command, options) {
      const of = typeof command === 'string' ? { [command]: this.#name, ...options } : command;
      return this.run(of);
    }
    validate(full = false) {
      return this.run({ validate: this.#name, ...(isObject(full) ? full : { full: Boolean(full) }) });
    }
    stats(options) {
      const given = typeof options === 'number' ? { scale: options } : options;
      return this.run({ collStats: this.#name, ...pick(given, ['scale']) });
    }
    dataSize() { return this.stats().size; }
    storageSize() { return this.stats().storageSize; }
    totalIndexSize() { return this.stats().totalIndexSize; }
    totalSize() {
      const { storageSize, totalIndexSize } = this.stats();
      return storageSize + totalIndexSize;
    }
    isCapped() { return this.stats().capped; }
    getPlanCache() { return missing('db.collection.getPlanCache()'); }
    mapReduce() { return missing('db.collection.mapReduce()'); }
    watch() { return missing('db.collection.watch()'); }
    bulkWrite(operations, options) { return shell.bulkWrite(this, operations, options); }
    initializeOrderedBulkOp() { return new shell.Bulk(this, true); }
    initializeUnorderedBulkOp() { return new shell.Bulk(this, false); }
  }

  Object.assign(shell, { Collection, identified, needOperators, needReplacement, concernOf, isPlain });
});
