// Elements. Texts are only ever set as text, so nothing in a document becomes markup.

const build = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => known(child) && child !== false));
  return element;
};

const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A share of the width; set as a property, for the page's policy refuses style attributes. */
const wide = (element, part) => {
  element.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  return element;
};

/** What a reader has opened stays open when the page is drawn again. */
const opened = new Map();
const fold = (key, summary, content, open) => {
  const made = h("details", { "data-key": key }, h("summary", { "data-key": `${key}/summary` }, summary));
  let filled = false;
  const fill = () => {
    if (!filled) made.append(...[content()].flat(Infinity));
    filled = true;
  };
  if (opened.has(key) ? opened.get(key) : open) {
    made.open = true;
    fill();
  }
  made.addEventListener("toggle", () => {
    opened.set(key, made.open);
    if (made.open) {
      fill();
      drawCharts(made);
    }
  });
  return made;
};

/** A table in a box that scrolls by itself; columns: [title, value of a row, class]. */
const table = (columns, rows, caption) =>
  h("div", { class: "box", tabindex: 0, role: "region", "aria-label": caption || "Table" },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows.map(row => h("tr", {}, columns.map(([, value, kind], at) =>
        h(at ? "td" : "th", { scope: at ? null : "row", class: kind }, value(row))))))));

const empty = text => h("p", { class: "empty" }, text);
const heading = (title, about) => [h("h2", {}, title), about && h("p", { class: "about" }, about)];
const card = (title, about, ...children) =>
  h("div", { class: "card" }, h("h3", {}, title), about && h("p", { class: "small" }, about), children);
const swatch = colour => h("span", { class: `swatch ${colour}`, "aria-hidden": "true" });
const legend = series =>
  h("ul", { class: "legend" }, series.map(({ name, colour }) => h("li", {}, swatch(colour), name)));
