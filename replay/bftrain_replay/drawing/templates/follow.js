// Part of a page's script: highlights a task in all charts and tables, and stores the view in the page's address.

const follow = (task) => { // null: none
  followed = task;
  repaintRasters();
  for (const row of document.querySelectorAll("tr:has(a[href^='#follow='])")) row.classList.toggle("followed", row.cells[0].dataset.key === task);
  remember();
};
document.addEventListener("click", (event) => { // a task's name links to this page with the task highlighted
  const [, name] = event.target.closest("a[href^='#follow=']")?.getAttribute("href").match(/^#follow=(.*)$/) ?? [];
  if (!name || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const task = decodeURIComponent(name);
  follow(followed === task ? null : task);
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.target.closest?.("input")) return;
  if (followed !== null) follow(null);
  else if (firstTimed()) showAll();
});

// -- the address: #follow=NAME&time=FROM-TO&tasks.filter=... - times in seconds since the start

const encoded = (text) => encodeURIComponent(text).replace(/%(3A|2C|2F|3E|3C)/g, (code) => decodeURIComponent(code));
const stateHash = () => {
  const parts = [], add = (name, value) => parts.push(`${name}=${encoded(value)}`), of = firstTimed();
  if (followed !== null) add("follow", followed);
  if (shown) add("time", shown.map((time) => Math.round(time - wholeOf(of.figure)[0]) / 1000).join("-"));
  for (const [name, item] of tables) {
    if (item.sort) add(`${name}.sort`, `${item.sort[0]}:${item.sort[1] ? "down" : "up"}`);
    if (item.filter) add(`${name}.filter`, item.filter);
  }
  return parts.join("&");
};
let place = ""; // the heading to which the reader jumped
let restoring = true, due = 0; // the address stays until the page has read it
const remember = () => {
  clearTimeout(due);
  if (!restoring) due = setTimeout(() => {
    const hash = [stateHash(), place && `at=${place}`].filter(Boolean).join("&");
    // An embedded page may not change its address
    try { history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search); } catch { return; }
  }, 150); // browsers allow few changes a second
};
const restore = () => {
  const hash = location.hash.slice(1), of = firstTimed();
  restoring = false;
  if (hash && !hash.includes("=")) { place = hash; remember(); return; } // a link to a heading
  const asked = new URLSearchParams(hash.replaceAll("+", "%2B"));
  place = asked.get("at") ?? "";
  follow(asked.get("follow"));
  const time = asked.get("time")?.match(/^([\d.]+)-([\d.]+)$/)?.slice(1).map(Number), [first, last] = of ? wholeOf(of.figure) : [];
  if (of && (time || shown)) zoomTo(time ? time.map((seconds) => first + 1000 * seconds) : [first, last]);
  for (const [table, item] of tables) {
    const [, heading, way] = asked.get(`${table}.sort`)?.match(/^(.*):(up|down)$/) ?? [];
    if (heading) sortBy(item, heading, way === "down");
    if (item.field) filterBy(item, asked.get(`${table}.filter`) ?? "");
  }
  document.getElementById(place)?.scrollIntoView({ behavior: "instant" });
};
addEventListener("hashchange", restore);

drawAll();
