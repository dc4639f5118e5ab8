// The status page of a live run: receives updates and shows them. All data comes from the server of the page.

import { charts } from "./charts.js";
import { completed } from "./completed.js";
import { grid } from "./nodes.js";
import { ask, follow, hasToken, keepToken, takeToken } from "./talk.js";
import * as words from "./words.js";

const HUES = 8;
const FED = 200, DAYS = 14, ROWS = 300;
const MARKS = { joined: "▲", left: "▼", size: "⇄", task: "●", failed: "✕" };
const ORDER = ["running", "waiting", "paused"];
const $ = (id) => document.getElementById(id);

// -- colours, tips, canvases

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
let palette = new Map();
const colour = (role) => {
  if (!palette.has(role)) palette.set(role, getComputedStyle(root).getPropertyValue(`--${role}`).trim());
  return palette.get(role);
};
dark.addEventListener("change", () => { palette = new Map(); redraw(); });
const light = (hex) => {
  const parts = [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16) / 255);
  const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const on = (hex) => (light(hex) > 0.18 ? "#0b0e10" : "#ffffff"); // a text colour that is readable on it

const slots = new Map(); // number of a shown task -> its hue
const hueOf = (number) => `hue${(slots.get(number) ?? number) % HUES}`;
const name = (number) => (number === 0 ? "other tasks" : names.get(number) ?? tasks.get(number)?.name ?? `#${number}`);
const settleHues = (banded, others) => { // no two tasks in the key share a hue; others may
  const wanted = new Set([...banded, ...others]), settled = new Set();
  for (const number of slots.keys()) if (!wanted.has(number)) slots.delete(number);
  for (const number of wanted) {
    const inKey = banded.includes(number), uses = (hue) => [...slots.values()].filter((one) => one === hue).length;
    if (!slots.has(number) || (inKey && settled.has(slots.get(number)))) {
      const free = [...Array(HUES).keys()].filter((hue) => !inKey || !settled.has(hue));
      slots.set(number, free.sort((a, b) => uses(a) - uses(b) || a - b)[0]);
    }
    if (inKey) settled.add(slots.get(number));
  }
};
const sized = (canvas, width, height) => {
  const dense = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
};
const tip = (lines, x, y, spoken) => {
  const box = $("tip");
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
  const { width, height } = box.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? Math.max(4, x - 14 - width) : x + 14;
  const top = Math.max(4, Math.min(y + 14, innerHeight - height - 4));
  box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  if (spoken) $("spoken").textContent = lines.join(", ");
};

// -- the current state

let status = null, day = "", tasks = new Map(), names = new Map(), more = 0, feed = [], anew = true;
const tools = {
  colour, on, name, tip, sized,
  hue: (number) => colour(hueOf(number)),
  font: () => getComputedStyle(document.body).fontFamily,
  redraw: () => redraw(),
  looked: (part) => {
    $("part-all").hidden = !part;
    $("part-words").textContent = part ? `From ${words.moment(part[0])} to ${words.moment(part[1])}.` : "Drag over a picture to look closer.";
  },
};
const picture = charts($("sizes"), $("speeds"), tools);
const nodes = grid($("nodes"), tools);
const finished = completed($("completed-picture"), tools);

let asked = 0;
const redraw = () => {
  if (!asked) asked = requestAnimationFrame(() => { asked = 0; if (status) draw(); });
};
const text = (id, value) => { const item = $(id); if (item.textContent !== value) item.textContent = value; };
const hide = (id, hidden) => { $(id).hidden = hidden; };
// Replaces "node" in the fixed texts of the page, before it shows names of tasks
const renameNodes = () => {
  const texts = document.createTreeWalker($("shown"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = words.ofNodes(texts.currentNode.data);
};

// -- drawing

const drawCards = () => {
  const { pool, used, drained, agents, running, waiting, paused, over, speed, decision, now_s: now } = status;
  text("card-nodes", `${words.count(used)} of ${words.count(pool)}`);
  const ofKinds = Object.entries(status.kinds ?? {}).map(([kind, one]) => `${words.count(one.used)} of ${words.count(one.pool)} ${kind}, `);
  text("note-nodes", `${ofKinds.join("")}${words.count(pool - used)} unused, ${words.count(drained)} drained, ${words.counted(agents, "agent")}`);
  text("card-tasks", words.count(running));
  text("note-tasks", `${words.count(waiting)} waiting, ${words.count(paused)} paused, ${words.count(over)} over`);
  text("card-speed", words.short(speed));
  text("note-speed", "samples/s of all tasks");
  const today = status.harvested?.at(-1), fresh = today?.day === day ? today : null;
  text("card-harvest", words.ofNodes(`${words.nodeHours(fresh?.node_s ?? 0)} node-h`));
  text("note-harvest", `${words.short(fresh?.samples ?? 0)} samples`);
  text("card-decision", decision ? words.milliseconds(decision.solve_s) : "none yet");
  const ago = decision ? `no. ${words.count(decision.number)} by ${decision.solver}, ${words.duration(now - decision.time_s)} ago` : "";
  text("note-decision", decision?.fallback ? `${ago}; ${decision.fallback}` : ago);
};
const drawLead = () => {
  const { pool, used, running, state } = status, today = status.harvested?.at(-1), fresh = today?.day === day ? today : null;
  const held = running ? `${words.counted(running, "task")} use${running === 1 ? "s" : ""} ${words.count(used)} of ${words.counted(pool, "node")}` : `No task uses any of ${words.counted(pool, "node")}`;
  text("lead", words.ofNodes(`${held}; today ${words.nodeHours(fresh?.node_s ?? 0)} node-hours were harvested${state === "running" ? "" : `, and the run is ${state}`}.`));
};
const drawHead = () => {
  text("site", status.site);
  text("state", `${status.state} for ${words.duration(status.now_s - status.since_s)}`);
  hide("state", false);
  $("state").className = `badge ${status.state === "running" ? "good" : status.state === "broken" ? "bad" : ""}`;
  text("about", `bftrain ${status.version} as ${status.user}, with ${status.scheduler}; ${status.policy ? `policy ${status.policy}` : `solver ${status.solver}, objective ${status.objective}`}`);
  document.title = `${contact ? "" : "(lost) "}${words.ofNodes(`${status.used}/${status.pool} nodes`)}, ${status.site}`;
};
const item = (kind, className, content = "") => Object.assign(document.createElement(kind), { className, textContent: content });
const keyItem = (className, hue, label) => {
  const entry = item("li", ""), mark = item("i", className);
  if (hue) mark.style.background = hue;
  entry.append(mark, label);
  return entry;
};
let keyed = "";
const drawKey = (own) => {
  const entries = own.map((number) => [number === 0 ? "others" : "", number ? tools.hue(number) : "", name(number)]);
  const all = [["pool", "", words.ofNodes("our nodes")], ["idle", "", "unused"], ...entries];
  if (keyed === (keyed = JSON.stringify(all))) return;
  $("key").replaceChildren(...all.map((one) => keyItem(...one)));
};
let nodeKeyed = "";
const drawNodes = () => {
  nodes.draw();
  hide("no-nodes", nodes.size > 0);
  const seen = nodes.counts().filter(([, , number]) => number);
  if (nodeKeyed === (nodeKeyed = JSON.stringify(seen))) return;
  $("node-key").replaceChildren(...seen.map(([state, label, number]) => keyItem(state, "", `${words.count(number)} ${label}${state === "used" ? ", in the colour of its task" : ""}`)));
};
const drawFeed = () => {
  hide("no-feed", feed.length > 0);
  const box = $("feed"), known = Number(box.firstElementChild?.dataset.number ?? 0);
  if (anew) box.replaceChildren();
  for (const one of feed.filter((entry) => anew || entry.number > known)) {
    const entry = item("li", one.kind), mark = item("span", "mark", MARKS[one.kind] ?? "●");
    mark.setAttribute("aria-hidden", "true");
    entry.dataset.number = one.number;
    entry.append(item("time", "", words.clock(one.time_s)), mark, item("span", "", one.text));
    entry.firstChild.title = words.moment(one.time_s);
    box.prepend(entry);
  }
  while (box.children.length > FED) box.lastElementChild.remove();
};
const rows = new Map();
const CELLS = ["of words", "state words", "nodes", "done", "speed", "loss", "hours", "resized", "long"];
const newRow = (number) => {
  const row = item("tr", ""), head = item("th", "");
  head.scope = "row";
  head.append(item("i", "hue"), "");
  row.append(head, ...CELLS.map((kind) => item("td", kind)));
  const bar = item("span", "bar");
  bar.append(item("i", ""));
  row.children[4].append(bar, item("span", ""));
  row.children[3].append(item("span", ""), item("span", "range"));
  rows.set(number, row);
  return row;
};
const put = (node, value) => { if (node.textContent !== value) node.textContent = value; };
const drawRow = (task, now) => {
  const row = rows.get(task.number) ?? newRow(task.number), [head, of, state, held, done, speed, loss, hours, resized, long] = row.children;
  const over = !ORDER.includes(task.state);
  row.className = `${over ? "over" : ""} ${task.state === "failed" ? "failed" : ""}`;
  put(head.lastChild.nodeType === 3 ? head.lastChild : head, task.name);
  head.title = `${task.name} (#${task.number})`;
  const hue = slots.has(task.number) ? tools.hue(task.number) : colour("line");
  head.firstChild.className = "hue";
  head.firstChild.style.background = hue;
  put(of, task.user);
  put(state, task.failures && !over ? `${task.state}, failed ${task.failures}×` : task.state);
  put(held.firstChild, over ? "" : String(task.size));
  put(held.lastChild, over ? "" : ` of ${task.min_nodes}–${task.max_nodes}`);
  const share = task.work_samples ? Math.min(1, task.done_samples / task.work_samples) : null;
  done.firstChild.hidden = share === null;
  done.firstChild.firstChild.style.width = `${100 * (share ?? 0)}%`;
  done.firstChild.firstChild.style.background = slots.has(task.number) ? hue : "";
  put(done.lastChild, share === null ? (task.step ? `step ${words.count(task.step)}` : "") : words.percent(share));
  put(speed, task.speed ? words.short(task.speed) : "");
  put(loss, words.loss(task.loss));
  put(hours, words.nodeHours(task.node_s));
  put(resized, task.rescales || task.preemptions ? `${task.rescales} / ${task.preemptions}` : "");
  put(long, words.duration((task.ended_s ?? now) - task.since_s));
  return row;
};
const drawTasks = () => {
  const rank = (task) => { const at = ORDER.indexOf(task.state); return at < 0 ? ORDER.length : at; };
  const over = (task) => rank(task) === ORDER.length;
  const listed = [...tasks.values()].sort((a, b) => rank(a) - rank(b) || (over(a) ? b.ended_s - a.ended_s : a.number - b.number));
  const shown = listed.slice(0, ROWS);
  hide("no-tasks", listed.length > 0);
  hide("tasks-box", listed.length === 0);
  const body = $("tasks");
  const kept = new Set(shown.map((task) => task.number));
  for (const [number, row] of rows) if (!kept.has(number)) { row.remove(); rows.delete(number); }
  shown.forEach((task, index) => {
    const row = drawRow(task, status.now_s);
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  const left = more + listed.length - shown.length;
  hide("more-tasks", left === 0);
  text("more-tasks", `and ${words.counted(left, "task")} more: bftrain status`);
};
let dayed = "";
const drawDays = () => {
  const days = (status.harvested ?? []).slice(-DAYS);
  hide("no-days", days.length > 0);
  if (dayed === (dayed = JSON.stringify(days))) return;
  const most = Math.max(1e-9, ...days.map((one) => one.node_s));
  $("days").replaceChildren(...days.map((one, index) => {
    const entry = item("li", ""), column = item("span", "column"), date = new Date(`${one.day}T12:00:00`);
    const plain = days.length > 5 && index < days.length - 1; // little room: only today shows the month
    column.style.height = `${(75 * one.node_s) / most}%`;
    entry.title = `${one.day}: ${words.nodeHours(one.node_s)} node-hours, ${words.count(one.samples)} samples`;
    entry.append(item("span", "amount", words.nodeHours(one.node_s)), column, item("span", "day", words[plain ? "dayOfMonth" : "day"](date / 1000)));
    return entry;
  }));
};
const drawUsage = (used) => {
  hide("no-usage", used.length > 0);
  hide("usage-box", used.length === 0);
  $("usage").replaceChildren(...used.slice(0, ROWS).map((one) => {
    const row = item("tr", "");
    row.append(item("td", "words", one.of), ...[words.nodeHours(one.node_s), one.gpu_s ? words.nodeHours(one.gpu_s) : "", words.short(one.samples)].map((value) => item("td", "", value)));
    return row;
  }));
};
const drawCompleted = () => {
  hide("completed", finished.size === 0);
  if (!finished.size) return;
  text("completed-words", finished.summary());
  $("campaigns").replaceChildren(...finished.campaigns().map((cells) => {
    const row = item("tr", "");
    row.append(...cells.map((cell, index) => item("td", index ? "" : "words", cell)));
    return row;
  }));
  finished.draw();
};
let remarked = "";
const drawRemarks = () => {
  const latest = (status.remarks ?? []).slice(-20).reverse();
  hide("no-remarks", latest.length > 0);
  if (remarked === (remarked = JSON.stringify(latest))) return;
  $("remarks").replaceChildren(...latest.map((one) => {
    const entry = item("li", ""), times = one.times > 1 ? ` (${one.times} times)` : "";
    entry.append(item("time", "", words.moment(one.time_s)), `${one.text}${times}`);
    return entry;
  }));
};
const draw = () => {
  const own = picture.bands(), holding = [...tasks.values()].filter((task) => task.size).map((task) => task.number);
  settleHues(own.filter((number) => number), holding);
  picture.draw();
  drawHead();
  drawLead();
  drawCards();
  drawKey(own);
  drawNodes();
  drawFeed();
  drawTasks();
  drawDays();
  drawCompleted();
  drawRemarks();
  anew = false;
};

// -- updates

const USAGE_S = 60;
let usedAt = 0;
let contact = false, heard_s = 0, first = true;
const say = (words_, kind) => {
  text("contact", words_);
  $("contact").className = `badge ${kind}`;
};
const hears = {
  begun: () => { first = anew = true; },
  updated: (update) => {
    contact = true;
    heard_s = Date.now() / 1000;
    hide("ask", true);
    hide("lost", true);
    hide("shown", false);
    document.body.classList.remove("lost");
    say("live", "good");
    if (first) { tasks = new Map(); names = new Map(); feed = []; }
    if (!status) {
      words.callNodes(update.status.unit);
      renameNodes();
    }
    ({ status, day } = update);
    for (const task of update.tasks?.changed ?? []) tasks.set(task.number, task);
    for (const number of update.tasks?.gone ?? []) tasks.delete(number);
    more = update.tasks?.more ?? more;
    for (const [number, name_] of Object.entries(update.history?.names ?? {})) names.set(Number(number), name_);
    feed = [...feed, ...(update.history?.happened ?? [])].slice(-FED);
    nodes.update(update.nodes, first);
    picture.update(update.history, status.now_s, first);
    if (first || update.status.now_s - usedAt > USAGE_S) {
      usedAt = update.status.now_s;
      ask(`v1/usage?by=user&since=${day.slice(0, 8)}01`).then(drawUsage, () => {});
      ask("v1/tasks?all=true").then((all) => { finished.update(all); redraw(); }, () => {});
    }
    first = false;
    redraw();
  },
  lost: (why) => {
    contact = false;
    say("lost contact", "bad");
    document.body.classList.add("lost");
    hide("lost", false);
    const since = heard_s ? `Lost contact at ${words.clock(heard_s)}; what is shown is as it was then.` : "No contact.";
    const ending = status?.state === "draining" ? "The live run was ending. " : "";
    text("lost", `${ending}${since} Trying again. (${why})`);
    $("state").className = "badge";
    if (status) document.title = `(lost) ${status.site}`;
  },
  refused: () => {
    const tried = hasToken();
    keepToken("");
    say("token needed", "bad");
    hide("lost", true);
    hide("shown", true);
    hide("ask", false);
    hide("ask-wrong", !tried);
    $("ask-token").focus();
  },
};

takeToken();
const talk = follow(600, hears);
addEventListener("hashchange", () => { if (takeToken()) talk.begin(); });
$("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken($("ask-token").value.trim());
  $("ask-token").value = "";
  talk.begin();
});
for (const button of document.querySelectorAll("[data-span]"))
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", String(other === button));
    picture.look(null);
    talk.look(Number(button.dataset.span));
  });
$("part-all").addEventListener("click", () => picture.look(null));
new ResizeObserver(redraw).observe(document.querySelector("main"));
document.addEventListener("visibilitychange", redraw);
