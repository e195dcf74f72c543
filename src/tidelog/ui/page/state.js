// Checkpoints, log and tables, and their uploads.

const PHASES = [
  ["start_delay_s", "Barrier on its way", "c6"],
  ["alignment_s", "Alignment", "c1"],
  ["durable_s", "Until all was durable", "c0"],
  ["manifest_s", "Manifest", "c3"],
];

const checkpointSection = doc => {
  const points = doc.checkpoints;
  const timed = points.filter(point => point.phases);
  const columns = of => [["Checkpoint", of.map(point => (point.savepoint ? `${point.checkpoint} (${point.savepoint})` : point.checkpoint))]];
  const barriers = points.filter(point => point.contents);
  return [
    heading("Checkpoints", "Where their time went, and how much each added to the store."),
    points.length === 0 ? empty("No checkpoint was completed yet. The first one comes after the job's checkpoint interval.") : h("div", { class: "grid" },
      card("Duration by phase", timed.length ? `The last ${count(timed.length)}, as the job told them.` : null, timed.length
        ? chart({ key: "durations", label: "Duration of checkpoints by phase", bars: true, unit: "seconds", sum: "Duration", most: "slowest", x: column(timed, p => p.created_ms), columns: columns(timed),
          series: PHASES.map(([field, name, colour]) => ({ name, colour, values: column(timed, p => p.phases[field]) })) })
        : [empty("Only a running job tells how long checkpoints take. From the store alone, how their barriers passed:"),
          barriers.length && barriers.every(p => p.contents.start_delay_s + p.contents.alignment_s === 0) ? empty("No barrier of the stored checkpoints waited for as long as a millisecond.") : barriers.length ? chart({ key: "barriers", label: "Barriers of checkpoints", bars: true, unit: "seconds", sum: "At most", x: column(barriers, p => p.created_ms), columns: columns(barriers),
            series: [{ name: "Start delay, longest", colour: "c6", values: column(barriers, p => p.contents.start_delay_s) }, { name: "Alignment, longest", colour: "c1", values: column(barriers, p => p.contents.alignment_s) }] }) : empty("The checkpoints do not tell this either.")]),
      card("Added to the store", "Bytes that the checkpoint before does not hold.", added(points, columns))),
  ];
};

const added = (points, columns) => {
  const shown = points.filter(point => known(sizes(point).log_incremental_bytes));
  return shown.length ? chart({ key: "added", label: "Bytes that each checkpoint added", bars: true, unit: "bytes", x: column(shown, p => p.created_ms), columns: columns(shown),
    series: [
      { name: "Log", colour: "c0", values: column(shown, p => sizes(p).log_incremental_bytes) },
      { name: "Table files", colour: "c2", values: column(shown, p => sizes(p).materialized_incremental_bytes) },
      { name: "Manifest", colour: "c3", values: column(shown, p => p.manifest_bytes) },
    ] }) : empty("It takes two checkpoints in a row to tell.");
};

const tideSection = doc => {
  const live = doc.live && doc.live.series;
  const points = withoutRows(doc);
  const from = points.length && live && live.at_ms.length ? Math.min(points[0].created_ms, live.at_ms[0]) : null;
  const columns = [["Checkpoint", column(points, p => p.checkpoint)]];
  return [
    heading("Log and tables", "The log rises with every change and falls when a table is uploaded: what is in a table need not be replayed."),
    points.length === 0 ? empty("There is no checkpoint yet whose log and tables could be shown.") : h("div", { class: "grid" },
      card("Log to replay", "In each checkpoint.", chart({ key: "log", label: "Log in each checkpoint", unit: "bytes", x: column(points, p => p.created_ms), columns, legend: false,
        series: [{ name: "Log", colour: "c0", area: true, values: column(points, p => sizes(p).log_full_bytes) }] })),
      card("Uploaded tables", "All files of the materializations that each checkpoint names.", chart({ key: "tables", label: "Uploaded tables in each checkpoint", unit: "bytes", x: column(points, p => p.created_ms), columns,
        series: [{ name: "Uploaded tables", colour: "c2", area: true, values: column(points, p => sizes(p).materialized_full_bytes) }] })),
      live && live.at_ms.length > 1 ? card("Now, in the job", "Every two seconds since this page was opened; the log that is not uploaded yet is part of it.", chart({ key: "state", label: "Tables and log in the running job", unit: "bytes", x: live.at_ms, from,
        series: [{ name: "Tables", colour: "c2", values: live.table_bytes }, { name: "Log since their uploads", colour: "c0", values: live.log_bytes }, { name: "Waiting for upload", colour: "c1", dash: 1, values: live.queued_bytes }] })) : null,
      live && live.at_ms.length > 1 && live.memory_bytes.some(known) ? card("Memory", `What counts against the budget of ${bytes(part(doc, "memory").budget_bytes)}.`, chart({ key: "memory", label: "Memory of the job", unit: "bytes", x: live.at_ms,
        series: [{ name: "In use", colour: "c5", area: true, values: live.memory_bytes }] })) : null),
  ];
};

const materializationSection = doc => {
  const newest = newestCheckpoint(doc);
  const rows = newest ? newest.operators.flatMap(operator => operator.subtasks.map(subtask => ({ operator: operator.id, ...subtask, subtask: subtask.index }))) : [];
  const kept = rows.filter(row => row.seqno > 0 || row.materialized_bytes > 0);
  const figures = part(doc, "materializations");
  return [
    heading("Materializations", "Each table is uploaded now and then, at moments of its own, so that uploads never come together."),
    !newest ? empty("There is no checkpoint yet that names a table.") : h("div", { class: "grid" },
      card("By subtask", `In the newest checkpoint, checkpoint ${newest.checkpoint}.`,
        kept.length ? [legend([{ name: "Table", colour: "c2" }, { name: "Log to replay", colour: "c0" }]),
          stacks(largest(kept).map(row => ({
            name: `${row.operator}-${row.subtask}`,
            parts: [{ value: row.materialized_bytes, colour: "c2" }, { value: row.log_bytes + row.inline_bytes, colour: "c0" }],
            text: h("span", {}, `${bytes(row.materialized_bytes)} + ${bytes(row.log_bytes + row.inline_bytes)}`),
            title: `${count(row.replay_changes)} changes to replay`,
          }))),
          kept.length > MOST_ROWS ? h("p", { class: "small" }, `The ${MOST_ROWS} largest of ${count(kept.length)}; all are among the numbers.`) : null,
          fold("materialized/numbers", "Numbers", () => table([
            ["Subtask", row => `${row.operator}-${row.subtask}`],
            ["Uploaded", row => uploaded(row, doc)],
            ["Table", row => bytes(row.materialized_bytes), "number"],
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

const MOST_ROWS = 16;
const largest = rows => (rows.length <= MOST_ROWS ? rows
  : rows.slice().sort((a, b) => b.materialized_bytes + b.log_bytes - a.materialized_bytes - a.log_bytes).slice(0, MOST_ROWS));

const uploaded = (row, doc) => {
  if (!row.descriptor) return "not yet";
  const event = doc.materialized.findLast(one => one.operator === row.operator && one.subtask === row.subtask && one.upto === row.materialized_upto);
  return event ? ago(event.at_ms, doc.at_ms) : "before the oldest checkpoint here";
};

const uniqueRows = events => {
  const rows = new Map(events.map(event => [`${event.operator}-${event.subtask}`, event]));
  return [...rows.values()].sort((a, b) => (a.operator === b.operator ? a.subtask - b.subtask : a.operator < b.operator ? -1 : 1));
};
