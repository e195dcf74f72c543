// What stands in each section of the page; each is a function of the document alone.

const PHASES = [
  ["start_delay_s", "Barrier on its way", "c6"],
  ["alignment_s", "Alignment", "c1"],
  ["durable_s", "Until all was durable", "c0"],
  ["manifest_s", "Manifest", "c3"],
];

const newestSlot = doc => doc.slots.find(slot => slot.operators && slot.restorable !== null);
const statusOf = doc => (doc.live ? doc.live.status : null);
const part = (doc, name) => (statusOf(doc) || {})[name] || {};
const column = (points, value) => points.map(value);

const headerSection = doc => {
  const live = doc.live !== null;
  return [
    h("div", { class: "brand" }, wave(), h("span", {}, "tidelog")),
    h("div", { class: "title" },
      h("h1", {}, doc.job || "A store without a job"),
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
    h("p", {}, `Expected ${problem.expected}; found ${problem.found}.`),
    problem.slots.length ? h("p", {}, `Cannot be restored because of it: slot ${problem.slots.join(", ")}.`) : null,
    h("p", {}, `Next: ${problem.action}.`))),
  failures(doc).map(([what, text]) => h("div", { class: "notice warn" }, h("strong", {}, what), h("p", {}, text))),
  doc.notices.map(text => h("p", { class: "notice" }, text)),
];

const failures = doc => [
  ["The last failure of a checkpoint", part(doc, "checkpoints").last_failure],
  ["The last failure of a materialization", part(doc, "materializations").last_failure],
  ["Barriers stay aligned", part(doc, "checkpoints").kept_aligned],
].filter(([, text]) => text);

const tile = (name, value, about) => h("div", { class: "tile" }, h("h2", {}, name), h("div", { class: "figure" }, value), h("div", { class: "small" }, about));

const figureSection = doc => {
  const last = doc.checkpoints[doc.checkpoints.length - 1];
  const timed = doc.checkpoints.findLast(point => known(point.seconds));
  const checkpoints = part(doc, "checkpoints");
  const state = statusOf(doc) ? part(doc, "state") : {};
  const log = known(state.log_bytes) ? state.log_bytes : last && last.log_bytes;
  const materialized = known(state.materialized_bytes) ? state.materialized_bytes : last && last.table_bytes;
  const line = bestBill(doc);
  return h("div", { class: "tiles" },
    tile("Last checkpoint", last ? ago(last.at_ms, doc.at_ms) : DASH,
      known(checkpoints.completed) ? `${plural(checkpoints.completed, "completed", "completed")}, ${count(checkpoints.failed)} failed in this run`
        : last ? `slot ${last.slot}` : "none was completed yet"),
    tile("Duration", timed ? seconds(timed.seconds) : DASH,
      known(checkpoints.p50_s) ? `median ${seconds(checkpoints.p50_s)}, 99th percentile ${seconds(checkpoints.p99_s)}` : "only a running job tells it"),
    tile("State", bytes(known(state.table_bytes) ? state.table_bytes : materialized),
      known(state.table_bytes) ? "in the tables of the job" : "in the tables that were uploaded"),
    tile("Log to replay", bytes(log), known(materialized) ? `on ${bytes(materialized)} of uploaded tables` : "no checkpoint yet"),
    tile("A restore", doc.restore ? seconds(doc.restore.seconds) : DASH,
      doc.restore ? `${bytes(doc.restore.bytes)} and ${plural(doc.restore.changes, "change")}, by the model` : "nothing to restore yet"),
    tile("A day", line ? (line.total > 0 && line.total < 0.01 ? `<\u00a00.01\u00a0${line.currency}` : money(line.total, line.currency)) : DASH,
      line ? `${line.here ? "" : "if it lay at "}${line.title}${known(line.requests) ? "" : ", storage alone"}` : "objects were not listed"));
};

const bestBill = doc => (doc.bill ? doc.bill.lines[0] : null);

const checkpointSection = doc => {
  const points = doc.checkpoints;
  const timed = points.filter(point => point.phases);
  const columns = of => [["Slot", of.map(point => (point.savepoint ? `${point.slot} (${point.savepoint})` : point.slot))]];
  const barriers = points.filter(point => known(point.start_delay_ms));
  return [
    heading("Checkpoints", "Where their time went, and how much each added to the store."),
    points.length === 0 ? empty("No checkpoint was completed yet. The first one comes after the job's checkpoint interval.") : h("div", { class: "grid" },
      card("Duration by phase", timed.length ? `The last ${count(timed.length)} of this run.` : null, timed.length
        ? chart({ key: "durations", label: "Duration of checkpoints by phase", bars: true, unit: "seconds", sum: "Duration", most: "slowest", x: column(timed, p => p.at_ms), columns: columns(timed),
          series: PHASES.map(([field, name, colour]) => ({ name, colour, values: column(timed, p => p.phases[field]) })) })
        : [empty("Only a running job tells how long checkpoints take. From the store alone, how their barriers passed:"),
          barriers.length && barriers.every(p => p.start_delay_ms + p.alignment_ms === 0) ? empty("No barrier of the stored checkpoints waited for as long as a millisecond.") : barriers.length ? chart({ key: "barriers", label: "Barriers of checkpoints", bars: true, unit: "seconds", sum: "At most", x: column(barriers, p => p.at_ms), columns: columns(barriers),
            series: [{ name: "Start delay, longest", colour: "c6", values: column(barriers, p => p.start_delay_ms / 1000) }, { name: "Alignment, longest", colour: "c1", values: column(barriers, p => p.alignment_ms / 1000) }] }) : empty("The checkpoints do not tell this either.")]),
      card("Added to the store", "Bytes that the checkpoint before does not hold.", added(points, columns))),
  ];
};

const added = (points, columns) => {
  const shown = points.filter(point => known(point.new_log_bytes));
  return shown.length ? chart({ key: "added", label: "Bytes that each checkpoint added", bars: true, unit: "bytes", x: column(shown, p => p.at_ms), columns: columns(shown),
    series: [
      { name: "Log", colour: "c0", values: column(shown, p => p.new_log_bytes) },
      { name: "Table files", colour: "c2", values: column(shown, p => p.new_table_bytes) },
      { name: "Manifest", colour: "c3", values: column(shown, p => p.manifest_bytes) },
    ] }) : empty("It takes two checkpoints in a row to tell.");
};

const tideSection = doc => {
  const live = doc.live && doc.live.state;
  const points = doc.checkpoints;
  const from = points.length && live && live.at_ms.length ? Math.min(points[0].at_ms, live.at_ms[0]) : null;
  const columns = [["Slot", column(points, p => p.slot)]];
  return [
    heading("The tide", "The log rises with every change and falls when a table is uploaded: what is in a table need not be replayed."),
    points.length === 0 ? empty("There is no checkpoint yet whose log and tables could be shown.") : h("div", { class: "grid" },
      card("Log to replay", "In each checkpoint.", chart({ key: "log", label: "Log in each checkpoint", unit: "bytes", x: column(points, p => p.at_ms), columns, legend: false,
        series: [{ name: "Log", colour: "c0", area: true, values: column(points, p => p.log_bytes) }] })),
      card("Uploaded tables", "All files of the materializations that each checkpoint names.", chart({ key: "tables", label: "Uploaded tables in each checkpoint", unit: "bytes", x: column(points, p => p.at_ms), columns,
        series: [{ name: "Uploaded tables", colour: "c2", area: true, values: column(points, p => p.table_bytes) }] })),
      live && live.at_ms.length > 1 ? card("Now, in the job", "Every two seconds since this page was opened; the log that is not uploaded yet is part of it.", chart({ key: "state", label: "Tables and log in the running job", unit: "bytes", x: live.at_ms, from,
        series: [{ name: "Tables", colour: "c2", values: live.table_bytes }, { name: "Log since their uploads", colour: "c0", values: live.log_bytes }, { name: "Waiting for upload", colour: "c1", dash: 1, values: live.queued_bytes }] })) : null,
      live && live.at_ms.length > 1 && live.memory_bytes.some(known) ? card("Memory", `What counts against the budget of ${bytes(part(doc, "memory").budget_bytes)}.`, chart({ key: "memory", label: "Memory of the job", unit: "bytes", x: live.at_ms,
        series: [{ name: "In use", colour: "c5", area: true, values: live.memory_bytes }] })) : null),
  ];
};

const materializationSection = doc => {
  const newest = newestSlot(doc);
  const rows = newest ? newest.operators.flatMap(operator => operator.subtasks.map(subtask => ({ operator: operator.id, ...subtask, subtask: subtask.index }))) : [];
  const kept = rows.filter(row => row.changes > 0 || row.table_bytes > 0);
  const figures = part(doc, "materializations");
  return [
    heading("Materializations", "Each table is uploaded now and then, at moments of its own, so that uploads never come together."),
    !newest ? empty("There is no checkpoint yet that names a table.") : h("div", { class: "grid" },
      card("By subtask", `In the newest checkpoint, slot ${newest.slot}.`,
        kept.length ? [legend([{ name: "Table", colour: "c2" }, { name: "Log to replay", colour: "c0" }]),
          stacks(kept.map(row => ({
            name: `${row.operator}-${row.subtask}`,
            parts: [{ value: row.table_bytes, colour: "c2" }, { value: row.log_bytes + row.inline_bytes, colour: "c0" }],
            text: h("span", {}, `${bytes(row.table_bytes)} + ${bytes(row.log_bytes + row.inline_bytes)}`),
            title: `${count(row.replay_changes)} changes to replay`,
          }))),
          fold("materialized/numbers", "Numbers", () => table([
            ["Subtask", row => `${row.operator}-${row.subtask}`],
            ["Uploaded", row => uploaded(row, doc)],
            ["Table", row => bytes(row.table_bytes), "number"],
            ["Log", row => bytes(row.log_bytes + row.inline_bytes), "number"],
            ["Changes to replay", row => count(row.replay_changes), "number"],
            ["Descriptor", row => row.descriptor || DASH, "name"],
          ], kept, "Materializations by subtask"))]
          : empty("No subtask has state.")),
      card("When they came", "A dot for each upload, larger for a larger table; dated by the first checkpoint that names it.",
        doc.materialized.length ? timeline(doc.materialized, uniqueRows(doc.materialized), "uploads")
          : empty("None was seen yet: an upload shows when a new checkpoint names it.")),
      known(figures.started) ? h("div", { class: "card whole" }, h("h3", {}, "This run"), h("dl", { class: "facts" },
        fact("Completed", count(figures.completed)), fact("Failed", count(figures.failed)),
        fact("Uploaded", bytes(figures.uploaded_bytes)), fact("Median", figures.duration_s ? seconds(figures.duration_s.median) : DASH),
        fact("Latest is due since", seconds(figures.lag_s)), fact("Intervals missed", count(figures.missed)))) : null),
  ];
};

const uploaded = (row, doc) => {
  if (!row.descriptor) return "not yet";
  if (!known(row.materialized_ms)) return "long ago";
  return `${row.materialized_before ? "before " : ""}${ago(row.materialized_ms, doc.at_ms)}`;
};

const uniqueRows = events => {
  const rows = new Map(events.map(event => [`${event.operator}-${event.subtask}`, event]));
  return [...rows.values()].sort((a, b) => (a.operator === b.operator ? a.subtask - b.subtask : a.operator < b.operator ? -1 : 1));
};

const operatorSection = doc => {
  const title = heading("Operators", "How busy they are, who waits for whom, and how far event time has come.");
  if (!doc.live) return [title, empty("Only a running job tells how busy its operators are. Watermarks as they were at the last checkpoint stand below, under its slot.")];
  const operators = statusOf(doc).operators || [];
  if (!operators.length) return [title, empty("The job has not started its operators yet.")];
  const at = doc.live.state.at_ms;
  const now = new Map(doc.live.now.map(one => [one.id, one]));
  const last = (id, field) => (now.get(id) || {})[field];
  const several = field => doc.live.operators.map((one, index) => ({ name: one.id, ...look(index), values: one[field] }));
  const some = field => doc.live.operators.some(one => one[field].some(known));
  return [
    title,
    h("div", { class: "grid" },
      h("div", { class: "card whole" }, h("h3", {}, "Now"),
        h("p", { class: "small" }, "Of the last two seconds: at work, back-pressured (it could have worked but waited for others), idle."),
        legend([{ name: "Busy", colour: "c0" }, { name: "Back-pressured", colour: "c1" }, { name: "Idle", colour: "none" }]),
        stacks(doc.live.now.map(one => workRow(one.id, one)), 1),
        doc.live.now.some(one => one.tasks.length) ? fold("subtasks", "By subtask", () => subtaskWork(doc.live.now)) : null,
        table([
          ["Operator", one => one.id],
          ["Subtasks", one => count(one.parallelism), "number"],
          ["Records/s", one => rate(last(one.id, "records_per_s")), "number"],
          ["In", one => count(one.records_in), "number"],
          ["Out", one => count(one.records_out), "number"],
          ["State", one => bytes(one.state_bytes), "number"],
          ["Late", one => count(one.late_records), "number"],
          ["Watermark", one => watermark(one.watermark_ms)],
          ["Longest call", one => seconds(one.longest_call_s), "number"],
        ], operators, "Operators now")),
      some("records_per_s") ? card("Records", "Received a second.", chart({ key: "records", label: "Records received a second", unit: "rate", x: at, series: several("records_per_s") })) : null,
      some("backpressured") ? card("Back-pressure", "Share of the time, averaged over the subtasks.", chart({ key: "pressure", label: "Back-pressure", unit: "share", least: 0.1, x: at, series: several("backpressured") })) : null,
      some("behind_s") ? card("Event time", "How far watermarks are behind the clock.", behind(doc, at)) : card("Event time", null, empty("No operator has a watermark: the job does not use event time, or has seen no record.")),
      late(doc, operators, at, several)),
  ];
};

/** Lines differ in colour and in dashes, so that no reader depends on colours. */
const look = index => ({ colour: `c${index % 8}`, dash: (index + Math.floor(index / 8)) % 4 });

const workRow = (name, one) => ({
  name,
  parts: [{ value: one.busy || 0, colour: "c0" }, { value: one.backpressured || 0, colour: "c1" }],
  text: h("span", {}, `${share(one.busy)} busy, ${share(one.backpressured)} waiting`),
});

const subtaskWork = now => {
  const rows = now.flatMap(operator => operator.tasks.map(task => ({ name: `${operator.id}-${task.subtask}`, ...task })));
  return [
    stacks(rows.map(row => workRow(row.name, row)), 1),
    table([
      ["Subtask", row => row.name],
      ["Busy", row => share(row.busy), "number"],
      ["Back-pressured", row => share(row.backpressured), "number"],
      ["Records waiting", row => bytes(row.input_bytes), "number"],
      ["Upload of its table due since", row => seconds(row.materialization_lag_s), "number"],
    ], rows, "Subtasks now"),
  ];
};

const behind = (doc, at) => chart({ key: "behind", label: "Watermarks behind the clock", unit: "seconds", x: at,
  series: doc.live.operators.map((one, index) => ({ name: one.id, ...look(index), values: one.behind_s.map(value => (known(value) ? Math.max(0, value) : null)) })).filter(one => one.values.some(known)) });

const late = (doc, operators, at, several) => {
  const all = operators.reduce((sum, one) => sum + (one.late_records || 0), 0);
  return all > 0 ? card("Late records", `${count(all)} came after their event time had passed.`, chart({ key: "late", label: "Late records a second", unit: "rate", x: at, series: several("late_per_s") })) : null;
};

const restoreSection = doc => {
  const restore = doc.restore;
  const title = heading("A restore now", "What a start from the newest checkpoint would read and take.");
  if (!restore) return [title, empty("There is no checkpoint that could be restored; a start begins with nothing.")];
  return [title, h("div", { class: "grid" },
    card("Time", `From a started process to running tasks, by the model of tidelog estimate, with its defaults: a link of ${bytes(restore.link_bytes_per_s)}/s, ${seconds(restore.link_latency_s)} a request, ${restore.link_requests} at a time, ${count(restore.replay_per_s)} changes a second.`,
      restore.possible === false ? h("p", { class: "wrong" }, "This checkpoint cannot be restored: see the problems above.") : null,
      h("p", { class: "figure" }, seconds(restore.seconds)),
      legend([{ name: `Requests and bytes, ${seconds(restore.download_s)}`, colour: "c2" }, { name: `Replay, ${seconds(restore.replay_s)}`, colour: "c0" }]),
      stacks([{ name: `slot ${restore.slot}`, parts: [{ value: restore.download_s, colour: "c2" }, { value: restore.replay_s, colour: "c0" }], text: seconds(restore.seconds) }])),
    card("What it reads", "Exactly, as the manifests and descriptors say.", table([
      ["What", row => row.kind],
      ["Objects", row => count(row.objects), "number"],
      ["Bytes", row => bytes(row.bytes), "number"],
    ], [...restore.reads, { kind: "all", objects: restore.reads.reduce((sum, row) => sum + row.objects, 0), bytes: restore.bytes }], "What a restore reads"),
    h("p", {}, h("strong", {}, count(restore.changes)), " changes are replayed on the tables.")))];
};

const billSection = doc => {
  const bill = doc.bill;
  const title = heading("The bill of a day", "What is stored and asked for, at list prices.");
  if (!bill) return [title, empty("The objects of the store were not listed yet.")];
  const all = bill.stored.reduce((sum, kind) => sum + kind.bytes, 0);
  const objects = bill.stored.reduce((sum, kind) => sum + kind.objects, 0);
  const colours = ["c0", "c2", "c4", "c3"];
  return [title, h("div", { class: "grid" },
    h("div", { class: "card whole" }, h("h3", {}, "A day at list prices"), h("p", { class: "small" }, bill.requests
      ? `Storage as it is now; requests at the pace of the last ${seconds(bill.requests.over_s)}, since the job started, its restore included. Traffic out of the provider's region is not.`
      : "Storage alone: requests are counted by a running job, and for a minute at least. Objects that live for less than a provider's minimum cost more than this."),
    table([
      ["Provider", line => [line.title, h("span", { class: "under" }, `${line.region}, prices of ${line.as_of}`), line.warning ? h("span", { class: "under warning", title: line.warning }, "out of date: compare them with the provider's") : null].filter(Boolean)],
      ["A day", line => h("strong", {}, money(line.total, line.currency)), "number"],
      ["Storage", line => money(line.storage, line.currency), "number"],
      ["Requests", line => money(line.requests, line.currency), "number"],
      ["Transfer", line => money(line.transfer, line.currency), "number"],
    ], bill.lines, "The bill of a day")),
    h("div", { class: "card whole" }, h("h3", {}, "Stored"), h("p", { class: "small" }, `${bytes(all)} in ${plural(objects, "object")}, listed ${ago(bill.at_ms, doc.at_ms)}.`),
      stacks(bill.stored.map((kind, at) => ({ name: kind.kind, parts: [{ value: kind.bytes, colour: colours[at % 4] }], text: `${bytes(kind.bytes)}, ${count(kind.objects)}` }))),
      bill.requests ? h("dl", { class: "facts" }, fact("PUT a day", count(bill.requests.put)), fact("LIST a day", count(bill.requests.list)), fact("GET a day", count(bill.requests.get)), fact("DELETE a day", count(bill.requests.delete)),
        fact("Written a day", bytes(bill.requests.bytes_written)), fact("Read a day", bytes(bill.requests.bytes_read))) : null))];
};

const footerSection = (doc, report) => [
  h("p", {}, `tidelog ${doc.release}. `, report ? `Made at ${moment(doc.at_ms)}.`
    : `For this page the store was asked for ${plural(doc.reads.lists, "list")} and ${plural(doc.reads.gets, "object")}, ${bytes(doc.reads.bytes)}; ${doc.query ? "it was" : "slots were"} read ${ago(doc.reads.read_ms, doc.at_ms)}. Nothing is ever written.`),
];
