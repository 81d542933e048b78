// The plots: their history, their lines, and the same numbers as tables.
"use strict";
(() => {
  const HOUR = 3600_000;
  const DASHES = [[], [7, 4], [2, 3], [11, 4, 2, 4], [4, 2], [1, 2]];
  const MAX_ROWS = 60;
  const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000];
  const history = { window: "hour", stepMs: 2000, times: [], series: new Map(), loaded: false };
  M.history = history;
  const keyOf = (name, labels) => name + JSON.stringify(labels);

  // Takes the answer of /history, or the first event.
  const take = M.takeHistory = (data) => {
    history.stepMs = data.stepMs;
    history.times = data.times;
    history.series = new Map(data.series.map((one) => [keyOf(one.name, one.labels), one.values]));
    history.loaded = true;
  };
  M.loadHistory = async (window) => {
    history.window = window;
    const answer = await fetch("/history?window=" + window);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const data = await answer.json();
    if (history.window === window) { take(data); M.drawPlots(); }
  };

  // Adds the points of an event. Days and weeks are loaded anew instead.
  M.addPoints = (data) => {
    for (const one of data.series) {
      const latest = one.values.findLast((value) => value !== null);
      M.latest.set(keyOf(one.name, one.labels), latest === undefined ? null : latest);
    }
    if (history.window !== "hour" || !history.loaded) return;
    const since = history.times.at(-1) || 0;
    data.times.forEach((time, at) => {
      if (time <= since) return;
      for (const one of data.series) {
        const key = keyOf(one.name, one.labels);
        if (!history.series.has(key)) history.series.set(key, history.times.map(() => null));
      }
      history.times.push(time);
      const given = new Map(data.series.map((one) => [keyOf(one.name, one.labels), one.values[at]]));
      for (const [key, values] of history.series) values.push(given.has(key) ? given.get(key) : null);
    });
    let old = 0;
    while (history.times[old] < Date.now() - HOUR - 60_000 && old < history.times.length - 1) old += 1;
    if (old > 60) {
      history.times.splice(0, old);
      for (const values of history.series.values()) values.splice(0, old);
    }
    M.drawPlots();
  };
  M.latest = new Map();
  M.latestOf = (name, labels) => M.latest.get(keyOf(name, labels || {}));
  const values = (name, labels) => history.series.get(keyOf(name, labels || {}));
  const line = (label, name, labels) => ({ label, values: values(name, labels) });
  const combine = (one, other, how) => one && other && one.map((value, at) =>
    value === null || other[at] === null ? null : how(value, other[at]));

  const operation = (kind) => line(kind, "mayflydb_operations_total", { kind });
  const quantile = (label, part, kind) =>
    line(label, "mayflydb_operation_latency_seconds", { kind, quantile: part });
  const PLOTS = [
    { title: "Operations per second", format: M.short,
      lines: () => ["query", "insert", "update", "delete", "getmore", "command"].map(operation) },
    { title: "Latency", format: M.duration, choices: ["reads", "writes", "commands"],
      lines: (kind) => [quantile("p50", "0.5", kind), quantile("p99", "0.99", kind), quantile("p99.9", "0.999", kind)],
      empty: "No operations of this kind yet." },
    { title: "Expired documents deleted per second", format: M.short,
      lines: () => [line("deleted", "mayflydb_ttl_deleted_documents_total")] },
    { title: "Memory by holder", format: M.bytes, lines: () => [
      line("process", "mayflydb_process_resident_memory_bytes"),
      line("block cache", "mayflydb_storage_block_cache_bytes"), line("record cache", "mayflydb_storage_record_cache_bytes"),
      line("memtables", "mayflydb_storage_memtable_bytes"),
      line("operations", "mayflydb_memory_held_bytes"), line("cursors", "mayflydb_memory_cursor_bytes")] },
    { title: "Running operations", format: M.short, lines: () => [
      line("running", "mayflydb_operations_running"), line("queued", "mayflydb_operations_queued")] },
    { title: "Connections", format: M.short, whole: true, lines: () => [line("open", "mayflydb_connections")] },
    { title: "Network per second", format: M.bytes, lines: () => [
      line("received", "mayflydb_network_received_bytes_total"), line("sent", "mayflydb_network_sent_bytes_total")] },
    { title: "Reads served by caches", format: M.percent, most: 1, optional: true, lines: () => [["blocks", "block"], ["documents", "record"]].map(
      ([label, cache]) => ({ label, values: combine(values("mayflydb_storage_cache_hits_total", { cache }),
        values("mayflydb_storage_cache_misses_total", { cache }), (hits, misses) => hits + misses > 0 ? hits / (hits + misses) : null) })) },
    { title: "Waiting for compaction", format: M.bytes, optional: true,
      lines: () => [line("pending", "mayflydb_storage_pending_compaction_bytes")] },
  ];

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (at) => style("--s" + (at % 7 + 1));
  const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  // A tick at midnight has the day, and one within a minute has seconds.
  const tickText = (ms, ticks) => {
    const at = new Date(ms), clock = M.time(ms);
    if (ticks.length > 1 && ticks[1] - ticks[0] < 60) return clock;
    return clock === "00:00:00" ? DAYS[at.getDay()] + " " + at.getDate() : clock.slice(0, 5);
  };
  const timeText = (ms) => M.time(ms, history.window !== "hour");

  // A value without neighbours is a dot, because it has no line.
  const isolated = (self, number) => {
    const all = self.data[number];
    return all.flatMap((value, at) => value !== null && value !== undefined && typeof all[at - 1] !== "number" && typeof all[at + 1] !== "number" ? [at] : []);
  };

  // A plot in an element: draw(times in ms, [{label, values}]).
  M.plotIn = (holder, options) => {
    const canvas = M.el("div", { class: "canvas" + (options.low ? " low" : ""), role: "img", "aria-label": options.title });
    const keys = M.el("ul", { class: "keys" });
    holder.append(canvas, keys);
    let plot = null, shape = "", shown = [], times = [];
    const height = () => options.low ? 130 : 168;
    const update = (at) => shown.forEach((one, number) => {
      const index = at === null || at === undefined ? one.values.findLastIndex((value) => value !== null) : at;
      const value = index < 0 ? null : one.values[index];
      M.set(keys.children[number].lastChild, value === null || value === undefined ? M.none : options.format(value));
    });
    const make = () => {
      const [soft, grid] = [style("--soft"), style("--grid")];
      const font = "11px " + getComputedStyle(document.body).fontFamily;
      const axis = { stroke: soft, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
      plot = new uPlot({
        width: Math.max(canvas.clientWidth, 120), height: height(), legend: { show: false },
        padding: [8, 8, 0, 0], cursor: { drag: { x: false, y: false }, points: { size: 6 }, y: false },
        scales: { y: { range: (self, least, most) => [0, options.most || (most > 0 ? most * 1.1 : 1)] } },
        axes: [{ ...axis, size: 26, space: 76, values: (self, ticks) => ticks.map((tick) => tickText(tick * 1000, ticks)) },
          { ...axis, size: 58, space: 34, incrs: options.whole ? WHOLE : undefined, values: (self, ticks) => ticks.map((tick) => options.format(tick)) }],
        series: [{}, ...shown.map((one, at) => ({
          label: one.label, stroke: colour(at), width: 1.6, dash: DASHES[at % DASHES.length],
          points: { show: true, size: 4, fill: colour(at), filter: isolated },
          spanGaps: false, fill: shown.length === 1 ? colour(at) + "1f" : undefined }))],
        hooks: { setCursor: [(self) => update(self.cursor.idx)] },
      }, [times.map((time) => time / 1000), ...shown.map((one) => one.values)], canvas);
    };
    const draw = (newTimes, lines) => {
      times = newTimes;
      shown = lines.filter((one) => one.values && one.values.some((value) => value !== null));
      const newShape = shown.map((one) => one.label).join("\n");
      if (shown.length === 0 || times.length < 2) {
        if (plot) { plot.destroy(); plot = null; }
        return false;
      }
      if (!plot || newShape !== shape) {
        if (plot) plot.destroy();
        shape = newShape;
        keys.replaceChildren(...shown.map((one, at) => M.el("li", {},
          M.svg("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" }, M.svg("path", {
            d: "M0 4h18", stroke: colour(at), "stroke-width": "2", "stroke-dasharray": DASHES[at % DASHES.length].join(" ") })),
          M.el("span", { text: one.label }), M.el("b", {}))));
        make();
      } else {
        plot.setData([times.map((time) => time / 1000), ...shown.map((one) => one.values)]);
      }
      update(plot.cursor.idx);
      return true;
    };
    new ResizeObserver(() => {
      if (plot && canvas.clientWidth > 0) plot.setSize({ width: canvas.clientWidth, height: height() });
    }).observe(canvas);
    const redraw = () => { shape = ""; if (plot) draw(times, shown); };
    return { draw, redraw, canvas, keys };
  };

  // The table of a plot, the latest point first.
  const table = (title, format, times, lines) => {
    const step = Math.max(1, Math.ceil(times.length / MAX_ROWS));
    const rows = [];
    for (let at = times.length - 1; at >= 0; at -= step) {
      rows.push(M.el("tr", {}, M.el("th", { scope: "row", class: "nowrap", text: timeText(times[at]) }),
        ...lines.map((one) => M.el("td", { class: "number", text: one.values[at] === null ? M.none : format(one.values[at]) }))));
    }
    return M.el("table", { "aria-label": title },
      M.el("thead", {}, M.el("tr", {}, M.el("th", { scope: "col", text: "Time" }),
        ...lines.map((one) => M.el("th", { scope: "col", class: "number", text: one.label })))),
      M.el("tbody", {}, ...rows));
  };

  const cards = [];
  const card = (row) => {
    const empty = M.el("p", { class: "empty", text: "Loading …" });
    const chosen = { value: row.choices ? row.choices[0] : "" };
    const tools = M.el("div", { class: "actions" });
    if (row.choices) {
      tools.append(M.el("select", { "aria-label": "Kind of operations", on: { change: (event) => { chosen.value = event.target.value; one.draw(); } } },
        ...row.choices.map((kind) => M.el("option", { value: kind, text: kind }))));
    }
    const toggle = M.el("button", { type: "button", class: "quiet small", "aria-pressed": "false", "aria-label": row.title + " as a table", text: "Table" });
    tools.append(toggle);
    const numbers = M.el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": row.title + ", table", hidden: true });
    const holder = M.el("article", { class: "plot" }, M.el("div", { class: "top" }, M.el("h3", { text: row.title }), tools), empty);
    const plot = M.plotIn(holder, row);
    holder.append(numbers);
    let isTable = false;
    const one = { row, holder, redraw: plot.redraw, draw: () => {
      const lines = row.lines(chosen.value).filter((it) => it.values && it.values.some((value) => value !== null));
      const isDrawn = plot.draw(history.times, lines);
      empty.hidden = isDrawn;
      plot.canvas.hidden = !isDrawn || isTable;
      plot.keys.hidden = !isDrawn || isTable;
      numbers.hidden = !isDrawn || !isTable;
      M.set(empty, M.plotsError || (!history.loaded ? "Loading …"
        : history.times.length < 2 ? "The plots begin in a few seconds." : row.empty || "No values in this span of time."));
      if (isDrawn && isTable && !numbers.matches(":focus-within, :hover")) {
        numbers.replaceChildren(table(row.title, row.format, history.times, lines));
      }
      return isDrawn;
    } };
    toggle.addEventListener("click", () => {
      isTable = !isTable;
      toggle.setAttribute("aria-pressed", String(isTable));
      M.set(toggle, isTable ? "Plot" : "Table");
      toggle.setAttribute("aria-label", row.title + (isTable ? " as a plot" : " as a table"));
      one.draw();
    });
    return one;
  };

  M.drawPlots = () => {
    if (document.hidden) return;
    for (const one of cards) {
      const isDrawn = one.draw();
      // An engine without these figures has no such plots.
      if (one.row.optional) one.holder.hidden = !isDrawn;
    }
  };
  M.redrawPlots = () => { for (const one of cards) one.redraw(); };
  M.beginPlots = () => {
    for (const row of PLOTS) cards.push(card(row));
    document.getElementById("plots").append(...cards.map((one) => one.holder));
    document.addEventListener("visibilitychange", M.drawPlots);
  };

  // The line of a policy in its row of the table: due documents in the last hour.
  M.sparkline = (points) => {
    if (points.length < 2) return null;
    const [first, last] = [points[0][0], points.at(-1)[0]];
    const most = Math.max(1, ...points.map((point) => point[1]));
    const at = ([time, due]) => [(time - first) / (last - first) * 100, 24 - due / most * 22];
    const path = points.map((point) => at(point).map((it) => it.toFixed(1)).join(" ")).join("L");
    const least = Math.min(...points.map((point) => point[1]));
    return M.svg("svg", { class: "line", viewBox: "0 0 100 26", preserveAspectRatio: "none", role: "img",
      "aria-label": "Due in the last hour: from " + M.count(least) + " to " + M.count(most === 1 && least === 0 ? Math.max(...points.map((p) => p[1])) : most) },
      M.svg("path", { class: "area", d: "M0 26L" + path + "L100 26Z" }), M.svg("path", { d: "M" + path }));
  };
})();
