// Part of a page's script: unpacks numbers, and averages series over time.

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
const lastAtOrBefore = (numbers, value, low, high) => { // index in the ascending numbers[low..high]; low if all are larger
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (numbers[middle] <= value) low = middle; else high = middle - 1;
  }
  return low;
};

// -- series: rows for the visible part of the time, at most as many as a screen can resolve

const unpackSeries = async (part) => {
  const { from, to, steps } = part.t; // steps of equal length; otherwise t has the start of each
  part.t = steps ? Float64Array.from({ length: steps + 1 }, (_, i) => from + ((to - from) * i) / steps) : await floatsOf(part.t);
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
const cutOf = (part, [from, to]) => { // the visible part of a series; wide: length of the averaged steps, 0 for exact ones
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
