// Part of a page's script: numbers over time, and rows that change their state.

// -- packed numbers

const bytesOf = async (text) => {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return (await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
};
const floatsOf = async (text) => new Float64Array(await bytesOf(text));
const countsOf = async (text) => { // all lowest bytes first, then all second ones, and so on
  const bytes = new Uint8Array(await bytesOf(text)), size = bytes.length / 4, numbers = new Uint32Array(size);
  for (let i = 0; i < size; i++)
    numbers[i] = bytes[i] | (bytes[size + i] << 8) | (bytes[2 * size + i] << 16) | (bytes[3 * size + i] << 24);
  return numbers;
};
const lastAtOrBefore = (numbers, value, low, high) => { // the place in numbers[low..high], which rise
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (numbers[middle] <= value) low = middle; else high = middle - 1;
  }
  return low;
};

// -- numbers over time: as many steps as a screen shows, of the part that is looked at

const unpackSeries = async (part) => {
  part.t = await floatsOf(part.t);
  part.sums = {};
  for (const [name, packed] of Object.entries(part.columns)) {
    const values = (part.columns[name] = await floatsOf(packed)), sums = (part.sums[name] = new Float64Array(values.length + 1));
    for (let i = 0; i < values.length; i++) sums[i + 1] = sums[i] + values[i] * (part.t[i + 1] - part.t[i]);
  }
};
const stepAt = (part, time) => lastAtOrBefore(part.t, time, 0, part.t.length - 2);
const sumTo = (part, name, time) => {
  const step = stepAt(part, time);
  return part.sums[name][step] + part.columns[name][step] * (time - part.t[step]);
};
const meanOf = (part, name, from, to) => (sumTo(part, name, to) - sumTo(part, name, from)) / (to - from);
const cutOf = (part, [from, to]) => { // the part that is looked at, and whether its steps are averaged
  const low = Math.max(from, part.t[0]), high = Math.min(to, part.t[part.t.length - 1]);
  if (!(high > low)) return null;
  const first = stepAt(part, low), last = stepAt(part, high);
  return { low, high, first, last, wide: last - first > STEPS ? (high - low) / STEPS : 0 };
};
const rowsOf = (part, window) => {
  const cut = cutOf(part, window), names = Object.keys(part.columns), rows = [];
  if (!cut) return rows;
  const add = (t, value) => rows.push(names.reduce((row, name) => ((row[name] = value(name)), row), { t, of: part.of }));
  if (cut.wide) for (let i = 0; i < STEPS; i++) {
    const begin = cut.low + i * cut.wide;
    add(begin, (name) => meanOf(part, name, begin, begin + cut.wide));
  }
  else for (let i = cut.first; i <= cut.last; i++) add(Math.max(part.t[i], cut.low), (name) => part.columns[name][i]);
  rows.push({ ...rows[rows.length - 1], t: cut.high });
  return rows;
};

// -- rasters: rows that change their state, mixed into the pixels of a canvas that lies over the plot

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
const rowsWithin = (raster, from, to) => { // the rows that are shown when this part of the time is
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
const paletteOf = (raster) => { // the ground, and how each state differs from it, with a 1 where there is something to see
  const colours = raster.colours.map((name) => theme[name.slice(1)] ?? name), again = colours.length - raster.repeat_from;
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const ground = rgb(colours[0]), palette = new Float64Array(4 * raster.labels.length);
  for (let i = 1; i < raster.labels.length; i++) {
    const colour = rgb(colours[i < colours.length ? i : raster.repeat_from + ((i - raster.repeat_from) % again)]);
    palette.set([...colour.map((value, k) => value - ground[k]), 1], 4 * i);
  }
  return [ground, palette];
};
const cornerOf = ({ view }) => [view.origin()[0] + view.padding().left, view.origin()[1] + view.padding().top]; // of the plot
const paint = (item) => {
  const { raster, moments } = item.figure, [left, top] = cornerOf(item), svg = item.box.querySelector("svg");
  const [wide, high] = [item.view.width(), item.view.height()], sharp = Math.min(devicePixelRatio || 1, 2);
  const [from, to] = shown ?? wholeOf(item.figure), [low, above] = item.rows, many = above - low;
  const width = Math.max(Math.round(wide * sharp), 1), height = Math.max(Math.min(Math.round(high * sharp), many), 1);
  const canvas = item.canvas, context = canvas.getContext("2d"), [ground, palette] = paletteOf(raster);
  [canvas.width, canvas.height] = [width, height];
  const places = { left: left / svg.width.baseVal.value, width: wide / svg.width.baseVal.value,
    top: top / svg.height.baseVal.value, height: high / svg.height.baseVal.value };
  for (const [side, share] of Object.entries(places)) canvas.style[side] = `${100 * share}%`;
  const image = context.createImageData(width, height), pixels = image.data, scale = width / (to - from);
  const change = new Float64Array(4 * (width + 2)); // how much each colour, and how much is seen at all, changes to the next
  const known = Math.min((moments.to - from) * scale, width); // nothing is known from there on
  for (let line = 0; line < height; line++) {
    const begin = low + Math.floor((line * many) / height), end = low + Math.floor(((line + 1) * many) / height);
    change.fill(0);
    for (let row = begin; row < end; row++) {
      let i = stateAt(raster, row, from), colour = 4 * raster.states[i];
      const last = raster.first[row + 1];
      for (let k = 0; k < 4; k++) change[k] += palette[colour + k];
      for (i++; i < last && raster.since[i] < to; i++) {
        const next = 4 * raster.states[i], x = (raster.since[i] - from) * scale, pixel = Math.floor(x), part = x - pixel;
        for (let k = 0; k < 4; k++) {
          const step = palette[next + k] - palette[colour + k];
          change[4 * pixel + k] += step * (1 - part);
          change[4 * pixel + 4 + k] += step * part;
        }
        colour = next;
      }
    }
    let red = 0, green = 0, blue = 0, seen = 0;
    for (let x = 0, at = 4 * line * width; x < known; x++, at += 4) {
      red += change[4 * x];
      green += change[4 * x + 1];
      blue += change[4 * x + 2];
      seen += change[4 * x + 3];
      const strong = seen > 1e-6 ? 1 / Math.sqrt(seen * (end - begin)) : 0; // so that what is rare is seen too
      pixels[at] = ground[0] + red * strong;
      pixels[at + 1] = ground[1] + green * strong;
      pixels[at + 2] = ground[2] + blue * strong;
      pixels[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
};
