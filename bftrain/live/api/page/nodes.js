// The grid of nodes: one square per node, as large as fits; its colour is the task, its shape the state.

import { ofNodes } from "./words.js";

const STATES = ["used", "free", "draining", "drained", "away"];
const WORDS = { used: "used", free: "unused", draining: "being vacated", drained: "drained", away: "not available now" };
const HEIGHT = 250, LARGEST = 62, SMALLEST = 5, NAMED = 44;
const natural = new Intl.Collator("en", { numeric: true });

export const grid = (canvas, tools) => {
  let nodes = new Map(), kinds = new Map(), order = [], prefix = 0, at = -1, layout = { columns: 1, pitch: 1 };

  const update = (changes, anew) => {
    if (anew) [nodes, kinds] = [new Map(), new Map()];
    const before = nodes.size;
    let fresh = anew;
    for (const name of changes?.gone ?? []) nodes.delete(name);
    for (const [name, node] of Object.entries(changes?.changed ?? {})) {
      fresh ||= !nodes.has(name);
      nodes.set(name, node);
    }
    for (const [name, kind] of Object.entries(changes?.kinds ?? {})) kinds.set(name, kind);
    if (fresh || nodes.size !== before || changes?.gone?.length) sort();
  };
  const sort = () => {
    order = [...nodes.keys()].sort(natural.compare);
    const [one, other] = [order[0] ?? "", order.at(-1) ?? ""];
    prefix = order.length < 2 ? 0 : [...one].findIndex((letter, place) => letter !== other[place] || order.some((name) => name[place] !== letter));
  };
  const counts = () => {
    const found = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const [state] of nodes.values()) found[state] += 1;
    return STATES.map((state) => [state, WORDS[state], found[state]]);
  };
  const box = (index) => {
    const { columns, pitch } = layout, gap = pitch >= 12 ? 2 : 1;
    return [(index % columns) * pitch, Math.floor(index / columns) * pitch, pitch - gap];
  };
  const one = (pen, name, index, colour) => {
    const [state, task] = nodes.get(name), [x, y, side] = box(index);
    const hue = task ? tools.hue(task) : colour("used");
    const round = side > 14 ? 4 : 0;
    const shape = (inset) => {
      pen.beginPath();
      pen.roundRect(x + inset, y + inset, side - 2 * inset, side - 2 * inset, round);
    };
    if (state === "used" || state === "draining") {
      pen.fillStyle = hue;
      shape(0);
      pen.fill();
    } else {
      pen.fillStyle = state === "free" ? colour("idle") : colour("card");
      pen.strokeStyle = colour("soft");
      pen.lineWidth = 1;
      shape(0.5);
      if (state !== "away") pen.fill();
      pen.setLineDash(state === "away" && side > 8 ? [3, 3] : []);
      if (state !== "free" || side > 8) pen.stroke();
      pen.setLineDash([]);
    }
    if (state === "drained" || state === "draining") { // crossed out
      pen.strokeStyle = state === "drained" ? colour("ink") : colour("page");
      pen.lineWidth = side > 14 ? 2 : 1;
      pen.beginPath();
      pen.moveTo(x + 1, y + side - 1);
      pen.lineTo(x + side - 1, y + 1);
      pen.stroke();
    }
    if (side >= NAMED) {
      pen.font = `12px ${tools.font()}`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      const fits = (text) => pen.measureText(text).width <= side - 6;
      const words = [name, name.slice(Math.max(0, prefix)), `…${name.slice(-4)}`].find(fits) ?? "";
      const ground = state === "used" || state === "draining" ? hue : null;
      pen.fillStyle = ground ? tools.on(ground) : colour("ink");
      pen.fillText(words, x + side / 2, y + side / 2 + (state === "drained" || state === "draining" ? side / 4 : 0));
    }
  };
  const draw = () => {
    const width = canvas.parentElement.clientWidth, all = order.length;
    let pitch = Math.min(LARGEST, Math.floor(Math.sqrt((width * HEIGHT) / Math.max(1, all))));
    while (pitch > SMALLEST && Math.ceil(all / Math.floor(width / pitch)) * pitch > HEIGHT) pitch -= 1;
    pitch = Math.max(SMALLEST, pitch);
    layout = { columns: Math.max(1, Math.floor(width / pitch)), pitch };
    const pen = tools.sized(canvas, width, Math.max(1, Math.ceil(all / layout.columns) * pitch));
    const colours = {}, colour = (role) => (colours[role] ??= tools.colour(role));
    order.forEach((name, index) => one(pen, name, index, colour));
    if (at >= 0 && at < all) {
      const [x, y, side] = box(at);
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.strokeRect(x, y, side, side);
    }
    const said = counts().filter(([, , number]) => number).map(([, words, number]) => `${number} ${words}`).join(", ");
    canvas.setAttribute("aria-label", `${ofNodes(`${all} nodes`)}: ${said || "none"}. Arrow keys describe each.`);
  };
  const words = (index) => {
    const name = order[index], [state, task] = nodes.get(name), kind = kinds.get(name);
    return [kind ? `${name} (${kind})` : name, task ? `${WORDS[state]} by ${tools.name(task)}` : WORDS[state]];
  };
  const point = (index, x, y, spoken) => {
    if (index === at && index < 0) return;
    at = index >= 0 && index < order.length ? index : -1;
    draw();
    tools.tip(at < 0 ? null : words(at), x, y, spoken);
  };
  canvas.addEventListener("pointermove", (event) => {
    const place = canvas.getBoundingClientRect(), { columns, pitch } = layout;
    const column = Math.floor((event.clientX - place.left) / pitch), row = Math.floor((event.clientY - place.top) / pitch);
    point(column < columns ? row * columns + column : -1, event.clientX, event.clientY, false);
  });
  canvas.addEventListener("pointerleave", () => point(-1));
  canvas.addEventListener("blur", () => point(-1));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: layout.columns, ArrowUp: -layout.columns }[event.key];
    if (!step || !order.length) return;
    event.preventDefault();
    const next = at < 0 ? 0 : Math.min(order.length - 1, Math.max(0, at + step));
    const place = canvas.getBoundingClientRect(), [x, y, side] = box(next);
    point(next, place.left + x + side, place.top + y + side, true);
  });
  return { update, draw, counts, get size() { return order.length; } };
};
