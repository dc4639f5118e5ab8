// Part of a page's script: draws rows that change state on a canvas over the plot; pixels mix the colours of states.

const unpackRaster = async (raster) => {
  const [counts, later, states, at] = await Promise.all(
    [countsOf(raster.counts), countsOf(raster.later), countsOf(raster.states), floatsOf(raster.at)]);
  raster.first = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) raster.first[i + 1] = raster.first[i] + counts[i];
  raster.since = new Float64Array(later.length);
  for (let row = 0; row < counts.length; row++)
    for (let i = raster.first[row], moment = 0; i < raster.first[row + 1]; i++)
      raster.since[i] = raster.start + 1000 * at[(moment += later[i])];
  raster.states = states;
};
const stateAt = (raster, row, time) => lastAtOrBefore(raster.since, time, raster.first[row], raster.first[row + 1] - 1);
const rowsShownAt = (raster, from, to) => { // the rows to show for this part of the time
  const rows = raster.rows.length, some = (row) => {
    for (let i = stateAt(raster, row, from); i < raster.first[row + 1] && raster.since[i] < to; i++) if (raster.states[i]) return true;
    return false;
  };
  let low = 0, above = rows;
  if (!raster.follows || !shown) return [0, rows];
  while (low < rows && !some(low)) low++;
  while (above > low && !some(above - 1)) above--;
  return low < above ? [low, above] : [0, rows];
};
const firstTask = (raster) => raster.colours.length - 1; // the first state that is a task
const taskOf = (raster, row, state) => { // the task of this state in this row; "" for other states
  if (raster.tasks_are === "rows") return state ? raster.rows[row] : "";
  return raster.tasks_are && state >= firstTask(raster) ? raster.labels[state] : "";
};
const isFollowed = (raster, row, state) => followed !== null && followed === taskOf(raster, row, state);
const rgbOf = (name) => {
  const hex = theme[name.slice(1)] ?? name;
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
};
const CHANNELS = 5; // of a palette: red, green, blue, 1 unless empty, 1 if highlighted
const DIMMED = 0.3, LEAST_FOLLOWED = 0.55; // strength of other tasks, and least strength of the highlighted one
// Where many hues of tasks would mix to noise, all tasks have one colour, drawn as a density in cells of several pixels
const CELL = 5, CROWDED = 0.5; // pixels; changes a pixel
const isDense = (item, pixels) => {
  const { raster } = item.figure, [from, to] = shown ?? wholeOf(item.figure);
  let changes = 0;
  if (raster.tasks_are === "labels") for (let row = item.rows[0]; row < item.rows[1]; row++)
    changes += 1 + stateAt(raster, row, to) - stateAt(raster, row, from);
  return changes > CROWDED * pixels;
};
const hueTasks = (item) => { // hues of the tasks visible longest; tasks keep their hue while the reader zooms
  const { raster, moments } = item.figure, [from, to] = shown ?? wholeOf(item.figure), seen = new Float64Array(raster.labels.length);
  for (let row = item.rows[0]; row < item.rows[1]; row++) {
    const last = raster.first[row + 1];
    for (let i = stateAt(raster, row, from); i < last && raster.since[i] < to; i++)
      seen[raster.states[i]] += Math.min(i + 1 < last ? raster.since[i + 1] : moments.to, to) - Math.max(raster.since[i], from);
  }
  const tasks = [...seen.keys()].slice(firstTask(raster)).filter((state) => seen[state] > 0).sort((a, b) => seen[b] - seen[a]);
  const most = tasks.slice(0, raster.hues.length), before = (shown && item.hues) || new Map();
  const hues = new Map([...before].filter(([state]) => most.includes(state))), free = raster.hues.filter((hue) => ![...hues.values()].includes(hue));
  return new Map(most.map((state) => [state, hues.get(state) ?? free.shift()]));
};
const writeKey = (item) => {
  const key = item.box.closest("figure").querySelector(":scope > .key"), { raster } = item.figure;
  const swatch = (colour) => Object.assign(document.createElement("i"), { style: `background:${colour}` });
  const named = followed !== null ? [[followed, "var(--followed)"]] : [...item.hues].map(([state, hue]) => [raster.labels[state], hue]);
  key?.replaceChildren(...named.map(([task, colour]) => {
    const link = Object.assign(document.createElement("a"), { href: `#follow=${encodeURIComponent(task)}` });
    link.append(swatch(colour), task);
    return link;
  }));
};
const paletteOf = (item) => { // the background colour, and the difference of each state from it
  const { raster } = item.figure, ground = rgbOf(raster.colours[0]), palette = new Float64Array(CHANNELS * raster.labels.length);
  const colours = raster.colours.map(rgbOf);
  for (let i = 1; i < raster.labels.length; i++) {
    const hue = item.hues.get(i), colour = hue ? rgbOf(hue) : colours[Math.min(i, colours.length - 1)];
    palette.set([...colour.map((value, k) => value - ground[k]), 1, +(raster.tasks_are === "labels" && isFollowed(raster, 0, i))], CHANNELS * i);
  }
  return [ground, palette];
};
const groupOf = (raster, row) => raster.groups.findLast(([, begin]) => begin <= row)?.[0];
const cornerOf = ({ view }) => [view.origin()[0] + view.padding().left, view.origin()[1] + view.padding().top]; // of the plot
const paint = (item) => {
  const { raster, moments } = item.figure, [left, top] = cornerOf(item), svg = item.box.querySelector("svg");
  const [wide, high] = [item.view.width(), item.view.height()], sharp = Math.min(devicePixelRatio || 1, 2);
  const [from, to] = shown ?? wholeOf(item.figure), [low, above] = item.rows, many = above - low;
  const dense = isDense(item, wide * Math.min(high, many)), cell = dense && !followed ? CELL * sharp : 1;
  const width = Math.max(Math.round((wide * sharp) / cell), 1), height = Math.max(Math.min(Math.round((high * sharp) / cell), many), 1);
  item.hues = dense || followed || raster.tasks_are !== "labels" ? new Map() : hueTasks(item);
  const canvas = item.canvas, context = canvas.getContext("2d"), [ground, palette] = paletteOf(item);
  writeKey(item);
  [canvas.width, canvas.height] = [width, height];
  const places = { left: left / svg.width.baseVal.value, width: wide / svg.width.baseVal.value,
    top: top / svg.height.baseVal.value, height: high / svg.height.baseVal.value };
  const groups = item.box.parentElement.querySelector(".groups");
  for (const [side, share] of Object.entries(places)) for (const over of [canvas, groups]) over.style[side] = `${100 * share}%`;
  groups.replaceChildren(...raster.groups.flatMap(([name, begin], i) => { // the name is at the first visible row
    const end = raster.groups[i + 1]?.[1] ?? raster.rows.length, at = Math.max(begin, low), share = (at - low) / many;
    if (end <= low || begin >= above || ((Math.min(end, above) - at) / many) * high < 13) return []; // no room
    const line = Object.assign(document.createElement("div"), { style: `top:${100 * share}%` });
    line.append(Object.assign(document.createElement("span"), { textContent: name }));
    return [line];
  }));
  const image = context.createImageData(width, height), pixels = image.data, scale = width / (to - from);
  const change = new Float64Array(CHANNELS * (width + 2)); // the change of each channel from one pixel to the next
  const known = Math.min((moments.to - from) * scale, width); // the end of the data
  const hot = rgbOf("@followed"), rowsAre = followed && raster.tasks_are === "rows", dim = followed && raster.tasks_are ? DIMMED : 1;
  for (let line = 0; line < height; line++) {
    const begin = low + Math.floor((line * many) / height), end = low + Math.floor(((line + 1) * many) / height);
    change.fill(0);
    for (let row = begin; row < end; row++) {
      const here = rowsAre && isFollowed(raster, row, 1), last = raster.first[row + 1];
      let i = stateAt(raster, row, from), state = raster.states[i];
      for (let k = 0; k < CHANNELS; k++) change[k] += palette[CHANNELS * state + k];
      if (here) change[4] += +(state > 0);
      for (i++; i < last && raster.since[i] < to; i++) {
        const next = raster.states[i], x = (raster.since[i] - from) * scale, at = CHANNELS * Math.floor(x), part = x - Math.floor(x);
        for (let k = 0; k < CHANNELS; k++) {
          const step = here && k === 4 ? (next > 0) - (state > 0) : palette[CHANNELS * next + k] - palette[CHANNELS * state + k];
          change[at + k] += step * (1 - part);
          change[at + CHANNELS + k] += step * part;
        }
        state = next;
      }
    }
    let red = 0, green = 0, blue = 0, seen = 0, share = 0;
    for (let x = 0, at = 4 * line * width; x < known; x++, at += 4) {
      red += change[CHANNELS * x];
      green += change[CHANNELS * x + 1];
      blue += change[CHANNELS * x + 2];
      seen += change[CHANNELS * x + 3];
      share += change[CHANNELS * x + 4];
      const strong = seen > 1e-6 ? dim / Math.sqrt(seen * (end - begin)) : 0; // strengthens rare states
      const over = share > 1e-6 ? Math.max(Math.min(Math.sqrt(share / (end - begin)), 1), LEAST_FOLLOWED) : 0;
      pixels[at] = (ground[0] + red * strong) * (1 - over) + hot[0] * over;
      pixels[at + 1] = (ground[1] + green * strong) * (1 - over) + hot[1] * over;
      pixels[at + 2] = (ground[2] + blue * strong) * (1 - over) + hot[2] * over;
      pixels[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
};
