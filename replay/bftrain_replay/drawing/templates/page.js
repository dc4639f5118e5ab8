// What a page of bftrain does by itself: it draws its figures, zooms those over time together, tells what lies under the
// pointer, highlights a task, and sorts and filters its tables. It asks for nothing from anywhere. The parts, one
// after the other in one function: page.js, tables.js, numbers.js, rasters.js, time.js, follow.js.

const pageData = JSON.parse(document.getElementById("page-data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const STEPS = 600; // steps of a series that a screen shows apart
const NARROW = 560; // pixels; narrower boxes get a figure's narrow form
const NARROW_LOOK = { legend: { columns: 1 }, axisY: { minExtent: 28, titlePadding: 2 } };
const LEGEND_MARK = 32; // pixels that an entry of a legend takes beside its words
const PAPER = 800; // pixels across a printed page
const DRAG = 4, DRAG_ROWS = 16; // pixels; less is a click, or a hand that trembles
const drawn = new Map(); // name of a figure -> what is needed to change it
let followed = null; // the task that is highlighted
let shown = null; // the part of the time that is looked at, [from, to]; null for all
let theme = dark.matches ? pageData.dark : pageData.light; // for rasters; all else has the page's own colours

// -- drawing

// Colours are the page's own, so that they follow it from light to dark and onto paper
const coloured = (value) => {
  if (typeof value === "string") return value.startsWith("@") && value.slice(1) in pageData.light ? `var(--${value.slice(1)})` : value;
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item)]));
  return value;
};
const laidOver = (spec, more) => {
  const result = { ...spec };
  for (const [name, value] of Object.entries(more ?? {})) {
    const both = [value, spec?.[name]].every((one) => one && typeof one === "object" && !Array.isArray(one));
    result[name] = both ? laidOver(spec[name], value) : value;
  }
  return result;
};
const wholeOf = (figure) => [figure.moments.from, figure.moments.to];
const windowOf = (figure) => shown ?? wholeOf(figure);
const dataOf = ({ figure }) => figure.series?.length && ["series", figure.series.flatMap((number) => rowsOf(pageData.series[number], windowOf(figure)))];
// Views change one thing after the other: what comes while they are at something would get lost
const inTurn = (item, change) =>
  (item.turn = (item.turn ?? Promise.resolve()).then(async () => {
    change(item.view);
    await item.view.runAsync();
    if (item.figure.raster) paint(item);
  }));
// The columns that fit of a legend whose entries do not fit into one row: each is as wide as the longest
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
  const look = laidOver(pageData.config, narrow ? NARROW_LOOK : columns ? { legend: { columns } } : {});
  const spec = coloured(laidOver({ $schema: pageData.schema, width: box.clientWidth, ...figure.spec }, narrow ? figure.narrow : {}));
  spec.autosize = { type: "fit-x", contains: "padding" };
  const data = dataOf(item);
  if (data) spec.data = { name: data[0], values: data[1] };
  const embedded = await vegaEmbed(box, spec, {
    mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, config: coloured(look),
    tooltip: (_, event, __, value) => tell(event, linesOf(value)),
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
    await new Promise((go) => setTimeout(go)); // so that the page can be read meanwhile
  }
  restore();
  document.documentElement.dataset.took = Math.round(performance.now()); // since the page was asked for
  document.documentElement.dataset.drawn = "yes";
};

// -- light, dark, paper, and windows that change their width

const redrawn = (colours, pixels) => { // with these colours for rasters, so wide or as wide as there is room
  theme = colours;
  for (const item of drawn.values()) inTurn(item, (view) => view.width(pixels ?? item.box.clientWidth));
};
let unfolded = [], printing = false;
const ofScreen = () => printing || redrawn(dark.matches ? pageData.dark : pageData.light);
dark.addEventListener("change", () => { // only rasters have colours of their own
  if (printing) return;
  theme = dark.matches ? pageData.dark : pageData.light;
  for (const item of drawn.values()) if (item.figure.raster) item.turn = (item.turn ?? Promise.resolve()).then(() => paint(item));
});
addEventListener("beforeprint", () => {
  printing = true;
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const details of unfolded) details.open = true;
  redrawn(pageData.light, PAPER); // paper shows the same part of the time, and the same tasks highlighted
});
addEventListener("afterprint", () => {
  printing = false;
  for (const details of unfolded) details.open = false;
  ofScreen();
});
let settling = 0;
addEventListener("resize", () => {
  clearTimeout(settling);
  settling = setTimeout(() => {
    ofScreen();
    for (const [name, item] of drawn) if (item.box.clientWidth < NARROW !== item.narrow) draw(name);
  }, 100);
});
