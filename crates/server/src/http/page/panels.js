// The panels: each takes the data of its events and shows it.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const panel = (id) => ({ body: byId(id).querySelector(".body"), note: byId(id + "-note") });
  const badge = (kind, icon, text) => M.el("span", { class: "badge " + kind }, M.icon(icon), text);
  const empty = (...content) => M.el("p", { class: "empty" }, ...content);
  const code = (text) => M.el("code", { text });

  // A panel that the user has no right to, or that failed.
  M.showProblem = (id, content) => {
    const text = content.right
      ? "You lack the right to see this: " + content.right + "."
      : "This could not be read: " + content.error;
    const target = byId(id);
    if (!target) return;
    target.querySelector(".body").replaceChildren(empty(text));
  };

  // A table whose rows keep their elements while their content changes, so that the keyboard's focus stays.
  // A column: { label, number, wide, fill(cell, item) }.
  const tableIn = (holder, name, columns, isStacked) => {
    const body = M.el("tbody");
    const head = M.el("tr", {}, ...columns.map((one) =>
      M.el("th", { scope: "col", class: one.number ? "number" : null }, one.label || M.el("span", { class: "skip", text: "Actions" }))));
    const table = M.el("table", { "aria-label": name, class: isStacked ? "stacked" : null }, M.el("thead", {}, head), body);
    holder.replaceChildren(M.el("div", { class: "scroll" }, table));
    const rows = new Map();
    return (items, key, detail) => {
      const wanted = [], seen = new Set();
      for (const item of items) {
        const id = key(item);
        seen.add(id);
        let row = rows.get(id);
        if (!row) {
          row = M.el("tr", {}, ...columns.map((one) => M.el("td", {
            class: [one.number ? "number" : "", one.wide ? "wide" : ""].join(" ").trim() || null, "data-label": one.label })));
          rows.set(id, row);
        }
        columns.forEach((one, at) => one.fill(row.children[at], item));
        wanted.push(row);
        const more = detail && detail(id, item);
        if (more) wanted.push(more);
      }
      for (const id of rows.keys()) if (!seen.has(id)) rows.delete(id);
      wanted.forEach((row, at) => { if (body.children[at] !== row) body.insertBefore(row, body.children[at] || null); });
      while (body.children.length > wanted.length) body.lastChild.remove();
      holder.firstChild.tabIndex = holder.firstChild.scrollWidth > holder.firstChild.clientWidth ? 0 : -1;
    };
  };
  const text = (of) => (cell, item) => M.set(cell, of(item));
  // Builds a cell anew only if what it shows has changed.
  const built = (of, how) => (cell, item) => {
    const state = JSON.stringify(of(item));
    if (cell.dataset.state === state) return;
    cell.dataset.state = state;
    cell.replaceChildren(...[].concat(how(item)).filter(Boolean));
  };
  const twoLines = (one, other) => built((item) => [one(item), other(item)],
    (item) => [one(item), other(item) ? M.el("span", { class: "sub", text: other(item) }) : null]);

  // --- policies ---
  const nameOf = (policy) => policy.ns + " (" + policy.index + ")";
  const skippedHeld = (policy) => (policy.skipped && policy.skipped.held) || 0;
  const dueText = (policy) => (policy.dueIsLimit ? "≥ " : "") + M.count(policy.due);
  const etaText = (policy) => policy.due === 0 ? M.none
    : policy.etaSecs === null || policy.etaSecs === undefined ? "not while stopped"
    : (policy.dueIsLimit ? "≥ " : "") + M.duration(Math.max(1, Math.round(policy.etaSecs)));
  // The states of policies that are no good news: kind and shape.
  const states = { suspended: ["bad", "bad"], paused: ["idle", "pause"], "monitor off": ["idle", "pause"], failing: ["bad", "bad"],
    behind: ["warn", "warn"], held: ["idle", "held"], never: ["idle", "idle"] };
  const opened = new Map();
  let drawPolicies = null, policies = [];

  const actions = (policy) => {
    if (M.server && M.server.readOnly) return [];
    const act = policy.paused ? "continue" : "pause";
    const label = policy.paused ? "Continue" : "Pause";
    return [M.el("button", { type: "button", class: "small", "aria-label": label + " " + nameOf(policy), text: label,
      on: { click: () => M.ask(policy.paused ? "Continue to expire " + policy.ns + "?" : "Pause " + nameOf(policy) + "?",
        policy.paused ? "Due documents are deleted from now on." :
          "The policy stays, but deletes nothing until it continues. Due documents that were hidden become visible again.",
        label, () => M.act(act, { ns: policy.ns, index: policy.index })) } })];
  };
  const toggle = (policy) => {
    const id = nameOf(policy);
    const button = M.el("button", { type: "button", class: "open", "aria-expanded": String(opened.has(id)), text: policy.ns,
      on: { click: () => {
        if (opened.has(id)) opened.delete(id); else opened.set(id, detail(policy));
        button.setAttribute("aria-expanded", String(opened.has(id)));
        M.showPolicies();
      } } });
    return button;
  };
  const policyColumns = [
    { label: "Policy", fill: built((policy) => [policy.ns, policy.index, policy.kind],
      (policy) => [toggle(policy), M.el("span", { class: "sub", text: policy.index + (policy.kind === "index" ? "" : " · " + policy.kind) })]) },
    { label: "State", fill: built((policy) => policy.state, (policy) => [badge(...(states[policy.state] || ["good", "good"]), policy.state)]) },
    { label: "Expires after", number: true, fill: text((policy) => policy.expireAfterSeconds < 0 ? "own ttl" : M.duration(policy.expireAfterSeconds)) },
    { label: "Due", number: true, fill: text(dueText) },
    { label: "Oldest due", number: true, fill: text((policy) => policy.oldestOverdueSecs === null ? M.none : M.duration(Math.round(policy.oldestOverdueSecs)) + " ago") },
    { label: "Deleted a minute", number: true, fill: text((policy) => M.count(policy.ratePerSec * 60)) },
    { label: "Time left", number: true, fill: text(etaText) },
    { label: "Pace", number: true, fill: text((policy) => policy.maxDocsPerSec ? "≤ " + M.short(policy.maxDocsPerSec) + "/s"
      : policy.maxBytesPerSec ? "≤ " + M.bytes(policy.maxBytesPerSec) + "/s" : "free") },
    { label: "Due, last hour", fill: built((policy) => policy.line, (policy) =>
      [M.sparkline(policy.line) || M.el("span", { class: "note", text: "in a minute" })]) },
    { label: "", fill: built((policy) => [policy.paused, policy.ns, policy.index, M.server && M.server.readOnly], actions) },
  ];

  // The opened row of a policy: its plots, its figures, and the census.
  const detail = (policy) => {
    const due = M.el("div", {}, M.el("h3", { text: "Due documents, last hour" }));
    const rate = M.el("div", {}, M.el("h3", { text: "Deleted per second, last hour" }));
    const plots = [M.plotIn(due, { title: "Due documents of " + nameOf(policy), format: M.short, low: true }),
      M.plotIn(rate, { title: "Deletions of " + nameOf(policy), format: M.short, low: true })];
    const facts = M.el("dl", { class: "facts" }), result = M.el("div", { role: "status" });
    const census = M.el("button", { type: "button", class: "small", text: "What does it never delete?",
      on: { click: () => M.census(policy, result) } });
    const right = M.el("div", {}, facts, policy.kind === "index" ? M.el("p", { class: "actions" }, census) : null, result);
    const wait = M.el("p", { class: "note", text: "The history of this policy begins in a minute." });
    const row = M.el("tr", { class: "detail" }, M.el("td", { colspan: policyColumns.length },
      M.el("div", { class: "grid" }, M.el("div", {}, wait, due, rate), right)));
    const update = (now) => {
      const items = [
        ["Deleted since the start", M.count(now.deleted)],
        ["Next due", now.nextDue === null ? M.none : M.time(now.nextDue, true)],
        ["Held", M.count(skippedHeld(now))],
        ["Refreshed before deletion", M.count((now.skipped && now.skipped.refreshed) || 0)],
        ["Kept for the log", now.retired ? M.bytes(now.retired.bytes) : M.none],
        ["Last error", now.lastError || "none"],
      ];
      facts.replaceChildren(...items.flatMap(([name, value]) => [M.el("dt", { text: name }), M.el("dd", { text: value })]));
      const times = now.line.map((point) => point[0]), has = times.length >= 2;
      wait.hidden = has;
      due.hidden = rate.hidden = !has;
      plots[0].draw(times, [{ label: "due", values: now.line.map((point) => point[1]) }]);
      plots[1].draw(times, [{ label: "deleted", values: now.line.map((point) => point[2]) }]);
    };
    return { row, update, redraw: () => plots.forEach((plot) => plot.redraw()) };
  };
  M.redrawDetails = () => { for (const one of opened.values()) one.redraw(); };

  M.census = async (policy, result) => {
    M.set(result, "Counting …");
    const answer = await M.tryAct("census", { ns: policy.ns, index: policy.index });
    if (answer.problem) { M.set(result, answer.problem); return; }
    const never = answer.reply.never || {};
    const items = [["Due now", M.count(answer.reply.dueNow)]];
    if (never.missing) items.push(["Without the field, never deleted", M.count(never.missing)]);
    for (const [type, count] of Object.entries(never.wrongType || {})) items.push(["With a " + type + ", never deleted", M.count(count)]);
    if (items.length === 1) items.push(["Never deleted", "none"]);
    result.replaceChildren(M.el("dl", { class: "facts" },
      ...items.flatMap(([name, value]) => [M.el("dt", { text: name }), M.el("dd", { text: value })])));
  };

  M.showPolicies = (data) => {
    if (data) {
      policies = data.policies;
      M.rightOfPolicies = null;
      M.mood = data.mood;
      M.sentence = data.sentence;
      M.suspended = data.suspended;
      M.full = data.full;
      M.totals = data.totals;
      M.omitted = data.omitted;
      M.policies = policies;
    }
    const { body, note } = panel("policies");
    M.set(note, policies.length === 0 ? "" : M.plural(M.totals.policies, "policy", "policies")
      + (M.omitted > 0 ? ", the " + M.count(policies.length) + " with the most lag are shown" : ", those with the most lag first"));
    if (policies.length === 0) {
      drawPolicies = null;
      body.replaceChildren(empty("No collection has a TTL policy. An index makes one: ",
        code("db.sessions.createIndex({ at: 1 }, { expireAfterSeconds: 3600 })"), " deletes each document an hour after its date ", code("at"), "."));
      return;
    }
    if (!drawPolicies) drawPolicies = tableIn(body, "Expiry policies", policyColumns, true);
    drawPolicies(policies, nameOf, (id, policy) => {
      const one = opened.get(id);
      if (one) one.update(policy);
      return one && one.row;
    });
  };

  // --- running operations ---
  let drawOperations = null;
  M.showOperations = (data) => {
    const { body, note } = panel("operations");
    M.set(note, data.total > data.operations.length ? "the " + data.operations.length + " longest of " + M.count(data.total) : "");
    if (data.operations.length === 0) {
      drawOperations = null;
      body.replaceChildren(empty("Nothing is running at this moment."));
      return;
    }
    if (!drawOperations) {
      const columns = [
        { label: "Operation", fill: twoLines((op) => op.op + (op.ns ? " on " + op.ns : ""), (op) => op.client || op.desc || "") },
        { label: "Running for", number: true, fill: text((op) => M.duration((op.micros || 0) / 1e6)) },
        { label: "Plan", fill: text((op) => op.plan || "") },
        { label: "Command", wide: true, fill: built((op) => [op.command, op.msg], (op) =>
          [M.el("span", { class: "mono clamp", title: op.command, text: op.command || op.msg || "" })]) },
        { label: "", fill: built((op) => [op.opid, op.killPending, M.server && M.server.readOnly], (op) =>
          op.killPending ? [M.el("span", { class: "note", text: "is ending" })]
          : !op.opid || (M.server && M.server.readOnly) ? []
          : [M.el("button", { type: "button", class: "small", "aria-label": "End operation " + op.opid, text: "End",
            on: { click: () => M.ask("End operation " + op.opid + "?", op.op + " on " + op.ns + " fails with the error Interrupted. A batch that it has already written stays.",
              "End it", () => M.act("kill", { opid: op.opid })) } })]) },
      ];
      drawOperations = tableIn(body, "Running operations", columns, true);
    }
    drawOperations(data.operations, (op) => op.opid || op.desc + op.client);
  };

  // --- slow queries ---
  M.showShapes = (data) => {
    const { body } = panel("shapes");
    if (data.shapes.length === 0) {
      body.replaceChildren(empty("No slow query since the start. An operation is slow when it takes longer than ", code("slowms"), "."));
      return;
    }
    const metrics = (shape) => shape.metrics || {}, sum = (spread) => (spread && spread.sum) || 0;
    const query = (shape) => (shape.key && shape.key.queryShape) || {};
    const shapeText = (shape) => { const { cmdNs, ...rest } = query(shape); return JSON.stringify(rest); };
    const ns = (shape) => { const at = query(shape).cmdNs || {}; return at.db ? at.db + "." + at.coll : ""; };
    const suggested = (shape) => shape.suggestedIndex ? JSON.stringify(shape.suggestedIndex.key || shape.suggestedIndex) : "";
    const columns = [
      { label: "Collection", fill: twoLines(ns, (shape) => metrics(shape).planSummary) },
      { label: "Query", wide: true, fill: built(shapeText, (shape) => [M.el("span", { class: "mono clamp", title: shapeText(shape), text: shapeText(shape) })]) },
      { label: "Slow runs", number: true, fill: text((shape) => M.count(metrics(shape).slowExecCount)) },
      { label: "Total time", number: true, fill: text((shape) => M.duration(sum(metrics(shape).totalExecMicros) / 1e6)) },
      { label: "Longest", number: true, fill: text((shape) => M.duration(((metrics(shape).totalExecMicros || {}).max || 0) / 1e6)) },
      { label: "Examined", number: true, fill: text((shape) => M.short(sum(metrics(shape).docsExamined))) },
      { label: "Returned", number: true, fill: text((shape) => M.short(sum(metrics(shape).docsReturned))) },
      { label: "Suggested index", fill: built(suggested, (shape) => suggested(shape) ? [M.el("code", { text: suggested(shape) })] : [M.none]) },
    ];
    tableIn(body, "Slow queries", columns, true)(data.shapes, shapeText);
  };

  // --- disk ---
  const uses = ({ engine, disk, search }) => {
    const size = (...names) => names.reduce((all, name) => all + ((engine.keyspaces && engine.keyspaces[name] && engine.keyspaces[name].bytes) || 0), 0);
    const known = [["Records", size("record")], ["Indexes", size("index")], ["Operation log", size("oplog")], ["Kept for the log", size("kept")],
      ["Write-ahead log", engine.writeAheadLogBytes || 0],
      ["Temporary files", ((disk.scratch && disk.scratch.usedBytes) || 0) + (engine.scratchBytes || 0)]];
    const sum = known.reduce((all, [, bytes]) => all + bytes, 0);
    known.push(["Other data", Math.max(0, (engine.totalBytes || 0) - (engine.reserveBytes || 0) - sum)],
      ["Search indexes", (search && search.fileBytes) || 0]);
    return known.filter(([, bytes]) => bytes > 0);
  };
  M.showDisk = (data) => {
    const { body, note } = panel("disk"), disk = data.disk || {};
    data.engine = data.engine || {};
    data.disk = disk;
    const parts = uses(data), used = parts.reduce((all, [, bytes]) => all + bytes, 0);
    if (!disk.totalBytes) { body.replaceChildren(empty("The data is not on a disk of this machine.")); return; }
    const others = Math.max(0, disk.totalBytes - disk.freeBytes - used - (disk.reserveBytes || 0));
    const all = [...parts.map(([name, bytes], at) => [name, bytes, "c" + (at % 6 + 1)]),
      ["Reserve", disk.reserveBytes || 0, "c9"], ["Other programs", others, "c7"], ["Free", disk.freeBytes, "c8"]];
    M.set(note, M.bytes(used) + " of data, " + M.bytes(disk.freeBytes) + " of " + M.bytes(disk.totalBytes) + " free");
    const stack = M.el("div", { class: "stack", role: "img", "aria-label": all.map(([name, bytes]) => name + " " + M.bytes(bytes)).join(", ") });
    for (const [name, bytes, colour] of all) {
      const part = M.el("i", { class: colour, title: name + " " + M.bytes(bytes) });
      part.style.flexGrow = String(bytes);
      if (bytes > 0 && colour !== "c8") part.style.minWidth = "3px";
      stack.append(part);
    }
    const rows = all.map(([name, bytes, colour]) => M.el("tr", {},
      M.el("td", {}, M.el("span", { class: "swatch " + colour }), name), M.el("td", { class: "number", text: M.bytes(bytes) }),
      M.el("td", { class: "number", text: bytes > 0 && bytes < disk.totalBytes / 1000 ? "< 0.1 %" : M.percent(bytes / disk.totalBytes) })));
    body.replaceChildren(stack, M.el("table", { "aria-label": "Use of the disk" },
      M.el("thead", {}, M.el("tr", {}, M.el("th", { scope: "col", text: "Use" }), M.el("th", { scope: "col", class: "number", text: "Size" }),
        M.el("th", { scope: "col", class: "number", text: "Of the disk" }))), M.el("tbody", {}, ...rows)));
  };
  M.showCollections = (data) => {
    const { body, note } = panel("collections");
    if (!data || data.collections.length === 0) { body.replaceChildren(empty("There are no collections, or none that you may see.")); return; }
    const all = data.total + data.omitted;
    M.set(note, (all > data.collections.length ? "the largest " + data.collections.length + " of " + M.count(all) : M.plural(all, "collection", "collections"))
      + (data.refused > 0 ? ", " + M.count(data.refused) + " without a right" : ""));
    tableIn(body, "Collections by size", [
      { label: "Collection", fill: text((it) => it.ns) },
      { label: "Documents", number: true, fill: text((it) => M.count(it.documents)) },
      { label: "Data", number: true, fill: text((it) => M.bytes(it.bytes)) },
      { label: "Indexes", number: true, fill: text((it) => M.bytes(it.indexBytes)) },
    ], true)(data.collections, (it) => it.ns);
    const region = body.firstChild;
    region.classList.add("tall");
    region.tabIndex = 0;
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", "Table of collections");
  };
  M.showUnused = (data) => {
    const { body } = panel("unused");
    if (!data || data.unused.length === 0) {
      body.replaceChildren(empty(data && data.total > 0 ? "Every index has been used, is unique, or expires documents." : "There are no indexes, or none that you may see."));
      return;
    }
    tableIn(body, "Unused indexes", [
      { label: "Index", fill: twoLines((it) => it.index, (it) => it.ns) },
      { label: "Size", number: true, fill: text((it) => M.bytes(it.bytes)) },
    ], true)(data.unused, (it) => it.ns + " " + it.index);
  };

  // --- log and backup ---
  const severities = { W: ["warn", "warn", "warning"], E: ["bad", "bad", "error"], F: ["bad", "bad", "fatal"] };
  M.showLog = (data) => {
    const { body } = panel("log");
    const lines = data.lines.slice(0, 12), known = new Set(lines.map((line) => line.time + line.text));
    lines.push(...data.startup.filter((line) => !known.has(line.time + line.text)));
    if (lines.length === 0) { body.replaceChildren(empty("No warnings since the start.")); return; }
    body.replaceChildren(M.el("ul", { class: "lines" }, ...lines.map((line) => M.el("li", {}, badge(...severities[line.severity]),
      M.el("span", { text: line.text }),
      M.el("span", { class: "note", text: M.time(Date.parse(line.time), true) + " · " + line.component + (line.attributes ? " · " + line.attributes : "") })))));
  };
  M.showBackup = (data) => {
    const { body } = panel("backup"), items = [];
    if (data.running) items.push(["Running", "since " + M.duration((Date.now() - data.running.started) / 1000) + " to " + data.running.to]);
    if (data.last) {
      items.push(["Last backup", M.duration(data.last.ageSecs) + " ago, " + M.time(data.last.finished, true)], ["Place", data.last.to],
        ["Size", M.bytes(data.last.bytes) + ", sent " + M.bytes(data.last.sentBytes)]);
    }
    const archive = data.archive;
    if (archive) items.push(["Archive of the log", (archive.lagSecs > 0 ? M.duration(archive.lagSecs) + " behind" : "up to date") + (archive.to ? ", to " + archive.to : "")]);
    if (archive && archive.errmsg) items.push(["Error of the archive", archive.errmsg]);
    if (data.failed) items.push(["Last failure", M.ago(data.failed.at) + ": " + data.failed.errmsg]);
    const window = M.server && M.server.logWindowSecs;
    if (typeof window === "number") items.push(["The log covers", M.duration(window) + "; change streams can resume within it"]);
    if (items.length === 0) {
      body.replaceChildren(empty("There is no backup. ", code("mayflydb backup"), " makes one while the server runs."));
      return;
    }
    body.replaceChildren(M.el("dl", { class: "facts" }, ...items.flatMap(([name, value]) => [M.el("dt", { text: name }), M.el("dd", { text: value })])));
  };
})();
