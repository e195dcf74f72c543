// The drawings that are no lines: uploads by subtask over time, and bars beside each other.

/** A dot for each upload of a table: a row per subtask, so that their stagger shows. */
const timeline = (events, rows, key) => {
  const figure = h("figure", { class: "chart", role: "img", "aria-label": "Uploads of tables over time, a row per subtask" });
  const labels = rows.map(row => `${row.operator}-${row.subtask}`);
  const largest = Math.max(1, ...events.map(event => event.table_bytes));
  figure.draw = () => {
    const width = Math.floor(figure.clientWidth);
    if (width < 80) return;
    const left = Math.min(width * 0.36, 12 + 6.4 * Math.max(...labels.map(label => label.length)));
    const line = Math.max(1.25, Math.min(22, Math.max(220, 14 * Math.min(rows.length, 32)) / rows.length));
    // Where rows are too low for it, every few have a name.
    const named = Math.ceil(13 / line);
    const height = line * rows.length + 34;
    const times = events.map(event => event.at_ms);
    const [from, last] = [Math.min(...times), Math.max(...times)];
    const to = last > from ? last : from + 1000;
    const x = at => left + 8 + ((at - from) / (to - from)) * (width - left - 24);
    const most = Math.max(4, Math.floor((left - 4) / 6.4));
    const { found, text } = timeMarks(from, to, width - left);
    figure.replaceChildren(s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
      rows.map((row, at) => at % named ? null : [
        s("line", { class: "rule", x1: left, x2: width - 8, y1: line * (at + 0.5) + 4, y2: line * (at + 0.5) + 4 }),
        s("text", { class: "y", x: left - 4, y: line * (at + 0.5) + 8, "text-anchor": "end" },
          labels[at].length > most ? `\u2026${labels[at].slice(1 - most)}` : labels[at], s("title", {}, labels[at])),
      ]),
      found.map(at => s("text", { class: "x", x: Math.max(left + 14, Math.min(width - 24, x(at))), y: height - 6, "text-anchor": "middle" }, text(at))),
      events.map(event => {
        const at = labels.indexOf(`${event.operator}-${event.subtask}`);
        if (at < 0) return null;
        return s("circle", { class: "dot c0", cx: x(event.at_ms), cy: line * (at + 0.5) + 4, r: Math.max(1.5, Math.min(line, 11) * 0.25) + Math.min(line, 11) * (0.4 * Math.sqrt(event.table_bytes / largest)) },
          s("title", {}, `${labels[at]}: ${bytes(event.table_bytes)}, first named at ${moment(event.at_ms)}`));
      })));
  };
  return [figure, fold(`${key}/numbers`, "Numbers", () => table([
    ["Seen first", event => moment(event.at_ms)],
    ["Subtask", event => `${event.operator}-${event.subtask}`],
    ["Table", event => bytes(event.table_bytes), "number"],
    ["Up to change", event => count(event.upto), "number"],
  ], events.slice().reverse().slice(0, ROWS), "Uploads of tables"))];
};

/** Stacked bars below each other on one scale; rows: {name, parts: [{value, colour}], text}. */
const stacks = (rows, largest) => {
  const most = largest || Math.max(1e-9, ...rows.map(({ parts }) => parts.reduce((sum, { value }) => sum + value, 0)));
  return h("div", { class: "stacks" }, rows.map(({ name, parts, text, title }) =>
    h("div", { class: "stack", title: title || null },
      h("div", { class: "name" }, name),
      h("div", { class: "track" }, parts.filter(({ value }) => value > 0).map(({ value, colour }) =>
        wide(h("span", { class: `part ${colour}` }), value / most))),
      h("div", { class: "value" }, text))));
};

const pill = (text, kind) => h("span", { class: `pill ${kind || ""}` }, text);
