// Part of a page's script: the visible part of the time, which all charts over time share, and the tip at the pointer.

// -- the visible part of the time

const update = (item) => queueChange(item, (view) => {
  if (!item.figure.moments) return;
  const [from, to] = windowOf(item.figure), data = dataOf(item);
  view.signal("from_t", from).signal("to_t", to);
  if (item.figure.raster) {
    item.rows = item.chosen ?? rowsShownAt(item.figure.raster, from, to);
    view.signal("from_row", item.rows[0]).signal("to_row", item.rows[1]);
  }
  if (data) view.data(...data);
});
let asked = 0;
const setShown = (part) => {
  shown = part && part[1] > part[0] ? part : null;
  cancelAnimationFrame(asked);
  asked = requestAnimationFrame(() => {
    drawn.forEach(update);
    const words = document.getElementById("shown-time");
    remember();
    if (words) words.textContent = shown ? spanOf(firstTimed().figure.moments, ...shown) : "all of the time";
  });
};
const firstTimed = () => [...drawn.values()].find((item) => item.figure.moments); // all charts over time have the same axis
const zoomTo = (part) => {
  const item = firstTimed();
  if (!item) return;
  const [first, last] = wholeOf(item.figure), least = (last - first) / 1e5;
  let [from, to] = part;
  const wide = Math.min(Math.max(to - from, least), last - first);
  from = Math.min(Math.max(from, first), last - wide);
  setShown(wide >= last - first ? null : [from, from + wide]);
};
const showAll = () => {
  for (const item of drawn.values()) item.chosen = null;
  zoomTo(wholeOf(firstTimed().figure));
};
const MOVES = {
  in: ([from, to]) => [from + (to - from) / 4, to - (to - from) / 4],
  out: ([from, to]) => [from - (to - from) / 2, to + (to - from) / 2],
  earlier: ([from, to]) => [from - (to - from) / 2, to - (to - from) / 2],
  later: ([from, to]) => [from + (to - from) / 2, to + (to - from) / 2],
};
for (const button of document.querySelectorAll("[data-look]"))
  button.addEventListener("click", () => {
    if (!firstTimed()) return;
    if (button.dataset.look === "all") showAll();
    else zoomTo(MOVES[button.dataset.look](shown ?? wholeOf(firstTimed().figure)));
  });

// -- dragging over a chart zooms to this part; a double click shows everything again

const inPlot = (item, event) => {
  const svg = item.box.querySelector("svg").getBoundingClientRect(), [left, top] = cornerOf(item);
  const [width, height] = [item.view.width(), item.view.height()];
  const [x, y] = [event.clientX - svg.left - left, event.clientY - svg.top - top];
  const inside = x >= 0 && x <= width && y >= 0 && y <= height;
  return { x: Math.min(Math.max(x, 0), width), y: Math.min(Math.max(y, 0), height), left, top, width, height, inside };
};
const rowAt = (item, at, y) => Math.min(Math.floor(item.rows[0] + (y / at.height) * (item.rows[1] - item.rows[0])), item.rows[1] - 1);
let followedBefore = null; // the highlighted task before the last click
const enableDrag = (item, box) => {
  let begin = null;
  const shade = box.parentElement.querySelector(".shade");
  const rowsToo = (at) => item().figure.raster && Math.abs(at.y - begin.y) >= DRAG_ROWS;
  const stop = () => { begin = null; shade.hidden = true; };
  box.addEventListener("pointerdown", (event) => {
    const at = inPlot(item(), event);
    if (event.button || !at.inside) return;
    begin = at;
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", (event) => {
    if (!begin) return;
    const at = inPlot(item(), event), [top, high] = rowsToo(at) ? [Math.min(at.y, begin.y), Math.abs(at.y - begin.y)] : [0, at.height];
    Object.assign(shade.style, { left: `${at.left + Math.min(at.x, begin.x)}px`, width: `${Math.abs(at.x - begin.x)}px`,
      top: `${at.top + top}px`, height: `${high}px` });
    shade.hidden = Math.abs(at.x - begin.x) < DRAG;
  });
  box.addEventListener("pointerup", (event) => {
    if (!begin) return;
    const one = item(), at = inPlot(one, event), scale = one.view.scale("x");
    if (Math.abs(at.x - begin.x) >= DRAG) {
      if (rowsToo(at)) {
        const [low, high] = [at.y, begin.y].sort((a, b) => a - b);
        one.chosen = [rowAt(one, at, low), rowAt(one, at, high) + 1];
      }
      zoomTo([begin.x, at.x].sort((a, b) => a - b).map((x) => +scale.invert(x)));
    } else if (one.figure.raster?.tasks_are && event.detail !== 2) {
      followedBefore = followed;
      const task = taskAt(one, at, +scale.invert(at.x));
      if (task) follow(followed === task ? null : task);
    }
    stop();
  });
  box.addEventListener("pointercancel", stop);
  box.addEventListener("dblclick", () => {
    follow(followedBefore); // undoes the first click of the double click
    showAll();
  });
};

// -- the tip at the pointer

const tip = document.getElementById("tip");
const showTip = (event, lines) => {
  tip.hidden = !lines || !lines.length;
  if (tip.hidden) return;
  tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
  const { width, height } = tip.getBoundingClientRect();
  const beside = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
  tip.style.left = `${Math.max(beside, 4)}px`;
  tip.style.top = `${Math.max(Math.min(event.clientY + 16, innerHeight - height - 4), 4)}px`;
};
const tipLines = (value) => {
  if (value === null || value === undefined || value === "") return null;
  return typeof value === "object" ? Object.entries(value).map(([name, item]) => `${name}: ${item}`) : [String(value)];
};
const count = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const lengthOf = (milliseconds) => {
  for (const [name, size] of [["days", 864e5], ["h", 36e5], ["min", 6e4]])
    if (milliseconds >= 2 * size) return `${few.format(milliseconds / size)} ${name}`;
  return `${few.format(milliseconds / 1000)} s`;
};
const clockOf = (moments, place) => {
  const iso = new Date(Math.round(place)).toISOString();
  if (moments.calendar) return iso.slice(0, 19).replace("T", " ");
  return `${place >= 864e5 ? `day ${Math.floor(place / 864e5)}, ` : ""}${iso.slice(11, 19)}`;
};
const momentOf = (moments, place) => clockOf(moments, place) + (moments.calendar ? " UTC" : "");
const spanOf = (moments, from, to) => {
  const same = clockOf(moments, from).slice(0, -8) === clockOf(moments, to).slice(0, -8); // on the same day
  return `${clockOf(moments, from)} to ${same ? momentOf(moments, to).slice(clockOf(moments, to).length - 8) : momentOf(moments, to)} (${lengthOf(to - from)})`;
};
const stretchAt = (item, at, time) => { // the stretch of a row that is most visible at this point, which several rows may share
  const { raster, moments } = item.figure, half = (item.view.scale("x").invert(1) - item.view.scale("x").invert(0)) / 2;
  const from = rowAt(item, at, Math.floor(at.y)), to = Math.max(rowAt(item, at, Math.floor(at.y) + 0.999), from);
  let best = null;
  for (let row = from; row <= to; row++)
    for (let i = stateAt(raster, row, time - half); i < raster.first[row + 1] && raster.since[i] <= time + half; i++) {
      const end = i + 1 < raster.first[row + 1] ? raster.since[i + 1] : moments.to;
      const seen = Math.min(end, time + half) - Math.max(raster.since[i], time - half);
      const rank = isFollowed(raster, row, raster.states[i]) ? Infinity : Math.min(raster.states[i], raster.tasks_are === "labels" ? firstTask(raster) : 1); // tasks first, then idle, then empty
      if (!best || rank > best.rank || (rank === best.rank && seen > best.seen)) best = { row, i, end, rank, seen };
    }
  return best;
};
const rowTip = (item, at, time) => {
  const { raster, moments } = item.figure, { row, i, end } = stretchAt(item, at, time), task = raster.tasks_are === "labels" && taskOf(raster, row, raster.states[i]);
  const group = groupOf(raster, row);
  return [`${raster.thing} ${raster.rows[row]}${group ? `, ${group}` : ""}`, task ? `task ${task}` : raster.labels[raster.states[i]], spanOf(moments, raster.since[i], end)];
};
const taskAt = (item, at, time) => {
  const { raster } = item.figure, { row, i } = stretchAt(item, at, time);
  return taskOf(raster, row, raster.states[i]);
};
const seriesTip = (item, time) => {
  const { moments, series } = item.figure, lines = [momentOf(moments, time)];
  for (const part of series.map((number) => pageData.series[number])) {
    const cut = cutOf(part, windowOf(item.figure));
    if (!cut || time < cut.low || time > cut.high) continue;
    const begin = cut.wide && cut.low + Math.min(Math.floor((time - cut.low) / cut.wide), STEPS - 1) * cut.wide;
    if (cut.wide) lines[0] = `${spanOf(moments, begin, begin + cut.wide)}, on average`;
    const value = (name) => (cut.wide ? meanOf(part, name, begin, begin + cut.wide) : part.columns[name][stepAt(part, time)]);
    const cells = Object.keys(part.columns).map((name) => `${name} ${count.format(value(name))}`);
    lines.push((part.of ? `${part.of}: ` : "") + cells.join(", "));
  }
  return lines;
};
const tipAt = (item, event) => {
  const at = inPlot(item, event);
  if (!at.inside) return null;
  const time = +item.view.scale("x").invert(at.x), [first, last] = wholeOf(item.figure);
  if (time < first || time > last) return null;
  return item.figure.raster ? rowTip(item, at, time) : seriesTip(item, time);
};
const drawHair = (here, event) => { // a thin line at the same moment in all charts over time
  const at = here && inPlot(here, event), time = at?.inside ? here.view.scale("x").invert(at.x) : null;
  for (const item of drawn.values()) {
    const line = item.figure.moments && item.box.parentElement.querySelector(".hair");
    if (!line) continue;
    const x = time === null ? NaN : item.view.scale("x")(time), [left, top] = cornerOf(item);
    line.hidden = !(x >= 0 && x <= item.view.width());
    Object.assign(line.style, { left: `${left + x}px`, top: `${top}px`, height: `${item.view.height()}px` });
  }
};
for (const [name, figure] of Object.entries(pageData.figures)) {
  if (!figure.moments) continue;
  const box = document.getElementById(`draw-${name}`), item = () => drawn.get(name);
  const point = (event) => {
    if (!item()) return;
    drawHair(item(), event);
    showTip(event, tipAt(item(), event));
  };
  for (const kind of ["pointerdown", "pointermove"]) box.addEventListener(kind, point);
  box.addEventListener("pointerleave", (event) => { showTip(event, null); drawHair(null, event); });
  enableDrag(item, box);
}
addEventListener("scroll", (event) => showTip(event, null), { passive: true });
