// The page: the first sentence, the figures, the events from the server, and actions.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  // --- the sentence ---
  const showSentence = () => {
    const heading = byId("sentence"), right = M.rightOfPolicies;
    const icon = right ? "idle" : M.mood, kind = icon === "pause" ? "warn" : icon;
    const text = right ? "You lack the right to see expiry: " + right + "." : M.sentence;
    if (!text) return;
    const state = kind + icon + text;
    if (heading.dataset.state === state) return;
    heading.dataset.state = state;
    heading.className = "";
    heading.replaceChildren(M.el("span", { class: kind }, M.icon(icon)), M.el("span", { text }));
    document.title = (kind === "good" || kind === "idle" ? "" : "! ") + "MayflyDB " + ((M.server && M.server.host) || "");
  };

  const notice = (kind, icon, text, ...more) => M.el("li", { class: kind }, M.icon(icon), M.el("span", { class: "grow", text }), ...more);
  const showNotices = () => {
    const server = M.server || {}, items = [];
    if (M.suspended) {
      const resume = server.readOnly ? null : M.el("button", { type: "button", text: "Resume expiry", on: { click: () => M.ask("Resume expiry?",
        "The clock is accepted as it is, and all due documents are deleted.", "Resume", () => M.act("resume", {})) } });
      items.push(["suspended", () => notice("bad", "pause", "Nothing is deleted" + (M.suspended.since ? " since " + M.time(M.suspended.since, true) : "")
        + (M.suspended.offByMillis ? ". The clock is off by " + M.duration(Math.round(M.suspended.offByMillis / 1000)) : "")
        + ". Check the clock, then resume.", resume)]);
    }
    const disk = server.diskSpace || {};
    if (M.full) items.push(["full", () => notice("bad", "bad", "Inserts and updates are refused until there is space: " + M.bytes(disk.freeBytes) + " are free.")]);
    const ends = server.certificateEndsMs, days = ends ? (ends - Date.now()) / 86_400_000 : 99;
    if (days < 30) items.push(["certificate", () => notice("warn", "warn", days <= 0 ? "The server's certificate has expired." : "The server's certificate expires in " + M.plural(Math.ceil(days), "day", "days") + ".")]);
    if (M.lost) items.push(["lost", () => notice("warn", "warn", "The server does not answer. The page shows what it last knew, and tries again.")]);
    const list = byId("notices"), state = items.map(([name]) => name).join() + JSON.stringify([M.suspended, M.full && disk.freeBytes, server.readOnly]);
    if (list.dataset.state === state) return;
    list.dataset.state = state;
    list.replaceChildren(...items.map(([, make]) => make()));
  };

  // --- the figures ---
  const figures = [
    ["Operations per second", () => {
      const kinds = ["query", "insert", "update", "delete", "getmore", "command"];
      const all = kinds.map((kind) => M.latestOf("mayflydb_operations_total", { kind })).filter((it) => typeof it === "number");
      return [all.length === 0 ? M.none : M.short(Math.round(all.reduce((sum, it) => sum + it, 0))), "all kinds"];
    }],
    ["Latency of reads, p99", () => {
      const of = (kind) => M.latestOf("mayflydb_operation_latency_seconds", { kind, quantile: "0.99" });
      return [M.duration(of("reads")), "writes " + M.duration(of("writes"))];
    }],
    ["Connections", (server) => [M.count(server.connections && server.connections.current), M.count(server.connections && server.connections.available) + " more possible"]],
    ["Memory", (server) => [M.bytes(M.latestOf("mayflydb_process_resident_memory_bytes")), server.mem && server.mem.heap && server.mem.heap.limitBytes
      ? "limit " + M.bytes(server.mem.heap.limitBytes) : "resident"]],
    ["Free disk space", (server) => [M.bytes(server.diskSpace && server.diskSpace.freeBytes), "of " + M.bytes(server.diskSpace && server.diskSpace.totalBytes)]],
    ["Deleted by expiry", () => [M.count(M.totals && M.totals.deleted), M.rate(M.totals && Math.round(M.totals.ratePerSec)) + " now"]],
  ].map(([name, read]) => {
    const value = M.el("dd"), more = M.el("dd", { class: "sub" });
    byId("figures").append(M.el("div", {}, M.el("dt", { text: name }), value, more));
    return () => { const [one, other] = read(M.server || {}); M.set(value, one); M.set(more, other); };
  });
  const showFigures = () => figures.forEach((show) => show());

  const showServer = (server) => {
    M.server = server;
    M.set(byId("host"), server.host);
    M.set(byId("version"), "MayflyDB " + server.mayflydb + ", up for " + M.duration(Math.round(server.uptimeMillis / 1000))
      + ", engine " + ((server.storageEngine && server.storageEngine.name) || M.none) + (server.user ? ", logged in as " + server.user : "") + (server.readOnly ? ", read-only" : ""));
    byId("logout").hidden = !server.user;
    if (M.policies) M.showPolicies();
  };

  // --- actions ---
  const dialog = byId("dialog");
  M.ask = (title, text, yes, run) => {
    M.set(byId("dialog-title"), title);
    byId("dialog-body").replaceChildren(M.el("p", { text }));
    const button = byId("dialog-yes");
    M.set(button, yes);
    byId("dialog-no").hidden = false;
    button.onclick = () => { dialog.close(); run(); };
    dialog.showModal();
  };
  const tell = (title, text) => {
    M.ask(title, text, "Close", () => {});
    byId("dialog-no").hidden = true;
  };
  byId("dialog-no").addEventListener("click", () => dialog.close());
  M.tryAct = async (name, body) => {
    try {
      const answer = await M.post("/actions/" + name, body);
      if (answer.ok) return { reply: await answer.json() };
      if (answer.status === 401) location.assign("/login");
      return { problem: (await answer.text()).trim() || "The server refused the action." };
    } catch {
      return { problem: "The server does not answer." };
    }
  };
  M.act = async (name, body) => {
    const { problem } = await M.tryAct(name, body);
    if (problem) tell("That did not work", problem);
  };

  // --- events ---
  const points = (data) => {
    if (data.whole && M.history.window === "hour") M.takeHistory(data);
    M.addPoints(data);
  };
  const shows = {
    server: showServer, policies: M.showPolicies, points, operations: M.showOperations, backup: M.showBackup,
    log: M.showLog, shapes: M.showShapes, disk: M.showDisk, collections: (data) => { M.showCollections(data); M.showUnused(data); },
  };
  const live = (isLive) => {
    M.lost = !isLive;
    const node = byId("live");
    if (node.dataset.state !== String(isLive)) {
      node.dataset.state = String(isLive);
      node.replaceChildren(M.el("span", { class: isLive ? "good" : "warn" }, M.icon(isLive ? "good" : "warn")), isLive ? "Live" : "No connection");
    }
    showNotices();
  };
  const listen = () => {
    const source = new EventSource("/events");
    source.onopen = () => live(true);
    source.onerror = () => {
      live(false);
      // After a refusal the browser does not try again by itself.
      if (source.readyState === EventSource.CLOSED) {
        fetch("/history?window=hour").then((answer) => answer.status === 401 ? location.assign("/login") : setTimeout(listen, 3000))
          .catch(() => setTimeout(listen, 3000));
      }
    };
    source.addEventListener("login", () => location.assign("/login"));
    for (const [name, show] of Object.entries(shows)) {
      source.addEventListener(name, (event) => {
        const content = JSON.parse(event.data);
        if (content.data !== undefined) show(content.data);
        else problem(name, content);
        showSentence();
        showNotices();
        showFigures();
      });
    }
  };
  const problem = (name, content) => {
    if (name === "policies" && content.right) M.rightOfPolicies = content.right;
    if (name === "points") { M.plotsError = content.right ? "You lack the right to see this: " + content.right + "." : content.error; M.drawPlots(); }
    M.showProblem(name, content);
    if (name === "collections") M.showProblem("unused", content);
  };

  // --- the bar ---
  const windows = document.querySelectorAll("[data-window]");
  const load = (window) => M.loadHistory(window).catch(() => { M.history.loaded = true; M.drawPlots(); });
  windows.forEach((button) => button.addEventListener("click", () => {
    windows.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    load(button.dataset.window);
  }));
  setInterval(() => { if (M.history.window !== "hour" && !document.hidden) load(M.history.window); }, 60_000);
  const theme = byId("theme");
  const themeName = () => { M.set(theme, "Theme: " + M.theme); };
  M.redraw = () => { M.redrawPlots(); M.redrawDetails(); };
  theme.addEventListener("click", () => { M.nextTheme(); themeName(); M.redraw(); });
  byId("logout").addEventListener("click", async () => { await M.post("/logout", {}); location.assign("/login"); });

  themeName();
  M.beginPlots();
  listen();
})();
