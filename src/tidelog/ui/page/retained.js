// What the store holds, by number, with operators and subtasks.

const retainedSection = doc => [
  heading("Retained checkpoints", "All that the store retains, newest first; a start has a number as well. A checkpoint opens to its operators and subtasks."),
  doc.retained.length ? h("div", { class: "card retained" }, doc.retained.map(entry => retainedRow(doc, entry))) : empty(told(doc, "The store has no checkpoints.")),
];

const retainedRow = (doc, entry) => {
  const title = [
    h("span", { class: "label" }, `#${entry.checkpoint}`),
    h("span", { class: "kind" }, entry.name ? `savepoint ${entry.name}` : entry.kind === "start" ? `start of generation ${entry.generation}` : entry.kind === "move" ? "moved to Spark" : entry.kind),
    entry.restorable === false ? pill(entry.kind === "unreadable" ? "damaged" : "cannot be restored", "bad") : null,
    entry.final ? pill("final") : null,
    entry.savepoint_format ? pill(entry.savepoint_format) : null,
    h("span", { class: "grow" }),
    known(entry.materialized_bytes) ? h("span", { class: "muted" }, `table ${bytes(entry.materialized_bytes)}, log ${bytes(entry.log_bytes + entry.inline_bytes)}`) : null,
    h("time", { class: "muted" }, known(entry.created_ms) ? ago(entry.created_ms, doc.at_ms) : DASH),
  ];
  if (entry.kind === "start" || entry.kind === "move") return h("div", { class: "line" }, title);
  return fold(`checkpoint-${entry.checkpoint}`, h("span", { class: "line" }, title), () => retainedDetails(entry));
};

const retainedDetails = entry => [
  entry.problem ? h("p", { class: "wrong" }, entry.problem) : null,
  h("dl", { class: "facts broad" },
    fact("Attempt", known(entry.attempt) ? String(entry.attempt) : DASH),
    fact("Generation", known(entry.generation) ? String(entry.generation) : DASH),
    fact("Completed", moment(entry.created_ms)),
    fact("Manifest", bytes(entry.manifest_bytes))),
  entry.operators ? entry.operators.map(operator => operatorDetails(operator))
    : entry.kind === "unreadable" ? null
      : h("p", { class: "small" }, `Operators are shown for the newest checkpoints; \`tidelog checkpoints show URL ${entry.checkpoint}\` tells those of this one.`),
].flat(Infinity).filter(Boolean);

const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

const operatorDetails = operator => h("div", { class: "operator" },
  h("h4", {}, operator.id, h("span", { class: "muted" }, ` ${plural(operator.subtasks.length, "subtask")}, ${plural(operator.key_groups, "key group")}`)),
  operator.states.length ? h("ul", { class: "states" }, operator.states.map(state =>
    h("li", {}, h("code", {}, state.name), ` ${state.kind} `, h("span", { class: "muted" }, state.schema.join("; "), known(state.ttl_ms) ? `, TTL ${seconds(state.ttl_ms / 1000)}` : "")))) : null,
  table([
    ["Subtask", part => String(part.index)],
    ["Key groups", part => `${part.first_key_group}\u2013${part.last_key_group}`, "number"],
    ["Changes", part => count(part.seqno), "number"],
    ["In the table up to", part => count(part.materialized_upto), "number"],
    ["To replay", part => count(part.replay_changes), "number"],
    ["Table", part => bytes(part.materialized_bytes), "number"],
    ["Log", part => bytes(part.log_bytes), "number"],
    ["Inline", part => bytes(part.inline_bytes), "number"],
    ["In flight", part => bytes(part.in_flight_bytes), "number"],
    ["Start delay", part => known(part.start_delay_ms) ? seconds(part.start_delay_ms / 1000) : DASH, "number"],
    ["Alignment", part => known(part.alignment_ms) ? `${seconds(part.alignment_ms / 1000)}${part.unaligned ? ", unaligned" : ""}` : DASH, "number"],
    ["Watermark", part => watermark(part.watermark)],
    ["", part => [part.finished ? pill("finished") : null, part.inherited.length ? pill(`builds on ${part.inherited.length} earlier`) : null].filter(Boolean)],
  ], operator.subtasks, `Subtasks of ${operator.id}`));
