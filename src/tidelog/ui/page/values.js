// Numbers, times and sizes as texts. What is not known is a dash, never 0.

const DASH = "\u2013";
const known = value => value !== null && value !== undefined && !Number.isNaN(value);

const number = (value, digits) =>
  value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** Three significant digits at most. */
const short = value => {
  if (value >= 100 || Number.isInteger(value)) return number(Math.round(value), 0);
  return number(value, value >= 10 ? 1 : 2);
};

const count = value => (known(value) ? number(Math.round(value), 0) : DASH);

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const sizeUnit = value => {
  let at = 0;
  while (at < SIZES.length - 1 && value >= 1024 ** (at + 1)) at += 1;
  return at;
};
const bytes = value => {
  if (!known(value)) return DASH;
  const at = sizeUnit(value);
  return `${short(value / 1024 ** at)}\u00a0${SIZES[at]}`;
};

const seconds = value => {
  if (!known(value)) return DASH;
  if (value === 0) return "0\u00a0s";
  if (value < 0.001) return "<\u00a01\u00a0ms";
  if (value < 1) return `${short(value * 1000)}\u00a0ms`;
  if (value < 120) return `${short(value)}\u00a0s`;
  if (value < 7200) return `${short(value / 60)}\u00a0min`;
  if (value < 172800) return `${short(value / 3600)}\u00a0h`;
  return `${short(value / 86400)}\u00a0d`;
};

const share = value => (known(value) ? `${number(value * 100, value && value < 0.0995 ? 1 : 0)}\u00a0%` : DASH);

const rate = value => {
  if (!known(value)) return DASH;
  if (value >= 1e6) return `${short(value / 1e6)}\u00a0M/s`;
  if (value >= 1e4) return `${short(value / 1e3)}\u00a0k/s`;
  return `${short(value)}/s`;
};

const money = (value, currency) => {
  if (!known(value)) return DASH;
  if (value > 0 && value < 0.0001) return `<\u00a00.0001\u00a0${currency}`;
  return `${number(value, value === 0 || value >= 1 ? 2 : value >= 0.1 ? 3 : 4)}\u00a0${currency}`;
};

const ago = (at, now) => `${seconds(Math.max(0, Math.round((now - at) / 1000)))} ago`;

const two = value => String(value).padStart(2, "0");
const clock = at => {
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
};
const day = at => {
  const date = new Date(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
};
const moment = at => (known(at) ? `${day(at)} ${clock(at)}` : DASH);

/** Watermarks outside of what is a time: the beginning and the end of all data. */
const LAST_TIME = 8.64e15;
const watermark = at => {
  if (!known(at)) return DASH;
  if (at > LAST_TIME) return "end of the data";
  return at < -LAST_TIME ? "none yet" : moment(at);
};

const plural = (value, one, many) => `${count(value)} ${value === 1 ? one : many || `${one}s`}`;
