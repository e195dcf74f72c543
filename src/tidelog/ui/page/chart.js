// One kind of drawing: values over time, as lines or as stacked bars, drawn in the pixels there are.

const MARGIN = { left: 58, right: 12, top: 10, bottom: 24 };
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Units of an axis: how a value reads, and in which steps it is marked. */
const UNITS = {
  bytes: { text: bytes, base: top => 1024 ** sizeUnit(top), name: base => SIZES[sizeUnit(base)] },
  seconds: {
    text: seconds,
    base: top => (top < 1 ? 0.001 : top < 120 ? 1 : top < 7200 ? 60 : top < 172800 ? 3600 : 86400),
    name: base => ({ 0.001: "ms", 1: "s", 60: "min", 3600: "h", 86400: "d" })[base],
  },
  share: { text: share, base: () => 0.01, name: () => "%" },
  count: { text: count, base: () => 1, name: () => "" },
  rate: { text: rate, base: top => (top >= 1e6 ? 1e6 : top >= 1e4 ? 1e3 : 1), name: base => ({ 1: "/s", 1e3: "k/s", 1e6: "M/s" })[base] },
};
/** All marks of an axis have one unit. */
const markText = (value, base, unit) => (value ? `${Number((value / base).toPrecision(3))}\u00a0${UNITS[unit].name(base)}`.trim() : "0");

/** Marks from 0 to a round number that is not below the largest value. */
const marks = (largest, unit) => {
  const base = UNITS[unit].base(largest);
  const top = Math.max(largest / base, 1e-6);
  const rough = (largest ? top : 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find(each => each * power >= rough) * power;
  const steps = Math.max(1, Math.ceil(top / step - 1e-6));
  return { base, found: Array.from({ length: steps + 1 }, (_, at) => at * step * base) };
};

const timeMarks = (from, to, room) => {
  const most = Math.max(2, Math.floor(room / 72));
  const span = (to - from) / 1000;
  const step = (STEPS.find(each => span / each <= most) || Math.ceil(span / most / 86400) * 86400) * 1000;
  const shift = new Date(from).getTimezoneOffset() * 60000;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return { found, text: at => (step >= 86400000 ? day(at).slice(5) : step >= 60000 ? clock(at).slice(0, 5) : clock(at)) };
};

/** A figure; it is drawn when it has its place, and again when its width changes. */
const chart = spec => {
  const figure = h("figure", { class: "chart", role: "img", "aria-label": spec.label });
  figure.draw = () => {
    const width = Math.floor(figure.clientWidth);
    if (width < 80) return;
    figure.replaceChildren(...drawing(spec, width, figure));
  };
  return [
    spec.series.length > 1 || spec.legend ? legend(spec.series) : null,
    figure,
    spec.note && h("p", { class: "small" }, spec.note),
    fold(`${spec.key}/numbers`, "Numbers", () => numbers(spec)),
  ];
};

const observer = new ResizeObserver(entries => {
  for (const { target } of entries) if (target.drawn !== target.clientWidth) drawCharts(target.parentElement);
});
const drawCharts = root => {
  for (const figure of root.querySelectorAll("figure.chart")) {
    figure.draw();
    figure.drawn = figure.clientWidth;
    observer.observe(figure);
  }
};

const ROWS = 200;
const numbers = spec => {
  const rows = spec.x.map((at, index) => index).reverse();
  const said = rows.length > ROWS ? h("p", { class: "small" }, `The newest ${ROWS} of ${rows.length}.`) : null;
  const columns = [
    ["Time", index => moment(spec.x[index])],
    ...(spec.columns || []).map(([title, values]) => [title, index => values[index]]),
    ...spec.series.map(one => [one.name, index => UNITS[one.unit || spec.unit].text(one.values[index]), "number"]),
  ];
  return [said, table(columns, rows.slice(0, ROWS), spec.label)].filter(Boolean);
};

const drawing = (spec, width, figure) => {
  const height = spec.height || 190;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const place = spec.bars ? bars(spec, inner) : lines(spec, inner);
  const { base, found } = marks(Math.max(spec.least || 0, place.largest), spec.unit);
  const top = found[found.length - 1];
  const y = value => MARGIN.top + inner.height * (1 - value / top);
  const x = at => MARGIN.left + at;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    found.map(at => [
      s("line", { class: at ? "rule" : "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(at), y2: y(at) }),
      s("text", { class: "y", x: MARGIN.left - 8, y: y(at) + 4, "text-anchor": "end" }, markText(at, base, spec.unit)),
    ]),
    place.ticks.map(({ at, text }) =>
      s("text", { class: "x", x: Math.max(MARGIN.left + 14, Math.min(width - 24, x(at))), y: height - 6, "text-anchor": "middle" }, text)),
    place.draw(x, y));
  const line = s("line", { class: "cursor", y1: MARGIN.top, y2: MARGIN.top + inner.height, x1: -9, x2: -9 });
  svg.append(line);
  const tip = h("div", { class: "tip", hidden: true });
  const move = event => {
    figure.moved = performance.now();
    const index = place.nearest(event.clientX - figure.getBoundingClientRect().left - MARGIN.left);
    if (index < 0) return;
    const at = x(place.x(index));
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    tip.replaceChildren(...tipOf(spec, place.row(index)));
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(width - tip.offsetWidth, at + (at > width / 2 ? -tip.offsetWidth - 12 : 12)))}px`;
  };
  const leave = () => {
    tip.hidden = true;
    line.setAttribute("x1", -9);
    line.setAttribute("x2", -9);
  };
  figure.onpointermove = move;
  figure.onpointerdown = move;
  figure.onpointerleave = leave;
  return [svg, tip];
};

const tipOf = (spec, index) => [
  h("div", { class: "when" }, moment(spec.x[index])),
  ...(spec.columns || []).map(([title, values]) => h("div", { class: "small" }, `${title} ${values[index]}`)),
  ...spec.series.map(one => h("div", { class: "row" }, swatch(one.colour), h("span", {}, one.name),
    h("strong", {}, UNITS[one.unit || spec.unit].text(one.values[index])))),
  ...(spec.bars && spec.series.length > 1
    ? [h("div", { class: "row sum" }, h("span", {}, spec.sum || "Sum"), h("strong", {}, UNITS[spec.unit].text(total(spec, index))))]
    : []),
];

const total = (spec, index) => spec.series.reduce((sum, { values }) => sum + (values[index] || 0), 0);

const lines = (spec, inner) => {
  const { x: at, series } = spec;
  // A clock may have been set back between two checkpoints.
  const from = at.reduce((least, value) => Math.min(least, value), known(spec.from) ? spec.from : Infinity);
  const last = at.reduce((most, value) => Math.max(most, value), -Infinity);
  const to = last > from ? last : from + 1000;
  const place = value => ((value - from) / (to - from)) * inner.width;
  const { found, text } = timeMarks(from, to, inner.width);
  const values = series.flatMap(one => one.values).filter(known);
  return {
    largest: values.reduce((most, value) => Math.max(most, value), 0),
    ticks: found.map(each => ({ at: place(each), text: text(each) })),
    x: index => place(at[index]),
    row: index => index,
    nearest: pixel => nearest(at.map(place), pixel),
    draw: (x, y) => series.map(one => lineOf(one, at.map(each => x(place(each))), y)),
  };
};

const nearest = (places, pixel) =>
  places.reduce((best, place, index) => (best < 0 || Math.abs(place - pixel) < Math.abs(places[best] - pixel) ? index : best), -1);

/** A line with a gap wherever a value is not known; a value by itself is a dot. */
const lineOf = ({ values, colour, area, dash }, xs, y) => {
  const runs = [];
  values.forEach((value, index) => {
    if (!known(value)) return;
    const run = runs[runs.length - 1];
    if (run && run[run.length - 1] === index - 1) run.push(index);
    else runs.push([index]);
  });
  return runs.map(run => {
    const points = run.map(index => `${xs[index].toFixed(1)},${y(values[index]).toFixed(1)}`);
    if (run.length === 1) return s("circle", { class: `dot ${colour}`, cx: xs[run[0]], cy: y(values[run[0]]), r: 3 });
    const ends = [xs[run[0]], xs[run[run.length - 1]]];
    return [
      area && s("path", { class: `area ${colour}`, d: `M${ends[0].toFixed(1)},${y(0)}L${points.join("L")}L${ends[1].toFixed(1)},${y(0)}Z` }),
      s("path", { class: `curve ${colour} dash${dash || 0}`, d: `M${points.join("L")}` }),
      run.length <= 24 ? run.map(index => s("circle", { class: `dot ${colour}`, cx: xs[index], cy: y(values[index]), r: 2.5 })) : null,
    ];
  });
};

const LEAST_BAR = 5;

/** A bar for each moment; where they are too many, one for the largest of several. */
const bars = (spec, inner) => {
  const most = Math.max(1, Math.floor(inner.width / LEAST_BAR));
  const several = Math.ceil(spec.x.length / most);
  const shown = [];
  for (let from = 0; from < spec.x.length; from += several) {
    const group = spec.x.slice(from, from + several).map((_, index) => from + index);
    shown.push(group.reduce((best, index) => (total(spec, index) > total(spec, best) ? index : best)));
  }
  const step = Math.min(36, inner.width / shown.length);
  const gap = step > 8 ? 2 : 1;
  const middle = index => step * (index + 0.5);
  const every = Math.ceil(shown.length / Math.max(1, Math.floor((step * shown.length) / 76)));
  return {
    largest: shown.reduce((largest, index) => Math.max(largest, total(spec, index)), 0),
    ticks: shown.map((index, at) => ({ at: middle(at), text: clock(spec.x[index]), index: at })).filter(({ index }) => index % every === (every > 1 ? Math.floor(every / 2) : 0)),
    x: middle,
    row: at => shown[at],
    nearest: pixel => (shown.length ? Math.max(0, Math.min(shown.length - 1, Math.floor(pixel / step))) : -1),
    draw: (x, y) => [
      shown.map((index, at) => {
        let below = 0;
        return spec.series.map(one => {
          const value = one.values[index] || 0;
          const [from, to] = [y(below), y(below + value)];
          below += value;
          if (value <= 0) return null;
          return s("rect", { class: `bar ${one.colour}`, x: x(middle(at) - step / 2 + gap / 2), width: step - gap, y: to, height: Math.max(0.75, from - to) });
        });
      }),
      several > 1 ? s("text", { class: "hint", x: x(inner.width), y: MARGIN.top + 2, "text-anchor": "end" }, `each bar: the ${spec.most || "largest"} of ${several}`) : null,
    ],
  };
};
