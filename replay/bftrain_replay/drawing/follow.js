// Part of a page's script: following a task, a user, or all tasks that have a word in their name; keys; and the page's
// address, which keeps what is shown, so that it can be sent to others.

const OFFERED = 8; // tasks and users below the field
const NONE_FOUND = pageData.unnamed ? `None of the ${pageData.users_of.length.toLocaleString("en")} tasks with the most node-time, nor their users, has this in its name`
  : "No task or user has this in its name";
const usersOf = new Map(pageData.users_of); // task -> its user
const bar = document.getElementById("follow");
const [field, offers, line] = ["input", "ul", "output"].map((name) => bar?.querySelector(name));

// -- what is followed

const subjectOf = (kind, name) => { // none if there is no such task
  const small = name.toLowerCase(), belongs = { task: (task) => task === name, user: (_, user) => user === name,
    all: (task) => task.toLowerCase().includes(small) }[kind];
  const tasks = new Set(belongs && name ? [...usersOf].filter(([task, user]) => belongs(task, user)).map(([task]) => task) : []);
  return tasks.size ? { kind, name, tasks } : null;
};
const wordsFor = ({ kind, name, tasks }) =>
  kind === "task" ? `task ${name}` : `${kind === "user" ? `user ${name}` : `all with “${name}”`}: ${tasks.size.toLocaleString("en")} ${tasks.size === 1 ? "task" : "tasks"}${pageData.unnamed ? " of those named" : ""}`;
const factsOf = (subject) => { // from the table of tasks
  const table = document.querySelector("table[data-rows=task]");
  const rows = [...(table?.tBodies[0].rows ?? [])].filter((row) => subject.tasks.has(row.cells[0].dataset.key));
  if (!rows.length) return "";
  const heads = [...table.tHead.rows[0].cells].map((one) => one.textContent), at = (name) => heads.indexOf(name);
  if (subject.kind === "task")
    return heads.slice(1).map((head, i) => [head, rows[0].cells[i + 1].textContent]).filter(([, text]) => text !== "-")
      .map(([head, text]) => (head === "state" ? text : `${head} ${text}`)).join(", ");
  const hours = rows.reduce((sum, row) => sum + (+row.cells[at("node-hours")].dataset.key || 0), 0);
  const finished = rows.filter((row) => row.cells[at("finished")].dataset.key !== undefined).length;
  const some = rows.length < subject.tasks.size ? `of the ${rows.length.toLocaleString("en")} in the table: ` : "";
  return `${some}${finished.toLocaleString("en")} finished, ${count.format(hours)} node-hours`;
};
const markRows = () => {
  for (const item of tables.values()) {
    const what = item.table.dataset.rows, user = followed?.kind === "task" ? usersOf.get(followed.name) : followed?.kind === "user" && followed.name;
    item.followed = followed && what && new Set(item.order.filter(({ cells: [{ dataset: { key } }] }) =>
      key && (what === "user" ? key === user : followed.tasks.has(key))));
    arrange(item);
    if (item.followed?.size) item.scroll.scrollTop = 0;
  }
};
const follow = (subject) => {
  followed = subject;
  if (!bar) return;
  for (const item of drawn.values()) if (item.figure.raster) item.turn = (item.turn ?? Promise.resolve()).then(() => paint(item));
  markRows();
  bar.classList.toggle("on", !!subject);
  line.textContent = subject ? wordsFor(subject) + (factsOf(subject) && ` · ${factsOf(subject)}`) : "";
  line.title = line.textContent;
  for (const button of bar.querySelectorAll("button")) button.hidden = !subject || (button.dataset.follow === "time" && !timeOf(subject));
  remember();
};
const timeOf = (subject) => { // from when to when its tasks held nodes, with some room
  const figure = [...drawn.values()].map((item) => item.figure).find((one) => one.raster?.tasks_are === "rows");
  if (!figure) return null;
  const { raster, moments } = figure;
  let [from, to] = [Infinity, -Infinity];
  raster.rows.forEach((task, row) => {
    if (!subject.tasks.has(task)) return;
    for (let i = raster.first[row]; i < raster.first[row + 1]; i++) if (raster.states[i]) {
      from = Math.min(from, raster.since[i]);
      to = Math.max(to, i + 1 < raster.first[row + 1] ? raster.since[i + 1] : moments.to);
    }
  });
  return to > from ? [from - (to - from) / 50, to + (to - from) / 50] : null;
};

// -- the field, and what it offers

const offersFor = (text) => {
  const small = text.trim().toLowerCase(), has = (name) => name.toLowerCase().includes(small);
  const first = (a, b) => b.toLowerCase().startsWith(small) - a.toLowerCase().startsWith(small);
  const tasks = [...usersOf.keys()].filter(has).sort(first), users = [...new Set(usersOf.values())].filter((user) => user && has(user)).sort(first);
  const some = [...(small && tasks.length > 1 ? [["all", text.trim()]] : []), ...users.map((user) => ["user", user]), ...tasks.map((task) => ["task", task])];
  return some.slice(0, OFFERED).map(([kind, name]) => subjectOf(kind, name));
};
let offered = [], picked = 0;
const pick = (place) => {
  picked = place;
  [...offers.children].forEach((one, i) => one.setAttribute("aria-selected", i === picked));
  field.setAttribute("aria-activedescendant", offered.length ? `offer-${picked}` : "");
};
const offer = (open) => {
  offered = open ? offersFor(field.value) : [];
  offers.replaceChildren(...offered.map((subject, i) => Object.assign(document.createElement("li"), { id: `offer-${i}`, role: "option", textContent: wordsFor(subject) })));
  if (open && !offered.length) offers.append(Object.assign(document.createElement("li"), { textContent: NONE_FOUND }));
  offers.hidden = !open;
  field.setAttribute("aria-expanded", open);
  pick(0);
};
const take = (subject) => {
  if (!subject) return;
  field.value = "";
  field.blur();
  follow(subject);
};
if (bar) {
  field.addEventListener("input", () => offer(true));
  field.addEventListener("focus", () => offer(true));
  field.addEventListener("blur", () => offer(false));
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && offered.length) pick((picked + step + offered.length) % offered.length);
    else if (event.key === "Enter") take(offered[picked]);
    else return;
    event.preventDefault();
  });
  offers.addEventListener("pointerdown", (event) => { // before the field loses the focus
    event.preventDefault();
    take(offered[[...offers.children].indexOf(event.target.closest("li"))]);
  });
  document.querySelector("[data-follow=search]")?.addEventListener("click", () => field.focus({ preventScroll: true }));
  bar.addEventListener("click", ({ target: { dataset } }) => {
    if (dataset.follow === "time") look(timeOf(followed));
    if (dataset.follow === "end") follow(null);
  });
  document.addEventListener("click", (event) => { // a name is a link to this page with it followed
    const [, kind, name] = event.target.closest("a[href^='#follow=']")?.getAttribute("href").match(/^#follow=(\w+):(.*)$/) ?? [];
    if (!kind || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const subject = subjectOf(kind, decodeURIComponent(name));
    follow(followed?.kind === kind && followed.name === subject?.name ? null : subject);
  });
}
addEventListener("keydown", (event) => {
  const writes = event.target.closest?.("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (writes) { writes.value = ""; writes.dispatchEvent(new Event("input")); writes.blur(); }
    else if (followed) follow(null);
    else if (chooser()) lookAtAll();
  } else if (writes) return;
  else if (event.key === "/" && bar) { event.preventDefault(); field.focus({ preventScroll: true }); }
  else if (chooser() && !event.target.closest?.(".scroll")) {
    const move = { ArrowLeft: shown && "earlier", ArrowRight: shown && "later", "+": "in", "-": shown && "out" }[event.key];
    if (!move) return;
    event.preventDefault();
    look(MOVES[move](shown ?? wholeOf(chooser().figure)));
  }
});

// -- the address: #follow=task:NAME&time=FROM-TO&tasks.filter=... - times in seconds since the log's start

const plainly = (text) => encodeURIComponent(text).replace(/%(3A|2C|2F|3E|3C)/g, (code) => decodeURIComponent(code));
const kept = () => {
  const parts = [], add = (name, value) => parts.push(`${name}=${plainly(value)}`), strip = chooser();
  if (followed) add("follow", `${followed.kind}:${followed.name}`);
  if (shown && strip) add("time", shown.map((time) => Math.round(time - wholeOf(strip.figure)[0]) / 1000).join("-"));
  for (const [name, item] of drawn) if (item.chosen) add(`${name}.rows`, item.chosen.join("-"));
  const closer = Object.keys(pageData.figures).filter((name) => pageData.figures[name].isCloser);
  if (closer.length) add("closer", closer.join());
  for (const [name, item] of tables) {
    if (item.sort) add(`${name}.sort`, `${item.sort[0]}:${item.sort[1] ? "down" : "up"}`);
    if (item.filter) add(`${name}.filter`, item.filter);
  }
  return parts.join("&");
};
let place = ""; // the heading that the reader went to
let restoring = true, due = 0; // nothing is kept before the page has read its address
const remember = () => {
  clearTimeout(due);
  if (!restoring) due = setTimeout(() => {
    const hash = [kept(), place && `at=${place}`].filter(Boolean).join("&");
    // A page inside another one may not change its address
    try { history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search); } catch { return; }
  }, 150); // browsers allow few changes a second
};
const restore = () => {
  const hash = location.hash.slice(1), spans = (text) => text?.match(/^([\d.]+)-([\d.]+)$/)?.slice(1).map(Number), strip = chooser();
  restoring = false;
  if (hash && !hash.includes("=")) { place = hash; remember(); return; } // a link to a heading
  const asked = new URLSearchParams(hash.replaceAll("+", "%2B")), [, kind, name] = asked.get("follow")?.match(/^(\w+):(.*)$/s) ?? [];
  place = asked.get("at") ?? "";
  follow(kind ? subjectOf(kind, name) : null);
  for (const [figure, item] of drawn) {
    const rows = item.figure.raster && spans(asked.get(`${figure}.rows`));
    item.chosen = rows && rows[0] < rows[1] && rows[1] <= item.figure.raster.rows.length ? rows : null;
  }
  const time = spans(asked.get("time")), [first, last] = strip ? wholeOf(strip.figure) : [];
  if (strip && (time || shown)) look(time ? time.map((seconds) => first + 1000 * seconds) : [first, last]);
  for (const [name, { closer }] of Object.entries(pageData.figures))
    if (Object.keys(closer).length) lookCloser(name, (asked.get("closer") ?? "").split(",").includes(name));
  for (const [table, item] of tables) {
    const [, heading, way] = asked.get(`${table}.sort`)?.match(/^(.*):(up|down)$/) ?? [];
    if (heading) sortBy(item, heading, way === "down");
    if (item.field) filterBy(item, asked.get(`${table}.filter`) ?? "");
  }
  document.getElementById(place)?.scrollIntoView({ behavior: "instant" });
};
addEventListener("hashchange", restore);

drawAll();
