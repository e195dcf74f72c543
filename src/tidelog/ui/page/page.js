// The page itself: it draws a document, and asks its server for the next one.

const SECTIONS = {
  header: headerSection,
  notices: noticeSection,
  figures: figureSection,
  checkpoints: checkpointSection,
  tide: tideSection,
  materializations: materializationSection,
  operators: operatorSection,
  restore: restoreSection,
  bill: billSection,
  retained: retainedSection,
};
const EVERY_MS = 2000;
const READING_MS = 8000;
/** A store of many checkpoints may take long to be read for the first time. */
const PATIENCE_MS = 120000;

const embedded = JSON.parse(document.getElementById("document").textContent);
const scrolls = new Map();
let last = null;

/** Draw a section anew, but not under the pointer of somebody who reads it; one that rests is not read. */
const replace = (place, content) => {
  const read = place.querySelector("figure.chart:hover");
  if (read && performance.now() - (read.moved || 0) < READING_MS) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  place.querySelectorAll(".box").forEach(box => scrolls.set(box.getAttribute("aria-label"), box.scrollLeft));
  place.replaceChildren(...[content].flat(Infinity).filter(Boolean));
  drawCharts(place);
  place.querySelectorAll(".box").forEach(box => { box.scrollLeft = scrolls.get(box.getAttribute("aria-label")) || 0; });
  if (focused) place.querySelectorAll("[data-key]").forEach(one => { if (one.dataset.key === focused) one.focus({ preventScroll: true }); });
};

const draw = doc => {
  last = doc;
  document.title = `${doc.job || "tidelog"} \u00b7 ${doc.phase}`;
  const sections = doc.query ? QUERY_SECTIONS : SECTIONS;
  for (const [name, section] of Object.entries(sections)) replace(document.getElementById(name), section(doc));
  const button = embedded ? null : h("button", { type: "button", "data-key": "again", onclick: () => load("?now") }, "Read the store again");
  replace(document.getElementById("footer"), [footerSection(doc, embedded !== null), button]);
};

const complain = text => {
  const place = document.getElementById("notices");
  const notice = h("p", { class: "notice bad", id: "lost" }, text);
  const old = document.getElementById("lost");
  if (old) old.replaceWith(notice);
  else place.prepend(notice);
};

const load = async query => {
  try {
    const answer = await fetch(`document.json${query || ""}`, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) complain(await answer.text());
    else draw(await answer.json());
  } catch {
    complain(`The page's server does not answer any more: was tidelog ui stopped? ${last ? `What is shown is of ${moment(last.at_ms)}.` : ""}`);
  }
};

const live = async () => {
  if (!document.hidden) await load();
  setTimeout(live, EVERY_MS);
};

if (embedded) draw(embedded);
else live();
