// What operators and subtasks do while a job runs.

const operatorSection = doc => {
  const title = heading("Operators", "How busy they are, who waits for whom, and how far event time is.");
  if (!doc.live) return [title, empty("Only a running job tells how busy its operators are. Watermarks as they were at the last checkpoint stand below, under its number.")];
  const operators = statusOf(doc).operators || [];
  if (!operators.length) return [title, empty("The job has not started its operators yet.")];
  const at = doc.live.series.at_ms;
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
          ["Longest standstill", one => seconds(one.longest_standstill_s), "number"],
          ["Standstills", one => count(one.long_standstills), "number"],
          ["Latency, p50", one => seconds((one.record_latency_s || {}).median), "number"],
          ["p99", one => seconds((one.record_latency_s || {}).p99), "number"],
          ["Max", one => seconds((one.record_latency_s || {}).max), "number"],
        ], operators, "Operators now")),
      workers(doc.live.workers || []),
      some("records_per_s") ? card("Records", "Received a second.", chart({ key: "records", label: "Records received a second", unit: "rate", x: at, series: several("records_per_s") })) : null,
      some("backpressured") ? card("Back-pressure", "Share of the time, averaged over the subtasks.", chart({ key: "pressure", label: "Back-pressure", unit: "share", least: 0.1, x: at, series: several("backpressured") })) : null,
      some("latency_s") ? card("Latency", "One of a hundred records takes longer from the source's reading to the end of its path, by the last operator; windows are passed at once.", chart({ key: "latency", label: "Latency of records, p99", unit: "seconds", x: at, series: several("latency_s").filter(one => one.values.some(known)) })) : null,
      some("behind_s") ? card("Event time", "How far watermarks lag the clock.", behind(doc, at)) : card("Event time", null, empty("No operator has a watermark: the job does not use event time, or has seen no record.")),
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

/** A card, of a job with workers alone. */
const workers = all => !all.length ? null : h("div", { class: "card whole" }, h("h3", {}, "Workers"),
  h("p", { class: "small" }, "The processes that share the subtasks. One at 100 % while the others wait is all that its process can do."),
  table([
    ["Worker", one => one.worker, "number"],
    ["Process", one => one.process, "number"],
    ["Subtasks", one => count(one.subtasks), "number"],
    ["Records read/s", one => rate(one.records_per_s), "number"],
    ["Busy", one => share(one.busy), "number"],
    ["Memory", one => bytes(one.memory_bytes), "number"],
    ["Last report", one => seconds(one.silent_s), "number"],
  ], all, "Workers now"));

const behind = (doc, at) => chart({ key: "behind", label: "Watermarks behind the clock", unit: "seconds", x: at,
  series: doc.live.operators.map((one, index) => ({ name: one.id, ...look(index), values: one.behind_s.map(value => (known(value) ? Math.max(0, value) : null)) })).filter(one => one.values.some(known)) });

const late = (doc, operators, at, several) => {
  const all = operators.reduce((sum, one) => sum + (one.late_records || 0), 0);
  return all > 0 ? card("Late records", `${count(all)} came after their event time had passed.`, chart({ key: "late", label: "Late records a second", unit: "rate", x: at, series: several("late_per_s") })) : null;
};
