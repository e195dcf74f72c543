// What a restore would read and take, and what a day costs.

const READ = {
  manifests: "manifests of all retained checkpoints",
  described: "descriptors of all retained checkpoints",
  files: "table files",
  segments: "log segments, in part",
};
/** What a restore reads, by kind, and all of it. */
const reads = restore => {
  const rows = Object.entries(READ).map(([name, kind]) => ({ kind, ...restore.fetch[name] }));
  const all = field => rows.reduce((sum, row) => sum + row[field], 0);
  return [...rows, { kind: "all", count: all("count"), bytes: all("bytes") }];
};

const restoreSection = doc => {
  const restore = doc.restore;
  const title = heading("A restore now", "What a start from the newest checkpoint would read and take.");
  if (!restore) return [title, empty(told(doc, "There is no checkpoint that could be restored; a start begins with nothing."))];
  const download = restore.seconds - restore.replay_s;
  return [title, h("div", { class: "grid" },
    card("Time", `From a started process until its tables are whole, by the model of tidelog estimate, with its defaults: a link of ${bytes(restore.link.bytes_per_s)}/s, ${seconds(restore.link.latency_s)} a request, ${restore.link.requests} at a time, ${count(restore.replay_per_s)} changes a second.`,
      !restore.possible ? h("p", { class: "wrong" }, "This checkpoint cannot be restored: see the problems above.") : null,
      h("p", { class: "figure" }, seconds(restore.seconds)),
      h("p", {}, `Records are handled after ${seconds(restore.first_record_s)} where the job begins at-once.`),
      legend([{ name: `Requests and bytes, ${seconds(download)}`, colour: "c2" }, { name: `Replay, ${seconds(restore.replay_s)}`, colour: "c0" }]),
      stacks([{ name: `checkpoint ${restore.checkpoint}`, parts: [{ value: download, colour: "c2" }, { value: restore.replay_s, colour: "c0" }], text: seconds(restore.seconds) }])),
    card("What it reads", "Exactly, as the manifests and descriptors say.", table([
      ["What", row => row.kind],
      ["Objects", row => count(row.count), "number"],
      ["Bytes", row => bytes(row.bytes), "number"],
    ], reads(restore), "What a restore reads"),
    h("p", {}, h("strong", {}, count(restore.fetch.changes)), " changes are replayed on the tables.")),
    measuredRestore(part(doc, "restore")))];
};

/** The restore at the start of this run, beside what the model says of the next one. */
const measuredRestore = restore => (known(restore.seconds) ? h("div", { class: "card whole" }, h("h3", {}, "The last one, measured"),
  h("p", { class: "small" }, "At the start of this run. Its phases overlap, and each counts once for all subtasks."),
  h("dl", { class: "facts" },
    fact("From checkpoint", count(restore.checkpoint)), fact("It took", seconds(restore.seconds)),
    fact("Read", bytes(restore.bytes)), fact("Changes replayed", count(restore.changes)),
    ...(restore.phases ? [
      fact("Download", seconds(restore.phases.download_s)), fact("Open tables", seconds(restore.phases.open_s)),
      fact("Fetch log", seconds(restore.phases.fetch_log_s)), fact("Replay", seconds(restore.phases.replay_s)),
    ] : []))) : null);

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
      ["A day", line => h("strong", {}, known(line.total) ? money(line.total, line.currency) : "not yet known"), "number"],
      ["Storage", line => money(line.storage, line.currency), "number"],
      ["Requests", line => money(line.requests, line.currency), "number"],
      ["Transfer", line => money(line.transfer, line.currency), "number"],
    ], bill.lines, "The bill of a day")),
    h("div", { class: "card whole" }, h("h3", {}, "Stored"), h("p", { class: "small" }, `${bytes(all)} in ${plural(objects, "object")}, listed ${ago(bill.at_ms, doc.at_ms)}.`),
      stacks(bill.stored.map((kind, at) => ({ name: kind.kind, parts: [{ value: kind.bytes, colour: colours[at % 4] }], text: `${bytes(kind.bytes)}, ${count(kind.objects)}` }))),
      bill.requests ? h("dl", { class: "facts" }, fact("PUT a day", count(bill.requests.put)), fact("LIST a day", count(bill.requests.list)), fact("GET a day", count(bill.requests.get)), fact("DELETE a day", count(bill.requests.delete)),
        fact("Written a day", bytes(bill.requests.bytes_written)), fact("Read a day", bytes(bill.requests.bytes_read))) : null))];
};
