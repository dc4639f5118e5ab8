// Durations of finished tasks: a cumulative chart, and means by campaign.

import * as words from "./words.js";

const LEFT = 46, RIGHT = 14, TOP = 8, BOTTOM = 24, HIGH = 200;
const CAMPAIGNS = 12;
const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
const long = (seconds) => (seconds < 60 ? words.milliseconds(seconds) : words.duration(seconds));
const sorted = (values) => [...values].sort((a, b) => a - b);

export const completed = (canvas, tools) => {
  let done = [];
  const took = (task) => task.ended_s - task.submitted_s;
  const waited = (task) => task.started_s - task.submitted_s;

  const update = (tasks) => {
    done = tasks.filter((task) => task.state === "done" && task.started_s !== null);
  };
  const summary = () => {
    const all = sorted(done.map(took)), stops = mean(done.map((task) => task.preemptions + task.rescales));
    return `${words.counted(done.length, "task")}: done ${long(mean(all))} after submission on average, half within ${long(at(all, 0.5))}, 95 % within ${long(at(all, 0.95))}; first nodes after ${long(mean(done.map(waited)))}; ${words.count(stops)} changes of nodes per task.`;
  };
  // The means of each campaign; a start-up is the overhead of a preemption
  const campaigns = () => {
    const found = new Map();
    for (const task of done) found.set(task.campaign, [...(found.get(task.campaign) ?? []), task]);
    return [...found].sort((a, b) => b[1].length - a[1].length).slice(0, CAMPAIGNS).map(([campaign, tasks]) => {
      const starts = tasks.filter((task) => task.costs.start).map((task) => task.costs.start);
      return [
        campaign || "none", words.count(tasks.length), long(mean(tasks.map(took))),
        starts.length ? long(mean(starts)) : "", words.count(mean(tasks.map((task) => task.rescales))), words.count(mean(tasks.map((task) => task.preemptions))),
      ];
    });
  };
  const draw = () => {
    if (!done.length) return;
    const width = canvas.parentElement.clientWidth, pen = tools.sized(canvas, width, HIGH);
    const lines = [[sorted(done.map(took)), "used", []], [sorted(done.map(waited)), "reason1", [5, 4]]];
    const longest = Math.max(1, ...lines[0][0]);
    const x = (seconds) => LEFT + (seconds / longest) * (width - LEFT - RIGHT), y = (share) => HIGH - BOTTOM - share * (HIGH - TOP - BOTTOM);
    pen.font = `12px ${tools.font()}`;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      pen.strokeStyle = tools.colour("line");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(LEFT, Math.round(y(share)) + 0.5);
      pen.lineTo(width - RIGHT, Math.round(y(share)) + 0.5);
      pen.stroke();
      pen.fillStyle = tools.colour("reason1");
      pen.fillText(`${100 * share} %`, LEFT - 6, y(share));
    }
    pen.textBaseline = "top";
    for (const part of [0, 0.5, 1]) {
      pen.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
      pen.fillText(part ? long(part * longest) : "0", x(part * longest), HIGH - BOTTOM + 8);
    }
    for (const [values, colour, dashes] of lines) {
      pen.strokeStyle = tools.colour(colour);
      pen.lineWidth = 2;
      pen.setLineDash(dashes);
      pen.beginPath();
      pen.moveTo(x(0), y(0));
      values.forEach((value, index) => {
        pen.lineTo(x(value), y(index / values.length));
        pen.lineTo(x(value), y((index + 1) / values.length));
      });
      pen.lineTo(x(longest), y(1));
      pen.stroke();
    }
    pen.setLineDash([]);
  };
  return { update, draw, summary, campaigns, get size() { return done.length; } };
};
