"""What is read of logs is what the views of the data source have."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled, store_of
from tests.unit.cost.measured.jobs import aggregated, windowed
from tests.unit.spark.source.reading import read
from tests.unit.verify.stores import engine_on
from tidelog.concurrency import no_progress
from tidelog.cost.measured.facts import MeasuredLog, Tally, Written
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.log import block_facts, read_log, subtasks_of, written
from tidelog.ids import SubtaskId

STORES = {"aggregate": aggregated, "windows": lambda: windowed(5), "every kind": filled}
KEY = ("kind", "first_seqno", "end_seqno", "raw_bytes", "stored_bytes")


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest) -> Mapping[str, bytes]:
    return STORES[request.param]()


def test_blocks_are_those_of_the_view(objects: Mapping[str, bytes], tmp_path: Path) -> None:
    held: dict[MeasuredLog, Tally] = defaultdict(Tally)
    distinct = {}
    for row in read(lay_out(tmp_path, objects), view="blocks"):
        key = tuple(row[name] for name in KEY)
        tally = Tally(1, row["end_seqno"] - row["first_seqno"], key[3], key[4])
        for slot in row["referenced_by"]:
            held[MeasuredLog(slot, row["operator"], row["subtask"])] += tally
            distinct[row["operator"], row["subtask"], key] = tally
    once: dict[SubtaskId, Tally] = defaultdict(Tally)
    for (operator, subtask, _), tally in distinct.items():
        once[SubtaskId(operator, subtask)] += tally
    store = store_of(objects)
    _, checkpoints = asyncio.run(read_history(store))
    states = subtasks_of(checkpoints)
    found = block_facts(asyncio.run(read_log(engine_on(store), states, no_progress)))
    assert {log: tally for log, tally in found.by_log.items() if tally.blocks} == held
    assert {who: tally for who, tally in found.distinct.items() if tally.blocks} == once


def test_changes_are_those_of_the_view(objects: Mapping[str, bytes], tmp_path: Path) -> None:
    store = store_of(objects)
    history, checkpoints = asyncio.run(read_history(store))
    newest = history.snapshots[-2]
    states = {log: s for log, s in subtasks_of(checkpoints).items() if log.slot == newest.slot}
    logs = asyncio.run(read_log(engine_on(store), states, no_progress, by_state=True))
    found = written(states, logs)
    rows: Counter[Written] = Counter()
    sizes: Counter[Written] = Counter()
    for row in read(lay_out(tmp_path, objects), view="changes", slot=newest.slot):
        log = MeasuredLog(row["slot"], row["operator"], row["subtask"])
        key = Written(log, row["state_id"], row["op"] == "delete")
        rows[key] += 1
        sizes[key] += 4 + len(row["key"]) + len(row["value"] or b"") + 9
    assert found == {key: Tally(changes=rows[key], raw_bytes=sizes[key]) for key in rows}
    assert rows.total() == sum(p.seqno - p.upto for p in newest.points.values())
