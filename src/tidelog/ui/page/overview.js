// The head of the page: the job, what is wrong, the key figures; and its foot.

/** A canonical savepoint holds rows in place of tables and log. */
const newestCheckpoint = doc => doc.retained.find(entry => entry.operators && entry.savepoint_format !== "canonical");
const withoutRows = doc => doc.checkpoints.filter(point => !point.canonical);
const statusOf = doc => (doc.live ? doc.live.status : null);
const part = (doc, name) => (statusOf(doc) || {})[name] || {};
const column = (points, value) => points.map(value);
/** A figure of a checkpoint that is not known is missing. */
const sizes = point => point.sizes || {};

/** What the store alone knows is not known while it has not answered. */
const UNREAD = "The store has not been read yet.";
const isRead = doc => doc.reads.read_ms > 0;
const told = (doc, text) => (isRead(doc) ? text : UNREAD);

const headerSection = doc => {
  const live = doc.live !== null;
  return [
    h("div", { class: "brand" }, wave(), h("span", {}, "tidelog")),
    h("div", { class: "title" },
      h("h1", {}, doc.job || (isRead(doc) ? "A store without a job" : "A store that has not answered")),
      h("span", { class: `pill state ${live ? "live" : doc.phase === "finished" ? "done" : "off"}` }, h("span", { class: "lamp", "aria-hidden": "true" }), doc.phase)),
    h("p", { class: "url" }, doc.url),
    h("p", { class: "muted" }, [
      known(doc.generation) ? `generation ${doc.generation}` : null,
      known(doc.started_ms) ? `started ${moment(doc.started_ms)}` : null,
      live ? `process ${doc.live.pid}` : null,
    ].filter(Boolean).join(" \u00b7 ")),
  ];
};

const wave = () => s("svg", { class: "wave", viewBox: "0 0 32 32", width: 28, height: 28, "aria-hidden": "true" },
  s("path", { d: "M3 21l9-11v11l9-11v11l8-9.8" }));

const noticeSection = doc => [
  doc.problems.map(problem => h("div", { class: "notice bad" },
    h("strong", {}, problem.where),
    h("p", {}, sentence(`Expected ${problem.expected}; found ${problem.found}`)),
    problem.unusable.length ? h("p", {}, `Cannot be restored because of it: checkpoint ${problem.unusable.join(", ")}.`) : null,
    h("p", {}, sentence(`Next: ${problem.action}`)))),
  failures(doc).map(([what, text]) => h("div", { class: "notice warn" }, h("strong", {}, what), h("p", {}, text))),
  doc.notices.map(text => h("p", { class: "notice" }, text)),
];

// What is quoted may be whole sentences.
const sentence = text => `${text.replace(/[\s.]+$/, "")}.`;

const failures = doc => [
  ["The last failure of a checkpoint", part(doc, "checkpoints").last_failure],
  ["The last failure of a materialization", part(doc, "materializations").last_failure],
  ["Barriers stay aligned", part(doc, "checkpoints").kept_aligned],
].filter(([, text]) => text);

const tile = (name, value, about) => h("div", { class: "tile" }, h("h2", {}, name), h("div", { class: "figure" }, value), h("div", { class: "small" }, about));

const figureSection = doc => {
  const last = doc.checkpoints[doc.checkpoints.length - 1];
  const timed = doc.checkpoints.findLast(point => known(point.seconds));
  const newest = withoutRows(doc).at(-1);
  const checkpoints = part(doc, "checkpoints");
  const state = statusOf(doc) ? part(doc, "state") : {};
  const log = known(state.log_bytes) ? state.log_bytes : newest && sizes(newest).log_full_bytes;
  const materialized = known(state.materialized_bytes) ? state.materialized_bytes : newest && sizes(newest).materialized_full_bytes;
  const line = bestBill(doc);
  return h("div", { class: "tiles" },
    tile("Last checkpoint", last ? ago(last.created_ms, doc.at_ms) : DASH,
      known(checkpoints.completed) ? `${plural(checkpoints.completed, "completed", "completed")}, ${count(checkpoints.failed)} failed in this run`
        : last ? `checkpoint ${last.checkpoint}` : "none was completed yet"),
    tile("Duration", timed ? seconds(timed.seconds) : DASH,
      known(checkpoints.p50_s) ? `median ${seconds(checkpoints.p50_s)}, 99th percentile ${seconds(checkpoints.p99_s)}` : "only a running job tells it"),
    tile("State", bytes(known(state.table_bytes) ? state.table_bytes : materialized),
      known(state.table_bytes) ? hydrated(part(doc, "restore").hydration) : "in the tables that were uploaded"),
    tile("Log to replay", bytes(log), known(materialized) ? `on ${bytes(materialized)} of uploaded tables` : "no checkpoint yet"),
    tile("A restore", doc.restore ? seconds(doc.restore.seconds) : DASH,
      doc.restore ? `${bytes(reads(doc.restore).at(-1).bytes)} and ${plural(doc.restore.fetch.changes, "change")}, by the model; first record after ${seconds(doc.restore.first_record_s)} at-once` : isRead(doc) ? "nothing to restore yet" : "the store was not read yet"),
    tile("A day", !line ? DASH : known(line.total) ? small(line.total, line.currency) : "not yet known",
      !line ? "objects were not listed" : `${line.here ? "" : "at the prices of "}${line.title}${known(line.total) ? "" : `: ${small(line.storage, line.currency)} for storage; requests are counted when the job has run for a minute`}`));
};

const small = (amount, currency) => (amount > 0 && amount < 0.01 ? `<\u00a00.01\u00a0${currency}` : money(amount, currency));

/** Whether all of the state is on the local disk of a job that may handle records before. */
const hydrated = hydration => (hydration && !known(hydration.seconds)
  ? `${share(hydration.fraction)} of the tables are here${known(hydration.eta_s) ? `, whole in about ${seconds(hydration.eta_s)}` : ""}`
  : "in the tables of the job");

const bestBill = doc => (doc.bill ? doc.bill.lines[0] : null);

const footerSection = (doc, report) => [
  h("p", {}, `tidelog ${doc.release}. `, report ? `Made at ${moment(doc.at_ms)}.`
    : `For this page the store was asked for ${plural(doc.reads.lists, "list")} and ${plural(doc.reads.gets, "object")}, ${bytes(doc.reads.bytes)}; ${doc.query ? "it was" : "checkpoints were"} ${isRead(doc) ? `read ${ago(doc.reads.read_ms, doc.at_ms)}` : "not read yet"}. Nothing is ever written.`),
];
