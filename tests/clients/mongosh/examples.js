// The examples of the documents, as they stand there. Loaded by session.js, whose functions it uses.
//
// A comment after a statement that begins with a value is its answer: `// 0`, `// {ok: 1}`. In an answer, `...` stands for
// any value (`dueBytes: ...`) or for further fields (`{_id: 1, ...}`). Other comments are for the reader.
'use strict';

{
  const { readFileSync, unlinkSync, writeFileSync } = require('node:fs');
  const vm = require('node:vm');
  const DOCUMENTS = '../../../docs/';
  // Fields that a server adds to every reply.
  const ADDED = ['$clusterTime', 'operationTime'];
  const ANY = '\u0000any';
  const REST = '\u0000rest';

  const parses = code => {
    try {
      new vm.Script(code);
      return true;
    } catch {
      return false;
    }
  };

  /** The value of an answer; undefined for a comment that is none. */
  const answer = comment => {
    const text = comment
      .replace(/ISODate\(\.\.\.\)/g, '...')
      .replace(/: \.\.\.(?=\s*[,}\]])/g, ': ANY')
      .replace(/\.\.\.(?=\s*\})/g, '[REST]: 1');
    if (!/^([\d"{[-]|(true|false|null)\b)/.test(text)) return undefined;
    const value = text.split(/;(?= )/)[0];
    assert.ok(parses(`(${value})`), `not an answer: ${comment}`);
    return vm.runInNewContext(`(${value})`, { ANY, REST });
  };

  /** Statements of a block, each with the answer in the comments after it. */
  const statements = block => {
    const found = [];
    let code = [];
    for (const line of block.split('\n').filter(line => line.trim() !== '')) {
      const comment = line.trim().match(/^\/\/ (.*)$/)?.[1];
      if (comment !== undefined && code.length === 0) {
        found[found.length - 1].comments.push(comment);
        continue;
      }
      code.push(line);
      if (parses(code.join('\n'))) {
        const last = line.match(/ \/\/ (.*)$/)?.[1];
        const comments = last !== undefined && answer(last) !== undefined ? [last] : [];
        found.push({ code: code.join('\n'), comments });
        code = [];
      }
    }
    assert.equal(code.length, 0, `not a statement: ${code.join('\n')}`);
    return found;
  };

  const plain = value => EJSON.parse(EJSON.stringify(value?.toArray ? value.toArray() : value), { relaxed: true });

  /** Whether a value is the one of an answer. */
  const matches = (found, expected) => {
    if (expected === ANY) return found !== undefined;
    if (expected === null || typeof expected !== 'object') return found === expected;
    if (found === null || typeof found !== 'object') return false;
    const names = Object.keys(expected).filter(name => name !== REST);
    const known = Object.keys(found).filter(name => !ADDED.includes(name));
    return (REST in expected || known.length === names.length)
      && names.every(name => name in found && matches(found[name], expected[name]));
  };

  globalThis.answered = (code, found, expected) => {
    assert.ok(matches(plain(found), expected), `${code}\n  answers ${EJSON.stringify(found)}`);
  };

  /** Runs all blocks of a page in mongosh; returns how many statements and answers there were. */
  globalThis.runExamples = page => {
    const blocks = [...readFileSync(DOCUMENTS + page, 'utf8').matchAll(/^ *```js\n(.*?)^ *```/gms)];
    const all = blocks.flatMap(([, block]) => statements(block));
    let answers = 0;
    const lines = all.map(({ code, comments }) => {
      const expected = comments.length > 0 ? answer(comments.join(' ')) : undefined;
      if (expected === undefined) return code;
      answers += 1;
      const value = code.replace(/ \/\/ [^\n]*$/, '').replace(/;$/, '');
      return `answered(${JSON.stringify(value)}, ${value}, ${JSON.stringify(expected)});`;
    });
    const file = `${require('node:os').tmpdir()}/examples-${process.pid}.js`;
    writeFileSync(file, ["const passwordPrompt = () => 'secret';", ...lines].join('\n'));
    try {
      load(file);
    } finally {
      unlinkSync(file);
    }
    return { statements: all.length, answers };
  };

  check('the examples of docs/expiry.md', () => {
    use('examples_expiry');
    db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 1 });
    const { statements, answers } = runExamples('expiry.md');
    assert.ok(statements >= 12 && answers >= 5, `${statements} statements, ${answers} answers`);
    assert.equal(db.getCollectionInfos({ name: 'visits' }).length, 1);
    db.dropDatabase();
    use('clients_mongosh');
  });

  check('the examples of docs/configuration.md', () => {
    use('examples_configuration');
    db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 60 });
    const { statements, answers } = runExamples('configuration.md');
    assert.ok(statements >= 7 && answers >= 3, `${statements} statements, ${answers} answers`);
    db.adminCommand({ setParameter: 1, ttlMonitorSleepSecs: 1 });
    db.getSiblingDB('admin').dropUser('root');
    db.getSiblingDB('$external').dropUser('CN=ann,OU=shop,O=Example');
    use('clients_mongosh');
  });

  check('the examples of docs/security.md', () => {
    const { statements } = runExamples('security.md');
    assert.ok(statements >= 4, `${statements} statements`);
    const roles = (database, user) => db.getSiblingDB(database).getUser(user).roles;
    same(roles('admin', 'root'), [{ role: 'root', db: 'admin' }]);
    same(roles('shop', 'web'), [{ role: 'readWrite', db: 'shop' }]);
    db.getSiblingDB('admin').dropUser('root');
    db.getSiblingDB('shop').dropUser('web');
    use('clients_mongosh');
  });
}
