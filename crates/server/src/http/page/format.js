// Numbers and times as text, elements, requests, and the theme.
"use strict";
const M = {};

(() => {
  const grouped = new Intl.NumberFormat("en-US");
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const scaled = (value, step, units) => {
    let at = 0, rest = Math.abs(value);
    while (rest >= step * 0.9995 && at < units.length - 1) { rest /= step; at += 1; }
    const digits = at === 0 && Number.isInteger(value) ? 0 : rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
    const text = rest.toFixed(digits);
    const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
    return (value < 0 ? "-" : "") + short + units[at];
  };

  M.none = "–";
  M.count = (value) => isNumber(value) ? grouped.format(Math.round(value)) : M.none;
  M.short = (value) => {
    if (!isNumber(value)) return M.none;
    return Math.abs(value) < 10_000 && Number.isInteger(value)
      ? grouped.format(value) : scaled(value, 1000, ["", " K", " M", " G", " T"]);
  };
  M.bytes = (value) => isNumber(value)
    ? scaled(value, 1000, [" B", " kB", " MB", " GB", " TB", " PB"]) : M.none;
  M.percent = (value) => isNumber(value) ? scaled(value * 100, 1e9, [" %"]) : M.none;
  M.rate = (value) => isNumber(value) ? M.short(value) + "/s" : M.none;

  // A duration in seconds, in at most two units.
  M.duration = (secs) => {
    if (!isNumber(secs)) return M.none;
    if (secs < 0) return "-" + M.duration(-secs);
    if (secs === 0) return "0 s";
    if (secs < 1e-3) return scaled(secs * 1e6, 1e9, [" µs"]);
    if (secs < 1) return scaled(secs * 1e3, 1e9, [" ms"]);
    if (secs < 10 && !Number.isInteger(secs)) return scaled(secs, 1e9, [" s"]);
    const units = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
    let rest = Math.round(secs), parts = [];
    for (const [unit, size] of units) {
      const whole = Math.floor(rest / size);
      if (whole > 0 || (unit === "s" && parts.length === 0)) parts.push(grouped.format(whole) + " " + unit);
      else if (parts.length > 0) break;
      rest -= whole * size;
      if (parts.length === 2) break;
    }
    return parts.join(" ");
  };
  M.ago = (ms, now) => isNumber(ms) ? M.duration(Math.max(0, Math.round(((now || Date.now()) - ms) / 1000))) + " ago" : M.none;
  const two = (value) => String(value).padStart(2, "0");
  M.time = (ms, withDay) => {
    const at = new Date(ms);
    const clock = two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds());
    return withDay ? at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + clock : clock;
  };
  M.plural = (count, one, many) => M.count(count) + " " + (count === 1 ? one : many);

  // An element. Text from the server is only ever set as text.
  M.el = (tag, options, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(options || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") made.textContent = value;
      else if (name === "class") made.className = value;
      else if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };
  M.svg = (tag, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  // Shapes of states: the shape and the word distinguish states, not the colour alone.
  const shapes = {
    good: "M3 8.5l3.2 3.2L13 5", warn: "M8 2.5l6 11H2z", bad: "M3 3h10v10H3z", pause: "M5.5 3v10M10.5 3v10",
    idle: "M8 3a5 5 0 1 0 .01 0z", held: "M4 14V2.5h8l-2 3 2 3H4",
  };
  M.icon = (kind) => M.svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" },
    M.svg("path", { d: shapes[kind] || shapes.idle }));
  M.set = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  M.post = (path, body) => fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-MayflyDB": "1" },
    body: JSON.stringify(body),
  });

  // The theme: that of the system, or the one that was chosen.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themes = ["auto", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  M.theme = themes.includes(stored()) ? stored() : "auto";
  M.applyTheme = () => {
    document.documentElement.dataset.theme = M.theme === "auto" ? (dark.matches ? "dark" : "light") : M.theme;
  };
  M.nextTheme = () => {
    M.theme = themes[(themes.indexOf(M.theme) + 1) % themes.length];
    try { localStorage.setItem("theme", M.theme); } catch { /* The choice lasts until the page is closed. */ }
    M.applyTheme();
  };
  dark.addEventListener("change", () => { M.applyTheme(); if (M.redraw) M.redraw(); });
  M.applyTheme();
})();
