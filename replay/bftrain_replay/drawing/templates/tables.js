// Part of a page's script: sorts tables by a heading, and filters them by words and comparisons.

const FILTERED = 10; // rows; shorter tables have no filter
const UNITS = { "%": 0.01, s: 1, min: 60, h: 3600, days: 86400, million: 1e6, billion: 1e9, trillion: 1e12 };
const AT_ONCE = 200; // rows that are shown until the reader scrolls to the end: the layout of thousands takes long
const tables = new Map(); // name of a sortable table -> its rows, order and filter

const sortBy = (item, heading, down) => {
  const heads = [...item.table.tHead.rows[0].cells], head = heads.find((one) => one.textContent === heading);
  if (!head) return;
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  item.sort = [heading, down];
  const key = (row) => row.cells[head.cellIndex].dataset.key ?? "";
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === "") || 0; // missing values are last in both directions
    const difference = isNaN(x) || isNaN(y) ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return down ? -difference : difference;
  };
  item.order.sort(order);
  arrange(item);
};
const arrange = (item) => {
  const focus = document.activeElement;
  item.shown = AT_ONCE;
  item.table.tBodies[0].append(...item.order);
  if (item.table.contains(focus)) focus.focus({ preventScroll: true }); // moved rows lose it
  show(item);
};
const show = (item) => {
  let left = 0;
  for (const row of item.table.tBodies[0].rows) {
    const hidden = item.left?.has(row) === false || ++left > item.shown;
    if (row.hidden !== hidden) row.hidden = hidden;
  }
};
// A part such as lost>5% compares a column; the row must contain any other part
const conditionOf = (item, part) => {
  const [, heading, sign, value, unit] = part.match(/^([^<>]+)([<>])([\d.,]+)(.*)$/) ?? [];
  const heads = [...item.table.tHead.rows[0].cells].map((one) => one.textContent.toLowerCase());
  const column = heads.findIndex((one) => heading && one.startsWith(heading)), factor = unit ? UNITS[unit] : 1;
  if (column < 0 || !factor) return (row, text) => text.includes(part);
  const limit = parseFloat(value.replaceAll(",", "")) * factor;
  return (row) => {
    const key = row.cells[column].dataset.key;
    return key !== undefined && (sign === ">" ? +key > limit : +key < limit);
  };
};
const filterBy = (item, text) => {
  const words = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").replaceAll("\u00a0", " ").toLowerCase();
  item.texts ??= new Map(item.order.map((row) => [row, words(row)]));
  const conditions = text.toLowerCase().split(/\s+/).filter(Boolean).map((part) => conditionOf(item, part));
  const holds = (row) => conditions.every((condition) => condition(row, item.texts.get(row)));
  [item.filter, item.left, item.shown] = [text.trim(), new Set(item.order.filter(holds)), AT_ONCE];
  if (item.field !== document.activeElement) item.field.value = text;
  item.count.textContent = item.filter ? `“${item.filter}”: ${item.left.size.toLocaleString("en")} of ${item.order.length.toLocaleString("en")} rows` : "";
  show(item);
};

for (const table of document.querySelectorAll("table:has(th button)")) {
  const scroll = table.closest(".scroll"), label = scroll.getAttribute("aria-label");
  const item = { table, scroll, sort: null, filter: "", order: [...table.tBodies[0].rows], shown: AT_ONCE }, name = label.toLowerCase().replaceAll(" ", "-");
  tables.set(name, item);
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!event.target.closest("button")) return;
    sortBy(item, head.textContent, head.getAttribute("aria-sort") === "ascending");
    remember();
  });
  show(item);
  scroll.addEventListener("scroll", () => {
    if (scroll.scrollTop + 2 * scroll.clientHeight < scroll.scrollHeight || item.shown >= item.order.length) return;
    item.shown += AT_ONCE;
    show(item);
  }, { passive: true });
  if (item.order.length < FILTERED) continue;
  const line = Object.assign(document.createElement("p"), { className: "filter" });
  const hint = "Words that a row must have; or a column compared, such as waited>2h or lost>5%";
  item.field = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter rows: a word, waited>2h", title: hint, spellcheck: false });
  item.field.setAttribute("aria-label", `Filter the table ${label}`);
  item.count = document.createElement("output");
  item.field.addEventListener("input", () => { filterBy(item, item.field.value); remember(); });
  line.append(item.field, item.count);
  scroll.before(line);
}
