// What stands in the sections when the store is the checkpoint of a Spark query.

const dated = doc => doc.query.batches.filter(batch => known(batch.started_ms));
const sumOf = (rows, value) => rows.reduce((sum, row) => sum + value(row), 0);
const newestFirst = rows => rows.slice().reverse();
const storeName = store => `${store.operator}/${store.partition}${store.name === "default" ? "" : ` ${store.name}`}`;

const queryFigures = doc => {
  const { query } = doc;
  const { log } = query;
  const last = query.batches[query.batches.length - 1];
  const snapshots = query.stores.filter(store => known(store.snapshot_version)).length;
  return h("div", { class: "tiles" },
    tile("Last batch", last ? String(last.batch) : DASH, last && known(last.started_ms) ? `planned ${ago(last.started_ms, doc.at_ms)}` : "none was committed yet"),
    tile("Batches kept", count(query.batches.length), last ? `${query.batches[0].batch} to ${last.batch}` : "none"),
    tile("State stores", count(query.stores.length), `${count(snapshots)} with a snapshot`),
    tile("To replay", bytes(sumOf(query.stores, store => store.replay_bytes)), `${plural(sumOf(query.stores, store => store.replay_changelogs), "changelog")} since the snapshots`),
    tile("The log", bytes(log.bytes), `${plural(log.segments, "segment")}, ${plural(log.roll_ups, "roll-up")}`),
    tile("Needed of it", bytes(log.live_bytes), `${plural(log.live_changelogs, "changelog")}, ${count(log.expired_changelogs)} expired`));
};

const batchSection = doc => {
  const batches = dated(doc);
  const x = column(batches, batch => batch.started_ms);
  const columns = [["Batch", column(batches, batch => batch.batch)]];
  return [
    heading("Batches", "What each committed batch put into the log, and the snapshots of state stores that came with it."),
    batches.length === 0 ? empty("No batch is dated: none was committed, or Spark has purged the offsets.") : h("div", { class: "grid" },
      card("Changelogs", "Bytes in the log.", chart({ key: "batches", label: "Bytes of changelogs in each batch", bars: true, unit: "bytes", x, columns, legend: false,
        series: [{ name: "Changelogs", colour: "c0", values: column(batches, batch => batch.log_bytes) }] })),
      card("Objects", "A segment of each executor is best; snapshots should be spread over the batches.", chart({ key: "objects", label: "Segments and snapshots of each batch", unit: "count", least: 4, x, columns,
        series: [{ name: "Segments", colour: "c0", values: column(batches, batch => batch.segments) }, { name: "Snapshots", colour: "c2", dash: 1, values: column(batches, batch => batch.snapshots) }] }))),
  ];
};

const storeSection = doc => {
  const { stores } = doc.query;
  return [
    heading("State stores", "A restart reads the newest snapshot of each store, and replays the changelogs after it."),
    stores.length === 0 ? empty("The query has no state, or none of it is in changelogs.") : h("div", { class: "card" },
      h("h3", {}, "Changelogs after the snapshot, by operator and partition"),
      stacks(stores.slice(0, 64).map(store => ({
        name: storeName(store),
        parts: [{ value: store.replay_bytes, colour: "c0" }],
        text: `${bytes(store.replay_bytes)}, ${count(store.replay_changelogs)}`,
        title: known(store.snapshot_version) ? `snapshot of version ${store.snapshot_version}` : "no snapshot yet",
      }))),
      stores.length > 64 ? h("p", { class: "small" }, `The first 64 of ${count(stores.length)}; all are below.`) : null,
      fold("stores/numbers", "Numbers", () => table([
        ["Store", store => storeName(store)],
        ["Version", store => count(store.version), "number"],
        ["Snapshot of", store => count(store.snapshot_version), "number"],
        ["Snapshots", store => count(store.snapshots), "number"],
        ["To replay", store => count(store.replay_changelogs), "number"],
        ["Bytes", store => bytes(store.replay_bytes), "number"],
        ["Changelogs kept", store => count(store.changelogs), "number"],
        ["Bytes kept", store => bytes(store.changelog_bytes), "number"],
      ], stores, "State stores"))),
  ];
};

const batchTable = doc => [
  heading("Every batch", "Those whose commit is kept, newest first."),
  doc.query.batches.length === 0 ? empty("No batch was committed yet.") : h("div", { class: "card retained" }, table([
    ["Batch", batch => String(batch.batch)],
    ["Planned", batch => known(batch.started_ms) ? moment(batch.started_ms) : DASH],
    ["Operators", batch => count(batch.operators), "number"],
    ["Partitions", batch => count(batch.partitions), "number"],
    ["Changelogs", batch => count(batch.changelogs), "number"],
    ["Of their own", batch => count(batch.files), "number"],
    ["Bytes", batch => bytes(batch.log_bytes), "number"],
    ["Segments", batch => count(batch.segments), "number"],
    ["Snapshots", batch => count(batch.snapshots), "number"],
  ], newestFirst(doc.query.batches), "Batches")),
];

const nothing = () => [];
const QUERY_SECTIONS = {
  header: headerSection,
  notices: noticeSection,
  figures: queryFigures,
  checkpoints: batchSection,
  tide: storeSection,
  materializations: nothing,
  operators: nothing,
  restore: nothing,
  bill: nothing,
  retained: batchTable,
};
