// The slots of the store, with operators and subtasks.

const slotSection = doc => [
  heading("Slots", "Every slot of the store that counts, newest first. A checkpoint opens to its operators and subtasks."),
  doc.slots.length ? h("div", { class: "card slots" }, doc.slots.map(slot => slotRow(doc, slot))) : empty(told(doc, "The store has no slots.")),
];

const slotRow = (doc, slot) => {
  const title = [
    h("span", { class: "slot" }, `#${slot.slot}`),
    h("span", { class: "kind" }, slot.name ? `savepoint ${slot.name}` : slot.kind === "start" ? `start of generation ${slot.generation}` : slot.kind),
    slot.restorable === false ? pill(slot.kind === "unreadable" ? "damaged" : "cannot be restored", "bad") : null,
    slot.final ? pill("final") : null,
    slot.savepoint_format ? pill(slot.savepoint_format) : null,
    h("span", { class: "grow" }),
    known(slot.materialized_bytes) ? h("span", { class: "muted" }, `table ${bytes(slot.materialized_bytes)}, log ${bytes(slot.log_bytes + slot.inline_bytes)}`) : null,
    h("time", { class: "muted" }, known(slot.created_ms) ? ago(slot.created_ms, doc.at_ms) : DASH),
  ];
  if (slot.kind === "start") return h("div", { class: "line" }, title);
  return fold(`slot-${slot.slot}`, h("span", { class: "line" }, title), () => slotDetails(slot));
};

const slotDetails = slot => [
  slot.problem ? h("p", { class: "wrong" }, slot.problem) : null,
  h("dl", { class: "facts broad" },
    fact("Checkpoint", known(slot.checkpoint_id) ? String(slot.checkpoint_id) : DASH),
    fact("Generation", known(slot.generation) ? String(slot.generation) : DASH),
    fact("Completed", moment(slot.created_ms)),
    fact("Manifest", bytes(slot.manifest_bytes))),
  slot.operators ? slot.operators.map(operator => operatorDetails(operator))
    : slot.kind === "unreadable" ? null
      : h("p", { class: "small" }, `Operators are shown for the newest checkpoints; \`tidelog checkpoints show URL ${slot.slot}\` tells those of this one.`),
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
