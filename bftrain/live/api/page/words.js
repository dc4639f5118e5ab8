// Formats figures as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export const count = (number) => (Math.abs(number) >= 100 ? whole : fine).format(number);
// If the unit is a GPU, the server counts each GPU as a node
let noun = "node";
export const callNodes = (unit) => { if (unit === "gpu") noun = "GPU"; };
export const ofNodes = (text) => (noun === "node" ? text : text.replace(/(?<![\w-])node(?=s?\b)/gi, noun));
export const counted = (number, thing) => ofNodes(`${count(number)} ${thing}${number === 1 ? "" : "s"}`);
const LARGE = [[1e12, "T"], [1e9, "G"], [1e6, "M"]];
export const short = (number) => {
  const unit = LARGE.find(([size]) => Math.abs(number) >= size);
  return unit ? `${fine.format(number / unit[0])} ${unit[1]}` : count(number);
};
// A figure at an axis, with little room
export const tick = (number) => (number >= 1e4 && number < 1e6 ? `${fine.format(number / 1e3)} k` : short(number));
export const percent = (share) => `${Math.floor(100 * share + 1e-9)} %`;
export const nodeHours = (seconds) => {
  const hours = seconds / 3600;
  return hours >= 100 ? whole.format(hours) : hours >= 1 ? hours.toFixed(1) : hours > 0 ? hours.toFixed(2) : "0";
};
export const loss = (number) => (number === null ? "" : Number(number.toPrecision(4)).toString());
export const milliseconds = (seconds) => (seconds < 1 ? `${fine.format(1000 * seconds)} ms` : `${fine.format(seconds)} s`);
const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
export const duration = (seconds) => {
  const all = Math.max(0, Math.floor(seconds));
  const unit = UNITS.find(([size]) => all >= size);
  return unit ? `${Math.floor(all / unit[0])} ${unit[1]} ${Math.floor((all % unit[0]) / unit[2])} ${unit[3]}` : `${all} s`;
};
export const clock = (seconds) => time.format(new Date(1000 * seconds));
export const moment = (seconds) => {
  const then = new Date(1000 * seconds);
  return then.toDateString() === new Date().toDateString() ? time.format(then) : `${date.format(then)} ${time.format(then)}`;
};
export const dayOfMonth = (seconds) => String(new Date(1000 * seconds).getDate());
export const day = (seconds) => date.format(new Date(1000 * seconds));
