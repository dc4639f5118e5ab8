// The script of a page: it draws the charts, zooms all charts over time together, shows a tip at the pointer, highlights
// a task, and sorts and filters tables. It makes no requests. html_page.py joins the files to one function, in this
// order: page.js, tables.js, numbers.js, rasters.js, time.js, follow.js.

const pageData = JSON.parse(document.getElementById("page-data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const STEPS = 600; // steps of a series that a screen can resolve; same value in series.py
const NARROW = 560; // pixels; in narrower boxes a chart has its narrow form
const NARROW_LOOK = { legend: { columns: 1 }, axisY: { minExtent: 28, titlePadding: 2 } };
const LEGEND_MARK = 32; // pixels of a legend entry besides its text
const PAPER = 800; // width of a printed page in pixels
const DRAG = 4, DRAG_ROWS = 16; // pixels along time and rows; shorter moves are a click
const drawn = new Map(); // chart name -> its data, box, view and state
let followed = null; // the highlighted task
let shown = null; // the visible part of the time, [from, to]; null for all
const screenTheme = () => dark.matches ? pageData.dark : pageData.light;
let theme = screenTheme(); // for rasters; other parts use the colours of the page

// -- drawing

// Roles become CSS variables of the page, so colours change with the page from light to dark, and on paper
const coloured = (value) => {
  if (typeof value === "string") return value.startsWith("@") && value.slice(1) in pageData.light ? `var(--${value.slice(1)})` : value;
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item)]));
  return value;
};
const merged = (spec, more) => {
  const result = { ...spec };
  for (const [name, value] of Object.entries(more ?? {})) {
    const both = [value, spec?.[name]].every((one) => one && typeof one === "object" && !Array.isArray(one));
    result[name] = both ? merged(spec[name], value) : value;
  }
  return result;
};
const wholeOf = (figure) => [figure.moments.from, figure.moments.to];
const windowOf = (figure) => shown ?? wholeOf(figure);
const dataOf = ({ figure }) => figure.series?.length && ["series", figure.series.flatMap((number) => rowsOf(pageData.series[number], windowOf(figure)))];
// A view makes one change at a time: changes during another one would get lost
const queue = (item, work) => (item.turn = (item.turn ?? Promise.resolve()).then(work));
const queueChange = (item, change) => queue(item, async () => {
  change(item.view);
  await item.view.runAsync();
  if (item.figure.raster) paint(item);
});
const repaintRasters = () => {
  for (const item of drawn.values()) if (item.figure.raster) queue(item, () => paint(item));
};
// The columns that fit into a legend, each as wide as the longest entry; 0 if all entries fit into one row
const columnsOf = (box) => {
  const legend = box.querySelector(".role-legend")?.getBoundingClientRect(), { right } = box.getBoundingClientRect();
  if (!legend || legend.right <= right + 1) return 0;
  const widest = Math.max(...[...box.querySelectorAll(".role-legend-label text")].map((each) => each.getBoundingClientRect().width));
  return Math.max(1, Math.floor((right - legend.left) / (widest + LEGEND_MARK)));
};
const draw = async (name, columns = 0) => {
  const figure = pageData.figures[name], box = document.getElementById(`draw-${name}`), narrow = box.clientWidth < NARROW;
  const before = drawn.get(name), item = { figure, box, narrow };
  if (figure.raster) Object.assign(item, { rows: before?.rows ?? [0, figure.raster.rows.length], chosen: before?.chosen });
  const begun = performance.now();
  if (figure.raster && !figure.raster.first) await unpackRaster(figure.raster);
  before?.view.finalize();
  const look = merged(pageData.config, narrow ? NARROW_LOOK : columns ? { legend: { columns } } : {});
  const spec = coloured(merged({ $schema: pageData.schema, width: box.clientWidth, ...figure.spec }, narrow ? figure.narrow : {}));
  spec.autosize = { type: "fit-x", contains: "padding" };
  const data = dataOf(item);
  if (data) spec.data = { name: data[0], values: data[1] };
  const embedded = await vegaEmbed(box, spec, {
    mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, config: coloured(look),
    tooltip: (_, event, __, value) => showTip(event, tipLines(value)),
  });
  item.view = embedded.view;
  drawn.set(name, item);
  const fewer = narrow || columns ? 0 : columnsOf(box);
  if (fewer) return draw(name, fewer);
  if (figure.raster) {
    item.canvas = before?.canvas ?? box.parentElement.querySelector("canvas");
    paint(item);
  }
  if (before) update(item);
  box.dataset.drawn = "yes";
  box.dataset.took = Math.round(performance.now() - begun); // milliseconds
};
const drawAll = async () => {
  await Promise.all(pageData.series.map(unpackSeries));
  for (const name of Object.keys(pageData.figures)) {
    await draw(name);
    await new Promise((go) => setTimeout(go)); // lets readers scroll meanwhile
  }
  restore();
  document.documentElement.dataset.took = Math.round(performance.now()); // since the page was requested
  document.documentElement.dataset.drawn = "yes";
};

// -- light, dark, paper, and changes of the window's width

const redraw = (colours, pixels) => { // colours of rasters, and the width in pixels (default: the box)
  theme = colours;
  for (const item of drawn.values()) queueChange(item, (view) => view.width(pixels ?? item.box.clientWidth));
};
let unfolded = [], printing = false;
const restoreScreen = () => printing || redraw(screenTheme());
dark.addEventListener("change", () => { // only rasters do not use the colours of the page
  if (printing) return;
  theme = screenTheme();
  repaintRasters();
});
addEventListener("beforeprint", () => {
  printing = true;
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const details of unfolded) details.open = true;
  redraw(pageData.light, PAPER); // paper shows the same part of the time and the same highlighted task
});
addEventListener("afterprint", () => {
  printing = false;
  for (const details of unfolded) details.open = false;
  restoreScreen();
});
let settling = 0;
addEventListener("resize", () => {
  clearTimeout(settling);
  settling = setTimeout(() => {
    restoreScreen();
    for (const [name, item] of drawn) if (item.box.clientWidth < NARROW !== item.narrow) draw(name);
  }, 100);
});
