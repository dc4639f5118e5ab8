// Charts over time: the nodes of each task, stacked, below the line of available nodes; and the speed of all tasks.

import * as words from "./words.js";

const LEFT = 46, RIGHT = 8, TOP = 8, BOTTOM = 24;
const BANDS = 8; // tasks with a band of their own, one for each hue; the remaining tasks share a band
const LABEL = 16; // pixels: minimum height of a band with a name
const EDGED = 4; // pixels: minimum height of a band with edges
const DRAG = 5;
const YOUNGEST = 10; // a chart of a young run shows at least its span divided by this
const OTHERS = 0;
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];

// Rounded to device pixels: otherwise the background would shine through between neighbours
const edgeAt = (x) => Math.round(x * (devicePixelRatio || 1)) / (devicePixelRatio || 1);
const roundUp = (number) => {
  if (number <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(number));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * size).find((step) => step >= number * (1 - 1e-9));
};

export const charts = (sizes, speeds, tools) => {
  let cells = [], span = 600, width_s = 1, now = 0, part = null, at = null, drag = null;
  const known = new Map(); // start of a cell -> the cell

  const update = (history, now_s, anew) => {
    if (anew) known.clear();
    now = now_s;
    if (history) {
      [span, width_s] = [history.span_s, history.width_s];
      sizes.dataset.shownSpan = span;
      for (const cell of history.cells) known.set(cell.begin_s, cell);
      const oldest = now - span - width_s;
      for (const begin of known.keys()) if (begin < oldest) known.delete(begin);
      cells = [...known.values()].sort((a, b) => a.begin_s - b.begin_s);
    }
  };
  // The chart starts with the run if that is younger than the span
  const shown = () => part ?? [Math.min(now - span / YOUNGEST, Math.max(now - span, cells[0]?.begin_s ?? now)), now];
  const within = () => {
    const [from, to] = shown();
    return cells.filter((cell) => cell.begin_s + width_s > from && cell.begin_s < to);
  };
  // The bands from the bottom up: the largest tasks by number, then all others together
  const bands = (seen) => {
    const held = new Map();
    for (const cell of seen)
      for (const [number, size] of Object.entries(cell.sizes))
        held.set(Number(number), (held.get(Number(number)) ?? 0) + size * cell.known_s);
    const largest = [...held].filter(([number]) => number !== OTHERS).sort((a, b) => b[1] - a[1]).slice(0, BANDS);
    const own = largest.map(([number]) => number).sort((a, b) => a - b);
    return held.size > own.length ? [...own, OTHERS] : own;
  };
  const heights = (cell, own) => {
    const rest = Object.entries(cell.sizes).filter(([number]) => !own.includes(Number(number)) || Number(number) === OTHERS);
    const others = rest.reduce((sum, [, size]) => sum + size, 0);
    return own.map((number) => (number === OTHERS ? others : cell.sizes[number] ?? 0));
  };

  // -- drawing

  const scale = (canvas, height, largest) => {
    const width = canvas.parentElement.clientWidth, pen = tools.sized(canvas, width, height);
    const [from, to] = shown(), top = roundUp(largest);
    const x = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (value) => height - BOTTOM - (value / top) * (height - TOP - BOTTOM);
    return { pen, width, height, top, from, to, x, y };
  };
  const axes = ({ pen, width, height, top, from, to, x, y }, whole) => {
    pen.font = `12px ${tools.font()}`;
    pen.lineWidth = 1;
    const most = Math.max(2, Math.floor((height - TOP - BOTTOM) / 34));
    let step = roundUp(top / most);
    if (whole) step = Math.max(1, Math.ceil(step));
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (let value = 0; value <= top * 1.0001; value += step) {
      pen.strokeStyle = tools.colour("line");
      pen.beginPath();
      pen.moveTo(LEFT, Math.round(y(value)) + 0.5);
      pen.lineTo(width - RIGHT, Math.round(y(value)) + 0.5);
      pen.stroke();
      pen.fillStyle = tools.colour("reason1");
      pen.fillText(words.tick(value), LEFT - 6, y(value));
    }
    const room = Math.max(2, Math.floor((width - LEFT - RIGHT) / 84));
    const every = TICKS.find((tick) => (to - from) / tick <= room) ?? 345600;
    const shift = new Date(1000 * to).getTimezoneOffset() * 60; // days start at local midnight
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (let time = Math.ceil((from - shift) / every) * every + shift; time <= to; time += every) {
      const text = every >= 86400 ? words.day(time) : every >= 60 ? words.clock(time).slice(0, 5) : words.clock(time);
      const half = pen.measureText(text).width / 2;
      if (x(time) - half < LEFT - 10 || x(time) + half > width) continue;
      pen.fillText(text, x(time), height - BOTTOM + 8);
    }
  };
  const clipped = (picture, paint) => {
    const { pen, width, height } = picture;
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT - RIGHT, height - BOTTOM + 1);
    pen.clip();
    paint();
    pen.restore();
  };
  const ends = (cell) => Math.min(cell.begin_s + width_s, now);
  // Draws a line of steps, with gaps where no data exists
  const steps = ({ pen, x, y }, seen, value) => {
    pen.beginPath();
    let last = null;
    for (const cell of seen) {
      const joined = last !== null && cell.begin_s - last < width_s / 2;
      pen[joined ? "lineTo" : "moveTo"](x(cell.begin_s), y(value(cell)));
      pen.lineTo(x(ends(cell)), y(value(cell)));
      last = cell.begin_s + width_s;
    }
  };
  const drawSizes = (seen) => {
    const own = bands(seen);
    const picture = scale(sizes, innerWidth > 1080 ? 350 : 280, Math.max(1, ...seen.map((cell) => cell.pool)));
    const { pen, x, y } = picture;
    axes(picture, true);
    const stacked = seen.map((cell) => heights(cell, own));
    clipped(picture, () => {
      pen.fillStyle = tools.colour("idle");
      pen.globalAlpha = 0.55;
      seen.forEach((cell) => {
        const [left, right] = [edgeAt(x(cell.begin_s)), edgeAt(x(ends(cell)))];
        pen.fillRect(left, y(cell.pool), right - left, y(0) - y(cell.pool));
      });
      pen.globalAlpha = 1;
      const below = seen.map(() => 0);
      own.forEach((number, band) => {
        pen.fillStyle = number === OTHERS ? tools.colour("reason1") : tools.hue(number);
        seen.forEach((cell, index) => {
          const size = stacked[index][band];
          if (!size) return;
          const [left, right] = [edgeAt(x(cell.begin_s)), edgeAt(x(ends(cell)))];
          pen.fillRect(left, y(below[index] + size), right - left, y(below[index]) - y(below[index] + size));
          below[index] += size;
        });
        if (band) edge(picture, seen, stacked, band);
      });
      steps(picture, seen, (cell) => cell.pool);
      pen.strokeStyle = tools.colour("ink");
      pen.lineWidth = 1.5;
      pen.stroke();
      names(picture, seen, stacked, own);
      hair(picture);
    });
  };
  // A thin line between two bands separates similar colours
  const edge = (picture, seen, stacked, band) => {
    const { pen, x, y } = picture;
    pen.strokeStyle = tools.colour("page");
    pen.lineWidth = 1;
    pen.beginPath();
    seen.forEach((cell, index) => {
      if (y(0) - y(stacked[index][band]) < EDGED) return;
      const height = y(stacked[index].slice(0, band).reduce((sum, size) => sum + size, 0));
      pen.moveTo(x(cell.begin_s), height);
      pen.lineTo(x(ends(cell)), height);
    });
    pen.stroke();
  };
  // The name of a band is drawn in its longest stretch of constant size, if there is room
  const names = ({ pen, x, y }, seen, stacked, own) => {
    pen.font = `600 12px ${tools.font()}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    own.forEach((number, band) => {
      let best = null, run = null;
      seen.forEach((cell, index) => {
        const size = stacked[index][band], base = stacked[index].slice(0, band).reduce((sum, one) => sum + one, 0);
        const goes_on = run && Math.abs(run.size - size) < 0.01 && Math.abs(run.base - base) < 0.01 && cell.begin_s - run.to < width_s / 2;
        if (goes_on) run.to = cell.begin_s + width_s;
        else run = size ? { from: cell.begin_s, to: cell.begin_s + width_s, size, base } : null;
        if (run && (!best || run.to - run.from > best.to - best.from)) best = { ...run };
      });
      if (!best) return;
      const text = tools.name(number), [left, right] = [Math.max(x(best.from), LEFT), x(Math.min(best.to, now))];
      const high = y(best.base) - y(best.base + best.size);
      if (high < LABEL || pen.measureText(text).width + 12 > right - left) return;
      pen.fillStyle = tools.on(number === OTHERS ? tools.colour("reason1") : tools.hue(number));
      pen.fillText(text, (left + right) / 2, y(best.base + best.size / 2));
    });
  };
  const drawSpeeds = (seen) => {
    const picture = scale(speeds, innerWidth > 1080 ? 180 : 130, Math.max(1, ...seen.map((cell) => cell.speed)));
    const { pen, x, y } = picture;
    axes(picture, false);
    clipped(picture, () => {
      pen.fillStyle = tools.colour("used");
      pen.globalAlpha = 0.25;
      seen.forEach((cell) => {
        const [left, right] = [edgeAt(x(cell.begin_s)), edgeAt(x(ends(cell)))];
        pen.fillRect(left, y(cell.speed), right - left, y(0) - y(cell.speed));
      });
      pen.globalAlpha = 1;
      steps(picture, seen, (cell) => cell.speed);
      pen.strokeStyle = tools.colour("used");
      pen.lineWidth = 2;
      pen.stroke();
      hair(picture);
    });
  };
  const hair = ({ pen, x, height }) => {
    if (at !== null) {
      pen.fillStyle = tools.colour("ink");
      pen.globalAlpha = 0.5;
      pen.fillRect(Math.round(x(at)), 0, 1, height - BOTTOM);
    }
    if (drag && Math.abs(drag.to - drag.from) > 0) {
      pen.fillStyle = tools.colour("used");
      pen.globalAlpha = 0.2;
      pen.fillRect(x(Math.min(drag.from, drag.to)), 0, Math.abs(x(drag.to) - x(drag.from)), height - BOTTOM);
    }
    pen.globalAlpha = 1;
  };
  const draw = () => {
    const seen = within();
    drawSizes(seen);
    drawSpeeds(seen);
    const last = seen.at(-1);
    const told = last ? `now ${words.counted(last.pool, "node")}, ${words.count(last.speed)} samples per second` : "no data yet";
    sizes.setAttribute("aria-label", `Nodes over time by task: ${told}. Arrow keys describe each moment.`);
    speeds.setAttribute("aria-label", `Speed over time: ${told}. Arrow keys describe each moment.`);
  };

  // -- pointer and keyboard

  const cellAt = (time) => cells.find((cell) => time >= cell.begin_s && time < cell.begin_s + width_s);
  const told = (cell) => {
    const held = Object.entries(cell.sizes).sort((a, b) => b[1] - a[1]);
    const lines = held.slice(0, 8).map(([number, size]) => `${tools.name(Number(number))}: ${words.counted(Math.round(100 * size) / 100, "node")}`);
    const more = held.length > 8 ? [`and ${held.length - 8} others`] : [];
    const used = held.reduce((sum, [, size]) => sum + size, 0);
    const pool = `${words.count(Math.round(100 * used) / 100)} of ${words.counted(Math.round(100 * cell.pool) / 100, "node")} used`;
    return [words.moment(cell.begin_s), pool, ...lines, ...more, `${words.count(cell.speed)} samples/s`];
  };
  const point = (time, x, y, spoken) => {
    at = time;
    const cell = time === null ? null : cellAt(time);
    tools.tip(cell ? told(cell) : null, x, y, spoken);
    tools.redraw();
  };
  const timeAt = (canvas, event) => {
    const place = canvas.getBoundingClientRect(), [from, to] = shown();
    const share = (event.clientX - place.left - LEFT) / (place.width - LEFT - RIGHT);
    return from + Math.min(1, Math.max(0, share)) * (to - from);
  };
  const look = (chosen) => {
    part = chosen;
    tools.looked(part);
    tools.redraw();
  };
  for (const canvas of [sizes, speeds]) {
    let pressed = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pressed = event.clientX;
      const time = timeAt(canvas, event);
      drag = { from: time, to: time };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const time = timeAt(canvas, event);
      if (drag) drag.to = time;
      point(time, event.clientX, event.clientY, false);
    });
    canvas.addEventListener("pointerup", (event) => {
      const chosen = drag && [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
      drag = null;
      if (chosen && Math.abs(event.clientX - pressed) >= DRAG && chosen[1] - chosen[0] >= width_s) look(chosen);
      else tools.redraw();
    });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("dblclick", () => look(null));
    canvas.addEventListener("pointerleave", () => { if (!drag) point(null); });
    canvas.addEventListener("blur", () => point(null));
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return look(null);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], seen = within();
      if (!step || !seen.length) return undefined;
      event.preventDefault();
      const index = at === null ? seen.length : seen.findIndex((cell) => at >= cell.begin_s && at < cell.begin_s + width_s);
      const cell = seen[Math.min(seen.length - 1, Math.max(0, index + step))];
      const place = canvas.getBoundingClientRect(), [from, to] = shown(), middle = cell.begin_s + width_s / 2;
      const x = place.left + LEFT + ((middle - from) / (to - from)) * (place.width - LEFT - RIGHT);
      return point(Math.min(middle, (cell.begin_s + ends(cell)) / 2), x, place.top + 40, true);
    });
  }
  return { update, draw, look, bands: () => bands(within()) };
};
