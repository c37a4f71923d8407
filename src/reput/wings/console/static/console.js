// Add keyboard shortcuts, themes, copying, filters and charts to the pages. All pages also work without this script.
"use strict";

const inField = (target) => target.matches("input, select, textarea, [contenteditable]");
const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
const linkOf = (row) => (row.matches("a") ? row : row.querySelector(".row-link"));

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  linkOf(next)?.focus({ focusVisible: true });
  next.scrollIntoView({ block: "nearest" });
}

function follow(selector) {
  document.querySelector(selector)?.click();
}

let waitsForPlace = false;
const places = { s: "/", t: "/topics", c: "/groups", l: "/live", r: "/trace", m: "/stores" };
const actions = {
  "/": () => { const field = document.querySelector("#key, [name=key], [data-filter], main input:not([type=hidden])"); field ? (field.focus(), field.select()) : location.assign("/"); },
  j: () => move(1),
  k: () => move(-1),
  "[": () => follow("[rel=prev]"),
  "]": () => follow("[rel=next]"),
  t: () => follow("[data-trace]"),
  "?": () => document.querySelector("#help").showModal(),
  Escape: () => { const up = [...document.querySelectorAll(".crumbs a")].pop(); if (up) up.click(); },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (inField(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (waitsForPlace) {
    waitsForPlace = false;
    if (places[event.key]) location.assign(places[event.key]);
    return;
  }
  if (event.key === "g") {
    waitsForPlace = true;
    setTimeout(() => { waitsForPlace = false; }, 1200);
  } else if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

function isDark() {
  return document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-help], [data-theme-toggle], [data-zone-toggle], [data-copy], [data-copy-body]");
  if (!target) return;
  if (target.matches("[data-help]")) actions["?"]();
  if (target.matches("[data-theme-toggle]")) {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    // If storage is switched off, the choice lasts only until the next page.
    try { localStorage.setItem("reput-theme", document.documentElement.dataset.theme); } catch { /* not stored */ }
    charts.forEach((draw) => draw());
  }
  if (target.matches("[data-zone-toggle]")) {
    zone = zone === "local" ? "utc" : "local";
    try { localStorage.setItem("reput-zone", zone); } catch { /* not stored */ }
    showTimes();
  }
  if (target.matches("[data-copy]")) copy(target, JSON.parse(target.dataset.copy));
  if (target.matches("[data-copy-body]")) copyBody(target);
});

// Join pasted lines with spaces, because the field has one line and its keys are separated by spaces.
document.addEventListener("paste", (event) => {
  const pasted = event.clipboardData?.getData("text/plain") ?? "";
  if (event.target.name !== "key" || !/[\r\n]/.test(pasted)) return;
  event.preventDefault();
  event.target.setRangeText(pasted.replace(/\s+/g, " ").trim(), event.target.selectionStart, event.target.selectionEnd, "end");
});

// The server sends times in UTC. Show each time in the chosen zone, UTC or this computer's, and in the other zone beside it.
let zone = "utc";
try { zone = localStorage.getItem("reput-zone") === "local" ? "local" : "utc"; } catch { /* storage may be switched off */ }
const twoDigits = (value) => String(value).padStart(2, "0");
function localTime(moment) {
  const minutes = -moment.getTimezoneOffset();
  const offset = `${minutes < 0 ? "-" : "+"}${twoDigits(Math.floor(Math.abs(minutes) / 60))}:${twoDigits(Math.abs(minutes) % 60)}`;
  return {
    day: `${moment.getFullYear()}-${twoDigits(moment.getMonth() + 1)}-${twoDigits(moment.getDate())}`,
    time: `${twoDigits(moment.getHours())}:${twoDigits(moment.getMinutes())}:${twoDigits(moment.getSeconds())}`, offset,
  };
}
function showTimes() {
  document.querySelectorAll("time[datetime]").forEach((element) => {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) return;
    element.dataset.utc ??= element.innerHTML;
    const { day, time, offset } = localTime(moment);
    const utc = element.dateTime.replace("T", " ").replace("Z", " UTC");
    const local = `${day} ${time} UTC${offset}`;
    element.title = zone === "local" ? utc : local;
    if (zone === "local") {
      element.querySelector(".day").textContent = day;
      element.querySelector(".day").nextSibling.textContent = ` ${time}`;
    } else element.innerHTML = element.dataset.utc;
    if (element.closest(".facts") && offset !== "+00:00") {
      const beside = element.nextElementSibling?.matches(".beside") ? element.nextElementSibling : document.createElement("span");
      beside.className = "beside faint";
      beside.textContent = zone === "local" ? utc : local;
      element.after(beside);
    }
  });
  const name = zone === "local" ? `UTC${localTime(new Date()).offset}` : "UTC";
  document.querySelectorAll("[data-zone], [data-zone-toggle]").forEach((element) => { element.textContent = name; });
}
showTimes();
document.addEventListener("htmx:afterSwap", showTimes);

// A typed time without a zone is a time in the zone that the page shows. The server reads such times as UTC, so in local time
// add the zone before a form is sent. The zone belongs to that day: it changes with daylight saving time.
const withoutZone = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?))?$/;
function inShownZone(text, isEnd) {
  const parts = withoutZone.exec(text.trim());
  if (zone !== "local" || !parts) return text;
  const time = (parts[2] ?? (isEnd ? "23:59:59.999" : "00:00:00")).replace(",", ".");
  const moment = new Date(`${parts[1]}T${time}`);
  return Number.isNaN(moment.getTime()) ? text : `${parts[1]}T${time}${localTime(moment).offset}`;
}
document.addEventListener("submit", (event) => {
  event.target.querySelectorAll("input[data-time]").forEach((field) => { field.value = inShownZone(field.value, field.name === "end"); });
}, true);

// Add a date picker beside each time field. It writes the chosen time in the zone that the page shows.
document.querySelectorAll("input[data-time]").forEach((field) => {
  const picker = document.createElement("input");
  picker.type = "datetime-local";
  picker.step = "1";
  picker.className = "picker";
  picker.tabIndex = -1;
  picker.setAttribute("aria-hidden", "true");
  const open = document.createElement("button");
  open.type = "button";
  open.className = "pick";
  open.setAttribute("aria-label", `Pick a time: ${field.closest("label").querySelector("span").firstChild.textContent.trim()}`);
  open.innerHTML = '<svg viewBox="0 0 24 24" aria-hidden="true"><rect x="4" y="5" width="16" height="15" rx="2"/><path d="M4 10h16M9 3v4M15 3v4"/></svg>';
  open.addEventListener("click", () => { try { picker.showPicker(); } catch { field.focus(); } });
  picker.addEventListener("change", () => {
    if (picker.value) field.value = zone === "local" ? inShownZone(picker.value, false) : `${picker.value}Z`;
  });
  const place = document.createElement("span");
  place.className = "picking hidden-label";
  field.closest("label").after(place);
  place.append(field.closest("label"), picker, open);
});

// The live page requests new messages every two seconds, except while it is hidden.
const live = document.querySelector("[data-live]");
if (live) {
  const list = document.querySelector("[data-live-rows]");
  const state = document.querySelector("[data-live-state]");
  const pause = document.querySelector("[data-pause]");
  const most = 500;
  let address = live.dataset.live, paused = false, count = 0;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Continue" : "Pause";
    live.classList.toggle("paused", paused);
    state.textContent = paused ? "Paused" : "Watching";
  });
  const ask = async () => {
    try {
      if (paused || document.hidden) return;
      const answer = await fetch(address);
      if (!answer.ok) { state.textContent = `The server answered ${answer.status}. Trying again.`; return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = [...page.querySelectorAll("tbody tr")];
      address = page.querySelector("[data-next]").dataset.next;
      document.querySelector("[data-live-notes]").replaceChildren(...page.querySelectorAll(".notice"));
      fresh.forEach((row) => row.classList.add("fresh"));
      list.prepend(...fresh);
      [...list.children].slice(most).forEach((row) => row.remove());
      count += fresh.length;
      state.textContent = `Watching: ${count.toLocaleString("en")} new ${count === 1 ? "message" : "messages"}`;
      if (fresh.length) showTimes();
    } catch { state.textContent = "The server does not answer. Trying again."; } finally { setTimeout(ask, 2000); }
  };
  setTimeout(ask, 1000);
}

// Copy the stored value, which may differ from the shown text. Browsers offer the clipboard only to pages of HTTPS and of
// this machine. On other pages, the old command `copy` may work.
function withoutClipboard(text) {
  let done = false;
  const give = (event) => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
    event.stopImmediatePropagation();
    done = true;
  };
  document.addEventListener("copy", give, { capture: true });
  try { document.execCommand("copy"); } finally { document.removeEventListener("copy", give, { capture: true }); }
  return done;
}

async function copy(button, text) {
  const said = document.querySelector("[data-said]");  // Screen readers announce this text, but not a changed button.
  said.textContent = "";
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch { done = withoutClipboard(text); }
  if (!done) {
    const dialog = document.querySelector("#copy");
    const area = dialog.querySelector("textarea");
    area.value = text;
    dialog.showModal();
    area.select();
    return;
  }
  const label = button.textContent;
  said.textContent = (button.ariaLabel ?? label.trim()).replace(/^Copy/, "Copied");
  button.classList.add("done");
  if (label.trim()) button.textContent = "Copied";
  setTimeout(() => { button.classList.remove("done"); if (label.trim()) button.textContent = label; }, 1500);
}

async function copyBody(button) {
  const answer = await fetch(button.dataset.copyBody);
  if (!answer.ok) return;
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const hex = () => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const encoding = { hex: "hex", gb18030: "gb18030" }[button.dataset.as] ?? "utf-8";
  let text;
  try { text = encoding === "hex" ? hex() : new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(bytes); } catch { text = hex(); }
  copy(button, text);
}

document.querySelectorAll("[data-filter]").forEach((field) => {
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    document.querySelectorAll(`${field.dataset.filter} tbody tr`).forEach((row) => {
      row.hidden = !row.querySelector("td").textContent.toLowerCase().includes(wanted);
    });
  });
});

// Draw the messages over time as bars of equal periods. A drag over the chart loads shorter periods from the server.
const charts = [];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const shownTime = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 19);

function shownTicks(u, ticks, axis, space, step) {
  let day = "";
  return ticks.map((tick) => {
    const [date, time] = new Date(tick * 1000).toISOString().split("T");
    const text = step >= 86400 ? "" : step >= 60 ? time.slice(0, 5) : time.slice(0, step >= 1 ? 8 : 12);
    const isNew = date !== day;
    day = date;
    return isNew ? (text ? `${text}\n${date}` : date) : text;
  });
}

function barPaths(u, series, first, last) {
  const path = new Path2D();
  const step = u.bbox.width / u.data[0].length;
  const width = Math.max(step * 0.78, 1);
  const base = u.valToPos(0, "y", true);
  for (let n = first; n <= last; n++) {
    if (!u.data[1][n]) continue;
    const top = Math.min(u.valToPos(u.data[1][n], "y", true), base - 2);
    path.rect(u.valToPos(u.data[0][n], "x", true) - width / 2, top, width, base - top);
  }
  return { fill: path };
}

async function chart(place) {
  const address = new URL(place.dataset.chart, location.href);
  let drawn = null, volume = null;
  const tip = document.createElement("div");
  tip.className = "chart-tip";
  const list = (from, to) => {
    const target = new URL(place.dataset.list, location.href);
    target.searchParams.set("begin", from);
    target.searchParams.set("end", to);
    location.assign(target);
  };
  function draw() {
    if (!volume) return;
    drawn?.destroy();
    place.replaceChildren(tip);
    tip.hidden = true;
    const { begin_ms: begin, part_ms: part, messages } = volume;
    const middles = messages.map((_, n) => (begin + (n + 0.5) * part) / 1000);
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: `12px ${colour("--sans")}` };
    drawn = new uPlot({
      width: place.clientWidth - 40, height: 240, legend: { show: false }, padding: [8, 8, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { y: false, drag: { setScale: false }, points: { show: false } },
      scales: { x: { time: true, range: () => [begin / 1000, (begin + part * messages.length) / 1000] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.08] } },
      axes: [{ ...axis, grid: { show: false }, values: shownTicks }, { ...axis, size: 52, values: (_, ticks) => ticks.map((one) => (Number.isInteger(one) ? one.toLocaleString("en") : "")) }],
      series: [{}, { fill: colour("--accent"), paths: barPaths, points: { show: false } }],
      hooks: {
        setCursor: [(u) => {
          const n = u.cursor.idx;
          tip.hidden = n == null || u.cursor.left < 0;
          if (tip.hidden) return;
          tip.textContent = `${messages[n].toLocaleString("en")} · ${shownTime(begin + n * part)}`;
          tip.style.left = `${Math.min(u.cursor.left + 84, place.clientWidth - 260)}px`;
          tip.style.top = "14px";
        }],
        setSelect: [(u) => {
          if (u.select.width < 6) return;
          const at = (left) => Math.round(u.posToVal(left, "x") * 1000);
          zoom(at(u.select.left), at(u.select.left + u.select.width));
        }],
      },
    }, [middles, messages], place);
    drawn.over.addEventListener("dblclick", () => zoom());
    let pressed = 0;
    drawn.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    drawn.over.addEventListener("mouseup", (event) => {
      const n = drawn.cursor.idx;
      if (event.detail === 1 && Math.abs(event.clientX - pressed) < 3 && n != null && messages[n]) {
        const wait = setTimeout(() => list(begin + n * part, begin + (n + 1) * part - 1), 280);
        drawn.over.addEventListener("dblclick", () => clearTimeout(wait), { once: true });
      }
    });
  }
  function zoom(from, to) {
    if (from != null) { address.searchParams.set("begin", from); address.searchParams.set("end", to); }
    else { address.searchParams.delete("begin"); address.searchParams.delete("end"); }
    return load();
  }
  async function load() {
    const answer = await fetch(address);
    const found = await answer.json();
    if (!answer.ok) {
      const text = document.createElement("p");
      text.className = "empty slim";
      text.textContent = found.error.message;
      place.replaceChildren(text);
      return;
    }
    volume = found;
    draw();
    // Write the zoom into the page's address, so that a shared link shows the same chart.
    const here = new URL(location.href);
    for (const side of ["begin", "end"]) {
      const value = address.searchParams.get(side);
      if (value == null) here.searchParams.delete(side); else here.searchParams.set(side, value);
    }
    history.replaceState(null, "", here);
  }
  charts.push(draw);
  new ResizeObserver(() => { if (drawn && Math.abs(drawn.width - (place.clientWidth - 40)) > 2) drawn.setSize({ width: place.clientWidth - 40, height: 240 }); }).observe(place);
  await load();
}
document.querySelectorAll("[data-chart]").forEach(chart);
